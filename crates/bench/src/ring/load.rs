//! A load that goes on while members change, each operation with its time.
//!
//! At each site one client reads registers that all sites share, one writes them, one enters and
//! leaves sections of its own key, and one stays in a section and puts. Each does one thing after
//! the other, so that each of them meets a system that stands still. All that was read and written
//! goes to a checker at the end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use fermata_check::{Action, Bound, Ending, History, Operation};
use fermata_protocol::base::Rng;
use tokio::task::JoinHandle;

use super::subject::{Held, Kind, Subject};

/// Registers that all sites read and write.
const REGISTERS: u64 = 24;
/// Between two operations of a client.
const PAUSE: Duration = Duration::from_millis(5);
/// After an error.
const REST: Duration = Duration::from_millis(50);

/// One operation that was called.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) kind: Kind,
    /// From 0 on.
    pub(crate) site: usize,
    pub(crate) start: Instant,
    pub(crate) took: Duration,
    /// What it said where it did not end well, and whether it may have taken effect.
    pub(crate) failed: Option<(String, bool)>,
}

/// All that was done.
pub(crate) struct Record {
    pub(crate) all: Vec<Done>,
    history: History<String, Vec<u8>>,
}

impl Record {
    /// What the checker says of the registers, and whether that is what was promised.
    pub(crate) fn verdict(&self) -> (String, bool) {
        let report = self.history.check(Bound::default(), |_| {});
        let (wrong, undecided) = (report.violations(), report.undecided());
        let said = match (wrong, undecided) {
            (0, 0) => "linearizable".to_owned(),
            (0, _) => format!("{undecided} registers undecided"),
            _ => format!("{wrong} registers NOT linearizable"),
        };
        let (operations, registers) = (report.operations, report.registers);
        let said = format!("{said}: {operations} operations on {registers} registers");
        (said, wrong + undecided == 0)
    }
}

/// A client's work.
pub(crate) type Work = Pin<Box<dyn Future<Output = Worked> + Send>>;

/// What one client did.
pub(crate) struct Worked {
    all: Vec<Done>,
    history: Vec<(String, Operation<Vec<u8>>)>,
}

/// Clients that work until they are told to end.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Worked>>,
}

impl Load {
    /// Begins. `subjects` has a subject for each site; `spawn` has a client live at its site.
    pub(crate) fn begin(
        subjects: &[Arc<dyn Subject>],
        spawn: impl Fn(usize, Work) -> JoinHandle<Worked>,
    ) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let mut clients = Vec::new();
        for (site, subject) in subjects.iter().enumerate() {
            for kind in Kind::ALL {
                let client = Client {
                    subject: subject.clone(),
                    site,
                    number: (clients.len() + 1) as u64,
                    origin,
                    over: over.clone(),
                    worked: Worked {
                        all: Vec::new(),
                        history: Vec::new(),
                    },
                };
                clients.push(spawn(site, Box::pin(client.work(kind))));
            }
        }
        Load { over, clients }
    }

    /// Ends, once each client has done what it is at.
    pub(crate) async fn end(self) -> Result<Record> {
        self.over.store(true, Ordering::Relaxed);
        let mut record = Record {
            all: Vec::new(),
            history: History::new(),
        };
        for client in self.clients {
            let worked = client.await?;
            record.all.extend(worked.all);
            for (key, operation) in worked.history {
                record.history.push(key, operation);
            }
        }
        Ok(record)
    }
}

struct Client {
    subject: Arc<dyn Subject>,
    site: usize,
    number: u64,
    origin: Instant,
    over: Arc<AtomicBool>,
    worked: Worked,
}

impl Client {
    async fn work(mut self, kind: Kind) -> Worked {
        let mut rng = Rng::new(self.number);
        let (mut count, mut held) = (0_u64, None);
        while !self.over.load(Ordering::Relaxed) {
            count += 1;
            let register = format!("changes-{}", rng.below(REGISTERS));
            let value = format!("{}/{count}", self.number).into_bytes();
            let well = match kind {
                Kind::Read => self.read(&register).await,
                Kind::Write => self.write(&register, value).await,
                Kind::Section => self.section().await,
                Kind::Put => match self.put(&mut held, value).await {
                    Some(well) => well,
                    None => break,
                },
            };
            tokio::time::sleep(if well { PAUSE } else { REST }).await;
        }
        if let Some(held) = held {
            // What it leaves behind ends with its lease.
            let _ = held.leave().await;
        }
        self.worked
    }

    async fn read(&mut self, key: &str) -> bool {
        let start = Instant::now();
        let seen = self.subject.read(key).await;
        let (found, ended) = match seen {
            Ok(found) => (found, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let ending = self.note(Kind::Read, start, ended);
        self.record(key, start, Action::Read(found), ending)
    }

    async fn write(&mut self, key: &str, value: Vec<u8>) -> bool {
        let start = Instant::now();
        let ended = self.subject.write(key, value.clone()).await;
        let ending = self.note(Kind::Write, start, ended);
        self.record(key, start, Action::Write(Some(value)), ending)
    }

    async fn section(&mut self) -> bool {
        let start = Instant::now();
        let key = format!("own-{}", self.number);
        let ended = self.subject.section(&key).await;
        matches!(self.note(Kind::Section, start, ended), Ending::Ok { .. })
    }

    /// A put in a section, which is entered where there is none; none: the system has none.
    async fn put(&mut self, held: &mut Option<Box<dyn Held>>, value: Vec<u8>) -> Option<bool> {
        let start = Instant::now();
        let inside = match held.take() {
            Some(inside) => inside,
            None => match self.subject.hold(&format!("held-{}", self.number)).await {
                Ok(inside) => inside?,
                Err(error) => {
                    self.note(Kind::Put, start, Err(error));
                    return Some(false);
                }
            },
        };
        let start = Instant::now();
        let ended = inside.put(value).await;
        let well = matches!(self.note(Kind::Put, start, ended), Ending::Ok { .. });
        // Who has lost the section enters another one.
        *held = Some(inside).filter(|_| well);
        Some(well)
    }

    fn note(&mut self, kind: Kind, start: Instant, ended: Result<()>) -> Ending {
        let failed = ended.err().map(|error| {
            let unknown = self.subject.is_unknown(&error);
            (format!("{error:#}"), unknown)
        });
        let ending = match &failed {
            None => Ending::Ok {
                returned: nanos(self.origin.elapsed()),
            },
            Some((_, false)) => Ending::Failed,
            Some((_, true)) => Ending::Unknown,
        };
        self.worked.all.push(Done {
            kind,
            site: self.site,
            start,
            took: start.elapsed(),
            failed,
        });
        ending
    }

    fn record(&mut self, key: &str, start: Instant, did: Action<Vec<u8>>, how: Ending) -> bool {
        let operation = Operation {
            client: self.number,
            call: nanos(start - self.origin),
            action: did,
            outcome: how,
        };
        self.worked.history.push((key.to_owned(), operation));
        matches!(how, Ending::Ok { .. })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX - 1)
}
