//! What can go wrong, and what is known of it afterwards.

use fermata_protocol::{Code, Refusal};
use std::fmt;

/// Why an operation did not end well. `Display` is one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A node refused it, or no node answered in time.
    Refused(Refusal),
    /// The options make no sense; nothing was done.
    Options(String),
    /// The client's background task has ended: its runtime was shut down. Operations in flight may
    /// have taken effect.
    Closed,
}

impl Error {
    /// False promises that the operation changed nothing and never will; true: the outcome is
    /// unknown.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.may_have_taken_effect,
            Error::Options(_) => false,
            Error::Closed => true,
        }
    }

    /// The stable code of every face.
    pub fn code(&self) -> Code {
        match self {
            Error::Refused(refusal) => refusal.code,
            Error::Options(_) => Code::BadRequest,
            Error::Closed => Code::Unavailable,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Most sentences say so themselves; one of another attempt cannot.
            Error::Refused(refusal)
                if refusal.may_have_taken_effect
                    && !refusal.detail.contains("may have taken effect") =>
            {
                let sentence = refusal.detail.trim_end_matches('.');
                write!(f, "{sentence} (an attempt may have taken effect).")
            }
            Error::Refused(refusal) => f.write_str(&refusal.detail),
            Error::Options(what) => f.write_str(what),
            Error::Closed => f.write_str(
                "The client was shut down while the operation was open; it may have taken effect.",
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}
