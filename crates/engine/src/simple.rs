//! Requests outside sections: eventual reads and writes, single linearizable ones, listings.

use crate::cells::{Critical, Eventual};
use crate::critical::tag_of;
use crate::engine::{Engine, failed};
use crate::enter::{Latest, leave_of};
use crate::planted::Bug;
use crate::scalar::Scalar;
use crate::service::Answers;
use crate::state::this_key;
use crate::store::{DataStore, LockStore, StoreError};
use bytes::Bytes;
use fermata_protocol::base::{Epoch, EventualTag, KeyId, KeyspaceId, Purpose, SegmentId, Tag};
use fermata_protocol::lock::Outcome;
use fermata_protocol::request::{
    ClockStatus, Code, Held, Inspection, MovingStatus, NodeStatus, Operation, QueueEntry, Refusal,
    SecurityStatus, UpkeepStatus,
};
use fermata_protocol::{Reply, Request};
use std::sync::Arc;

/// Keys in one listing.
const LISTED: usize = 10_000;

impl<L: LockStore, D: DataStore> Engine<L, D> {
    /// What the nearest replica has.
    pub(crate) async fn get(&self, key: &KeyId) -> Result<Reply, Refusal> {
        self.checked(key, Some(Purpose::Sections)).await?;
        let cells = self.data.read_near(key).await;
        let latest = Latest::of(cells.map_err(|e| failed("the get", &e, false))?);
        let tag = tag_of(&latest);
        let value = latest.value;
        Ok(Reply::Value { value, tag })
    }

    /// Writes at the nearest replica, unless the key is locked as far as that knows.
    pub(crate) async fn put(&self, key: &KeyId, value: Option<Bytes>) -> Result<Reply, Refusal> {
        let what = "the put";
        self.checked(key, Some(Purpose::Sections)).await?;
        self.value_fits(value.as_ref())?;
        let row = self.row(key);
        let (seen, cells) = tokio::join!(row.peek(), self.data.read_near(key));
        let seen = seen.map_err(|e| failed(what, &e, false))?;
        let cells = cells.map_err(|e| failed(what, &e, false))?;
        if !seen.is_idle() {
            // Its holder may be dead.
            row.watch();
            let text = "the put was refused: the key is locked, or its last section was not left \
                        cleanly; write in a section, or put again after a read";
            return Err(Refusal::definite(Code::Locked, text));
        }
        // The store orders eventual values by this alone: above what is here, even if a clock that
        // is ahead has made it.
        let known = match self.settings.planted.has(Bug::StampsByWall) {
            true => None,
            false => cells.eventual,
        };
        let tag = EventualTag {
            applied: seen.state().map_or(0, |state| state.position()),
            clock: self.stamp_above(known.map_or(0, |known| known.tag.clock)),
            node: self.settings.node,
            counter: 0,
        };
        let offered = self.data.offer(key, &Eventual { tag, value }).await;
        offered.map_err(|error| match error {
            StoreError::Refused(_) => failed(what, &error, false),
            // It is not done again: a second time it would be another put (G16).
            StoreError::Unknown(why) => Refusal::unknown(
                Code::Unavailable,
                format!(
                    "the put has no confirmation: {why}; it may have taken effect, or may still: \
                     get the key before you put it again"
                ),
            ),
        })?;
        Ok(Reply::Done { tag: None })
    }

    /// Reads by a section of its own.
    pub(crate) async fn read(
        self: &Arc<Self>,
        request: &Request,
        key: &KeyId,
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        let keyspace = self.checked(key, None).await?;
        let own = self.own_request(request, Operation::Read { key: key.clone() });
        let (alone, latest) = self.enter_alone(&own, key, &keyspace, answers).await?;
        self.leave_alone(&alone.held());
        alone.leaves();
        let tag = tag_of(&latest);
        let value = latest.value;
        Ok(Reply::Value { value, tag })
    }

    /// Writes by a section of its own (MUSIC's CP put).
    pub(crate) async fn write(
        self: &Arc<Self>,
        request: &Request,
        key: &KeyId,
        value: Option<Bytes>,
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        let what = "the write";
        let keyspace = self.checked(key, None).await?;
        self.value_fits(value.as_ref())?;
        if request.attempt > 0 {
            // Nothing tells what came of it before (G19).
            let text = "the write has no confirmation: it was sent before, and is never done \
                        twice; it may have taken effect, or may still: read the key before you \
                        write it again";
            return Err(Refusal::unknown(Code::Unavailable, text));
        }
        let own = self.own_request(request, Operation::Read { key: key.clone() });
        let (alone, _) = self.enter_alone(&own, key, &keyspace, answers).await?;
        let held = alone.held();
        let scalar = Scalar::of_put(held.lock_ref, held.generation, 1)?;
        let origin = EventualTag::of_section(held.lock_ref);
        let stored = self.store(key, scalar, &Critical { origin, value }).await;
        if let Err(error) = stored {
            // Left with its flag: the next section looks what came of it.
            return Err(failed(what, &error, false));
        }
        let tag = Tag::critical(held.lock_ref, held.generation, 1, own.session);
        let left = self.row(key).apply(left_clean(&held, Some(tag))).await;
        alone.leaves();
        let left = left.map_err(|e| failed(what, &e, true))?;
        match left.done {
            crate::state::Done::Command(Outcome::Left { .. }) => Ok(Reply::Done { tag: Some(tag) }),
            _ => Err(Refusal::past_unsure(what)),
        }
    }

