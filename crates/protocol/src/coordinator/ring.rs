//! Requests about the ring: who is in the cluster and where its groups are, and changes of that.
//!
//! Each change is one command in one log, which decides. What a log's state cannot know is asked
//! here, of what this node knows: who is present, who is heard, and what the groups need. It may be
//! wrong, and nothing unsafe follows.

use super::desk::Desk;
use super::refuse;
use super::simple;
use super::submit::{PrimaryAnswer, Question};
use super::{Client, Cx, Event, Job, Ring, Step, Target, Topology};
use crate::base::{Epoch, GroupId, Location, Member, Micros, NodeName, SegmentId, View};
use crate::command::{Command, GroupCommand};
use crate::lock::Outcome;
use crate::message::Message;
use crate::registry::{Newcomer, Registered, Standing};
use crate::request::{
    Admitted, Code, Refusal, Reply, RingChange, RingGroup, RingNode, RingSource, RingStatus,
};
use crate::ring;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Of so many groups it is asked where they are, before the ring is told.
const GROUPS_ASKED: usize = 256;

/// The job of `Ring`.
pub(super) fn ring() -> Box<dyn Job> {
    Box::new(Show { at: Micros::MAX })
}

/// Asks members of each group that this node has no seat in where the group is, since nobody else
/// tells it that; and tells what it knows by the time that they can have answered.
#[derive(Debug)]
struct Show {
    at: Micros,
}

impl Show {
    /// Asks; whether anybody is to be waited for.
    fn ask(cx: &mut Cx<'_>) -> bool {
        let (me, topology) = (cx.topology.me(), cx.topology);
        let locations = topology.ring().directory.locations();
        let others = locations.filter(|at| at.group.view.seat_of(me).is_none());
        let mut asks = Vec::new();
        for at in others.take(GROUPS_ASKED) {
            let members = at.group.view.nodes().filter(|node| topology.hears(*node));
            asks.extend(members.map(|node| (node, at.id())));
        }
        let waits = !asks.is_empty();
        for (node, group) in asks {
            let segment = None;
            let ask = ring::Message::Where { group, segment };
            cx.env.fx.send(node, Message::Ring(ask));
        }
        waits
    }
}

impl Job for Show {
    fn on(&mut self, event: Event, _client: &Client, _desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start if Show::ask(cx) => {
                self.at = cx.after(cx.env.timing.retry / 2);
                Step::Open
            }
            Event::Timer if cx.env.now.monotonic < self.at => Step::Open,
            Event::Start | Event::Timer => Step::reply(Reply::Ring(Box::new(status(cx.topology)))),
            Event::Cancelled => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        Some(self.at)
    }
}

fn status(topology: &dyn Topology) -> RingStatus {
    let Ring {
        registry,
        directory,
        ..
    } = topology.ring();
    let needed = |name| directory.locations().any(|at| at.needs(name));
    let told = |(name, node): &(NodeName, &Registered)| {
        node.standing == Standing::Present || needed(*name) || !node.label.is_empty()
    };
    let node = |(name, node): (NodeName, &Registered)| RingNode {
        name,
        label: node.label.clone(),
        site: registry.site_name(node.site).to_string(),
        standing: node.standing,
        drains: node.drains,
        addresses: node.addresses.clone(),
        heard: name == topology.me() || topology.hears(name),
        full: !topology.has_room(name),
        last_heard: topology.last_heard(name),
    };
    let locations = directory.locations();
    let mut groups: Vec<RingGroup> = locations.map(|at| group(at, topology)).collect();
    groups.sort_by_key(|group| (group.id != GroupId::META, group.from));
    RingStatus {
        node: topology.me(),
        version: registry.version(),
        least: directory.least(),
        nodes: registry.all().filter(told).map(node).collect(),
        groups,
    }
}

