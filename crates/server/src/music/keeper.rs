//! Keeping a node's locks: renewing those that calls speak of, leaving the others.

use super::locks::{Lock, Locks, Place, locked};
use fermata_protocol::Reply;
use fermata_protocol::request::{Operation, RefState};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often locks are renewed in their keyspace's lease.
const RENEWALS: u32 = 3;
/// The shortest and the longest time between two renewals.
const RENEWAL: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];
/// Renewals at a time.
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
        let mut places = Vec::new();
        for lock in live {
            let both = [Some(lock.place()), lock.promotion()];
            for place in both.into_iter().flatten().filter(|place| !place.resuming) {
                places.push((lock.clone(), place));
            }
        }
        for part in places.chunks(RENEWED_AT_ONCE) {
            let mut renewals = JoinSet::new();
            for (lock, place) in part.iter().cloned() {
                let locks = self.clone();
                renewals.spawn(async move { locks.renew_one(&lock, place).await });
            }
            renewals.join_all().await;
        }
    }

    /// Renews one ref: each is of a session of its own, which alone may.
    async fn renew_one(&self, lock: &Lock, place: Place) {
        let renew = Operation::Renew {
            held: vec![place.held.clone()],
        };
        let number = self.store.gate.next_number();
        let Ok(Reply::Renewed { states }) = self.store.ask(place.session, number, renew).await
        else {
            return;
        };
        // A place that has changed meanwhile is asked for next time.
        if states.first() == Some(&RefState::Gone) && lock.place().held == place.held {
            self.forget(lock);
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
