//! The records of segments at this node ([`crate::records`]): kept as their logs are applied,
//! filled where something is lacking, and given to others who lack it.
//!
//! What a message says is true of its sender at its position, whenever it comes: nothing is matched
//! with a question but by the place at which the fill stands.

use super::agenda::Room;
use super::following::PATIENCE;
use super::{Here, Step};
use crate::base::{Bug, Epoch, Micros, NodeName, Planted, SegmentId};
use crate::io::{Memory, Void};
use crate::ledger::Verdict;
use crate::records::{self, Change, Filling, Mark, Message, Standing, Work, last_of};
use crate::segment::SegmentState;
use crate::wire::record;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

/// Nodes that fill from here, for which changes are remembered; as many as a view has members.
const FILLERS: usize = 13;

/// Of a small state: the number of commands, and of the last that changed a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    commands: u64,
    recorded: u64,
}

impl At {
    pub(super) fn of(state: &SegmentState) -> At {
        At {
            commands: state.commands(),
            recorded: state.recorded(),
        }
    }
}

/// What was applied since what was changed was last asked for.
#[derive(Debug)]
struct Later {
    /// From this position on.
    above: u64,
    commands: Vec<(u64, Work)>,
    bytes: usize,
}

/// The records of one segment.
#[derive(Debug, Default)]
struct Held {
    standing: Standing,
    /// Its log has ended here.
    ended: Option<At>,
    /// None: nothing was asked, or it was more than is remembered.
    later: Option<Later>,
    /// Which of those who may have what is lacking is asked.
    turn: usize,
    /// When another one is.
    due: Micros,
    /// Who has refused since something came, and whether somebody has because it has forgotten what
    /// was changed.
    refused: (BTreeSet<NodeName>, bool),
    /// Who fills from here: since when it will ask, and until when that is remembered.
    fillers: BTreeMap<NodeName, (Mark, Micros)>,
    /// Members of the log of this epoch that have said that they have all records, and when.
    complete: (Epoch, BTreeMap<NodeName, Micros>),
    /// Nodes that keep an ended log of the segment.
    former: BTreeSet<NodeName>,
    /// Since when nothing here needs them.
    unused: Option<Micros>,
}

/// The records of all segments of which there are any.
#[derive(Debug, Default)]
pub(super) struct Records(BTreeMap<SegmentId, Held>);

impl Records {
    pub(super) fn recover(memory: &dyn Memory) -> Records {
        let held = |(segment, standing)| {
            let held = Held {
                standing,
                ..Held::default()
            };
            (segment, held)
        };
        Records(records::standings(memory).into_iter().map(held).collect())
    }
}

impl Here {
    /// How far the small state is beside which the records of a segment are: the latest that is
    /// here, for a member that slept may follow a later log beside its own.
    fn state_at(&self, segment: SegmentId) -> Option<At> {
        let room = self.segments.get(&segment);
        let own = room.map(|room| At::of(&room.state));
        let followed = self.followed(segment).map(At::of);
        let ended = self.records.0.get(&segment).and_then(|held| held.ended);
        let all = [own, followed, ended].into_iter().flatten();
        all.max_by_key(|at| at.commands)
    }

    /// Whether all records of a segment are here.
    pub(super) fn has_records(&self, segment: SegmentId) -> bool {
        let recorded = self.state_at(segment).map_or(0, |at| at.recorded);
        match self.records.0.get(&segment) {
            Some(held) => held.standing.is_full(recorded),
            None => recorded == 0,
        }
    }

    /// Does what a command does to records, unless it is done already, or has to wait for what is
    /// lacking: what it has changed, and what came of a command of a ledger. `before` is the number
    /// of the last one before it that may have changed a record.
    pub(super) fn record(
        &mut self,
        segment: SegmentId,
        (position, before): (u64, u64),
        work: Work,
        step: &mut Step<'_>,
    ) -> Option<(Vec<Change>, Option<Verdict>)> {
        let planted = self.config.planted;
        let held = self.records.0.entry(segment).or_default();
        if !held.standing.is_full(before) && !planted.has(Bug::ChangedBesideGap) {
            let room = self.config.limits.window_bytes;
            held.remember((position, before), work, (room, planted));
            return None;
        }
        if position <= held.standing.at && !planted.has(Bug::RecordsReplayed) {
            return None;
        }
        self.perform(segment, position, &work, step)
    }

