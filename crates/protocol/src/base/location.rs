//! Where a group is: who has its segments now, and who had them before.
//!
//! **Problem.** Members change while others talk to them. Who asks for a key must find those that
//! have it, from whatever it knew before; and until a store's values have moved, those that had
//! them before have to be asked as well.
//!
//! **Idea.** One value says all that, and is a function of the group's log: the view, the epoch of
//! the stores, and for each segment its *sources*, the earlier stores that it may not have emptied
//! yet. Every change of it counts, so that of two locations of a group the one with more changes is
//! the later. It may be sent to anybody: whoever has an old one asks those in it, and is told a
//! later one.
//!
//! **Departure.** The paper's ring references name neighbours (Harmony §4.1); these name a group's
//! own history, and are kept by every node, so that a lookup is one hop.

use super::config::Group;
use super::ids::{Epoch, GroupId, NodeName, Seat, SegmentId};
use super::view::View;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Members of a view at most, for each source of a segment; see [`super::storage::MEMBERS_MAX`].
const MEMBERS_MAX: usize = super::storage::MEMBERS_MAX;

/// An earlier store of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The store's epoch.
    pub epoch: Epoch,
    /// Some keys may not have moved from it: operations read through to it. Closed, all have.
    pub open: bool,
    /// Seats whose eventual values have not been harvested yet, in order.
    pub owed: Vec<Seat>,
}

/// How a group goes on as two (Harmony §4.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Who has which seat in the group from then on.
    pub view: View,
    /// The first segment that is the child's; all after it are, too.
    pub at: SegmentId,
    /// The child, [named](GroupId::child) after the group, and who has which seat there. Seat 0
    /// leads its log first.
    pub child: View,
}

/// Where a group is, as of one point of its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The arc and the present view, whose epoch is that of the logs.
    pub group: Group,
    /// How often it has changed in the group's history.
    changes: u64,
    /// The epoch of the stores: that in which the seats last changed.
    store: Epoch,
    /// Segments whose log of the present epoch has no chosen entry yet, as far as was reported.
    unstarted: BTreeSet<SegmentId>,
    /// The views of earlier stores that some segment may still need.
    views: Vec<View>,
    /// By segment, oldest first; none for a segment without any.
    pasts: BTreeMap<SegmentId, Vec<Past>>,
    /// The format of the present logs; 0 for those with which the group began.
    format: u16,
}

impl Location {
    /// Where a group of the cluster file begins.
    pub fn beginning(group: &Group) -> Location {
        Location {
            group: group.clone(),
            changes: 0,
            store: group.view.epoch,
            unstarted: BTreeSet::new(),
            views: Vec::new(),
            pasts: BTreeMap::new(),
            format: 0,
        }
    }

    /// Of which group.
    pub fn id(&self) -> GroupId {
        self.group.id
    }

    /// The epoch of the group's logs.
    pub fn epoch(&self) -> Epoch {
        self.group.view.epoch
    }

    /// Whether this is later than another location of the same group.
    pub fn is_later_than(&self, other: &Location) -> bool {
        self.changes > other.changes
    }

    /// Whether this is what the cluster file said.
    pub fn is_beginning(&self) -> bool {
        self.changes == 0
    }

    /// The epoch of the stores.
    pub fn store(&self) -> Epoch {
        self.store
    }

    /// The format of the present logs; 0 for those with which the group began, whose state has it.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Segments whose present log is not known to have an entry.
    pub fn unstarted(&self) -> &BTreeSet<SegmentId> {
        &self.unstarted
    }

    /// The earlier stores of a segment, oldest first.
    pub fn pasts(&self, segment: SegmentId) -> &[Past] {
        self.pasts.get(&segment).map_or(&[], Vec::as_slice)
    }

    /// All segments with earlier stores.
    pub fn all_pasts(&self) -> impl Iterator<Item = (SegmentId, &Past)> {
        let each = |(segment, pasts): (&SegmentId, _)| (*segment, pasts);
        let all = self.pasts.iter().map(each);
        all.flat_map(|(segment, pasts): (SegmentId, &Vec<Past>)| {
            pasts.iter().map(move |past| (segment, past))
        })
    }

    /// The members of the stores of an epoch; none if nobody needs them any more.
    pub fn view_of(&self, store: Epoch) -> Option<View> {
        let present = (store == self.store).then(|| View {
            epoch: store,
            ..self.group.view.clone()
        });
        present.or_else(|| self.views.iter().find(|v| v.epoch == store).cloned())
    }

