//! Listings: the keys of a keyspace, in order.
//!
//! **Problem.** The keys of a keyspace are spread over groups, and while members change over a
//! group's present stores and the earlier ones that are not empty yet. Of each a bounded list is
//! to be had.
//!
//! **Idea.** One member of each store is asked, the nearest that lives, as an eventual get asks one
//! replica: what it says may be as stale. The later store of a segment hides what the earlier one
//! has of a key, a delete, too. An answer tells all keys up to its last one, or all that there are;
//! those up to which every answer does are listed, and the others asked for anew if there is room
//! for more.

use super::desk::Desk;
use super::topology::KeyStore;
use super::{Client, Cx, Event, Job, Message, Step, refuse};
use crate::base::{Bug, Epoch, KeyId, KeyspaceId, Limits, Micros, SegmentId};
use crate::catalogue;
use crate::register::{KeyRange, Listed};
use crate::request::{Code, Refusal, Reply};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;

/// Keys in one listing at most.
const LISTED: u32 = 10_000;

/// A bounded number of keys: what a frame holds, however long they are.
pub(crate) fn bounded(limit: u32, limits: &Limits) -> u32 {
    limit.min(LISTED).min(limits.listed_keys() as u32)
}

/// The job of `Keys`.
pub(super) fn keys(
    keyspace: KeyspaceId,
    prefix: Bytes,
    after: Option<Bytes>,
    limit: u32,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    // What is stored may be longer than clients may name by now.
    let bound = cx.env.limits.key_most;
    if prefix.len() > bound || after.as_ref().is_some_and(|a| a.len() > bound) {
        let text = format!("prefix and after are at most {bound} bytes long, as any key is");
        return Err(Refusal::definite(Code::TooLarge, text));
    }
    if cx.topology.keyspace(keyspace).is_none() {
        return Err(catalogue::unknown(keyspace));
    }
    Ok(Box::new(Listing {
        range: KeyRange {
            keyspace,
            prefix,
            after,
            limit: bounded(limit, cx.env.limits),
            deleted: false,
        },
        attempt: 0,
        asked: BTreeMap::new(),
        found: Vec::new(),
        retry_at: Micros::MAX,
    }))
}

/// Asks a member of every store, and merges.
#[derive(Debug)]
struct Listing {
    /// What is still asked for.
    range: KeyRange,
    /// Which of the members of each store is asked.
    attempt: usize,
    asked: BTreeMap<u64, Asked>,
    /// All up to the range.
    found: Vec<Bytes>,
    retry_at: Micros,
}

#[derive(Debug)]
struct Asked {
    store: KeyStore,
    keys: Option<Vec<Listed>>,
}

impl Asked {
    fn has(&self, segment: Option<SegmentId>) -> bool {
        segment.is_some_and(|segment| self.store.segments.binary_search(&segment).is_ok())
    }
}

/// Where the present stores are.
fn present<'a>(stores: impl Iterator<Item = &'a KeyStore>) -> Vec<(Epoch, Option<SegmentId>)> {
    let present = stores.filter(|store| !store.past);
    present
        .map(|store| (store.epoch, store.segments.first().copied()))
        .collect()
}

impl Listing {
    /// Asks for the range, from the start where somebody has been silent.
    fn ask(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        self.forget(desk);
        self.retry_at = cx.after(cx.env.timing.retry);
        let mut stores = cx.topology.key_stores();
        if cx.env.planted.has(Bug::SourcesNotListed) {
            stores.retain(|store| !store.past);
        }
        for store in stores {
            let members = &store.members;
            let (Some(from), Some(to)) = (store.segments.first(), store.segments.last()) else {
                continue;
            };
            let Some(member) = members.get(self.attempt % members.len().max(1)) else {
                continue;
            };
            let call = desk.list(client.task);
            let question = Message::Keys {
                call,
                from: *from,
                to: *to,
                store: store.epoch,
                past: store.past,
                range: KeyRange {
                    deleted: store.over_past,
                    ..self.range.clone()
                },
            };
            cx.env.fx.send(*member, question);
            self.asked.insert(call, Asked { store, keys: None });
        }
        Step::Open
    }

    fn forget(&mut self, desk: &mut Desk) {
        for call in core::mem::take(&mut self.asked).into_keys() {
            desk.list_no_more(call);
        }
    }

    fn listed(
        &mut self,
        (call, mut keys): (u64, Vec<Listed>),
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        keys.truncate(self.range.limit as usize);
        if let Some(asked) = self.asked.get_mut(&call) {
            asked.keys = Some(keys);
        }
        if self.asked.values().any(|asked| asked.keys.is_none()) {
            return Step::Open;
        }
        let keyspace = self.range.keyspace;
        if cx.topology.keyspace(keyspace).is_none() {
            return Step::refuse(catalogue::unknown(keyspace));
        }
        let through = self.merge(cx);
        self.forget(desk);
        match through {
            Some(through) if self.range.limit > 0 => {
                self.range.after = Some(through);
                self.ask(client, desk, cx)
            }
            _ => Step::reply(Reply::Keys(core::mem::take(&mut self.found))),
        }
    }

    /// Finds the keys up to which all that were asked have told all that they have: up to which
    /// one, if there may be more.
    fn merge(&mut self, cx: &Cx<'_>) -> Option<Bytes> {
        let limit = self.range.limit as usize;
        let answers = self.asked.values();
        let cut = answers.filter_map(|asked| asked.keys.as_ref()?.get(limit.max(1) - 1));
        let through = cut.map(|last| &last.key).min().cloned();
        let mut latest: BTreeMap<&Bytes, (Epoch, bool)> = BTreeMap::new();
        for asked in self.asked.values() {
            for Listed { key, live } in asked.keys.iter().flatten() {
                let id = KeyId {
                    keyspace: self.range.keyspace,
                    key: key.clone(),
                };
                let told = through.as_ref().is_none_or(|through| key <= through);
                if !told || !asked.has(cx.topology.segment(&id)) {
                    continue;
                }
                let at = latest.entry(key).or_insert((asked.store.epoch, *live));
                let revives = cx.env.planted.has(Bug::DeletedIsListed) && *live;
                if at.0 < asked.store.epoch || revives {
                    *at = (asked.store.epoch, *live);
                }
            }
        }
        let live = latest.into_iter().filter(|(_, (_, live))| *live);
        let live: Vec<Bytes> = live.map(|(key, _)| key.clone()).take(limit).collect();
        self.range.limit -= live.len() as u32;
        self.found.extend(live);
        through
    }
}

impl Job for Listing {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.ask(client, desk, cx),
            Event::Keys { call, keys } => self.listed((call, keys), client, desk, cx),
            Event::Timer if cx.env.now.monotonic >= client.deadline => {
                Step::refuse(refuse::unavailable("the listing", false))
            }
            Event::Timer if cx.env.now.monotonic >= self.retry_at => {
                self.attempt += 1;
                self.ask(client, desk, cx)
            }
            // Whoever was asked for a store that is not the present one any more is silent.
            Event::News => {
                let asked = self.asked.values().map(|asked| &asked.store);
                match present(asked) == present(cx.topology.key_stores().iter()) {
                    true => Step::Open,
                    false => self.ask(client, desk, cx),
                }
            }
            Event::Cancelled => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn awaits(&self, segment: SegmentId) -> bool {
        self.asked.values().any(|asked| asked.has(Some(segment)))
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        Some(self.retry_at.min(client.deadline))
    }

    fn close(&mut self, _client: &Client, desk: &mut Desk) {
        self.forget(desk);
    }
}
