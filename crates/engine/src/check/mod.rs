//! What tests of the engine have in common: clients that note what they see, and the judge of it.
//!
//! **Problem.** The engine runs on simulated stores under exact schedules, and on real servers that
//! are stopped and killed. What it promises is the same, and so has to be what tells whether it was
//! kept.
//!
//! **Idea.** A [`Client`](clients::Client) is one of MUSIC's, driven step by step; it reaches nodes
//! by whatever [`Network`](clients::Network) the test has, and writes all that it asks and is told
//! into one [`History`](history::History). [`judge::check`] says what is wrong with that, from the
//! clients' side alone: it knows nothing of engines and stores.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`clients`] | clients, step by step |
//! | [`history`] | what they saw |
//! | [`judge`] | what it must be like: Entry Consistency under Failures (MUSIC §III) |

pub mod clients;
pub mod history;
pub mod judge;