    /// Whether anything of the group may need a node: it has a seat, or had one in a store that is
    /// open, or to which it owes something. Who is not needed may leave.
    pub fn needs(&self, name: NodeName) -> bool {
        let seated = self.group.view.seat_of(name).is_some();
        seated
            || self.all_pasts().any(|(_, past)| {
                let view = self.view_of(past.epoch);
                let seat = view.and_then(|view| view.seat_of(name));
                seat.is_some_and(|seat| past.open || past.owed.contains(&seat))
            })
    }

    /// The group goes on in another view, in logs of this format. Where the seats differ the stores
    /// do, too, and the present ones become sources, to which every member owes its eventual
    /// values.
    pub fn succeed(&mut self, next: View, format: u16) {
        self.changes += 1;
        self.format = format;
        if next.seats != self.group.view.seats {
            let old = self.view_of(self.store).expect("the present one");
            let owed: Vec<Seat> = (0..old.len() as u8).map(Seat).collect();
            for segment in self.group.segments() {
                let past = Past {
                    epoch: self.store,
                    open: true,
                    owed: owed.clone(),
                };
                self.pasts.entry(segment).or_default().push(past);
            }
            self.views.push(old);
            self.store = next.epoch;
        }
        self.group.view = next;
        self.unstarted = self.group.segments().collect();
        // A group without segments leaves no store behind.
        self.drop_done();
    }

    /// Logs of the present epoch have an entry; whether that is news.
    pub fn start(&mut self, epoch: Epoch, segments: &[SegmentId]) -> bool {
        let before = self.unstarted.len();
        if epoch == self.epoch() {
            self.unstarted.retain(|segment| !segments.contains(segment));
        }
        self.changed(self.unstarted.len() < before)
    }

    /// Every key of the segment has moved from a source: it is closed. Whether that is news.
    pub fn close(&mut self, segment: SegmentId, source: Epoch) -> bool {
        let past = self.past_mut(segment, source);
        let news = past.is_some_and(|past| core::mem::take(&mut past.open));
        self.drop_done();
        self.changed(news)
    }

    /// What a seat of a source had of eventual values has been given on. Whether that is news.
    pub fn harvest(&mut self, segment: SegmentId, source: Epoch, seat: Seat) -> bool {
        let news = self.past_mut(segment, source).is_some_and(|past| {
            let before = past.owed.len();
            past.owed.retain(|owed| *owed != seat);
            past.owed.len() < before
        });
        self.drop_done();
        self.changed(news)
    }

    /// The group goes on as two: this one with the segments before `at`, and a child with the
    /// others, each as after [`Location::succeed`]. The earlier stores of a segment stay its own.
    #[must_use]
    pub fn split(mut self, split: &Split, format: u16) -> (Location, Location) {
        let mut child = self.clone();
        child.group.id = split.child.group;
        child.group.from = split.at;
        self.group.to = SegmentId(split.at.0 - 1);
        for (half, view) in [(&mut self, &split.view), (&mut child, &split.child)] {
            let arc = half.group.from..=half.group.to;
            half.pasts.retain(|segment, _| arc.contains(segment));
            half.succeed(view.clone(), format);
        }
        (self, child)
    }

    fn changed(&mut self, news: bool) -> bool {
        self.changes += u64::from(news);
        news
    }

    fn past_mut(&mut self, segment: SegmentId, source: Epoch) -> Option<&mut Past> {
        let pasts = self.pasts.get_mut(&segment)?;
        pasts.iter_mut().find(|past| past.epoch == source)
    }

    /// A closed source that nobody owes anything is none any more.
    fn drop_done(&mut self) {
        self.pasts.retain(|_, pasts| {
            pasts.retain(|past| past.open || !past.owed.is_empty());
            !pasts.is_empty()
        });
        let pasts = &self.pasts;
        let needed = |view: &View| pasts.values().flatten().any(|p| p.epoch == view.epoch);
        self.views.retain(needed);
    }

