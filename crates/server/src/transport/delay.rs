//! Emulated wide-area delays: one thread holds messages until they are due.
//!
//! A runtime's timers are good to a millisecond, which is much beside a round trip of 0.2 ms; a
//! thread that waits on a condition variable wakes within a tenth of that. Messages to one peer
//! keep their order, since their delay is constant.

use super::outgoing::Outgoing;
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
    held: VecDeque<(Instant, Vec<Message>)>,
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
    /// A thread that serves these peers, until the delayer is dropped.
    pub(super) fn start(
        peers: BTreeMap<NodeName, (Duration, Arc<Outgoing>)>,
    ) -> std::io::Result<Delayer> {
        let lane = |(delay, peer)| Lane {
            delay,
            peer,
            held: VecDeque::new(),
        };
        let lanes = peers
            .into_iter()
            .map(|(name, peer)| (name, lane(peer)))
            .collect();
        let state = Mutex::new(State {
            lanes,
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

    /// Whether messages to this peer are held at all.
    pub(super) fn holds(&self, to: NodeName) -> bool {
        self.shared.lock().lanes.contains_key(&to)
    }

    /// Takes messages that have just been sent. Bounded by what the protocol has in flight in one
    /// delay, and by the outgoing queue that they move to.
    pub(super) fn send(&self, to: NodeName, messages: Vec<Message>) {
        let mut state = self.shared.lock();
        if let Some(lane) = state.lanes.get_mut(&to) {
            lane.held.push_back((Instant::now() + lane.delay, messages));
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
                while let Some((due, _)) = lane.held.front() {
                    if *due > now {
                        next = Some(next.map_or(*due, |next| next.min(*due)));
                        break;
                    }
                    if let Some((_, messages)) = lane.held.pop_front() {
                        lane.peer.push(messages);
                    }
                }
            }
            let patience = next.map_or(Duration::from_secs(1), |next| next - now);
            let waited = self.changed.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
