//! What tests of the engine have in common: clients that note what they see.
//!
//! **Problem.** The engine runs on simulated stores under exact schedules, and on real servers that
//! are stopped and killed. What it promises is the same, and so has to be what tells whether it was
//! kept.
//!
//! **Idea.** A [`Client`](clients::Client) is one of MUSIC's, driven step by step; it reaches nodes
//! by whatever [`Network`](clients::Network) the test has, and writes all that it asks and is told
//! into one [`History`](history::History). [`fermata_check::sections`] says what is wrong with
//! that, as it does of the native engine's clients in the simulator.

pub mod clients;
pub mod history;

pub use fermata_check::sections::{Heard, Promise, Violation, What};
