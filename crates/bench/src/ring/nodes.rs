//! Fermata as an operator runs it: processes that join, are drained, removed and replaced by the
//! commands of `fermata`, and clients that learn of it by themselves.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use fermata_client::{Client, Enter, Error, Options, Section};
use tokio::process::Command;

use super::counters::{Counters, Told};
use super::load::Load;
use super::subject::{Held, Subject};
use super::{Phases, RingArgs};
use crate::music::place::SITES;
use crate::music::system::Boxed;
use crate::processes::{Processes, Setup, beside};

/// Measures and prints.
pub(super) async fn measure(args: &RingArgs) -> Result<()> {
    let program = args.fermata.clone().map_or_else(beside, Ok)?;
    let mut fermata = Fermata::start(&program, &args.rtt).await?;
    let mut subjects = Vec::new();
    for site in 0..SITES {
        subjects.push(fermata.client(site).await?);
    }
    let load = Load::begin(&subjects, |_, work| tokio::spawn(work));
    let counters = Counters::begin(&program, &fermata.told, args.counters);
    let mut changes = Changes {
        calm: Duration::from_secs(args.calm),
        phases: Phases::default(),
    };
    let changed = changes.all(&mut fermata).await;
    let record = load.end().await?;
    changes.phases.report(&record, args.slow);
    changed?;
    if args.counters > 0 {
        counters.end().await?.judge(&fermata.cluster).await?;
    }
    record.judge()
}

/// What an operator does, and when.
struct Changes {
    calm: Duration,
    phases: Phases,
}

impl Changes {
    async fn all(&mut self, fermata: &mut Fermata) -> Result<()> {
        self.calm("calm").await;
        let added = fermata.join(1).await?;
        self.operate(fermata, "add", &["node", "add", &added])
            .await?;
        self.operate(fermata, "drain", &["node", "drain", "n2"])
            .await?;
        fermata.operate(&["node", "undrain", "n2"]).await?;
        self.operate(fermata, "remove", &["node", "remove", "n1"])
            .await?;
        fermata.end("n1").await?;
        let lives = fermata.join(2).await?;
        self.operate(fermata, "replace", &["node", "replace", "n2", &lives])
            .await?;
        fermata.end("n2").await?;
        self.lost(fermata, &lives, 2).await?;
        self.rolling(fermata).await?;
        self.restarts(fermata).await
    }