    /// The same where nothing is lacking.
    fn perform(
        &mut self,
        segment: SegmentId,
        position: u64,
        work: &Work,
        step: &mut Step<'_>,
    ) -> Option<(Vec<Change>, Option<Verdict>)> {
        let planted = self.config.planted;
        let done = work.perform(&self.ledgers.reader(segment, step), planted);
        let (changes, verdict) = self.unless_damaged(segment, done, step)?;
        self.ledgers.fresh(segment).note(&changes);
        records::put(segment, position, changes.clone(), step.fx);
        let held = self.records.0.entry(segment).or_default();
        let before = held.standing.clone();
        held.standing.at = held.standing.at.max(position);
        match planted.has(Bug::PositionNotInBatch) {
            true => before.put(segment, step.fx),
            false => held.standing.put(segment, step.fx),
        }
        Some((changes, verdict))
    }

    /// A segment's log has ended here, with this state.
    pub(super) fn end_records(&mut self, segment: SegmentId, at: At) {
        if let Some(held) = self.records.0.get_mut(&segment) {
            held.ended = Some(at);
        }
    }

    /// A snapshot takes the place of a segment's entries: what they changed is forgotten, but for
    /// the latest, and for what somebody will ask for.
    pub(super) fn forget_changes(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let remembered = self.config.limits.changes;
        let Some(held) = self.records.0.get_mut(&segment) else {
            return;
        };
        let now = step.now.monotonic;
        held.fillers.retain(|_, (_, until)| *until > now);
        let asked = held.fillers.values().map(|(since, _)| since.0);
        let asked = asked.min().map(|position| position.saturating_sub(1));
        let floor = held.standing.at.saturating_sub(remembered);
        let floor = floor.min(asked.unwrap_or(u64::MAX));
        if floor > held.standing.floor && held.standing.filling.is_none() {
            held.standing.floor = floor;
            let (from, to) = record::changed_through(segment, floor);
            step.fx.delete_range(from, to);
            held.standing.put(segment, step.fx);
        }
    }

    /// Nobody needs this node's records of a segment.
    pub(super) fn drop_records(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        if self.records.0.remove(&segment).is_some() {
            let (from, to) = record::all_parts(segment);
            step.fx.delete_range(from, to);
        }
    }

    /// Asks for what is lacking, and drops what nothing here needs any more.
    pub(super) fn fill_on(&mut self, step: &mut Step<'_>) {
        let rooms = self.segments.iter();
        let own = rooms.filter(|(_, room)| room.state.recorded() > 0);
        let own = own.map(|(segment, _)| *segment);
        let all: BTreeSet<SegmentId> = self.followed_segments().chain(own).collect();
        let lacking = all.into_iter().filter(|s| !self.has_records(*s));
        let lacking: Vec<SegmentId> = lacking.collect();
        for segment in lacking {
            let held = self.records.0.entry(segment).or_default();
            if held.due <= step.now.monotonic {
                held.turn += 1;
                self.ask_records(segment, step);
            }
        }
        let unneeded: Vec<SegmentId> = self.records.0.keys().copied().collect();
        for segment in unneeded {
            let needed = self.needs_records(segment);
            let Some(held) = self.records.0.get_mut(&segment) else {
                continue;
            };
            let since = *held.unused.get_or_insert(step.now.monotonic);
            if needed {
                held.unused = None;
            } else if since + PATIENCE * self.config.timing.retry <= step.now.monotonic {
                self.drop_records(segment, step);
            }
        }
    }

    /// Whether there is a log here beside which the records are. Who waits for one without a word
    /// may never have it, and fills again if it does.
    pub(super) fn needs_records(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
            || self.closing.contains_key(&Room::Segment(segment))
            || self.followed(segment).is_some()
    }