    /// Leaves a section of the node's own that has written nothing; nobody waits for it.
    fn leave_alone(&self, held: &Held) {
        let (row, leave) = (self.row(&held.key), left_clean(held, None));
        // If it fails, the ref's lease ends it.
        tokio::spawn(async move { row.apply(leave).await });
    }

    /// The lowest keys that have a value, as replicas near by know them.
    pub(crate) async fn keys(
        &self,
        keyspace: KeyspaceId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Reply, Refusal> {
        let bound = self.settings.limits.key;
        if prefix.len() > bound || after.is_some_and(|after| after.len() > bound) {
            let text =
                format!("prefix and after are at most {bound} bytes long (limits.key_bytes)");
            return Err(Refusal::definite(Code::TooLarge, text));
        }
        self.keyspace(keyspace).await?;
        let limit = (limit as usize).min(LISTED);
        let (mut found, mut after) = (Vec::new(), after.map(<[u8]>::to_vec));
        while found.len() < limit {
            let wanted = limit - found.len();
            let page = self
                .data
                .keys(keyspace, prefix, after.as_deref(), wanted)
                .await;
            let page = page.map_err(|e| failed("the listing", &e, false))?;
            let last = page.keys.last().map(|(key, _)| key.to_vec());
            let full = page.keys.len() >= wanted;
            let live = |(key, cells)| Latest::of(cells).value.map(|_| key);
            found.extend(page.keys.into_iter().filter_map(live));
            if !full {
                break;
            }
            after = last;
        }
        Ok(Reply::Keys(found))
    }

    /// A key's queue.
    pub(crate) async fn queue(&self, key: &KeyId) -> Result<Reply, Refusal> {
        self.checked(key, Some(Purpose::Sections)).await?;
        let row = self.row(key);
        let seen = row.decide().await;
        let seen = seen.map_err(|e| failed("the listing", &e, false))?;
        let Some(state) = seen.state() else {
            return Ok(Reply::Queue {
                entries: Vec::new(),
                flag: None,
            });
        };
        let unwatched = self.settings.planted.has(Bug::QueueUnwatched);
        if state.refs().next().is_some() && !unwatched {
            // They may be dead, and whoever asks may come back only when they are gone.
            row.watch();
        }
        let entry = |(lock_ref, known, _): (_, &fermata_protocol::lock::Ref, _)| QueueEntry {
            lock_ref,
            generation: known.generation,
            session: known.session,
            mode: known.mode,
            site: known.origin.site,
            since: known.origin.since,
            holds: state.holds(lock_ref, known.generation),
            label: known.origin.label,
        };
        Ok(Reply::Queue {
            entries: state.refs().map(entry).collect(),
            flag: state.flag(),
        })
    }

    /// What the nearest replica holds of a key.
    pub(crate) async fn inspect(&self, key: &KeyId) -> Result<Reply, Refusal> {
        self.checked(key, None).await?;
        let row = self.row(key);
        let (seen, cells) = tokio::join!(row.peek(), self.data.read_near(key));
        let what = "the inspection";
        let seen = seen.map_err(|e| failed(what, &e, false))?;
        let cells = cells.map_err(|e| failed(what, &e, false))?;
        let critical = Latest::of_sections(cells.clone());
        Ok(Reply::Inspect(Inspection {
            node: self.settings.node,
            segment: SegmentId(0),
            epoch: Epoch::FIRST,
            tag: tag_of(&critical),
            fence: Tag::ZERO,
            bytes: critical.value.map(|value| value.len() as u64),
            eventual: cells.eventual.map(|eventual| eventual.tag),
            applied: seen.state().map_or(0, |state| state.position()),
        }))
    }

    /// This node's state. It has no logs and no peers: those are the stores'.
    pub(crate) fn status(&self) -> Reply {
        Reply::Status(Box::new(NodeStatus {
            node: self.settings.node,
            label: self.settings.label.clone(),
            site: self.settings.site,
            writable: true,
            clock: ClockStatus::default(),
            alive: Vec::new(),
            logs: Vec::new(),
            requests: 0,
            group_sizes: Vec::new(),
            settings: None,
            storage: Vec::new(),
            upkeep: Box::new(UpkeepStatus::default()),
            moving: MovingStatus::default(),
            closed: Box::default(),
            sessions: 0,
            security: SecurityStatus::default(),
            version: String::new(),
            held: Box::default(),
        }))
    }
}

fn left_clean(held: &Held, tag: Option<Tag>) -> crate::state::Step {
    let clean = vec![(this_key(), tag)];
    leave_of((held.lock_ref, held.generation), clean, false)
}
