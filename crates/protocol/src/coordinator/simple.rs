//! Requests of one step: renewals, the catalogue.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::{
    Client, Cx, Event, Job, Lost, Message, STEP_FIRST, STEPS, Step, Target, command_number,
};
use crate::base::{Bug, GroupId, KeyId, Keyspace, KeyspaceId, LockRef, Micros, SegmentId};
use crate::command::{Body, Command, GroupCommand};
use crate::lock::Outcome;
use crate::request::{Held, RefState, Refusal, Reply};
use crate::settings::Setting;
use crate::wire;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

/// Refs in one renewal at most: of all the sections of a client, not of one.
const RENEWED: usize = 4_096;
/// Retry times after which a renewal is answered without the segments that are silent: long before
/// a lease is over, so that the others are not kept waiting.
const RENEWAL: u64 = 3;

/// The job of what this node knows by itself.
pub(super) fn known(reply: Reply) -> Box<dyn Job> {
    Box::new(Known(Some(reply)))
}

#[derive(Debug)]
struct Known(Option<Reply>);

impl Job for Known {
    fn on(&mut self, _event: Event, _client: &Client, _desk: &mut Desk, _cx: &mut Cx<'_>) -> Step {
        Step::Close(self.0.take())
    }
}

/// The job of `Renew`, and of `Relinquish`.
pub(super) fn renew(
    held: Vec<Held>,
    relinquishes: bool,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    if held.is_empty() || held.len() > RENEWED {
        return Err(refuse::bad("a renewal names 1 to 4,096 refs; make several"));
    }
    let mut parts: Vec<SegmentRenewal> = Vec::new();
    let mut states = vec![None; held.len()];
    for (index, held) in held.iter().enumerate() {
        if cx.topology.catalogue().is_dead(held.key.keyspace) {
            // Nobody need be asked, and the other sections are renewed as ever.
            states[index] = Some(RefState::Deleted);
            continue;
        }
        let segment = super::leave::segment_of(&held.key, cx)?;
        let one = (held.lock_ref, held.generation);
        let at = parts.iter().position(|p| p.segment == segment);
        let at = at.unwrap_or_else(|| {
            parts.push(SegmentRenewal::new(segment));
            parts.len() - 1
        });
        parts[at].of.push((index, one));
        if !parts[at].refs.contains(&one) {
            parts[at].refs.push(one);
        }
    }
    if parts.is_empty() {
        let states = states.into_iter().flatten().collect();
        return Ok(known(Reply::Renewed { states }));
    }
    Ok(Box::new(Renew {
        held,
        relinquishes,
        parts,
        states,
    }))
}

#[derive(Debug)]
struct SegmentRenewal {
    segment: SegmentId,
    refs: Vec<(LockRef, u32)>,
    /// Which of the refs asked for are these.
    of: Vec<(usize, (LockRef, u32))>,
    ask: u64,
}

impl SegmentRenewal {
    fn new(segment: SegmentId) -> SegmentRenewal {
        SegmentRenewal {
            segment,
            refs: Vec::new(),
            of: Vec::new(),
            ask: 0,
        }
    }
}

/// A heartbeat: relayed to each primary, which alone grants leases (F10).
#[derive(Debug)]
struct Renew {
    held: Vec<Held>,
    relinquishes: bool,
    parts: Vec<SegmentRenewal>,
    states: Vec<Option<RefState>>,
}

impl Renew {
    fn ask(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        if cx.env.planted.has(Bug::LeaseWithoutPrimary) {
            let lease = |held: &Held| {
                let lease = cx
                    .topology
                    .keyspace(held.key.keyspace)
                    .map_or(0, |k| k.lease);
                RefState::Holding { lease }
            };
            let states = self.held.iter().map(lease).collect();
            return Step::reply(Reply::Renewed { states });
        }
        let deadline = cx.after(RENEWAL * cx.env.timing.retry);
        for part in &mut self.parts {
            let question = Question::Renew {
                session: client.session,
                refs: part.refs.clone(),
                again: Vec::new(),
                relinquishes: self.relinquishes,
            };
            let target = Target::Segment(part.segment);
            part.ask = desk
                .submit
                .ask(client.task, target, question, deadline, true, cx);
        }
        Step::Open
    }

