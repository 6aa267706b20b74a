//! The pure protocol of Fermata.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
