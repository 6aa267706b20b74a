//! A cluster of `fermata dev` for one test, and commands against it.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) use crate::common::fermata;
pub(crate) use crate::ports::Ports;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// A running `fermata dev`.
pub(crate) struct Dev {
    child: Child,
    /// What it announced.
    pub(crate) nodes: Vec<serde_json::Value>,
    /// What clients show, if it speaks TLS.
    pub(crate) tls: serde_json::Value,
    _ports: Ports,
}

impl Dev {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(options: &[&str]) -> Dev {
        Dev::start_by(fermata(), options)
    }

    /// The same, where no process may have more than so many files open.
    pub(crate) fn start_with_files(most: u32, options: &[&str]) -> Dev {
        let fermata = fermata();
        let mut shell = Command::new("sh");
        let limit = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limit]).arg(fermata.get_program());
        for (name, value) in fermata.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Dev::start_by(shell, options)
    }

    fn start_by(mut command: Command, options: &[&str]) -> Dev {
        let ports = Ports::free();
        let mut child = command
            .args(["dev", "--json", "--base-port", &ports.base.to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("fermata dev starts");
        let announced = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut values = serde_json::Deserializer::from_reader(announced).into_iter();
        let announced: serde_json::Value = match values.next() {
            Some(Ok(announced)) => announced,
            other => panic!("fermata dev was not ready: {other:?}"),
        };
        let nodes = announced["nodes"]
            .as_array()
            .expect("nodes are announced")
            .clone();
        Dev {
            child,
            nodes,
            tls: announced["tls"].clone(),
            _ports: ports,
        }
    }

    /// A command that talks to this cluster.
    pub(crate) fn client(&self) -> Command {
        let mut command = self.stranger();
        for (variable, file) in [
            ("FERMATA_TLS_CA", "ca"),
            ("FERMATA_TLS_CERTIFICATE", "certificate"),
            ("FERMATA_TLS_KEY", "key"),
        ] {
            if let Some(file) = self.tls[file].as_str() {
                command.env(variable, file);
            }
        }
        command
    }

    /// The same, without what it should show.
    pub(crate) fn stranger(&self) -> Command {
        let endpoints: Vec<&str> = self
            .nodes
            .iter()
            .filter_map(|n| n["grpc"].as_str())
            .collect();
        let mut command = fermata();
        command.env("FERMATA_ENDPOINTS", endpoints.join(","));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.client().args(args).output().expect("fermata runs")
    }

    /// Runs a command to its end that says its result as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        json(&self.run(&[args, &["--json"]].concat()).stdout)
    }

    /// The lock refs of a key, head first.
    pub(crate) fn lock_refs(&self, key: &str) -> Vec<u64> {
        let queue = self.json(&["locks", key]);
        let entries = queue["entries"].as_array().expect("entries");
        let refs = entries.iter().map(|entry| entry["lock_ref"].as_u64());
        refs.collect::<Option<_>>().expect("numbers")
    }

    /// Runs a command with this standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .client()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("fermata runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(input).expect("the command reads its input");
        drop(stdin);
        child.wait_with_output().expect("the command ends")
    }

    /// The process of a node.
    pub(crate) fn pid(&self, node: usize) -> Pid {
        let pid = self.nodes[node]["pid"].as_i64().expect("the node runs");
        Pid::from_raw(pid as i32).expect("a process id is not 0")
    }

    /// Ends a node, which may have ended already.
    pub(crate) fn end_node(&self, node: usize) {
        match kill_process(self.pid(node), Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("the node cannot be ended: {error}"),
        }
    }

    /// Sends a signal to a node.
    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        kill_process(self.pid(node), signal).expect("the node runs");
    }

    /// The configuration file of a node.
    pub(crate) fn config(&self, node: usize) -> PathBuf {
        PathBuf::from(self.nodes[node]["config"].as_str().expect("announced"))
    }

    /// The directory of the cluster.
    pub(crate) fn folder(&self) -> PathBuf {
        self.config(0)
            .parent()
            .map(Path::to_owned)
            .expect("a file is in a folder")
    }

    /// Stops it as Ctrl-C does, and gives its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.end()
    }

    /// Kills it with SIGKILL, which no program can answer.
    pub(crate) fn kill(mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }

    fn end(&mut self) -> Option<i32> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ended = kill_process(pid, Signal::INT);
        }
        self.child.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// A node that was started by hand, as a person does it after a crash.
pub(crate) struct ByHand(pub(crate) Child);

impl Drop for ByHand {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            let _ended = kill_process(pid, Signal::TERM);
        }
        let _status = self.0.wait();
    }
}

/// The exit status of a finished command.
pub(crate) fn status(output: &Output) -> i32 {
    output.status.code().expect("the command was not killed")
}

/// What a command printed as JSON.
pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("JSON")
}

/// What a command printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Repeats until it holds. No test depends on how long that takes, but it must not be for ever.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within a minute: {what}");
}