    fn answered(
        &mut self,
        ask: u64,
        answer: &PrimaryAnswer,
        client: &Client,
        desk: &mut Desk,
    ) -> Step {
        let Some(part) = self.parts.iter().find(|p| p.ask == ask) else {
            return Step::Open;
        };
        for (index, one) in &part.of {
            let place = part.refs.iter().position(|r| r == one);
            let state = match (answer, place) {
                (PrimaryAnswer::States(states), Some(place)) => states.get(place).copied(),
                _ => None,
            };
            if state == Some(RefState::Gone) {
                desk.lost.push(Lost {
                    segment: part.segment,
                    lock_ref: one.0,
                    generation: one.1,
                    removed: false,
                    only: Some(client.session),
                });
            }
            if let Some(slot) = self.states.get_mut(*index) {
                *slot = Some(state.unwrap_or(RefState::Unknown));
            }
        }
        let states: Option<Vec<RefState>> = self.states.iter().copied().collect();
        match states {
            Some(states) => Step::reply(Reply::Renewed { states }),
            None => Step::Open,
        }
    }
}

impl Job for Renew {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.ask(client, desk, cx),
            Event::Asked { ask, answer } => self.answered(ask, &answer, client, desk),
            Event::Cancelled => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        None
    }
}

/// One question to a primary and the reply that follows from its answer.
#[derive(Debug)]
struct Asked {
    what: &'static str,
    target: Target,
    question: Question,
}

impl Asked {
    fn reply(&self, answer: PrimaryAnswer) -> Step {
        match answer {
            PrimaryAnswer::Queue(entries, flag) => Step::reply(Reply::Queue { entries, flag }),
            PrimaryAnswer::Outcome {
                outcome: Outcome::Done | Outcome::Gone,
                ..
            } => Step::reply(Reply::Done { tag: None }),
            PrimaryAnswer::Outcome {
                outcome: Outcome::Refused(refusal),
                ..
            } => Step::refuse(refusal),
            other => Step::refuse(refuse::unanswered(self.what, &other)),
        }
    }
}

impl Job for Asked {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => {
                let question = self.question.clone();
                let deadline = client.deadline;
                desk.submit
                    .ask(client.task, self.target, question, deadline, true, cx);
                Step::Open
            }
            Event::Asked { answer, .. } => self.reply(answer),
            Event::Cancelled if matches!(self.question, Question::Queue(_)) => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        None
    }
}

/// The job of `Queue`.
pub(super) fn queue(key: KeyId, cx: &Cx<'_>) -> Result<Box<dyn Job>, Refusal> {
    let segment = super::leave::segment_of(&key, cx)?;
    Ok(Box::new(Asked {
        what: "reading the queue",
        target: Target::Segment(segment),
        question: Question::Queue(key),
    }))
}

/// The job of `CreateKeyspace`.
pub(super) fn create(
    keyspace: Keyspace,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    if !Keyspace::is_name(&keyspace.name) {
        return Err(refuse::bad(
            "a keyspace's name is 1 to 64 of a-z, 0-9, - and _",
        ));
    }
    keyspace.check_times().map_err(|why| refuse::bad(&why))?;
    keyspace.check_purpose().map_err(|why| refuse::bad(&why))?;
    let format = cx.topology.ring().registry.settings().format;
    if keyspace.purpose.is_ledger() && format < wire::LEDGERS {
        let text = format!(
            "ledger keyspaces come with format {}, and the cluster goes by format {format}: raise \
             it first, once every node runs a version that reads the next one",
            wire::LEDGERS
        );
        return Err(refuse::bad(&text));
    }
    // Members may go, down to as many as the smallest group began with.
    let least = usize::from(cx.topology.ring().directory.least());
    for members in cx.topology.group_sizes().into_iter().chain([least]) {
        let limits = cx.env.limits;
        if let Err(why) = limits.fits(limits.value, &keyspace.storage, members) {
            let name = keyspace.storage.name();
            return Err(refuse::bad(&format!(
                "storage {name} is impossible here: {why}; choose other terms, or lower the \
                 setting value_bytes"
            )));
        }
    }
    let command = GroupCommand::CreateKeyspace(keyspace);
    Ok(catalogued("creating the keyspace", command, client, cx))
}

/// The job of `ChangeKeyspace`.
pub(super) fn change(
    id: KeyspaceId,
    (lease, section_max): (Option<Micros>, Option<Micros>),
    client: &Client,
    cx: &Cx<'_>,
) -> Box<dyn Job> {
    let command = GroupCommand::ChangeKeyspace {
        id,
        lease,
        section_max,
    };
    catalogued("changing the keyspace", command, client, cx)
}

