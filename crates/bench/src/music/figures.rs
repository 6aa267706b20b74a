//! The figures: which points each needs, and how it is drawn.

use anyhow::Result;

use super::load::{Counted, Keys, Load, Work, quantile};
use super::page::{Page, Rows, line, number, row};
use super::place::{LOOPBACK, LUS, PROFILES, Profile};
use super::system::Kind;
use super::{Effort, Measured, Point, targets};
use crate::chart::Chart;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Figure {
    /// One table of what was aimed at.
    Targets,
    /// Throughput of `CassaEV`, MUSIC and MSCP by profile.
    #[value(name = "4")]
    Four,
    /// Their latency, and that of MUSIC's steps.
    #[value(name = "5")]
    Five,
    /// Throughput by the number of puts in a section and by their size.
    #[value(name = "6")]
    Six,
    /// Latency of a section beside updates that are transactions each.
    #[value(name = "7")]
    Seven,
    /// Distribution of latencies.
    #[value(name = "8")]
    Eight,
    /// YCSB.
    #[value(name = "9")]
    Nine,
    /// Plain puts and gets beside Cassandra.
    #[value(name = "11")]
    Eleven,
    /// Plain puts, gets and sections beside `ZooKeeper`.
    #[value(name = "12")]
    Twelve,
}

/// Bytes of a value where nothing else is said: the paper's.
pub(super) const SMALL: usize = 10;

/// What the paper calls MUSIC, and what stands beside it.
const LAYERS: [Kind; 5] = [
    Kind::Native,
    Kind::Engine,
    Kind::Paper,
    Kind::Mscp,
    Kind::CassaEv,
];

pub(super) const DISTINCT: &str = "distinct keys";
pub(super) const PLAIN_PUTS: &str = "plain puts";
pub(super) const CRITICAL: &str = "critical puts";
pub(super) const HOT: &str = "one key";
const PLAIN_GETS: &str = "plain gets";

pub(super) fn steps_name(profile: Profile) -> String {
    format!("one client a site {}", profile.name)
}

fn many_name(profile: Profile) -> String {
    format!("many clients {}", profile.name)
}

pub(super) fn hundred_name(small: bool, piped: bool) -> String {
    let size = if small { "small" } else { "large" };
    let how = if piped { " in flight" } else { "" };
    format!("100 {size} puts{how}")
}

impl Figure {
    /// All of them, in order.
    pub(super) fn all() -> Vec<Figure> {
        <Figure as clap::ValueEnum>::value_variants().to_vec()
    }

    /// What it shows.
    pub(super) fn points(self, effort: Effort) -> Vec<Point> {
        match self {
            Figure::Targets => targets::points(effort),
            Figure::Four => PROFILES.map(|p| many(p, effort)).into(),
            Figure::Five => PROFILES.map(|p| steps(p, effort, false)).into(),
            Figure::Six => six(effort),
            Figure::Seven => seven(effort),
            Figure::Eight => vec![steps(PROFILES[0], effort, false), steps(LUS, effort, false)],
            Figure::Nine => nine(effort),
            Figure::Eleven => vec![plain_puts(effort), plain_gets(effort)],
            Figure::Twelve => vec![plain_puts(effort), plain_gets(effort), distinct(effort)],
        }
    }

    /// Draws it.
    pub(super) fn draw(self, measured: &Measured, page: &mut Page) -> Result<()> {
        match self {
            Figure::Targets => targets::draw(measured, page),
            Figure::Four => draw_four(measured, page),
            Figure::Five => draw_five(measured, page),
            Figure::Six => draw_six(measured, page),
            Figure::Seven => draw_seven(measured, page),
            Figure::Eight => draw_eight(measured, page),
            Figure::Nine => draw_nine(measured, page),
            Figure::Eleven => draw_eleven(measured, page),
            Figure::Twelve => draw_twelve(measured, page),
        }
    }
}

