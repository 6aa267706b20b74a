//! One section as its holder knows it: its refs, its writes, its leases, the order of its
//! operations.

use super::call::{Endpoint, SectionId};
use super::operation::Kind;
use super::writes::Account;
use crate::base::{KeyId, Micros, Planted, SessionId};
use crate::request::{Held, Leaving, Mode};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

/// Where a section is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not entered yet.
    Waiting,
    /// Entered.
    Held,
    /// Taking its last write, which leaves it: no new operations, but heartbeats still.
    Leaving,
    /// Left, or lost: it takes no new operations, and goes when its last one has ended.
    Over,
}

/// Heartbeats are no more frequent than for a lease of this length.
pub(super) const SHORTEST_LEASE: Micros = 30_000;

/// One key of a section.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// The ref, once known.
    pub(super) held: Option<Held>,
    /// The value at entry, at the last quorum get or of the highest acknowledged write, whichever
    /// is the latest.
    pub(super) known: Option<Option<Bytes>>,
    /// By this client's clock; nothing is promised from then on.
    pub(super) lease_until: Micros,
    /// Open gets, by request number.
    pub(super) gets: BTreeSet<u64>,
    /// Open writes: request number to write number.
    pub(super) puts: BTreeMap<u64, u64>,
}

/// What a critical get finds when its turn comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Something issued earlier must end first.
    Wait,
    /// Now.
    Go,
    /// Never: an earlier write of the key has no known outcome.
    Doubt,
}

/// One section.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) mode: Mode,
    pub(super) stage: Stage,
    /// The session was told of the grant. Before that a synch in the section's name may be in
    /// flight.
    pub(super) entered: bool,
    pub(super) keys: BTreeMap<KeyId, Key>,
    /// The account of its writes.
    pub(super) account: Account<KeyId>,
    /// All open operations, by request number.
    pub(super) open: BTreeSet<u64>,
    /// Those of them that wait for others.
    pub(super) blocked: BTreeSet<u64>,
    /// The request that enters, while the section waits between polls.
    pub(super) polled: Option<(u64, Micros)>,
    /// Where the entering request stays open for a loss to be pushed.
    pub(super) follow: Option<(u64, Endpoint)>,
    /// The lease asked for, and how long it is as far as known.
    pub(super) asked: Option<Micros>,
    pub(super) lease: Micros,
    /// When the next heartbeat is due.
    pub(super) renew_at: Micros,
    /// When to warn that the lease has run out; none once warned.
    pub(super) warn_at: Option<Micros>,
    /// Where its entry in the session's timers is.
    pub(super) timer: Option<Micros>,
}

impl Section {
    pub(super) fn new(mode: Mode, asked: Option<Micros>, assumed: Micros, now: Micros) -> Section {
        let lease = asked.unwrap_or(assumed).max(SHORTEST_LEASE);
        Section {
            mode,
            stage: Stage::Waiting,
            entered: false,
            keys: BTreeMap::new(),
            account: Account::default(),
            open: BTreeSet::new(),
            blocked: BTreeSet::new(),
            polled: None,
            follow: None,
            asked,
            lease,
            renew_at: now.saturating_add(lease / 3),
            warn_at: None,
            timer: None,
        }
    }

    /// All refs known so far, in key order.
    pub(super) fn held(&self) -> Vec<Held> {
        self.keys.values().filter_map(|k| k.held.clone()).collect()
    }

    /// Whether heartbeats keep it alive: until it is over, and has a ref.
    pub(super) fn lives(&self) -> bool {
        self.stage != Stage::Over && self.keys.values().any(|k| k.held.is_some())
    }

    /// Takes over refs that a node names; foreign keys and older generations are ignored.
    pub(super) fn learn(&mut self, refs: &[Held]) {
        for held in refs {
            if let Some(key) = self.keys.get_mut(&held.key) {
                let newer = key
                    .held
                    .as_ref()
                    .is_none_or(|old| old.generation <= held.generation);
                if newer {
                    key.held = Some(held.clone());
                }
            }
        }
    }

