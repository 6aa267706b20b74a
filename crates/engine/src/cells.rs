//! The two cells of a key (F6: critical and eventual), as bytes that a store keeps.
//!
//! A delete is a value like any other: a first byte that says so. Where a store deletes, it forgets
//! the scalar, and an older eventual value would show through (F11).

use bytes::{BufMut, Bytes, BytesMut};
use fermata_protocol::base::EventualTag;
use fermata_protocol::wire;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// The critical cell: what sections write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Critical {
    /// Where the value stands among eventual values: that of the section that put it; or, where a
    /// synch has adopted an eventual value, that value's tag, for a section that wrote nothing must
    /// not outrank anything (G24).
    pub origin: EventualTag,
    /// The value; none: deleted.
    pub value: Option<Bytes>,
}

/// The eventual cell: what eventual puts write. The highest tag by clock wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eventual {
    /// Where it stands: how many commands of the key its acceptor knew, its clock, its node.
    pub tag: EventualTag,
    /// The value; none: deleted.
    pub value: Option<Bytes>,
}

/// Bytes that are no cell: another program wrote the table, or another version of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Critical {
    /// The bytes to keep.
    pub fn encode(&self) -> Bytes {
        encode(&self.origin, self.value.as_ref())
    }

    /// The cell that `bytes` are.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &Bytes) -> Result<Critical, Malformed> {
        let (origin, value) = decode(bytes)?;
        Ok(Critical { origin, value })
    }
}

impl Eventual {
    /// The bytes to keep.
    pub fn encode(&self) -> Bytes {
        encode(&self.tag, self.value.as_ref())
    }

    /// The cell that `bytes` are.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &Bytes) -> Result<Eventual, Malformed> {
        let (tag, value) = decode(bytes)?;
        Ok(Eventual { tag, value })
    }
}

/// Kind, length of the tag, tag, value.
fn encode(tag: &EventualTag, value: Option<&Bytes>) -> Bytes {
    let tag = wire::encode(tag);
    let mut bytes = BytesMut::with_capacity(2 + tag.len() + value.map_or(0, Bytes::len));
    bytes.put_u8(if value.is_some() { PRESENT } else { ABSENT });
    bytes.put_u8(tag.len() as u8);
    bytes.put_slice(&tag);
    if let Some(value) = value {
        bytes.put_slice(value);
    }
    bytes.freeze()
}

fn decode(bytes: &Bytes) -> Result<(EventualTag, Option<Bytes>), Malformed> {
    let [kind, length, rest @ ..] = &bytes[..] else {
        return Err(Malformed);
    };
    let length = usize::from(*length);
    let tag = rest.get(..length).ok_or(Malformed)?;
    let tag = wire::decode(tag).map_err(|_| Malformed)?;
    let value = bytes.slice(2 + length..);
    match *kind {
        PRESENT => Ok((tag, Some(value))),
        ABSENT if value.is_empty() => Ok((tag, None)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::LockRef;

    #[test]
    fn cells_come_back() {
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"\0v"))] {
            let origin = EventualTag::of_section(LockRef(1 << 40));
            let cell = Critical { origin, value };
            assert_eq!(Critical::decode(&cell.encode()), Ok(cell));
        }
    }

    #[test]
    fn what_is_no_cell_is_not_taken_for_one() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x02\x00",
            b"\x00\x01\x00x",
            b"\x01\xff\x00",
        ] {
            assert_eq!(
                Critical::decode(&Bytes::from_static(bytes)),
                Err(Malformed),
                "{bytes:?}"
            );
        }
    }
}
