//! Transactions and snapshots of ledger keyspaces.

use crate::client::surprised;
use crate::{Client, Error};
use bytes::Bytes;
pub use fermata_protocol::base::Timestamp;
use fermata_protocol::client::{Call, Success};
use fermata_protocol::ledger::{Act, Compare, Part, Span, Transaction, Verdict, When};
pub use fermata_protocol::ledger::{Condition as Is, Done, Found, Relation, Versioned};
use std::time::Duration;

/// Keys of a range in a snapshot where none is said.
const LIMIT: u32 = 10_000;

/// A transaction that is carried out at once, at one moment, in one round trip: made by
/// [`Client::once`].
///
/// ```no_run
/// # async fn sell(client: &fermata_client::Client) -> Result<(), fermata_client::Error> {
/// use fermata_client::ledger::{Is, Relation};
/// let sold = client
///     .once("shop")
///     .when("s1/stock", Is::Number(Relation::AtLeast, 1))
///     .then(|acts| acts.add("s1/stock", -1).put("s1/order/7", "open"))
///     .or_else(|acts| acts.get("s1/stock"))
///     .commit()
///     .await?;
/// println!("{}", if sold.then { "sold" } else { "sold out" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is done before `commit`"]
pub struct Once<'a> {
    client: &'a Client,
    keyspace: String,
    transaction: Transaction,
}

/// What a branch of a transaction does, in order.
#[derive(Debug)]
#[must_use = "it says what is done"]
pub struct Acts<'a> {
    client: &'a Client,
    keyspace: &'a str,
    acts: Vec<Act>,
}

/// A transaction was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// When: its place in the order of all transactions, and the version of what it wrote.
    pub at: Timestamp,
    /// Whether all comparisons held, so that `then` was done.
    pub then: bool,
    /// One for each act of the branch, in order. None: what it read is not kept any more.
    pub done: Option<Vec<Done>>,
}

impl Committed {
    fn of(verdict: Verdict) -> Option<Committed> {
        match verdict {
            Verdict::Done { at, then, done } => Some(Committed { at, then, done }),
            Verdict::Refused(_) | Verdict::Void | Verdict::Never => None,
        }
    }
}

impl Client {
    /// A transaction on keys of a ledger keyspace, all of one tag.
    pub fn once<'a>(&'a self, keyspace: &str) -> Once<'a> {
        Once {
            client: self,
            keyspace: keyspace.to_owned(),
            transaction: Transaction::default(),
        }
    }

    /// Keys and ranges of a ledger keyspace as they were at one moment; the present, where no other
    /// is said.
    pub fn snapshot<'a>(&'a self, keyspace: &str) -> Reading<'a> {
        Reading {
            client: self,
            keyspace: keyspace.to_owned(),
            parts: Vec::new(),
            when: When::Now,
            limit: LIMIT,
        }
    }
}

impl<'a> Once<'a> {
    /// `then` is done only if this holds of a key.
    pub fn when(mut self, key: impl AsRef<[u8]>, condition: Is) -> Once<'a> {
        let key = self.client.key(&self.keyspace, key);
        self.transaction.compare.push(Compare { key, condition });
        self
    }

    /// What is done if all of that holds.
    pub fn then(mut self, acts: impl FnOnce(Acts<'_>) -> Acts<'_>) -> Once<'a> {
        let acts = self.acts(acts);
        self.transaction.then.extend(acts);
        self
    }

    /// What is done if not.
    pub fn or_else(mut self, acts: impl FnOnce(Acts<'_>) -> Acts<'_>) -> Once<'a> {
        let acts = self.acts(acts);
        self.transaction.or_else.extend(acts);
        self
    }

    fn acts(&self, acts: impl FnOnce(Acts<'_>) -> Acts<'_>) -> Vec<Act> {
        let empty = Acts {
            client: self.client,
            keyspace: &self.keyspace,
            acts: Vec::new(),
        };
        acts(empty).acts
    }

    /// Carries it out. It is repeated until its outcome is known: it takes effect once.
    ///
    /// # Errors
    /// As [`Client::get`]; `OutOfBounds` where a number would leave its bounds; `Conflict` where
    /// others have overtaken it each time. All of these changed nothing. After `Unavailable` and
    /// `NoTime` [`Error::may_have_taken_effect`] says whether it may have.
    pub async fn commit(self) -> Result<Committed, Error> {
        match self
            .client
            .shared
            .call(Call::Transact(self.transaction))
            .await?
        {
            Success::Transacted(verdict) => Committed::of(verdict.clone())
                .ok_or_else(|| surprised(&Success::Transacted(verdict))),
            other => Err(surprised(&other)),
        }
    }
}

