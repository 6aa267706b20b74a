//! A cluster of real processes on this machine: started, watched, killed, restarted, stopped. The
//! command `fermata dev` and the demonstrations share it.

use std::io;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fermata_client::{Client, Files};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdin, Command};

use super::files;
use super::plan::{Plan, PlannedNode};
use crate::exit::{Exit, Failure};

/// How long a node may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// A running cluster. Dropped, it leaves no process behind: each child stops when the pipe to its
/// standard input closes, even if this process is killed.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    /// Nodes that were started so far.
    started: usize,
    /// Whether delays between sites make everything slower.
    patience: Duration,
    /// What clients show, and whom they trust; none: all is in clear.
    tls: Option<Files>,
}

/// One node of a running cluster.
pub(crate) struct Node {
    /// What was planned.
    pub(crate) planned: PlannedNode,
    /// Name of its site.
    pub(crate) site: String,
    /// Its configuration file.
    pub(crate) config: PathBuf,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    running: Option<(Child, ChildStdin)>,
    /// How long its log was when it was started last.
    log_before: u64,
}

impl Node {
    /// Its process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|(child, _)| child.id())
    }

    /// Its gRPC address.
    pub(crate) fn endpoint(&self) -> String {
        self.planned.grpc.to_string()
    }

    fn start(&mut self) -> Result<(), Failure> {
        let mut start = || -> io::Result<(Child, ChildStdin)> {
            let log = std::fs::File::options()
                .create(true)
                .append(true)
                .open(&self.log)?;
            self.log_before = log.metadata()?.len();
            let mut child = Command::new(std::env::current_exe()?)
                .arg("server")
                .arg("--config")
                .arg(&self.config)
                .arg("--until-stdin-closes")
                .stdin(Stdio::piped())
                .stdout(log.try_clone()?)
                .stderr(log)
                // Ctrl-C at the terminal is for the parent, which stops the nodes.
                .process_group(0)
                .spawn()?;
            let stdin = child.stdin.take().expect("stdin is piped");
            Ok((child, stdin))
        };
        let started = start();
        self.running = Some(started.map_err(|error| {
            Failure::local(format_args!("starting node {}", self.planned.label), error)
        })?);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|id| Pid::from_raw(id as i32)) {
            // It may have ended this instant, which the watch will see.
            let _ended = rustix::process::kill_process(pid, signal);
        }
    }

    /// A sentence for its end.
    fn death(&self, status: ExitStatus) -> String {
        let how = how(status);
        match self.last_words() {
            Some(words) => format!("node {} {how}: {words}", self.planned.label),
            None => format!("node {} {how}", self.planned.label),
        }
    }

    /// Why it ended, by its own word since it was started.
    fn last_words(&self) -> Option<String> {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let since = usize::try_from(self.log_before).unwrap_or(usize::MAX);
        let since = log.get(since..).unwrap_or_default();
        last_words(&String::from_utf8_lossy(since))
    }
}

/// The line of a log that tells why its process ended: an error, a panic, or the one line with
/// which this program fails. Any other last line was only the latest and explains nothing.
fn last_words(log: &str) -> Option<String> {
    let tells = |line: &&str| {
        let mut words = line.split_whitespace();
        // `TIME LEVEL …` of a text log, `"level":"ERROR"` of a JSON log.
        let error = words.nth(1) == Some("ERROR") || line.contains("\"level\":\"ERROR\"");
        error || line.starts_with("fermata: ") || line.contains("panicked at")
    };
    log.lines().rfind(tells).map(|line| line.trim().to_owned())
}

/// The first base port from `from` on, in steps of a hundred, on which all nodes of a plan find
/// their ports free; `from` itself where there is none, so that starting there says what is wrong.
pub(crate) fn free_base(plan: &Plan, from: u16) -> u16 {
    let free = |base: &u16| {
        plan.nodes_at(*base)
            .is_ok_and(|nodes| check_ports(&nodes).is_ok())
    };
    let mut tries = (0..50).map_while(|i| from.checked_add(100 * i));
    tries.find(free).unwrap_or(from)
}

impl Cluster {
    /// Writes the configuration under `folder` and starts every node.
    ///
    /// # Errors
    /// A port in use, a file that cannot be written, a process that cannot be started.
    pub(crate) fn start(plan: &Plan, folder: &Path, base_port: u16) -> Result<Cluster, Failure> {
        let planned = plan.nodes_at(base_port).map_err(Failure::usage)?;
        check_ports(&planned)?;
        let configs = files::write(plan, &planned, folder)?;
        let node = |(planned, files): (PlannedNode, files::NodeFiles)| Node {
            site: plan.sites[usize::from(planned.site)].clone(),
            config: files.config,
            data: files.data,
            log: files.log,
            planned,
            running: None,
            log_before: 0,
        };
        let mut nodes: Vec<Node> = planned.into_iter().zip(configs).map(node).collect();
        // On another engine the first node makes the tables, and the others find them.
        let native = plan.engine.is_default();
        let first = if native { nodes.len() } else { 1 };
        for node in &mut nodes[..first] {
            node.start()?;
        }
        let patience = match plan.rtt.as_str() {
            _ if !native => 180,
            _ => 60,
        };
        Ok(Cluster {
            nodes,
            started: first,
            tls: files::client(plan, folder),
            patience: Duration::from_secs(patience),
        })
    }

