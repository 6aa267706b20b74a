//! The driver's thread: it owns the node, and steps it with whatever happens.
//!
//! What is decided around a node is in [`fermata_driver`], which the simulator runs, too. Here are
//! the hands: the mailbox in which events wait, the threads that block on the disk, the clock, the
//! transport, open calls, metrics and the log. The thread takes all waiting events at once, steps
//! the node with each, lets it go on, and only then ends the round.

use crate::clock::{self, Clock};
use crate::mailbox::{Call, Event, Mailbox};
use crate::metrics::Metrics;
use crate::roster::{Known, Roster};
use crate::transport::Peers;
use crate::worker::Worker;
use fermata_driver::ballast::Ballast;
use fermata_driver::{Action, Driver, Event as Happened, Shell};
use fermata_protocol::base::{Config, Micros, NodeId, NodeName, Now};
use fermata_protocol::io::{Effects, Input, Output};
use fermata_protocol::node::Here;
use fermata_protocol::request::{ClockState, ClockStatus};
use fermata_protocol::{CallId, Message, Reply, register};
use fermata_storage::{Checkpoint, Flush, Lack, Lsn, Persisted, Store};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The loop looks around at least this often.
const IDLE: Micros = 100_000;
/// While the node retires, this often.
const RETIRING_IDLE: Micros = 10_000;
/// How long a stop waits for the disk.
const LAST_FLUSH: Duration = Duration::from_secs(5);

/// Without a round of its thread for so long, the driver is taken for stuck.
const ROUND_MAX: Micros = 10_000_000;

/// What the driver's thread shows of itself to whoever asks after the node.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The node knows every node of its cluster, and answers.
    started: AtomicBool,
    /// The monotonic clock at the last round.
    round: AtomicU64,
}

impl Pulse {
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Whether the thread goes its rounds, as of `now`.
    pub(crate) fn is_beating(&self, now: Micros) -> bool {
        now.saturating_sub(self.round.load(Ordering::Relaxed)) < ROUND_MAX
    }

    fn beat(&self, now: Micros, started: bool) {
        self.round.store(now, Ordering::Relaxed);
        self.started.store(started, Ordering::Relaxed);
    }
}

/// What the thread is made of.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) seed: u64,
    pub(crate) store: Store,
    pub(crate) ballast: Ballast,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) peers: Peers,
    pub(crate) roster: Arc<Roster>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) pulse: Arc<Pulse>,
}

/// A driver and what it acts through, on the thread that runs it.
pub(crate) struct DriverThread {
    driver: Driver,
    hands: Hands,
    mailbox: Arc<Mailbox>,
    /// What the log says of the interval clock.
    clock_told: Option<ClockStatus>,
    /// Void records that the log has been told of.
    void_told: u64,
    retiring: bool,
    abandoned: bool,
    pulse: Arc<Pulse>,
}

/// Does what the driver wants done.
struct Hands {
    peers: Peers,
    roster: Arc<Roster>,
    /// How often what the roster is made of had changed when it was shown last; none: never.
    shown: Option<u64>,
    metrics: Arc<Metrics>,
    clock: Arc<Clock>,
    flusher: Worker<Flush>,
    chores: Worker<Chore>,
    calls: HashMap<CallId, Call>,
    /// The disk takes no writes.
    full: bool,
    /// The store's sizes have changed.
    measure: bool,
}

/// Work on the disk that may take long.
enum Chore {
    Checkpoint(Checkpoint),
    Raise,
}

impl Shell for Hands {
    fn now(&mut self) -> Now {
        self.clock.now()
    }

    fn act(&mut self, action: Action) {
        // The workers live as long as their senders.
        match action {
            Action::Flush(flush) => {
                self.metrics.flushes.increment(1);
                self.metrics.records.increment(flush.records());
                self.measure |= self.full;
                self.flusher.send(flush);
            }
            Action::Checkpoint(checkpoint) => self.chores.send(Chore::Checkpoint(checkpoint)),
            Action::Raise => {
                self.measure |= self.full;
                self.chores.send(Chore::Raise);
            }
            Action::Send(to, messages) => self.peers.send(to, messages),
            Action::Answer(call, reply) => self.answer(call, reply),
            Action::Full(lack) => {
                tracing::error!("{lack}: reads go on, writes are refused");
                self.takes_writes(false);
            }
            Action::Writable => {
                tracing::info!("the disk takes writes again");
                self.takes_writes(true);
            }
            Action::Lost(_) => self.metrics.lost.increment(1),
        }
    }

    fn stepped(&mut self, effects: &mut Effects, _written: Lsn) {
        self.metrics.steps.increment(1);
        for output in &effects.outputs {
            if let Output::Send { message, .. } = output
                && let Message::Register(register::Message::Ask { ask, .. }) = message
            {
                self.metrics.asked(ask);
            }
        }
    }
}

impl Hands {
    fn answer(&mut self, call: CallId, reply: Reply) {
        let Some(asker) = self.calls.get(&call) else {
            return; // cancelled meanwhile
        };
        if asker.tell(reply, &self.metrics) {
            self.calls.remove(&call);
        }
    }

