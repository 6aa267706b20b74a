//! MUSIC's own layout on Cassandra, linked into its clients as the paper's load generators had it:
//! MUSIC, MSCP and `CassaEV`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use fermata_cassandra::paper::{Held, Paper};

use super::system::{Boxed, Kind, Section, System};

/// The longest pause between two `acquireLock`s: polls are local.
const POLL: Duration = Duration::from_millis(20);

/// Between two looks for one's own start time at the local replica.
const LOOK: Duration = Duration::from_micros(500);

/// A head that has not changed for so long has no client any more: a `createLockRef` or a
/// `releaseLock` whose answer was lost leaves one. The paper's replicas release it by force.
const ORPHAN: Duration = Duration::from_secs(2);

/// A client of the layout.
pub(crate) struct Music {
    pub(crate) paper: Arc<Paper>,
    /// [`Kind::Paper`], [`Kind::Mscp`] or [`Kind::CassaEv`].
    pub(crate) kind: Kind,
}

impl Music {
    /// Keys of MSCP are its own: its puts' stamps would outrank MUSIC's.
    fn key(&self, key: &str) -> String {
        let kind = match self.kind {
            Kind::Mscp => "mscp",
            Kind::CassaEv => "ev",
            _ => "music",
        };
        format!("{kind}/{key}")
    }

    /// `acquireLock` until it is done.
    async fn acquire(&self, key: &[u8], lock_ref: i64) -> Result<()> {
        let mut pause = Duration::from_millis(1);
        let (mut head, mut since) = (None, Instant::now());
        loop {
            match self.paper.acquire_lock(key, lock_ref).await? {
                Held::Done(()) => return Ok(()),
                Held::NotYet => {}
                other => bail!("acquireLock says {other:?}"),
            }
            let first = self.paper.peek(key).await?.map(|head| head.lock_ref);
            if let Some(first) = first.filter(|first| *first < lock_ref) {
                if head != Some(first) {
                    (head, since) = (Some(first), Instant::now());
                } else if since.elapsed() > ORPHAN {
                    self.paper.forced_release(key, first).await?;
                    since = Instant::now();
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL);
        }
    }
}

impl System for Music {
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let key = self.key(key).into_bytes();
            let begun = Instant::now();
            let lock_ref = self.paper.create_lock_ref(&key).await?;
            let created = begun.elapsed();
            self.acquire(&key, lock_ref).await?;
            let section: Box<dyn Section + 'a> = Box::new(Inside {
                music: self,
                key,
                lock_ref,
                created,
            });
            Ok(section)
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        let key = self.key(key);
        Box::pin(async move { Ok(self.paper.put(key.as_bytes(), &value).await?) })
    }

    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        let key = self.key(key);
        Box::pin(async move { Ok(self.paper.get(key.as_bytes()).await.map(drop)?) })
    }

    fn queue<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let key = self.key(key).into_bytes();
            let lock_ref = self.paper.create_lock_ref(&key).await?;
            Ok(self.paper.release_lock(&key, lock_ref).await?)
        })
    }
}

struct Inside<'s> {
    music: &'s Music,
    key: Vec<u8>,
    lock_ref: i64,
    created: Duration,
}

impl Section for Inside<'_> {
    fn created(&self) -> Option<Duration> {
        Some(self.created)
    }

    fn get(&mut self) -> Boxed<'_, ()> {
        let paper = &self.music.paper;
        Box::pin(async move {
            loop {
                match paper.critical_get(&self.key, self.lock_ref).await? {
                    Held::Done(_) => return Ok(()),
                    Held::NotYet => tokio::time::sleep(LOOK).await,
                    other => bail!("criticalGet says {other:?}"),
                }
            }
        })
    }

    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        let paper = &self.music.paper;
        Box::pin(async move {
            loop {
                let done = match self.music.kind {
                    Kind::Mscp => {
                        paper
                            .critical_put_by_lwt(&self.key, self.lock_ref, &value)
                            .await?
                    }
                    _ => paper.critical_put(&self.key, self.lock_ref, &value).await?,
                };
                match done {
                    Held::Done(()) => return Ok(()),
                    // The local replica does not have the start time yet.
                    Held::NotYet => tokio::time::sleep(LOOK).await,
                    other => bail!("criticalPut says {other:?}"),
                }
            }
        })
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let paper = &self.music.paper;
            Ok(paper.release_lock(&self.key, self.lock_ref).await?)
        })
    }
}
