//! The deterministic simulator: whole nodes, the real log format on a simulated disk, real client
//! code, and one seed.
//!
//! **Problem.** What breaks a replicated system is an order of events that nobody thought of: the
//! put that is stored at two of three replicas while the holder is wrongly taken for dead, the
//! message that arrives a minute late, the disk that forgets. Such orders are too rare to wait for
//! and cannot be repeated once seen.
//!
//! **Idea.** The protocol crate names no clock, socket, file or thread, so a world can be made in
//! which all of them are played by one loop and one random number generator. The same seed gives
//! the same run, byte for byte; a seed that fails is run again with a readable trace. [`world`] is
//! the loop, and each [`machine`] in it runs the server's own driver; [`network`], [`link`],
//! [`disk`] and [`clock`] say what may go wrong, [`nemesis`] makes it go
//! wrong, [`twins`] goes beyond what any of it promises, [`workload`] is what clients do,
//! [`history`] what they saw, [`checkers`] what must hold.
//!
//! Three ways to drive a world: [`random`] seeds in two phases (safety under faults, then all is
//! healed and everybody must come to an end), [`scenarios`] that play one known schedule each, and
//! [`rtt`], which measures exact latencies in virtual time. [`planted`] proves that the checkers
//! see: each wrong rule that can be switched on is caught within a stated number of seeds.

pub mod catalogue;
pub mod checkers;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod dice;
pub mod disk;
pub mod history;
pub mod idle;
pub mod kind;
pub mod ledger;
pub mod link;
pub mod machine;
pub mod model;
pub mod monitor;
pub mod nemesis;
pub mod network;
pub mod pause;
pub mod planted;
pub mod profile;
pub mod random;
pub mod rtt;
pub mod scenarios;
pub mod show;
pub mod trace;
pub mod twins;
pub mod workload;
pub mod world;

mod command;

pub use command::{Failure, Listing, Options, Progress, Report, list, run};
