//! Loops of `fermata lock`, as scripts have them: each adds one to the same number, again and
//! again, by a command that runs inside a section.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use fermata_client::{Client, Enter, Options};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::processes::Processes;

/// Adds one inside a section, and prints nothing.
const COUNT: &str = "v=$(\"$0\" get counter || echo 0); \"$0\" put counter $((v + 1))";

/// Addresses of nodes.
pub(crate) type Told = Arc<Mutex<Vec<String>>>;

/// Loops that go on until they are told to end.
pub(crate) struct Counters {
    over: Arc<AtomicBool>,
    loops: JoinSet<Result<Vec<String>>>,
    counted: Arc<AtomicU64>,
}

impl Counters {
    /// Begins so many loops. Each command is given the nodes that are told then.
    pub(crate) fn begin(program: &Path, told: &Told, some: usize) -> Counters {
        let over = Arc::new(AtomicBool::new(false));
        let counted = Arc::new(AtomicU64::new(0));
        let mut loops = JoinSet::new();
        for at in 0..some {
            let (program, over, counted) = (program.to_owned(), over.clone(), counted.clone());
            let told = told.clone();
            loops.spawn(async move {
                let mut wrong = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let mut nodes = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // Scripts at different sites name the node of their own first.
                    let first = at % nodes.len().max(1);
                    nodes.rotate_left(first);
                    match once(&program, &nodes.join(",")).await? {
                        None => counted.fetch_add(1, Ordering::Relaxed),
                        Some(said) => {
                            wrong.push(said);
                            0
                        }
                    };
                }
                Ok(wrong)
            });
        }
        Counters {
            over,
            loops,
            counted,
        }
    }

    /// Ends them, once each has done what it is at.
    pub(crate) async fn end(mut self) -> Result<Counted> {
        self.over.store(true, Ordering::Relaxed);
        let mut wrong = Vec::new();
        while let Some(ended) = self.loops.join_next().await {
            wrong.extend(ended??);
        }
        let acknowledged = self.counted.load(Ordering::Relaxed);
        Ok(Counted {
            acknowledged,
            wrong,
        })
    }
}

/// What loops have counted.
pub(crate) struct Counted {
    acknowledged: u64,
    /// What commands said that failed.
    wrong: Vec<String>,
}

impl Counted {
    /// Prints it beside the number itself.
    ///
    /// # Errors
    /// An increment was lost, or counted twice.
    pub(crate) async fn judge(self, cluster: &Processes) -> Result<()> {
        let endpoints = cluster.addresses();
        let options = Options::new(endpoints.iter().map(|at| format!("http://{at}")));
        let client = Client::connect(options).await?;
        let section = client.enter("default", &["counter"], Enter::default());
        let found = section.await?.get("counter").await?;
        let found = found.context("the counter is empty")?;
        let found: u64 = String::from_utf8_lossy(&found).trim().parse()?;
        let (acknowledged, failed) = (self.acknowledged, self.wrong.len() as u64);
        println!("the counter is {found}: {acknowledged} were acknowledged, {failed} failed");
        for said in self.wrong.iter().take(5) {
            println!("  {said}");
        }
        // A command that failed may have counted.
        let range = acknowledged..=acknowledged + failed;
        ensure!(range.contains(&found), "the counter is wrong");
        Ok(())
    }
}

/// One increment; what was said where it went wrong.
async fn once(program: &Path, endpoints: &str) -> Result<Option<String>> {
    let output = Command::new(program)
        .env("FERMATA_ENDPOINTS", endpoints)
        .args([
            "--timeout",
            "60s",
            "lock",
            "--wait",
            "600s",
            "counter",
            "--",
        ])
        .args(["sh", "-c", COUNT])
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .await?;
    let said = || {
        format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )
    };
    Ok((!output.status.success()).then(said))
}