fn point(
    name: impl Into<String>,
    profile: Profile,
    kinds: &[Kind],
    (work, keys, size, clients): (Work, Keys, usize, [usize; 3]),
    (time, rounds): ((std::time::Duration, std::time::Duration), u32),
) -> Point {
    Point {
        name: name.into(),
        profile,
        kinds: kinds.to_vec(),
        load: Load {
            work,
            keys,
            size,
            clients,
            time,
            rounds,
            first: false,
        },
    }
}

/// A client a site, one section at a time.
pub(super) fn steps(profile: Profile, effort: Effort, all: bool) -> Point {
    let mut kinds = LAYERS.to_vec();
    if all {
        kinds.extend([Kind::Unverified, Kind::Split, Kind::Zookeeper, Kind::Etcd]);
    }
    let time = effort.of((4.0, 2), (20.0, 5));
    let load = (Work::Steps, Keys::Own, SMALL, [1, 1, 1]);
    point(steps_name(profile), profile, &kinds, load, time)
}

/// As many as keep the servers busy.
fn many(profile: Profile, effort: Effort) -> Point {
    let clients = if effort.quick { [16; 3] } else { [64; 3] };
    let time = effort.of((3.0, 1), (15.0, 5));
    let load = (Work::Section, Keys::Own, SMALL, clients);
    point(many_name(profile), profile, &LAYERS, load, time)
}

/// 32 clients without delays.
const CROWD: [usize; 3] = [11, 11, 10];

pub(super) fn distinct(effort: Effort) -> Point {
    let kinds = [
        Kind::Native,
        Kind::Engine,
        Kind::Paper,
        Kind::Zookeeper,
        Kind::Etcd,
    ];
    let load = (Work::Section, Keys::Own, SMALL, CROWD);
    point(
        DISTINCT,
        LOOPBACK,
        &kinds,
        load,
        effort.of((2.0, 2), (15.0, 5)),
    )
}

pub(super) fn hot(effort: Effort) -> Point {
    let kinds = [Kind::Engine, Kind::Paper, Kind::Native];
    let load = (Work::Section, Keys::One, SMALL, CROWD);
    point(HOT, LOOPBACK, &kinds, load, effort.of((4.0, 2), (20.0, 5)))
}

pub(super) fn plain_puts(effort: Effort) -> Point {
    let kinds = [
        Kind::Native,
        Kind::Engine,
        Kind::CassaEv,
        Kind::Zookeeper,
        Kind::Etcd,
    ];
    let load = (Work::Put, Keys::Own, SMALL, CROWD);
    point(
        PLAIN_PUTS,
        LOOPBACK,
        &kinds,
        load,
        effort.of((1.5, 2), (15.0, 5)),
    )
}

fn plain_gets(effort: Effort) -> Point {
    let kinds = [
        Kind::Native,
        Kind::Engine,
        Kind::CassaEv,
        Kind::Zookeeper,
        Kind::Etcd,
    ];
    let load = (Work::Get, Keys::Own, SMALL, CROWD);
    point(
        PLAIN_GETS,
        LOOPBACK,
        &kinds,
        load,
        effort.of((1.5, 1), (15.0, 5)),
    )
}

/// Puts of holders, so many in a section that the section costs nothing.
pub(super) fn critical_puts(effort: Effort) -> Point {
    let load = (Work::Batch(200), Keys::Own, SMALL, CROWD);
    point(
        CRITICAL,
        LOOPBACK,
        &[Kind::Native],
        load,
        effort.of((1.5, 2), (15.0, 5)),
    )
}

/// Sections of a hundred puts, small and large, one after the other and in flight together.
pub(super) fn hundred(effort: Effort) -> Vec<Point> {
    let mut points = Vec::new();
    for (small, piped) in [(true, false), (true, true), (false, false), (false, true)] {
        let size = if small { SMALL } else { 256 << 10 };
        let clients = if small { [3, 3, 2] } else { [1, 1, 1] };
        let (work, kinds): (_, &[Kind]) = match piped {
            true => (Work::Pipelined(100), &[Kind::Native, Kind::Zookeeper]),
            false => (
                Work::Batch(100),
                &[Kind::Native, Kind::Zookeeper, Kind::Etcd],
            ),
        };
        let load = (work, Keys::Own, size, clients);
        let time = effort.of((1.5, 2), (15.0, 5));
        points.push(point(
            hundred_name(small, piped),
            LOOPBACK,
            kinds,
            load,
            time,
        ));
    }
    points
}

