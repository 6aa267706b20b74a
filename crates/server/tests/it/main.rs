//! Whole nodes in this process, from the outside.

mod cluster;
mod common;
mod rest;
mod wire;
