//! One open operation: its transmissions so far, and what is known of their effect.

use super::call::{Call, Endpoint, SectionId, Ticket};
use crate::base::{KeyId, Limits, Micros};
use crate::request::{Code, Held, Operation, Refusal, Reply, before_this};
use alloc::format;
use alloc::vec::Vec;

/// What an operation means to the session.
#[derive(Debug)]
pub(super) enum Kind {
    /// Enter, poll or resume.
    Enter {
        section: SectionId,
        /// End with the first `Queued`.
        poll: bool,
        /// When the wait for the lock is over; nodes are asked to wait for what remains.
        wait_until: Micros,
    },
    /// A critical get; `before` is the first write number not yet given when it was issued.
    Get {
        section: SectionId,
        key: KeyId,
        before: u64,
    },
    /// A critical put, and perhaps the leave with it.
    Write {
        section: SectionId,
        key: KeyId,
        write: u64,
        leaves: bool,
    },
    /// A leave; its caller is told by `answer_by` that it is not known.
    Leave {
        section: SectionId,
        answer_by: Micros,
        grace_until: Micros,
    },
    /// A heartbeat for these refs.
    Renew { refs: Vec<(SectionId, Held)> },
    /// Anything that can be repeated as it is.
    Plain,
    /// An eventual put, which is not repeated once it may have reached a node.
    Once,
}

impl Kind {
    /// The section that the operation belongs to, heartbeats aside.
    pub(super) fn section(&self) -> Option<SectionId> {
        match self {
            Kind::Enter { section, .. }
            | Kind::Get { section, .. }
            | Kind::Write { section, .. }
            | Kind::Leave { section, .. } => Some(*section),
            Kind::Renew { .. } | Kind::Plain | Kind::Once => None,
        }
    }

    /// Whether `reply` is a good end of such an operation. `Queued`, `Lost` and `Refused` are not
    /// ends of this sort.
    pub(super) fn ends_with(&self, reply: &Reply) -> bool {
        match self {
            Kind::Enter { .. } => matches!(reply, Reply::Entered { .. } | Reply::Value { .. }),
            Kind::Get { .. } => matches!(reply, Reply::Value { .. }),
            Kind::Write { leaves: false, .. } | Kind::Once => matches!(reply, Reply::Done { .. }),
            Kind::Write { leaves: true, .. } => matches!(reply, Reply::Left),
            Kind::Leave { .. } => matches!(reply, Reply::Done { .. } | Reply::Left),
            Kind::Renew { refs } => {
                matches!(reply, Reply::Renewed { states } if states.len() == refs.len())
            }
            Kind::Plain => !matches!(
                reply,
                Reply::Queued { .. }
                    | Reply::Entered { .. }
                    | Reply::Lost { .. }
                    | Reply::Renewed { .. }
                    | Reply::Refused(_)
            ),
        }
    }
}

/// Where the present transmission stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Waits for other operations of its section; nothing was sent.
    Blocked,
    /// Waits to be sent again at this time.
    Paused(Micros),
    /// Sent; at this time it is sent again elsewhere.
    Sent(Micros),
}

/// An operation without a final answer.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) ticket: Option<Ticket>,
    pub(super) kind: Kind,
    pub(super) operation: Operation,
    pub(super) deadline: Micros,
    pub(super) sending: Sending,
    /// Where its entry in the session's timers is.
    pub(super) timer: Option<Micros>,
    /// When it was sent for the first time: what a lease in its answer counts from.
    pub(super) first_sent: Option<Micros>,
    /// When it was sent last.
    pub(super) last_sent: Option<Micros>,
    /// The only endpoint that it is for.
    pub(super) pinned: Option<Endpoint>,
    /// Endpoints that have the request and have not ended it.
    pub(super) listening: Vec<Endpoint>,
    /// Some transmission that nobody listens to any more may have taken effect.
    pub(super) doubt: bool,
    /// A node keeps it in a queue, and need not answer soon.
    pub(super) queued: bool,
    /// Which transmission the last one was, of those that may have an effect, from 0.
    pub(super) attempt: u32,
    /// Transmissions refused or failed so far.
    pub(super) setbacks: u32,
    /// Where the last one was.
    pub(super) avoid: Option<Endpoint>,
    /// The last refusal that was not final.
    pub(super) refusal: Option<Refusal>,
    /// An enter: since when it is the first in its queue, as far as is known.
    pub(super) first_since: Option<Micros>,
    /// An enter that cannot be granted as things are: until when that may change.
    pub(super) stalled_until: Option<Micros>,
    /// Since when nodes say again that it waits like any other. The first answer to a repetition
    /// says so, too, before the node says that it stalls.
    pub(super) taken_back: Option<Micros>,
}

