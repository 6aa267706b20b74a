//! Whole nodes in this process, from the outside.

mod clock;
mod cluster;
mod common;
mod disk;
mod engine;
mod faces;
mod large;
mod music;
mod music_better;
mod quota;
mod rest;
mod start;
mod stop;
mod wire;
