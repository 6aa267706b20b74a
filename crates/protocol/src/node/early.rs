//! What comes a little too early: asks for a store that begins with a segment's next log, and
//! questions for a primary from those who take this node for one before it leads.
//!
//! **Problem.** Where a log ends, and where an election is under way, nodes learn of it one after
//! the other. A coordinator without a seat hears of the next epoch from the first member that has
//! sealed, and asks members that have yet to learn that the last one is over. Refused, it pauses:
//! it cannot know for how long.
//!
//! **Idea.** An ask for a store that is to come is kept, and answered when the store is here. After
//! half a retry time it is judged as any other, hence refused. A question for a primary is refused
//! at once, for another node may lead; but whoever asked is told when this node does.
//!
//! Nothing depends on it: what is kept is bounded, in pieces and in bytes, and volatile. What does
//! not fit is refused, which costs a pause. To the protocol an ask that was kept is a message that
//! was slow: each is answered in a step of its own, for a step does not read what it has written.

use super::agenda::Room;
use super::logs::env;
use super::topology::AtSegment;
use super::{Here, Node, Step};
use crate::base::{Bug, KeyId, Micros, NodeName, SegmentId};
use crate::lock;
use crate::register::{Ask, StoreId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Asks that are kept.
const ASKS: usize = 64;
/// Nodes that are to be told who leads a segment; and segments.
const ASKERS: usize = 64;
const SEGMENTS: usize = 1_024;

/// An ask for a store that is not here yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EarlyAsk {
    pub(super) from: NodeName,
    pub(super) call: u64,
    pub(super) store: StoreId,
    pub(super) key: KeyId,
    pub(super) ask: Ask,
}

impl EarlyAsk {
    fn bytes(&self) -> usize {
        self.ask.bytes() + self.key.key.len()
    }
}

/// What has come too early.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// With the time when each came, the oldest first.
    asks: VecDeque<(Micros, EarlyAsk)>,
    /// Those whose store is here, or that have waited for long enough.
    ready: VecDeque<EarlyAsk>,
    /// Bytes of both.
    bytes: usize,
    askers: BTreeMap<SegmentId, BTreeSet<NodeName>>,
}

impl Early {
    /// Keeps an ask; hands it back where there is no room.
    fn keep(&mut self, ask: EarlyAsk, now: Micros, room: usize) -> Option<EarlyAsk> {
        let (pieces, bytes) = (self.asks.len() + self.ready.len(), ask.bytes());
        if pieces >= ASKS || self.bytes + bytes > room {
            return Some(ask);
        }
        self.bytes += bytes;
        self.asks.push_back((now, ask));
        None
    }

    /// Whether a copy of this ask is kept.
    fn keeps(&self, ask: &EarlyAsk) -> bool {
        let mut kept = self.asks.iter().map(|(_, kept)| kept).chain(&self.ready);
        kept.any(|kept| kept == ask)
    }

    /// The asks of which this is true are to be answered.
    fn release(&mut self, mut which: impl FnMut(Micros, &EarlyAsk) -> bool) {
        let asks = core::mem::take(&mut self.asks).into_iter();
        let (ready, kept) = asks.partition::<VecDeque<_>, _>(|(at, ask)| which(*at, ask));
        self.ready.extend(ready.into_iter().map(|(_, ask)| ask));
        self.asks = kept;
    }

    /// The next ask that is to be answered.
    pub(super) fn next(&mut self) -> Option<EarlyAsk> {
        let ask = self.ready.pop_front()?;
        self.bytes -= ask.bytes();
        Some(ask)
    }

    /// When there is something to answer: at once, if there is, or when the oldest has waited for
    /// long enough.
    pub(super) fn wake(&self, patience: Micros) -> Option<Micros> {
        match self.ready.is_empty() {
            true => self.asks.front().map(|(at, _)| at + patience),
            false => Some(0),
        }
    }

    /// A node was told that nobody leads a segment here.
    pub(super) fn note_asker(&mut self, segment: SegmentId, from: NodeName) {
        if self.askers.len() >= SEGMENTS {
            self.askers.clear();
        }
        let askers = self.askers.entry(segment).or_default();
        if askers.len() < ASKERS {
            askers.insert(from);
        }
    }
}

impl Here {
    /// Whether a store may come to be here that is not yet.
    fn is_to_come(&self, store: StoreId) -> bool {
        let room = Room::Segment(store.segment);
        let own = self.segments.get(&store.segment);
        let own = own.map(|segment| segment.place.store.epoch);
        let own = own.or_else(|| self.retired.get(&room).copied());
        let location = self.directory.location_of(store.segment);
        let beyond = location.is_some_and(|at| at.store() > store.epoch);
        own.unwrap_or_default() < store.epoch && !beyond
    }