    /// A node is killed, its disk goes, and another has its seats.
    async fn lost(&mut self, fermata: &mut Fermata, label: &str, site: usize) -> Result<()> {
        let spare = fermata.join(site).await?;
        let death = Instant::now();
        fermata.cluster.lose(label).await?;
        fermata.tell();
        // Nobody gives up a node that is still heard.
        loop {
            let args = ["node", "replace", label, &spare, "--lost", "--yes"];
            match fermata.operate(&args).await {
                Ok(_) => break,
                Err(error) if death.elapsed() > Duration::from_secs(120) => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.end("SIGKILL, replace --lost", death).await;
        Ok(())
    }

    /// All nodes are replaced, one after the other.
    async fn rolling(&mut self, fermata: &mut Fermata) -> Result<()> {
        for old in fermata.restart_order().await? {
            let site = fermata.cluster.site(&old)?;
            let new = fermata.join(site).await?;
            self.operate(
                fermata,
                "replace, one of all",
                &["node", "replace", &old, &new],
            )
            .await?;
            fermata.end(&old).await?;
        }
        Ok(())
    }

    async fn restarts(&mut self, fermata: &mut Fermata) -> Result<()> {
        for label in fermata.restart_order().await? {
            let begun = Instant::now();
            fermata.restart(&label).await?;
            self.end("restart, one of all", begun).await;
        }
        Ok(())
    }

    async fn calm(&mut self, name: &str) {
        let begun = Instant::now();
        tokio::time::sleep(self.calm).await;
        self.phases.add(name, begun);
    }

    /// A command of the operator, and how long it takes.
    async fn operate(&mut self, fermata: &Fermata, name: &str, args: &[&str]) -> Result<()> {
        let begun = Instant::now();
        fermata.operate(args).await?;
        self.end(name, begun).await;
        Ok(())
    }

    /// A change is over; then nothing for a while.
    async fn end(&mut self, name: &str, begun: Instant) {
        self.phases.add(name, begun);
        tokio::time::sleep(self.calm).await;
    }
}

/// A cluster, and its operator.
pub(crate) struct Fermata {
    program: PathBuf,
    /// Where scripts are told to look for nodes: those that are there, as an operator keeps it.
    told: Told,
    pub(crate) cluster: Processes,
}

impl Fermata {
    /// Starts three nodes with these delays between their sites.
    pub(crate) async fn start(program: &Path, rtt: &str) -> Result<Fermata> {
        let setup = Setup {
            rtt: Some(rtt.to_owned()),
            ..Setup::default()
        };
        let cluster = Processes::start(program, SITES as u16, setup).await?;
        Ok(Fermata {
            program: program.to_owned(),
            told: Arc::new(Mutex::new(cluster.addresses())),
            cluster,
        })
    }

    /// A client at a site, which knows all nodes that are up now.
    pub(crate) async fn client(&self, site: usize) -> Result<Arc<dyn Subject>> {
        let all = self.cluster.addresses();
        let endpoints = all.iter().map(|at| format!("http://{at}"));
        let options = Options::new(endpoints).site(format!("s{}", site + 1));
        let client = Client::connect(options).await?;
        Ok(Arc::new(OneClient { client }))
    }

    /// Starts another node at a site, and waits until the others hear it.
    pub(crate) async fn join(&mut self, site: usize) -> Result<String> {
        let label = self.cluster.join(&self.program, site)?;
        let begun = Instant::now();
        loop {
            let said = self.operate(&["node", "list", "--json"]).await?;
            let nodes: serde_json::Value = serde_json::from_str(&said)?;
            let nodes = nodes.as_array().context("a list of nodes")?;
            let ours = |node: &&serde_json::Value| node["label"] == label.as_str();
            if nodes.iter().find(ours).is_some_and(|n| n["heard"] == true) {
                self.tell();
                return Ok(label);
            }
            if begun.elapsed() > Duration::from_secs(60) {
                bail!("{label} has joined, and is not heard: {said}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for the end of a node that is out.
    async fn end(&mut self, label: &str) -> Result<()> {
        self.cluster.end(label).await?;
        self.tell();
        Ok(())
    }

    fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = self.cluster.addresses();
    }

    /// Runs a command of `fermata` as an operator does, and returns what it printed.
    pub(crate) async fn operate(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args)
            .env("FERMATA_ENDPOINTS", self.cluster.addresses().join(","))
            .stdin(Stdio::null())
            .output()
            .await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            return Err(anyhow!(
                "fermata {}: {status}: {}",
                args.join(" "),
                said.trim()
            ));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Drains a node, ends it in order, starts it again, and lets it lead again.
    pub(crate) async fn restart(&mut self, label: &str) -> Result<()> {
        self.operate(&["node", "drain", label]).await?;
        self.cluster.end(label).await?;
        self.cluster.again(&self.program, label)?;
        self.cluster.ready(label).await?;
        self.operate(&["node", "undrain", label]).await?;
        Ok(())
    }

    /// The labels of all nodes, in the order in which they should be restarted.
    pub(crate) async fn restart_order(&self) -> Result<Vec<String>> {
        let said = self.operate(&["node", "restart-order", "--json"]).await?;
        Ok(serde_json::from_str(&said)?)
    }
}

struct OneClient {
    client: Client,
}

impl Subject for OneClient {
    fn read<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let found = self.client.read("registers", key).await?;
            Ok(found.map(|value| value.to_vec()))
        })
    }

    fn write<'a>(&'a self, key: &'a str, value: Vec<u8>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let value = Some(Bytes::from(value));
            Ok(self.client.write("registers", key, value).await?)
        })
    }

    fn section<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let keys = [key];
            let section = self.client.enter("default", &keys, Enter::default());
            Ok(section.await?.put_and_leave(key, "held").await?)
        })
    }

    fn hold<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Box<dyn Held>>> {
        Box::pin(async move {
            let keys = [key];
            let section = self.client.enter("default", &keys, Enter::default());
            let (section, key) = (section.await?, key.to_owned());
            Ok(Some(Box::new(Inside { section, key }) as Box<dyn Held>))
        })
    }

    fn is_unknown(&self, error: &anyhow::Error) -> bool {
        let known = error.downcast_ref::<Error>();
        known.is_none_or(Error::may_have_taken_effect)
    }
}

struct Inside {
    section: Section,
    key: String,
}

impl Held for Inside {
    fn put(&self, value: Vec<u8>) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.section.put(&self.key, value).await?) })
    }

    fn leave(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move { Ok(self.section.leave_and_wait().await?) })
    }
}
