//! Commands: what a replicated log orders. They carry nothing of the protocol that orders them, and
//! their results are computed when they are applied, from the log's state alone.

use crate::base::{
    Addresses, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, Label, LockRef, Micros, NodeName, Seat,
    SegmentId, SessionId, SiteId, Split, Tag, Timestamp, View,
};
use crate::ledger::Transaction;
#[cfg(feature = "planted-bugs")]
use crate::records::Puts;
use crate::registry::Newcomer;
use crate::request::Mode;
use crate::settings::Setting;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The format of commands that this version of the program writes.
pub const FORMAT: u8 = 5;

/// The format of a command, first in its bytes. A node that reads a format which it does not know
/// must not apply the command differently from those that do: decoding fails, and the node stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Format(u8);

impl Format {
    /// What this version writes.
    pub const PRESENT: Format = Format(FORMAT);
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Format, D::Error> {
        match u8::deserialize(from)? {
            FORMAT => Ok(Format::PRESENT),
            _ => Err(serde::de::Error::custom("a command of an unknown format")),
        }
    }
}

/// One command with its identity. `(session, number)` takes effect once per segment, also across
/// snapshots and changes of view (F2). The ballot in which it was first proposed stands once for
/// all commands of a slot, in [`crate::paxos::Entry::Commands`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// How the rest is written.
    pub format: Format,
    /// Who issued it; the node's own session for commands of the protocol itself.
    pub session: SessionId,
    /// The request's number in the session.
    pub number: u64,
    /// Which attempt of the request this is. A request means the same in each transmission, so
    /// those of lock queues and groups have one attempt, 0.
    pub attempt: u32,
    /// Every request of the session up to this number has its answer: replies may be forgotten.
    pub answered_through: u64,
    /// The epoch in which it was first proposed.
    pub epoch: Epoch,
    /// What to do.
    pub body: Body,
}

impl Command {
    /// A command in the present format, in its first attempt.
    pub fn new(
        session: SessionId,
        number: u64,
        answered_through: u64,
        epoch: Epoch,
        body: Body,
    ) -> Command {
        Command {
            format: Format::PRESENT,
            session,
            number,
            attempt: 0,
            answered_through,
            epoch,
            body,
        }
    }

    /// Bytes that it takes at most, encoded or in memory: what bounds count it with.
    pub fn bytes(&self) -> usize {
        let keys = |keys: &[KeyId]| keys.iter().map(|id| id.key.len()).sum::<usize>();
        let lists = match &self.body {
            Body::Lock(LockCommand::Enqueue { keys: of, .. }) => list(of) + keys(of),
            Body::Lock(LockCommand::Leave { clean, put, .. }) => {
                let named = clean.iter().map(|(id, _)| id);
                let named = named.chain(put.iter().map(|(id, _)| id));
                list(clean) + named.map(|id| id.key.len()).sum::<usize>()
            }
            Body::Lock(LockCommand::Release { key, .. }) => {
                key.as_slice().iter().map(|id| id.key.len()).sum()
            }
            Body::Lock(LockCommand::SynchDone { key, .. } | LockCommand::PutDone { key, .. }) => {
                key.key.len()
            }
            Body::Lock(LockCommand::Resume { .. }) => 0,
            Body::Segment(SegmentCommand::Leases(leases)) => list(leases),
            Body::Segment(
                SegmentCommand::LeasesTaken
                | SegmentCommand::Floor(_)
                | SegmentCommand::Limit(_)
                | SegmentCommand::Used(_),
            ) => 0,
            Body::Ledger(LedgerCommand::Transact { transaction, .. }) => transaction.bytes(),
            Body::Ledger(LedgerCommand::Never) => 0,
            #[cfg(feature = "planted-bugs")]
            Body::Ledger(LedgerCommand::Puts(puts)) => puts.bytes(),
            Body::Group(GroupCommand::Next { view, .. }) => list(&view.seats),
            Body::Group(GroupCommand::Started { segments, .. }) => list(segments),
            Body::Group(GroupCommand::CreateKeyspace(keyspace)) => keyspace.name.len(),
            Body::Group(GroupCommand::Admit(newcomer)) => newcomer.bytes(),
            Body::Group(GroupCommand::Readdress { addresses, .. }) => addresses.bytes(),
            Body::Group(GroupCommand::Split { split, .. }) => {
                list(&split.view.seats) + list(&split.child.seats)
            }
            Body::Group(
                GroupCommand::Decide(bytes) | GroupCommand::Vote(bytes) | GroupCommand::Take(bytes),
            ) => bytes.len(),
            Body::Group(GroupCommand::ChangeAccess { policy, .. }) => policy.len(),
            Body::Group(
                GroupCommand::ChangeKeyspace { .. }
                | GroupCommand::DeleteKeyspace(_)
                | GroupCommand::Dismiss { .. }
                | GroupCommand::Drain { .. }
                | GroupCommand::Settle(_)
                | GroupCommand::Settled(_)
                | GroupCommand::Moved { .. }
                | GroupCommand::Harvested { .. }
                | GroupCommand::ChildBegun(_)
                | GroupCommand::Limit(_),
            ) => 0,
        };
        // Numbers may take a little more encoded than in memory.
        2 * size_of::<Command>() + lists
    }
}

