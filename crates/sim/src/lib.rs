//! The deterministic simulator: whole nodes, the real log format on a simulated disk, real client
//! code, and one seed.

pub mod checkers;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod dice;
pub mod disk;
pub mod history;
pub mod machine;
pub mod monitor;
pub mod nemesis;
pub mod network;
pub mod profile;
pub mod random;
pub mod show;
pub mod trace;
pub mod workload;
pub mod world;
