//! Compare-and-set: what a change of a key may depend on, the same on every face.
//!
//! A change under a condition is a section of its own: the entry brings the key's value, which is
//! compared, and a put leaves with the section; where the condition does not hold, nothing is put.
//! Its refusals are told to somebody who knows of no section.
//!
//! A value's [`Version`] is a digest of its bytes, and is stored nowhere: whatever writes the same
//! bytes again, as a synch does under a higher tag, keeps it. So two values that are equal have one
//! version, also where there was another between them
//! (`docs/decisions/2026-11-24-compare-and-set.md`).

use crate::secret::{bits, hash};
use bytes::Bytes;
use fermata_protocol::{Code, Refusal};
use std::fmt;

/// The first half of the SHA-256 of a value's bytes. It is written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u128);

impl Version {
    /// The version of a value.
    pub fn of(value: &[u8]) -> Version {
        Version(hash(value))
    }

    /// From text; none of anything but 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Version> {
        bits(text).map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What must be so of a key for it to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has no value.
    Absent,
    /// It has a value.
    Present,
    /// It has this value.
    Value(Bytes),
    /// It has a value of this version.
    Version(Version),
}

impl Condition {
    /// Whether it is so.
    pub fn holds(&self, value: Option<&Bytes>) -> bool {
        match self {
            Condition::Absent => value.is_none(),
            Condition::Present => value.is_some(),
            Condition::Value(wanted) => value == Some(wanted),
            Condition::Version(wanted) => value.map(|value| Version::of(value)) == Some(*wanted),
        }
    }
}

/// What came of a change under a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is done. The version that the key has by it; none, if it was deleted.
    Done(Option<Version>),
    /// The condition did not hold, and nothing was changed. What the key has.
    Failed(Option<Bytes>),
}

/// The refusal of a change whose section was refused; `wrote`, if that may have been its put.
pub fn not_changed(refusal: Refusal, wrote: bool) -> Refusal {
    match refusal.code {
        Code::WrongPurpose => Refusal::definite(
            Code::WrongPurpose,
            "keys of a register keyspace have no locks, and so no section in which to compare: \
             use a section keyspace, or write without a condition",
        ),
        Code::NoLongerHolder | Code::NotHolder | Code::Forgotten if wrote => {
            let lost = "the section of this change was ended before its put was confirmed";
            match refusal.may_have_taken_effect {
                true => {
                    let detail = format!("{lost}; it may have taken effect: look at the key");
                    Refusal::unknown(Code::Unavailable, detail)
                }
                false => {
                    let detail = format!("{lost}; nothing was changed: try again");
                    Refusal::definite(Code::Unavailable, detail)
                }
            }
        }
        _ if wrote => refusal,
        code => {
            let why = refusal.detail.trim_end_matches('.');
            Refusal::definite(code, format!("{why}; nothing was changed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_digest_of_the_bytes() {
        // printf abc | sha256sum
        let version = Version::of(b"abc");
        assert_eq!(version.to_string(), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(Version::from_hex(&version.to_string()), Some(version));
        for wrong in ["", "ba7816bf", "\"ba7816bf8f01cfea414140de5dae222\""] {
            assert_eq!(Version::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_condition_holds_of_what_it_names_alone() {
        let (one, two) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
        let cases = [
            (Condition::Absent, [true, false, false]),
            (Condition::Present, [false, true, true]),
            (Condition::Value(one.clone()), [false, true, false]),
            (Condition::Version(Version::of(b"2")), [false, false, true]),
        ];
        for (condition, expected) in cases {
            let held = [None, Some(&one), Some(&two)].map(|value| condition.holds(value));
            assert_eq!(held, expected, "{condition:?}");
        }
    }

    #[test]
    fn a_refusal_tells_of_no_section_and_keeps_its_doubt() {
        let doubt = Refusal::unknown(Code::Unavailable, "No answer.");
        let told = not_changed(doubt.clone(), false);
        assert!(!told.may_have_taken_effect, "an entry puts nothing");
        assert_eq!(told.detail, "No answer; nothing was changed");
        assert_eq!(not_changed(doubt.clone(), true), doubt);
        for doubt in [true, false] {
            let past = Refusal {
                may_have_taken_effect: doubt,
                ..Refusal::definite(Code::NoLongerHolder, "the ref is past")
            };
            let told = not_changed(past, true);
            let code = (told.code, told.may_have_taken_effect);
            assert_eq!(code, (Code::Unavailable, doubt), "{told:?}");
        }
    }
}
