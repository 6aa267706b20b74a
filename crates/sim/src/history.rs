//! What the clients of a world did and saw, and what it takes to judge that: which keyspaces there
//! are, and what the world has left whole.

use crate::catalogue::Catalogue;
pub use fermata_check::sections::{ClientId, Heard, Op, OpId, Section, SectionIx, Value, What};
use std::ops::{Deref, DerefMut};

/// The history of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    seen: fermata_check::sections::History,
    /// The keyspaces that it is about.
    pub catalogue: Catalogue,
    /// Interval clocks may leave their bound: writes of one round are not ordered then.
    pub false_intervals: bool,
    /// Primaries change by hand-over alone: the time that a section has lasted goes with them.
    pub calm: bool,
}

impl Deref for History {
    type Target = fermata_check::sections::History;

    fn deref(&self) -> &Self::Target {
        &self.seen
    }
}

impl DerefMut for History {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.seen
    }
}
