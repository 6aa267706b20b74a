//! The bounds that a node enforces.
//!
//! **Problem.** A bound by count alone is none: 256 commands are 30 KB or 500 MB. A message that
//! grows beyond a frame never reaches a peer, however often it is sent, and a log waits for it for
//! ever (G34, G35).
//!
//! **Idea.** Whatever is kept, queued or sent is bounded in bytes *and* in count, and one bound
//! follows from the other: a slot fits the window, the window the queue, the queue the votes.
//! [`Limits::check`] computes the largest message of each kind from the bounds, and refuses bounds
//! under which one could be larger than a frame. So a message that fits no frame is a fault of
//! ours, and whoever sends asserts that there is none.
//!
//! Bytes of commands and entries are those of [`Command::bytes`](crate::command::Command::bytes):
//! no less than they take encoded, or in memory.

use super::storage::{Kept, StoragePolicy};
use crate::command::Command;
use alloc::format;
use alloc::string::String;

/// Bytes that a message or a command says of one key or one value, beside itself, at most.
const OF_KEY: usize = 256;
/// Bytes that a message says beside what it carries, and a frame beside its message, at most.
const OF_MESSAGE: usize = 2 << 10;

/// Bounds that a node enforces; every queue has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key that a client may name.
    pub key: usize,
    /// Bytes of a value that a client may write.
    pub value: usize,
    /// Bytes of a key that a node takes from another, and keeps: what any cluster may be set to.
    pub key_most: usize,
    /// Bytes of a value that a node takes from another, and keeps.
    pub value_most: usize,
    /// Keys of one section.
    pub section_keys: usize,
    /// Bytes of values in one grant, and in one answer to an entry however many segments it spans.
    /// Values beyond it are left out and read by critical gets. The values of a section's keys
    /// together may be a thousand times what a frame between nodes or a message to a client holds;
    /// this bound keeps the entry of a large section as quick as that of a small one, and what a
    /// primary and a coordinator keep for it small.
    pub grant: usize,
    /// Requests open at one node.
    pub requests: usize,
    /// Commands waiting or in flight at one log's primary.
    pub proposals: usize,
    /// Bytes of these; a command alone is always taken.
    pub proposals_bytes: usize,
    /// Commands in one slot.
    pub batch: usize,
    /// Bytes of these; a larger command has a slot to itself.
    pub batch_bytes: usize,
    /// Slots in flight at one log's primary.
    pub window: usize,
    /// Bytes of these, of the votes that one answer to a candidate reports, of what is on its way
    /// to a replica that catches up, and of the entries that stay in memory behind a snapshot. One
    /// entry always may.
    pub window_bytes: usize,
    /// Bytes of votes that a replica of a log holds above what it knows to be chosen. The next slot
    /// is always taken.
    pub votes_bytes: usize,
    /// A segment's primary goes to a site whose entries exceed twice those of all others by this
    /// many, of those that it remembers (`Timing::usage`).
    pub usage_lead: u32,
    /// Slots applied before a log is truncated behind a snapshot.
    pub snapshot_every: u64,
    /// Bytes of these.
    pub entries_bytes: usize,
    /// Commands whose changes of records a member remembers, when it truncates a log, for whoever
    /// lacks them.
    pub changes: u64,
    /// Bytes of the applied entries that all logs of a node keep together; then the log with the
    /// most is truncated.
    pub node_entries_bytes: usize,
    /// Bytes of the values that a node moves at once from earlier stores, as far as the latest of
    /// them tell how large the next ones are. One that is walked over always may, and one that is
    /// given on.
    pub moving_bytes: u64,
    /// Bytes of one transaction, of what it reads, and of one part of a snapshot of a ledger.
    pub transaction: usize,
    /// Keys and ranges that one transaction names.
    pub transaction_keys: usize,
    /// Bytes of a value of a ledger that a client may write.
    pub ledger_value: usize,
    /// Bytes of one chunk of a snapshot or of a catch-up answer; a larger entry has an answer to
    /// itself.
    pub chunk: usize,
    /// Bytes of a frame between nodes.
    pub frame: usize,
}