fn group(at: &Location, topology: &dyn Topology) -> RingGroup {
    let mut sources: BTreeMap<Epoch, (u32, BTreeMap<NodeName, u32>)> = BTreeMap::new();
    for (_, past) in at.all_pasts() {
        let view = at.view_of(past.epoch);
        let (open, owed) = sources.entry(past.epoch).or_default();
        *open += u32::from(past.open);
        for seat in &past.owed {
            if let Some(name) = view.as_ref().and_then(|view| view.node_at(*seat)) {
                *owed.entry(name).or_default() += 1;
            }
        }
    }
    let source = |(epoch, (open, owed)): (Epoch, (u32, BTreeMap<NodeName, u32>))| RingSource {
        epoch,
        members: at
            .view_of(epoch)
            .map_or_else(Vec::new, |view| view.nodes().collect()),
        open,
        owed: owed.into_iter().collect(),
    };
    RingGroup {
        id: at.id(),
        from: at.group.from,
        to: at.group.to,
        epoch: at.epoch(),
        members: at.group.view.nodes().collect(),
        // Who has no seat there only guesses whom to ask.
        leader: at
            .group
            .view
            .seat_of(topology.me())
            .and_then(|_| topology.primary(Target::Group(at.id()))),
        unstarted: at.unstarted().len() as u32,
        sources: sources.into_iter().map(source).collect(),
    }
}

/// The job of `ChangeRing`.
pub(super) fn change(
    change: RingChange,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let topology = cx.topology;
    // What is refused now may have been done by an earlier transmission, and be refused for that
    // very reason: a node that was dismissed is in the cluster no more.
    let unless_done = |refused: Refusal| match client.attempt {
        0 => refused,
        _ => {
            let why = refused
                .detail
                .replace(UNCHANGED, "it may have been done before");
            Refusal::unknown(Code::Unavailable, why)
        }
    };
    let (what, group, command) = match change {
        RingChange::Members {
            group,
            after,
            members,
            pressing,
        } => {
            let view = next_view((group, after), &members, topology);
            may_be_seated(&view, topology).map_err(unless_done)?;
            let format = topology.ring().registry.settings().format;
            let next = GroupCommand::Next {
                view,
                pressing,
                format,
            };
            ("changing the group's members", group, next)
        }
        RingChange::Drain { name, drains } => {
            if drains {
                may_drain(name, topology).map_err(unless_done)?;
            }
            let drain = GroupCommand::Drain { name, drains };
            ("draining the node", GroupId::META, drain)
        }
        RingChange::Readdress { name, addresses } => {
            let readdress = GroupCommand::Readdress { name, addresses };
            ("changing the node's addresses", GroupId::META, readdress)
        }
        RingChange::Dismiss { name, lost } => {
            may_be_dismissed(name, lost, topology).map_err(unless_done)?;
            let dismiss = GroupCommand::Dismiss { name, lost };
            ("dismissing the node", GroupId::META, dismiss)
        }
    };
    Ok(simple::grouped(what, group, command, client, cx))
}

/// The view in which a group is to go on.
fn next_view(
    (group, after): (GroupId, Epoch),
    members: &[NodeName],
    topology: &dyn Topology,
) -> View {
    let registry = topology.ring().registry;
    let seat = |name: &NodeName| Member {
        name: *name,
        site: registry
            .get(*name)
            .map(|known| known.site)
            .unwrap_or_default(),
        public_key: None,
    };
    View {
        group,
        epoch: after.next(),
        seats: members.iter().map(seat).collect(),
    }
}

/// Whether all who are to have a seat are in the cluster, and those who are new there do not drain
/// and have room.
fn may_be_seated(view: &View, topology: &dyn Topology) -> Result<(), Refusal> {
    let Ring {
        registry,
        directory,
        ..
    } = topology.ring();
    let Some(at) = directory.location(view.group) else {
        let why = format!("there is no group {:032x}", view.group.0);
        return Err(refused(&why, "see `fermata ring`"));
    };
    for name in view.nodes() {
        let known = registry.get(name);
        let known = known.filter(|known| known.standing == Standing::Present);
        let Some(known) = known else {
            let why = format!("there is no node {} in the cluster", name.0);
            return Err(refused(&why, "see `fermata node list`"));
        };
        if at.group.view.seat_of(name).is_some() {
            continue;
        }
        let node = format!("node {}, {},", name.0, known.label);
        if known.drains {
            return Err(refused(&format!("{node} drains"), "undrain it first"));
        }
        if !topology.has_room(name) {
            let why = format!("{node} has no room on its disk");
            return Err(refused(&why, "make room there first"));
        }
    }
    Ok(())
}

