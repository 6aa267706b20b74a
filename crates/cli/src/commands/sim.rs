//! `fermata sim`: the deterministic simulator.

use crate::args::{Global, SimArgs};
use crate::exit::{Exit, Failure};

/// Runs it.
pub(crate) fn run(_global: &Global, _args: SimArgs) -> Result<u8, Failure> {
    Err(Failure::new(Exit::Internal, "not yet"))
}
