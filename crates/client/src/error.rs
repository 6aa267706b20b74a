//! What can go wrong, and what is known of it afterwards.

use fermata_api::condition::not_changed;
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

    /// The error of a change under a condition, whose section this is of.
    pub(crate) fn of_change(self, wrote: bool) -> Error {
        match self {
            Error::Refused(refusal) => Error::Refused(not_changed(refusal, wrote)),
            other => other,
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
                // Nor does it know that nobody should try again before they have looked.
                let sentence = refusal.detail.replace(". Try again", "");
                let sentence = sentence.replace("; try again", "");
                let sentence = sentence.trim_end_matches('.');
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_done_it_is_not_told_to_do_it_again() {
        let said = |refusal| Error::Refused(refusal).to_string();
        for detail in [
            "The key is locked: its queue shows them. Try again.",
            "The key is locked: its queue shows them. Try again (asked one: no answer).",
            "The queue is full; try again.",
        ] {
            assert_eq!(said(Refusal::definite(Code::Unavailable, detail)), detail);
            let unknown = said(Refusal::unknown(Code::Unavailable, detail));
            assert!(unknown.contains("may have taken effect"), "{unknown}");
            assert!(!unknown.to_lowercase().contains("try again"), "{unknown}");
            assert!(
                !unknown.contains(". (") && !unknown.contains(".."),
                "{unknown}"
            );
        }
    }
}
