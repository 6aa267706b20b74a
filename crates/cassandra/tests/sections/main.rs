//! Critical sections by the whole engine on real servers, which are stopped and killed meanwhile.
//!
//! Three nodes of Cassandra, each a data center of its own, and three of `ZooKeeper` serve all
//! tests of this program; three engines, one per site, are made anew for each. What the clients saw
//! is judged as in the engine's tests on simulated stores, by [`fermata_engine::check`].
//!
//! | file | what it is |
//! | --- | --- |
//! | `servers` | the servers, whose turn it is, the stores |
//! | `barriers` | stores whose calls can be made to wait before they are sent |
//! | `sites` | three engines, and the clients' way to them |
//! | `literal` | MUSIC's own layout, step by step |
//! | `calm` | faults whose schedules stop no server: F1, M2, M4, M8, M9, M10 |
//! | `partial` | a write that one replica has: M1, M3, M5 |
//! | `stale` | a replica that has missed updates: M6, M7 |
//! | `random` | clients that do everything, on servers that stall, die and come back |
//! | `smoke` | every operation once |
//!
//! Each of F1 and M1 to M10 is forced on these servers, on MUSIC's layout, where it must show, and
//! on ours, where it must not. M7 is tried on eight keys at once, since what a replica gets
//! back of the updates that it has missed is not the same each time. What needs messages that
//! arrive in an order of our choice (F4 within one node, F7, F19, G5, G24) is left to the
//! simulator: `crates/engine/tests/sim`.

mod barriers;
mod calm;
#[path = "../common/mod.rs"]
mod common;
mod literal;
#[path = "../common/own.rs"]
mod own;
mod partial;
mod random;
mod servers;
mod sites;
mod smoke;
mod stale;
