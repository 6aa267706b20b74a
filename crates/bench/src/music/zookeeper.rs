//! `ZooKeeper` with its own lock recipe, the value in the lock's node.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use fermata_zookeeper::recipes::{Held, Locks};

use super::system::{Boxed, Section, System};

/// How long a lock outlives its client.
const SESSION: Duration = Duration::from_secs(20);

/// Puts that are in flight at once, as Fermata's client has them: servers give up a session that
/// sends 25 MB at once.
const WINDOW: usize = 32;

/// A client: one session with one server.
pub(crate) struct Zookeeper {
    locks: Locks,
}

impl Zookeeper {
    /// Connects to a server.
    pub(crate) async fn connect(address: &str) -> Result<Zookeeper> {
        let locks = Locks::connect(&[address.to_owned()], "/recipes", SESSION).await?;
        Ok(Zookeeper { locks })
    }
}

impl System for Zookeeper {
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let held = self.locks.lock(key).await?;
            let section: Box<dyn Section + 'a> = Box::new(Locked { held });
            Ok(section)
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(async move { Ok(self.locks.put(key, &value).await?) })
    }

    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move { Ok(self.locks.get(key).await.map(drop)?) })
    }
}

struct Locked<'s> {
    held: Held<'s>,
}

impl Section for Locked<'_> {
    fn get(&mut self) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.held.get().await.map(drop)?) })
    }

    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.held.put(&value).await?) })
    }

    fn put_all(&mut self, values: Vec<Bytes>) -> Boxed<'_, ()> {
        Box::pin(async move {
            for some in values.chunks(WINDOW) {
                self.held.put_all(some).await?;
            }
            Ok(())
        })
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.held.release().await?) })
    }
}
