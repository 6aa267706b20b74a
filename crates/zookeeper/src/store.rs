//! [`ZookeeperStore`]: the operations on rows.

use crate::doubt::{Doubts, Wanted, is_past};
use crate::session::{Link, Tried};
use crate::watches::Watches;
use crate::{path, startup};
use bytes::Bytes;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_protocol::base::KeyId;
use fermata_tls::Trust;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, MultiWriteResult, Stat};

/// The largest state, in bytes. Start-up checks that the servers take it.
pub const STATE_LIMIT: usize = 64 * 1024;

/// How often an operation looks again when others keep changing the row under it.
const ROUNDS: usize = 16;

/// How nodes are made. Any client that reaches the servers may change them.
pub(crate) const OPEN: CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Where the servers are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `HOST:PORT` of each server, the nearest first.
    pub servers: Vec<String>,
    /// The node below which everything is, such as `/fermata`. Made where it is missing.
    pub root: String,
    /// How long an operation waits for a session, and then for its answer, at most.
    pub timeout: Duration,
    /// With it, TLS 1.3 alone is spoken to the servers, whose certificates name the host of
    /// `servers`.
    pub tls: Option<Trust>,
}

/// What stands behind a [`LockStore::read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The leader's word: cheap, but for a moment a leader that was deposed may give it (see the
    /// crate's opening).
    #[default]
    Sync,
    /// A quorum's: the price of a write.
    Quorum,
}

/// Lock rows on `ZooKeeper`.
pub struct ZookeeperStore {
    link: Arc<Link>,
    watches: Arc<Watches>,
    doubts: Doubts,
    root: String,
    reads: Reads,
    describe: String,
}

/// A node: an empty one is no row, but its version counts.
struct Node {
    version: i32,
    data: Bytes,
}

impl Node {
    fn into_row(self) -> Option<Row> {
        (!self.data.is_empty()).then(|| Row {
            version: number(self.version),
            state: self.data,
        })
    }
}

/// The row's version for a node's.
fn number(version: i32) -> Version {
    Version(i64::from(version.cast_unsigned()))
}

/// The node's version for a row's; none: no row ever had it.
fn node_version(version: Version) -> Option<i32> {
    u32::try_from(version.0).ok().map(u32::cast_signed)
}

impl ZookeeperStore {
    /// Connects and checks that the servers are fit for it: somebody answers, a quorum does, their
    /// version is 3.5 or later, the root can be written, and a state of [`STATE_LIMIT`] bytes fits.
    /// Needs a tokio runtime, which also runs the session.
    ///
    /// # Errors
    /// One sentence that says what is wrong and what to do.
    pub async fn connect(settings: Settings) -> Result<ZookeeperStore, String> {
        let servers = startup::check(&settings)?;
        let found = startup::survey(&settings).await?;
        let link = Link::new(servers.clone(), settings.timeout, settings.tls);
        startup::probe(&link, &settings.root, &found).await?;
        let describe = format!(
            "Apache ZooKeeper {} at {} below {}, operations give up after {:?}",
            found.version.as_deref().unwrap_or("3.5 or later"),
            servers.join(", "),
            settings.root,
            settings.timeout,
        );
        Ok(ZookeeperStore {
            watches: Watches::new(link.clone()),
            link,
            doubts: Doubts::default(),
            root: settings.root,
            reads: Reads::default(),
            describe,
        })
    }

    /// What tells this root of this ensemble from every other: when its first node was made. It
    /// changes if somebody deletes the root, and with it all that was known of lock refs.
    ///
    /// # Errors
    /// One sentence: nobody answers, or the node is gone.
    pub async fn identity(&self) -> Result<String, String> {
        let path = format!("{}/{}", self.root, startup::PROBE);
        let client = self.link.client().await?;
        match self.link.within(client.check_stat(&path)).await {
            Tried::Done(Some(stat)) => Ok(format!("{:x}-{:x}", stat.ctime, stat.czxid)),
            Tried::Done(None) => Err(format!(
                "ZooKeeper has no node {path} any more: start again"
            )),
            Tried::Not(error) => Err(format!("ZooKeeper's node {path} cannot be read: {error}")),
            Tried::Unknown(why) => Err(format!("ZooKeeper's node {path} cannot be read: {why}")),
        }
    }

    /// The same store, with reads of this kind.
    #[must_use]
    pub fn with_reads(mut self, reads: Reads) -> ZookeeperStore {
        self.reads = reads;
        self
    }

    /// The key's node.
    fn path(&self, key: &KeyId) -> Result<String, StoreError> {
        path::node(&self.root, key).map_err(StoreError::Refused)
    }

    /// A session for a request. Nothing was sent where there is none.
    async fn client(&self) -> Result<Client, StoreError> {
        let client = self.link.client().await;
        client.map_err(|why| StoreError::Refused(format!("nothing was sent to ZooKeeper: {why}")))
    }

