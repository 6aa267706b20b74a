//! `cargo xtask peers`: Cassandra, ZooKeeper and etcd on this machine, by one command.
//!
//! What it does is in the crate `fermata-peers`; here its words are read, and its answers printed.
//! Clusters that are started here outlive the command. What a script wants (endpoints, rows) goes
//! to the standard output alone, everything else to the standard error.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

use fermata_peers::{Cluster, Consistency, Spec, State, System, install, missing};

pub(crate) const HELP: &str = "\
usage: cargo xtask peers [--run FOLDER] SYSTEM COMMAND        SYSTEM: cassandra, zookeeper, etcd

  start N [OPTION]... [KEY=VALUE]...
          installs the system unless it is there, starts N nodes on 127.0.0.1, 127.0.0.2, …, and
          prints their endpoints once they serve; KEY=VALUE goes to cassandra.yaml, zoo.cfg or
          etcd's flags, -DNAME=VALUE and other options to Java
    --base-ip IP          addresses from IP on, so that clusters run side by side
    --netns PREFIX        node I lives in network namespace PREFIXI, with address 10.77.0.I
    --quick               boots with half of the work; never measure one
    --heap MIB            of each node, in Java
    --keep                on the data of the cluster before, of as many nodes
    --install-tools       installs Java, Maven or Go by apt-get where missing
    --dcs                 cassandra: each node is a data centre, dc1, dc2, …; else all are in dc1
    --paxos v1|v2         cassandra: the protocol of light-weight transactions (v1)
    --purging legacy|gc_grace|repaired
                          cassandra: paxos_state_purging
    --commitlog batch|group|periodic
                          cassandra: when writes are flushed (batch: before the answer)
  install [--install-tools]
  endpoints               addresses for clients, with commas
  status                  each node, and what it says of itself
  kill-node I             SIGKILL           start-node I       on its data
  stop-node I             SIGSTOP           continue-node I    SIGCONT
  stop                    ends all nodes; their data stays until the next start
  cql [--node I] [--consistency one|quorum|all|local_quorum|serial] STATEMENT...
  nodetool I ARGUMENT...

Installed below target/peers, or below $FERMATA_PEERS; running clusters, with logs, in run/SYSTEM
there, or in FOLDER.
";

