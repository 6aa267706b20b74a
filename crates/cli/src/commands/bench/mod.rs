//! `fermata bench`: load on a running cluster, and what idle clients cost the others.

pub(crate) mod crowd;
pub(crate) mod load;
mod loops;
mod recorded;
mod registers;
