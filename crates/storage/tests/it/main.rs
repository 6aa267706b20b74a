//! Tests of the store through its public interface.

mod ahead;
mod common;
mod damage;
mod model;
mod spares;
mod store;
mod table;
