//! What was aimed at, in one table: measured, beside what, how many times, and whether it is met.

use anyhow::Result;

use super::figures;
use super::load::{Counted, quantile};
use super::page::{Page, Rows, number, row};
use super::place::LUS;
use super::system::Kind;
use super::{Effort, Measured, Point};

/// All that the table is made of.
pub(super) fn points(effort: Effort) -> Vec<Point> {
    let mut points = vec![
        figures::steps(LUS, effort, true),
        figures::shared(LUS, effort),
    ];
    points.extend(rate_points(effort));
    points
}

/// What the rates are made of.
pub(super) fn rate_points(effort: Effort) -> Vec<Point> {
    let mut points = vec![
        figures::hot_native(effort),
        figures::distinct(effort),
        figures::plain_puts(effort),
        figures::critical_puts(effort),
        figures::hot(effort),
        figures::queue(effort),
        figures::queue_alone(effort),
    ];
    points.extend(figures::many_puts(effort));
    points.extend(figures::hundred(effort));
    points
}

/// How latencies are taken, for the report.
pub(super) const SITES: &str = "Latencies are of one site after the other: one client, keys of its \
    own, and before it counts all systems have been used from that site alone for a minute, with \
    --quick for five to ten seconds, in which not every segment moves. Fermata moves the lead of \
    keys to where they are used, and gets the time for it; etcd and ZooKeeper have one leader, \
    which stays where it was elected whoever uses it, so that a site pays for its way to it \
    whether others are busy or not. The rows *all sites at once* have the same clients \
    together.\n\n";

/// A line of the table.
struct Target {
    what: String,
    measured: Option<f64>,
    beside: Option<f64>,
    /// What it is beside of.
    of: &'static str,
    wanted: Wanted,
    /// The other did nothing in the time: `beside` is the rate that one operation would have been.
    nothing: bool,
}

enum Wanted {
    /// At most so many times the other.
    AtMost(f64),
    /// At least so many times the other.
    AtLeast(f64),
    /// At most this, in ms.
    Below(f64),
    /// At least so many a second.
    Above(f64),
    /// Nothing: for comparison.
    Shown,
}

impl Target {
    fn new(
        what: impl Into<String>,
        measured: Option<f64>,
        beside: Option<f64>,
        of: &'static str,
        wanted: Wanted,
    ) -> Target {
        Target {
            what: what.into(),
            measured,
            beside,
            of,
            wanted,
            nothing: false,
        }
    }

    /// The same, for comparison only.
    fn shown(self) -> Target {
        Target {
            wanted: Wanted::Shown,
            ..self
        }
    }

    fn row(&self) -> Vec<String> {
        let ratio = self.measured.zip(self.beside).map(|(m, b)| m / b);
        let (wanted, met) = match self.wanted {
            Wanted::AtMost(most) => (format!("at most {most}"), ratio.map(|r| r <= most)),
            Wanted::AtLeast(least) => (format!("at least {least}"), ratio.map(|r| r >= least)),
            Wanted::Below(most) => (
                format!("at most {most} ms"),
                self.measured.map(|m| m <= most),
            ),
            Wanted::Above(least) => (
                format!("at least {least} a second"),
                self.measured.map(|m| m >= least),
            ),
            Wanted::Shown => ("shown".to_owned(), None),
        };
        let verdict = match met {
            Some(true) => "met".to_owned(),
            Some(false) => self.miss(ratio),
            None if matches!(self.wanted, Wanted::Shown) => String::new(),
            None => "not measured".to_owned(),
        };
        let (below, above) = match self.nothing {
            true => ("below ", "above "),
            false => ("", ""),
        };
        vec![
            self.what.clone(),
            number(self.measured),
            format!("{} {below}{}", self.of, number(self.beside))
                .trim_end_matches(" -")
                .to_owned(),
            format!("{above}{}", number(ratio)),
            wanted,
            verdict,
        ]
    }

