//! One replicated log: multi-Paxos.
//!
//! # The problem
//! A segment's lock queues, and a group's own state, are state machines at 1 to 13 nodes. All of
//! them must apply the same commands in the same order, although messages are lost, repeated and
//! late, clocks drift, and processes die and come back with what their disk had. And the primary
//! should answer reads from memory, without asking anybody.
//!
//! # The idea
//! Lamport's multi-Paxos. A *ballot* is a round and the seat that leads it. Its leader has the
//! promises of a quorum (phase 1, once for all slots), proposes again whatever these report, and
//! then needs one round trip per slot (phase 2). [`Log`] is one replica in all three roles:
//! `acceptor` (promises, votes, leases given), `proposer` (phase 2, the lease held) with its
//! `queue`, `learner` (the chosen prefix, catching up, snapshots), with `election` for who leads
//! and `report` for what it is told in phase 1, `store` for what is on disk, `late` for members
//! that missed the log's beginning, `follow` for nodes that are to have a seat in the next one, and
//! `replica` for what the state machine above sees. It is a
//! plain struct: time and messages come in, writes and messages go out, nothing is drawn at random.
//!
//! # What always holds
//! * **P1** A promise is never taken back, and leaves only when it is durable. So does a vote, also
//!   the leader's own: it writes it with the proposal and counts it when its message to itself
//!   returns.
//! * **P2** A ballot is led by one process. The round is durable before anybody hears of it; after
//!   a restart it is not led again. Ballot 0 belongs to the seat named at the log's creation, in
//!   the process that created it; nothing of it leaves before the creation is durable.
//! * **P3** Of the entries that a quorum reports for a slot, the one of the highest ballot is
//!   proposed, whoever else reported nothing. No-ops go only where none reports any (F13).
//!   "None" counts only from an acceptor that reports slot by slot from our chosen prefix on, up to
//!   its last vote, in as many pieces as that takes (`report`): one that has more chosen, or
//!   truncated, does not count until we have caught up.
//! * **P4** Holes get no-ops, never commands, and commands go above everything recovered (F3f:
//!   a command in a hole would slip under a read ahead).
//! * **P5** The first own entry of a ballot is its `Begin`; commands are proposed after it is
//!   chosen, in ballot 0, below which there is nothing, after it is durable here. Commands keep the
//!   ballot they were born in, and those born below the highest `Begin` before them are void. So an
//!   effective command always lies between its own ballot's `Begin` and the next one's: nothing
//!   that a primary found absent appears later below what it answered.
//! * **P6** The log ends at its first chosen `Stop`: nothing later is handed out, and a leader
//!   proposes nothing above a `Stop` that it recovered or proposed. It is an entry like any other.
//! * **P7** An acceptor that follows a ballot promises no other seat for one lease on its own
//!   clock. A restarted process does not know what it granted, and so refuses everybody for one
//!   lease. A primary counts, from when each acknowledged message *left*, a lease shortened by the
//!   clocks' drift. A quorum bound to one ballot and a quorum that promised another share an
//!   acceptor, so two leases never overlap, and nothing is chosen behind the back of a primary that
//!   has one.
//! * **P8** A primary that proposes a `Stop` has no lease from that step on: the successor log may
//!   commit as soon as the `Stop` is chosen.
//! * **P9** What is unreadable is not absent. A replica with a corrupt vote is silent in phase 1
//!   until it has learned that slot from the others; with a corrupt promise it does not come back
//!   at all.
//! * **P10** Memory and messages are bounded, in count and in bytes: proposals by
//!   `Limits::proposals`, a slot by `batch`, slots in flight and reports by `window`, votes held
//!   above the chosen prefix by `snapshot_every` with `window` and by `votes_bytes`, other answers
//!   by `chunk`. A slot above the bytes of votes is not voted for, unless it is the next one, so
//!   that a full acceptor goes on. Applied entries are truncated by `snapshot_every` and
//!   `entries_bytes`; a loan to peers that lag (`transfer`), a snapshot per seat with the entries
//!   above it, ends with their silence, or when the node has no room for it (`node_entries_bytes`).
//!   `Limits::check` computes from these that every message fits a frame.
//! * **P11** A command is proposed by the leadership that took it, or never (G27). P5 makes void
//!   what a leadership *proposed* and a later one finds; commands that still wait when a leadership
//!   ends are handed back, also where the same seat outbids its own ballot, and leads on.
//!
//! # What the state machine above may rely on
//! It sees of a log what is in `replica`: propose, apply in order, end, snapshot, who leads.
//! Commands carry nothing of the agreement, and results are computed where commands are applied.
//! * All replicas hand out the same commands for the same slots, in order, once per process.
//! * A command that was declined or dropped never takes effect. One that was taken may, once per
//!   time it was proposed, in the term that took it (P5, P11); the session table above makes
//!   repetitions harmless (F2).
//! * The log ends at its first decided end: nothing is handed out after it, and all replicas agree
//!   on the epoch of the successor (P6).
//! * Leases of two replicas never overlap, and while one has a lease nothing is decided that it
//!   does not know of (P7). Whoever proposes the end has none from that step on (P8).
//!
//! # Choices
//! * Replicas learn what is chosen from `Accept.chosen` and beats; there is no message per slot for
//!   it. They believe it of entries that they voted for in that very ballot, and fetch the rest.
//! * A candidate asks its own acceptor last. One that is cut off thus does not promise itself a
//!   ballot that nobody supports, and follows the leader again when the cut heals. Where a seat has
//!   promised such a ballot all the same, the leader that holds a lease outbids it at once.
//! * A follower waits beyond the lease of a leader that it does not hear, for that one may only be
//!   slow. Where its process is gone, as far as the shell can tell ([`Log::on_gone`]), it stands as
//!   soon as the lease is over. The hint shortens what is waited for convenience, never a lease
//!   (P7), and so may be wrong. A seat that is cut off disturbs nobody by standing: acceptors that
//!   hear a leader are bound by its lease, which is what a round of questions before phase 1 would
//!   find out.
//! * Beats go by node pair, not by log, so the node sends them ([`Log::beat`], [`Log::on_beat`],
//!   [`Log::on_beat_ack`]). Votes extend the lease as well.
//!
//! # Departures
//! * Harmony's convergence (§3.3.1) proposes a no-op for what is accepted and not known to be
//!   chosen, and for the infinite suffix. The first is unsafe with a quorum (F13); a `Stop` makes
//!   the second needless.
//! * There are no leases for followers: a replica that is not the primary does not answer from
//!   memory.

