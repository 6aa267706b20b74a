//! Bytes: the layout of durable records and of frames between nodes. The only room that knows them.

mod bounded;
pub mod frame;
pub(crate) mod grown;
pub mod record;

use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::RangeInclusive;
use serde::{Serialize, de::DeserializeOwned};

/// The version of records and frames that this build writes: that of their layout, which later
/// formats share. A directory of another one is converted at start, or refused.
pub const VERSION: u16 = 9;

/// The first format in which logs order ledgers and the limits of times: states have these from
/// then on, and nodes tell each other of them.
pub const LEDGERS: u16 = 10;

/// The formats that this build reads, and writes where they are the cluster's
/// ([`Settings::format`](crate::settings::Settings::format)). Nodes without one in common do not
/// talk.
pub const FORMATS: RangeInclusive<u16> = VERSION..=LEDGERS;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The one encoding of a value: canonical, so that it can be digested and signed.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    let encoded: Vec<u8> = postcard::to_allocvec(value).expect("encoding into memory cannot fail");
    Bytes::from(encoded)
}

/// How many bytes [`encode`] makes of a value.
pub fn size<T: Serialize>(value: &T) -> usize {
    let counted = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default());
    counted.expect("counting cannot fail")
}

/// The encoding of a value behind what is in `before`, whose room is used.
fn encode_onto<T: Serialize>(before: Vec<u8>, value: &T) -> Vec<u8> {
    let encoded = postcard::serialize_with_flavor(value, Onto(before));
    encoded.expect("encoding into memory cannot fail")
}

/// Where it goes.
struct Onto(Vec<u8>);

impl postcard::ser_flavors::Flavor for Onto {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
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
