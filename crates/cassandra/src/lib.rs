//! Lock rows and data cells in Cassandra, as its operators run it: nothing is installed on it.
//!
//! **Problem.** MUSIC keeps its locks and its values in an unmodified Cassandra (§VI). Its layout,
//! a row per lock ref, has faults on real servers (F11): local peeks of a queue of rows are no
//! prefix of its history, a plain write beside conditional ones resurrects rows, deletes forget
//! stamps.
//!
//! **Idea.** Two tables, and three kinds of statement that are known to mix well:
//!
//! ```text
//! lock (k blob primary key, v bigint, s blob)   conditional updates only: one row is one register
//! data (k blob primary key, c blob, e blob)     plain writes only, stamped; the highest stamp wins
//! k = keyspace, 4 bytes, big-endian; then the key
//! ```
//!
//! The whole lock queue of a key is one opaque state `s` with a version `v`, so that each replica's
//! row is *some* state of the key's history, old perhaps, never a mixture. Critical writes bring
//! their scalar as their stamp, so that their order is the sections' and not the clocks'.
//!
//! **Invariants.**
//! * C1. Nothing but S1 and S2 ([`statements`]) ever writes the lock table: a plain write, a time
//!   to live or a delete would hide later updates, or let an old row come back.
//! * C2. Nothing is deleted in either table: a delete is a value that says so (`fermata_engine`,
//!   cells), since Cassandra forgets the stamp of what it deletes.
//! * C3. `SERIAL` is said in every conditional statement. Drivers say `LOCAL_SERIAL` if not told,
//!   and then each data center decides for itself.
//! * C4. No statement is repeated by the driver, and none is sent to two nodes at once: the caller
//!   decides what an unknown outcome means.
//! * C5. An outcome is called refused only if the statement was never sent, or was refused before
//!   it did anything ([`driver::store_error`]).
//!
//! **What the servers must be like** is checked at every start, on each node ([`checks`]); how sure
//! an acknowledged update is then depends on what was found ([`levels`]).
//!
//! The feature `paper` adds MUSIC's own layout, to measure and to test against: module `paper`.

mod checks;
mod claim;
mod data;
mod driver;
mod levels;
mod lock;
#[cfg(feature = "paper")]
pub mod paper;
mod poll;
mod probe;
mod schema;
mod settings;
mod statements;
mod store;
mod unresolved;

pub use settings::{Settings, Timeouts};
pub use store::CassandraStore;