    /// Who may have the records of a segment: its members, those of its earlier stores, and those
    /// that keep a log of it that has ended.
    fn may_have_records(&self, segment: SegmentId, step: &Step<'_>) -> Vec<NodeName> {
        let mut found = BTreeSet::new();
        if let Some(at) = self.directory.location_of(segment) {
            found.extend(at.group.view.nodes());
            let pasts = at.pasts(segment).iter();
            let views = pasts.filter_map(|past| at.view_of(past.epoch));
            found.extend(views.flat_map(|view| view.nodes().collect::<Vec<_>>()));
        }
        if let Some(held) = self.records.0.get(&segment) {
            found.extend(&held.former);
        }
        found.remove(&self.id.name);
        found.retain(|node| self.hears(*node, step));
        found.into_iter().collect()
    }

    fn ask_records(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let peers = self.may_have_records(segment, step);
        let Some(at) = self.state_at(segment).filter(|_| !peers.is_empty()) else {
            return;
        };
        let lagging = self.config.planted.has(Bug::PieceFromLaggard);
        let held = self.records.0.entry(segment).or_default();
        held.due = step.now.monotonic + self.config.timing.retry;
        let peer = peers[held.turn % peers.len()];
        let seen = held.standing.seen();
        let question = match (held.standing.since(), &held.standing.filling) {
            (None, Some(Filling { cursor, since, .. })) => Message::Fill {
                segment,
                from: cursor.clone().unwrap_or_else(record::first_part),
                since: *since,
                seen: if lagging { 0 } else { seen },
            },
            (since, _) => {
                held.later = Some(Later {
                    above: at.recorded,
                    commands: Vec::new(),
                    bytes: 0,
                });
                Message::Since {
                    segment,
                    since: since.unwrap_or_default(),
                    seen: seen.max(at.recorded),
                }
            }
        };
        step.fx.send(peer, question);
    }

    pub(super) fn on_records(&mut self, from: NodeName, message: Message, step: &mut Step<'_>) {
        if let Message::Fill { segment, .. } | Message::Since { segment, .. } = &message
            && let Some(held) = self.records.0.get_mut(segment)
        {
            // Who asks lacks something, whatever it has said before.
            if !self.config.planted.has(Bug::ChangedByLaggard) {
                held.complete.1.remove(&from);
            }
        }
        match message {
            Message::Fill {
                segment,
                from: first,
                since,
                seen,
            } => {
                let answer = self.piece(segment, &first, seen, step);
                if let Some(Message::Piece { position, .. }) = &answer {
                    let since = since.unwrap_or(last_of(*position));
                    self.note_filler(segment, from, since, step);
                }
                self.answer_filler(segment, from, answer, step);
            }
            Message::Since {
                segment,
                since,
                seen,
            } => {
                let answer = self.changes(segment, since, seen, step);
                if matches!(answer, Some(Message::Changes { .. })) {
                    self.note_filler(segment, from, since, step);
                }
                self.answer_filler(segment, from, answer, step);
            }
            Message::Piece {
                segment,
                from,
                to,
                records,
                position,
            } => self.on_piece(segment, (from, to), records, position, step),
            Message::Changes {
                segment,
                since,
                upto,
                records,
                position,
            } => self.on_changes(segment, (since, upto), records, position, step),
            Message::Refused { segment, forgotten } => {
                self.on_records_refused((from, segment), forgotten, step);
            }
            Message::Complete {
                segment,
                epoch,
                recorded,
            } => {
                let room = self.segments.get(&segment);
                let here = room.is_some_and(|room| room.log.id().epoch >= epoch);
                if here && self.answers_from(segment, recorded).is_some() {
                    step.fx
                        .promise(from, Message::IsComplete { segment, epoch });
                }
            }
            Message::IsComplete { segment, epoch } => {
                if let Some(held) = self.records.0.get_mut(&segment)
                    && held.complete.0 == epoch
                {
                    held.complete.1.insert(from, step.now.monotonic);
                }
            }
        }
    }

    /// The position of the records here, where these are all and this node is not below that one.
    /// Nothing was changed between it and the node's own: who is given these is not above a former
    /// member, whose log has ended.
    fn answers_from(&self, segment: SegmentId, seen: u64) -> Option<u64> {
        let held = self.records.0.get(&segment)?;
        let position = self.state_at(segment)?.commands.max(held.standing.at);
        (self.has_records(segment) && position >= seen).then_some(held.standing.at)
    }