impl Limits {
    /// Bytes of a key at most, whatever a cluster is configured to take.
    pub const KEY_MAX: usize = 32 << 10;
    /// Bytes of a value at most, whatever a cluster is configured to take: a frame between nodes
    /// holds a few of them.
    pub const VALUE_MAX: usize = 32 << 20;
    /// Keys of one section at most, whatever a cluster is configured to take.
    pub const SECTION_KEYS_MAX: usize = 1_024;
    /// Bytes of a frame between nodes at most: no node reads a longer one.
    pub const FRAME_MAX: usize = 96 << 20;

    /// Bytes of a command that a log takes at most: one that names all keys of a section, a
    /// transaction, or what fits a slot.
    pub fn command_bytes(&self) -> usize {
        let named = self.section_keys * (self.key_most + OF_KEY);
        let most = named.max(self.transaction);
        (2 * size_of::<Command>() + most).max(self.batch_bytes)
    }

    /// Whether these bounds fit each other, and every message that they allow fits a frame.
    ///
    /// # Errors
    /// One sentence that says which do not.
    pub fn check(&self) -> Result<(), String> {
        let ascending = [
            ("batch_bytes", self.batch_bytes),
            ("window_bytes", self.window_bytes),
            ("proposals_bytes", self.proposals_bytes),
            ("votes_bytes", self.votes_bytes),
        ];
        for pair in ascending.windows(2) {
            let [(low, less), (high, more)] = pair else {
                unreachable!("windows of two");
            };
            if less > more {
                return Err(format!(
                    "limits.{low} is {less}, more than limits.{high}, {more}: what is in the one \
                     must fit the other"
                ));
            }
        }
        for (what, bytes) in self.largest() {
            if bytes + OF_MESSAGE > self.frame {
                return Err(format!(
                    "under these limits {what} may take {bytes} bytes, and a frame between nodes \
                     holds {}: lower the limits of keys, values, grants or windows",
                    self.frame
                ));
            }
        }
        Ok(())
    }

