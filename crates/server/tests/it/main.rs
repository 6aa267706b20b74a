//! Whole nodes in this process, from the outside.

mod access;
mod clients;
mod clock;
mod cluster;
mod coded;
mod common;
mod conditional;
mod cut;
mod disk;
mod engine;
mod faces;
mod hosted;
#[path = "../music/rest.rs"]
mod http;
mod large;
mod lists;
mod music;
mod quota;
mod rest;
mod start;
mod stop;
mod strangers;
mod tls;
mod waits;
mod wire;
