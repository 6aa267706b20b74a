//! Names, and the incarnations behind them (F8c: a disk that was lost is another memory).
//!
//! A quorum argument counts memories, not names. A node whose disk was lost or replaced is another
//! memory; if it answered under the former name, two quorums might no longer meet. The [`Registry`]
//! gives a name to one memory, once, and every node hears those alone that it knows from there.
//!
//! **The first nodes** have nobody to name them but the cluster file, which knows no memories.
//! Therefore each of them first learns every other's incarnation, makes that durable and says so;
//! it takes part once all the others have said the same. Without the second half, two nodes could
//! start and acknowledge while the third has not yet met the first; if one of the two then lost its
//! disk, the third would believe the new memory. What they have learned is the first state of the
//! meta-group.
//!
//! **Whoever joins** was given its name by the meta-group, before it begins. It takes part as soon
//! as any node has told it that it is in the registry, and has no log until a group gives it a
//! seat.

use super::{Here, Node, Step};
use crate::base::{Bug, Epoch, GroupId, Micros, NodeId, NodeInfo, NodeName};
use crate::command::{Body, GroupCommand};
use crate::group::GroupState;
use crate::io::Effects;
use crate::message::{Hello, Message};
use crate::registry::{Registry, Standing};
use crate::ring;
use crate::wire::{self, record};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What this node has heard of a change of the settings.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The version of the registry that each node has said to have, durably.
    known: BTreeMap<NodeName, u64>,
    /// Since when all have this one.
    all_since: Option<(u64, Micros)>,
    /// The format that this node has said to read, durably, since it started.
    said: u16,
}

impl Node {
    pub(super) fn say_hello(&self, to: NodeName, answer: bool, step: &mut Step<'_>) {
        let hello = Hello {
            cluster: self.here.directory.cluster(),
            registry: self.here.registry.clone(),
            complete: self.here.complete,
            answer,
        };
        // That it is complete must not be heard before it is durable.
        step.fx.promise(to, Message::Hello(hello));
    }

    pub(super) fn on_hello(&mut self, from: NodeId, hello: Hello, step: &mut Step<'_>) {
        if hello.cluster != self.here.directory.cluster() {
            return self.ignore("hello of another cluster");
        }
        let rejoins = self.here.config.planted.has(Bug::LostDiskRejoins);
        if let Some(why) = self.here.why_disowned(&hello.registry).filter(|_| !rejoins) {
            // What it was told is what keeps it from starting again.
            if self.here.started {
                self.here.learn_registry(&hello.registry, step.fx);
            }
            step.fx.halt = Some(why);
            return;
        }
        if rejoins {
            self.here.registry.replace(from);
        }
        let theirs = &hello.registry;
        if !self.here.started && self.here.is_founder(theirs) {
            if !self.here.registry.has_file_of(theirs) {
                let label = self.here.directory.label(from.name);
                step.fx.halt = Some(format!(
                    "the cluster file of this node, its timing, its limits, or the version of its \
                     program, is not that of {label}: give all nodes of a new cluster the same, \
                     and start them again"
                ));
                return;
            }
            self.here.meet(theirs);
        }
        if hello.answer || theirs.version() < self.here.registry.version() {
            self.say_hello(from.name, false, step);
        }
        if !self.here.started && self.here.is_admitted(theirs) {
            step.fx.put(record::node("started"), wire::encode(&true));
            self.here.started = true;
            self.next_beat = step.now.monotonic;
        }
        // Whoever says it: there is one registry of each version. All whom this node knows may be
        // gone, and whom they have been followed by it does not know yet.
        if self.here.started {
            self.here.learn_registry(theirs, step.fx);
        }
        if !self.here.knows(from) {
            return self.ignore("unknown incarnation");
        }
        self.here.hear(from.name, step.now);
        let knows_us = self.here.registry.is_part_of(theirs) || rejoins;
        if hello.complete && knows_us {
            self.here.ready.insert(from.name);
            if theirs.version() > 0 && self.here.complete {
                // Somebody has started, and did so when everybody was complete. Some may be gone.
                self.here.ready.extend(self.here.peers());
            }
        }
        self.start_when_ready(step);
    }