/// The job of `DeleteKeyspace`. Who asks for a name that is not known here has been refused.
pub(super) fn delete(id: KeyspaceId, client: &Client, cx: &Cx<'_>) -> Box<dyn Job> {
    let command = GroupCommand::DeleteKeyspace(id);
    catalogued("deleting the keyspace", command, client, cx)
}

/// The job of `ChangeAccess`.
pub(super) fn change_access(
    after: u64,
    policy: Bytes,
    client: &Client,
    cx: &Cx<'_>,
) -> Box<dyn Job> {
    let command = GroupCommand::ChangeAccess { after, policy };
    catalogued("changing the access policy", command, client, cx)
}

/// The job of `ChangeSettings`.
pub(super) fn settle(
    change: Setting,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let beat = cx.env.timing.beat;
    match change {
        Setting::Lease(lease) if lease < 2 * beat => {
            return Err(refuse::bad(&format!(
                "a read lease is at least twice a beat, which is {} ms here (timing.beat_ms): no \
                 lease could be kept; choose a longer one",
                beat / 1_000
            )));
        }
        Setting::Format(format) if cx.topology.is_newer(format) => {
            return Err(refuse::bad(&format!(
                "the program of the node that was asked does not read format {format}: first start \
                 every node with a version of it that does"
            )));
        }
        _ => {}
    }
    let command = GroupCommand::Settle(change);
    Ok(catalogued("changing the settings", command, client, cx))
}

/// A command for the meta-group, which decides.
fn catalogued(
    what: &'static str,
    command: GroupCommand,
    client: &Client,
    cx: &Cx<'_>,
) -> Box<dyn Job> {
    grouped(what, GroupId::META, command, client, cx)
}

/// The job of a command for a group, which decides.
pub(super) fn grouped(
    what: &'static str,
    group: GroupId,
    command: GroupCommand,
    client: &Client,
    cx: &Cx<'_>,
) -> Box<dyn Job> {
    let command = group_command(group, command, client, cx);
    Box::new(Asked {
        what,
        target: Target::Group(group),
        question: Question::Command(command),
    })
}

/// A client's command for a group.
pub(super) fn group_command(
    group: GroupId,
    command: GroupCommand,
    client: &Client,
    cx: &Cx<'_>,
) -> Command {
    let through = client.answered_through;
    Command::new(
        client.session,
        command_number(client.number, STEP_FIRST),
        command_number(through, STEPS - 1),
        cx.topology.epoch(Target::Group(group)),
        Body::Group(command),
    )
}

/// What is sought in the catalogue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sought {
    Keyspaces,
    Access,
}

/// The job of `Catalogue` and `Access`.
pub(super) fn catalogue(sought: Sought) -> Box<dyn Job> {
    Box::new(Catalogue {
        sought,
        call: None,
        retry_at: Micros::MAX,
    })
}

/// Asks all who may lead the catalogue's log; the one that does sends the catalogue and answers.
#[derive(Debug)]
struct Catalogue {
    sought: Sought,
    call: Option<u64>,
    retry_at: Micros,
}

impl Catalogue {
    fn ask(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        self.forget(desk);
        let call = desk.list(client.task);
        self.call = Some(call);
        self.retry_at = cx.after(cx.env.timing.retry);
        for node in cx.topology.members(Target::Group(GroupId::META)) {
            cx.env.fx.send(node, Message::Catalogue { call });
        }
        Step::Open
    }

    fn forget(&mut self, desk: &mut Desk) {
        if let Some(call) = self.call.take() {
            desk.list_no_more(call);
        }
    }
}

impl Job for Catalogue {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.ask(client, desk, cx),
            Event::Catalogue { version } => {
                let known = cx.topology.catalogue();
                // Else what it has sent was lost: it is asked again.
                if known.version() >= version {
                    return Step::reply(match self.sought {
                        Sought::Keyspaces => Reply::Keyspaces(known.all().to_vec()),
                        Sought::Access => Reply::Access(known.access().clone()),
                    });
                }
                Step::Open
            }
            Event::Timer if cx.env.now.monotonic >= client.deadline => {
                Step::refuse(refuse::unavailable("asking for the catalogue", false))
            }
            Event::Timer if cx.env.now.monotonic >= self.retry_at => self.ask(client, desk, cx),
            Event::Cancelled => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        Some(self.retry_at.min(client.deadline))
    }

    fn close(&mut self, _client: &Client, desk: &mut Desk) {
        self.forget(desk);
    }
}