impl Open {
    pub(super) fn new(
        ticket: Option<Ticket>,
        kind: Kind,
        operation: Operation,
        deadline: Micros,
    ) -> Open {
        Open {
            ticket,
            kind,
            operation,
            deadline,
            sending: Sending::Blocked,
            timer: None,
            first_sent: None,
            last_sent: None,
            pinned: None,
            listening: Vec::new(),
            doubt: false,
            queued: false,
            attempt: 0,
            setbacks: 0,
            avoid: None,
            refusal: None,
            first_since: None,
            stalled_until: None,
            taken_back: None,
        }
    }

    /// An enter was told its place in the queue.
    pub(super) fn is_placed(&mut self, now: Micros, ahead: u32) {
        self.taken_back = self.taken_back.or(Some(now));
        self.first_since = match ahead {
            // The first thing that it was told: nobody was ahead since it was sent.
            0 if !self.queued => self.first_sent.or(Some(now)),
            0 => self.first_since.or(Some(now)),
            _ => None,
        };
    }

    /// When its time is over.
    pub(super) fn ends(&self) -> Micros {
        self.deadline
            .min(self.stalls_until().unwrap_or(Micros::MAX))
    }

    /// Until when an enter that stalls may do so.
    pub(super) fn stalls_until(&self) -> Option<Micros> {
        self.stalled_until.filter(|_| self.taken_back.is_none())
    }

    /// The refusal when its time is over while a node keeps it waiting: for what it waits.
    pub(super) fn in_queue(&self, ahead: u32) -> Refusal {
        let text = match &self.operation {
            Operation::Release { .. } => {
                "The release waits for the holder's lease, which is not renewed any more: the \
                 section ends when it has run out."
                    .into()
            }
            _ if ahead == 0 => "The request is the first in the key's queue, but the key's latest \
                                value is not settled yet; try again."
                .into(),
            _ => format!(
                "The key is locked: {}; its queue shows them. Try again.",
                before_this(ahead)
            ),
        };
        Refusal::definite(Code::Unavailable, text)
    }

    /// Whether anything sent so far may have taken effect, or may still.
    pub(super) fn doubtful(&self) -> bool {
        self.mutates() && (self.doubt || !self.listening.is_empty())
    }

    /// Whether `refusal` ends it although others of its kind are worth a repetition: an eventual
    /// put that may have arrived is not repeated, and a write that was repeated in doubt, and is in
    /// doubt still, was either refused for being a repetition or has no quorum.
    pub(super) fn ends_in_doubt(&self, refusal: &Refusal) -> bool {
        match (&self.kind, &self.operation) {
            (Kind::Once, _) => self.doubtful(),
            (_, Operation::Write { .. }) => {
                self.attempt > 0 && refusal.may_have_taken_effect && self.listening.is_empty()
            }
            _ => false,
        }
    }

    /// Whether it changes anything that outlives it.
    fn mutates(&self) -> bool {
        match &self.operation {
            Operation::Critical { .. } => matches!(self.kind, Kind::Write { .. }),
            Operation::Enter { .. }
            | Operation::Leave { .. }
            | Operation::Resume { .. }
            | Operation::Release { .. }
            | Operation::Put { .. }
            | Operation::Write { .. }
            | Operation::Transact(_)
            | Operation::Resolve { .. }
            | Operation::CreateKeyspace(_)
            | Operation::ChangeKeyspace { .. }
            | Operation::DeleteKeyspace { .. }
            | Operation::ChangeAccess { .. }
            | Operation::ChangeSettings(_)
            | Operation::Admit { .. }
            | Operation::ChangeRing(_) => true,
            Operation::Renew { .. }
            | Operation::Relinquish { .. }
            | Operation::Get { .. }
            | Operation::Read { .. }
            | Operation::Keys { .. }
            | Operation::Queue { .. }
            | Operation::Snapshot { .. }
            | Operation::Inspect { .. }
            | Operation::Keyspaces
            | Operation::Catalogue
            | Operation::Access
            | Operation::Ring
            | Operation::Status => false,
        }
    }

