//! Structures that have grown with a format: what came later follows what was there before, and is
//! left out in logs of the former format, whose members know nothing of it.

use core::fmt;
use core::marker::PhantomData;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// Encodes what was there before, and what came later if there is room for it.
pub(crate) fn serialize<A: Serialize, B: Serialize, S: Serializer>(
    before: &A,
    later: Option<&B>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match later {
        Some(later) => (before, later).serialize(to),
        None => before.serialize(to),
    }
}

/// Decodes both; whether there is the later part is told from the former.
pub(crate) fn deserialize<'de, A, B, D>(from: D, grown: fn(&A) -> bool) -> Result<(A, B), D::Error>
where
    A: Deserialize<'de>,
    B: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    let both = Both {
        grown,
        of: PhantomData,
    };
    from.deserialize_tuple(2, both)
}

struct Both<A, B> {
    grown: fn(&A) -> bool,
    of: PhantomData<B>,
}

impl<'de, A: Deserialize<'de>, B: Deserialize<'de> + Default> Visitor<'de> for Both<A, B> {
    type Value = (A, B);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a structure of this format or the one before")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(A, B), S::Error> {
        let missing = || S::Error::custom("the structure ends early");
        let before = seq.next_element()?.ok_or_else(missing)?;
        let later = match (self.grown)(&before) {
            true => seq.next_element()?.ok_or_else(missing)?,
            false => B::default(),
        };
        Ok((before, later))
    }
}