    fn miss(&self, ratio: Option<f64>) -> String {
        let by = match (&self.wanted, ratio, self.measured) {
            (Wanted::AtMost(most), Some(ratio), _) => ratio / most - 1.0,
            (Wanted::AtLeast(least), Some(ratio), _) => 1.0 - ratio / least,
            (Wanted::Below(most), _, Some(measured)) => measured / most - 1.0,
            (Wanted::Above(least), _, Some(measured)) => 1.0 - measured / least,
            _ => return "missed".to_owned(),
        };
        format!("missed by {:.0} %", by * 100.0)
    }
}

/// Draws the table.
pub(super) fn draw(measured: &Measured, page: &mut Page) -> Result<()> {
    page.figure(
        "Targets",
        "a section with one put takes about 590 ms from Ohio on lUs (219 + 55 + 93 + 219 ms); \
         ZooKeeper's throughput is higher for sections of one put, MUSIC's 1.4 to 17 times higher \
         for larger ones.",
    );
    page.text(SITES);
    let mut targets = waits(measured);
    if !measured.delayed {
        page.text("Without delays nothing is aimed at between sites: those rows are shown.\n\n");
        targets = targets.into_iter().map(Target::shown).collect();
    }
    targets.extend(rates(measured));
    table(&targets, page);
    Ok(())
}

/// Draws the rates alone.
pub(super) fn draw_rates(measured: &Measured, page: &mut Page) -> Result<()> {
    page.figure(
        "Rates",
        "ZooKeeper's throughput is higher for sections of one put, MUSIC's 1.4 to 17 times higher \
         for larger ones.",
    );
    table(&rates(measured), page);
    Ok(())
}

fn table(targets: &[Target], page: &mut Page) {
    let head = ["what", "measured", "beside", "ratio", "target", "reached"];
    let mut rows: Rows = vec![row(head)];
    rows.extend(targets.iter().map(Target::row));
    page.table(&rows);
    let missed = rows
        .iter()
        .filter(|row| row[5].starts_with("missed"))
        .count();
    let met = rows.iter().filter(|row| row[5] == "met").count();
    page.run(&format!(
        "{met} met, {missed} missed. Times are medians, in ms."
    ));
}

/// Time that a client waits for a section with one put, from each site of lUs. A client of Fermata
/// does not wait for the leave: nothing of its own hangs on it. Clients of the peers' recipes do.
fn waits(measured: &Measured) -> Vec<Target> {
    let point = figures::steps_name(LUS);
    let of = |kind, site: usize, step| {
        let counted: &Counted = measured.of(&point, kind)?;
        let values = counted.of(Some(site), step);
        (!values.is_empty()).then(|| quantile(values, 0.5))
    };
    let mut targets = Vec::new();
    for (site, name) in LUS.sites.into_iter().enumerate() {
        let native = of(Kind::Native, site, "waited");
        let mut line = |what: String, measured, beside, of, wanted| {
            targets.push(Target::new(what, measured, beside, of, wanted));
        };
        for (kind, peer) in [(Kind::Etcd, "etcd"), (Kind::Zookeeper, "ZooKeeper")] {
            let theirs = of(kind, site, "section");
            let what = format!("{name}: native, section with one put, waited");
            line(what, native, theirs, peer, Wanted::AtMost(0.7));
        }
        let whole = of(Kind::Native, site, "section");
        line(
            format!("{name}: native, the leave waited for, too"),
            whole,
            None,
            "",
            Wanted::Shown,
        );
        for (kind, most) in [(Kind::Unverified, 250.0), (Kind::Engine, 310.0)] {
            let wanted = if site == 0 {
                Wanted::Below(most)
            } else {
                Wanted::Shown
            };
            let paper = of(Kind::Paper, site, "section");
            let what = format!("{name}: {}, waited", kind.name());
            line(
                what,
                of(kind, site, "waited"),
                paper,
                "paper's rows",
                wanted,
            );
        }
        let split = of(Kind::Split, site, "waited");
        line(
            format!("{name}: {}, waited", Kind::Split.name()),
            split,
            None,
            "",
            Wanted::Shown,
        );
        targets.extend(together(measured, (site, name)));
    }
    targets.extend(
        LUS.sites
            .into_iter()
            .enumerate()
            .flat_map(|at| beside(measured, at)),
    );
    targets
}

