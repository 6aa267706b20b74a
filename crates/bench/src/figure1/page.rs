//! The charts, the tables and the page of a run.

use std::path::Path;

use anyhow::Result;

use super::sample::{Measure, Ratio, Sample, bytes};
use super::{AGAIN, BASE, LARGE, Named, Results, SMALL, WHOLE, WRITES, save, verdict};
use crate::chart::{Chart, Line};
use crate::report;

/// What one sub-figure shows, and what the paper says of it.
struct Panel {
    letter: char,
    title: &'static str,
    up: &'static str,
    measure: Measure,
    paper: &'static str,
    /// By size; otherwise by the share of writes, at this size.
    by: By,
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    Size,
    Share(usize),
}

const MS: &str = "mean, ms";
const RATE: &str = "operations per second, all clients";

const PARTS: [Panel; 9] = [
    Panel {
        letter: 'a',
        title: "read latency by share of writes, 128 B",
        up: MS,
        measure: Measure::Read,
        paper: "The paper: read latency is comparable across all four algorithms.",
        by: By::Share(SMALL),
    },
    Panel {
        letter: 'b',
        title: "write latency by share of writes, 128 B",
        up: MS,
        measure: Measure::Write,
        paper: "The paper: ARES has poor write latency, since logical timestamps cost a round trip \
                more; OREAS has a moderate penalty.",
        by: By::Share(SMALL),
    },
    Panel {
        letter: 'c',
        title: "throughput by share of writes, 128 B",
        up: RATE,
        measure: Measure::Throughput,
        paper: "The paper: throughput is comparable at a write ratio of 0.1.",
        by: By::Share(SMALL),
    },
    Panel {
        letter: 'd',
        title: "read latency by size of values, 10 % writes",
        up: MS,
        measure: Measure::Read,
        paper: "The paper shows averages for these sizes and says no more of reads than that they \
                are comparable at 128 B.",
        by: By::Size,
    },
    Panel {
        letter: 'e',
        title: "write latency by size of values, 10 % writes",
        up: MS,
        measure: Measure::Write,
        paper: "The paper shows averages for these sizes; as with 128 B, ARES pays for a round \
                trip more.",
        by: By::Size,
    },
    Panel {
        letter: 'f',
        title: "throughput by size of values, 10 % writes",
        up: RATE,
        measure: Measure::Throughput,
        paper: "The paper: a moderate penalty on throughput (with 7, 9 and 11 servers OREAS has 77 \
                to 80 % of Cassandra's).",
        by: By::Size,
    },
    Panel {
        letter: 'g',
        title: "read latency by share of writes, 16 KiB",
        up: MS,
        measure: Measure::Read,
        paper: "Not in the paper.",
        by: By::Share(LARGE),
    },
    Panel {
        letter: 'h',
        title: "write latency by share of writes, 16 KiB",
        up: MS,
        measure: Measure::Write,
        paper: "Not in the paper.",
        by: By::Share(LARGE),
    },
    Panel {
        letter: 'i',
        title: "throughput by share of writes, 16 KiB",
        up: RATE,
        measure: Measure::Throughput,
        paper: "Not in the paper.",
        by: By::Share(LARGE),
    },
];

impl Panel {
    fn of(&self, sample: &Sample) -> f64 {
        match self.measure {
            Measure::Read => sample.read_ms.mean,
            Measure::Write => sample.write_ms.mean,
            Measure::Throughput => sample.throughput,
        }
    }

    /// The samples that it shows, in order.
    fn shown<'a>(&self, samples: &'a [Sample]) -> Vec<&'a Sample> {
        let shows = |s: &&Sample| match self.by {
            By::Size => s.point.writes == WRITES,
            By::Share(size) => s.point.size == size,
        };
        let mut shown: Vec<&Sample> = samples.iter().filter(shows).collect();
        shown.sort_by(|a, b| {
            let by_size = a.point.size.cmp(&b.point.size);
            by_size.then(a.point.writes.total_cmp(&b.point.writes))
        });
        shown
    }
}

/// Writes charts, page and table, and prints table and verdicts.
pub(super) fn write(out: &Path, policies: &[Named], nodes: u16, results: &Results) -> Result<()> {
    let mut page = heading(policies, nodes, results);
    let verdicts = verdict::lines(results, nodes);
    page += "\n## What was aimed at\n\n";
    for line in &verdicts {
        page += &format!("* {line}\n");
    }
    for part in &PARTS {
        page += &figure(out, part, policies, &results.samples)?;
    }
    let rows = table(&results.samples);
    page += &format!("\n## All figures\n\n{}", report::markdown(&rows));
    print!("{}", report::aligned(&rows));
    if !results.ycsb.is_empty() {
        let rows = table(&results.ycsb);
        page += &format!(
            "\n## YCSB over REST, half writes of 16 KiB\n\nLatencies are YCSB's own; its virtual \
             machine shares the processors, and is not in the column of processor time.\n\n{}",
            report::markdown(&rows)
        );
        print!(
            "\nYCSB over REST, half writes of 16 KiB\n{}",
            report::aligned(&rows)
        );
    }
    println!("\nspeed is latency's inverse; in brackets 95 % of runs");
    for line in &verdicts {
        println!("{line}");
    }
    save(out, "figure1.md", &page)?;
    println!(
        "\nwritten: {}/figure1.md, .json and the charts",
        out.display()
    );
    Ok(())
}

