//! A linearizable read that waits for no holder.
//!
//! **Problem.** [`Client::read`] of a section key is a shared section of its own: while somebody
//! holds the key exclusively, it waits. Who only looks wants what has been acknowledged so far. The
//! protocol has no such operation: an eventual get says nothing of the value's tag, and a critical
//! get is the holder's.
//!
//! **Idea.** Where nobody holds the key, it is that read. Else this client asks the members itself:
//! which tag each has (a *look*), one of them for the value, and for the tags again.
//!
//! **Invariants.**
//! * B1 No put acknowledged before the read began is above the *least* tag: the highest one of the
//!   first look, which has a quorum's answers, that those who did not answer could have made one of
//!   a quorum. What fewer have was told to nobody.
//! * B2 The value is asked of a member that shows that tag or a higher one, so it is of a tag from
//!   there up to the one that the member shows in a later look: a member's tag never falls.
//! * B3 The value is returned once a quorum shows that later tag, or a higher put of its section.
//!   Whoever reads afterwards finds no older one: neither a read nor the synch of a next holder. A
//!   synch stands for no lower one, since two attempts may differ in what they carry (F4).
//! * B4 Nothing is written: the holder is not disturbed, and no put is completed that its own
//!   client has not completed. Where one is stuck, and a member that would tell whether it has a
//!   quorum is down, the read is unavailable until the holder's lease is over.

use crate::client::{Client, new_secret};
use crate::error::Error;
use crate::link;
use bytes::Bytes;
use fermata_api::v1;
use fermata_protocol::Code;
use fermata_protocol::base::{StoragePolicy, Tag};
use fermata_protocol::request::{Inspection, Mode, Refusal};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// Between two questions to the same nodes.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a look waits at most for more than a quorum.
const GRACE_MAX: Duration = Duration::from_secs(1);

/// The tags of a quorum or more, by index in [`Client::nodes`] of the member that has it.
type Look = BTreeMap<usize, Tag>;

/// How many members keep a key.
#[derive(Clone, Copy)]
struct Members(usize);

impl Members {
    fn quorum(self) -> usize {
        self.0 / 2 + 1
    }

    /// The highest tag that may be at a quorum (B1).
    fn least(self, look: &Look) -> Option<Tag> {
        let mut tags: Vec<Tag> = look.values().copied().collect();
        tags.sort_unstable_by(|one, other| other.cmp(one));
        let silent = self.0.saturating_sub(tags.len());
        tags.get((self.quorum() - 1).saturating_sub(silent))
            .copied()
    }
}

