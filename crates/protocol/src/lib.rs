//! The pure protocol of Fermata: everything that must be right, and nothing else.
//!
//! There is no clock, socket, file, thread or source of chance in this crate, and the compiler sees
//! to it: it is `no_std`. A node is a plain struct that is stepped:
//!
//! ```text
//! let mut node = Node::recover(config, node_id, &memory, now, seed)?;
//! loop {
//!     let input = wait_for(message, request, node.wake());
//!     let mut effects = Effects::new();
//!     node.step(now(), input, &memory, &mut effects);
//!     let batch = memory.append(effects.writes); // one atomic batch, visible at once
//!     for output in effects.outputs {
//!         match output.when() {
//!             When::Now => release(output),
//!             When::Durable => after_flush_of(batch, output),
//!         }
//!     }
//! }
//! ```
//!
//! What a driver owes: it steps the node with one input at a time; it appends the writes of a step
//! before it steps again; it releases outputs in order, those marked [`When::Durable`] only after
//! everything appended so far is durable; messages that a node sends to itself come back as inputs
//! under the same rule. Messages to others may be lost, repeated, delayed and reordered at will.
//!
//! Names such as F1, M3 or G5 are faults and the rules that cure them: `docs/faults.md`.
//!
//! Reading order: [`base`] (nouns), [`io`] and [`message`] (the vocabulary), [`request`] (what
//! clients ask), [`paxos`] (one replicated log), [`register`] (quorum registers), [`segment`] (what
//! one log's state is), [`lock`] (queues, grants, leases), [`ledger`] (transactions),
//! [`coordinator`] (one client request), [`node`] (where the rooms meet), [`client`] (the session
//! of a client), [`wire`] (bytes).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod base;
pub mod catalogue;
pub mod client;
pub mod command;
pub mod convert;
pub mod coordinator;
pub mod group;
pub mod io;
pub mod ledger;
pub mod lock;
pub mod message;
pub mod meta;
pub mod node;
pub mod paxos;
pub mod policy;
pub mod records;
pub mod refusal;
pub mod register;
pub mod registry;
pub mod request;
pub mod ring;
pub mod segment;
pub mod sessions;
pub mod settings;
pub mod wire;

pub use io::{CallId, Effects, Env, Input, Memory, Output, Void, When, Write};
pub use message::{Envelope, Message};
pub use node::Node;
pub use request::{Code, Operation, Refusal, Reply, Request};
