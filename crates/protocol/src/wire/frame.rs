//! Frames between nodes: a length, a version, an encoded [`Envelope`].
//!
//! ```text
//! u32 length of what follows | u16 version | envelope
//! ```
//!
//! A peer's frame is not trusted: neither its lengths, nor that it needs no more memory than it has
//! bytes. [`open`] makes nothing that is larger than [`memory_max`].

use super::{FORMATS, Malformed, VERSION, bounded, encode_onto};
use crate::message::{Envelope, Message};
use alloc::vec::Vec;

/// Bytes of the length field, which counts what follows it.
pub const LENGTH: usize = 4;
/// Bytes before the envelope.
pub const HEADER: usize = LENGTH + 2;

/// Messages of one envelope at most. A message takes a few hundred bytes of memory, however few it
/// takes encoded; so many take a few mebibytes, and are more than a node has to say to another at
/// once. A sender that has more says it in several envelopes.
pub const MESSAGES_MAX: usize = 16_384;

/// Bytes of memory, beside twice its length, that an envelope may take. Byte strings, which make
/// frames long, take what they are long; the rest of an honest envelope, its messages and the lists
/// in them, takes many times its encoding, but is a few mebibytes at most.
const STRUCTURE_MAX: usize = 32 << 20;

const _: () = assert!(MESSAGES_MAX * size_of::<Message>() <= STRUCTURE_MAX / 2);

/// Bytes of memory that the envelope of a frame of this length takes at most.
pub const fn memory_max(length: usize) -> usize {
    STRUCTURE_MAX.saturating_add(length.saturating_mul(2))
}

/// The frame of an envelope, header included. `room` is about how many bytes the envelope takes:
/// values are large, and a buffer that grows around them copies them again.
///
/// # Panics
/// With more than [`MESSAGES_MAX`] messages, which no node would take.
pub fn seal(envelope: &Envelope, room: usize) -> Vec<u8> {
    assert!(envelope.messages.len() <= MESSAGES_MAX, "split it");
    let mut frame = Vec::with_capacity(HEADER + room);
    frame.extend_from_slice(&[0; LENGTH]);
    frame.extend_from_slice(&VERSION.to_be_bytes());
    let mut frame = encode_onto(frame, envelope);
    let length = (frame.len() - LENGTH) as u32;
    frame[..LENGTH].copy_from_slice(&length.to_be_bytes());
    frame
}

/// The envelope of a frame whose length field has been taken off.
///
/// # Errors
/// As [`measure`].
pub fn open(rest: &[u8]) -> Result<Envelope, Malformed> {
    measure(rest).map(|(envelope, _)| envelope)
}

/// The same, with how many bytes of memory it takes, about: at most [`memory_max`] of the frame's
/// length.
///
/// # Errors
/// [`Malformed`] for another version, anything that is not one envelope, one of too many messages,
/// or one that would take too much memory.
pub fn measure(rest: &[u8]) -> Result<(Envelope, usize), Malformed> {
    let [a, b, body @ ..] = rest else {
        return Err(Malformed);
    };
    if !FORMATS.contains(&u16::from_be_bytes([*a, *b])) {
        return Err(Malformed);
    }
    let (envelope, memory) = bounded::decode::<Envelope>(body, memory_max(rest.len()))?;
    if envelope.messages.len() > MESSAGES_MAX {
        return Err(Malformed);
    }
    Ok((envelope, memory))
}