/// The same while all sites use the systems: shown, since leadership can be at one site alone.
fn together(measured: &Measured, (site, name): (usize, &str)) -> Vec<Target> {
    let point = figures::shared_name(LUS);
    let of = |kind, step| {
        let values = measured.of(&point, kind)?.of(Some(site), step);
        (!values.is_empty()).then(|| quantile(values, 0.5))
    };
    let line = |(kind, peer)| {
        let what = format!("{name}: native, waited, all sites at once");
        let (ours, theirs) = (of(Kind::Native, "waited"), of(kind, "section"));
        Target::new(what, ours, theirs, peer, Wanted::Shown)
    };
    [(Kind::Etcd, "etcd"), (Kind::Zookeeper, "ZooKeeper")]
        .map(line)
        .into()
}

/// Where a key's primary is at the client's site, a section costs two trips to the nearest quorum.
/// Primaries are spread, or all with one node: of a client's keys the fastest sixth is taken.
fn beside(measured: &Measured, (site, name): (usize, &str)) -> Vec<Target> {
    let point = figures::steps_name(LUS);
    let trip = [LUS.rtt[0], LUS.rtt[2], LUS.rtt[2]][site];
    let best = measured.of(&point, Kind::Native);
    let best = best.map(|c| quantile(c.of(Some(site), "waited"), 0.15));
    let what = format!("{name}: native beside the primary (the fastest sixth)");
    let limit = ((2.0 * trip + 3.0) * 10.0).round() / 10.0;
    let mut targets = vec![Target::new(&what, best, None, "", Wanted::Below(limit))];
    for (kind, of) in [(Kind::Etcd, "etcd"), (Kind::Zookeeper, "ZooKeeper")] {
        let theirs = measured.of(&point, kind);
        let theirs = theirs.map(|c| quantile(c.of(Some(site), "section"), 0.15));
        targets.push(Target::new(&what, best, theirs, of, Wanted::Shown));
    }
    targets
}

/// Throughputs on the loopback.
fn rates(measured: &Measured) -> Vec<Target> {
    let sections = |point: &str, kind| measured.rate(point, kind);
    let puts = |point: &str, kind| measured.of(point, kind).map(Counted::puts);
    let mut targets = hot(measured);
    let mut line = |what: &str, measured, beside, of, wanted| {
        targets.push(Target::new(what, measured, beside, of, wanted));
    };
    let distinct = |kind| sections(figures::DISTINCT, kind);
    let native = distinct(Kind::Native);
    let what = "sections per second, 32 clients, distinct keys: native";
    line(
        what,
        native,
        distinct(Kind::Zookeeper),
        "ZooKeeper",
        Wanted::AtLeast(2.0),
    );
    line(what, native, distinct(Kind::Etcd), "etcd", Wanted::Shown);
    let what = "the same: cassandra";
    line(
        what,
        distinct(Kind::Engine),
        distinct(Kind::Paper),
        "paper's rows",
        Wanted::Shown,
    );
    let what = "puts per second, 32 clients: native, in sections";
    let critical = puts(figures::CRITICAL, Kind::Native);
    let plain = |kind| puts(figures::PLAIN_PUTS, kind);
    line(
        what,
        critical,
        plain(Kind::Zookeeper),
        "ZooKeeper",
        Wanted::AtLeast(2.0),
    );
    line(what, critical, plain(Kind::Etcd), "etcd", Wanted::Shown);
    let what = "the same: native, eventual";
    line(
        what,
        plain(Kind::Native),
        plain(Kind::Zookeeper),
        "ZooKeeper",
        Wanted::Shown,
    );
    targets.extend(crowded(measured));
    targets.extend(many(measured));
    targets.extend(hundreds(measured));
    targets
}