    /// Shows who is in the cluster and where its groups are, if that has changed.
    fn show(&mut self, here: &Here) {
        self.peers.part();
        let changes = here.directory.changes();
        if self.shown.replace(changes) != Some(changes) {
            let known = Arc::new(Known::of(here));
            self.peers.update(&known);
            self.roster.show(known);
        }
    }

    fn takes_writes(&mut self, writable: bool) {
        (self.full, self.measure) = (!writable, true);
        self.metrics.writable.set(f64::from(u8::from(writable)));
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl DriverThread {
    /// The node over its store, on the thread that will run it.
    ///
    /// # Errors
    /// One sentence: the store does not fit the configuration, or a thread cannot be started.
    pub(crate) fn recover(parts: Parts) -> Result<DriverThread, String> {
        let Parts {
            config,
            id,
            seed,
            store,
            ballast,
            mailbox,
            peers,
            roster,
            metrics,
            clock,
            pulse,
        } = parts;
        let (timing, limits) = (config.timing.clone(), config.limits.clone());
        mailbox.value_max.store(limits.value, Ordering::Relaxed);
        let driver = Driver::recover(config, id, store, clock.now(), seed)?;
        let settings = driver.node().here().registry().settings();
        if let Some(overruled) = settings.check(&timing, &limits)? {
            tracing::warn!("{overruled}");
        }
        let failed = |e: std::io::Error| format!("cannot start a thread: {e}");
        let (back, reserve) = (mailbox.clone(), ballast.clone());
        let flusher = Worker::start("flush", move |flush: Flush| {
            let begun = Instant::now();
            let done = flush.run();
            if matches!(done.outcome(), Persisted::Full(Lack::Space)) {
                reserve.release();
            }
            back.put(Event::Flushed(done, begun.elapsed()));
        });
        let flusher = flusher.map_err(failed)?;
        let back = mailbox.clone();
        let chores = Worker::start("checkpoint", move |chore| {
            back.put(match chore {
                Chore::Checkpoint(checkpoint) => Event::Checkpointed(checkpoint.run()),
                Chore::Raise => Event::Ballast(ballast.raise()),
            });
        });
        let chores = chores.map_err(failed)?;
        pulse.beat(clock.now().monotonic, false);
        let hands = Hands {
            peers,
            roster,
            shown: None,
            metrics,
            clock,
            flusher,
            chores,
            calls: HashMap::new(),
            full: false,
            measure: true,
        };
        Ok(DriverThread {
            driver,
            hands,
            mailbox,
            clock_told: None,
            void_told: 0,
            retiring: false,
            abandoned: false,
            pulse,
        })
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// One sentence: why the node cannot go on.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let mut events = Vec::new();
        self.hands.show(self.driver.node().here());
        self.driver.start(&mut self.hands)?;
        loop {
            for event in events.drain(..) {
                self.handle(event)?;
            }
            if self.abandoned {
                return Ok(());
            }
            while self.driver.go_on(&mut self.hands)? {}
            self.hands.show(self.driver.node().here());
            self.driver.close_round(&mut self.hands);
            self.tell();
            self.show_catalogue();
            let value_max = self.driver.node().config().limits.value;
            self.mailbox.value_max.store(value_max, Ordering::Relaxed);
            let started = self.driver.node().is_started();
            self.pulse.beat(clock::monotonic(), started);
            let brief = self.hands.calls.values().any(|call| !call.lasting);
            if self.driver.may_end(self.hands.now().monotonic, brief) {
                return self.drain();
            }
            let patience = self.patience();
            self.mailbox.take(&mut events, patience);
        }
    }

    /// Tells the faces of the keyspaces and the access policy, before any answer that follows.
    fn show_catalogue(&self) {
        let catalogue = self.driver.node().here().catalogue();
        self.mailbox
            .catalogue
            .store(catalogue.version(), Ordering::Relaxed);
        let access = catalogue.access();
        self.mailbox.access.send_if_modified(|shown| {
            let news = shown
                .as_ref()
                .is_none_or(|shown| shown.version != access.version);
            if news {
                *shown = Some(access.clone());
            }
            news
        });
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let happened = match event {
            Event::Frame {
                from,
                interval,
                messages,
                permit: _permit,
            } => {
                self.input(Input::Heard { from, interval })?;
                for message in messages {
                    self.input(Input::Message { from, message })?;
                }
                return Ok(());
            }
            Event::Disowned(peer) => {
                return Err(format!(
                    "{} says that the cluster has taken this node out, and hears this data \
                     directory no more; to come back the node joins with a new one",
                    self.label(peer)
                ));
            }
            Event::Twin(peer) => {
                return Err(format!(
                    "{} hears another process under this node's identity: one of both has a copy \
                     of the other's data directory; stop both, give the copy up, and if it is not \
                     known which one is the copy, replace the node",
                    self.label(peer)
                ));
            }
            Event::Gone(peer) => Happened::Input(Input::Gone(peer)),
            Event::Request(call, request, asker) => {
                self.hands.calls.insert(call, asker);
                let request = *request;
                Happened::Input(Input::Request { call, request })
            }
            Event::Cancel(call) => match self.hands.calls.remove(&call) {
                Some(_) => Happened::Input(Input::Cancel(call)),
                None => return Ok(()),
            },
            Event::Flushed(done, took) => {
                let seconds = &self.hands.metrics.flush_seconds;
                seconds.record(took.as_secs_f64());
                Happened::Flushed(done)
            }
            Event::Checkpointed(done) => {
                self.hands.measure = true;
                Happened::Checkpointed(done)
            }
            Event::Ballast(raised) => {
                if let Err(error) = &raised
                    && Lack::of(error).is_none()
                {
                    tracing::warn!(%error, "no space is kept in reserve");
                }
                Happened::Raised(raised)
            }
            Event::Retire => {
                self.retiring = true;
                Happened::Input(Input::Retire)
            }
            Event::Abandon => {
                self.abandoned = true;
                return Ok(());
            }
        };
        self.driver.handle(happened, &mut self.hands)
    }

    /// What people call a node.
    fn label(&self, name: NodeName) -> String {
        let known = self.hands.roster.known();
        let node = known.node(name);
        node.map_or_else(|| "a node".to_owned(), |node| node.label.clone())
    }

    fn input(&mut self, input: Input) -> Result<(), String> {
        self.driver.handle(Happened::Input(input), &mut self.hands)
    }

    fn patience(&mut self) -> Duration {
        let now = self.hands.now().monotonic;
        let idle = if self.retiring { RETIRING_IDLE } else { IDLE };
        let wake = self.driver.wake().map(|at| at.saturating_sub(now));
        Duration::from_micros(wake.map_or(idle, |wake| wake.min(idle)))
    }

    /// Says in metrics how things are, and in the log what becomes of the interval clock.
    fn tell(&mut self) {
        let metrics = &self.hands.metrics;
        metrics.open_requests.set(self.hands.calls.len() as f64);
        metrics.held_outputs.set(self.driver.held() as f64);
        if std::mem::take(&mut self.hands.measure) {
            // Asks the disk.
            let stats = self.driver.store().stats();
            metrics.wal_bytes.set(stats.wal_bytes as f64);
            metrics.table_bytes.set(stats.table_bytes as f64);
            metrics.unsaved_bytes.set(stats.unsaved_bytes as f64);
            metrics.void_records.set(stats.void as f64);
            if stats.void > self.void_told {
                let records = stats.void - self.void_told;
                tracing::warn!(records, "corrupt records are left to the replicas");
                self.void_told = stats.void;
            }
        }
        let status = self.driver.node().clock();
        metrics.clock(&status);
        let told = self.clock_told.replace(status);
        if told.is_some_and(|told| (told.state, told.against) == (status.state, status.against)) {
            return;
        }
        log_clock(&status, self.hands.clock.source());
    }

    /// A graceful stop: what was written becomes durable, and what waited for that is sent.
    fn drain(mut self) -> Result<(), String> {
        let mut events = Vec::new();
        let end = Instant::now() + LAST_FLUSH;
        self.driver.drain();
        while !self.driver.is_durable() && Instant::now() < end {
            self.mailbox.take(&mut events, Duration::from_millis(10));
            for event in events.drain(..) {
                self.handle(event)?;
            }
            self.driver.close_round(&mut self.hands);
        }
        self.driver.close_round(&mut self.hands);
        if !self.driver.is_durable() {
            let why = "stopped before the last writes were durable: the disk is full or slow; \
                       nothing that was acknowledged is lost";
            return Err(why.into());
        }
        Ok(())
    }
}

/// What has become of the interval clock. What is not known is no field of the line.
fn log_clock(status: &ClockStatus, source: &str) {
    let (bound_us, against) = (status.bound, status.against.map(|n| n.0));
    let line = status.state.sentence();
    if status.state == ClockState::Violated {
        tracing::error!(bound_us, source, against, "{line}");
    } else {
        tracing::info!(bound_us, source, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;

    /// What is logged as JSON meanwhile.
    fn logged(act: impl FnOnce()) -> serde_json::Value {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(move || Lines(to.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        let said = lines.lock().unwrap();
        serde_json::from_slice(&said).unwrap()
    }

    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bound_is_logged_as_a_number_or_not_at_all() {
        let status = |state, bound, against| ClockStatus {
            state,
            bound,
            violations: 0,
            against,
        };
        let absent = status(ClockState::Absent, None, None);
        let said = logged(|| log_clock(&absent, "kernel"));
        assert_eq!(said["fields"].get("bound_us"), None, "{said}");
        let violated = status(ClockState::Violated, Some(7), Some(NodeName(2)));
        let said = logged(|| log_clock(&violated, "kernel"));
        assert_eq!(
            (&said["fields"]["bound_us"], &said["fields"]["against"]),
            (&7.into(), &2.into())
        );
    }

    #[test]
    fn a_driver_that_goes_no_rounds_is_stuck() {
        let pulse = Pulse::default();
        pulse.beat(7, false);
        assert!(pulse.is_beating(7) && !pulse.is_started());
        assert!(pulse.is_beating(6 + ROUND_MAX) && !pulse.is_beating(7 + ROUND_MAX));
    }
}
