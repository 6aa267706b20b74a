//! What was aimed at, and whether this run shows it.
//!
//! A target is met where the median over the rounds meets it at every point. Where it does not, but
//! the target lies within the interval of 95 %, the line says that the run cannot tell.

use super::sample::{Measure, Ratio, Sample, bytes};
use super::{AGAIN, BASE, LARGE, Results, WHOLE, WRITES};

const MEASURES: [Measure; 3] = [Measure::Read, Measure::Write, Measure::Throughput];

/// One sentence per target, then what bears on them.
pub(super) fn lines(results: &Results, nodes: u16) -> Vec<String> {
    let mut lines = Vec::new();
    for measure in MEASURES {
        let what = format!(
            "coded {} at least as fast as {BASE} from 16 KiB on",
            measure.name()
        );
        let large = |s: &Sample| s.point.size >= LARGE;
        lines.push(target(
            &what,
            &results.samples,
            "coded",
            (measure, 1.0),
            large,
        ));
    }
    for measure in MEASURES {
        let what = format!("coded {} never below 0.8 of {BASE}", measure.name());
        lines.push(target(
            &what,
            &results.samples,
            "coded",
            (measure, 0.8),
            |_| true,
        ));
    }
    lines.extend(at_rest(results, nodes));
    for measure in MEASURES {
        let what = format!("noise: the same policy once more, {}", measure.name());
        lines.extend(spread(&what, &results.samples, measure));
    }
    lines.push(pays(&results.samples));
    lines.push(processors(results));
    lines
}

/// The base of a sample: the same point, in the same rounds.
pub(super) fn base_of<'a>(sample: &Sample, samples: &'a [Sample]) -> Option<&'a Sample> {
    named(BASE, sample, samples)
}

fn named<'a>(name: &str, sample: &Sample, samples: &'a [Sample]) -> Option<&'a Sample> {
    let same = |s: &&Sample| s.policy == name && s.point == sample.point;
    samples.iter().find(same)
}

/// Ratios of a policy to the base, slowest first.
fn speeds(
    samples: &[Sample],
    policy: &str,
    measure: Measure,
    counts: impl Fn(&Sample) -> bool,
) -> Vec<(Ratio, String)> {
    let of = samples.iter().filter(|s| s.policy == policy && counts(s));
    let ratios = of.filter_map(|s| {
        let ratio = Ratio::speed(s, base_of(s, samples)?, measure)?;
        Some((ratio, s.point.name()))
    });
    let mut ratios: Vec<(Ratio, String)> = ratios.collect();
    ratios.sort_by(|(a, _), (b, _)| a.median.total_cmp(&b.median));
    ratios
}

fn target(
    what: &str,
    samples: &[Sample],
    policy: &str,
    (measure, least): (Measure, f64),
    counts: impl Fn(&Sample) -> bool,
) -> String {
    let ratios = speeds(samples, policy, measure, counts);
    let Some((worst, at)) = ratios.first() else {
        return format!("not measured: {what}");
    };
    let met = ratios.iter().filter(|(r, _)| r.median >= least).count();
    let short = (1.0 - worst.median / least) * 100.0;
    let verdict = match () {
        () if met == ratios.len() => String::from("met"),
        () if ratios.iter().any(|(r, _)| r.high < least) => format!("missed by {short:.1} %"),
        () => format!("missed by {short:.1} %, which this run cannot tell from met"),
    };
    let interval = match worst.high.is_finite() {
        true => format!("{:.2} to {:.2}", worst.low, worst.high),
        false => String::from("too few rounds for an interval"),
    };
    format!(
        "{verdict}: {what} ({met} of {} points; slowest {:.2} [{interval}] at {at})",
        ratios.len(),
        worst.median
    )
}

fn spread(what: &str, samples: &[Sample], measure: Measure) -> Option<String> {
    let ratios = speeds(samples, AGAIN, measure, |_| true);
    let ((least, _), (most, _)) = (ratios.first()?, ratios.last()?);
    Some(format!("{what}: {:.2} to {:.2}", least.median, most.median))
}

fn at_rest(results: &Results, nodes: u16) -> Option<String> {
    let of = |name: &str| {
        let found = results.at_rest.iter().find(|(n, _)| n == name);
        found.map(|(_, rest)| *rest)
    };
    let (coded, base) = (of("coded")?, of(BASE)?);
    let k = i32::from(nodes) - 2 * i32::from(results.settings.faults);
    let aim = 1.0 / f64::from(k);
    let verdict = if coded / base <= aim * 1.02 {
        "met"
    } else {
        "missed"
    };
    Some(format!(
        "{verdict}: coded keeps 1/{k} at rest from 16 KiB on ({:.4} of {BASE}'s bytes; {aim:.4} is \
         aimed at, and 2 % are left to the metadata of parts)",
        coded / base
    ))
}

/// The least size from which on cutting values was never slower than keeping them whole.
fn pays(samples: &[Sample]) -> String {
    let by_size = samples
        .iter()
        .filter(|s| s.policy == "coded" && s.point.writes == WRITES);
    let mut sizes: Vec<(usize, [Option<Ratio>; 3])> = by_size
        .filter_map(|s| {
            let whole = named(WHOLE, s, samples)?;
            Some((s.point.size, MEASURES.map(|m| Ratio::speed(s, whole, m))))
        })
        .collect();
    sizes.sort_by_key(|(size, _)| *size);
    // Slower than the run's noise allows for, in anything.
    let slower = |ratios: &[Option<Ratio>; 3]| ratios.iter().flatten().any(|r| r.median < 0.98);
    let from = sizes
        .iter()
        .rposition(|(_, ratios)| slower(ratios))
        .map_or(0, |at| at + 1);
    let said = sizes.iter().map(|(size, ratios)| {
        let ratios =
            ratios.map(|r| r.map_or_else(|| String::from("-"), |r| format!("{:.2}", r.median)));
        format!("{} {}", bytes(*size), ratios.join("/"))
    });
    let said = said.collect::<Vec<_>>().join(", ");
    match sizes.get(from) {
        Some((size, _)) => format!(
            "cutting pays from {} on: never more than 2 % slower than whole values under the same \
             quorums (reads/writes/throughput by size: {said})",
            bytes(*size)
        ),
        None if sizes.is_empty() => {
            format!("not measured: where cutting pays ({WHOLE} was left out)")
        }
        None => format!("cutting pays at no size here (reads/writes/throughput by size: {said})"),
    }
}

fn processors(results: &Results) -> String {
    let (mut wall, mut own, mut all) = (0.0, 0.0, 0.0);
    for sample in &results.samples {
        wall += sample.spent.wall;
        own += sample.spent.own;
        all += sample.spent.all;
    }
    if wall == 0.0 || own == 0.0 {
        return String::from("processors: nothing is known of them here");
    }
    format!(
        "processors: {} for all nodes and clients, of which they used {:.2}, and everything else \
         on the machine {:.2}",
        results.processors,
        own / wall,
        (all - own).max(0.0) / wall
    )
}