/// One key that all want, beside systems that have locks of their own.
fn hot(measured: &Measured) -> Vec<Target> {
    let what = "sections per second, 32 clients, one key: native";
    let rate = |kind| measured.rate(figures::HOT_NATIVE, kind);
    let native = rate(Kind::Native);
    let beside = |kind, of, wanted| Target::new(what, native, rate(kind), of, wanted);
    vec![
        beside(Kind::Zookeeper, "ZooKeeper", Wanted::Above(1_500.0)),
        beside(Kind::Etcd, "etcd", Wanted::Shown),
    ]
}

/// Puts of many holders.
fn many(measured: &Measured) -> Vec<Target> {
    let lines = |size| {
        let point = figures::many_puts_name(size);
        let puts = |kind| measured.of(&point, kind).map(Counted::puts);
        let what = format!("puts per second, 64 clients, {size} B: native, in sections");
        let [native, zookeeper, most] = [Kind::Native, Kind::Zookeeper, Kind::Bare].map(puts);
        let most_alone = what.replace("native, in sections", "sockets and files alone");
        [
            Target::new(what, native, zookeeper, "ZooKeeper", Wanted::AtLeast(4.0)),
            Target::new(most_alone, most, zookeeper, "ZooKeeper", Wanted::Shown),
        ]
    };
    let sizes = [figures::SMALL, figures::MEDIUM];
    sizes.into_iter().flat_map(lines).collect()
}

/// One key that all want.
fn crowded(measured: &Measured) -> Vec<Target> {
    let line = |what: &str, point: &str, wanted| {
        let what = format!("{what} per second, 32 clients, one key: cassandra");
        let rate = |kind| measured.rate(point, kind);
        let (ours, paper) = (rate(Kind::Engine), rate(Kind::Paper));
        let nothing = paper == Some(0.0);
        let beside = match nothing {
            true => measured.one_in_time(point),
            false => paper,
        };
        Target {
            nothing,
            ..Target::new(what, ours, beside, "paper's rows", wanted)
        }
    };
    vec![
        line("sections", figures::HOT, Wanted::AtLeast(30.0)),
        line(
            "places taken and given back",
            figures::QUEUE,
            Wanted::AtLeast(30.0),
        ),
        Target::new(
            "the same, all clients at one site: cassandra",
            measured.rate(figures::QUEUE_ALONE, Kind::Engine),
            measured.rate(figures::QUEUE, Kind::Engine),
            "all sites",
            Wanted::Shown,
        ),
    ]
}

/// Sections of a hundred puts.
fn hundreds(measured: &Measured) -> Vec<Target> {
    let puts = |point: &str, kind| measured.of(point, kind).map(Counted::puts);
    let mut targets = Vec::new();
    let mut line = |what: &str, measured, beside, of, wanted| {
        targets.push(Target::new(what, measured, beside, of, wanted));
    };
    for (small, piped) in [(true, false), (true, true), (false, false), (false, true)] {
        let point = figures::hundred_name(small, piped);
        let native = puts(&point, Kind::Native);
        let size = if small { "10 B" } else { "256 KiB" };
        let how = if piped {
            "in flight together"
        } else {
            "one after the other"
        };
        let what = format!("puts per second, 100 of {size} in a section, {how}: native");
        let least = if small { 2.0 } else { 10.0 };
        let zookeeper = puts(&point, Kind::Zookeeper);
        line(
            &what,
            native,
            zookeeper,
            "ZooKeeper",
            Wanted::AtLeast(least),
        );
        if !small {
            let what = what.replace("native", "native, of what sockets and files alone do");
            let most = puts(&point, Kind::Bare);
            let share = if piped { 0.7 } else { 0.6 };
            let wanted = Wanted::AtLeast(share);
            line(&what, native, most, "sockets and files", wanted);
            let what = what.replace("native,", "ZooKeeper,");
            line(&what, zookeeper, most, "sockets and files", Wanted::Shown);
        }
        if !piped {
            let wanted = if small {
                Wanted::AtLeast(2.0)
            } else {
                Wanted::Shown
            };
            line(&what, native, puts(&point, Kind::Etcd), "etcd", wanted);
        }
    }
    targets
}