impl Client {
    /// Linearizable read that waits for no holder of the key: the latest value that was
    /// acknowledged, or one whose put is being acknowledged. Where nobody holds the key it is
    /// [`Client::read`], and so it is in keyspaces with coded storage, and on other engines than
    /// the native one, where it does wait. Beside a holder the client itself must reach a majority
    /// of the key's nodes. An eventual put that came beside a holder may be seen before it.
    ///
    /// # Errors
    /// As [`Client::get`], without `WrongPurpose`.
    pub async fn read_beside(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>, Error> {
        let key = key.as_ref();
        let mut read = std::pin::pin!(self.read(keyspace, key));
        let mut held = self.is_held(keyspace, key).await?;
        loop {
            if held {
                let Some(members) = self.members(keyspace).await? else {
                    return read.await;
                };
                let beside = self.beside(keyspace, key, members);
                match tokio::time::timeout(self.shared.patience, beside).await {
                    Ok(Some(value)) => return Ok(value),
                    Ok(None) => {}
                    Err(_) => return Err(no_agreement()),
                }
            }
            tokio::select! {
                value = &mut read => return value,
                () = self.held(keyspace, key) => held = true,
            }
        }
    }

    /// Until somebody holds the key exclusively, as far as one can see.
    async fn held(&self, keyspace: &str, key: &[u8]) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Ok(true) = self.is_held(keyspace, key).await {
                return;
            }
        }
    }

    async fn is_held(&self, keyspace: &str, key: &[u8]) -> Result<bool, Error> {
        match self.queue(keyspace, key).await {
            Ok((entries, _)) => {
                let head = entries.first();
                Ok(head.is_some_and(|head| head.holds && head.mode == Mode::Exclusive))
            }
            // A register keyspace: nobody holds anything.
            Err(error) if error.code() == Code::WrongPurpose => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many members keep any key of a keyspace; none where the rules here do not hold.
    async fn members(&self, keyspace: &str) -> Result<Option<Members>, Error> {
        let keyspaces = self.keyspaces().await?;
        let storage = keyspaces.into_iter().find(|known| known.name == keyspace);
        let whole = storage.is_some_and(|known| known.storage == StoragePolicy::Replicated);
        let sizes = self.status(None).await?.group_sizes;
        // Of a smaller group more than a majority is asked for, which is as good.
        let largest = sizes.into_iter().max().filter(|_| whole);
        Ok(largest.map(|members| Members(members.into())))
    }

    /// None: nobody holds the key any more.
    async fn beside(&self, keyspace: &str, key: &[u8], members: Members) -> Option<Option<Bytes>> {
        let (mut least, mut grace) = (None, Duration::ZERO);
        loop {
            let look = self.look((keyspace, key), members, grace).await;
            // A later one, with more answers, may show that the first was too careful.
            least = match (least, members.least(&look)) {
                (Some(least), Some(now)) if now < least => Some(now),
                (least, now) => least.or(now),
            };
            let enough = look.iter().filter(|(_, tag)| Some(**tag) >= least);
            if let Some((node, tag)) = enough.min_by_key(|(_, tag)| **tag)
                && let Some(value) = self.value_at(*node, keyspace, key).await
                && self
                    .is_complete((keyspace, key), (*node, *tag), members)
                    .await
            {
                return Some(value);
            }
            tokio::time::sleep(PAUSE).await;
            grace = (grace * 2).clamp(PAUSE, GRACE_MAX);
            if let Ok(false) = self.is_held(keyspace, key).await {
                return None;
            }
        }
    }

    /// Whether what `node` told after it had shown `from` may be returned (B2, B3).
    async fn is_complete(
        &self,
        of: (&str, &[u8]),
        (node, from): (usize, Tag),
        members: Members,
    ) -> bool {
        let mut through = None;
        // As many as one holder's put may take to be stored everywhere.
        for _ in 0..4 {
            let look = self.look(of, members, PAUSE).await;
            through = through.or(look.get(&node).copied());
            let Some(through) = through else { continue };
            if through != from && !is_put_above(through, from) {
                return false;
            }
            let covers = |tag: &&Tag| **tag == through || is_put_above(**tag, through);
            if look.values().filter(covers).count() >= members.quorum() {
                return true;
            }
        }
        false
    }

    /// What a quorum of the key's members has, each asked at its own node, and whoever else answers
    /// within `grace`. Nothing where too few are in reach: whoever waits for them has a bound.
    async fn look(
        &self,
        (keyspace, key): (&str, &[u8]),
        members: Members,
        grace: Duration,
    ) -> Look {
        let mut asked = JoinSet::new();
        for index in 0..self.nodes().len() {
            let (client, keyspace, key) = (self.clone(), keyspace.to_owned(), key.to_vec());
            asked.spawn(async move { client.inspect(&keyspace, key, Some(index)).await });
        }
        let mut told: Vec<Inspection> = Vec::new();
        let mut until = None;
        while told.len() < members.0 {
            let next = match until {
                None => asked.join_next().await,
                Some(until) => match tokio::time::timeout_at(until, asked.join_next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            let Some(answer) = next else { break };
            let Ok(Ok(answer)) = answer else { continue };
            // A node that is no member asks one, and answers of two epochs are never added.
            let store = |told: &Inspection| (told.segment, told.epoch);
            told.retain(|other| other.node != answer.node && store(other) == store(&answer));
            told.push(answer);
            if told.len() >= members.quorum() {
                until = until.or(Some(tokio::time::Instant::now() + grace));
            }
        }
        if told.len() < members.quorum() {
            return Look::new();
        }
        let nodes = self.nodes();
        let at = |of: &Inspection| nodes.iter().position(|node| node.name == Some(of.node));
        let found = told.iter().filter_map(|of| Some((at(of)?, of.tag)));
        found.collect()
    }

    /// What the member at a node has. Its node asks it before any other.
    async fn value_at(&self, node: usize, keyspace: &str, key: &[u8]) -> Option<Option<Bytes>> {
        let endpoint = self.dial().endpoint(&self.nodes()[node].endpoint).ok()?;
        let request = v1::GetRequest {
            header: Some(v1::Header {
                secret: Bytes::copy_from_slice(&new_secret().ok()?.to_bytes()),
                number: 1,
                ..v1::Header::default()
            }),
            key: Some(v1::Key {
                keyspace: keyspace.to_owned(),
                key: Bytes::copy_from_slice(key),
            }),
        };
        let (channel, _) = self.dial().connect(&endpoint).await.ok()?;
        let bearer = self.dial().bearer().ok()?;
        let answer = link::stub(channel, bearer).get(request).await;
        Some(answer.ok()?.into_inner().value)
    }
}

/// Whether a tag is of a put, later than `other` in the same generation of the same section.
fn is_put_above(tag: Tag, other: Tag) -> bool {
    let generation = |tag: Tag| (tag.lock_ref, tag.sequence / Tag::sequence(1, 0));
    let is_put = !tag.sequence.is_multiple_of(Tag::sequence(1, 0));
    is_put && tag > other && generation(tag) == generation(other)
}

fn no_agreement() -> Error {
    let detail = "The key is held, and no majority of its nodes tells of the same value.";
    Refusal::definite(Code::Unavailable, detail).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{LockRef, SessionId};

    fn put(lock_ref: u64, generation: u32, number: u64) -> Tag {
        Tag::critical(LockRef(lock_ref), generation, number, SessionId(7))
    }

    #[test]
    fn what_may_be_at_a_majority_is_the_least_that_a_read_returns() {
        let (old, new) = (put(1, 0, 1), put(2, 0, 1));
        let least = |tags: &[Tag]| {
            let look = tags.iter().copied().enumerate().collect();
            Members(3).least(&look)
        };
        assert_eq!(least(&[new, old]), Some(new), "the third may have it, too");
        assert_eq!(least(&[new, old, old]), Some(old), "nobody was told of it");
        assert_eq!(least(&[new, new, old]), Some(new));
        assert_eq!(least(&[old, old]), Some(old));
        assert_eq!(least(&[]), None);
        let five = [new, new, old, old].into_iter().enumerate().collect();
        assert_eq!(Members(5).least(&five), Some(new));
        let all = [new, new, old, old, old].into_iter().enumerate().collect();
        assert_eq!(Members(5).least(&all), Some(old));
    }

    #[test]
    fn only_a_later_put_of_the_same_generation_stands_for_one() {
        let synch = Tag {
            sequence: Tag::sequence(1, 0),
            ..put(2, 1, 1)
        };
        assert!(is_put_above(put(2, 0, 2), put(2, 0, 1)));
        assert!(is_put_above(put(2, 1, 1), synch), "a synch came before it");
        assert!(!is_put_above(put(2, 0, 1), put(2, 0, 1)));
        assert!(!is_put_above(put(2, 1, 1), put(2, 0, 5)), "resumed");
        assert!(!is_put_above(put(3, 0, 1), put(2, 0, 1)), "the next holder");
        assert!(!is_put_above(synch, put(2, 0, 1)), "an attempt of a synch");
    }
}
