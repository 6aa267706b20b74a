//! Who has a place at the port for peers.
//!
//! **Problem.** The port is open to anybody, and a peer that vanished leaves a connection that
//! looks as if it lived. Neither may keep a node of the cluster out, or make memory grow.
//!
//! **Idea.** Everybody is accepted. Those who have not said who they are have a bounded number of
//! places, and the one that has been silent for longest makes room: a peer says its greeting with
//! its first packet, so that only a flood of connections within one round trip keeps it out, for
//! that moment. An incarnation has one place, and the connection accepted last has it; a name has
//! as many as a cluster file with a slip may need, so that a wrong incarnation does not keep the
//! right one out.

use super::ending::Ended;
use fermata_protocol::base::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Connections that have not said who they are.
const STRANGERS_MAX: usize = 64;
/// Incarnations connected in one name.
const INCARNATIONS_MAX: usize = 4;

/// All places.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<Table>>);

/// By number, in the order of acceptance.
#[derive(Default)]
struct Table {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

struct Guest {
    /// None until it has said.
    who: Option<NodeId>,
    leave: oneshot::Sender<Ended>,
}

/// The place of one connection, given back when it is dropped.
pub(super) struct Place {
    places: Places,
    number: u64,
}

/// Tells a connection that it must leave its place.
pub(super) type Leave = oneshot::Receiver<Ended>;

impl Table {
    /// Ends the connection that was accepted first of those, if they are too many.
    fn thin(&mut self, max: usize, among: impl Fn(&Guest) -> bool) {
        let mut those = self.guests.iter().filter(|(_, guest)| among(guest));
        let first = those.next().map(|(number, _)| *number);
        if let Some(first) = first
            && those.count() >= max
        {
            self.end(first, Ended::Crowded);
        }
    }

    fn end(&mut self, number: u64, how: Ended) {
        if let Some(guest) = self.guests.remove(&number) {
            // Its connection may have ended by itself.
            let _ = guest.leave.send(how);
        }
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that has just been accepted, and whence it is told to leave.
    pub(super) fn admit(&self) -> (Place, Leave) {
        let (leave, told) = oneshot::channel();
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        table.guests.insert(number, Guest { who: None, leave });
        table.thin(STRANGERS_MAX, |guest| guest.who.is_none());
        drop(table);
        let places = self.clone();
        (Place { places, number }, told)
    }
}

impl Place {
    /// The connection is this incarnation's, and replaces an older one of it. Where a newer one has
    /// said so before, this one is told to leave.
    pub(super) fn take(&self, who: NodeId) {
        let mut table = self.places.lock();
        let Some(guest) = table.guests.get_mut(&self.number) else {
            return; // it has been told to leave
        };
        guest.who = Some(who);
        let same = table.guests.iter().filter(|(_, g)| g.who == Some(who));
        let mut same: Vec<u64> = same.map(|(number, _)| *number).collect();
        same.pop();
        for older in same {
            table.end(older, Ended::Replaced);
        }
        let namesake = |guest: &Guest| guest.who.is_some_and(|w| w.name == who.name);
        table.thin(INCARNATIONS_MAX, namesake);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Incarnation, NodeName};

    fn id(incarnation: u128) -> NodeId {
        NodeId {
            name: NodeName(2),
            incarnation: Incarnation(incarnation),
        }
    }

    type Seated = (Place, Leave);

    fn told(seated: &mut Seated) -> Option<Ended> {
        seated.1.try_recv().ok()
    }

    #[test]
    fn the_stranger_that_waits_longest_makes_room() {
        let places = Places::default();
        let mut known = places.admit();
        known.0.take(id(1));
        let mut strangers: Vec<Seated> = (0..STRANGERS_MAX).map(|_| places.admit()).collect();
        assert!(strangers.iter_mut().all(|s| told(s).is_none()));
        strangers.push(places.admit());
        assert!(matches!(told(&mut strangers[0]), Some(Ended::Crowded)));
        drop(strangers.remove(1));
        strangers.push(places.admit());
        assert!(strangers[1..].iter_mut().all(|s| told(s).is_none()));
        assert!(told(&mut known).is_none());
    }

    #[test]
    fn the_connection_accepted_last_has_its_incarnations_place() {
        let places = Places::default();
        let (mut first, mut second) = (places.admit(), places.admit());
        second.0.take(id(1));
        // Its greeting was read later, though it was accepted earlier.
        first.0.take(id(1));
        assert!(matches!(told(&mut first), Some(Ended::Replaced)));
        let mut third = places.admit();
        third.0.take(id(1));
        assert!(matches!(told(&mut second), Some(Ended::Replaced)));
        assert!(told(&mut third).is_none());
    }

    #[test]
    fn incarnations_of_one_name_are_bounded() {
        let places = Places::default();
        let take = |incarnation| {
            let seated = places.admit();
            seated.0.take(id(incarnation));
            seated
        };
        let mut all: Vec<Seated> = (0..=INCARNATIONS_MAX as u128).map(take).collect();
        assert!(matches!(told(&mut all[0]), Some(Ended::Crowded)));
        assert!(all[1..].iter_mut().all(|s| told(s).is_none()));
    }
}
