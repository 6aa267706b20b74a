//! The engines over Cassandra and `ZooKeeper`, from the outside: the one binary and the client
//! library as people use them, on real servers. What the native engine is held to, they are.

mod access;
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../../../client/tests/checks/mod.rs"]
mod checks;
mod client;
mod commands;
mod demo;
#[path = "../../../server/tests/music/rest.rs"]
mod http;
mod music;
mod nodes;
#[path = "../common/ports.rs"]
mod ports;
mod refusals;
mod tls;

use client::Cluster;