    /// What the session's server has.
    async fn look(&self, client: &Client, path: &str) -> Result<Option<Node>, StoreError> {
        node_of(path, self.link.within(client.get_data(path)).await)
    }

    /// What the session's server has once it has everything that the leader, or a quorum, had.
    async fn look_after_all(
        &self,
        client: &Client,
        path: &str,
    ) -> Result<Option<Node>, StoreError> {
        // The second is sent right behind the first, and answered behind it.
        let first = barrier(client, &self.root, self.reads);
        let then = client.get_data(path);
        let (first, then) = tokio::join!(self.link.within(first), self.link.within(then));
        match first {
            Tried::Done(()) => node_of(path, then),
            Tried::Not(error) => Err(read_failed(path, &error.to_string())),
            Tried::Unknown(why) => Err(read_failed(path, &why)),
        }
    }

    /// Makes the node with that data. Its parents are made by whoever first misses them.
    async fn create(&self, client: &Client, key: &KeyId, path: &str, data: &[u8]) -> Tried<Stat> {
        for _ in 0..2 {
            let outcome = self.link.within(client.create(path, data, &OPEN)).await;
            match outcome {
                Tried::Done((stat, _)) => return Tried::Done(stat),
                Tried::Not(Error::NoNode) => {}
                Tried::Not(error) => return Tried::Not(error),
                Tried::Unknown(why) => return Tried::Unknown(why),
            }
            let parent = path::keyspace(&self.root, key.keyspace);
            match self.link.within(client.mkdir(&parent, &OPEN)).await {
                Tried::Done(()) => {}
                Tried::Not(error) => return Tried::Not(error),
                // It is no matter whether the parent is made.
                Tried::Unknown(_) => return Tried::Not(Error::NoNode),
            }
        }
        Tried::Not(Error::NoNode)
    }

    /// Writes the node if it has that version.
    async fn set(&self, client: &Client, path: &str, data: &[u8], version: i32) -> Tried<Stat> {
        match version {
            // The server would take it for "any".
            -1 => Tried::Not(Error::BadArguments(
                &"a node of version -1 cannot be compared; write it once by hand",
            )),
            // One more would be -1. The first of the two decides.
            -2 => {
                let mut both = client.new_multi_writer();
                let added = both
                    .add_set_data(path, data, Some(version))
                    .and_then(|()| both.add_set_data(path, data, None));
                if let Err(error) = added {
                    return Tried::Not(error);
                }
                let results = async { both.commit().await.map_err(Error::from) };
                match self.link.within(results).await {
                    Tried::Done(mut results) => match results.pop() {
                        Some(MultiWriteResult::SetData { stat }) => Tried::Done(stat),
                        _ => Tried::Unknown("the answer makes no sense".to_owned()),
                    },
                    Tried::Not(error) => Tried::Not(error),
                    Tried::Unknown(why) => Tried::Unknown(why),
                }
            }
            _ => {
                let request = client.set_data(path, data, Some(version));
                self.link.within(request).await
            }
        }
    }

    /// One update of a node, answered for until its outcome is known.
    async fn update(
        &self,
        client: &Client,
        key: &KeyId,
        path: &str,
        wanted: Wanted,
        data: &[u8],
    ) -> Tried<Stat> {
        let attempt = self.doubts.attempt(key, wanted);
        let outcome = match wanted {
            None => self.create(client, key, path, data).await,
            Some(version) => self.set(client, path, data, version).await,
        };
        if !matches!(outcome, Tried::Unknown(_)) {
            attempt.settle();
        }
        outcome
    }

    /// [`LockStore::read`]: a look, and a write of the same where updates are in doubt that could
    /// still apply.
    async fn decide(&self, key: &KeyId, path: &str) -> Result<Option<Row>, StoreError> {
        let client = self.client().await?;
        for _ in 0..ROUNDS {
            // Before the look: what comes into doubt during it is none of its business.
            let doubts = self.doubts.of(key);
            let node = self.look_after_all(&client, path).await?;
            let present = node.as_ref().map(|node| node.version);
            if doubts.iter().all(|wanted| is_past(present, *wanted)) {
                self.doubts.excluded(key, &doubts);
                return Ok(node.and_then(Node::into_row));
            }
            let data = node.map(|node| node.data).unwrap_or_default();
            match self.update(&client, key, path, present, &data).await {
                Tried::Done(stat) => {
                    if doubts.iter().all(|w| is_past(Some(stat.version), *w)) {
                        self.doubts.excluded(key, &doubts);
                        let version = stat.version;
                        return Ok(Node { version, data }.into_row());
                    }
                }
                // Somebody was faster, perhaps the update in doubt.
                Tried::Not(Error::BadVersion | Error::NodeExists | Error::NoNode) => {}
                Tried::Not(error) => return Err(read_failed(path, &error.to_string())),
                Tried::Unknown(why) => return Err(read_failed(path, &why)),
            }
        }
        Err(read_failed(path, "others changed it all the time"))
    }

