//! A group's own state: where it is, and, in the meta-group, what the cluster as a whole agrees on.
//! A state machine that every member applies from the group's log.

use crate::base::storage::MEMBERS_MAX;
use crate::base::{Group, GroupId, Location, Planted, View};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, GroupCommand};
use crate::lock::Outcome;
use crate::meta::Meta;
use crate::registry::Registry;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use alloc::format;
use serde::{Deserialize, Serialize};

/// The state of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    commands: u64,
    location: Location,
    /// No view has fewer members.
    least: u8,
    next: Option<View>,
    /// Of the meta-group alone.
    meta: Option<Meta>,
    sessions: Sessions,
    /// The format of this log, and of its segments'.
    format: u16,
    /// The same of what follows; 0 while nothing is decided.
    next_format: u16,
}

impl GroupState {
    /// The state in which a group of the cluster file starts, in a cluster of these nodes in which
    /// no view has fewer members than `least`.
    pub fn start(group: &Group, least: u8, registry: &Registry) -> GroupState {
        let meta = (group.id == GroupId::META).then(|| Meta::start(registry.clone()));
        GroupState {
            commands: 0,
            location: Location::beginning(group),
            least,
            next: None,
            meta,
            sessions: Sessions::default(),
            format: registry.settings().format,
            next_format: 0,
        }
    }

    /// The same after a history that ended elsewhere, with what it has left of the catalogue.
    pub(crate) fn after(mut self, history: (u64, Sessions), catalogue: Catalogue) -> GroupState {
        (self.commands, self.sessions) = history;
        self.meta = self.meta.map(|meta| meta.with(catalogue));
        self
    }

    /// The state in which the next log of this group starts, once a successor view is decided.
    pub fn succeed(mut self) -> GroupState {
        if let Some(next) = self.next.take() {
            self.format = core::mem::take(&mut self.next_format);
            self.location.succeed(next, self.format);
        }
        self
    }

    /// The format of the group's present logs.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Where the group is. What is decided is not in it before the group goes on in its next log.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The successor view: decided, which is also the end of this log.
    pub fn decided(&self) -> Option<&View> {
        self.next.as_ref()
    }

    /// What the cluster agrees on; none but in the meta-group.
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
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
            Body::Group(GroupCommand::Next {
                view,
                pressing,
                format,
            }) => self.decide(view, *pressing, *format),
            Body::Group(GroupCommand::Started { epoch, segments }) => {
                self.location.start(*epoch, segments);
                Outcome::Done
            }
            Body::Group(GroupCommand::Moved { segment, source }) => {
                self.location.close(*segment, *source);
                Outcome::Done
            }
            Body::Group(GroupCommand::Harvested {
                segment,
                source,
                seat,
            }) => {
                self.location.harvest(*segment, *source, *seat);
                Outcome::Done
            }
            Body::Group(command) => self.apply_meta(command, planted),
            Body::Lock(_) | Body::Transaction(_) | Body::Segment(_) => unknown(),
        };
        let (session, number) = (command.session, command.number);
        let answered = command.answered_through;
        self.sessions
            .remember(session, number, answered, self.commands, outcome.clone());
        Some(outcome)
    }

    fn decide(&mut self, view: &View, pressing: bool, format: u16) -> Outcome {
        if let Err(why) = self.location.check_next(view, self.least, pressing) {
            let why = format!("{why}; nothing was changed");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        self.next = Some(view.clone());
        self.next_format = format.max(self.format);
        Outcome::Done
    }

    fn apply_meta(&mut self, command: &GroupCommand, planted: Planted) -> Outcome {
        if let GroupCommand::Dismiss { name, lost: false } = command
            && self.meta.is_some()
            && self.location.needs(*name)
        {
            let why = "the node has a seat in the meta-group: it leaves that group first; nothing \
                       was changed";
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        let sizes = usize::from(self.least)..=MEMBERS_MAX;
        let meta = self.meta.as_mut();
        let outcome = meta.and_then(|meta| meta.apply(command, sizes, planted));
        outcome.unwrap_or_else(unknown)
    }
}

fn unknown() -> Outcome {
    let why = "this group does not know such a command; nothing was changed";
    Outcome::Refused(Refusal::definite(Code::BadRequest, why))
}
