//! Macro-steps: one logical operation touches a chosen subset; the rest arrives late, or never.

use crate::dice::Dice;
use crate::network::Parcel;
use fermata_protocol::base::{Ballot, KeyId, LogId, NodeName, SessionId, Slot, Tag};
use fermata_protocol::register::{Ask, Message as Register};
use fermata_protocol::{Message, lock, paxos};
use std::collections::BTreeMap;

/// One logical operation, as far as messages show it. Retries belong to the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    /// A write of one tag.
    Store(KeyId, Tag),
    /// A fenced read.
    Fence(KeyId, Tag),
    /// A read by one caller.
    Read(NodeName, u64),
    /// One slot in one ballot.
    Accept(LogId, Ballot, Slot),
    /// One attempt to lead.
    Prepare(LogId, Ballot),
    /// One command on its way to a primary.
    Submit(SessionId, u64),
}

#[derive(Clone, Debug)]
struct Fate {
    /// How likely a replica is touched, per cent.
    touches: u64,
    /// Which replicas are, as far as it was asked.
    touched: BTreeMap<NodeName, bool>,
    /// The rest is so late, microseconds; none: it never arrives.
    late: Option<u64>,
    /// Answers share the fate of the rest.
    mute: bool,
    /// Retries after this true time get through.
    until: u64,
}

/// The macro-steps of one world.
#[derive(Debug)]
pub struct Fates {
    dice: Dice,
    /// How many operations in a thousand are picked.
    pub per_mille: u64,
    /// Longest lateness, microseconds.
    pub late_max: u64,
    fates: BTreeMap<Deed, Option<Fate>>,
    /// Whose answers a call's are.
    calls: BTreeMap<(NodeName, u64), Deed>,
}

impl Fates {
    /// No operation is picked until `per_mille` is set.
    pub fn new(dice: Dice) -> Fates {
        Fates {
            dice,
            per_mille: 0,
            late_max: 8_000_000,
            fates: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// No operation is picked any more, and all retries get through.
    pub fn end(&mut self) {
        self.per_mille = 0;
        self.fates.clear();
        self.calls.clear();
    }

    /// What a fate says of a parcel: nothing, or that it is so late, or lost.
    pub fn judge(&mut self, now: u64, parcel: &Parcel) -> Option<Option<u64>> {
        if self.per_mille == 0 {
            return None;
        }
        let Parcel::Peer { from, to, message } = parcel else {
            return None;
        };
        if from.name == *to {
            return None;
        }
        if let Message::Register(Register::Answer { call, .. }) = message {
            let deed = self.calls.get(&(*to, *call))?;
            let fate = self.fates.get(deed)?.as_ref()?;
            return (fate.mute && now < fate.until).then_some(fate.late);
        }
        let deed = deed_of(from.name, message)?;
        if let Message::Register(Register::Ask { call, .. }) = message {
            self.calls.insert((from.name, *call), deed.clone());
        }
        if !self.fates.contains_key(&deed) {
            let fate = self.draw(now);
            self.fates.insert(deed.clone(), fate);
        }
        let fate = self.fates.get_mut(&deed)?.as_mut()?;
        let touches = fate.touches;
        let dice = &mut self.dice;
        let touched = *fate
            .touched
            .entry(*to)
            .or_insert_with(|| dice.chance(touches));
        (!touched && now < fate.until).then_some(fate.late)
    }

    fn draw(&mut self, now: u64) -> Option<Fate> {
        if self.dice.below(1000) >= self.per_mille {
            return None;
        }
        let late_max = self.late_max;
        let dice = &mut self.dice;
        Some(Fate {
            touches: [0, 30, 50, 70][dice.below(4) as usize],
            touched: BTreeMap::new(),
            late: dice.chance(60).then(|| 50_000 + dice.below(late_max)),
            mute: dice.chance(25),
            until: now + 200_000 + dice.below(late_max),
        })
    }
}

fn deed_of(from: NodeName, message: &Message) -> Option<Deed> {
    match message {
        Message::Register(Register::Ask { call, key, ask, .. }) => match ask {
            Ask::Store { tag, .. } => Some(Deed::Store(key.clone(), *tag)),
            Ask::Read {
                fence: Some(tag), ..
            } => Some(Deed::Fence(key.clone(), *tag)),
            Ask::Read { .. } => Some(Deed::Read(from, *call)),
            _ => None,
        },
        Message::Paxos { log, message } => match message {
            paxos::Message::Accept { ballot, slot, .. } => Some(Deed::Accept(*log, *ballot, *slot)),
            paxos::Message::Prepare { ballot, .. } => Some(Deed::Prepare(*log, *ballot)),
            _ => None,
        },
        Message::Lock(lock::Message::Submit { command, .. }) => {
            Some(Deed::Submit(command.session, command.number))
        }
        _ => None,
    }
}