    fn piece(
        &mut self,
        segment: SegmentId,
        from: &Bytes,
        seen: u64,
        step: &mut Step<'_>,
    ) -> Option<Message> {
        let position = self.answers_from(segment, seen)?;
        let room = self.config.limits.chunk;
        let piece = records::piece(segment, from, room, step.memory);
        let piece = self.unless_damaged(segment, piece, step)?;
        Some(Message::Piece {
            segment,
            from: from.clone(),
            to: piece.to,
            records: piece.records,
            position,
        })
    }

    fn changes(
        &mut self,
        segment: SegmentId,
        since: Mark,
        seen: u64,
        step: &mut Step<'_>,
    ) -> Option<Message> {
        let position = self.answers_from(segment, seen)?;
        if since < last_of(self.records.0.get(&segment)?.standing.floor) {
            return Some(Message::Refused {
                segment,
                forgotten: Some(since),
            });
        }
        let room = self.config.limits.chunk;
        let changed = records::changed(segment, since, room, step.memory);
        let changed = self.unless_damaged(segment, changed, step)?;
        Some(Message::Changes {
            segment,
            since,
            upto: changed.upto.unwrap_or(last_of(position)),
            records: changed.records,
            position,
        })
    }

    /// What is damaged here is filled again from others, and meanwhile given to nobody.
    pub(super) fn unless_damaged<T>(
        &mut self,
        segment: SegmentId,
        read: Result<T, Void>,
        step: &mut Step<'_>,
    ) -> Option<T> {
        if read.is_err() {
            self.fill_anew(segment, step);
        }
        read.ok()
    }

    fn fill_anew(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        if let Some(held) = self.records.0.get_mut(&segment) {
            held.standing = Standing::anew(held.standing.seen());
            held.standing.put(segment, step.fx);
            (held.later, held.refused) = (None, Default::default());
        }
    }

    fn note_filler(&mut self, segment: SegmentId, from: NodeName, since: Mark, step: &Step<'_>) {
        let now = step.now.monotonic;
        let until = now + PATIENCE * self.config.timing.retry;
        if let Some(held) = self.records.0.get_mut(&segment) {
            held.fillers.retain(|_, (_, until)| *until > now);
            if held.fillers.len() < FILLERS || held.fillers.contains_key(&from) {
                held.fillers.insert(from, (since, until));
            }
        }
    }

    fn answer_filler(
        &self,
        segment: SegmentId,
        to: NodeName,
        answer: Option<Message>,
        step: &mut Step<'_>,
    ) {
        let refused = Message::Refused {
            segment,
            forgotten: None,
        };
        step.fx.send(to, answer.unwrap_or(refused));
    }

    /// A range of records has come.
    fn on_piece(
        &mut self,
        segment: SegmentId,
        (from, to): (Bytes, Option<Bytes>),
        records: Vec<(Bytes, Bytes)>,
        position: u64,
        step: &mut Step<'_>,
    ) {
        let planted = self.config.planted;
        let full = self.has_records(segment);
        let Some(held) = self.records.0.get_mut(&segment).filter(|_| !full) else {
            return;
        };
        let seen = held.standing.seen();
        let within = |name: &Bytes| *name >= from && to.as_ref().is_none_or(|to| name < to);
        let Some(filling) = &mut held.standing.filling else {
            return;
        };
        let anywhere = planted.has(Bug::PieceFromAnywhere);
        let goes_on = filling.cursor.as_ref() == Some(&from) || anywhere;
        let next = goes_on && to.as_ref().is_none_or(|to| *to > from);
        let late = position < seen && !planted.has(Bug::PieceFromLaggard);
        if !next || late || !records.iter().all(|(name, _)| within(name)) {
            return;
        }
        let end = match &to {
            Some(to) => record::part(segment, to),
            None => record::parts(segment).1,
        };
        step.fx.delete_range(record::part(segment, &from), end);
        for (name, value) in records {
            let value = Some(value);
            records::set(segment, Change { name, value }, step.fx);
        }
        filling.cursor = to;
        filling.since = filling.since.or(Some(last_of(position)));
        filling.seen = filling.seen.max(position);
        if filling.cursor.is_none() && planted.has(Bug::FilledWithoutChanges) {
            held.standing = Standing {
                at: seen.max(position),
                floor: seen.max(position),
                filling: None,
            };
        }
        held.standing.put(segment, step.fx);
        self.ask_records(segment, step);
    }