impl Acts<'_> {
    fn with(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    fn span(&self, prefix: impl AsRef<[u8]>) -> Span {
        let all = self.client.key(self.keyspace, prefix);
        Span::prefix(all.keyspace, &all.key)
    }

    /// Read a key: [`Done::Value`], of just before the transaction.
    pub fn get(self, key: impl AsRef<[u8]>) -> Self {
        let key = self.client.key(self.keyspace, key);
        self.with(Act::Get(key))
    }

    /// Write a key: [`Done::Put`].
    pub fn put(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        let (key, value) = (self.client.key(self.keyspace, key), value.into());
        self.with(Act::Put { key, value })
    }

    /// Delete a key, whether or not it is there: [`Done::Deleted`].
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        let key = self.client.key(self.keyspace, key);
        self.with(Act::Delete(key))
    }

    /// Add to a decimal number, which is 0 where the key is absent: [`Done::Added`].
    pub fn add(self, key: impl AsRef<[u8]>, by: i64) -> Self {
        self.add_within(key, by, None, None)
    }

    /// The same, and the whole transaction is refused (`OutOfBounds`) if the sum would be below
    /// `least` or above `most`.
    pub fn add_within(
        self,
        key: impl AsRef<[u8]>,
        by: i64,
        least: impl Into<Option<i64>>,
        most: impl Into<Option<i64>>,
    ) -> Self {
        let key = self.client.key(self.keyspace, key);
        let (least, most) = (least.into(), most.into());
        self.with(Act::Add {
            key,
            by,
            least,
            most,
        })
    }

    /// Read the first keys that begin so, at most 1,000: [`Done::Range`]. The prefix holds a tag
    /// and its mark.
    pub fn prefix(self, prefix: impl AsRef<[u8]>, limit: u32) -> Self {
        let span = self.span(prefix);
        self.with(Act::Range { span, limit })
    }

    /// Delete all keys that begin so, which are at most 1,000: [`Done::Deleted`].
    pub fn delete_prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        let span = self.span(prefix);
        self.with(Act::DeleteRange(span))
    }
}

/// What a snapshot is to have: made by [`Client::snapshot`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before `read`"]
pub struct Reading<'a> {
    client: &'a Client,
    keyspace: String,
    parts: Vec<Part>,
    when: When,
    limit: u32,
}

/// Keys and ranges as they were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The moment: a later snapshot [`at`](Reading::at) it shows the same.
    pub at: Timestamp,
    /// One for each key and prefix, in the order in which they were named.
    pub found: Vec<Found>,
}

impl Snapshot {
    /// The value of the `n`th part, which is a key.
    pub fn value(&self, n: usize) -> Option<&Versioned> {
        let (_, value) = self.found.get(n)?.keys.first()?;
        Some(value)
    }
}

impl<'a> Reading<'a> {
    /// A key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Reading<'a> {
        let key = self.client.key(&self.keyspace, key);
        self.parts.push(Part::Key(key));
        self
    }

    /// All keys that begin so; none has to be of one tag.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Reading<'a> {
        let all = self.client.key(&self.keyspace, prefix);
        let span = Span::prefix(all.keyspace, &all.key);
        let limit = self.limit;
        self.parts.push(Part::Range { span, limit });
        self
    }

    /// Of each prefix that is named from now on so many keys at most; else 10,000.
    pub fn limit(mut self, limit: u32) -> Reading<'a> {
        self.limit = limit;
        self
    }

    /// As it was at a moment that has passed.
    pub fn at(mut self, at: Timestamp) -> Reading<'a> {
        self.when = When::At(at);
        self
    }

    /// As it was not so long ago, or longer: the latest that the nearest replicas can show.
    pub fn within(mut self, staleness: Duration) -> Reading<'a> {
        let after = match self.when {
            When::Recent { after, .. } => after,
            When::Now | When::At(_) => Timestamp::default(),
        };
        let staleness = u64::try_from(staleness.as_micros()).unwrap_or(u64::MAX);
        self.when = When::Recent { staleness, after };
        self
    }

    /// The latest that the nearest replicas can show, and not before this: one's own last
    /// transaction.
    pub fn after(mut self, after: Timestamp) -> Reading<'a> {
        let staleness = match self.when {
            When::Recent { staleness, .. } => staleness,
            When::Now | When::At(_) => u64::MAX,
        };
        self.when = When::Recent { staleness, after };
        self
    }

    /// Reads. Where an answer holds no more, `more` is set: see [`Reading::read_all`].
    ///
    /// # Errors
    /// As [`Client::get`]; `NoTime` where the node does not know the cluster's time.
    pub async fn read(self) -> Result<Snapshot, Error> {
        let (parts, when) = (self.parts, self.when);
        match self
            .client
            .shared
            .call(Call::Snapshot { parts, when })
            .await?
        {
            Success::Snapshot { at, found } => Ok(Snapshot { at, found }),
            other => Err(surprised(&other)),
        }
    }

    /// Reads until nothing is missing, in as many answers as that takes, all of one moment.
    ///
    /// # Errors
    /// As [`Reading::read`].
    pub async fn read_all(self) -> Result<Snapshot, Error> {
        let mut all = self.clone().read().await?;
        for n in 0..self.parts.len() {
            while all.found[n].more
                && let Some((last, _)) = all.found[n].keys.last()
                && let Part::Range { span, limit } = &self.parts[n]
            {
                let left = limit.saturating_sub(all.found[n].keys.len() as u32);
                if left == 0 {
                    break;
                }
                let rest = Part::Range {
                    span: span.above(last),
                    limit: left,
                };
                let more = Reading {
                    parts: vec![rest],
                    when: When::At(all.at),
                    ..self.clone()
                };
                let mut more = more.read().await?;
                let more = more.found.pop().unwrap_or_default();
                all.found[n].more = more.more && !more.keys.is_empty();
                all.found[n].keys.extend(more.keys);
            }
        }
        Ok(all)
    }
}