    /// `refusal` as the user is told it: its own doubt and that of all other transmissions.
    pub(super) fn merged(&self, refusal: Refusal) -> Refusal {
        Refusal {
            may_have_taken_effect: self.doubtful()
                || self.mutates() && refusal.may_have_taken_effect,
            ..refusal
        }
    }

    /// Nobody listens to `endpoint` any more; whether anybody did.
    pub(super) fn deafen(&mut self, endpoint: Endpoint) -> bool {
        let before = self.listening.len();
        self.listening.retain(|e| *e != endpoint);
        self.listening.len() < before
    }

    /// When it must be looked at next.
    pub(super) fn due(&self) -> Micros {
        let sending = match self.sending {
            Sending::Blocked => Micros::MAX,
            Sending::Paused(until) | Sending::Sent(until) => until,
        };
        let kind = match &self.kind {
            Kind::Leave {
                answer_by,
                grace_until,
                ..
            } => {
                let answer = self.ticket.map_or(Micros::MAX, |_| *answer_by);
                let blocked = self.sending == Sending::Blocked;
                answer.min(if blocked { *grace_until } else { Micros::MAX })
            }
            _ => Micros::MAX,
        };
        sending.min(kind).min(self.ends())
    }
}

/// Refuses what no cluster takes, however it is configured, before anything is sent: a message that
/// is longer than a node reads breaks the connection, with everything else that is open on it, and
/// looks like a failure that is worth a repetition.
pub(super) fn fits(call: &Call) -> Result<(), Refusal> {
    let (keys, value): (usize, _) = match call {
        Call::Enter { keys, .. } => (keys.len(), None),
        Call::Resume { held, .. } => (held.len(), None),
        Call::CriticalPut { value, .. }
        | Call::PutAndLeave { value, .. }
        | Call::Put { value, .. }
        | Call::Write { value, .. } => (1, value.as_ref()),
        _ => (1, None),
    };
    let bounds = [
        (keys, Limits::SECTION_KEYS_MAX, "A section has", "keys"),
        (longest_key(call), Limits::KEY_MAX, "A key has", "bytes"),
        (
            value.map_or(0, |value| value.len()),
            Limits::VALUE_MAX,
            "A value has",
            "bytes",
        ),
    ];
    for (given, most, what, unit) in bounds {
        if given > most {
            let text =
                format!("{what} at most {most} {unit} in any cluster, this one {given}; split it.");
            return Err(Refusal::definite(Code::TooLarge, text));
        }
    }
    Ok(())
}

/// Bytes of the longest key, or prefix of keys, that a call names.
fn longest_key(call: &Call) -> usize {
    match call {
        Call::Enter { keys, .. } => keys.iter().map(|k| k.key.len()).max().unwrap_or(0),
        Call::Resume { held, .. } => held.iter().map(|h| h.key.key.len()).max().unwrap_or(0),
        Call::CriticalGet { key, .. }
        | Call::CriticalPut { key, .. }
        | Call::PutAndLeave { key, .. }
        | Call::Get { key }
        | Call::Put { key, .. }
        | Call::Read { key }
        | Call::Write { key, .. }
        | Call::Release { key, .. }
        | Call::Queue { key }
        | Call::Inspect { key, .. } => key.key.len(),
        Call::Keys { prefix, after, .. } => {
            let after = after.as_ref().map_or(0, |after| after.len());
            prefix.len().max(after)
        }
        Call::Transact(transaction) => {
            let names = transaction.items().map(|item| item.longest());
            names.max().unwrap_or(0)
        }
        Call::Resolve { key, .. } => key.key.len(),
        Call::Snapshot { parts, .. } => {
            let names = parts.iter().map(|part| part.item().longest());
            names.max().unwrap_or(0)
        }
        Call::Poll { .. }
        | Call::Relinquish { .. }
        | Call::Leave { .. }
        | Call::CreateKeyspace(_)
        | Call::ChangeKeyspace { .. }
        | Call::DeleteKeyspace { .. }
        | Call::ChangeAccess { .. }
        | Call::Access
        | Call::ChangeSettings(_)
        | Call::Admit { .. }
        | Call::ChangeRing(_)
        | Call::Keyspaces
        | Call::Ring
        | Call::Status { .. } => 0,
    }
}
