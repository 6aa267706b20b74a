//! Waiting for a row to change: one watch per key and process, however many wait.
//!
//! **Idea.** Whoever waits first for a key starts a task that arms a data watch, by an `exists`
//! that also tells the version (so no update falls between the look and the watch, and a node that
//! is not there yet can be watched too). Everybody else joins. The watch fires once, wakes all, and
//! is gone; who goes on waiting arms the next one with the next look.
//!
//! **Invariants.**
//!
//! 1. A waiter ends if the row had another version than it saw when the watch was armed, when the
//!    watch fires, when the session ends (its watches die with it), and when the task ends for any
//!    other reason. So no change is slept through, and waking means only "look again".
//! 2. No watch is left behind: when the last waiter goes, the task takes the watch off the server
//!    and itself off the table.
//! 3. A waiter that saw a newer row than the watch's server (by a read from the leader) is not
//!    woken by that server's old one; it would spin until the server has caught up.

use crate::doubt::is_past;
use crate::session::{Link, Tried};
use fermata_protocol::base::KeyId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time;
use zookeeper_client::{Client, OneshotWatcher, SessionState, Stat, StateWatcher};

/// Pause before a watch that could not be armed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// Where a key's watch is.
#[derive(Clone, Copy)]
enum WatchState {
    /// Not armed yet.
    Arming,
    /// Armed when the row had this version; none: no row.
    Armed(Option<i32>),
    /// It fired, or was lost.
    Over,
}

type Table = HashMap<KeyId, Arc<watch::Sender<WatchState>>>;

/// The watches of a process.
pub(crate) struct Watches {
    link: Arc<Link>,
    /// The watches that somebody waits on, and where each tells its state.
    table: Mutex<Table>,
}

impl Watches {
    pub(crate) fn new(link: Arc<Link>) -> Arc<Watches> {
        Arc::new(Watches {
            link,
            table: Mutex::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends when the row may have another version than `seen`.
    pub(crate) async fn changed(self: &Arc<Watches>, key: &KeyId, path: &str, seen: Option<i32>) {
        let mut state = self.join(key, path);
        loop {
            match *state.borrow_and_update() {
                WatchState::Over => return,
                WatchState::Armed(version) if is_other(version, seen) => return,
                WatchState::Armed(_) | WatchState::Arming => {}
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Joins the key's watch, or starts one.
    fn join(self: &Arc<Watches>, key: &KeyId, path: &str) -> watch::Receiver<WatchState> {
        let mut table = self.table();
        if let Some(sender) = table.get(key) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(WatchState::Arming);
        let sender = Arc::new(sender);
        table.insert(key.clone(), sender.clone());
        drop(table);
        let task = Task {
            watches: self.clone(),
            key: key.clone(),
            sender,
        };
        tokio::spawn(task.run(path.to_owned()));
        receiver
    }
}

/// Whether a row of version `version` may not be the one that was seen, nor one before it.
fn is_other(version: Option<i32>, seen: Option<i32>) -> bool {
    match (version, seen) {
        (Some(_), Some(_)) => is_past(version, seen),
        (version, seen) => version.is_some() != seen.is_some(),
    }
}

/// What a node's stat says of its row: an empty node is none.
fn version_of(stat: &Stat) -> Option<i32> {
    (stat.data_length > 0).then_some(stat.version)
}

/// Holds one key's watch.
struct Task {
    watches: Arc<Watches>,
    key: KeyId,
    sender: Arc<watch::Sender<WatchState>>,
}

impl Task {
    async fn run(self, path: String) {
        loop {
            tokio::select! {
                () = self.hold(&path) => return,
                () = self.sender.closed() => {
                    let mut table = self.watches.table();
                    // Whoever joins does so under the lock.
                    if self.sender.receiver_count() == 0 {
                        table.remove(&self.key);
                        return;
                    }
                }
            }
        }
    }

    /// Arms the watch and ends when it fired or was lost. Dropped, it takes the watch away.
    async fn hold(&self, path: &str) {
        loop {
            let armed = match self.watches.link.client().await {
                Ok(client) => self.arm(&client, path).await,
                Err(_) => None,
            };
            let Some((watcher, mut state)) = armed else {
                time::sleep(AGAIN).await;
                continue;
            };
            tokio::select! {
                _ = watcher.changed() => return,
                // A session that was cut is replaced, not resumed, and its watches with it.
                _ = cut(&mut state) => return,
            }
        }
    }

    /// Arms the watch, and tells what the row was then.
    async fn arm(&self, client: &Client, path: &str) -> Option<(OneshotWatcher, StateWatcher)> {
        let state = client.state_watcher();
        let asked = client.check_and_watch_stat(path);
        match self.watches.link.within(asked).await {
            Tried::Done((stat, watcher)) => {
                let version = stat.as_ref().and_then(version_of);
                self.sender.send_replace(WatchState::Armed(version));
                Some((watcher, state))
            }
            Tried::Not(_) | Tried::Unknown(_) => None,
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // First off the table, so that nobody joins what is over and waits for it.
        let mut table = self.watches.table();
        let mine = |sender: &Arc<_>| Arc::ptr_eq(sender, &self.sender);
        if table.get(&self.key).is_some_and(mine) {
            table.remove(&self.key);
        }
        drop(table);
        self.sender.send_replace(WatchState::Over);
    }
}

/// Ends when the session has no connection.
async fn cut(state: &mut StateWatcher) {
    while state.peek_state() == SessionState::SyncConnected {
        state.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_row_wakes_nobody() {
        assert!(!is_other(Some(4), Some(5)));
        assert!(!is_other(Some(5), Some(5)));
        assert!(is_other(Some(6), Some(5)));
        assert!(is_other(Some(i32::MIN), Some(i32::MAX)));
        assert!(!is_other(None, None));
        assert!(is_other(Some(0), None));
        assert!(is_other(None, Some(0)));
    }
}
