//! End to end: the one binary, as people use it, on real processes, sockets and disks.

mod access;
mod bench;
mod clients;
mod closed;
#[path = "../common/mod.rs"]
mod common;
mod conditional;
mod dev;
mod keyspaces;
mod lock;
mod memory;
mod music;
mod newcomers;
#[path = "../common/ports.rs"]
mod ports;
#[cfg(feature = "python")]
mod python;
mod quorum;
mod ring;
mod ring_wrong;
mod settings;
mod status;
mod support;
mod tls;
mod txn;
mod usage;
