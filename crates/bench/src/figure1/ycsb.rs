//! The same comparison with the real YCSB as the generator of load, over REST (`bench/ycsb`).
//!
//! One virtual machine per slice, whose start is not in what YCSB says of its time. It is another
//! process, so that the processors' time of a slice is that of the nodes alone.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::sample::{Point, Round, Sample};
use super::{Figure1Args, LARGE, Named, WHOLE};
use crate::cluster::Cluster;
use crate::cpu::{Meter, Spent};
use crate::workload::Latency;

/// The binding, from the repository's root.
const BINDING: &str = "bench/ycsb/target/fermata-ycsb-0.1.0.jar";
const LIBRARIES: &str = "bench/ycsb/target/lib/*";
/// Rounds; a virtual machine takes a while to start.
const ROUNDS: u32 = 5;
/// Seconds that a policy has in a round.
const SECONDS: u32 = 4;
const RECORDS: u32 = 256;

/// What YCSB said of one slice.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    throughput: f64,
    read: Latency,
    write: Latency,
    errors: u64,
}

/// Half writes of 16 KiB under every policy, in rounds.
pub(super) async fn run(
    args: &Figure1Args,
    cluster: &Cluster,
    policies: &[Named],
) -> Result<Vec<Sample>> {
    if !Path::new(BINDING).exists() {
        bail!("{BINDING} is not there: run `mvn -q -f bench/ycsb/pom.xml package` first");
    }
    let policies: Vec<&Named> = policies.iter().filter(|(name, _)| *name != WHOLE).collect();
    for (name, _) in &policies {
        client(args, cluster, name, true).await?;
    }
    let mut slices: Vec<Vec<(Said, Spent)>> = vec![Vec::new(); policies.len()];
    for round in 0..ROUNDS {
        eprintln!("[YCSB, round {} of {ROUNDS}]", round + 1);
        for turn in 0..policies.len() {
            let at = (turn + round as usize) % policies.len();
            let meter = Meter::start();
            let said = client(args, cluster, policies[at].0, false).await?;
            slices[at].push((said, meter.spent()));
        }
    }
    let samples = policies.iter().zip(slices);
    Ok(samples
        .map(|((name, _), slices)| sample(name, &slices))
        .collect())
}

fn sample(policy: &str, slices: &[(Said, Spent)]) -> Sample {
    let mut spent = Spent::default();
    slices.iter().for_each(|(_, of)| spent.add(*of));
    let latency = |of: fn(&Said) -> Latency| {
        let all = || slices.iter().map(|(said, _)| of(said));
        let count: usize = all().map(|l| l.count).sum();
        let mean = |what: fn(&Latency) -> f64| {
            let sum: f64 = all().map(|l| what(&l) * l.count as f64).sum();
            sum / count.max(1) as f64
        };
        Latency {
            count,
            mean: mean(|l| l.mean),
            p95: mean(|l| l.p95),
        }
    };
    let (read_ms, write_ms) = (latency(|s| s.read), latency(|s| s.write));
    let rounds = slices.iter().map(|(said, _)| Round {
        read_ms: said.read.mean,
        write_ms: said.write.mean,
        throughput: said.throughput,
    });
    let throughput: f64 = slices.iter().map(|(said, _)| said.throughput).sum();
    let errors = slices.iter().map(|(said, _)| said.errors).sum();
    Sample {
        policy: policy.to_owned(),
        point: Point {
            writes: 0.5,
            size: LARGE,
        },
        read_ms,
        write_ms,
        throughput: throughput / slices.len().max(1) as f64,
        cpu_ms: spent.own * 1e3 / (read_ms.count + write_ms.count).max(1) as f64,
        spent,
        errors,
        first_error: (errors > 0).then(|| String::from("YCSB counted operations that were not OK")),
        rounds: rounds.collect(),
    }
}

/// Loads a keyspace, or runs one slice on it.
async fn client(
    args: &Figure1Args,
    cluster: &Cluster,
    keyspace: &str,
    loads: bool,
) -> Result<Said> {
    let nodes = 0..usize::from(args.clients);
    let at = |node| cluster.rest(node % usize::from(args.nodes));
    let endpoints: Vec<&str> = nodes.map(at).collect();
    let mut java = Command::new("java");
    java.args(["-cp", &format!("{BINDING}:{LIBRARIES}"), "site.ycsb.Client"]);
    java.args(["-db", "fermata.ycsb.FermataClient"]);
    java.args(["-threads", &args.clients.to_string()]);
    java.arg(if loads { "-load" } else { "-t" });
    let properties = [
        format!("fermata.endpoints={}", endpoints.join(",")),
        format!("fermata.keyspace={keyspace}"),
        String::from("workload=site.ycsb.workloads.CoreWorkload"),
        format!("recordcount={RECORDS}"),
        format!("operationcount={}", if loads { RECORDS } else { 1_000_000 }),
        format!("maxexecutiontime={SECONDS}"),
        String::from("fieldcount=1"),
        format!("fieldlength={LARGE}"),
        String::from("readproportion=0.5"),
        String::from("updateproportion=0.5"),
        String::from("requestdistribution=uniform"),
        String::from("writeallfields=true"),
    ];
    for property in &properties {
        java.args(["-p", property]);
    }
    let done = java.output().await.context("starting java")?;
    let text = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() || !text.contains("[OVERALL], Throughput") {
        let why = String::from_utf8_lossy(&done.stderr);
        bail!(
            "YCSB failed on {keyspace}: {}",
            why.lines().last().unwrap_or("no reason given")
        );
    }
    Ok(said(&text))
}

/// Reads lines such as `[READ], AverageLatency(us), 812.5`.
fn said(text: &str) -> Said {
    let mut said = Said::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(", ").collect();
        let [of, what, number] = fields[..] else {
            continue;
        };
        let Ok(number) = number.trim().parse::<f64>() else {
            continue;
        };
        if (of, what) == ("[OVERALL]", "Throughput(ops/sec)") {
            said.throughput = number;
        }
        if what.starts_with("Return=") && what != "Return=OK" {
            said.errors += number as u64;
        }
        let latency = match of {
            "[READ]" => &mut said.read,
            "[UPDATE]" => &mut said.write,
            _ => continue,
        };
        match what {
            "Operations" => latency.count = number as usize,
            "AverageLatency(us)" => latency.mean = number / 1e3,
            "95thPercentileLatency(us)" => latency.p95 = number / 1e3,
            _ => {}
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ycsb_says_is_read() {
        let text = "[OVERALL], RunTime(ms), 4001\n[OVERALL], Throughput(ops/sec), 512.5\n\
                    [READ], Operations, 1024\n[READ], AverageLatency(us), 812.5\n\
                    [READ], 95thPercentileLatency(us), 1500\n[READ], Return=OK, 1024\n\
                    [UPDATE], Operations, 1020\n[UPDATE], AverageLatency(us), 2000\n\
                    [UPDATE], Return=OK, 1018\n[UPDATE], Return=ERROR, 2\n[CLEANUP], x\n";
        let said = said(text);
        assert_eq!((said.throughput, said.errors), (512.5, 2));
        assert_eq!(
            (said.read.count, said.read.mean, said.read.p95),
            (1024, 0.8125, 1.5)
        );
        assert_eq!((said.write.count, said.write.mean), (1020, 2.0));
    }
}
