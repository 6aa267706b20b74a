//! Fermata, by its client library: native, or a server on an engine; the client cannot tell.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use fermata_client::{Client, Code, Enter, Options, Section as Held};

use super::system::{Boxed, Section, System};

/// Puts that are in flight at once: with large values, more would only wait in queues.
const WINDOW: usize = 32;

/// A client: one session, preferring one node.
pub(crate) struct Fermata {
    client: Client,
    keyspace: &'static str,
}

impl Fermata {
    /// Connects to a node, for keys of a keyspace.
    pub(crate) async fn connect(
        address: &str,
        site: &str,
        keyspace: &'static str,
    ) -> Result<Fermata> {
        let mut options = Options::new([format!("http://{address}")]).site(site);
        // A busy machine is no reason to go elsewhere.
        options.attempt_timeout = Duration::from_secs(20);
        options.discovery_timeout = Duration::from_secs(20);
        let client = Client::connect(options).await?;
        Ok(Fermata { client, keyspace })
    }
}

impl System for Fermata {
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let enter = Enter::default();
            let held = self.client.enter(self.keyspace, &[key], enter).await?;
            let section: Box<dyn Section + 'a> = Box::new(Inside { held, key });
            Ok(section)
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(async move { Ok(self.client.put(self.keyspace, key, value).await?) })
    }

    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move { Ok(self.client.get(self.keyspace, key).await.map(drop)?) })
    }

    fn queue<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let wait = Some(Duration::ZERO);
            let enter = Enter {
                wait,
                ..Enter::default()
            };
            // The place is taken; the client gives it back where it is not the first one.
            match self.client.enter(self.keyspace, &[key], enter).await {
                Ok(held) => Ok(held.leave_and_wait().await?),
                Err(error) if error.code() == Code::WaitOver => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }
}

struct Inside<'a> {
    held: Held,
    key: &'a str,
}

impl Section for Inside<'_> {
    fn get(&mut self) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.held.get(self.key).await.map(drop)?) })
    }

    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.held.put(self.key, value).await?) })
    }

    fn put_all(&mut self, values: Vec<Bytes>) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut flying = std::collections::VecDeque::with_capacity(WINDOW);
            for value in values {
                if flying.len() == WINDOW
                    && let Some(oldest) = flying.pop_front()
                {
                    let oldest: fermata_client::Acknowledgement = oldest;
                    oldest.await?;
                }
                flying.push_back(self.held.put(self.key, value));
            }
            for put in flying {
                put.await?;
            }
            Ok(())
        })
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.held.leave_and_wait().await?) })
    }

    fn put_and_leave<'a>(self: Box<Self>, value: Bytes) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.held.put_and_leave(self.key, value).await?) })
    }
}