    /// Whether the group may go on in `next`, from this location alone (Harmony §4.2.1).
    ///
    /// # Errors
    /// One sentence, which says what to wait for or to choose instead.
    pub fn check_next(&self, next: &View, least: u8, pressing: bool) -> Result<(), &'static str> {
        if next.group != self.id() {
            return Err("only the next epoch of this very group can be decided");
        }
        self.check_view(next, least, pressing)
    }

    /// Whether the group may go on as two, from this location alone.
    ///
    /// # Errors
    /// One sentence, which says what to wait for or to choose instead.
    pub fn check_split(&self, split: &Split, least: u8) -> Result<(), &'static str> {
        self.check_next(&split.view, least, false)?;
        if split.child.group != self.id().child(split.child.epoch) {
            return Err("a child is named after its parent and the epoch of the split");
        }
        self.check_view(&split.child, least, false)?;
        if split.at <= self.group.from || split.at > self.group.to {
            return Err("each half of a group has a segment of the group's at least");
        }
        let mut seats = split.view.nodes().chain(split.child.nodes());
        if seats.any(|node| self.group.view.seat_of(node).is_none()) {
            return Err("both halves of a group have members of the group alone");
        }
        Ok(())
    }

    /// Whether members of the next epoch of the group's segments may be those of `next`.
    fn check_view(&self, next: &View, least: u8, pressing: bool) -> Result<(), &'static str> {
        let names: BTreeSet<NodeName> = next.nodes().collect();
        if next.epoch != self.epoch().next() {
            return Err("only the next epoch of this very group can be decided");
        }
        if !(usize::from(least)..=MEMBERS_MAX).contains(&next.len()) {
            return Err("a view has at most 13 members, and not fewer than the cluster's least");
        }
        if names.len() < next.len() {
            return Err("a node has one seat in a view");
        }
        if !self.unstarted.is_empty() {
            return Err("not every segment has started in the present epoch; ask again");
        }
        let open = |pasts: &Vec<Past>| pasts.iter().filter(|past| past.open).count();
        let moves = next.seats != self.group.view.seats;
        if moves && !pressing && self.pasts.values().any(|pasts| open(pasts) > 1) {
            return Err("the values of two earlier epochs are still moving; ask again");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::SiteId;
    use super::super::view::Member;
    use super::*;
    use alloc::vec;

    fn view(epoch: u64, names: &[u32]) -> View {
        let member = |name: &u32| Member {
            name: NodeName(*name),
            site: SiteId(0),
            public_key: None,
        };
        View {
            group: GroupId(7),
            epoch: Epoch(epoch),
            seats: names.iter().map(member).collect(),
        }
    }

    fn beginning() -> Location {
        Location::beginning(&Group {
            id: GroupId(7),
            from: SegmentId(4),
            to: SegmentId(5),
            view: view(1, &[1, 2, 3]),
        })
    }

    #[test]
    fn a_view_with_other_seats_has_other_stores_and_a_source_that_is_owed_by_all() {
        let mut at = beginning();
        at.succeed(view(2, &[1, 2, 3]), 9);
        assert_eq!((at.epoch(), at.store()), (Epoch(2), Epoch(1)));
        assert!(at.pasts(SegmentId(4)).is_empty());
        assert!(at.start(Epoch(2), &[SegmentId(4), SegmentId(5)]));
        at.succeed(view(3, &[1, 2, 4]), 9);
        assert_eq!((at.epoch(), at.store()), (Epoch(3), Epoch(3)));
        let past = Past {
            epoch: Epoch(1),
            open: true,
            owed: vec![Seat(0), Seat(1), Seat(2)],
        };
        for segment in [4, 5].map(SegmentId) {
            assert_eq!(at.pasts(segment), core::slice::from_ref(&past));
        }
        assert_eq!(at.view_of(Epoch(1)), Some(view(1, &[1, 2, 3])));
        assert_eq!(at.view_of(Epoch(2)), None);
        assert!((1..=4).all(|name| at.needs(NodeName(name))) && !at.needs(NodeName(5)));
    }

    #[test]
    fn a_source_goes_once_it_is_closed_and_harvested_and_every_change_counts() {
        let mut at = beginning();
        at.succeed(view(2, &[1, 2]), 9);
        let mut before = at.clone();
        let mut changes = |at: &Location| {
            let later = at.is_later_than(&before);
            before = at.clone();
            later
        };
        let segment = SegmentId(4);
        for seat in [0, 1, 2, 2].map(Seat) {
            let news = at.harvest(segment, Epoch(1), seat);
            assert_eq!(changes(&at), news);
        }
        assert!(at.pasts(segment)[0].owed.is_empty());
        assert!(at.close(segment, Epoch(1)) && changes(&at));
        assert!(!at.close(segment, Epoch(1)) && !changes(&at));
        assert!(at.pasts(segment).is_empty());
        assert!(at.view_of(Epoch(1)).is_some(), "segment 5 has it");
        assert!(at.close(SegmentId(5), Epoch(1)));
        for seat in [0, 1, 2].map(Seat) {
            assert!(at.harvest(SegmentId(5), Epoch(1), seat));
        }
        assert_eq!(at.view_of(Epoch(1)), None);
    }

    #[test]
    fn what_may_not_follow_is_refused() {
        let mut at = beginning();
        let refused = |at: &Location, view: View| at.check_next(&view, 3, false).is_err();
        assert!(!refused(&at, view(2, &[1, 2, 4])));
        assert!(refused(&at, view(3, &[1, 2, 4])), "an epoch left out");
        assert!(refused(&at, view(2, &[1, 2])), "too few");
        assert!(refused(&at, view(2, &[1, 2, 2])), "one node twice");
        let many: Vec<u32> = (0..14).collect();
        assert!(refused(&at, view(2, &many)), "too many");
        for epoch in [2, 3] {
            at.succeed(view(epoch, &[1, 2, epoch as u32 + 2]), 9);
            assert!(refused(&at, view(epoch + 1, &[1, 2, 3])), "not started");
            at.start(Epoch(epoch), &[4, 5].map(SegmentId));
        }
        assert!(refused(&at, view(4, &[1, 2, 3])), "two open sources");
        let same = View {
            epoch: Epoch(4),
            ..at.group.view.clone()
        };
        assert!(!refused(&at, same), "no third one");
        assert_eq!(at.check_next(&view(4, &[1, 2, 3]), 3, true), Ok(()));
        at.close(SegmentId(4), Epoch(1));
        assert!(refused(&at, view(4, &[1, 2, 3])), "segment 5");
        at.close(SegmentId(5), Epoch(1));
        assert!(!refused(&at, view(4, &[1, 2, 3])));
    }

    #[test]
    fn a_group_goes_on_as_two_and_each_segment_keeps_its_earlier_stores() {
        let mut at = beginning();
        let split = |epoch: u64, at: u32, own: &[u32], names: &[u32]| Split {
            view: view(epoch, own),
            at: SegmentId(at),
            child: View {
                group: GroupId(7).child(Epoch(epoch)),
                ..view(epoch, names)
            },
        };
        let refused = |at: &Location, split: Split| at.check_split(&split, 3).is_err();
        assert!(!refused(&at, split(2, 5, &[1, 2, 3], &[3, 2, 1])));
        for (why, wrong) in [
            ("nothing stays", split(2, 4, &[1, 2, 3], &[3, 2, 1])),
            ("nothing goes", split(2, 6, &[1, 2, 3], &[3, 2, 1])),
            ("too few", split(2, 5, &[1, 2, 3], &[1, 2])),
            ("a stranger", split(2, 5, &[1, 2, 3], &[1, 2, 4])),
            ("an epoch left out", split(3, 5, &[1, 2, 3], &[3, 2, 1])),
        ] {
            assert!(refused(&at, wrong), "{why}");
        }
        let misnamed = Split {
            child: view(2, &[3, 2, 1]),
            ..split(2, 5, &[1, 2, 3], &[3, 2, 1])
        };
        assert!(refused(&at, misnamed), "the parent's own name");
        at.succeed(view(2, &[1, 2, 3, 4, 5, 6]), 9);
        assert!(
            refused(&at, split(3, 5, &[1, 2, 3], &[4, 5, 6])),
            "not started"
        );
        at.start(Epoch(2), &[4, 5].map(SegmentId));
        at.close(SegmentId(4), Epoch(1));
        let splits = split(3, 5, &[1, 2, 3], &[4, 5, 6]);
        assert_eq!(at.check_split(&splits, 3), Ok(()));
        let before = at.clone();
        let (own, child) = at.split(&splits, 9);
        assert_eq!((own.id(), child.id()), (GroupId(7), splits.child.group));
        assert_eq!(own.group.segments().collect::<Vec<_>>(), [SegmentId(4)]);
        assert_eq!(child.group.segments().collect::<Vec<_>>(), [SegmentId(5)]);
        assert!(own.is_later_than(&before) && !child.is_beginning());
        let open = |at: &Location, segment| -> Vec<(u64, bool)> {
            let pasts = at.pasts(SegmentId(segment)).iter();
            pasts.map(|past| (past.epoch.0, past.open)).collect()
        };
        assert_eq!(open(&own, 4), [(1, false), (2, true)]);
        assert_eq!(open(&child, 5), [(1, true), (2, true)]);
        assert!(open(&own, 5).is_empty() && open(&child, 4).is_empty());
        for half in [&own, &child] {
            assert_eq!(half.view_of(Epoch(1)), Some(view(1, &[1, 2, 3])));
            assert_eq!(half.view_of(Epoch(2)), Some(before.group.view.clone()));
            assert_eq!((half.epoch(), half.store()), (Epoch(3), Epoch(3)));
            assert_eq!(half.unstarted().len(), 1);
        }
    }

    #[test]
    fn a_group_without_segments_leaves_nothing_behind() {
        let mut at = Location::beginning(&Group {
            id: GroupId(7),
            from: SegmentId(1),
            to: SegmentId(0),
            view: view(1, &[1, 2, 3]),
        });
        for epoch in 2..9 {
            at.succeed(view(epoch, &[epoch as u32, 2, 3]), 9);
        }
        assert!(at.views.is_empty() && at.pasts.is_empty() && at.unstarted.is_empty());
        assert!(at.needs(NodeName(8)) && !at.needs(NodeName(1)));
    }
}
