//! Sections from another language, by generated code alone: over gRPC a counter whose clients' node
//! is killed, over REST one whose clients know nothing but `/openapi.json`.
//!
//! The code is made here, by Python's own tools, from what is published.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Signal, kill_process};

use crate::support::{Dev, eventually, status, text};

/// What makes and runs the generated code.
const PACKAGES: [&str; 3] = [
    "grpcio==1.85.1",
    "grpcio-tools==1.85.1",
    "openapi-python-client==0.29.1",
];
/// Rounds of each client.
const ROUNDS: usize = 60;

fn done(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert_eq!(status(&output), 0, "{command:?}: {}", text(&output.stderr));
}

/// A Python with the packages, and its folder. Several tests ask for it, one makes it.
fn python() -> (PathBuf, PathBuf) {
    static MADE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MADE.lock();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = folder.join("bin/python");
    if !python.exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    }
    let pip = ["-m", "pip", "install", "--quiet"];
    done(Command::new(&python).args(pip).args(PACKAGES));
    (python, folder)
}

/// The same, with a folder of stubs.
fn stubs() -> (PathBuf, PathBuf) {
    let (python, folder) = python();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/proto");
    let stubs = folder.join("stubs");
    std::fs::create_dir_all(&stubs).expect("a folder");
    let mut compiler = Command::new(&python);
    compiler.args(["-m", "grpc_tools.protoc"]);
    compiler.arg("-I").arg(&proto);
    for to in ["--python_out", "--grpc_python_out"] {
        compiler.arg(format!("{to}={}", stubs.display()));
    }
    for source in ["fermata.proto", "sessions.proto"] {
        compiler.arg(proto.join("fermata/v1").join(source));
    }
    done(&mut compiler);
    (python, stubs)
}

/// A client that asks these nodes in this order.
fn counter((python, stubs): &(PathBuf, PathBuf), dev: &Dev, nodes: [usize; 3]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/counter.py");
    let endpoint = |at: usize| dev.nodes[at]["grpc"].as_str().expect("announced");
    Command::new(python)
        .arg(script)
        .arg(stubs)
        .args(["counter", &ROUNDS.to_string()])
        .args(nodes.map(endpoint))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// What a client says, line by line.
fn lines(client: &mut Child) -> impl Iterator<Item = String> + use<> {
    let said = client.stdout.take().expect("it is piped");
    BufReader::new(said).lines().map(|line| line.expect("text"))
}

/// The counter's values that a client was sure of.
fn values(said: &[String]) -> Vec<u64> {
    let value = |line: &String| line.strip_prefix("round ")?.split(' ').nth(2)?.parse().ok();
    said.iter().filter_map(value).collect()
}

#[test]
fn a_counter_by_generated_stubs_survives_the_death_of_its_node() {
    let python = stubs();
    let dev = Dev::start(&[]);
    eventually("all are well", || status(&dev.run(&["status"])) == 0);
    let mut one = counter(&python, &dev, [0, 1, 2]);
    let mut two = counter(&python, &dev, [1, 2, 0]);
    let said = lines(&mut two);
    let other = std::thread::spawn(move || said.collect::<Vec<_>>());
    let mut said = Vec::new();
    for line in lines(&mut one) {
        // In the middle of a section of its own.
        if line == "entered" && values(&said).len() == ROUNDS / 3 {
            let _dead = kill_process(dev.pid(0), Signal::KILL);
        }
        said.push(line);
    }
    let other = other.join().expect("no panic");
    for client in [&mut one, &mut two] {
        assert!(client.wait().expect("it ends").success(), "{said:#?}");
    }
    let all: Vec<u64> = [values(&said), values(&other)].concat();
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(all.len(), 2 * ROUNDS, "{said:#?} {other:#?}");
    assert_eq!(
        distinct.len(),
        all.len(),
        "two sections saw the same value: {all:?}"
    );
    let counter = dev.run(&["get", "counter"]);
    let counter: u64 = text(&counter.stdout).parse().expect("a number");
    assert_eq!(
        distinct.last(),
        Some(&counter),
        "an acknowledged value is lost"
    );
    // Of a section that was lost in the middle it is not known whether it had written.
    let lost = said
        .iter()
        .chain(&other)
        .filter(|line| *line == "over")
        .count();
    let (least, most) = (2 * ROUNDS as u64, (2 * ROUNDS + lost) as u64);
    assert!(
        (least..=most).contains(&counter),
        "{counter}: {said:#?} {other:#?}"
    );
    println!(
        "killed under {:?}",
        said.iter()
            .filter(|line| line.contains(':'))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_client_generated_from_the_description_counts_in_sections() {
    let (python, folder) = python();
    let dev = Dev::start(&[]);
    eventually("all are well", || status(&dev.run(&["status"])) == 0);
    let rest = |at: usize| dev.nodes[at]["rest"].as_str().expect("announced");
    let client = folder.join("described");
    let mut generator = Command::new(&python);
    generator.args(["-m", "openapi_python_client", "generate"]);
    generator.args(["--meta", "none", "--overwrite", "--output-path"]);
    let url = format!("http://{}/openapi.json", rest(0));
    done(generator.arg(&client).args(["--url", &url]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/described.py");
    let start = |at| {
        let mut client = Command::new(&python);
        client
            .arg(&script)
            .arg(&folder)
            .args([rest(at), &ROUNDS.to_string()]);
        client.stderr(Stdio::piped()).spawn().expect("it starts")
    };
    for client in [start(0), start(1)] {
        let ended = client.wait_with_output().expect("it ends");
        assert_eq!(status(&ended), 0, "{}", text(&ended.stderr));
    }
    let counter = dev.run(&["get", "described"]);
    assert_eq!(text(&counter.stdout).trim(), (2 * ROUNDS).to_string());
}
