//! A group's own state: its view, its arc, and, in the group that keeps it, the keyspace catalogue.
//! A state machine that every member applies from the group's log.

use crate::base::{Epoch, Group, Keyspace, KeyspaceId, SegmentId, View};
use crate::command::{Body, Command, GroupCommand};
use crate::lock::Outcome;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Keyspaces of one cluster at most.
pub const KEYSPACES_MAX: usize = 1_024;

/// The state of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    commands: u64,
    view: View,
    from: SegmentId,
    to: SegmentId,
    next: Option<View>,
    catalogue: Vec<Keyspace>,
    version: u64,
    sessions: Sessions,
}

impl GroupState {
    /// The state in which a group of the cluster file starts.
    pub fn start(group: &Group) -> GroupState {
        GroupState {
            commands: 0,
            view: group.view.clone(),
            from: group.from,
            to: group.to,
            next: None,
            catalogue: Keyspace::built_in().to_vec(),
            version: 1,
            sessions: Sessions::default(),
        }
    }

    /// The state in which the next log of this group starts, once a successor view is decided.
    pub fn succeed(mut self) -> GroupState {
        if let Some(next) = self.next.take() {
            self.view = next;
        }
        self
    }

    /// The members.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The first and last segment of the arc.
    pub fn arc(&self) -> (SegmentId, SegmentId) {
        (self.from, self.to)
    }

    /// The successor view: decided, which is also the end of this log.
    pub fn decided(&self) -> Option<&View> {
        self.next.as_ref()
    }

    /// The number of changes of the catalogue, and the catalogue.
    pub fn catalogue(&self) -> (u64, &[Keyspace]) {
        (self.version, &self.catalogue)
    }

    /// Commands in the group's whole history.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, command: &Command) -> Option<Outcome> {
        self.sessions.outcome(command.session, command.number)
    }

    /// Applies the next command of the log. After the first `Next` nothing has an effect: none is
    /// returned for what is new then, and it is not remembered. It belongs to the next log, in
    /// which whoever asks proposes it again; a refusal that is remembered would go along, and
    /// refuse it for ever.
    pub fn apply(&mut self, command: &Command) -> Option<Outcome> {
        self.commands += 1;
        let known = self.outcome(command);
        if known.is_some() || self.next.is_some() {
            return known;
        }
        let outcome = match &command.body {
            Body::Group(GroupCommand::Next(view)) => self.decide(view),
            Body::Group(GroupCommand::CreateKeyspace(keyspace)) => self.create(keyspace),
            Body::Group(
                GroupCommand::Split(_)
                | GroupCommand::Decide(_)
                | GroupCommand::Vote(_)
                | GroupCommand::Take(_),
            )
            | Body::Lock(_)
            | Body::Transaction(_)
            | Body::Segment(_) => {
                let why = "this group does not know such a command; nothing was changed";
                Outcome::Refused(Refusal::definite(Code::BadRequest, why))
            }
        };
        let (session, number) = (command.session, command.number);
        let answered = command.answered_through;
        self.sessions
            .remember(session, number, answered, self.commands, outcome.clone());
        Some(outcome)
    }

    fn decide(&mut self, view: &View) -> Outcome {
        let epoch: Epoch = self.view.epoch.next();
        let same_seats = view.seats == self.view.seats && view.group == self.view.group;
        if view.epoch != epoch || !same_seats {
            let why = "only the next epoch of the same seats can be decided; nothing was changed";
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        self.next = Some(view.clone());
        Outcome::Done
    }

    fn create(&mut self, keyspace: &Keyspace) -> Outcome {
        let id = match place_in(&self.catalogue, keyspace) {
            Ok(id) => id,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if let Err(why) = keyspace.storage.shape(self.view.len()) {
            let why = format!("the keyspace's storage is impossible: {why}; choose other terms");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        self.catalogue.push(Keyspace {
            id,
            ..keyspace.clone()
        });
        self.version += 1;
        Outcome::Done
    }
}

/// The id that a new keyspace gets in a catalogue.
///
/// # Errors
/// A definite refusal: it cannot have that name or those times, the name is taken, or there is no
/// room.
pub fn place_in(catalogue: &[Keyspace], wanted: &Keyspace) -> Result<KeyspaceId, Refusal> {
    let refuse = |code, why: String| Err(Refusal::definite(code, why));
    if !Keyspace::is_name(&wanted.name) {
        let why = "a keyspace's name has 1 to 64 of a-z, 0-9, - and _; choose another";
        return refuse(Code::BadRequest, why.into());
    }
    if let Err(why) = wanted.check_times() {
        return refuse(Code::BadRequest, why);
    }
    if let Some(known) = catalogue.iter().find(|known| known.name == wanted.name) {
        return refuse(Code::KeyspaceExists, exists(known, wanted));
    }
    if catalogue.len() >= KEYSPACES_MAX {
        let why = format!("the cluster has {KEYSPACES_MAX} keyspaces, which is the most");
        return refuse(Code::Busy, why);
    }
    let last = catalogue.iter().map(|known| known.id.0).max();
    Ok(KeyspaceId(last.unwrap_or(0) + 1))
}

/// The refusal's sentence for a name that is taken: in which terms the existing keyspace differs
/// from the wanted one.
fn exists(known: &Keyspace, wanted: &Keyspace) -> String {
    let terms = [
        ("purpose", known.purpose == wanted.purpose),
        ("storage", known.storage == wanted.storage),
        ("tag rule", known.tag_rule == wanted.tag_rule),
        ("lease", known.lease == wanted.lease),
        ("longest section", known.section_max == wanted.section_max),
    ];
    let differ: Vec<&str> = terms
        .iter()
        .filter(|(_, same)| !same)
        .map(|(term, _)| *term)
        .collect();
    let name = &known.name;
    match differ[..] {
        [] => format!("there is a keyspace `{name}` already, with the same terms: use it"),
        _ => format!(
            "there is a keyspace `{name}` already, with other terms ({}): use it as it is, or \
             choose another name",
            differ.join(", ")
        ),
    }
}
