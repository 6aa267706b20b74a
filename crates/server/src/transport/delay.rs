//! Emulated wide-area delays: one thread holds messages until they are due.
//!
//! A runtime's timers are good to a millisecond, which is much beside a round trip of 0.2 ms; a
//! thread that waits on a condition variable wakes within a tenth of that. Messages to one peer
//! keep their order, since their delay is constant. What a long and fast link would have in flight
//! has a bound here, in bytes; beyond it the oldest are lost.

use super::outgoing::Outgoing;
use fermata_driver::outgoing::{Bounds, weight};
use fermata_protocol::Message;
use fermata_protocol::base::NodeName;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Holds messages to the peers at other sites.
pub(super) struct Delayer {
    shared: Arc<Shared>,
}

struct Lane {
    delay: Duration,
    peer: Arc<Outgoing>,
    held: VecDeque<Held>,
    /// The sum of their weights.
    bytes: usize,
}

/// Messages of one round of the driver.
struct Held {
    due: Instant,
    bytes: usize,
    messages: Vec<Message>,
}

impl Lane {
    fn hold(&mut self, messages: Vec<Message>) {
        let due = Instant::now() + self.delay;
        let bytes = messages.iter().map(weight).sum();
        self.bytes += bytes;
        self.held.push_back(Held {
            due,
            bytes,
            messages,
        });
        while self.bytes > Bounds::SERVER.bytes
            && self.held.len() > 1
            && let Some(oldest) = self.held.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.peer.count_lost(oldest.messages.len());
        }
    }

    /// Lets go what is due by `now`; returns when the next is.
    fn release(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.held.front() {
            if first.due > now {
                return Some(first.due);
            }
            if let Some(first) = self.held.pop_front() {
                self.bytes -= first.bytes;
                self.peer.push(first.messages);
            }
        }
        None
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    lanes: BTreeMap<NodeName, Lane>,
    stopped: bool,
}

impl Delayer {
    /// A thread that runs until the delayer is dropped, with nobody to hold messages to.
    pub(super) fn start() -> std::io::Result<Delayer> {
        let state = Mutex::new(State {
            lanes: BTreeMap::new(),
            stopped: false,
        });
        let shared = Arc::new(Shared {
            state,
            changed: Condvar::new(),
        });
        let worker = shared.clone();
        std::thread::Builder::new()
            .name("fermata-delay".into())
            .spawn(move || worker.run())?;
        Ok(Delayer { shared })
    }

    /// Messages to this peer are held for so long from now on.
    pub(super) fn hold(&self, to: NodeName, delay: Duration, peer: Arc<Outgoing>) {
        let lane = Lane {
            delay,
            peer,
            held: VecDeque::new(),
            bytes: 0,
        };
        self.shared.lock().lanes.insert(to, lane);
    }

    /// That peer is none any more: what is held for it is lost.
    pub(super) fn forget(&self, to: NodeName) {
        self.shared.lock().lanes.remove(&to);
    }

    /// Whether messages to this peer are held at all.
    pub(super) fn holds(&self, to: NodeName) -> bool {
        self.shared.lock().lanes.contains_key(&to)
    }

    /// Takes messages that have just been sent.
    pub(super) fn send(&self, to: NodeName, messages: Vec<Message>) {
        let mut state = self.shared.lock();
        if let Some(lane) = state.lanes.get_mut(&to) {
            lane.hold(messages);
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Delayer {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let now = Instant::now();
            let mut next: Option<Instant> = None;
            for lane in state.lanes.values_mut() {
                let due = lane.release(now);
                next = next.into_iter().chain(due).min();
            }
            let patience = next.map_or(Duration::from_secs(1), |next| next - now);
            let waited = self.changed.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