    /// Bytes that the largest messages take: those whose size these bounds decide. Lists of a fixed
    /// count take a few mebibytes at most, and coded values have a test of their own
    /// ([`Limits::fits`]).
    fn largest(&self) -> [(&'static str, usize); 4] {
        let key = self.key_most + OF_KEY;
        let command = self.command_bytes();
        [
            ("a value with an eventual one", 2 * self.value_most + key),
            ("a command", command),
            ("a grant", self.grant + self.section_keys * key),
            (
                "a part of a log",
                command.max(self.window_bytes).max(self.chunk),
            ),
        ]
    }

    /// Keys in one answer to a listing at most: they take half a frame.
    pub fn listed_keys(&self) -> usize {
        self.frame / 2 / (self.key_most + OF_KEY)
    }

    /// Whether values of so many bytes can be kept so by `members`, and a frame holds all that one
    /// of them may keep of a key, with an eventual value: what answers a read.
    ///
    /// # Errors
    /// One sentence that says which bound is broken.
    pub fn fits(
        &self,
        value: usize,
        storage: &StoragePolicy,
        members: usize,
    ) -> Result<(), String> {
        let shape = storage.shape(members)?;
        let versions = match shape.kept {
            Kept::Highest => 1,
            Kept::FromFinal(above) => 1 + above,
            Kept::Several(all) => all,
        };
        let whole = storage
            .terms()
            .map_or(0, |terms| terms.whole_below as usize);
        let part = value.div_ceil(shape.parts).max(whole.min(value)) + OF_KEY;
        let bytes = self.key_most + versions * part + value + OF_MESSAGE;
        if bytes > self.frame {
            return Err(format!(
                "a member's answer to a read may take {bytes} bytes, and a frame between nodes \
                 holds {}",
                self.frame
            ));
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            key: 1 << 10,
            value: 16 << 20,
            key_most: Limits::KEY_MAX,
            value_most: Limits::VALUE_MAX,
            section_keys: 64,
            grant: 8 << 20,
            requests: 8_192,
            proposals: 4_096,
            proposals_bytes: 16 << 20,
            batch: 256,
            batch_bytes: 1 << 20,
            window: 256,
            window_bytes: 8 << 20,
            votes_bytes: 32 << 20,
            usage_lead: 10,
            snapshot_every: 4_096,
            changes: 65_536,
            entries_bytes: 32 << 20,
            node_entries_bytes: 256 << 20,
            moving_bytes: 64 << 20,
            transaction: 4 << 20,
            transaction_keys: 4_096,
            ledger_value: 1 << 20,
            chunk: 256 << 10,
            frame: Limits::FRAME_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{
        Ballot, Epoch, EventualTag, GroupId, Incarnation, KeyId, KeyspaceId, Label, LockRef, LogId,
        NodeId, NodeName, Scope, Seat, SegmentId, SessionId, SiteId, Slot, Tag, Terms,
    };
    use crate::command::{Body, ClientLease, LockCommand, Origin, SegmentCommand};
    use crate::message::{Envelope, Message};
    use crate::paxos::{Accepted, Entry};
    use crate::register::message::{
        Answer, Coding, Content, Fragment, Marked, Moved, StoreId, Version,
    };
    use crate::request::{EntryValue, Mode};
    use crate::{lock, paxos, register, wire};
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A small cluster's, so that the largest messages can be made.
    fn small() -> Limits {
        Limits {
            key: 600,
            value: 9_000,
            key_most: 600,
            value_most: 9_000,
            section_keys: 8,
            grant: 10_000,
            batch_bytes: 4_000,
            window_bytes: 20_000,
            proposals_bytes: 20_000,
            votes_bytes: 20_000,
            chunk: 8_000,
            transaction: 9_000,
            ledger_value: 4_000,
            frame: 24_000,
            ..Limits::default()
        }
    }

    fn key(limits: &Limits) -> KeyId {
        KeyId {
            keyspace: KeyspaceId(u32::MAX),
            key: vec![b'k'; limits.key].into(),
        }
    }

    const TAG: Tag = Tag {
        lock_ref: LockRef(u64::MAX),
        sequence: u64::MAX,
        writer: u128::MAX,
    };

    fn command(body: LockCommand) -> Command {
        let (session, epoch) = (SessionId(u128::MAX), Epoch(u64::MAX));
        Command::new(session, u64::MAX, u64::MAX, epoch, Body::Lock(body))
    }

    /// Commands that name all keys of a section.
    fn commands(limits: &Limits) -> Vec<Command> {
        let keys = vec![key(limits); limits.section_keys];
        let clean = keys.iter().map(|k| (k.clone(), Some(TAG))).collect();
        let origin = Origin {
            node: NodeName(u32::MAX),
            site: SiteId(u16::MAX),
            since: u64::MAX,
            lease: u64::MAX,
            section_max: u64::MAX,
            label: Label::new(&"l".repeat(Label::MAX)).unwrap(),
        };
        let mode = Mode::Exclusive;
        vec![
            command(LockCommand::Enqueue { keys, mode, origin }),
            command(LockCommand::Leave {
                lock_ref: TAG.lock_ref,
                generation: u32::MAX,
                of: SessionId(u128::MAX),
                clean,
                put: Some((key(limits), TAG)),
                waiting_only: true,
            }),
        ]
    }

    fn log(message: paxos::Message) -> Message {
        let log = LogId {
            group: GroupId(u128::MAX),
            scope: Scope::Segment(SegmentId(u32::MAX)),
            epoch: Epoch(u64::MAX),
        };
        Message::Paxos { log, message }
    }

    const BALLOT: Ballot = Ballot {
        round: u32::MAX,
        seat: Seat(u8::MAX),
    };

    fn accept(commands: Vec<Command>) -> Message {
        log(paxos::Message::Accept {
            ballot: BALLOT,
            slot: Slot(u64::MAX),
            entry: Entry::Commands {
                birth: BALLOT,
                commands,
            },
            chosen: Slot(u64::MAX),
            reserved: paxos::Reserved::default(),
        })
    }

    fn promise(limits: &Limits) -> Message {
        let entry = Entry::Noop;
        let slots = limits.window_bytes / entry.bytes();
        let vote = Accepted {
            slot: Slot(u64::MAX),
            ballot: BALLOT,
            entry,
        };
        log(paxos::Message::Promise {
            ballot: BALLOT,
            above: Slot(u64::MAX),
            chosen: Slot(u64::MAX),
            accepted: vec![vote; slots],
            more: true,
            reserved: paxos::Reserved::default(),
        })
    }

    fn content(bytes: usize) -> Content {
        Content::Value(Fragment {
            coding: Coding::Parts {
                members: 13,
                needed: 13,
            },
            seat: Seat(12),
            length: u64::MAX,
            digest: u64::MAX,
            sum: u64::MAX,
            bytes: vec![1; bytes].into(),
        })
    }

    fn cells(limits: &Limits, versions: usize, part: usize) -> Message {
        let origin = EventualTag::default();
        let version = Version {
            tag: TAG,
            origin,
            content: content(part),
        };
        let answer = Answer::Cells {
            versions: vec![version; versions],
            settled: TAG,
            dropped: TAG,
            fence: TAG,
            passed: u64::MAX,
            eventual: Some((origin, content(limits.value))),
            moved: Moved::Marked(Box::new(Marked {
                sources: vec![Epoch(u64::MAX); 2],
                mark: Some(TAG),
            })),
        };
        let store = StoreId {
            segment: SegmentId(u32::MAX),
            epoch: Epoch(u64::MAX),
        };
        let (call, seat) = (u64::MAX, Seat(12));
        register::Message::Answer {
            call,
            store,
            seat,
            answer,
        }
        .into()
    }

    fn granted(limits: &Limits) -> Message {
        let with = |bytes: usize| lock::message::Latest {
            key: key(limits),
            value: EntryValue::Value(vec![2; bytes].into()),
            tag: TAG,
        };
        let mut latest = vec![with(0); limits.section_keys - 1];
        latest.push(with(limits.grant));
        let granted = lock::Message::Granted(lock::Grant {
            session: SessionId(u128::MAX),
            number: u64::MAX,
            segment: SegmentId(u32::MAX),
            lock_ref: TAG.lock_ref,
            generation: u32::MAX,
            latest,
            lease: u64::MAX,
        });
        granted.into()
    }

    /// Bytes of the frame that carries it alone, and of memory that it takes.
    fn framed(message: Message) -> (usize, usize) {
        let incarnation = Incarnation(u128::MAX);
        let name = NodeName(u32::MAX);
        let from = NodeId { name, incarnation };
        let envelope = Envelope {
            from,
            interval: None,
            messages: vec![message],
        };
        let frame = wire::frame::seal(&envelope, 0);
        let rest = &frame[wire::frame::LENGTH..];
        let (_, memory) = wire::frame::measure(rest).expect("a peer takes it");
        (rest.len(), memory)
    }

    #[test]
    fn the_largest_message_of_each_kind_fits_a_frame() {
        let limits = small();
        limits.check().expect("bounds that fit each other");
        let mut messages = vec![
            promise(&limits),
            granted(&limits),
            cells(&limits, 1, limits.value),
        ];
        for command in commands(&limits) {
            assert!(command.bytes() <= limits.command_bytes());
            let (call, segment) = (u64::MAX, SegmentId(u32::MAX));
            messages.push(accept(vec![command.clone()]));
            messages.push(
                lock::Message::Submit {
                    call,
                    segment,
                    command,
                }
                .into(),
            );
        }
        let listed = crate::register::Listed {
            key: key(&limits).key,
            live: true,
        };
        let listing = vec![listed; limits.listed_keys()];
        messages.push(
            crate::coordinator::Message::KeysAre {
                call: u64::MAX,
                keys: listing,
            }
            .into(),
        );
        let refs = (0..limits.frame as u64 / 20).map(|i| LockRef(u64::MAX - i));
        let refs = refs.collect();
        let words = crate::lock::LastWords {
            granted: refs,
            ..Default::default()
        };
        let log = crate::base::LogId {
            group: GroupId(u128::MAX),
            scope: crate::base::Scope::Segment(SegmentId(u32::MAX)),
            epoch: Epoch(u64::MAX),
        };
        messages.push(crate::ring::Message::LastWords { log, words }.into());
        for message in messages {
            let named = alloc::format!("{message:?}");
            let (bytes, _) = framed(message);
            assert!(bytes <= limits.frame, "{bytes}: {}", &named[..100]);
        }
    }

    #[test]
    fn what_a_member_keeps_of_a_coded_key_fits_a_frame_or_is_refused() {
        let limits = small();
        let mut taken = 0;
        for members in 1..=13 {
            for (faults, delta) in (0..=6).flat_map(|f| (0..=32).map(move |d| (f, d))) {
                let terms = Terms {
                    delta,
                    ..Terms::new(faults)
                };
                let all = [
                    StoragePolicy::Coded,
                    StoragePolicy::Ares,
                    StoragePolicy::Oreas,
                ];
                for policy in all.map(|make| make(terms)) {
                    let Ok(shape) = policy.shape(members) else {
                        continue;
                    };
                    let versions = match shape.kept {
                        Kept::Highest => 1,
                        Kept::FromFinal(above) => 1 + above,
                        Kept::Several(all) => all,
                    };
                    let part = limits.value.div_ceil(shape.parts);
                    let (bytes, _) = framed(cells(&limits, versions, part));
                    let fits = limits.fits(limits.value, &policy, members).is_ok();
                    assert!(!fits || bytes <= limits.frame, "{policy:?}: {bytes}");
                    taken += usize::from(fits);
                }
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn a_command_takes_no_more_than_it_says() {
        let mut all = commands(&small());
        let leases = vec![
            ClientLease {
                lock_ref: TAG.lock_ref,
                left: u64::MAX,
                spent: u64::MAX,
            };
            100
        ];
        let body = Body::Segment(SegmentCommand::Leases(leases));
        let session = SessionId(u128::MAX);
        let epoch = Epoch(u64::MAX);
        all.push(Command::new(session, u64::MAX, u64::MAX, epoch, body));
        let (key, flag) = (key(&small()), u64::MAX);
        all.push(command(LockCommand::PutDone {
            key: key.clone(),
            flag,
        }));
        all.push(command(LockCommand::SynchDone { key, flag }));
        let (_, without) = framed(accept(Vec::new()));
        for command in all {
            let bytes = command.bytes();
            assert!(wire::size(&command) <= bytes, "{command:?}");
            let (_, with) = framed(accept(vec![command.clone()]));
            assert!(with - without <= bytes, "{with} - {without}: {command:?}");
        }
    }

    #[test]
    fn the_widest_limits_of_a_cluster_hold_and_wider_ones_are_refused() {
        let widest = Limits {
            key: Limits::KEY_MAX,
            value: Limits::VALUE_MAX,
            section_keys: Limits::SECTION_KEYS_MAX,
            grant: Limits::VALUE_MAX,
            ..Limits::default()
        };
        assert_eq!(widest.check(), Ok(()));
        assert_eq!(Limits::default().check(), Ok(()));
        type Spoil = fn(&mut Limits);
        let spoils: [(&str, Spoil); 5] = [
            ("a value", |l| l.value_most *= 2),
            ("a command", |l| l.section_keys *= 4),
            ("a grant", |l| l.grant = 70 << 20),
            ("a part of a log", |l| l.chunk = 96 << 20),
            ("window_bytes", |l| l.window_bytes = 17 << 20),
        ];
        for (word, spoil) in spoils {
            let mut limits = widest.clone();
            spoil(&mut limits);
            let error = limits.check().expect_err(word);
            assert!(
                error.contains(word) && !error.contains('\n'),
                "{word}: {error}"
            );
        }
    }
}