/// Whether each group in which the node has a seat has another member that can lead. One that
/// drains already is asked for nothing new.
fn may_drain(name: NodeName, topology: &dyn Topology) -> Result<(), Refusal> {
    let Ring {
        registry,
        directory,
        ..
    } = topology.ring();
    let drains = |name| registry.get(name).is_none_or(|known| known.drains);
    let heard = |name| name == topology.me() || topology.hears(name);
    let leads = |other: NodeName| {
        other != name && !drains(other) && heard(other) && topology.has_room(other)
    };
    let alone = |at: &&Location| {
        let view = &at.group.view;
        view.seat_of(name).is_some() && !view.nodes().any(leads)
    };
    match directory.locations().find(alone) {
        Some(at) if !drains(name) => {
            let arc = at.group.from..=at.group.to;
            let why = format!(
                "nobody else could lead {}: others drain, are not heard, or have no room",
                told(at.id(), &arc)
            );
            Err(refused(
                &why,
                "undrain another first, start it, or make room",
            ))
        }
        _ => Ok(()),
    }
}

/// Whether nobody needs the node any more, or it may well be lost.
fn may_be_dismissed(name: NodeName, lost: bool, topology: &dyn Topology) -> Result<(), Refusal> {
    let Ring {
        registry,
        directory,
        ..
    } = topology.ring();
    let label = registry.get(name).map_or("", |known| &known.label);
    if lost && (name == topology.me() || topology.hears(name)) {
        let why = format!("node {}, {label}, is heard: its disk is not lost", name.0);
        return Err(refused(&why, "remove it, or stop it for good first"));
    }
    let needs = directory.locations().find(|at| at.needs(name));
    match needs {
        Some(at) if !lost => {
            let arc = at.group.from..=at.group.to;
            let why = format!(
                "node {}, {label}, is needed: {} has a seat for it, or an earlier store there",
                name.0,
                told(at.id(), &arc)
            );
            Err(refused(
                &why,
                "let another node have its seats first, and their values move",
            ))
        }
        _ => Ok(()),
    }
}

fn told(group: GroupId, arc: &RangeInclusive<SegmentId>) -> String {
    match group {
        GroupId::META => "the meta-group".to_string(),
        _ => format!("the group of segments {} to {}", arc.start().0, arc.end().0),
    }
}

/// So a definite refusal says it.
const UNCHANGED: &str = "nothing was changed";

fn refused(why: &str, hint: &str) -> Refusal {
    Refusal::definite(Code::BadRequest, format!("{why}; {UNCHANGED}: {hint}"))
}

/// The job of `Admit`.
pub(super) fn admit(
    newcomer: Newcomer,
    formats: &RangeInclusive<u16>,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let settings = cx.topology.ring().registry.settings();
    let next = settings.raising.unwrap_or(settings.format);
    if !formats.contains(&settings.format) || !formats.contains(&next) {
        let why = format!(
            "the cluster goes by format {}, or is about to, and the node's program reads {} to {}",
            next,
            formats.start(),
            formats.end()
        );
        return Err(refused(&why, "start it with another version"));
    }
    let command = GroupCommand::Admit(newcomer);
    Ok(Box::new(Admit(simple::group_command(
        GroupId::META,
        command,
        client,
        cx,
    ))))
}

/// Has a node admitted, and tells it with what it begins.
#[derive(Debug)]
struct Admit(Command);

impl Admit {
    fn reply(answer: &PrimaryAnswer, cx: &Cx<'_>) -> Step {
        match answer {
            PrimaryAnswer::Outcome {
                outcome: Outcome::Admitted(name),
                ..
            } => Step::reply(Reply::Admitted(Box::new(Admitted {
                name: *name,
                cluster: cx.topology.ring().cluster.clone(),
                registry: cx.topology.ring().registry.clone(),
                catalogue: cx.topology.catalogue().clone(),
            }))),
            PrimaryAnswer::Outcome {
                outcome: Outcome::Refused(refusal),
                ..
            } => Step::refuse(refusal.clone()),
            other => Step::refuse(refuse::unanswered("admitting the node", other)),
        }
    }
}

impl Job for Admit {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => {
                let question = Question::Command(self.0.clone());
                let target = Target::Group(GroupId::META);
                let (task, deadline) = (client.task, client.deadline);
                desk.submit.ask(task, target, question, deadline, true, cx);
                Step::Open
            }
            Event::Asked { answer, .. } => Admit::reply(&answer, cx),
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        None
    }
}
