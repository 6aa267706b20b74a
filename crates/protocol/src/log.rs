//! A replicated log as its users see it, whatever agreement is inside.
//!
//! **Problem.** Groups and segments are state machines over a log. How the members agree on the log
//! (majorities of nodes that stop, or larger quorums of nodes that may lie) is none of their
//! business: commands carry nothing of it, and results are computed where commands are applied.
//!
//! **Idea.** [`ReplicatedLog`] is what remains when agreement is taken out: propose, apply in
//! order, end, snapshot, who leads. The node, its segments and its groups use a log through it
//! alone. What members say to each other stays outside: messages and beats are routed to the
//! concrete log, for their content is the protocol's. There is one implementation,
//! [`crate::paxos::Log`].
//!
//! **What every implementation keeps.**
//! * L1. All replicas hand out the same commands for the same slots, in order, once per process.
//! * L2. A command that was declined or dropped never takes effect. One that was taken may, once
//!   per time it was proposed; the session table above makes repetitions harmless (F2).
//!   It takes effect in the term that took it: none that waits in a queue passes to a later term,
//!   not even of the same seat (G27).
//! * L3. The log ends at its first decided end: nothing is handed out after it, and all replicas
//!   agree on the epoch of the successor.
//! * L4. Leases of two replicas never overlap, and while one has a lease nothing is decided that it
//!   does not know of. Whoever proposes the end has none from that step on.

use crate::base::{Ballot, Epoch, Limits, LogId, Micros, Now, Seat, Slot, Timing, View};
use crate::command::Command;
use crate::io::Env;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// A term of leading, held here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Its number: terms of one log are ordered, and no two processes have the same.
    pub ballot: Ballot,
    /// When it began, on this node's boot-time clock: everything decided before was known here, or
    /// is decided by this term, since then.
    pub since: Micros,
}

/// Why a command was not taken. It did not and will not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// This replica does not lead; perhaps that seat does.
    NotPrimary(Option<Seat>),
    /// Too many commands wait or are in flight here: try again later.
    Busy,
    /// The log ends or has ended: go to its successor.
    Stopping,
}

impl core::fmt::Display for Declined {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Declined::NotPrimary(_) => {
                "this replica is not the log's primary, the command had no effect: ask the primary"
            }
            Declined::Busy => {
                "the primary's queue is full, the command had no effect: try again later"
            }
            Declined::Stopping => {
                "the log ends here, the command had no effect: propose it to the successor log"
            }
        })
    }
}

/// One replica of a log. See the module's essay for what all implementations keep.
pub trait ReplicatedLog {
    /// Which log.
    fn id(&self) -> LogId;

    /// Its members; they never change.
    fn view(&self) -> &View;

    /// The seat of this replica.
    fn seat(&self) -> Seat;

    /// The seat that probably leads; a hint for whom to ask.
    fn primary_hint(&self) -> Option<Seat>;

    /// The term that is led here, if one is; perhaps before everything recovered is decided.
    fn leadership(&self) -> Option<Leadership>;

    /// Whether this replica is the primary: it leads, and everything that was decided before its
    /// term has been handed out or waits to be. It is none from the step in which it proposes the
    /// end: the successor must not commit while somebody still reads here.
    fn is_primary(&self) -> bool;

    /// Whether this primary may answer from its applied state now, on its own clock: nothing is
    /// decided without it.
    fn has_lease(&self, now: Now, timing: &Timing) -> bool;

    /// Takes a command for the next batch; [`ReplicatedLog::flush`] sends it.
    ///
    /// # Errors
    /// The command was not taken and will not take effect: this replica does not lead
    /// ([`Declined::NotPrimary`], with its best guess who does), its queue is full
    /// (`Limits::proposals`), or the log ends.
    fn propose(&mut self, command: Command, cx: &mut Env<'_>) -> Result<(), Declined>;

    /// Commands that were taken and never proposed by terms that have ended here, since they were
    /// last asked for: they did not and will not take effect. What was proposed may have.
    fn take_dropped(&mut self) -> VecDeque<Command>;

    /// A snapshot that came from a peer: the caller replaces its state by it. Commands continue
    /// after its slot; ask for this first.
    fn take_installed(&mut self) -> Option<(Slot, Bytes)>;

    /// The next decided slot, in order and once per process, with its commands in order: none for a
    /// slot that is the protocol's own, or void.
    fn next_commands(&mut self) -> Option<(Slot, Vec<Command>)>;

    /// The slot up to which commands were handed out, or a snapshot was.
    fn delivered(&self) -> Slot;

    /// Wants the log ended, above everything taken so far, for a successor of epoch `next`. The
    /// decision that it ends was made elsewhere. Every member may want it, and repeat it: the one
    /// that leads, now or later, ends the log.
    fn propose_stop(&mut self, next: Epoch, cx: &mut Env<'_>);

    /// The epoch of the successor, once the end is decided. Whether everything before it was handed
    /// out says [`ReplicatedLog::next_commands`].
    fn stopped(&self) -> Option<Epoch>;

    /// Whether enough was handed out since the last snapshot for a new one.
    fn needs_snapshot(&self, limits: &Limits) -> bool;

    /// Replaces everything up to `slot` by `state`, the caller's state after it, durably and in one
    /// batch.
    ///
    /// # Panics
    /// If `slot` was not handed out yet: the state would not be its.
    fn truncate(&mut self, slot: Slot, state: Bytes, cx: &mut Env<'_>);

    /// Gives the log to another seat at once: proposes what is queued, ceases to lead, and ends its
    /// lease everywhere. If the other does not come, somebody leads after a pause.
    fn hand_over(&mut self, to: Seat, cx: &mut Env<'_>);

    /// Sends what was proposed, as far as the bounds allow, and what was decided; to be called at
    /// the end of a node's step.
    fn flush(&mut self, cx: &mut Env<'_>);

    /// The time of [`ReplicatedLog::wake`] has come, or any other time.
    fn tick(&mut self, cx: &mut Env<'_>);

    /// When this replica wants to be ticked, on the node's boot-time clock; a time that has passed
    /// means now.
    fn wake(&self) -> Option<Micros>;
}
