//! The shell of one Fermata node: everything that the protocol must not know.
//!
//! **Problem.** `fermata_protocol` decides; somebody has to read clocks, sockets and disks for it,
//! and speak to clients. Nothing here decides safety: what the shell owes the protocol is the short
//! contract at the top of that crate.
//!
//! **Rooms.** [`config`] (what the operator says), [`identity`] (whose directory this is),
//! [`driver`] (one thread that owns node and store, with the decisions of [`fermata_driver`]),
//! [`transport`] (frames between nodes, emulated delays of [`wan`]), [`listen`] (clients'
//! connections, within [`descriptors`]), [`access`] (who may do what), [`porter`] (admission of
//! their requests), [`grpc`] and
//! [`rest`] (the faces), [`music`] (MUSIC's own REST interface), [`metrics`], [`logs`]; and
//! [`engine`], which stands in for driver, disk and transport where the same faces serve an engine
//! over stores that others run.
//!
//! ```text
//!  gRPC, REST ─► porter ─► mailbox ─► driver (Node + Store) ─► transport ─► peers
//!      ▲                    ▲          │        └─► flush thread
//!      └──── answers ───────┼──────────┘
//!               peers' frames, flushes
//! ```
//!
//! **Threads.** The driver, the flush thread, the checkpoint thread, the delay thread where delays
//! are emulated, and tokio's for all sockets. They share the mailbox and the outgoing queues,
//! nothing else.

mod access;
mod clock;
mod closings;
pub mod config;
mod descriptors;
mod driver;
mod engine;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod grpc;
mod hosted;
mod identity;
pub mod join;
mod listen;
pub mod local;
mod logs;
mod mailbox;
mod memory;
mod metrics;
mod music;
mod porter;
mod process;
mod rest;
mod roster;
mod serve;
mod stream;
mod transport;
pub mod wan;
mod worker;

pub use access::{RECOVERY_LASTS, recover};
pub use clock::random;
pub use config::{ClientsConfig, ClusterConfig, EngineConfig, LogFormat, NodeConfig, ServerConfig};
pub use descriptors::raise_open_files;
pub use logs::{LogLevel, Logs};
pub use serve::{Faces, Listeners, Medium, StartError, run, run_engine, run_engine_on, run_on};
