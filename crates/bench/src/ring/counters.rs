//! Loops of `fermata lock`, as scripts have them: each adds one to the same number, again and
//! again, by a command that runs inside a section.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use tokio::process::Command;
use tokio::task::JoinSet;

/// Adds one inside a section, and prints nothing.
const COUNT: &str = "v=$(\"$0\" get counter || echo 0); \"$0\" put counter $((v + 1))";

/// Loops that go on until they are told to end.
pub(crate) struct Counters {
    over: Arc<AtomicBool>,
    loops: JoinSet<Result<Vec<String>>>,
    counted: Arc<AtomicU64>,
}

impl Counters {
    /// Begins so many loops, each with all of these nodes.
    pub(crate) fn begin(program: &Path, endpoints: &[String], some: usize) -> Counters {
        let over = Arc::new(AtomicBool::new(false));
        let counted = Arc::new(AtomicU64::new(0));
        let mut loops = JoinSet::new();
        for at in 0..some {
            // Scripts at different sites name the node of their own first.
            let mut nodes = endpoints.to_vec();
            nodes.rotate_left(at % endpoints.len().max(1));
            let (program, over, counted) = (program.to_owned(), over.clone(), counted.clone());
            loops.spawn(async move {
                let mut wrong = Vec::new();
                while !over.load(Ordering::Relaxed) {
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

    /// Ends them: increments that were acknowledged, and what went wrong.
    pub(crate) async fn end(mut self) -> Result<(u64, Vec<String>)> {
        self.over.store(true, Ordering::Relaxed);
        let mut wrong = Vec::new();
        while let Some(ended) = self.loops.join_next().await {
            wrong.extend(ended??);
        }
        Ok((self.counted.load(Ordering::Relaxed), wrong))
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
