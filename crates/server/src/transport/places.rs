//! Who has a place at the port for peers.
//!
//! **Problem.** The port is open to anybody, and a peer that vanished leaves a connection that
//! looks as if it lived. Neither may keep a node of the cluster out, or make memory grow.
//!
//! **Idea.** Everybody is accepted. Those who have not said who they are have a bounded number of
//! places, and the one that has been silent for longest makes room: a peer says its greeting with
//! its first packet, so that only a flood of connections within one round trip keeps it out, for
//! that moment. An incarnation has one place, and of one process the connection accepted last has
//! it; a name has as many as a cluster file with a slip may need, so that a wrong incarnation does
//! not keep the right one out.
//!
//! **Twins.** Another process under the same incarnation is kept out while the first is connected:
//! one of both has a copy of the other's data directory, and would forget what the other promises.
//! A process that died, and starts again, finds the place free as soon as its end is known: at
//! once, or after a lease of silence where its machine vanished.

use super::Run;
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
pub(crate) struct Places(Arc<Mutex<Table>>);

/// By number, in the order of acceptance.
#[derive(Default)]
struct Table {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

struct Guest {
    /// None until it has said.
    who: Option<(NodeId, Run)>,
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

impl Table {
    /// Another run under that incarnation, which is connected.
    fn twin(&self, who: NodeId, run: Run) -> Option<Run> {
        let mut known = self.guests.values().filter_map(|guest| guest.who);
        let twin = known.find(|(other, theirs)| *other == who && *theirs != run);
        twin.map(|(_, theirs)| theirs)
    }
}

impl Places {
    /// Another run than that one under its incarnation, which is connected.
    pub(super) fn twin(&self, who: NodeId, run: Run) -> Option<Run> {
        self.lock().twin(who, run)
    }

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
    /// The connection is this incarnation's, and replaces an older one of the same run. Where a
    /// newer one has said so before, this one is told to leave.
    ///
    /// # Errors
    /// Another run of that incarnation, which is connected.
    pub(super) fn take(&self, who: NodeId, run: Run) -> Result<(), Run> {
        let mut table = self.places.lock();
        if let Some(twin) = table.twin(who, run) {
            return Err(twin);
        }
        let Some(guest) = table.guests.get_mut(&self.number) else {
            return Ok(()); // it has been told to leave
        };
        guest.who = Some((who, run));
        let same = |guest: &Guest| guest.who.is_some_and(|(other, _)| other == who);
        let same = table.guests.iter().filter(|(_, guest)| same(guest));
        let mut same: Vec<u64> = same.map(|(number, _)| *number).collect();
        same.pop();
        for older in same {
            table.end(older, Ended::Replaced);
        }
        let namesake = |guest: &Guest| guest.who.is_some_and(|(w, _)| w.name == who.name);
        table.thin(INCARNATIONS_MAX, namesake);
        Ok(())
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

    const RUN: Run = Run(5);

    fn take(seated: &Seated, incarnation: u128) {
        assert_eq!(seated.0.take(id(incarnation), RUN), Ok(()));
    }

    fn told(seated: &mut Seated) -> Option<Ended> {
        seated.1.try_recv().ok()
    }

    #[test]
    fn the_stranger_that_waits_longest_makes_room() {
        let places = Places::default();
        let mut known = places.admit();
        take(&known, 1);
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
        take(&second, 1);
        // Its greeting was read later, though it was accepted earlier.
        take(&first, 1);
        assert!(matches!(told(&mut first), Some(Ended::Replaced)));
        let mut third = places.admit();
        take(&third, 1);
        assert!(matches!(told(&mut second), Some(Ended::Replaced)));
        assert!(told(&mut third).is_none());
    }

    #[test]
    fn incarnations_of_one_name_are_bounded() {
        let places = Places::default();
        let seat = |incarnation| {
            let seated = places.admit();
            take(&seated, incarnation);
            seated
        };
        let mut all: Vec<Seated> = (0..=INCARNATIONS_MAX as u128).map(seat).collect();
        assert!(matches!(told(&mut all[0]), Some(Ended::Crowded)));
        assert!(all[1..].iter_mut().all(|s| told(s).is_none()));
    }

    #[test]
    fn another_process_of_an_incarnation_is_kept_out_while_the_first_is_connected() {
        let places = Places::default();
        let first = places.admit();
        take(&first, 1);
        let copy = places.admit();
        assert_eq!(copy.0.take(id(1), Run(6)), Err(RUN));
        assert_eq!(places.twin(id(1), Run(6)), Some(RUN));
        assert_eq!(places.twin(id(1), RUN), None);
        // The same process again, and another incarnation.
        take(&places.admit(), 1);
        take(&places.admit(), 2);
        drop(first);
        assert_eq!(copy.0.take(id(1), Run(6)), Ok(()));
    }
}