    /// [`LockStore::swap`], with a session.
    async fn exchange(
        &self,
        client: &Client,
        key: &KeyId,
        path: &str,
        expected: Option<i32>,
        state: &[u8],
    ) -> Result<Swapped, StoreError> {
        // No row may also be an empty node, whose version counts then.
        let mut wanted = expected;
        for _ in 0..ROUNDS {
            match self.update(client, key, path, wanted, state).await {
                Tried::Done(stat) => return Ok(Swapped::Applied(number(stat.version))),
                Tried::Not(Error::BadVersion | Error::NodeExists | Error::NoNode) => {}
                Tried::Not(error) => {
                    let why = format!("ZooKeeper refused the update of {path}: {error}");
                    return Err(StoreError::Refused(why));
                }
                Tried::Unknown(why) => {
                    let why = format!("the update of {path} may have taken effect: {why}");
                    return Err(StoreError::Unknown(why));
                }
            }
            // The refusal is certain; what the row is now is told only if it is easily known.
            let Ok(node) = self.look(client, path).await else {
                return Ok(Swapped::Refused(None));
            };
            let present = node.as_ref().map(|node| node.version);
            match node.and_then(Node::into_row) {
                Some(row) => return Ok(Swapped::Refused(Some(row))),
                None if expected.is_some() => return Ok(Swapped::Refused(None)),
                None => wanted = present,
            }
        }
        Ok(Swapped::Refused(None))
    }
}

/// What a read of a node says.
fn node_of(path: &str, got: Tried<(Vec<u8>, Stat)>) -> Result<Option<Node>, StoreError> {
    match got {
        Tried::Done((data, stat)) => Ok(Some(Node {
            version: stat.version,
            data: Bytes::from(data),
        })),
        Tried::Not(Error::NoNode) => Ok(None),
        Tried::Not(error) => Err(read_failed(path, &error.to_string())),
        Tried::Unknown(why) => Err(read_failed(path, &why)),
    }
}

fn read_failed(path: &str, why: &str) -> StoreError {
    StoreError::Unknown(format!("{path} could not be read from ZooKeeper: {why}"))
}

/// A request that is answered when the session's server has all that was acknowledged before. It is
/// sent at once.
fn barrier<'a>(
    client: &'a Client,
    root: &'a str,
    reads: Reads,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    match reads {
        Reads::Sync => Box::pin(client.sync(root)),
        Reads::Quorum => Box::pin(nothing(client, root)),
    }
}

/// A write that changes nothing, and has its place in the leader's order like any other. It is sent
/// at once.
pub(crate) fn nothing<'a>(
    client: &'a Client,
    root: &str,
) -> impl Future<Output = Result<(), Error>> + Send + 'a {
    let mut writer = client.new_multi_writer();
    let sent = writer.add_check_version(root, -1).map(|()| writer.commit());
    async {
        sent?.await?;
        Ok(())
    }
}

impl LockStore for ZookeeperStore {
    async fn peek(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        let path = self.path(key)?;
        let client = self.client().await?;
        let node = self.look(&client, &path).await?;
        Ok(node.and_then(Node::into_row))
    }

    async fn read(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        let path = self.path(key)?;
        self.decide(key, &path).await
    }

    async fn swap(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        let path = self.path(key)?;
        if state.is_empty() || state.len() > STATE_LIMIT {
            return Err(StoreError::Refused(format!(
                "a state of {} bytes was not sent to ZooKeeper; it takes 1 to {STATE_LIMIT}",
                state.len()
            )));
        }
        let expected = match expected.map(node_version) {
            None => None,
            Some(Some(version)) => Some(version),
            Some(None) => return Ok(Swapped::Refused(None)),
        };
        let client = self.client().await?;
        self.exchange(&client, key, &path, expected, &state).await
    }

    async fn changed(&self, key: &KeyId, seen: Option<Version>, patience: Duration) {
        let known = self.path(key).ok().zip(match seen {
            None => Some(None),
            Some(version) => node_version(version).map(Some),
        });
        let Some((path, seen)) = known else {
            // There is no such row, and never will be.
            return tokio::time::sleep(patience).await;
        };
        let changed = self.watches.changed(key, &path, seen);
        // Running out of patience is one way to end.
        let _ = tokio::time::timeout(patience, changed).await;
    }

    async fn health(&self) -> Result<(), String> {
        let client = self.link.client().await?;
        match self.link.within(nothing(&client, &self.root)).await {
            Tried::Done(()) => Ok(()),
            Tried::Not(error) => Err(format!("ZooKeeper refused a write: {error}")),
            Tried::Unknown(why) => Err(format!("ZooKeeper did not confirm a write: {why}")),
        }
    }

    fn describe(&self) -> String {
        self.describe.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_round() {
        for version in [0, 1, i32::MAX, i32::MIN, -2] {
            assert_eq!(node_version(number(version)), Some(version));
        }
        assert!(number(i32::MIN).0 > number(i32::MAX).0);
        assert_eq!(node_version(Version(-1)), None);
        assert_eq!(node_version(Version(1 << 32)), None);
    }
}
