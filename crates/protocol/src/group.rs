//! A group's own state: its view, its arc, and, in the group that keeps it, the keyspace catalogue.
//! A state machine that every member applies from the group's log.

use crate::base::{Epoch, Group, Keyspace, Planted, SegmentId, View};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, GroupCommand};
use crate::lock::Outcome;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use alloc::format;
use serde::{Deserialize, Serialize};

/// The state of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    commands: u64,
    view: View,
    from: SegmentId,
    to: SegmentId,
    next: Option<View>,
    catalogue: Catalogue,
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
            catalogue: Catalogue::default(),
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

    /// The keyspaces.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
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
    pub fn apply(&mut self, command: &Command, planted: Planted) -> Option<Outcome> {
        self.commands += 1;
        let known = self.outcome(command);
        if known.is_some() || self.next.is_some() {
            return known;
        }
        let outcome = match &command.body {
            Body::Group(GroupCommand::Next(view)) => self.decide(view),
            Body::Group(GroupCommand::CreateKeyspace(keyspace)) => self.create(keyspace, planted),
            Body::Group(GroupCommand::ChangeKeyspace {
                id,
                lease,
                section_max,
            }) => done(self.catalogue.change(*id, (*lease, *section_max))),
            Body::Group(GroupCommand::DeleteKeyspace(id)) => done(self.catalogue.delete(*id)),
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

    fn create(&mut self, keyspace: &Keyspace, planted: Planted) -> Outcome {
        if let Err(why) = keyspace.storage.shape(self.view.len()) {
            let why = format!("the keyspace's storage is impossible: {why}; choose other terms");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        done(self.catalogue.create(keyspace, planted))
    }
}

fn done(result: Result<(), Refusal>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(refusal) => Outcome::Refused(refusal),
    }
}