/// A point of Figure 6 or 7, by puts in a section and bytes of each.
fn batch_name(figure: u8, puts: u32, size: usize) -> String {
    format!("figure {figure}: {puts} puts of {size} B")
}

fn piped_name(puts: u32, size: usize) -> String {
    format!("figure 6: {puts} puts of {size} B in flight")
}

/// Puts in a section, at the small size; then sizes, at so many puts.
fn batches(quick: bool) -> (&'static [u32], &'static [usize], u32) {
    match quick {
        true => (&[1, 10, 30], &[SMALL, 16 << 10, 256 << 10], 10),
        false => (
            &[1, 10, 100, 1_000],
            &[SMALL, 1 << 10, 16 << 10, 256 << 10],
            100,
        ),
    }
}

/// All pairs of the two, once each.
fn shapes(quick: bool) -> Vec<(u32, usize)> {
    let (puts, sizes, fixed) = batches(quick);
    let mut shapes: Vec<(u32, usize)> = puts.iter().map(|puts| (*puts, SMALL)).collect();
    shapes.extend(sizes.iter().map(|size| (fixed, *size)));
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

const SIX: [Kind; 7] = [
    Kind::Native,
    Kind::Engine,
    Kind::Unverified,
    Kind::Paper,
    Kind::Mscp,
    Kind::Zookeeper,
    Kind::Etcd,
];
const PIPED: [Kind; 2] = [Kind::Native, Kind::Zookeeper];

fn six(effort: Effort) -> Vec<Point> {
    let clients = if effort.quick { [4; 3] } else { [16; 3] };
    let time = effort.of((2.0, 1), (20.0, 3));
    let mut points = Vec::new();
    for (puts, size) in shapes(effort.quick) {
        let load = (Work::Batch(puts), Keys::Own, size, clients);
        points.push(point(batch_name(6, puts, size), LUS, &SIX, load, time));
        if puts > 1 {
            let load = (Work::Pipelined(puts), Keys::Own, size, clients);
            points.push(point(piped_name(puts, size), LUS, &PIPED, load, time));
        }
    }
    points
}

const SEVEN: [Kind; 4] = [Kind::Native, Kind::Engine, Kind::Paper, Kind::EtcdTxn];

fn seven(effort: Effort) -> Vec<Point> {
    let time = effort.of((2.0, 1), (20.0, 3));
    let points = shapes(effort.quick).into_iter().map(|(puts, size)| {
        let load = (Work::Batch(puts), Keys::Own, size, [1, 0, 0]);
        point(batch_name(7, puts, size), LUS, &SEVEN, load, time)
    });
    points.collect()
}

/// Letters of the paper, and how many of a hundred operations are updates.
const YCSB: [(&str, u8); 3] = [("R", 0), ("UR", 50), ("U", 100)];
const NINE: [Kind; 4] = [Kind::Native, Kind::Engine, Kind::Paper, Kind::Mscp];

fn ycsb_name(letter: &str) -> String {
    format!("YCSB {letter}")
}

fn nine(effort: Effort) -> Vec<Point> {
    let time = effort.of((3.0, 1), (30.0, 3));
    let points = YCSB.map(|(letter, updates)| {
        let load = (Work::Mix(updates), Keys::Zipf(1_000), SMALL, [4; 3]);
        point(ycsb_name(letter), LUS, &NINE, load, time)
    });
    points.into()
}

/// What a figure's lines and cells are made of.
struct Grid<'a> {
    file: &'a str,
    title: &'a str,
    across: &'static str,
    up: &'static str,
    /// Names on the axis, and the points there.
    places: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Grid<'_> {
    /// A table and a chart: a row and a line per system.
    fn draw(
        &self,
        measured: &Measured,
        page: &mut Page,
        kinds: &[Kind],
        of: impl Fn(&Counted) -> f64,
    ) -> Result<()> {
        let lines = kinds.iter().map(|kind| {
            let values = self.places.iter();
            let values = values.map(|(_, point)| measured.of(point, *kind).map(&of));
            (kind.name(), values.collect())
        });
        self.lines(page, lines.collect())
    }

    fn lines(&self, page: &mut Page, lines: Vec<(&'static str, Vec<Option<f64>>)>) -> Result<()> {
        page.text(&format!("\n**{}**, {}\n\n", self.title, self.up));
        let mut head = row([self.across]);
        head.extend(self.places.iter().map(|(place, _)| place.clone()));
        let mut rows: Rows = vec![head];
        for (name, values) in &lines {
            let mut cells = row([name]);
            cells.extend(values.iter().map(|value| number(*value)));
            rows.push(cells);
        }
        page.table(&rows);
        let chart = Chart {
            title: self.title.to_owned(),
            across: self.across,
            up: self.up,
            places: self.places.iter().map(|(place, _)| place.clone()).collect(),
            lines: lines
                .into_iter()
                .map(|(name, values)| line(name, values))
                .collect(),
            notes: self.notes.clone(),
        };
        page.chart(self.file, chart)
    }
}

/// The ratio of two systems at a point, as words.
fn times(measured: &Measured, point: &str, kinds: (Kind, Kind), of: fn(&Counted) -> f64) -> String {
    let (over, under) = kinds;
    let values = measured.of(point, over).zip(measured.of(point, under));
    match values.map(|(a, b)| (of(a), of(b))) {
        Some((a, b)) if b > 0.0 => format!("{:.2}", a / b),
        _ => "(not measured)".to_owned(),
    }
}

/// The profiles as places.
fn profiles(name: fn(Profile) -> String) -> Vec<(String, String)> {
    PROFILES
        .iter()
        .map(|p| (p.name.to_owned(), name(*p)))
        .collect()
}

fn draw_four(measured: &Measured, page: &mut Page) -> Result<()> {
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

fn draw_five(measured: &Measured, page: &mut Page) -> Result<()> {
    let paper = "MUSIC's latency is about 30 % lower than MSCP's across regions. Of its steps from \
                 Ohio on lUs, createLockRef and releaseLock take 219 to 230 ms (4 round trips), \
                 the peek 0.67, the grant 55, criticalPut 93 (MSCP's 270).";
    page.figure(
        "Figure 5: latency of sections with one put, and of their steps",
        paper,
    );
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

fn draw_six(measured: &Measured, page: &mut Page) -> Result<()> {
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
        up: "puts per second, all clients",
        places: sizes
            .iter()
            .map(|s| (s.to_string(), batch_name(6, fixed, *s)))
            .collect(),
        notes: vec![format!("{fixed} puts in a section. The paper: {paper}")],
    };
    by_size.draw(measured, page, &SIX, Counted::puts)?;
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

fn draw_seven(measured: &Measured, page: &mut Page) -> Result<()> {
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

fn draw_eight(measured: &Measured, page: &mut Page) -> Result<()> {
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
        let title = format!("Figure 8({letter}): {}", profile.name);
        let grid = Grid {
            file: &format!("figure8{letter}.svg"),
            title: &title,
            across: "share of sections that are faster, %",
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

fn draw_nine(measured: &Measured, page: &mut Page) -> Result<()> {
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

/// Plain puts and gets, and sections, as places.
fn plain(sections: bool) -> Vec<(String, String)> {
    let mut places = vec![("get", PLAIN_GETS), ("put", PLAIN_PUTS)];
    if sections {
        places.push(("CP put", DISTINCT));
    }
    let places = places.into_iter();
    places
        .map(|(place, point)| (place.to_owned(), point.to_owned()))
        .collect()
}

fn draw_eleven(measured: &Measured, page: &mut Page) -> Result<()> {
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

fn draw_twelve(measured: &Measured, page: &mut Page) -> Result<()> {
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
