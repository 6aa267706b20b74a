//! What all systems are asked for: sections on keys, and reads and writes without any.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

/// A future whose type is not told.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A system, as one client of it sees it.
pub(crate) trait System: Send + Sync + 'static {
    /// Enters a section of this key, however long that takes.
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>>;

    /// The system's own plain write, without a section: whatever guarantee it has.
    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()>;

    /// The system's own plain read.
    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()>;

    /// Takes a place in the key's queue, and gives it back without waiting to hold the lock.
    fn queue<'a>(&'a self, _key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async { anyhow::bail!("its queue is not measured") })
    }
}

/// A section that this client is in.
pub(crate) trait Section: Send {
    /// Of the time that the enter took, how much went into taking a place in the queue, where that
    /// is a step of its own (`createLockRef`).
    fn created(&self) -> Option<Duration> {
        None
    }

    /// A critical get.
    fn get(&mut self) -> Boxed<'_, ()>;

    /// A critical put, acknowledged.
    fn put(&mut self, value: Bytes) -> Boxed<'_, ()>;

    /// As many, in order, several in flight where the system's clients may do that.
    fn put_all(&mut self, values: Vec<Bytes>) -> Boxed<'_, ()> {
        Box::pin(async move {
            for value in values {
                self.put(value).await?;
            }
            Ok(())
        })
    }

    /// Leaves, and waits until the next one may be in.
    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a;

    /// A put, and the leave with it.
    fn put_and_leave<'a>(mut self: Box<Self>, value: Bytes) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            self.put(value).await?;
            self.leave().await
        })
    }
}

/// A system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Fermata on its own storage.
    Native,
    /// Fermata's engine on Cassandra.
    Engine,
    /// The same, without the look at the lock after a put.
    Unverified,
    /// Fermata's engine with the locks in `ZooKeeper` and the data in Cassandra.
    Split,
    /// MUSIC's own layout on Cassandra, as published.
    Paper,
    /// The same with critical puts by lightweight transactions.
    Mscp,
    /// Cassandra's eventual writes and reads, without any section.
    CassaEv,
    /// `ZooKeeper` with its lock recipe.
    Zookeeper,
    /// etcd with its lock service.
    Etcd,
    /// etcd with two transactions per update, in place of the paper's CockroachDB.
    EtcdTxn,
    /// No system: the sockets and files that any needs, as the limit of the machine.
    Bare,
}

impl Kind {
    /// As tables have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Engine => "cassandra",
            Kind::Unverified => "cassandra, no verify",
            Kind::Split => "zookeeper+cassandra",
            Kind::Paper => "MUSIC (paper's rows)",
            Kind::Mscp => "MSCP",
            Kind::CassaEv => "CassaEV",
            Kind::Zookeeper => "ZooKeeper",
            Kind::Etcd => "etcd",
            Kind::EtcdTxn => "etcd, txn per update",
            Kind::Bare => "sockets and files",
        }
    }
}
