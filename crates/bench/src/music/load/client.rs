//! One client: the same thing over and over, everything timed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use fermata_protocol::base::Rng;

use super::counted::Brought;
use super::{Keys, Load, Sites, Work};
use crate::music::system::{Section, System};
use crate::storage::noise;

/// Keys of each client that has some of its own: enough to lie in several segments.
const OWN_KEYS: u64 = 8;

/// The same where sites are measured alone: a client that does one section after the other uses few
/// keys often enough for whoever moves leadership by use.
const ALONE_KEYS: u64 = 1;

/// How long a client may try beyond its time for its first success.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long those who wait for one key may go on.
const QUEUE: Duration = Duration::from_secs(3);

pub(super) struct Client {
    pub(super) system: Arc<dyn System>,
    pub(super) load: Load,
    pub(super) name: String,
    pub(super) round: u32,
    /// By its site and its place there: the same client has the same keys at every point.
    pub(super) number: u64,
    pub(super) rng: Rng,
    pub(super) zipf: Option<Zipf>,
    pub(super) busy: Arc<Mutex<HashMap<String, u32>>>,
}

/// Keeps a client counted at a key.
struct Busy {
    all: Arc<Mutex<HashMap<String, u32>>>,
    key: String,
    collided: bool,
}

impl Busy {
    fn new(all: &Arc<Mutex<HashMap<String, u32>>>, key: &str) -> Busy {
        let mut keys = all.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = keys.entry(key.to_owned()).or_default();
        *clients += 1;
        Busy {
            collided: *clients > 1,
            key: key.to_owned(),
            all: all.clone(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut keys = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = keys.get_mut(&self.key) {
            *clients -= 1;
        }
    }
}

impl Client {
    fn key(&mut self) -> String {
        match (&self.zipf, self.load.keys) {
            (Some(zipf), _) => {
                let chance = (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64;
                format!("{}-z{}", self.name, zipf.rank(chance))
            }
            (None, Keys::One) => format!("{}-round-{}", self.name, self.round),
            _ => {
                let one = self.rng.below(self.own_keys());
                self.own(one)
            }
        }
    }

    fn own_keys(&self) -> u64 {
        match self.load.sites {
            Sites::Together => OWN_KEYS,
            Sites::Apart(_) => ALONE_KEYS,
        }
    }

    /// A key of this client. Points of the same size share them: the first section of a key costs
    /// more than the others, with every system, and is nobody's question here. Plain writes have
    /// their own: after one, a section would have something to settle.
    fn own(&self, one: u64) -> String {
        let what = match self.load.work {
            Work::Put | Work::Get => "plain",
            _ => "own",
        };
        format!("{what}-{}-{}-{one}", self.load.size, self.number)
    }

    /// An operation counts if it begins after the lead, and then whole.
    pub(super) async fn run(mut self, from: Instant, to: Instant) -> Brought {
        let mut brought = Brought::default();
        let value: Bytes = noise(&mut self.rng, self.load.size);
        if self.load.work == Work::Get {
            // What is read has to be there.
            for one in 0..self.own_keys() {
                let key = self.own(one);
                if let Err(error) = self.system.put(&key, value.clone()).await {
                    brought.errors += 1;
                    brought.first_error.get_or_insert(format!("{error:#}"));
                }
            }
        }
        if self.load.first {
            for one in 0..self.own_keys() {
                let key = self.own(one);
                // What fails here fails again where it counts.
                let _ = self.once(&key, &value, &mut Brought::default()).await;
            }
        }
        let mut first = None;
        let mut last = Instant::now();
        // At least one, however long it takes, but on a key that all want; and not for ever, where
        // none succeeds.
        let more = self.load.keys != Keys::One;
        while last < to || (more && brought.operations == 0 && last < to + PATIENCE) {
            let key = self.key();
            let begun = Instant::now();
            let mut one = Brought::default();
            let once = self.once(&key, &value, &mut one);
            let done = if more {
                once.await
            } else {
                // A queue that moves too slowly is left alone: its key is not used again.
                match tokio::time::timeout_at((to + QUEUE).into(), once).await {
                    Ok(done) => done,
                    Err(_) => break,
                }
            };
            last = Instant::now();
            if let Err(error) = done {
                brought.errors += 1;
                brought.first_error.get_or_insert(format!("{error:#}"));
                tokio::time::sleep(Duration::from_millis(10)).await;
                last = Instant::now();
            } else if begun >= from {
                first.get_or_insert(begun);
                brought.operations += 1;
                brought.puts += one.puts;
                brought.collisions += one.collisions;
                brought.sections += one.sections;
                brought.steps.append(&mut one.steps);
            }
        }
        let end = if more { last } else { last.max(to) };
        brought.seconds = first.map_or(0.0, |first| (end - first).as_secs_f64());
        brought
    }

    async fn once(&mut self, key: &str, value: &Bytes, one: &mut Brought) -> Result<()> {
        if let Work::Mix(updates) = self.load.work {
            one.reads = self.rng.below(100) >= u64::from(updates);
        }
        let begun = Instant::now();
        let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        if self.load.work == Work::Get {
            self.system.get(key).await?;
            one.steps.push(("get", ms(begun)));
            return Ok(());
        }
        if self.load.work == Work::Put {
            self.system.put(key, value.clone()).await?;
            one.steps.push(("put", ms(begun)));
            one.puts = 1;
            return Ok(());
        }
        if self.load.work == Work::Queue {
            self.system.queue(key).await?;
            one.steps.push(("queue", ms(begun)));
            return Ok(());
        }
        let busy = Busy::new(&self.busy, key);
        one.collisions = u64::from(busy.collided);
        let mut section = self.system.enter(key).await?;
        one.steps.push(("enter", ms(begun)));
        one.sections = 1;
        if let Some(created) = section.created() {
            let created = created.as_secs_f64() * 1e3;
            one.steps.push(("create", created));
            one.steps.push(("acquire", ms(begun) - created));
        }
        if self.load.work == Work::Section {
            one.puts = 1;
            section.put_and_leave(value.clone()).await?;
        } else {
            let inside = self.inside(&mut *section, value, one).await;
            one.steps.push(("waited", ms(begun)));
            let since = Instant::now();
            // Whatever went wrong inside, the next one has to come in.
            let left = section.leave().await;
            inside.and(left)?;
            one.steps.push(("leave", ms(since)));
        }
        one.steps.push(("section", ms(begun)));
        Ok(())
    }

    /// What is done inside of a section.
    async fn inside(
        &self,
        section: &mut dyn Section,
        value: &Bytes,
        one: &mut Brought,
    ) -> Result<()> {
        let begun = Instant::now();
        let step = match self.load.work {
            Work::Mix(_) if one.reads => {
                section.get().await?;
                "critical get"
            }
            Work::Batch(puts) => {
                for _ in 0..puts {
                    section.put(value.clone()).await?;
                }
                one.puts = puts.into();
                "puts"
            }
            Work::Pipelined(puts) => {
                section.put_all(vec![value.clone(); puts as usize]).await?;
                one.puts = puts.into();
                "puts"
            }
            _ => {
                section.put(value.clone()).await?;
                one.puts = 1;
                "put"
            }
        };
        one.steps.push((step, begun.elapsed().as_secs_f64() * 1e3));
        Ok(())
    }
}

/// YCSB's zipfian choice, without its scrambling: rank 0 is the favourite.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    /// Up to each rank, the share of all.
    up_to: Arc<[f64]>,
}

impl Zipf {
    pub(super) fn new(keys: u32) -> Zipf {
        let weight = |rank: u32| f64::from(rank + 1).powf(-0.99);
        let all: f64 = (0..keys).map(weight).sum();
        let mut sum = 0.0;
        let up_to = (0..keys).map(|rank| {
            sum += weight(rank) / all;
            sum
        });
        Zipf {
            up_to: up_to.collect(),
        }
    }

    fn rank(&self, chance: f64) -> usize {
        let rank = self.up_to.partition_point(|share| *share < chance);
        rank.min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zipfian_choice_has_its_favourite() {
        let zipf = Zipf::new(100);
        assert_eq!(zipf.rank(0.0), 0);
        assert_eq!(zipf.rank(1.0), 99);
        // 1 of the 100th harmonic number of order 0.99.
        assert_eq!(zipf.rank(0.18), 0);
        assert!(zipf.rank(0.21) > 0);
    }
}