mod acceptor;
mod election;
mod follow;
mod late;
mod learner;
pub mod message;
mod proposer;
mod queue;
mod replica;
mod report;
mod store;
mod transfer;

pub use follow::{Learned, Learner};
pub use late::{Heir, Joining};
pub use message::{Accepted, Chunk, Entry, Message, Reserved, Stop};
pub use replica::Declined;
pub use store::Unrecoverable;
pub(crate) use store::{rename, rewrite};

use crate::base::{
    Ballot, Bug, Epoch, LogId, Micros, NodeName, Now, Planted, Seat, Slot, Timing, View,
};
use crate::command::Command;
use crate::io::{Env, Memory, Void};
use acceptor::Offer;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use election::Candidate;
use follow::Followers;
use learner::Fetching;
use queue::Queue;
use report::Piece;
use store::{CHOSEN, CreatedRecord, Held};
use transfer::{Loans, Partial, Snapshot};

/// The answer to a leader's beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// This replica follows the ballot, and is bound to it for one lease.
    Follows(Ballot),
    /// It has promised this higher ballot.
    Deposed(Ballot),
    /// The beat made no sense; nothing is to be answered.
    Ignored,
}

/// A replica read back from memory, and the state from which to go on.
#[derive(Debug)]
pub struct Recovered {
    /// The replica.
    pub log: Log,
    /// The slot after which `state` is: 0 for the initial state.
    pub slot: Slot,
    /// The initial state, or that of the last snapshot.
    pub state: Bytes,
}