    /// A node of the cluster file takes part once everybody there knows everybody, durably.
    pub(super) fn start_when_ready(&mut self, step: &mut Step<'_>) {
        let nodes = self.here.config.cluster.nodes.len();
        let met = self.here.registry.names();
        let of_file = self.here.is_founder(&self.here.registry);
        if self.here.started || !of_file || met < nodes {
            return;
        }
        if !self.here.complete {
            self.here.put_registry(step.fx);
            self.here.complete = true;
            for peer in self.here.peers() {
                self.say_hello(peer, true, step);
            }
        }
        let early = self.here.config.planted.has(Bug::StartWhenSelfKnows);
        if early || self.here.ready.len() + 1 == nodes {
            step.fx.put(record::node("started"), wire::encode(&true));
            self.here.registry.found();
            self.here.put_registry(step.fx);
            self.here.create_logs(step);
            self.here.started = true;
            self.next_beat = step.now.monotonic;
        }
    }
}

impl Here {
    /// Whether this is the memory that the node's name stands for, and is heard.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        let gone = self.config.planted.has(Bug::GoneIsHeard);
        let known = self.registry.get(node.name);
        self.registry.knows(node)
            || (gone && known.is_some_and(|known| known.incarnation == node.incarnation))
    }

    /// Who is in the cluster, as far as this node knows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All other nodes that are heard, once the registry is known; those of the cluster file until
    /// then.
    pub(super) fn peers(&self) -> Vec<NodeName> {
        let nodes = self.directory.nodes();
        nodes.filter(|n| *n != self.id.name).collect()
    }

    /// Whether this node is one of those that the cluster has begun with, or will: a cluster that
    /// has begun knows better than this node's file.
    fn is_founder(&self, theirs: &Registry) -> bool {
        let mut nodes = self.config.cluster.nodes.iter();
        let of_file = nodes.any(|node| node.name == self.id.name);
        of_file && (theirs.version() == 0 || theirs.is_first(self.id.name))
    }

    /// Whether a node that joins can be sure that it is in the cluster: the registry says so.
    fn is_admitted(&self, registry: &Registry) -> bool {
        !self.is_founder(registry) && registry.version() > 0 && registry.knows(self.id)
    }

    /// Why this node is not the one that the registry has under its name.
    fn why_disowned(&self, registry: &Registry) -> Option<String> {
        if self.started && registry.version() == 0 {
            // Of a node that has yet to take part, and may have met anybody.
            return None;
        }
        let known = registry.get(self.id.name)?;
        let label = self.directory.label(self.id.name);
        if known.incarnation != self.id.incarnation {
            return Some(format!(
                "the cluster knows {label} with another data directory: this one is new, older or \
                 foreign; \
                 start the node with the directory it had",
            ));
        }
        let gone =
            known.standing != Standing::Present && !self.config.planted.has(Bug::GoneIsHeard);
        gone.then(|| {
            format!(
                "the cluster has taken {label} out, and hears this data directory no more; to come \
                 back the node joins with a new one"
            )
        })
    }

    /// Takes over whom another has met of the nodes of the cluster file. What else it knows is not
    /// for a node that has yet to create its logs: these begin with the first nodes alone.
    fn meet(&mut self, theirs: &Registry) {
        for node in &self.config.cluster.nodes {
            if let Some(known) = theirs.get(node.name) {
                self.registry.meet(node, known.incarnation);
            }
        }
    }

    fn put_registry(&mut self, fx: &mut Effects) {
        fx.put(record::node("registry"), wire::encode(&self.registry));
    }

    /// Takes a newer registry over.
    pub(super) fn learn_registry(&mut self, registry: &Registry, fx: &mut Effects) {
        if registry.version() <= self.registry.version() {
            return;
        }
        self.registry = registry.clone();
        registry.settings().rule(&mut self.config);
        self.put_registry(fx);
        self.name_nodes();
        self.renew_sources();
        if let Err(why) = registry.settings().admit(&self.config.formats) {
            fx.halt = Some(why);
        }
        if let Some(why) = self.why_disowned(registry) {
            fx.halt = Some(why);
        }
    }

    /// The directory has the nodes of the registry.
    pub(super) fn name_nodes(&mut self) {
        if self.registry.version() > 0 {
            let nodes = self.registry.present().map(|(name, node)| NodeInfo {
                name,
                label: node.label.clone(),
                site: node.site,
                addresses: node.addresses.clone(),
            });
            self.directory.name_nodes(nodes);
        }
    }

    pub(super) fn share_registry(&self, peer: NodeName, version: u64, fx: &mut Effects) {
        if version < self.registry.version() {
            fx.send(peer, Message::Registry(self.registry.clone()));
        }
    }

    /// Says what this node knows of the settings, as long as they change, unless its program does
    /// not read the next format: to the members of the meta-group, of whom the leader has it
    /// decided when all nodes have said so.
    pub(super) fn follow_settings(&mut self, step: &mut Step<'_>) {
        let settings = self.registry.settings();
        if !settings.is_changing() {
            (self.settling.known, self.settling.all_since) = (BTreeMap::new(), None);
            return;
        }
        let reads = settings.raising.is_none_or(|next| self.reads_next(next))
            || self.config.planted.has(Bug::KnowsWithoutReading);
        if let Some(next) = settings
            .raising
            .filter(|next| reads && self.settling.said != *next)
        {
            self.settling.said = next;
            step.fx.put(record::node("reads"), wire::encode(&next));
        }
        let (version, now) = (self.registry.version(), step.now.monotonic);
        let Some(meta) = self.directory.location(GroupId::META) else {
            return;
        };
        for node in meta.group.view.nodes().filter(|_| reads) {
            let epoch = meta.epoch();
            let known = Message::Ring(ring::Message::Knows { version, epoch });
            // A node that forgets the change must not be counted on.
            match self.config.planted.has(Bug::KnownBeforeFlush) {
                true => step.fx.send(node, known),
                false => step.fx.promise(node, known),
            }
        }
        let known = &self.settling.known;
        let all = (self.registry.present()).all(|(name, _)| known.get(&name) >= Some(&version));
        let since = self.settling.all_since;
        self.settling.all_since = since.filter(|(of, _)| all && *of == version);
        let wait = match self.config.planted.has(Bug::GivenUpForgotten) {
            true => 0,
            false => self.config.timing.lease_bound(),
        };
        let room = self.groups.get(&GroupId::META);
        if !all || !room.is_some_and(|room| room.log.is_primary()) {
            return;
        }
        // Nobody hears a node any more that was given up, and what it was granted is over soon.
        let (_, since) = *self.settling.all_since.get_or_insert((version, now));
        if since + wait <= now {
            self.settling.all_since = None;
            let settled = GroupCommand::Settled(version);
            self.propose_own(GroupId::META, Body::Group(settled), step);
        }
    }

    /// Whether this node can go by the next format. It reads that, and has no log of one before the
    /// present one, which a later program would not read: be it kept for others alone, or still to
    /// be given to a group that has split off.
    fn reads_next(&self, next: u16) -> bool {
        let present = self.registry.settings().format;
        let segments = self.segments.values().map(|room| room.state.format());
        let groups = self.groups.values().map(|room| &room.state);
        let children = groups.clone().filter_map(GroupState::child);
        let groups = groups.chain(children).map(GroupState::format);
        let closing = self.closing.values().map(|closing| closing.format);
        let none_before = segments
            .chain(groups)
            .chain(closing)
            .all(|format| format >= present);
        let planted = self.config.planted.has(Bug::FormerLogsForgotten);
        self.config.formats.contains(&next) && (none_before || planted)
    }

    /// A node has a version of the registry, durably, and tells those whom it takes for the
    /// meta-group as of this epoch.
    pub(super) fn on_knows(
        &mut self,
        from: NodeName,
        version: u64,
        epoch: Epoch,
        step: &mut Step<'_>,
    ) {
        let known = self.settling.known.entry(from).or_default();
        *known = version.max(*known);
        let meta = self.directory.location(GroupId::META);
        let silent = self.config.planted.has(Bug::FormerMetaTold);
        if let Some(later) = meta.filter(|meta| meta.epoch() > epoch && !silent) {
            self.tell_location(from, later, step);
        }
    }

    /// Whether a node's disk is lost, as far as this one knows.
    pub(super) fn is_lost(&self, name: NodeName) -> bool {
        let known = self.registry.get(name);
        known.is_some_and(|known| known.standing == Standing::Lost)
    }
}
