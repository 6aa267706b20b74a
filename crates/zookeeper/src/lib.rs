//! Lock rows on Apache `ZooKeeper`, 3.5 or later: one node per key, updated by compare-and-set.
//!
//! **Problem.** MUSIC's lock store (MUSIC §III, §VI) needs a compare-and-set per key, and
//! `ZooKeeper` has one; but its usual lock recipe ties a lock to a session, and so to a timeout
//! that no application chose: a client that pauses loses its ephemeral node, which looks like a
//! clean release. Its recipe also takes one node per waiting client, and its session ends at every
//! long loss of a connection.
//!
//! **Idea.** A key's whole lock queue is one opaque state in one persistent node, and the version
//! that `ZooKeeper` keeps of each node is the version of the row: `create` is the first update,
//! `setData` with a version every other. Nothing ephemeral and nothing sequential is used, so a
//! session is only a connection: when it breaks it is replaced, and nobody notices but by the time
//! it took. A section lives by the lease in its state (MUSIC §IV-B).
//!
//! **Layout.** `ROOT/KEYSPACE/KEY`: the keyspace in decimal, the key with all but `[A-Za-z0-9_-]`
//! as `%XX`, the empty key as `%` ([`path`]). Data is the state as it is. A node is never deleted:
//! its version would begin again. An empty node is no row; it stands where an update that was given
//! up had to be kept out (below). `ROOT/probe` is the start-up check's.
//!
//! **What each operation relies on** (the server answers one session's requests in order, and every
//! write, a refused one too, has its place in the leader's order):
//!
//! * *swap* is one write. A refusal does not tell the row, so the row is read along from the same
//!   server: the refusal has its place after the update that caused it, so that server has applied
//!   the update before it passes the refusal on. The caller's next try needs no round trip to the
//!   leader for it.
//! * *peek* reads what the session's server has, a prefix of the history; that of the next session
//!   may be shorter.
//! * *read* is a `sync` and a read, sent together. The leader answers a `sync` by itself, once all
//!   that it had proposed is decided. **A leader that was deposed and does not know yet may answer
//!   too**: for at most its `syncLimit`, a client whose server still follows it may be told a row
//!   that others have replaced. [`Reads::Quorum`] closes this: the `sync` becomes a write that
//!   changes nothing (a transaction with a check only), which no deposed leader can finish, for the
//!   price of a write.
//! * *changed* is one watch per key and process ([`watches`]).
//!
//! **Updates given up.** A connection that breaks leaves the outcome of its updates unknown, and
//! one that was sent may still be on its way: in a server's queue, or on another session's
//! connection. [`fermata_engine::LockStore::read`] promises that what is not in the row now never
//! will be. So an update that was sent and got no answer is remembered, and the next read of the
//! row looks whether the row is past the version that the update wants; if it is not, the read
//! writes the same state once more, by compare-and-set, and the row is. This is also right where
//! the read was answered by a deposed leader: that write cannot be. Where there is no node, an
//! empty one is made. The memory is this process's: a write that another process gave up may still
//! come, as if sent late, and the versions judge it.
//!
//! **Versions have 32 bits** in `ZooKeeper`, and go on with −2³¹ after 2³¹ − 1. They come out as 0
//! … 2³² − 1 and begin again; they are only ever compared for equality here, except that a row is
//! taken to be past a version if it is less than 2³¹ updates ahead of it. One version is poison: −1
//! means "any" in `setData`. So the update of version −2 is a transaction of two, which takes the
//! row to 0 and is judged by the first of them; nobody ever sees −1. A client that keeps a version
//! for 2³² updates of its row may be told that it is the present one: refs are in the state, with
//! 64 bits, and do not come back.
//!
//! **Departures from MUSIC.** The paper keeps its locks in Cassandra, a row per waiting client;
//! here a key is one node.

mod doubt;
pub mod path;
#[cfg(feature = "recipes")]
pub mod recipes;
mod session;
mod startup;
mod store;
mod watches;

pub use store::{Reads, STATE_LIMIT, Settings, ZookeeperStore};