/// Bytes of a list, without what its elements refer to.
fn list<T>(elements: &[T]) -> usize {
    elements.len() * (size_of::<T>() + size_of::<u64>())
}

/// What to do, by kind of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// To a segment's lock queues.
    Lock(LockCommand),
    /// To the group's own state.
    Group(GroupCommand),
    /// To a segment's ledger, in logs from the format [`LEDGERS`](crate::wire::LEDGERS) on.
    Ledger(LedgerCommand),
    /// To a segment as a whole.
    Segment(SegmentCommand),
}

/// Who waits, for people and for pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The coordinator that asked.
    pub node: NodeName,
    /// The client's site.
    pub site: SiteId,
    /// The proposing primary's wall clock, microseconds since 1970.
    pub since: u64,
    /// How long the holder may be silent, microseconds.
    pub lease: Micros,
    /// The longest section, microseconds.
    pub section_max: Micros,
    /// What the client calls itself.
    pub label: Label,
}

impl Origin {
    /// Whether its times are such as a coordinator takes from a keyspace. Others are refused by
    /// whoever applies the command: a primary adds them to its clock.
    pub fn is_bounded(&self) -> bool {
        self.lease.max(self.section_max) <= Keyspace::SECTION_MAX
    }
}

/// A command to a segment's lock queues. Its number in the segment's history is the lock ref that
/// an enqueue gives, the position that a forced release sets the flag to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockCommand {
    /// Join the queues of all these keys with one ref (MUSIC `lsGenerateAndEnqueue`).
    Enqueue {
        /// Keys of this segment, in order, without repetition.
        keys: Vec<KeyId>,
        /// Exclusive or shared.
        mode: Mode,
        /// Who waits.
        origin: Origin,
    },
    /// The holder, or a waiter, leaves (MUSIC `releaseLock`).
    Leave {
        /// Its ref.
        lock_ref: LockRef,
        /// The generation that leaves; an older one leaves nothing.
        generation: u32,
        /// Whose section it is said to be; another's is not left (G49). The command itself may be
        /// the coordinator's own.
        of: SessionId,
        /// Keys whose last write was acknowledged, with its tag if there was one. The ref's other
        /// keys are left dirty.
        clean: Vec<(KeyId, Option<Tag>)>,
        /// The last write of a key that is not clean, which travels beside the leave: until it is
        /// known to be at its quorum ([`LockCommand::PutDone`]) the key is dirty.
        put: Option<(KeyId, Tag)>,
        /// Only a waiting ref leaves; one that holds stays. So says a coordinator that gives up:
        /// the client may have gone on elsewhere and be in the section by now.
        waiting_only: bool,
    },
    /// End a section by force (MUSIC `forcedRelease`): removes the ref from all its queues, and
    /// sets the flag of every key of which it was an exclusive head, in this very command.
    Release {
        /// The ref.
        lock_ref: LockRef,
        /// Only if it is a ref on this key; none where the primary itself ends it.
        key: Option<KeyId>,
    },
    /// The synch of the flag set at `flag` has completed, which clears no other flag (F18).
    SynchDone {
        /// The key.
        key: KeyId,
        /// Only this position's flag is cleared.
        flag: u64,
    },
    /// The put beside which a holder left at `flag` is at its quorum: nothing of that section is in
    /// flight any more. Clears no other flag, and makes the leave's outcome a clean one.
    PutDone {
        /// The key.
        key: KeyId,
        /// Only this position's flag is cleared.
        flag: u64,
    },
    /// The holder goes on without its counter: a new generation of the same ref, and a synch that
    /// fences the old one (F16).
    Resume {
        /// The ref.
        lock_ref: LockRef,
        /// The generation that the caller knows; only the present one can be resumed.
        generation: u32,
        /// Whose section it is said to be so far; another's is not resumed (G49).
        of: SessionId,
        /// Who waits now.
        origin: Origin,
    },
}

/// A command to a segment's ledger. What comes of it is a record ([`crate::ledger`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerCommand {
    /// A transaction on keys of this segment.
    Transact {
        /// Its timestamp. From the coordinator: the lowest that it may be; the primary raises it.
        at: Timestamp,
        /// Bytes of all that it reads at most.
        most: u32,
        /// What it does.
        transaction: Transaction,
    },
    /// The command of this session and number never takes effect, unless it has.
    Never,
    /// Records that are set, or removed: in the laboratory alone.
    #[cfg(feature = "planted-bugs")]
    Puts(Puts),
}

