//! A group's own state: where it is, and, in the meta-group, what the cluster as a whole agrees on.
//! A state machine that every member applies from the group's log.

use crate::base::storage::MEMBERS_MAX;
use crate::base::{Group, GroupId, Location, Planted, Split, View};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, GroupCommand};
use crate::lock::Outcome;
use crate::meta::Meta;
use crate::registry::Registry;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use alloc::boxed::Box;
use alloc::format;
use serde::{Deserialize, Serialize};

/// The state of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    commands: u64,
    location: Location,
    /// No view has fewer members.
    least: u8,
    next: Next,
    role: Role,
    sessions: Sessions,
    /// The format of this log, and of its segments'.
    format: u16,
    /// The same of what follows; 0 while nothing is decided.
    next_format: u16,
}

/// How the group goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Next {
    /// Nothing is decided.
    #[default]
    Undecided,
    /// With these members.
    View(View),
    /// As two.
    Split(Box<Split>),
}

/// What only some groups have in their state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    /// Nothing.
    #[default]
    Plain,
    /// The meta-group: what the cluster agrees on.
    Meta(Box<Meta>),
    /// Another group has split off, and its log is not known to have an entry: with what it begins.
    Parent(Box<GroupState>),
}

impl GroupState {
    /// The state in which a group of the cluster file starts, in a cluster of these nodes in which
    /// no view has fewer members than `least`.
    pub fn start(group: &Group, least: u8, registry: &Registry) -> GroupState {
        let role = match group.id {
            GroupId::META => Role::Meta(Box::new(Meta::start(registry.clone()))),
            _ => Role::Plain,
        };
        GroupState {
            commands: 0,
            location: Location::beginning(group),
            least,
            next: Next::Undecided,
            role,
            sessions: Sessions::default(),
            format: registry.settings().format,
            next_format: 0,
        }
    }

    /// The same after a history that ended elsewhere, with what it has left of the catalogue.
    pub(crate) fn after(mut self, history: (u64, Sessions), catalogue: Catalogue) -> GroupState {
        (self.commands, self.sessions) = history;
        if let Role::Meta(meta) = self.role {
            self.role = Role::Meta(Box::new(meta.with(catalogue)));
        }
        self
    }

    /// The state in which the next log of this group starts, once it is decided how it goes on.
    pub fn succeed(mut self) -> GroupState {
        let next = core::mem::take(&mut self.next);
        let format = core::mem::take(&mut self.next_format);
        match next {
            Next::Undecided => return self,
            Next::View(view) => self.location.succeed(view, format),
            Next::Split(split) => {
                let (own, child) = self.location.split(&split, format);
                self.location = own;
                self.role = Role::Parent(Box::new(GroupState {
                    commands: 0,
                    location: child,
                    least: self.least,
                    next: Next::Undecided,
                    role: Role::Plain,
                    sessions: Sessions::default(),
                    format,
                    next_format: 0,
                }));
            }
        }
        self.format = format;
        self
    }

    /// With what a group begins that has split off from this one, until its log is known to have an
    /// entry.
    pub fn child(&self) -> Option<&GroupState> {
        match &self.role {
            Role::Parent(child) => Some(child),
            Role::Plain | Role::Meta(_) => None,
        }
    }

    /// The format of the group's present logs.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Where the group is. What is decided is not in it before the group goes on in its next log.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Whether it is decided how the group goes on, which is also the end of this log.
    pub fn is_decided(&self) -> bool {
        self.next != Next::Undecided
    }

    /// What the cluster agrees on; none but in the meta-group.
    pub fn meta(&self) -> Option<&Meta> {
        match &self.role {
            Role::Meta(meta) => Some(meta),
            Role::Plain | Role::Parent(_) => None,
        }
    }

    /// Commands in the group's whole history.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, command: &Command) -> Option<Outcome> {
        self.sessions.outcome(command.session, command.number)
    }

    /// Applies the next command of the log. After what decides how the group goes on nothing has an
    /// effect: none is returned for what is new then, and it is not remembered. It belongs to the
    /// next log, in which whoever asks proposes it again; a refusal that is remembered would go
    /// along, and refuse it for ever.
    pub fn apply(&mut self, command: &Command, planted: Planted) -> Option<Outcome> {
        self.commands += 1;
        let known = self.outcome(command);
        if known.is_some() || self.is_decided() {
            return known;
        }
        let outcome = match &command.body {
            Body::Group(GroupCommand::Next {
                view,
                pressing,
                format,
            }) => {
                let allowed = self.location.check_next(view, self.least, *pressing);
                self.decide(allowed, Next::View(view.clone()), *format)
            }
            Body::Group(GroupCommand::Split { split, format }) => {
                let allowed = match self.child() {
                    Some(_) => Err("the group that has split off last has not begun; ask again"),
                    None => self.location.check_split(split, self.least),
                };
                self.decide(allowed, Next::Split(split.clone()), *format)
            }
            Body::Group(GroupCommand::ChildBegun(child)) => {
                if self
                    .child()
                    .is_some_and(|begun| begun.location.id() == *child)
                {
                    self.role = Role::Plain;
                }
                Outcome::Done
            }
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

    fn decide(&mut self, allowed: Result<(), &str>, next: Next, format: u16) -> Outcome {
        if let Err(why) = allowed {
            let why = format!("{why}; nothing was changed");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        self.next = next;
        self.next_format = format.max(self.format);
        Outcome::Done
    }

    fn apply_meta(&mut self, command: &GroupCommand, planted: Planted) -> Outcome {
        if let GroupCommand::Dismiss { name, lost: false } = command
            && self.meta().is_some()
            && self.location.needs(*name)
        {
            let why = "the node has a seat in the meta-group: it leaves that group first; nothing \
                       was changed";
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        let sizes = usize::from(self.least)..=MEMBERS_MAX;
        let outcome = match &mut self.role {
            Role::Meta(meta) => meta.apply(command, sizes, planted),
            Role::Plain | Role::Parent(_) => None,
        };
        outcome.unwrap_or_else(unknown)
    }
}

fn unknown() -> Outcome {
    let why = "this group does not know such a command; nothing was changed";
    Outcome::Refused(Refusal::definite(Code::BadRequest, why))
}
