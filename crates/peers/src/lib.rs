//! Clusters of Cassandra, ZooKeeper and etcd on this machine: real servers, for tests of what runs
//! on them and for measurements beside them.
//!
//! **Problem.** The paper's MUSIC runs on Cassandra and is compared with ZooKeeper and etcd. To
//! repeat that one needs three systems, each with its own way to be installed, configured, waited
//! for and ended; and a test that leaves a JVM behind spoils the next one.
//!
//! **Idea.** A [`Spec`] says what is wanted, [`Cluster::start`] returns when it serves. The
//! programs come through Maven and Go, at pinned versions, into a folder of the workspace
//! ([`install`]). Each node has an address of its own on the loopback (127.0.0.1, 127.0.0.2, …) and
//! the system's usual ports, so clusters on different base addresses run side by side. Instead of
//! the loopback, nodes may live in network namespaces, between which somebody else emulates a
//! wide-area network.
//!
//! **Invariants.**
//!
//! 1. A cluster that a process owns does not outlive it: [`Cluster`]'s drop kills all nodes and
//!    removes their files, and a guard process does so where the owner was killed itself. This
//!    holds for nodes that others have started again, too.
//! 2. A signal reaches a node of ours or nobody: a process is known by its number and its time of
//!    start, and addressed by a file descriptor, so a number in use again is never taken for it.
//! 3. What starts, serves: `start` returns when every node answers and counts all the others in.
//! 4. All three flush to disk before they acknowledge a write, unless the spec says otherwise.
//! 5. Two processes that install at the same time do it once, and nobody sees half of it.
//!
//! Only Linux is supported: processes are looked up below `/proc`.

mod cassandra;
mod cluster;
mod cql;
mod etcd;
mod guard;
mod install;
mod net;
mod process;
mod spec;
mod trio;
mod zookeeper;

pub use cluster::{Cluster, Node};
pub use cql::{Consistency, Cql, Kind, Rows};
pub use install::{home, install, missing, testable};
pub use net::enter;
pub use process::State;
pub use spec::{Commitlog, NODES_MAX, Paxos, Purging, Spec, System};
pub use trio::{EXPIRY_MS, TRIOS, Trios, trio};
