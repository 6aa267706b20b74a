//! Frames between nodes: a length, a version, an encoded [`Envelope`].
//!
//! ```text
//! u32 length of what follows | u16 version | envelope
//! ```

use super::{Malformed, VERSION, decode, encode};
use crate::message::Envelope;
use alloc::vec::Vec;

/// Bytes before the envelope.
pub const HEADER: usize = 6;

/// The frame of an envelope, header included.
pub fn seal(envelope: &Envelope) -> Vec<u8> {
    let body = encode(envelope);
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&((body.len() + 2) as u32).to_be_bytes());
    frame.extend_from_slice(&VERSION.to_be_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// The envelope of a frame whose length field has been taken off.
///
/// # Errors
/// [`Malformed`] for another version or anything that is not one envelope.
pub fn open(rest: &[u8]) -> Result<Envelope, Malformed> {
    match rest {
        [a, b, body @ ..] if u16::from_be_bytes([*a, *b]) == VERSION => decode(body),
        _ => Err(Malformed),
    }
}
