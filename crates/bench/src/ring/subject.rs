//! What is asked of every system while its members change.

use crate::music::system::Boxed;

/// One client of a system. It retries what its system's documentation says may be retried; what it
/// returns as an error may have taken effect.
///
/// Its futures run where the client was made: on the threads of its site.
pub(crate) trait Subject: Send + Sync {
    /// A linearizable read of a key.
    fn read<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Vec<u8>>>;

    /// A write of a key.
    fn write<'a>(&'a self, key: &'a str, value: Vec<u8>) -> Boxed<'a, ()>;

    /// Enters the lock of a key, and leaves it. One client is in one section of a key at a time.
    fn section<'a>(&'a self, key: &'a str) -> Boxed<'a, ()>;
}
