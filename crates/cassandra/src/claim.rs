//! Whose locks go with the values of a keyspace.
//!
//! **Problem.** Values that two engines write, each under locks of its own, are under no lock at
//! all: one line of a configuration that names another engine, or another ensemble of `ZooKeeper`,
//! and two clients hold the same key.
//!
//! **Idea.** The first server writes into the lock table where the locks are, in a row that belongs
//! to no key; a server that finds another name there does not start.

use crate::driver::What;
use crate::store::CassandraStore;
use bytes::Bytes;
use std::time::{Duration, Instant};

/// The row. Keys of keyspaces are at least four bytes long.
const OWNER: &[u8] = b"\0\0";

const CLAIM: What = What::Writes("the note of where the locks are");

impl CassandraStore {
    /// Notes that the locks of these values are in `locks`, or finds it noted.
    ///
    /// # Errors
    /// One sentence: they are somewhere else, or no quorum answers.
    pub async fn claim(&self, locks: &str) -> Result<(), String> {
        let inner = &self.inner;
        let name = Bytes::copy_from_slice(locks.as_bytes());
        let until = Instant::now() + inner.patience;
        loop {
            let noted = match inner.run(CLAIM, &inner.statements.resolve, (OWNER,)).await {
                Ok(Some(mut row)) => row.blob("s"),
                Ok(None) => {
                    // Whoever was first is read in the next round.
                    let insert = &inner.statements.insert;
                    let _ = inner.run(CLAIM, insert, (OWNER, &name)).await;
                    None
                }
                Err(error) if Instant::now() > until => return Err(error.to_string()),
                Err(_) => None,
            };
            match noted {
                Some(noted) if noted == name => return Ok(()),
                Some(noted) => {
                    return Err(format!(
                        "the locks of the values in keyspace {} are in {}, not in {locks}: two \
                         places for them would let two clients hold one key; name the engine and \
                         the servers that the keyspace was begun with, or another keyspace",
                        inner.keyspace,
                        String::from_utf8_lossy(&noted)
                    ));
                }
                None if Instant::now() > until => {
                    return Err("nobody has answered where the locks are".to_owned());
                }
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