    /// The stores of these segments may be here now.
    pub(super) fn release_early(&mut self, segments: &BTreeSet<SegmentId>) {
        let mut early = core::mem::take(&mut self.early);
        early
            .release(|_, ask| segments.contains(&ask.store.segment) && !self.is_to_come(ask.store));
        self.early = early;
    }

    /// For how long an ask is kept.
    pub(super) fn keeps_early_for(&self) -> Micros {
        self.config.timing.retry / 2
    }

    /// Keeps nothing for longer than that.
    pub(super) fn refuse_early(&mut self, step: &Step<'_>) {
        let (now, most) = (step.now.monotonic, self.keeps_early_for());
        self.early.release(|at, _| at + most <= now);
    }

    /// This node leads a segment: who has asked for its primary asks again.
    pub(super) fn tell_askers(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        for node in self.early.askers.remove(&segment).unwrap_or_default() {
            step.fx.promise(node, lock::Message::Leads { segment });
        }
    }
}

impl Node {
    /// Whether anything comes of an ask that has just arrived: of an eventual put once, wherever
    /// its store is (G16), and of a copy of what is kept nothing, not even a refusal.
    pub(super) fn takes(&mut self, asked: &EarlyAsk, step: &mut Step<'_>) -> bool {
        if self.here.early.keeps(asked) {
            return false;
        }
        let planted = self.here.config.planted.has(Bug::EarlyNameUntaken);
        if planted && self.here.is_to_come(asked.store) {
            return true;
        }
        let at = AtSegment::new(&self.here, asked.store);
        let mut cx = env(&self.here.config, step);
        let whence = (asked.call, asked.store);
        self.replica
            .takes(asked.from, whence, &asked.ask, &at, &mut cx)
    }

    /// Keeps an ask for a store that is to come; hands back any other.
    pub(super) fn keep_early(&mut self, ask: EarlyAsk, step: &Step<'_>) -> Option<EarlyAsk> {
        // An eventual get goes on at any other member.
        if matches!(ask.ask, Ask::EventualGet) || !self.here.is_to_come(ask.store) {
            return Some(ask);
        }
        let room = self.here.config.limits.window_bytes;
        self.here.early.keep(ask, step.now.monotonic, room)
    }

    /// Answers an ask that was kept: nothing else in this step.
    pub(super) fn answer_kept(&mut self, ask: EarlyAsk, step: &mut Step<'_>) {
        let all = self.here.config.planted.has(Bug::KeptAsksShareAStep);
        let mut next = Some(ask);
        while let Some(ask) = next.take() {
            self.on_ask(ask, step);
            next = all.then(|| self.here.early.next()).flatten();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Epoch, KeyspaceId};
    use alloc::vec;
    use bytes::Bytes;

    fn ask(epoch: u64, bytes: usize) -> EarlyAsk {
        EarlyAsk {
            from: NodeName(1),
            call: epoch,
            store: StoreId {
                segment: SegmentId(0),
                epoch: Epoch(epoch),
            },
            key: KeyId {
                keyspace: KeyspaceId(1),
                key: Bytes::from(vec![0; bytes]),
            },
            ask: Ask::Inspect,
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_taken_makes_room() {
        let mut early = Early::default();
        assert!(early.keep(ask(1, 60), 0, 100).is_none());
        assert!(early.keep(ask(2, 60), 0, 100).is_some(), "too many bytes");
        assert!(early.keep(ask(2, 40), 5, 100).is_none());
        early.release(|at, _| at < 5);
        assert!(early.keep(ask(3, 60), 5, 100).is_some(), "not answered yet");
        assert_eq!(early.next().map(|ask| ask.call), Some(1));
        assert!(early.next().is_none() && early.wake(5) == Some(10));
        for call in 3.. {
            if early.keep(ask(call, 0), 5, 100).is_some() {
                assert_eq!(early.asks.len(), ASKS);
                break;
            }
        }
        early.release(|_, _| true);
        assert!(early.keep(ask(3, 0), 5, 100).is_some(), "not answered yet");
        assert_eq!(core::iter::from_fn(|| early.next()).count(), ASKS);
        assert_eq!(early.bytes, 0);
    }

    #[test]
    fn who_is_told_who_leads_is_bounded() {
        let mut early = Early::default();
        for node in 0..2 * ASKERS as u32 {
            early.note_asker(SegmentId(0), NodeName(node));
        }
        assert_eq!(early.askers[&SegmentId(0)].len(), ASKERS);
        for segment in 0..2 * SEGMENTS as u32 {
            early.note_asker(SegmentId(segment), NodeName(1));
            assert!(early.askers.len() <= SEGMENTS);
        }
    }
}
