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
use crate::wire::{self, grown};
use alloc::boxed::Box;
use alloc::format;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The state of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    kept: Kept,
    /// The cluster's time has not passed this, microseconds since 1970 (ledger L36): in the
    /// meta-group, from the format [`wire::LEDGERS`] on.
    limit: u64,
}

impl Serialize for GroupState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let limit = self.kept.has_limit().then_some(&self.limit);
        grown::serialize(&self.kept, limit, to)
    }
}

impl<'de> Deserialize<'de> for GroupState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<GroupState, D::Error> {
        let (kept, limit) = grown::deserialize(from, Kept::has_limit)?;
        Ok(GroupState { kept, limit })
    }
}

/// What a group's state has in every format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
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

impl Kept {
    fn has_limit(&self) -> bool {
        self.format >= wire::LEDGERS
    }
}

impl GroupState {
    /// The state in which a group of the cluster file starts, in a cluster of these nodes in which
    /// no view has fewer members than `least`.
    pub fn start(group: &Group, least: u8, registry: &Registry) -> GroupState {
        let role = match group.id {
            GroupId::META => Role::Meta(Box::new(Meta::start(registry.clone()))),
            _ => Role::Plain,
        };
        GroupState::of(Kept {
            commands: 0,
            location: Location::beginning(group),
            least,
            next: Next::Undecided,
            role,
            sessions: Sessions::default(),
            format: registry.settings().format,
            next_format: 0,
        })
    }

    fn of(kept: Kept) -> GroupState {
        GroupState { kept, limit: 0 }
    }

    /// The same after a history that ended elsewhere, with what it has left of the catalogue.
    pub(crate) fn after(mut self, history: (u64, Sessions), catalogue: Catalogue) -> GroupState {
        (self.kept.commands, self.kept.sessions) = history;
        if let Role::Meta(meta) = self.kept.role {
            self.kept.role = Role::Meta(Box::new(meta.with(catalogue)));
        }
        self
    }

    /// The state in which the next log of this group starts, once it is decided how it goes on.
    pub fn succeed(mut self) -> GroupState {
        let next = core::mem::take(&mut self.kept.next);
        let format = core::mem::take(&mut self.kept.next_format);
        match next {
            Next::Undecided => return self,
            Next::View(view) => self.kept.location.succeed(view, format),
            Next::Split(split) => {
                let (own, child) = self.kept.location.split(&split, format);
                self.kept.location = own;
                self.kept.role = Role::Parent(Box::new(GroupState::of(Kept {
                    commands: 0,
                    location: child,
                    least: self.kept.least,
                    next: Next::Undecided,
                    role: Role::Plain,
                    sessions: Sessions::default(),
                    format,
                    next_format: 0,
                })));
            }
        }
        self.kept.format = format;
        self
    }

    /// With what a group begins that has split off from this one, until its log is known to have an
    /// entry.
    pub fn child(&self) -> Option<&GroupState> {
        match &self.kept.role {
            Role::Parent(child) => Some(child),
            Role::Plain | Role::Meta(_) => None,
        }
    }

    /// The format of the group's present logs.
    pub fn format(&self) -> u16 {
        self.kept.format
    }

    /// Where the group is. What is decided is not in it before the group goes on in its next log.
    pub fn location(&self) -> &Location {
        &self.kept.location
    }

    /// Whether it is decided how the group goes on, which is also the end of this log.
    pub fn is_decided(&self) -> bool {
        self.kept.next != Next::Undecided
    }

    /// What the cluster agrees on; none but in the meta-group.
    pub fn meta(&self) -> Option<&Meta> {
        match &self.kept.role {
            Role::Meta(meta) => Some(meta),
            Role::Plain | Role::Parent(_) => None,
        }
    }

    /// Commands in the group's whole history.
    pub fn commands(&self) -> u64 {
        self.kept.commands
    }

    /// The cluster's time has not passed this, microseconds since 1970; 0: nobody has read it.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether this log orders limits of the cluster's time.
    pub fn has_limit(&self) -> bool {
        self.kept.has_limit()
    }

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, command: &Command) -> Option<Outcome> {
        self.kept.sessions.outcome(command.session, command.number)
    }

    /// Applies the next command of the log. After what decides how the group goes on nothing has an
    /// effect: none is returned for what is new then, and it is not remembered. It belongs to the
    /// next log, in which whoever asks proposes it again; a refusal that is remembered would go
    /// along, and refuse it for ever.
    pub fn apply(&mut self, command: &Command, planted: Planted) -> Option<Outcome> {
        self.kept.commands += 1;
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
                let allowed = self
                    .kept
                    .location
                    .check_next(view, self.kept.least, *pressing);
                self.decide(allowed, Next::View(view.clone()), *format)
            }
            Body::Group(GroupCommand::Split { split, format }) => {
                let allowed = match self.child() {
                    Some(_) => Err("the group that has split off last has not begun; ask again"),
                    None => self.kept.location.check_split(split, self.kept.least),
                };
                self.decide(allowed, Next::Split(split.clone()), *format)
            }
            Body::Group(GroupCommand::ChildBegun(child)) => {
                if self
                    .child()
                    .is_some_and(|begun| begun.location().id() == *child)
                {
                    self.kept.role = Role::Plain;
                }
                Outcome::Done
            }
            Body::Group(GroupCommand::Started { epoch, segments }) => {
                self.kept.location.start(*epoch, segments);
                Outcome::Done
            }
            Body::Group(GroupCommand::Moved { segment, source }) => {
                self.kept.location.close(*segment, *source);
                Outcome::Done
            }
            Body::Group(GroupCommand::Harvested {
                segment,
                source,
                seat,
            }) => {
                self.kept.location.harvest(*segment, *source, *seat);
                Outcome::Done
            }
            Body::Group(GroupCommand::Limit(limit)) => {
                self.limit = self.limit.max(*limit);
                Outcome::Done
            }
            Body::Group(command) => self.apply_meta(command, planted),
            Body::Lock(_) | Body::Ledger(_) | Body::Segment(_) => unknown(),
        };
        let (session, number) = (command.session, command.number);
        let answered = command.answered_through;
        self.kept.sessions.remember(
            session,
            number,
            answered,
            self.kept.commands,
            outcome.clone(),
        );
        Some(outcome)
    }

    fn decide(&mut self, allowed: Result<(), &str>, next: Next, format: u16) -> Outcome {
        if let Err(why) = allowed {
            let why = format!("{why}; nothing was changed");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        self.kept.next = next;
        self.kept.next_format = format.max(self.kept.format);
        Outcome::Done
    }

    fn apply_meta(&mut self, command: &GroupCommand, planted: Planted) -> Outcome {
        if let GroupCommand::Dismiss { name, lost: false } = command
            && self.meta().is_some()
            && self.kept.location.needs(*name)
        {
            let why = "the node has a seat in the meta-group: it leaves that group first; nothing \
                       was changed";
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        let sizes = usize::from(self.kept.least)..=MEMBERS_MAX;
        let outcome = match &mut self.kept.role {
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