    /// What was changed since some position has come.
    fn on_changes(
        &mut self,
        segment: SegmentId,
        (since, upto): (Mark, Mark),
        changes: Vec<Change>,
        position: u64,
        step: &mut Step<'_>,
    ) {
        let full = self.has_records(segment);
        let Some(held) = self.records.0.get_mut(&segment).filter(|_| !full) else {
            return;
        };
        let seen = held.standing.seen();
        let named = changes.iter().all(|c| c.name >= record::first_part());
        let elsewhere = held.standing.since() != Some(since)
            && !self.config.planted.has(Bug::ChangesFromAnywhere);
        if elsewhere || position < seen || upto < since || !named {
            return;
        }
        self.ledgers.fresh(segment).note(&changes);
        for change in changes {
            records::set(segment, change, step.fx);
        }
        let later = held
            .later
            .take_if(|later| upto == last_of(position) && later.above <= position);
        held.standing.filling = Some(Filling {
            cursor: None,
            since: Some(upto),
            seen: position,
        });
        if let Some(later) = later {
            let (from, through) = record::changed_through(segment, position);
            step.fx.delete_range(from, through);
            held.standing = Standing {
                at: position,
                floor: position,
                filling: None,
            };
            held.standing.put(segment, step.fx);
            let after = later.commands.into_iter().filter(|(at, _)| *at > position);
            for (at, work) in after {
                if self.perform(segment, at, &work, step).is_none() {
                    break;
                }
            }
        }
        let held = self.records.0.entry(segment).or_default();
        held.refused = Default::default();
        held.standing.put(segment, step.fx);
        match self.has_records(segment) {
            true => self.filled(segment, step),
            false => self.ask_records(segment, step),
        }
    }

    fn on_records_refused(
        &mut self,
        (from, segment): (NodeName, SegmentId),
        forgotten: Option<Mark>,
        step: &mut Step<'_>,
    ) {
        let (full, peers) = (
            self.has_records(segment),
            self.may_have_records(segment, step),
        );
        let Some(held) = self.records.0.get_mut(&segment).filter(|_| !full) else {
            return;
        };
        let old = forgotten.is_some() && held.standing.since() != forgotten;
        if old || held.standing.since().is_none() {
            return;
        }
        held.refused.0.insert(from);
        held.refused.1 |= forgotten.is_some();
        let all = peers.iter().all(|peer| held.refused.0.contains(peer));
        if all && held.refused.1 {
            self.fill_anew(segment, step);
        } else if forgotten.is_none() {
            // It lags, or fills: perhaps not for long.
            return;
        } else {
            held.turn += 1;
        }
        self.ask_records(segment, step);
    }

    /// Whether a majority of a segment's members have all its records, as far as this one knows;
    /// asks them where it does not.
    pub(super) fn are_records_complete(&mut self, segment: SegmentId, step: &mut Step<'_>) -> bool {
        self.know_records_complete(segment, true, step)
    }

