//! Nodes come and go for good: one with an empty directory is admitted and is given a seat, one
//! without a seat is dismissed, one whose disk is lost is given up and replaced by another. Whoever
//! wants it asks again until it is so, as an operator does.

use super::faults::{known_view, next_members_pressing, present_view, propose};
use crate::checkers::places::Places;
use crate::machine::Machine;
use crate::network::End;
use crate::world::{NEWER, World};
use fermata_protocol::base::{Addresses, Epoch, GroupId, Incarnation, Location, NodeName};
use fermata_protocol::command::GroupCommand;
use fermata_protocol::registry::{Newcomer, Registry, Standing};

/// Whoever asks does so again after this time, microseconds.
const AGAIN: u64 = 1_100_000;

/// Whoever asks gives up after so many times.
const TRIES: u32 = 60;

type Then = Box<dyn FnOnce(&mut World, NodeName)>;

/// A machine with an empty directory comes, and is switched on once it has a name; then it is told
/// to `then`.
pub fn join(world: &mut World, site: u16, then: impl FnOnce(&mut World, NodeName) + 'static) {
    let incarnation = Incarnation(world.dice.wide());
    admit(world, incarnation, site, TRIES, Box::new(then));
}

fn admit(world: &mut World, incarnation: Incarnation, site: u16, tries: u32, then: Then) {
    if let Some(name) = newest(world).and_then(|known| known.name_of(incarnation)) {
        world.note(|| format!("! node {} is admitted", name.0));
        world.add_machine(name, site, incarnation);
        return then(world, name);
    }
    if tries == 0 {
        return;
    }
    let admit_it = GroupCommand::Admit(Newcomer {
        incarnation,
        label: format!("j{:x}", incarnation.0 as u32),
        site: world.setup.cluster.sites[usize::from(site)].clone(),
        addresses: Addresses::default(),
    });
    let session = world.dice.draw();
    propose(world, session, admit_it);
    world.at(world.now + AGAIN, move |w| {
        admit(w, incarnation, site, tries - 1, then);
    });
}

/// The latest registry that any node has.
pub fn newest(world: &World) -> Option<&Registry> {
    let nodes = world.machines.values().filter_map(|m| m.node());
    let all = nodes.map(|node| node.here().registry());
    all.max_by_key(|registry| registry.version())
}

/// Whether a node is in the cluster, by the latest registry that any has.
pub(super) fn standing(world: &World, name: NodeName) -> Option<Standing> {
    newest(world)?.get(name).map(|known| known.standing)
}

/// Whether a node has left the cluster, or may yet: then nobody gives it a seat.
pub(super) fn is_out(world: &World, name: NodeName) -> bool {
    let known = standing(world, name);
    known.is_some_and(|s| s != Standing::Present) || world.unwanted.contains(&name)
}

/// Whether a view that was proposed, and that may still be decided, has a seat for a node.
fn is_wanted(world: &World, name: NodeName) -> bool {
    let open = |(group, epoch): &(GroupId, Epoch)| {
        known_view(world, *group).is_none_or(|view| view.epoch < *epoch)
    };
    let mut wanted = world.wanted.iter();
    wanted.any(|(view, names)| names.contains(&name) && open(view))
}

/// All groups, as far as any node knows, in the order of their ids.
pub(super) fn groups(world: &World) -> Vec<GroupId> {
    let places = Places::of(&world.setup.cluster, &world.machines);
    places.locations().map(Location::id).collect()
}

/// The disk of a node is lost: the cluster is told, and `by` gets each seat that it had.
pub fn give_up(world: &mut World, name: NodeName, by: NodeName) {
    give_up_again(world, (name, by), TRIES);
}

fn give_up_again(world: &mut World, (name, by): (NodeName, NodeName), tries: u32) {
    let mut done = standing(world, name) == Some(Standing::Lost);
    if !done {
        dismiss(world, name, true);
    }
    for group in groups(world) {
        let mut names: Vec<NodeName> = present_view(world, group).nodes().collect();
        let Some(seat) = names.iter().position(|at| *at == name) else {
            continue;
        };
        done = false;
        match names.contains(&by) {
            true => drop(names.remove(seat)),
            false => names[seat] = by,
        }
        let session = world.dice.draw();
        next_members_pressing(world, group, session, &names);
    }
    if !done && tries > 0 {
        world.at(world.now + AGAIN, move |w| {
            give_up_again(w, (name, by), tries - 1);
        });
    }
}

fn dismiss(world: &mut World, name: NodeName, lost: bool) {
    let how = if lost { "as lost" } else { "as gone" };
    world.note(|| format!("! node {} is to be dismissed {how}", name.0));
    world.unwanted.insert(name);
    let session = world.dice.draw();
    propose(world, session, GroupCommand::Dismiss { name, lost });
}

/// A group gets these members, however often that has to be asked for.
pub fn change_members(world: &mut World, group: GroupId, names: &[NodeName]) {
    change_again(world, group, names.to_vec(), TRIES);
}

fn change_again(world: &mut World, group: GroupId, names: Vec<NodeName>, tries: u32) {
    let present: Vec<NodeName> = present_view(world, group).nodes().collect();
    if present != names && tries > 0 {
        let session = world.dice.draw();
        next_members_pressing(world, group, session, &names);
        world.at(world.now + AGAIN, move |w| {
            change_again(w, group, names, tries - 1)
        });
    }
}

/// A node leaves: first its seats, then the cluster.
pub fn leave(world: &mut World, name: NodeName) {
    leave_again(world, name, TRIES);
}

fn leave_again(world: &mut World, name: NodeName, tries: u32) {
    if tries == 0 || standing(world, name) != Some(Standing::Present) {
        return;
    }
    // Also by a seat in a store that somebody may still need.
    let places = Places::of(&world.setup.cluster, &world.machines);
    let mut free = !places.locations().any(|at| at.needs(name)) && !is_wanted(world, name);
    for group in groups(world) {
        let names: Vec<NodeName> = present_view(world, group).nodes().collect();
        if names.contains(&name) {
            free = false;
            let rest: Vec<NodeName> = names.into_iter().filter(|at| *at != name).collect();
            let session = world.dice.draw();
            next_members_pressing(world, group, session, &rest);
        }
    }
    if free {
        dismiss(world, name, false);
    }
    world.at(world.now + AGAIN, move |w| leave_again(w, name, tries - 1));
}

impl World {
    /// A new machine, with a directory of this incarnation, is switched on under this name.
    pub fn add_machine(&mut self, name: NodeName, site: u16, incarnation: Incarnation) {
        let mut machine = self.make_machine(name, site);
        machine.disk.wipe(incarnation);
        // Whoever comes has the newest program that there is.
        let newer = |machine: &Machine| machine.config.formats == NEWER;
        if self.machines.values().any(newer) {
            machine.config.formats = NEWER;
        }
        self.network.place(End::Node(name), site);
        self.machines.insert(name, machine);
        self.start(name);
    }
}