/// Runs `peers`, with what follows it.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let (folder, words) = match words {
        ["--run", folder, rest @ ..] => (Some(PathBuf::from(folder)), rest),
        _ => (None, words),
    };
    let [system, words @ ..] = words else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    let outcome = system
        .parse()
        .and_then(|system| command(system, folder, words));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn command(system: System, folder: Option<PathBuf>, words: &[&str]) -> io::Result<ExitCode> {
    let open = || Cluster::open(system, folder.as_deref());
    match words {
        ["start", nodes, options @ ..] => {
            let (mut spec, tools) = spec(system, nodes, options)?;
            spec.folder = folder;
            start(&spec, tools)?;
        }
        ["install"] => println!("{}", install(system, false)?.display()),
        ["install", "--install-tools"] => println!("{}", install(system, true)?.display()),
        ["endpoints"] => println!("{}", commas(&open()?.endpoints())),
        ["status"] => return Ok(status(&open()?)),
        ["kill-node", i] => open()?.kill_node(read(i)?)?,
        ["start-node", i] => open()?.start_node(read(i)?)?,
        ["stop-node", i] => open()?.stop_node(read(i)?)?,
        ["continue-node", i] => open()?.continue_node(read(i)?)?,
        ["stop"] => open()?.stop(),
        ["cql", words @ ..] => cql(&open()?, words)?,
        ["nodetool", i, arguments @ ..] => {
            let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            let status = open()?.nodetool(read(i)?, &arguments)?;
            return Ok(if status.success() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        _ => {
            eprint!("{HELP}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(spec: &Spec, tools: bool) -> io::Result<()> {
    if let (false, Some(lacking)) = (tools, missing(spec.system)) {
        return Err(io::Error::other(format!(
            "{lacking} (or give --install-tools)"
        )));
    }
    install(spec.system, tools)?;
    let since = Instant::now();
    let cluster = Cluster::start(spec)?;
    let seconds = since.elapsed().as_secs_f64();
    let folder = cluster.folder().display();
    eprintln!(
        "{} nodes of {} serve after {seconds:.1} s",
        spec.nodes, spec.system
    );
    eprintln!("{}; logs are below {folder}", cluster.durability());
    println!("{}", commas(&cluster.endpoints()));
    Ok(())
}

/// Reads what `start` was told, and whether tools may be installed.
fn spec(system: System, nodes: &str, options: &[&str]) -> io::Result<(Spec, bool)> {
    let mut spec = Spec::new(system, read(nodes)?);
    spec.detached = true;
    let mut tools = false;
    let mut options = options.iter().copied();
    while let Some(option) = options.next() {
        let mut value = || {
            let lacks = || io::Error::other(format!("{option} needs a value"));
            options.next().ok_or_else(lacks)
        };
        match option {
            "--base-ip" => spec.base = Some(read(value()?)?),
            "--netns" => spec.netns = Some(value()?.to_owned()),
            "--quick" => spec.quick = true,
            "--heap" => spec.heap_mib = Some(read(value()?)?),
            "--keep" => spec.keep = true,
            "--install-tools" => tools = true,
            "--dcs" => spec.dcs = true,
            "--paxos" => spec.paxos = value()?.parse()?,
            "--purging" => spec.purging = Some(value()?.parse()?),
            "--commitlog" => spec.commitlog = value()?.parse()?,
            setting => match setting.split_once('=') {
                Some((key, value)) if !key.starts_with("--") => spec = spec.with(key, value),
                _ => {
                    return Err(io::Error::other(format!(
                        "start knows no option `{option}`"
                    )));
                }
            },
        }
    }
    Ok((spec, tools))
}

/// Prints a line per node; fails unless all serve.
fn status(cluster: &Cluster) -> ExitCode {
    let nodes = cluster.nodes();
    for node in &nodes {
        let process = match (node.state, node.pid) {
            (State::Down, _) | (_, None) => "down".to_owned(),
            (_, Some(pid)) => format!("pid {pid}, {} MiB", node.resident_mib.unwrap_or(0)),
        };
        let says = match &node.says {
            Ok(says) => format!("serves: {says}"),
            Err(error) => format!("does not serve: {error}"),
        };
        println!("node {}  {}  {process}  {says}", node.number, node.address);
    }
    println!("{}", cluster.durability());
    if nodes.iter().all(|node| node.says.is_ok()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn cql(cluster: &Cluster, words: &[&str]) -> io::Result<()> {
    let mut words = words.iter().copied();
    let mut node = None;
    let mut consistency = Consistency::Quorum;
    let mut statements = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--node" => node = Some(read(words.next().unwrap_or_default())?),
            "--consistency" => {
                consistency = match words.next().unwrap_or_default() {
                    "one" => Consistency::One,
                    "quorum" => Consistency::Quorum,
                    "all" => Consistency::All,
                    "local_quorum" => Consistency::LocalQuorum,
                    "serial" => Consistency::Serial,
                    word => return Err(io::Error::other(format!("no consistency `{word}`"))),
                };
            }
            statement => statements.push(statement),
        }
    }
    let up = || cluster.nodes().into_iter().find(|node| node.says.is_ok());
    let node = match node.or_else(|| up().map(|node| node.number)) {
        Some(node) => node,
        None => return Err(io::Error::other("no node serves")),
    };
    let mut connection = cluster.cql(node)?;
    for statement in statements {
        print!("{}", connection.query(statement, consistency)?);
    }
    Ok(())
}

fn commas(endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(SocketAddr::to_string).collect();
    endpoints.join(",")
}

fn read<T: FromStr>(word: &str) -> io::Result<T> {
    let strange = |_| io::Error::other(format!("`{word}` is not what belongs there"));
    word.parse().map_err(strange)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_peers::{Commitlog, Paxos};

    #[test]
    fn options_of_start_are_read() {
        let words = [
            "--paxos",
            "v2",
            "--dcs",
            "--quick",
            "cas_contention_timeout=10s",
            "-Da=b",
        ];
        let (spec, tools) = spec(System::Cassandra, "3", &words).expect("known");
        assert!(spec.detached && spec.dcs && spec.quick && !tools);
        assert_eq!((spec.nodes, spec.paxos), (3, Paxos::V2));
        assert_eq!(spec.commitlog, Commitlog::Batch);
        let keys: Vec<&str> = spec.settings.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["cas_contention_timeout", "-Da"]);
    }

    #[test]
    fn what_start_does_not_know_is_refused() {
        let refused = |words: &[&str]| {
            let error = spec(System::Etcd, "1", words).expect_err("unknown");
            error.to_string()
        };
        assert_eq!(refused(&["--fast"]), "start knows no option `--fast`");
        assert_eq!(refused(&["--fast=1"]), "start knows no option `--fast=1`");
        assert_eq!(refused(&["--heap"]), "--heap needs a value");
        assert_eq!(refused(&["--heap", "x"]), "`x` is not what belongs there");
    }
}
