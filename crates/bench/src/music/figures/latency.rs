//! Drawings of latencies: Figures 5, 7 and 8.

use anyhow::Result;

use super::grid::{Grid, profiles, times};
use super::names::{LAYERS, SEVEN, SIX, SMALL, batch_name, batches, steps_name};
use crate::music::load::{Counted, quantile};
use crate::music::page::{Page, Rows, number, row};
use crate::music::place::{LUS, PROFILES};
use crate::music::system::Kind;
use crate::music::{Measured, targets};

pub(super) fn draw_five(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC's latency is about 30 % lower than MSCP's across regions. Of its steps from \
                 Ohio on lUs, createLockRef and releaseLock take 219 to 230 ms (4 round trips), \
                 the peek 0.67, the grant 55, criticalPut 93 (MSCP's 270).";
    page.figure(
        "Figure 5: latency of sections with one put, and of their steps",
        paper,
    );
    page.text(targets::SITES);
    let sum = |c: &Counted| {
        let step = if c.of(None, "section").is_empty() {
            "put"
        } else {
            "section"
        };
        c.mean(None, step)
    };
    let name = steps_name(LUS);
    let less = times(measured, &name, (Kind::Paper, Kind::Mscp), |c| {
        c.mean(None, "section")
    });
    let grid = Grid {
        file: "figure5a.svg",
        title: "Figure 5(a): mean latency by profile, everything waited for",
        across: "profile",
        joined: false,
        up: "mean of all sites, ms",
        places: profiles(steps_name),
        notes: vec![format!("The paper: {paper}")],
    };
    // CassaEV has no sections: a plain write stands for it.
    grid.draw(measured, page, &LAYERS, sum)?;
    let mut rows: Rows = vec![row([
        "from Ohio on lUs, p50 ms",
        "enter",
        "create",
        "acquire",
        "put",
        "leave",
        "section",
    ])];
    for kind in SIX.into_iter().chain([Kind::Split]) {
        let Some(counted) = measured.of(&name, kind) else {
            continue;
        };
        let mut cells = row([kind.name()]);
        for step in ["enter", "create", "acquire", "put", "leave", "section"] {
            let values = counted.of(Some(0), step);
            cells.push(number((!values.is_empty()).then(|| quantile(values, 0.5))));
        }
        rows.push(cells);
    }
    page.text("\n**Figure 5(b): steps**\n\n");
    page.table(&rows);
    page.run(&format!(
        "on lUs, MUSIC's rows take {less} of MSCP's time, both on Paxos v2."
    ));
    Ok(())
}

pub(super) fn draw_seven(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC's sections take a half to a quarter of the time of sections on CockroachDB \
                 in which every update is an exclusive transaction.";
    page.figure(
        "Figure 7: latency of a section beside a transaction per update, lUs, Ohio",
        paper,
    );
    let quick = measured
        .of(&batch_name(7, 30, SMALL), Kind::Native)
        .is_some();
    let (puts, sizes, fixed) = batches(quick);
    let section = |c: &Counted| c.mean(None, "section");
    let by_puts = Grid {
        file: "figure7a.svg",
        title: "Figure 7(a): a section by puts in it, 10 B",
        across: "puts in a section",
        joined: true,
        up: "mean, ms",
        places: puts
            .iter()
            .map(|n| (n.to_string(), batch_name(7, *n, SMALL)))
            .collect(),
        notes: vec![format!(
            "The paper, with CockroachDB in place of etcd: {paper}"
        )],
    };
    by_puts.draw(measured, page, &SEVEN, section)?;
    let by_size = Grid {
        file: "figure7b.svg",
        title: "Figure 7(b): a section by size of values",
        across: "bytes",
        joined: true,
        up: "mean, ms",
        places: sizes
            .iter()
            .map(|s| (s.to_string(), batch_name(7, fixed, *s)))
            .collect(),
        notes: vec![format!("{fixed} puts in a section. The paper: {paper}")],
    };
    by_size.draw(measured, page, &SEVEN, section)?;
    let most = puts[puts.len() - 1];
    let over = |kind| {
        let name = batch_name(7, most, SMALL);
        times(measured, &name, (Kind::EtcdTxn, kind), |c| {
            c.mean(None, "section")
        })
    };
    page.run(&format!(
        "with {most} puts, etcd's transactions take {} times native's time, {} times the engine's, \
         {} times that of MUSIC's rows.",
        over(Kind::Native),
        over(Kind::Engine),
        over(Kind::Paper)
    ));
    Ok(())
}

pub(super) fn draw_eight(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "for l1 the distributions are alike, for lUs MUSIC is about 30 % faster than MSCP.";
    page.figure(
        "Figure 8: distribution of the latency of a section, all sites",
        paper,
    );
    let shares = [1, 10, 25, 50, 75, 90, 99];
    for (letter, profile) in [('a', PROFILES[0]), ('b', LUS)] {
        let lines = LAYERS[..4].iter().map(|kind| {
            let counted = measured.of(&steps_name(profile), *kind);
            let values = shares.map(|share| {
                let values = counted?.of(None, "section");
                (!values.is_empty()).then(|| quantile(values, f64::from(share) / 100.0))
            });
            (kind.name(), values.to_vec())
        });
        let title = format!("Figure 8({letter}): latency of sections, {}", profile.name);
        let grid = Grid {
            file: &format!("figure8{letter}.svg"),
            title: &title,
            across: "share of sections that are faster, %",
            joined: true,
            up: "ms",
            places: shares
                .iter()
                .map(|s| (s.to_string(), String::new()))
                .collect(),
            notes: vec![format!("The paper: {paper}")],
        };
        grid.lines(page, lines.collect())?;
    }
    let median = |profile| {
        let name = steps_name(profile);
        times(measured, &name, (Kind::Paper, Kind::Mscp), |c| {
            c.ms(None, "section")
        })
    };
    page.run(&format!(
        "the median of MUSIC's rows is {} of MSCP's on l1, and {} on lUs.",
        median(PROFILES[0]),
        median(LUS)
    ));
    Ok(())
}
