//! Drawings of plain operations: Figures 11 and 12 of the paper's earlier version.

use anyhow::Result;

use super::grid::{Grid, times};
use super::names::{DISTINCT, PLAIN_GETS, PLAIN_PUTS};
use crate::music::Measured;
use crate::music::load::Counted;
use crate::music::page::Page;
use crate::music::system::Kind;

/// Plain puts and gets, and sections, as places.
pub(super) fn plain(sections: bool) -> Vec<(String, String)> {
    let mut places = vec![("get", PLAIN_GETS), ("put", PLAIN_PUTS)];
    if sections {
        places.push(("CP put", DISTINCT));
    }
    let places = places.into_iter();
    places
        .map(|(place, point)| (place.to_owned(), point.to_owned()))
        .collect()
}

pub(super) fn draw_eleven(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC's plain puts and gets are comparable with Cassandra's own, nearly 1,700 a \
                 second.";
    page.figure(
        "Figure 11 of the earlier version: plain gets and puts, loopback",
        paper,
    );
    let grid = Grid {
        file: "figure11.svg",
        title: "Figure 11: plain gets and puts",
        across: "operation",
        joined: false,
        up: "operations per second, 32 clients",
        places: plain(false),
        notes: vec![format!("The paper: {paper}")],
    };
    let kinds = [Kind::Native, Kind::Engine, Kind::CassaEv];
    grid.draw(measured, page, &kinds, Counted::rate)?;
    let over = |point| {
        times(
            measured,
            point,
            (Kind::Engine, Kind::CassaEv),
            Counted::rate,
        )
    };
    page.run(&format!(
        "the engine has {} times Cassandra's own gets and {} times its puts. A put of the engine \
         reads the lock row at the nearest replica first, and goes through a server.",
        over(PLAIN_GETS),
        over(PLAIN_PUTS)
    ));
    Ok(())
}

pub(super) fn draw_twelve(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "gets are comparable, MUSIC's puts nearly twice as fast as ZooKeeper's, and CP \
                 puts (a section with one put) comparable.";
    page.figure(
        "Figure 12 of the earlier version: gets, puts and CP puts, loopback",
        paper,
    );
    let grid = Grid {
        file: "figure12.svg",
        title: "Figure 12: gets, puts, CP puts",
        across: "operation",
        joined: false,
        up: "operations per second, 32 clients",
        places: plain(true),
        notes: vec![format!("The paper: {paper}")],
    };
    let kinds = [Kind::Native, Kind::Engine, Kind::Zookeeper, Kind::Etcd];
    grid.draw(measured, page, &kinds, Counted::rate)?;
    let over = |point| {
        times(
            measured,
            point,
            (Kind::Native, Kind::Zookeeper),
            Counted::rate,
        )
    };
    page.run(&format!(
        "native has {} times ZooKeeper's gets, {} times its puts, {} times its CP puts.",
        over(PLAIN_GETS),
        over(PLAIN_PUTS),
        over(DISTINCT)
    ));
    Ok(())
}
