//! Bytes: the layout of durable records and of frames between nodes. The only room that knows them.

mod bounded;
pub mod frame;
pub mod record;

use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// The version of records and frames. Nodes of different versions do not talk, and a directory of
/// another version is refused at start.
pub const VERSION: u16 = 1;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The one encoding of a value: canonical, so that it can be digested and signed.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    let encoded: Vec<u8> = postcard::to_allocvec(value).expect("encoding into memory cannot fail");
    Bytes::from(encoded)
}

/// The value that `bytes` encode, if they encode one and nothing else.
///
/// # Errors
/// [`Malformed`] for anything else, whoever sent it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Malformed),
    }
}