fn heading(policies: &[Named], nodes: u16, results: &Results) -> String {
    let settings = &results.settings;
    let mut text = format!(
        "# CassandrEAS, Figure 1: one run\n\n{} servers and {} clients in one process on {} \
         processors, stores in {}, f = {}, δ = {}; {} rounds. Compare lines with each other, not \
         with other runs.\n\n",
        settings.nodes,
        settings.clients,
        results.processors,
        settings.disks,
        settings.faults,
        settings.delta,
        settings.rounds
    );
    for (name, policy) in policies.iter().filter(|(name, _)| *name != WHOLE) {
        if let Ok(price) = policy.price(usize::from(nodes)) {
            text += &format!(
                "* `{}`: {}/{} of a value per server at rest\n",
                name, price.fragments, price.parts
            );
        }
    }
    text
}

/// Writes one chart, and gives its part of the page.
fn figure(out: &Path, part: &Panel, policies: &[Named], samples: &[Sample]) -> Result<String> {
    let shown = part.shown(samples);
    let names: Vec<&'static str> = policies.iter().map(|(name, _)| *name).collect();
    let names: Vec<&'static str> = names.into_iter().filter(|n| *n != WHOLE).collect();
    let of = |name: &'static str| shown.iter().filter(move |s| s.policy == name);
    if of(BASE).count() < 2 {
        return Ok(String::new());
    }
    let place = |s: &&Sample| match part.by {
        By::Size => bytes(s.point.size),
        By::Share(_) => format!("{:.1}", s.point.writes),
    };
    let saw = saw(part, &shown, samples, &names);
    let chart = Chart {
        title: format!("1{}: {}", part.letter, part.title),
        across: match part.by {
            By::Size => "bytes of a value",
            By::Share(_) => "share of writes",
        },
        up: part.up,
        places: of(BASE).map(place).collect(),
        joined: true,
        logarithmic: false,
        lines: (names.iter().enumerate())
            .map(|(style, name)| Line {
                name,
                style,
                dashed: [BASE, AGAIN].contains(name),
                values: of(name)
                    .map(|s| Some(part.of(s)).filter(|v| *v > 0.0))
                    .collect(),
            })
            .collect(),
        notes: vec![part.paper.to_owned(), saw.clone()],
    };
    let file = format!("figure1{}.svg", part.letter);
    save(out, &file, &chart.svg())?;
    Ok(format!(
        "\n## {}\n\n![]({file})\n\n{}\n\n{saw}\n",
        chart.title, part.paper
    ))
}

/// What this run saw: each policy as a multiple of the base, over all places.
fn saw(part: &Panel, shown: &[&Sample], samples: &[Sample], names: &[&'static str]) -> String {
    let mut said = Vec::new();
    for name in names.iter().filter(|name| **name != BASE) {
        let of = shown.iter().filter(|s| s.policy == *name);
        let ratios = of.filter_map(|s| {
            let base = verdict::base_of(s, samples)?;
            Ratio::between(s, base, part.measure)
        });
        let ratios: Vec<f64> = ratios.map(|r| r.median).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        if ratios.is_empty() {
            said.push(format!("{name} nothing"));
        } else {
            said.push(format!("{name} {least:.2} to {most:.2}"));
        }
    }
    format!(
        "This run, as multiples of {BASE}: {}. How far `{AGAIN}`, the same policy once more, is \
         from 1 is what this run cannot tell.",
        said.join(", ")
    )
}

/// Ratios are medians over the rounds; the other numbers are of all rounds together.
fn table(samples: &[Sample]) -> Vec<[String; 13]> {
    let ratio = "of replicated";
    let head = [
        "writes",
        "bytes",
        "policy",
        "read ms",
        "p95",
        ratio,
        "write ms",
        "p95",
        ratio,
        "ops/s",
        ratio,
        "cpu ms/op",
        ratio,
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for sample in samples {
        let base = verdict::base_of(sample, samples);
        let ratio = |measure| {
            let ratio = base.and_then(|base| Ratio::between(sample, base, measure));
            ratio.map_or_else(String::new, |r| format!("{:.2}", r.median))
        };
        let cpu = base.map_or(0.0, |base| {
            sample.cpu_ms / base.cpu_ms.max(f64::MIN_POSITIVE)
        });
        rows.push([
            format!("{:.1}", sample.point.writes),
            sample.point.size.to_string(),
            sample.policy.clone(),
            format!("{:.2}", sample.read_ms.mean),
            format!("{:.2}", sample.read_ms.p95),
            ratio(Measure::Read),
            format!("{:.2}", sample.write_ms.mean),
            format!("{:.2}", sample.write_ms.p95),
            ratio(Measure::Write),
            format!("{:.0}", sample.throughput),
            ratio(Measure::Throughput),
            format!("{:.3}", sample.cpu_ms),
            format!("{cpu:.2}"),
        ]);
    }
    rows
}
