//! `ZooKeeper`'s own lock recipe, as its manual has it, for comparisons: not what
//! [`crate::ZookeeperStore`] does, and with none of its guarantees.
//!
//! A client makes an ephemeral sequential node, lists all of them, and holds the lock if its own is
//! the lowest; otherwise it watches the one before and lists again when that goes. The value is the
//! data of the lock's own node. Release deletes the node.
//!
//! **What it does not do.** A holder that lost its session is not kept from writing: its node is
//! gone and the next one holds the lock, but `setData` asks nobody (MUSIC §II names this false
//! detection of failure). And the release of a dead holder looks like any other.

use std::time::Duration;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const MEMBER: CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

/// What the names of waiting clients' nodes begin with; ten digits or more follow.
const PREFIX: &str = "lock-";

/// A client of the recipe: one session.
#[derive(Clone)]
pub struct Locks {
    client: Client,
    root: String,
}

impl Locks {
    /// Connects to one of `servers` (`HOST:PORT`), in no order. `timeout` is the session's: as long
    /// a dead holder keeps its lock. Locks are below `root`, which must not be the store's.
    ///
    /// # Errors
    /// The client's.
    pub async fn connect(
        servers: &[String],
        root: &str,
        timeout: Duration,
    ) -> Result<Locks, Error> {
        let client = Client::connector()
            .with_session_timeout(timeout)
            .connect(&servers.join(","))
            .await?;
        client.mkdir(root, &PERSISTENT).await?;
        Ok(Locks {
            client,
            root: root.to_owned(),
        })
    }

    /// Waits for a lock, whose name is a valid part of a path. Its node is made by whoever first
    /// misses it.
    ///
    /// # Errors
    /// The client's; whether a node was left in the queue is not known then, until the session
    /// ends.
    pub async fn lock(&self, name: &str) -> Result<Held<'_>, Error> {
        let node = format!("{}/{name}", self.root);
        let prefix = format!("{node}/{PREFIX}");
        let sequence = loop {
            match self.client.create(&prefix, b"", &MEMBER).await {
                Ok((_, sequence)) => break sequence,
                Err(Error::NoNode) => self.client.mkdir(&node, &PERSISTENT).await?,
                Err(error) => return Err(error),
            }
        };
        let held = Held {
            locks: self,
            member: format!("{prefix}{sequence}"),
            node,
        };
        while let Some(before) = held.predecessor().await? {
            let (stat, gone) = self.client.check_and_watch_stat(&before).await?;
            if stat.is_some() {
                gone.changed().await;
            }
        }
        Ok(held)
    }

    /// Writes the value of a lock's node without the lock.
    ///
    /// # Errors
    /// The client's.
    pub async fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let node = format!("{}/{name}", self.root);
        loop {
            match self.client.set_data(&node, value, None).await {
                Ok(_) => return Ok(()),
                Err(Error::NoNode) => self.client.mkdir(&node, &PERSISTENT).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads it, as this session's server has it.
    ///
    /// # Errors
    /// The client's.
    pub async fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
        Ok(self
            .client
            .get_data(&format!("{}/{name}", self.root))
            .await?
            .0)
    }
}

/// A lock that is held, or waited for. Dropped without [`Held::release`], it is held until its
/// session ends.
pub struct Held<'a> {
    locks: &'a Locks,
    /// The lock's node, whose data is the value.
    node: String,
    /// Our node below it.
    member: String,
}

impl Held<'_> {
    /// Whose turn is before ours; none: it is our turn.
    async fn predecessor(&self) -> Result<Option<String>, Error> {
        let waiting = self.locks.client.list_children(&self.node).await?;
        let mine = self.member.rsplit('/').next().unwrap_or_default();
        if !waiting.iter().any(|name| name == mine) {
            // The session ended, and the node with it.
            return Err(Error::SessionExpired);
        }
        // Ten digits, or more than ten, which come later.
        let turn = |name: &str| (name.len(), name.to_owned());
        let before = waiting
            .iter()
            .filter(|name| name.starts_with(PREFIX) && turn(name) < turn(mine))
            .max_by_key(|name| turn(name));
        Ok(before.map(|name| format!("{}/{name}", self.node)))
    }

    /// The value.
    ///
    /// # Errors
    /// The client's.
    pub async fn get(&self) -> Result<Vec<u8>, Error> {
        Ok(self.locks.client.get_data(&self.node).await?.0)
    }

    /// Writes the value, whoever holds the lock.
    ///
    /// # Errors
    /// The client's.
    pub async fn put(&self, value: &[u8]) -> Result<(), Error> {
        self.locks.client.set_data(&self.node, value, None).await?;
        Ok(())
    }

    /// Writes several values, one after the other, all of them in flight at once: a session's
    /// writes are done in order.
    ///
    /// # Errors
    /// The first that fails; those after it may have been done.
    pub async fn put_all(&self, values: &[impl AsRef<[u8]>]) -> Result<(), Error> {
        let client = &self.locks.client;
        // A request is sent when its call returns, not when it is first waited for.
        let sent = values
            .iter()
            .map(|value| client.set_data(&self.node, value.as_ref(), None));
        for written in sent.collect::<Vec<_>>() {
            written.await?;
        }
        Ok(())
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// The client's; unless it is [`Error::NoNode`], the lock may be held until the session ends.
    pub async fn release(self) -> Result<(), Error> {
        self.locks.client.delete(&self.member, None).await
    }
}
