//! What is outside of the fault model, for those who want to see it: a second process with a copy
//! of a machine's data directory, and a machine that lies.
//!
//! **Problem.** Every proof counts durable memories, and takes each at its word. An operator can
//! copy a directory and start both copies, and whoever has a machine's key can say what he likes.
//! Nothing here makes that safe (the README says: not Byzantine). The checkers must *see* the
//! damage, and documents must say so ([`crate::scenarios::LIMITS`]).
//!
//! **Idea.** A *twin* is a machine beside the one of its name. Which of the two gets what is sent
//! to the name is the scenario's choice ([`World::twin`]). For the time of one of its steps it
//! stands in the other's place, so that the loop knows nothing of it; its events are told apart by
//! the numbers of its processes. A *liar* is a function from what a machine sends to what it sends
//! instead ([`World::lie`]): it has that machine's identity, and nobody else's.

use crate::machine::{Machine, TWIN_BOOT};
use crate::network::{End, Parcel};
use crate::world::World;
use fermata_protocol::base::NodeName;

/// A second machine under a name.
pub struct Twin {
    machine: Machine,
    /// Whether it gets a parcel to the name, or else the other one does.
    gets: Box<dyn Fn(&Parcel) -> bool>,
}

/// What a machine sends instead of something.
pub type Liar = Box<dyn FnMut(Parcel) -> Vec<Parcel>>;

impl World {
    /// A machine is stopped in an orderly way, its directory is copied, and a process is started on
    /// each copy. `gets` says which parcels to the name go to the second one.
    pub fn twin(&mut self, name: NodeName, gets: impl Fn(&Parcel) -> bool + 'static) {
        self.stop(name, false);
        let machine = self.machines.get_mut(&name);
        let machine = machine.expect("a machine of this world").twin();
        let gets = Box::new(gets);
        self.twins.insert(name, Twin { machine, gets });
        self.note(|| {
            format!(
                "! the directory of node {} is copied, and both start",
                name.0
            )
        });
        self.start(name);
        self.as_twin(name, |world| world.start(name));
    }

    /// From now on a machine sends what `lie` makes of what it wants to send to others.
    pub fn lie(&mut self, name: NodeName, lie: impl FnMut(Parcel) -> Vec<Parcel> + 'static) {
        self.note(|| format!("! node {} lies", name.0));
        self.liars.insert(name, Box::new(lie));
    }

    /// From now on a machine sends what it wants to send.
    pub fn honest(&mut self, name: NodeName) {
        self.liars.remove(&name);
    }

    /// What travels when this is sent.
    pub(crate) fn as_sent(&mut self, parcel: Parcel) -> Vec<Parcel> {
        let (from, to) = parcel.ends();
        let liar = match from {
            End::Node(name) if from != to => self.liars.get_mut(&name),
            _ => None,
        };
        let Some(lie) = liar else {
            return vec![parcel];
        };
        let said = lie(parcel);
        let own = said.iter().all(|said| said.ends().0 == from);
        assert!(own, "a machine has its own identity alone");
        said
    }

    /// The name whose twin gets a parcel.
    pub(crate) fn twin_for(&self, parcel: &Parcel) -> Option<NodeName> {
        let (from, to) = parcel.ends();
        let End::Node(name) = to else { return None };
        let twin = self.twins.get(&name)?;
        (from != to && (twin.gets)(parcel)).then_some(name)
    }

    /// Does something to the process of a number, be it the machine's or its twin's.
    pub(crate) fn of_boot(&mut self, name: NodeName, boot: u32, act: impl FnOnce(&mut World)) {
        if boot < TWIN_BOOT {
            act(self);
        } else {
            self.as_twin(name, act);
        }
    }

    /// Does something with the twin in its machine's place.
    pub(crate) fn as_twin(&mut self, name: NodeName, act: impl FnOnce(&mut World)) {
        self.swap(name);
        let before = self.in_place.replace(name);
        assert!(before.is_none(), "one step at a time");
        act(self);
        self.in_place = None;
        self.swap(name);
    }

    fn swap(&mut self, name: NodeName) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        let twin = self.twins.get_mut(&name).expect("a machine with a twin");
        std::mem::swap(machine, &mut twin.machine);
    }
}