/// A command to a segment as a whole: what no key kind of it owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentCommand {
    /// The client leases of a primary that is about to end, as the last that it proposes, so that
    /// the next one need not wait a whole lease (F10): all
    /// refs that hold, in increasing order. Replaces the table in the state, if there is one.
    Leases(Vec<ClientLease>),
    /// The next primary has taken the table over: it is in the state no more.
    LeasesTaken,
    /// All refs up to here are past, or as many of them as are, and members may say so without
    /// knowing anything else of a key (F8f).
    Floor(LockRef),
    /// The primary promises, assigns and closes no time above this (ledger L1), in logs from the
    /// format [`LEDGERS`](crate::wire::LEDGERS) on.
    Limit(Timestamp),
    /// The last that a primary says of times before it hands its log over: it has used none above
    /// this, and the next one begins above it, and not above the limit (L4).
    Used(Timestamp),
}

/// How long a ref may still have a lease, and how long its section has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLease {
    /// The ref.
    pub lock_ref: LockRef,
    /// Microseconds from the proposal on, by the proposer's clock, lengthened by the drift bound.
    pub left: Micros,
    /// Microseconds since it entered, as far as the primaries know that have handed it on: no time
    /// between them, nor that of one which stated no table.
    pub spent: Micros,
}

/// A command to a group's own state. `Decide`, `Vote` and `Take` have their places reserved; a
/// group of this version refuses them without effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupCommand {
    /// The next view. The first chosen one of an epoch that is allowed decides, and ends the
    /// group's log.
    Next {
        /// Who has which seat from then on.
        view: View,
        /// A member is lost, so that nobody waits for the values of two earlier epochs.
        pressing: bool,
        /// The logs of that epoch are of this format, or of this one's if that is higher.
        format: u16,
    },
    /// Add a keyspace; its id is given when applied.
    CreateKeyspace(Keyspace),
    /// Go on as two groups. Decides like [`GroupCommand::Next`], where it is allowed.
    Split {
        /// Into which.
        split: Box<Split>,
        /// As in [`GroupCommand::Next`].
        format: u16,
    },
    /// Reserved.
    Decide(Vec<u8>),
    /// Reserved.
    Vote(Vec<u8>),
    /// Reserved.
    Take(Vec<u8>),
    /// Other times for whoever enters from now on.
    ChangeKeyspace {
        /// Which.
        id: KeyspaceId,
        /// Its lease from now on, microseconds; none: as it is.
        lease: Option<Micros>,
        /// Its longest section, microseconds; none: as it is.
        section_max: Option<Micros>,
    },
    /// Take a keyspace away, and all that is in it.
    DeleteKeyspace(KeyspaceId),
    /// An entry was chosen in the log of this epoch of each of these segments.
    Started {
        /// The epoch.
        epoch: Epoch,
        /// The segments.
        segments: Vec<SegmentId>,
    },
    /// Every key of the segment has moved from an earlier store: it is read no more.
    Moved {
        /// The segment.
        segment: SegmentId,
        /// The epoch of the earlier store.
        source: Epoch,
    },
    /// Every eventual value that a member of an earlier store had, sealed, is at members of the
    /// present one, or outranked there.
    Harvested {
        /// The segment.
        segment: SegmentId,
        /// The epoch of the earlier store.
        source: Epoch,
        /// The member's seat there.
        seat: Seat,
    },
    /// Give the memory of a new data directory its name.
    Admit(Newcomer),
    /// A node is heard no more. Whoever proposes it sees to it that the node has no seat, or is
    /// lost.
    Dismiss {
        /// Which.
        name: NodeName,
        /// Its disk is lost with all that was there alone: nobody waits for that any more.
        lost: bool,
    },
    /// Another setting, once every node knows: see [`Settings`](crate::settings::Settings).
    Settle(Setting),
    /// Every node has this version of the registry, durably, and goes by its settings.
    Settled(u64),
    /// An entry is chosen in the log of a group that has split off: nobody needs to be given its
    /// beginning by this one any more.
    ChildBegun(GroupId),
    /// A node hands over what it leads and is to lead nothing, or may lead again.
    Drain {
        /// Which.
        name: NodeName,
        /// Whether it does.
        drains: bool,
    },
    /// A node is reached elsewhere.
    Readdress {
        /// Which.
        name: NodeName,
        /// Where.
        addresses: Addresses,
    },
    /// Another access policy, if the present one is that of the change `after`.
    ChangeAccess {
        /// See [`Access::version`](crate::catalogue::Access::version).
        after: u64,
        /// See [`Access::policy`](crate::catalogue::Access::policy).
        policy: Bytes,
    },
    /// The reference of the cluster's time reads nothing above this (ledger L36), microseconds
    /// since 1970; in logs from the format [`LEDGERS`](crate::wire::LEDGERS) on.
    Limit(u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::LockRef;
    use crate::wire;

    #[test]
    fn a_command_of_another_format_is_not_decoded() {
        let body = Body::Lock(LockCommand::Release {
            lock_ref: LockRef(7),
            key: None,
        });
        let command = Command::new(SessionId(1), 2, 0, Epoch::FIRST, body);
        let bytes = wire::encode(&command);
        assert_eq!(wire::decode(&bytes), Ok(command));
        let mut other = bytes.to_vec();
        other[0] = FORMAT + 1;
        assert_eq!(wire::decode::<Command>(&other), Err(wire::Malformed));
    }
}