    /// What clients show, and whom they trust; none: all is in clear.
    pub(crate) fn tls(&self) -> Option<&Files> {
        self.tls.as_ref()
    }

    /// The nodes, by index.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Waits until every node answers and knows a primary for each of its segments or, on another
    /// engine, has its stores.
    ///
    /// # Errors
    /// A node that died, cannot be started, or is not ready in time.
    pub(crate) async fn wait_ready(&mut self) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + self.patience;
        for index in 0..self.nodes.len() {
            while !is_ready(&self.nodes[index], self.tls.as_ref()).await {
                if let Some(death) = self.deaths().into_iter().next() {
                    return Err(Failure::new(Exit::Local, death));
                }
                if tokio::time::Instant::now() >= deadline {
                    let node = &self.nodes[index];
                    let sentence = format!(
                        "node {} was not ready within {} s; its log is {}",
                        node.planned.label,
                        self.patience.as_secs(),
                        node.log.display()
                    );
                    return Err(Failure::new(Exit::Unavailable, sentence));
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            for node in &mut self.nodes[self.started..] {
                node.start()?;
            }
            self.started = self.nodes.len();
        }
        Ok(())
    }

    /// A sentence for each node that ended by itself since the last call.
    pub(crate) fn deaths(&mut self) -> Vec<String> {
        let mut deaths = Vec::new();
        for node in &mut self.nodes {
            let ended = match &mut node.running {
                Some((child, _)) => child.try_wait().ok().flatten(),
                None => None,
            };
            if let Some(status) = ended {
                node.running = None;
                deaths.push(node.death(status));
            }
        }
        deaths
    }

    /// Kills a node with SIGKILL and waits for its end.
    pub(crate) async fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.signal(Signal::KILL);
        if let Some((mut child, _)) = node.running.take() {
            let _status = child.wait().await;
        }
    }

    /// Starts a node that is down.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn restart(&mut self, index: usize) -> Result<(), Failure> {
        assert!(self.nodes[index].running.is_none(), "the node is down");
        self.nodes[index].start()
    }

    /// Stops every node gracefully; one that takes longer than [`STOP_MAX`] is killed. Gives a
    /// sentence for each node that did not stop well.
    pub(crate) async fn stop(mut self) -> Vec<String> {
        for node in &self.nodes {
            node.signal(Signal::TERM);
        }
        let mut troubles = Vec::new();
        let deadline = tokio::time::Instant::now() + STOP_MAX;
        for node in &mut self.nodes {
            let Some((mut child, _stdin)) = node.running.take() else {
                continue;
            };
            match tokio::time::timeout_at(deadline, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => troubles.push(node.death(status)),
                Ok(Err(error)) => troubles.push(format!("node {}: {error}", node.planned.label)),
                Err(_) => {
                    let _killed = child.kill().await;
                    troubles.push(format!(
                        "node {} did not stop within {} s and was killed",
                        node.planned.label,
                        STOP_MAX.as_secs()
                    ));
                }
            }
        }
        troubles
    }
}

/// How a process ended.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Whether a node answers and knows all its primaries.
async fn is_ready(node: &Node, tls: Option<&Files>) -> bool {
    let own = crate::connect::uri(&node.endpoint(), tls.is_some());
    let ask = async {
        let options = crate::connect::options(&[node.endpoint()], tls).ok()?;
        let client = Client::connect(options).await.ok()?;
        // The client learns of the other nodes; this one alone is asked.
        let this = client
            .nodes()
            .iter()
            .position(|known| known.endpoint == own)?;
        let engine = client.engine(this).await.ok()?;
        Some((client.status(Some(this)).await.ok()?, engine))
    };
    let told = tokio::time::timeout(Duration::from_secs(2), ask).await;
    match told {
        Ok(Some((_, Some(engine)))) => engine.ailment.is_none(),
        Ok(Some((status, None))) => {
            !status.logs.is_empty() && status.logs.iter().all(|log| log.primary.is_some())
        }
        _ => false,
    }
}

/// One line for the first port that somebody else listens on.
fn check_ports(nodes: &[PlannedNode]) -> Result<(), Failure> {
    for address in nodes.iter().flat_map(|n| [n.grpc, n.rest, n.peer]) {
        if let Err(error) = TcpListener::bind(address) {
            let sentence = if error.kind() == io::ErrorKind::AddrInUse {
                format!(
                    "port {} is in use: stop what listens there (another `fermata dev`?) or \
                     choose another --base-port",
                    address.port()
                )
            } else {
                format!("cannot listen at {address}: {error}")
            };
            return Err(Failure::new(Exit::Local, sentence));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_explains_a_death_is_quoted() {
        let info = "2026-01-01T00:00:00Z  INFO fermata_server: ready\n";
        let error = "2026-01-01T00:00:01Z ERROR fermata_server: the disk failed\n";
        assert_eq!(last_words(info), None);
        assert_eq!(last_words(""), None);
        let words = last_words(&format!("{error}{info}")).expect("an error");
        assert!(words.ends_with("the disk failed"), "{words}");
        let own = "fermata: the node had to stop: its disk failed";
        assert_eq!(last_words(&format!("{info}{own}\n")).as_deref(), Some(own));
        let json = r#"{"timestamp":"t","level":"ERROR","fields":{}}"#;
        assert_eq!(last_words(json).as_deref(), Some(json));
    }
}