/// One replica of one replicated log. See the module's essay.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    view: View,
    seat: Seat,
    /// Who owns ballot 0.
    first: Seat,
    planted: Planted,

    // Acceptor. `promised`, `used`, `held` are durable.
    promised: Ballot,
    /// The highest round that this seat stood with.
    used: u32,
    /// Votes and learned entries, above the truncation and a little below it.
    held: BTreeMap<Slot, Held>,
    /// Bytes of what is held above the chosen prefix.
    votes: usize,
    /// Bytes of what is held of the chosen prefix above the snapshot.
    entries: usize,
    /// Bytes of what is held up to the snapshot.
    behind: usize,
    /// Slots whose vote is unreadable.
    void: BTreeSet<Slot>,
    /// When this process took the log up.
    boot: Micros,
    grant: Option<GivenLease>,
    /// The highest ballot whose leader has said that it leads no more.
    released: Option<Ballot>,

    // Learner.
    chosen: Slot,
    /// Somebody knows this much to be chosen.
    known: Slot,
    delivered: Slot,
    /// The highest `Begin` handed out.
    begin: Ballot,
    over: Option<(Slot, Stop)>,
    /// An end that was voted for here, or learned, since this process began.
    ending: Option<Stop>,
    /// What the leader of the highest ballot heard of last said to be chosen.
    heard: Option<(Ballot, Slot)>,
    /// The state after a slot, for those who lag: the initial state is that after slot 0.
    snapshot: Snapshot,
    /// What peers are fetching.
    loans: Loans,
    /// Who follows without a seat.
    followers: Followers,
    /// The peers that were fetching a snapshot when they last answered a beat.
    lagging: BTreeSet<Seat>,
    /// The peers that have voted for an entry proposed here, or follow this leader, and when they
    /// first said so: since then at least they have this log.
    voted: BTreeMap<Seat, Micros>,
    installed: Option<(Slot, Bytes)>,
    partial: Option<Partial>,
    fetching: Option<Fetching>,

    // Proposer.
    role: Role,
    /// The highest ballot that anyone refused us with.
    seen: Ballot,
    hint: Option<Seat>,
    /// When a follower stands; `None`: not set yet, or not a follower.
    election_at: Option<Micros>,
    /// How the log shall end.
    wish: Option<Stop>,
    /// What waited in leaderships that have ended: no later one proposes it.
    dropped: VecDeque<Command>,
    /// Only for the planted rules by which a queue outlives its leadership.
    kept: VecDeque<Command>,

    ignored: BTreeMap<&'static str, u64>,
}

/// A read lease as its giver knows it.
#[derive(Clone, Copy, Debug)]
struct GivenLease {
    holder: Ballot,
    until: Micros,
}

#[derive(Debug)]
enum Role {
    Follower,
    Candidate(Candidate),
    Leading(Leading),
}

/// The volatile state of a leader.
#[derive(Debug)]
struct Leading {
    ballot: Ballot,
    /// The next slot to propose.
    next: Slot,
    /// Slots proposed and not chosen.
    flights: BTreeMap<Slot, Flight>,
    /// The slot of the own `Begin`.
    begin: Option<Slot>,
    /// A `Stop` is proposed: nothing comes after it.
    ending: bool,
    /// What phase 1 reported and is not proposed again yet.
    recovered: BTreeMap<Slot, Entry>,
    /// Commands that were taken and not proposed yet. They are here, and not in the log, so that
    /// they cannot outlive the leadership that took them (P11).
    queue: Queue,
    /// Commands in flight.
    commands: usize,
    /// Bytes of what is in flight.
    bytes: usize,
    /// By seat: when the latest message left that the seat acknowledged.
    acked: Vec<Option<Micros>>,
    /// When flights are sent again.
    due: Option<Micros>,
    /// What the others were last told to be chosen.
    announced: Slot,
}

#[derive(Debug)]
struct Flight {
    /// One bit per seat.
    votes: u16,
    /// When it was first sent.
    sent: Micros,
    /// When it was last sent.
    last: Micros,
    bytes: usize,
}

impl Log {
    /// Creates a replica durably: everything else that this step promises leaves after it. `first`
    /// owns ballot 0 and leads it without phase 1, in the process that created the log. `start` is
    /// the initial state, opaque here and the same at all seats.
    ///
    /// # Panics
    /// If `seat` or `first` is not of the view, or the view has more than 13 seats.
    pub fn create(
        id: LogId,
        view: View,
        seat: Seat,
        first: Seat,
        start: Bytes,
        env: &mut Env<'_>,
    ) -> Log {
        let created = CreatedRecord { view, first, start };
        store::put_created(id, &created, env.fx);
        let mut log = Log::blank(id, &created, seat, env.now.monotonic);
        log.planted = env.planted;
        log.hint = Some(first);
        if seat == first {
            log.lead(log.promised, BTreeMap::new());
            log.cut(env);
        } else {
            // As if restarted: a creation that was not durable may have granted leases before.
            log.wait_election(log.boot_over(env.timing), env.timing);
        }
        log
    }

