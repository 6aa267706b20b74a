//! `fermata bench rtt`: exact latencies in virtual time.

use crate::args::Global;
use crate::exit::{Exit, Failure};

/// Runs it.
pub(crate) fn run(_global: &Global, _profile: Option<String>) -> Result<(), Failure> {
    Err(Failure::new(Exit::Internal, "not yet"))
}
