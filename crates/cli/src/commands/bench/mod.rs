//! `fermata bench`: exact latencies in virtual time, and load on a running cluster.

pub(crate) mod load;
pub(crate) mod rtt;
