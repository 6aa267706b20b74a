//! Critical sections as a layer on stores that others run: MUSIC as its paper has it (§VI), with
//! the faults of that layout cured.
//!
//! **Problem.** Whoever runs Cassandra or `ZooKeeper` already wants sections there, not one more
//! store. Those offer less than the native engine's own: no log that a primary applies, no fence
//! that refuses a past holder's write, and answers that say neither yes nor no.
//!
//! **Idea.** [`store`] says how little is needed: compare-and-set of one opaque row per key, and
//! reads and writes at a quorum where the highest scalar wins. [`state`] is the row: the native
//! engine's own queue, of one key, applied by whoever swaps it in. The rest is this engine: it has
//! one update in flight per key and node, in which all that wait are combined; it grants a free key
//! with the update that enqueues; and it looks at the lock once more before it acknowledges a put.
//!
//! **The native engine's fence is missing.** A verified acknowledgement gives the same guarantee,
//! for one more trip ([`settings::Settings::verify`]).
//!
//! Reading order: [`store`], [`scalar`], [`cells`], [`state`], `keyed` (one row at one node),
//! `enter`, `firsts`, `critical`, `simple`, `catalogue`; [`service`] is what a server sees.

mod catalogue;
pub mod cells;
#[cfg(feature = "check")]
pub mod check;
mod critical;
mod engine;
mod enter;
mod firsts;
mod keyed;
mod pace;
pub mod planted;
pub mod scalar;
pub mod service;
pub mod settings;
mod simple;
pub mod state;
pub mod store;

pub use engine::Engine;
pub use planted::{Bug, Planted};
pub use service::{Answers, Boxed, Service};
pub use settings::Settings;
pub use store::{Cells, DataStore, LockStore, Page, Row, StoreError, Swapped, Version};
