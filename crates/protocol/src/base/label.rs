//! What people call whoever waits or holds.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short text that a client gives with an enter, for people who look at a queue: which program on
/// which machine. It lies in the segment's state with its ref, and so is small and without a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    len: u8,
    bytes: [u8; Label::MAX],
}

impl Label {
    /// No label.
    pub const NONE: Label = Label {
        len: 0,
        bytes: [0; Label::MAX],
    };

    /// Bytes of UTF-8.
    pub const MAX: usize = 64;

    /// A label; none where the text is longer than [`Label::MAX`] bytes or has control characters.
    pub fn new(text: &str) -> Option<Label> {
        if text.len() > Label::MAX || text.chars().any(char::is_control) {
            return None;
        }
        let mut label = Label::NONE;
        label.bytes[..text.len()].copy_from_slice(text.as_bytes());
        label.len = text.len() as u8;
        Some(label)
    }

    /// The text, empty where there is none.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Default for Label {
    fn default() -> Label {
        Label::NONE
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Label, D::Error> {
        let text = String::deserialize(from)?;
        Label::new(&text).ok_or_else(|| serde::de::Error::custom("no label"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use alloc::string::ToString;

    #[test]
    fn a_label_is_short_and_one_line() {
        let longest = "ü".repeat(Label::MAX / 2);
        for text in ["", "ann@host:17", &longest] {
            let label = Label::new(text).unwrap();
            assert_eq!(label.as_str(), text);
            assert_eq!(wire::decode(&wire::encode(&label)), Ok(label));
        }
        for text in [longest + "x", "two\nlines".to_string()] {
            assert_eq!(Label::new(&text), None);
            assert!(wire::decode::<Label>(&wire::encode(&text)).is_err());
        }
    }
}