    /// An operation was issued.
    pub(super) fn issue(&mut self, number: u64, kind: &Kind) {
        self.open.insert(number);
        match kind {
            Kind::Get { key, .. } => {
                if let Some(key) = self.keys.get_mut(key) {
                    key.gets.insert(number);
                }
            }
            Kind::Write { key, write, .. } => {
                if let Some(key) = self.keys.get_mut(key) {
                    key.puts.insert(number, *write);
                }
            }
            _ => {}
        }
    }

    /// An operation has ended.
    pub(super) fn conclude(&mut self, number: u64, kind: &Kind) {
        self.open.remove(&number);
        self.blocked.remove(&number);
        if let Kind::Get { key, .. } | Kind::Write { key, .. } = kind
            && let Some(key) = self.keys.get_mut(key)
        {
            key.gets.remove(&number);
            key.puts.remove(&number);
        }
    }

    /// Whether it is the turn of an operation issued under `number`.
    pub(super) fn turn(&self, number: u64, kind: &Kind) -> Turn {
        let wait_if = |wait| if wait { Turn::Wait } else { Turn::Go };
        match kind {
            Kind::Get { key, before, .. } => {
                let (Some(own), Some(writes)) = (self.keys.get(key), self.account.of(key)) else {
                    return Turn::Go;
                };
                let latest = own.puts.range(..number).next_back();
                if latest.is_some_and(|(_, write)| *write > writes.acknowledged()) {
                    Turn::Wait
                } else if writes.settled_before(*before) {
                    Turn::Go
                } else {
                    Turn::Doubt
                }
            }
            Kind::Write { key, leaves, .. } => {
                let Some(own) = self.keys.get(key) else {
                    return Turn::Go;
                };
                if own.gets.first().is_some_and(|get| *get < number) {
                    return Turn::Wait;
                }
                let other = |open: &u64| !own.puts.contains_key(open);
                wait_if(*leaves && self.open.range(..number).any(other))
            }
            Kind::Leave { .. } => wait_if(self.open.range(..number).next().is_some()),
            Kind::Enter { .. } | Kind::Renew { .. } | Kind::Plain | Kind::Once => Turn::Go,
        }
    }

    /// How every key with a ref is left now, for a leave of the whole section. The key in `except`
    /// is no longer ours.
    pub(super) fn leaving(
        &self,
        session: SessionId,
        planted: Planted,
        except: Option<&KeyId>,
    ) -> Vec<(Held, Leaving)> {
        self.keys
            .iter()
            .filter(|(name, _)| Some(*name) != except)
            .filter_map(|(name, key)| {
                let held = key.held.clone()?;
                let own = (held.lock_ref, held.generation);
                let how = match self.entered {
                    true => self.account.leaving(name, own, session, planted),
                    false => Leaving::Dirty,
                };
                Some((held, how))
            })
            .collect()
    }

    /// When the session must look at it next.
    pub(super) fn due(&self) -> Micros {
        if self.lives() {
            self.renew_at.min(self.warn_at.unwrap_or(Micros::MAX))
        } else {
            Micros::MAX
        }
    }
}

/// A section for whoever wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// Its name in the session.
    pub id: SectionId,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Entered, and neither left nor lost.
    pub holds: bool,
    /// Its refs, as far as known, in key order.
    pub held: Vec<Held>,
    /// Until when its leases last on all keys, by the session's boot-time clock; 0: no lease.
    pub lease_until: Micros,
}

impl Section {
    pub(super) fn info(&self, id: SectionId) -> SectionInfo {
        SectionInfo {
            id,
            mode: self.mode,
            holds: self.stage == Stage::Held,
            held: self.held(),
            lease_until: self.lease_until(),
        }
    }

    /// Until when all keys are leased.
    pub(super) fn lease_until(&self) -> Micros {
        self.keys.values().map(|k| k.lease_until).min().unwrap_or(0)
    }
}
