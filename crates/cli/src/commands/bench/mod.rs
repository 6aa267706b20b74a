//! `fermata bench`: exact latencies in virtual time, and load on a running cluster.

pub(crate) mod load;
mod loops;
mod recorded;
mod registers;
pub(crate) mod rtt;