    /// The same; asks them only if it `asks`.
    fn know_records_complete(
        &mut self,
        segment: SegmentId,
        asks: bool,
        step: &mut Step<'_>,
    ) -> bool {
        let recorded = self.state_at(segment).map_or(0, |at| at.recorded);
        let room = self.segments.get(&segment);
        let Some(log) = room.map(|room| &room.log).filter(|_| recorded > 0) else {
            return true;
        };
        let (epoch, view) = (log.id().epoch, log.view().clone());
        let (own, name) = (self.has_records(segment), self.id.name);
        let held = self.records.0.entry(segment).or_default();
        if held.complete.0 != epoch {
            held.complete = (epoch, BTreeMap::new());
        }
        // What was said long ago may not be so any more.
        let (now, patience) = (step.now.monotonic, PATIENCE * self.config.timing.retry);
        let ever = self.config.planted.has(Bug::ChangedByLaggard);
        held.complete.1.retain(|_, at| *at + patience > now || ever);
        let known = &held.complete.1;
        let said_within = |time: Micros| {
            let fresh = move |node: &NodeName| known.get(node).is_some_and(|at| *at + time > now);
            let has = |node: &NodeName| fresh(node) || own && *node == name;
            view.nodes().filter(has).count() >= view.majority()
        };
        let ever = ever.then_some(Micros::MAX - now);
        let complete = said_within(ever.unwrap_or(patience));
        // Asked before it is forgotten, so that nobody has to wait for the answer.
        if asks && !said_within(ever.unwrap_or(patience / 2)) {
            for node in view.nodes().filter(|node| *node != name) {
                let question = Message::Complete {
                    segment,
                    epoch,
                    recorded,
                };
                step.fx.send(node, question);
            }
        }
        complete || self.config.planted.has(Bug::RecordsDroppedEarly)
    }

    /// Whether records may be changed here; asks the members if it `asks` and does not know. As
    /// long as too few members of an epoch have them, whoever has them may be none of those that
    /// apply the command, and nobody would ever have all.
    pub(super) fn may_change_records(
        &mut self,
        segment: SegmentId,
        asks: bool,
        step: &mut Step<'_>,
    ) -> bool {
        let planted = self.config.planted;
        planted.has(Bug::ChangedBeforeFilled) || self.know_records_complete(segment, asks, step)
    }

    /// Whether this node may ever change them, as it is now: it lacks none.
    pub(super) fn has_what_it_changes(&self, segment: SegmentId) -> bool {
        let planted = self.config.planted;
        let lax = planted.has(Bug::ChangedByLaggard) || planted.has(Bug::ChangedBeforeFilled);
        lax || self.has_records(segment)
    }

    /// A node keeps an ended log of the segment, hence its records.
    pub(super) fn note_former(&mut self, segment: SegmentId, node: NodeName) {
        if let Some(held) = self.records.0.get_mut(&segment)
            && held.former.len() < FILLERS
        {
            held.former.insert(node);
        }
    }
}

impl Held {
    /// A command was applied that changes these, which cannot be put beside what is lacking.
    fn remember(
        &mut self,
        (position, before): (u64, u64),
        work: Work,
        (room, planted): (usize, Planted),
    ) {
        // A state from elsewhere may have come in between, which has skipped some.
        self.later.take_if(|later| {
            let last = later.commands.last().map_or(later.above, |(at, _)| *at);
            before > last && !planted.has(Bug::RememberedAcrossGap)
        });
        if let Some(later) = &mut self.later {
            later.bytes += work.bytes();
            later.commands.push((position, work));
        }
        // What is not remembered has to be asked for.
        self.later.take_if(|later| later.bytes > room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn changes(bytes: usize) -> Work {
        let name = Bytes::from(vec![0; bytes]);
        Work {
            changes: Vec::from([Change { name, value: None }]),
            ordered: None,
        }
    }

    fn held(above: u64) -> Held {
        Held {
            later: Some(Later {
                above,
                commands: Vec::new(),
                bytes: 0,
            }),
            ..Held::default()
        }
    }

    #[test]
    fn what_is_applied_beside_a_fill_is_remembered_within_a_bound() {
        let room = (1_000, Planted::NONE);
        let mut held = held(5);
        held.remember((6, 5), changes(100), room);
        held.remember((9, 6), changes(100), room);
        let commands = held.later.as_ref().map(|later| later.commands.len());
        assert_eq!(commands, Some(2));
        held.remember((10, 9), changes(900), room);
        assert!(held.later.is_none(), "more than there is room for");
        held.remember((11, 10), changes(1), room);
        assert!(held.later.is_none(), "a gap stays one");
    }

    #[test]
    fn what_was_skipped_is_a_gap() {
        let mut held = held(5);
        held.remember((9, 7), changes(1), (1_000, Planted::NONE));
        assert!(held.later.is_none(), "the change of command 7 is unknown");
    }
}
