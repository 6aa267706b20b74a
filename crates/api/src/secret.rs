//! Whose a session is: a secret proves it, and its hash names it.
//!
//! **Problem.** Any node coordinates any request, and a section's key and ref are public: the queue
//! shows them. A node must see, without asking anybody, whether who acts in a section is the client
//! that entered it.
//!
//! **Idea.** A client draws 128 random bits, its [`Secret`], and shows it with every request to the
//! node that it asks. The node takes the session's id from it, a hash, and only that goes on: into
//! the lock's queue with the enqueue, and with every command and renewal to whoever checks it. The
//! ids that a queue shows lead back to no secret.

use fermata_protocol::base::SessionId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What proves that a request is of a session: 128 random bits, to be kept as a password is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(u128);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// The secret of 128 bits that nobody else knows, drawn by whoever calls this.
    pub const fn new(bits: u128) -> Secret {
        Secret(bits)
    }

    /// The session that it is of: the first half of the SHA-256 of its 16 bytes, the highest first,
    /// with its highest bit set.
    pub fn session(self) -> SessionId {
        SessionId::drawn(hash(&self.0.to_be_bytes()))
    }

    /// The `count`-th of the secrets that are made from this one: none tells this one or another.
    #[must_use]
    pub fn derive(self, count: u64) -> Secret {
        let bytes = [&self.0.to_be_bytes()[..], &count.to_be_bytes()].concat();
        Secret(hash(&bytes))
    }

    /// As messages carry it, the highest byte first.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// From a message; none of any other length than 16.
    pub fn from_bytes(bytes: &[u8]) -> Option<Secret> {
        let bytes = <[u8; 16]>::try_from(bytes).ok()?;
        Some(Secret(u128::from_be_bytes(bytes)))
    }

    /// As text, for a file or a header: 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// From text; none of anything but 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Secret> {
        bits(text).map(Secret)
    }
}

/// 128 bits from text; none of anything but 32 hexadecimal digits.
pub(crate) fn bits(text: &str) -> Option<u128> {
    let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok())?
}

/// The first half of the SHA-256 of some bytes.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let digest = Sha256::digest(bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_the_hash_of_its_secret() {
        // printf '\0%.0s' {1..16} | sha256sum: 37…, and the highest bit
        let session = Secret::new(0).session();
        assert_eq!(session, SessionId(0xb74708fff7719dd5979ec875d56cd228));
        assert_ne!(Secret::new(1).session(), session);
    }

    #[test]
    fn secrets_are_written_and_read_and_not_shown() {
        let secret = Secret::new(0xab << 100);
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret));
        assert_eq!(Secret::from_bytes(&secret.to_bytes()), Some(secret));
        assert!(!format!("{secret:?}").contains("ab"));
        for wrong in ["", "0", "+0000000000000000000000000000001", &"g".repeat(32)] {
            assert_eq!(Secret::from_hex(wrong), None, "{wrong}");
        }
        assert_eq!(Secret::from_bytes(&[0; 15]), None);
    }

    #[test]
    fn what_is_derived_tells_nothing_of_its_neighbours() {
        let own = Secret::new(7);
        let (one, two) = (own.derive(1), own.derive(2));
        assert!(one != two && one != own && one.session() != two.session());
        assert_eq!(own.derive(1), one);
    }
}