    fn blank(id: LogId, created: &CreatedRecord, seat: Seat, boot: Micros) -> Log {
        let (view, first) = (created.view.clone(), created.first);
        assert!((1..=13).contains(&view.len()), "a view has 1 to 13 seats");
        assert!(usize::from(seat.0) < view.len() && usize::from(first.0) < view.len());
        Log {
            id,
            view,
            seat,
            first,
            planted: Planted::NONE,
            promised: Ballot {
                round: 0,
                seat: first,
            },
            used: 0,
            held: BTreeMap::new(),
            votes: 0,
            entries: 0,
            behind: 0,
            void: BTreeSet::new(),
            boot,
            grant: None,
            released: None,
            chosen: Slot(0),
            known: Slot(0),
            delivered: Slot(0),
            begin: Ballot::default(),
            over: None,
            ending: None,
            heard: None,
            snapshot: Snapshot::initial(created.start.clone()),
            loans: Loans::default(),
            followers: Followers::default(),
            lagging: BTreeSet::new(),
            voted: BTreeMap::new(),
            installed: None,
            partial: None,
            fetching: None,
            role: Role::Follower,
            seen: Ballot::default(),
            hint: None,
            election_at: None,
            wish: None,
            dropped: VecDeque::new(),
            kept: VecDeque::new(),
            ignored: BTreeMap::new(),
        }
    }

    /// Reads a replica back. Nobody leads in it: a ballot is led by one process only. Chosen
    /// entries after the returned state come out of [`Log::next_chosen`] again.
    ///
    /// # Errors
    /// [`Unrecoverable`] if the log is unknown here, or a record that exists once per log is
    /// corrupt. A corrupt vote is no error: the replica is silent in phase 1 until it has learned
    /// from the others what was chosen there.
    pub fn recover(
        id: LogId,
        me: NodeName,
        memory: &dyn Memory,
        now: Now,
    ) -> Result<Recovered, Unrecoverable> {
        let disk = store::load(id, memory)?;
        let seat = disk.seat_of(me)?;
        let mut log = Log::blank(id, &disk.created, seat, now.monotonic);
        log.promised = disk.promised;
        log.used = disk.used;
        log.held = disk.held;
        log.void = disk.void;
        log.chosen = disk.chosen;
        log.known = log.void.last().map_or(log.chosen, |s| log.chosen.max(*s));
        log.hint = (log.promised.seat != seat).then_some(log.promised.seat);
        let (mut slot, mut state) = (Slot(0), disk.created.start);
        if let Some((record, raw)) = disk.snapshot {
            log.snapshot = Snapshot::new(&record, raw);
            log.begin = record.begin;
            log.delivered = record.slot;
            log.over = record.stopped.map(|stop| (record.slot, stop));
            slot = record.slot;
            state = record.state;
        }
        if let Some(Entry::Stop(stop)) = log.held.get(&log.chosen).map(|h| &h.entry) {
            log.over = Some((log.chosen, *stop));
        }
        log.weigh();
        Ok(Recovered { log, slot, state })
    }

    /// The ballot promised.
    pub fn ballot(&self) -> Ballot {
        self.promised
    }

