//! What a client does to a system while its members change.

use crate::music::system::Boxed;

/// What is done, and timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A linearizable read of a register.
    Read,
    /// A write of one.
    Write,
    /// A section that nobody else wants: entered, something put, left.
    Section,
    /// A put by somebody who stays in a section.
    Put,
}

impl Kind {
    /// In the order of reports.
    pub(crate) const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Section, Kind::Put];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Section => "section",
            Kind::Put => "holder's put",
        }
    }
}

/// A system, as one client of it sees it. It retries what its documentation says that a client
/// retries; an error is what is left.
pub(crate) trait Subject: Send + Sync + 'static {
    /// A linearizable read of a key.
    fn read<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Vec<u8>>>;

    /// A write of a key.
    fn write<'a>(&'a self, key: &'a str, value: Vec<u8>) -> Boxed<'a, ()>;

    /// Enters a lock, and leaves it.
    fn section<'a>(&'a self, key: &'a str) -> Boxed<'a, ()>;

    /// Enters a section and stays in it; none: the system has no writes that belong to a lock.
    fn hold<'a>(&'a self, _key: &'a str) -> Boxed<'a, Option<Box<dyn Held>>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether an operation that ended so may have taken effect.
    fn is_unknown(&self, _error: &anyhow::Error) -> bool {
        true
    }
}

/// A section that its client stays in.
pub(crate) trait Held: Send + Sync {
    /// A put of the section's key.
    fn put(&self, value: Vec<u8>) -> Boxed<'_, ()>;

    /// Leaves.
    fn leave(self: Box<Self>) -> Boxed<'static, ()>;
}
