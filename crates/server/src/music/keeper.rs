//! Keeping a node's locks: renewing those that calls speak of, leaving the others.

use super::locks::{Lock, Locks, locked};
use fermata_protocol::Reply;
use fermata_protocol::request::{Held, Operation, RefState};
use std::sync::Arc;
use std::time::Duration;

/// How often locks are renewed in their keyspace's lease.
const RENEWALS: u32 = 3;
/// The shortest and the longest time between two renewals.
const RENEWAL: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];
/// Refs in one renewal.
const RENEWED_AT_ONCE: usize = 1_024;

impl Locks {
    fn snapshot(&self) -> Vec<Arc<Lock>> {
        locked(&self.kept).values().cloned().collect()
    }

    /// Renews what is spoken of, and leaves what is not.
    async fn renew_all(self: &Arc<Self>) {
        let (over, live): (Vec<_>, Vec<_>) =
            self.snapshot().into_iter().partition(|lock| lock.is_over());
        for lock in over {
            let locks = self.clone();
            // One that cannot be left now is left next time, or ends by its lease.
            tokio::spawn(async move { locks.release(&lock).await });
        }
        let mut held: Vec<(Arc<Lock>, Held)> = Vec::new();
        for lock in live {
            let places = [Some(lock.place()), lock.promotion()];
            for place in places.into_iter().flatten().filter(|place| !place.resuming) {
                held.push((lock.clone(), place.held));
            }
        }
        for part in held.chunks(RENEWED_AT_ONCE) {
            let renew = Operation::Renew {
                held: part.iter().map(|(_, held)| held.clone()).collect(),
            };
            let Ok(Reply::Renewed { states }) = self.store.gate.ask_self(renew).await else {
                continue;
            };
            for ((lock, held), state) in part.iter().zip(states) {
                // A place that has changed meanwhile is asked for next time.
                if state == RefState::Gone && lock.place().held == *held {
                    self.forget(lock);
                }
            }
        }
    }
}

/// Looks after the locks of this node until it stops.
pub(super) async fn keep_alive(locks: Arc<Locks>) {
    let gate = locks.store.gate.clone();
    let mut lease = None;
    loop {
        if lease.is_none() {
            lease = locks.store.lease().await;
        }
        // As long as it is not known, as if it were short.
        let every = lease.unwrap_or_default() / RENEWALS;
        let every = every.clamp(RENEWAL[0], RENEWAL[1]);
        tokio::select! {
            () = tokio::time::sleep(every) => locks.renew_all().await,
            () = gate.closed() => return,
        }
    }
}