    /// How often messages were ignored, by reason.
    pub fn ignored(&self) -> &BTreeMap<&'static str, u64> {
        &self.ignored
    }

    /// A message from the replica in seat `from` of this log's view.
    pub fn on_message(&mut self, from: Seat, message: Message, env: &mut Env<'_>) {
        self.planted = env.planted;
        if !self.seats(from) {
            return self.ignore("message from outside the view");
        }
        match message {
            Message::Prepare { ballot, above } => self.on_prepare(from, ballot, above, env),
            Message::Promise {
                ballot,
                above,
                chosen,
                accepted,
                more,
                ..
            } => {
                let piece = Piece {
                    above,
                    chosen,
                    accepted,
                    more,
                };
                self.on_promise(from, ballot, piece, env);
            }
            Message::Accept {
                ballot,
                slot,
                entry,
                chosen,
                ..
            } => {
                let offer = Offer {
                    slot,
                    entry,
                    chosen,
                };
                self.on_accept(from, ballot, offer, env);
            }
            Message::Accepted { ballot, slot } => {
                self.voted.entry(from).or_insert(env.now.monotonic);
                self.on_accepted(from, ballot, slot);
            }
            Message::Chosen { ballot, chosen } => self.on_chosen(from, ballot, chosen, env),
            Message::Refused { ballot, promised } => self.on_refused(ballot, promised, env),
            Message::Leased { ballot, .. } => self.on_leased(ballot, env),
            Message::Release { ballot, successor } => {
                self.on_release(from, ballot, successor, env);
            }
            Message::Fetch {
                from: first,
                resume,
            } => self.on_fetch(from, first, resume, env),
            Message::Entries {
                from: first,
                entries,
                chosen,
            } => self.on_entries(from, first, entries, chosen, env),
            Message::Chunk(chunk) => self.on_chunk(from, chunk, env),
            Message::Join { resume } => {
                if let Some(node) = self.view.node_at(from) {
                    self.on_join(node, resume, env);
                }
            }
            Message::Birth { .. } | Message::Succeeded { .. } | Message::Led { .. } => {
                self.ignore("news for one without a replica");
            }
        }
        self.cut(env);
    }

    fn seats(&self, seat: Seat) -> bool {
        usize::from(seat.0) < self.view.len()
    }

    fn quorum(&self) -> usize {
        let less = usize::from(self.planted.has(Bug::LogQuorumTooSmall));
        (self.view.majority() - less).max(1)
    }

    fn ignore(&mut self, reason: &'static str) {
        *self.ignored.entry(reason).or_default() += 1;
    }

    /// Sends at once: the message claims nothing that this step writes.
    fn send(&self, to: Seat, message: Message, env: &mut Env<'_>) {
        if let Some(name) = self.view.node_at(to) {
            self.tell(name, message, env);
        }
    }

    /// The same to a node that may have no seat.
    fn tell(&self, to: NodeName, message: Message, env: &mut Env<'_>) {
        let log = self.id;
        env.fx.send(to, crate::Message::Paxos { log, message });
    }

    /// Sends once this step is durable: the message claims that something is remembered.
    fn vow(&self, to: Seat, message: Message, env: &mut Env<'_>) {
        if let Some(name) = self.view.node_at(to) {
            let log = self.id;
            env.fx.promise(name, crate::Message::Paxos { log, message });
        }
    }

    /// Whether parts of a snapshot have come here, and others are still to come.
    pub fn fetches_snapshot(&self) -> bool {
        self.partial.is_some()
    }

    /// A member has said whether it is fetching a snapshot.
    pub fn note_behind(&mut self, seat: Seat, behind: bool) {
        match behind {
            true => self.lagging.insert(seat),
            false => self.lagging.remove(&seat),
        };
    }

    /// Whether a member lags so far that it is fetching a snapshot, here or elsewhere, or from here
    /// what lies above one; or may not have this log yet, or only just, so that it is bound for a
    /// lease as if it had started again.
    pub fn is_behind(&self, seat: Seat, now: Now, timing: &Timing) -> bool {
        let new = self.id.epoch > Epoch::FIRST;
        let bound = timing.lease_bound() * Micros::from(new);
        let voted = self.voted.get(&seat);
        let free = voted.is_some_and(|since| since + bound <= now.monotonic);
        let fetches = self.view.node_at(seat).is_some_and(|n| self.loans.has(n));
        fetches || self.lagging.contains(&seat) || !free
    }

    /// Checks what this replica believes of itself, after every step in production, too: nothing
    /// here walks over what is held.
    ///
    /// # Panics
    /// If a belief is wrong.
    pub fn assert_invariants(&self) {
        assert!(self.truncated() <= self.delivered && self.delivered <= self.chosen);
        assert!(self.chosen <= self.known || self.known == Slot(0) || self.over.is_some());
        if let Some((slot, _)) = self.over {
            assert!(self.chosen == slot, "nothing is chosen above the stop");
        }
        if let Role::Leading(lead) = &self.role {
            assert_eq!(lead.ballot, self.promised, "a leader follows itself");
            assert_eq!(lead.ballot.seat, self.seat, "a ballot names its leader");
            assert!(lead.next > self.chosen, "what is chosen was proposed");
            if let Some((first, _)) = lead.flights.first_key_value() {
                assert!(*first > self.chosen, "what is chosen is not in flight");
            }
            assert!(!self.muted(), "a leader knows its votes");
        }
    }

    /// Checks as well what takes a walk over all that is held: for tests, after every step.
    ///
    /// # Panics
    /// If a belief is wrong.
    pub fn assert_held(&self) {
        self.assert_invariants();
        for slot in (self.truncated().0 + 1)..=self.chosen.0 {
            assert!(
                self.held.contains_key(&Slot(slot)),
                "a chosen entry is held, or in the snapshot"
            );
        }
        for (slot, held) in self.held.range(self.chosen.next()..) {
            let ballot = held.ballot;
            assert!(
                ballot <= self.promised || ballot == CHOSEN,
                "voted above the promise"
            );
            assert!(!self.void.contains(slot));
        }
        if let Role::Leading(lead) = &self.role {
            let last = lead.flights.last_key_value();
            assert!(last.is_none_or(|(last, _)| *last < lead.next));
        }
        let weighed = (self.votes, self.entries, self.behind);
        assert_eq!(weighed, self.weights(), "what is held is counted");
    }
}
