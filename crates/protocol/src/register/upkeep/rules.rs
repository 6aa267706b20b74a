//! What a replica does with what another's upkeep sends it: the rules that make a repair harmless,
//! whoever sends it and however late it comes.

use super::super::cell::{Cell, Head};
use super::super::message::{Answer, Ask, Content, Survey};
use super::super::replica::Case;
use super::Upkeep;
use crate::base::{Bug, EventualTag, Kept, LockRef, Tag};
use crate::io::Void;
use crate::wire::{encode, record};

/// What a replica says of a key.
pub(crate) fn survey(head: &Head, floor: LockRef, past: bool) -> Survey {
    Survey {
        tags: head.versions().iter().map(|v| v.tag).collect(),
        fence: head.fence,
        eventual: head.eventual,
        floor,
        past,
    }
}

impl Case<'_, '_> {
    /// Takes a version that q members hold. Whether its section is past does not matter: it is
    /// complete already, so that one more copy completes nothing, and every fence that a synch has
    /// set at q members has met it (F1). A fence *here* stands all the same: its synch may have
    /// replaced the versions below it. And a version whose section is under the floor may be that
    /// of a key that was deleted and removed since, unless its sender knew of this floor (F8f: no
    /// delete is undone).
    fn repair(
        &mut self,
        cell: Cell<'_>,
        (tag, origin): (Tag, EventualTag),
        content: &Content,
        sent_at: LockRef,
    ) -> Result<Answer, Void> {
        let sections = tag.lock_ref > LockRef(0);
        let old = sent_at < self.floor && !self.env.planted.has(Bug::RepairWithoutFloor);
        if sections && tag.lock_ref <= self.floor && old {
            return Ok(self.past(cell.head.tag().max(cell.head.fence)));
        }
        let lax = self.env.planted.has(Bug::RepairBelowFence);
        if let Some(refusal) = self.barred(&cell, tag, lax) {
            return Ok(refusal);
        }
        if let Some(known) = cell.head.version(tag).copied() {
            return self.store_again(cell, &known, content);
        }
        if tag < cell.head.tag() {
            return Ok(Answer::Outranked {
                tag: cell.head.tag(),
            });
        }
        // It is final: what is below makes room for it where there is none.
        self.settled = self.settled.max(tag);
        self.put(cell, (tag, origin), content)
    }
}

impl Upkeep {
    /// Answers what another member's upkeep asks.
    pub(crate) fn answer(
        &mut self,
        cell: Cell<'_>,
        ask: Ask,
        case: &mut Case<'_, '_>,
    ) -> Result<Answer, Void> {
        match ask {
            Ask::Survey => {
                let past = case.view.has_past();
                Ok(Answer::Surveyed(survey(&cell.head, case.floor, past)))
            }
            Ask::Repair {
                tag,
                origin,
                content,
                floor,
            } => {
                let answer = case.repair(cell, (tag, origin), &content, floor)?;
                match answer {
                    Answer::Stored => self.counts.taken += 1,
                    _ => self.counts.refused += 1,
                }
                Ok(answer)
            }
            Ask::RepairEventual {
                tag,
                content,
                floor,
            } => {
                if tag.applied >= case.floor.0 || floor >= case.floor {
                    case.eventual_spread(cell, tag, &content);
                }
                Ok(Answer::EventualStored { tag })
            }
            Ask::Bury {
                tag,
                eventual,
                above,
            } => {
                self.bury(cell, (tag, eventual, above), case);
                Ok(Answer::Marked)
            }
            _ => unreachable!("upkeep asks nothing else"),
        }
    }

    /// Removes every trace of a deleted key, unless anything has changed since all members held
    /// exactly this. The floor is noted in the same batch: it is all that keeps older writes out
    /// from here on, and what is applied may be less after a restart.
    fn bury(
        &mut self,
        mut cell: Cell<'_>,
        (tag, eventual, above): (Tag, Option<EventualTag>, LockRef),
        case: &mut Case<'_, '_>,
    ) {
        let (head, floor) = (&cell.head, case.floor);
        // Where several versions are kept at rest, those below the delete go with it.
        let tags = head.versions().iter().map(|v| v.tag);
        let exactly = match case.kept {
            Kept::Several(_) => head.tag() == tag,
            Kept::Highest | Kept::FromFinal(_) => tags.eq((tag > Tag::ZERO).then_some(tag)),
        };
        let dead = head.length().is_none() && !head.eventual_live;
        // An earlier store may have a value that this delete has outranked (V10).
        let past = case.view.has_past() && !case.env.planted.has(Bug::BuriedBesideSource);
        let under = under_floor(&survey(head, floor, past), floor);
        let rises = floor > above || case.env.planted.has(Bug::TombstoneBuriedEarly);
        let known = head.eventual == eventual && !past;
        let anything = *head != Head::default();
        if !(exactly && dead && under && rises && known && anything && case.view.writable()) {
            return;
        }
        cell.bury(case.env.fx);
        let place = (case.at.store, case.at.key.clone());
        self.traces.remove(&place);
        self.suspects.remove(&place);
        self.floors.insert(case.at.store, floor);
        case.env
            .fx
            .put(record::buried(case.at.store), encode(&floor));
        self.counts.buried += 1;
    }
}

/// Whether everything of a key lies under a floor, so that who knows that floor takes nothing more
/// of the kind.
pub(super) fn under_floor(held: &Survey, floor: LockRef) -> bool {
    sections_under_floor(held, floor) && held.eventual.is_none_or(|e| e.applied < floor.0)
}

/// The same of the versions and the fence alone.
pub(super) fn sections_under_floor(held: &Survey, floor: LockRef) -> bool {
    let highest = held.tags.last().copied().unwrap_or_default();
    highest.max(held.fence).lock_ref <= floor
}
