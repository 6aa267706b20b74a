//! All keys of a keyspace, page by page.
//!
//! A page is what one replica of each group knows, and as much of it as a node's message holds: one
//! that is shorter than what was asked for is not the last. Only an empty one is.

use crate::client::Client;
use crate::error::Error;
use bytes::Bytes;

/// The keys of a keyspace that start with a prefix, in order; see [`Client::pages`].
#[derive(Debug)]
pub struct Pages {
    client: Client,
    keyspace: String,
    prefix: Bytes,
    after: Option<Bytes>,
}

impl Client {
    /// The keys of a keyspace in order, all of them, however many: those that start with `prefix`
    /// and are above `after`. May be stale.
    pub fn pages(&self, keyspace: &str, prefix: impl AsRef<[u8]>, after: Option<&[u8]>) -> Pages {
        Pages {
            client: self.clone(),
            keyspace: keyspace.to_owned(),
            prefix: Bytes::copy_from_slice(prefix.as_ref()),
            after: after.map(Bytes::copy_from_slice),
        }
    }
}

impl Pages {
    /// The next keys, at most so many, 10,000 at a time; none are left where it is empty.
    ///
    /// # Errors
    /// As [`Client::keys`]. Asked again, it goes on where it was.
    pub async fn next(&mut self, most: u32) -> Result<Vec<Bytes>, Error> {
        let after = self.after.as_deref();
        let asked = self.client.keys(&self.keyspace, &self.prefix, after, most);
        let page = asked.await?;
        self.after = page.last().cloned().or(self.after.take());
        Ok(page)
    }
}
