//! Drawings of throughputs: Figures 4, 6 and 9.

use anyhow::Result;

use super::grid::{Grid, profiles, times};
use super::names::{
    LAYERS, NINE, SIX, SMALL, YCSB, batch_name, batches, many_name, piped_name, shapes, ycsb_name,
};
use crate::music::Measured;
use crate::music::load::{Counted, quantile};
use crate::music::page::{Page, Rows, number, row};
use crate::music::place::{PROFILES, Profile};
use crate::music::system::Kind;

pub(super) fn draw_four(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC (885 sections a second) has about 30 % higher throughput than MSCP on every \
                 profile; CassaEV, which has no sections, 41 thousand writes.";
    page.figure("Figure 4(a): throughput of sections with one put", paper);
    let over = |profile: Profile| {
        let name = many_name(profile);
        let music = times(measured, &name, (Kind::Paper, Kind::Mscp), Counted::rate);
        let engine = times(measured, &name, (Kind::Engine, Kind::Paper), Counted::rate);
        let native = times(measured, &name, (Kind::Native, Kind::Paper), Counted::rate);
        format!(
            "{}: MUSIC's rows {music} times MSCP, the engine {engine} times and native {native} \
             times MUSIC's rows",
            profile.name
        )
    };
    let seen = PROFILES.map(over).join("; ") + ".";
    let grid = Grid {
        file: "figure4.svg",
        title: "Figure 4(a): sections per second by profile",
        across: "profile",
        joined: false,
        up: "operations per second, all clients",
        places: profiles(many_name),
        notes: vec![format!("The paper: {paper}"), format!("This run: {seen}")],
    };
    // CassaEV is in the table; in the chart it would hide everything else.
    let rate = |kind: Kind| {
        let points = grid.places.iter();
        (
            kind.name(),
            points
                .map(|(_, p)| measured.of(p, kind).map(Counted::rate))
                .collect(),
        )
    };
    grid.lines(page, LAYERS[..4].iter().map(|kind| rate(*kind)).collect())?;
    let eventual: (_, Vec<_>) = rate(Kind::CassaEv);
    let eventual: Vec<String> = eventual.1.into_iter().map(number).collect();
    page.run(&format!("CassaEV {} a second; {seen}", eventual.join(", ")));
    Ok(())
}

pub(super) fn draw_six(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "with 10 to 1,000 puts in a section MUSIC has 1.4 to 2.3 times ZooKeeper's \
                 throughput and 2 to 3.5 times MSCP's; with values of 10 B to 256 KiB, 100 a \
                 section, 2.45 to 17.17 times ZooKeeper's.";
    page.figure(
        "Figure 6: throughput by puts in a section and by their size, lUs",
        paper,
    );
    let quick = measured
        .of(&batch_name(6, 30, SMALL), Kind::Native)
        .is_some();
    let (puts, sizes, fixed) = batches(quick);
    let by_puts = Grid {
        file: "figure6a.svg",
        title: "Figure 6(a): puts per second by puts in a section, 10 B",
        across: "puts in a section",
        joined: true,
        up: "puts per second, all clients",
        places: puts
            .iter()
            .map(|n| (n.to_string(), batch_name(6, *n, SMALL)))
            .collect(),
        notes: vec![format!("The paper: {paper}")],
    };
    by_puts.draw(measured, page, &SIX, Counted::puts)?;
    let by_size = Grid {
        file: "figure6b.svg",
        title: "Figure 6(b): puts per second by size of values",
        across: "bytes",
        joined: true,
        up: "puts per second, all clients",
        places: sizes
            .iter()
            .map(|s| (s.to_string(), batch_name(6, fixed, *s)))
            .collect(),
        notes: vec![format!("{fixed} puts in a section. The paper: {paper}")],
    };
    by_size.draw(measured, page, &SIX, Counted::puts)?;
    in_flight(measured, page, quick);
    let seen = shapes(quick).into_iter().map(|(puts, size)| {
        let name = batch_name(6, puts, size);
        let over = |peer| times(measured, &name, (Kind::Native, peer), Counted::puts);
        format!(
            "{puts} of {size} B: native {} times ZooKeeper, {} times etcd, {} times MSCP",
            over(Kind::Zookeeper),
            over(Kind::Etcd),
            over(Kind::Mscp)
        )
    });
    page.run(&(seen.collect::<Vec<_>>().join("; ") + "."));
    Ok(())
}

/// Several puts in flight, of the systems that keep their order.
fn in_flight(measured: &Measured, page: &mut Page, quick: bool) {
    let mut rows: Rows = vec![row([
        "several puts in flight, per second",
        "native",
        "ZooKeeper",
        "ratio",
    ])];
    for (puts, size) in shapes(quick) {
        let name = piped_name(puts, size);
        let rate = |kind| number(measured.of(&name, kind).map(Counted::puts));
        let ratio = times(
            measured,
            &name,
            (Kind::Native, Kind::Zookeeper),
            Counted::puts,
        );
        if puts > 1 {
            let what = format!("{puts} of {size} B");
            rows.push(vec![what, rate(Kind::Native), rate(Kind::Zookeeper), ratio]);
        }
    }
    page.text("\n");
    page.table(&rows);
}

pub(super) fn draw_nine(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC has 6 to 20 % more throughput than MSCP and up to 20 % less latency; about \
                 5.5 % of the sections collide.";
    page.figure("Figure 9: YCSB, zipfian, lUs", paper);
    let head = [
        "workload",
        "system",
        "per second",
        "mean ms",
        "p99 ms",
        "collisions %",
        "errors",
    ];
    let mut rows: Rows = vec![row(head)];
    for (letter, _) in YCSB {
        for kind in NINE {
            let Some(c) = measured.of(&ycsb_name(letter), kind) else {
                continue;
            };
            let share = 100.0 * c.collisions as f64 / c.sections.max(1) as f64;
            rows.push(vec![
                letter.to_owned(),
                kind.name().to_owned(),
                number(Some(c.rate())),
                number(Some(c.mean(None, "section"))),
                number(Some(quantile(c.of(None, "section"), 0.99))),
                format!("{share:.1}"),
                c.errors.to_string(),
            ]);
        }
    }
    page.table(&rows);
    let grid = Grid {
        file: "figure9.svg",
        title: "Figure 9: sections per second",
        across: "workload",
        joined: false,
        up: "sections per second, all clients",
        places: YCSB
            .map(|(letter, _)| (letter.to_owned(), ycsb_name(letter)))
            .into(),
        notes: vec![format!("1,000 keys, 12 clients. The paper: {paper}")],
    };
    grid.draw(measured, page, &NINE, Counted::rate)?;
    let over = YCSB.map(|(letter, _)| {
        let name = ycsb_name(letter);
        let music = times(measured, &name, (Kind::Paper, Kind::Mscp), Counted::rate);
        format!("{letter}: MUSIC's rows have {music} times MSCP's throughput")
    });
    page.run(&(over.join("; ") + "."));
    Ok(())
}
