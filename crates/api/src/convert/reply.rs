//! Replies.

use super::request::{keyspace_from, keyspace_to, label_from};
use super::*;
use crate::errors::{refusal_from_proto, refusal_to_proto};
use crate::v1::enter_event::Event;
use crate::v1::ref_state::State;
use crate::v1::session_reply::Reply as Wire;
use fermata_protocol::base::{Epoch, EventualTag, NodeName, Reach, SegmentId};
use fermata_protocol::catalogue::Access;
use fermata_protocol::register::{Tally, UpkeepCounts};
use fermata_protocol::request::{
    ClockState, ClockStatus, ClosedStatus, Entered, EntryValue, Inspection, LogStatus,
    MovingStatus, NodeStatus, QueueEntry, RefState, Reply, SecurityStatus, StorageStatus,
    UpkeepStatus,
};
use fermata_protocol::settings::Settings;

/// The message of a reply.
pub fn reply_to_proto(reply: Reply, names: &Names) -> Wire {
    match reply {
        Reply::Queued { held, ahead } => {
            let held = held.iter().map(|h| held_to(names, h)).collect();
            event(Event::Queued(v1::Queued { held, ahead }))
        }
        Reply::Stalled { why } => event(Event::Stalled(v1::Stalled { why })),
        Reply::Entered { keys, lease } => {
            let one = |e: Entered| v1::EnteredKey {
                held: Some(held_to(names, &e.held)),
                omitted: e.value.is_omitted(),
                value: e.value.known().flatten().cloned(),
            };
            let keys = keys.into_iter().map(one).collect();
            event(Event::Entered(v1::Entered {
                keys,
                lease_us: lease,
            }))
        }
        Reply::Lost { held } => event(Event::Lost(v1::Lost {
            held: Some(held_to(names, &held)),
        })),
        Reply::Value { value, tag } => {
            let tag = (tag != Tag::ZERO).then(|| tag_to(tag));
            Wire::Value(v1::Value { value, tag })
        }
        Reply::Done { tag } => Wire::Done(v1::Done {
            tag: tag.map(tag_to),
            left: false,
        }),
        Reply::Left => Wire::Done(v1::Done {
            tag: None,
            left: true,
        }),
        Reply::Renewed { states } => {
            let states = states.into_iter().map(state_to).collect();
            Wire::Renewed(v1::Renewed { states })
        }
        // Whether there are more, only who cut the list knows.
        Reply::Keys(keys) => Wire::Keys(v1::KeyList { keys, more: false }),
        Reply::Queue { entries, flag } => {
            let entries = entries.into_iter().map(|e| entry_to(e, names)).collect();
            Wire::Queue(v1::LockQueue { entries, flag })
        }
        Reply::Transacted(verdict) => ledger::verdict_to(verdict, false),
        Reply::Resolved(verdict) => ledger::verdict_to(verdict, true),
        Reply::Snapshot { at, found } => Wire::Snapshot(ledger::snapshot_to(at, found)),
        Reply::Inspect(inspection) => Wire::Inspection(inspection_to(inspection)),
        Reply::Keyspaces(all) => {
            let keyspaces = all.iter().map(keyspace_to).collect();
            Wire::Keyspaces(v1::KeyspaceList { keyspaces })
        }
        Reply::Access(Access { version, policy }) => Wire::Access(v1::Access { version, policy }),
        Reply::Status(status) => Wire::Status(Box::new(status_to(*status, names))),
        Reply::Admitted(admitted) => Wire::Admitted(ring::admitted_to(&admitted)),
        Reply::Ring(status) => Wire::Ring(ring::ring_to(*status)),
        Reply::Refused(refusal) => Wire::Refusal(refusal_to_proto(&refusal)),
    }
}

fn event(event: Event) -> Wire {
    Wire::Event(v1::EnterEvent { event: Some(event) })
}

fn state_to(state: RefState) -> v1::RefState {
    let state = match state {
        RefState::Queued { ahead } => State::QueuedAhead(ahead),
        RefState::Holding { lease } => State::HoldingLeaseUs(lease),
        RefState::Gone => State::Gone(v1::Nothing {}),
        RefState::Unknown => State::Unknown(v1::Nothing {}),
        RefState::Deleted => State::Deleted(v1::Nothing {}),
        RefState::Denied => State::Denied(v1::Nothing {}),
    };
    v1::RefState { state: Some(state) }
}

fn entry_to(entry: QueueEntry, names: &Names) -> v1::QueueEntry {
    v1::QueueEntry {
        lock_ref: entry.lock_ref.0,
        generation: entry.generation,
        session: session_to(entry.session),
        mode: mode_to(entry.mode).into(),
        site: names.site_name(entry.site),
        since_us: entry.since,
        holds: entry.holds,
        label: entry.label.as_str().into(),
    }
}

fn inspection_to(i: Inspection) -> v1::Inspection {
    v1::Inspection {
        node: i.node.0,
        segment: i.segment.0,
        epoch: i.epoch.0,
        tag: Some(tag_to(i.tag)),
        fence: Some(tag_to(i.fence)),
        value_bytes: i.bytes,
        eventual: i.eventual.map(|e| v1::EventualTag {
            applied: e.applied,
            clock_us: e.clock,
            node: e.node.0,
            counter: e.counter,
        }),
        applied: i.applied,
    }
}

fn status_to(s: NodeStatus, names: &Names) -> v1::NodeStatus {
    let log = |l: LogStatus| v1::LogStatus {
        segment: l.segment.map(|s| s.0),
        epoch: l.epoch.0,
        primary: l.primary.map(|p| p.0),
        applied: l.applied,
        commands: l.commands,
        busy_keys: l.busy_keys,
    };
    v1::NodeStatus {
        // The node's program has the same as this crate.
        version: env!("CARGO_PKG_VERSION").into(),
        node: s.node.0,
        label: s.label,
        site: names.site_name(s.site),
        writable: s.writable,
        alive: s.alive.into_iter().map(|n| n.0).collect(),
        logs: s.logs.into_iter().map(log).collect(),
        requests: s.requests,
        group_sizes: s.group_sizes.into_iter().map(u32::from).collect(),
        clock: Some(clock_to(s.clock)),
        storage: s.storage.into_iter().map(storage_to).collect(),
        upkeep: Some(upkeep_to(*s.upkeep)),
        moving: Some(moving_to(s.moving)),
        closed: s.closed.into_iter().map(closed_to).collect(),
        sessions: s.sessions,
        security: Some(security_to(s.security)),
        settings: s.settings.map(settings_to),
    }
}

fn settings_to(s: Settings) -> v1::Settings {
    v1::Settings {
        changes: s.version,
        lease_us: s.lease,
        before_us: s.before,
        request_us: s.request,
        format: s.format.into(),
        raising: s.raising.map(u32::from),
        dead_after_us: s.dead_after,
        join: join_to(s.join),
        nearest_leads: s.nearest_leads,
        key_bytes: s.key_bytes,
        value_bytes: s.value_bytes,
        move_rate: s.move_rate,
    }
}

fn settings_from(s: v1::Settings) -> Result<Settings, Refusal> {
    Ok(Settings {
        version: s.changes,
        lease: s.lease_us,
        before: s.before_us,
        request: s.request_us,
        format: format(s.format)?,
        raising: s.raising.map(format).transpose()?,
        dead_after: s.dead_after_us,
        join: join_from(s.join)?,
        nearest_leads: s.nearest_leads,
        key_bytes: s.key_bytes,
        value_bytes: s.value_bytes,
        move_rate: s.move_rate,
    })
}

fn security_to(s: SecurityStatus) -> v1::SecurityStatus {
    v1::SecurityStatus {
        tls: s.tls,
        exposed: s.exposed,
        ends_in_s: s.ends_in,
    }
}

fn security_from(s: v1::SecurityStatus) -> SecurityStatus {
    SecurityStatus {
        tls: s.tls,
        exposed: s.exposed,
        ends_in: s.ends_in_s,
    }
}

fn closed_to(c: ClosedStatus) -> v1::ClosedStatus {
    v1::ClosedStatus {
        face: c.face,
        cause: c.cause,
        detail: c.detail,
        count: c.count,
        last_us: c.last,
        who: c.who,
    }
}

fn closed_from(c: v1::ClosedStatus) -> ClosedStatus {
    ClosedStatus {
        face: c.face,
        cause: c.cause,
        detail: c.detail,
        count: c.count,
        last: c.last_us,
        who: c.who,
    }
}

fn storage_to(s: StorageStatus) -> v1::StorageStatus {
    v1::StorageStatus {
        keyspace: s.keyspace,
        keys: s.at_rest.keys,
        dead: s.at_rest.dead,
        damaged: s.at_rest.damaged,
        versions: s.at_rest.versions,
        bytes: s.at_rest.bytes,
        expected_bytes: s.at_rest.expected,
        reach: s.reach.map(|reach| v1::Reach {
            heard: reach.heard.into(),
            members: reach.members.into(),
            needed: reach.needed.into(),
        }),
    }
}

/// A reach that no group can have is not told.
fn reach_from(reach: v1::Reach) -> Option<Reach> {
    Some(Reach {
        heard: reach.heard.try_into().ok()?,
        members: reach.members.try_into().ok()?,
        needed: reach.needed.try_into().ok()?,
    })
}

fn storage_from(s: v1::StorageStatus) -> StorageStatus {
    StorageStatus {
        keyspace: s.keyspace,
        at_rest: Tally {
            keys: s.keys,
            dead: s.dead,
            damaged: s.damaged,
            versions: s.versions,
            bytes: s.bytes,
            expected: s.expected_bytes,
        },
        reach: s.reach.and_then(reach_from),
    }
}

fn upkeep_to(s: UpkeepStatus) -> v1::UpkeepStatus {
    v1::UpkeepStatus {
        rounds: s.upkeep.rounds,
        looks: s.upkeep.looks,
        uneven: s.upkeep.uneven,
        given: s.upkeep.given,
        taken: s.upkeep.taken,
        refused: s.upkeep.refused,
        settled: s.upkeep.settled,
        buried: s.upkeep.buried,
        rebuilt: s.rebuilt,
        voids: s.voids,
        walked_us: s.walked,
    }
}

fn upkeep_from(s: v1::UpkeepStatus) -> UpkeepStatus {
    UpkeepStatus {
        upkeep: UpkeepCounts {
            rounds: s.rounds,
            looks: s.looks,
            uneven: s.uneven,
            given: s.given,
            taken: s.taken,
            refused: s.refused,
            settled: s.settled,
            buried: s.buried,
        },
        rebuilt: s.rebuilt,
        voids: s.voids,
        walked: s.walked_us,
    }
}

fn moving_to(s: MovingStatus) -> v1::MovingStatus {
    v1::MovingStatus {
        stores: s.stores,
        took_us: s.took,
        keys: s.keys,
        bytes: s.bytes,
        keys_left: s.keys_left,
    }
}

fn moving_from(s: v1::MovingStatus) -> MovingStatus {
    MovingStatus {
        stores: s.stores,
        took: s.took_us,
        keys: s.keys,
        bytes: s.bytes,
        keys_left: s.keys_left,
    }
}

fn clock_to(c: ClockStatus) -> v1::ClockStatus {
    let state = match c.state {
        ClockState::Absent => v1::ClockState::Unspecified,
        ClockState::TooWide => v1::ClockState::TooWide,
        ClockState::Violated => v1::ClockState::Violated,
        ClockState::Trusted => v1::ClockState::Trusted,
    };
    v1::ClockStatus {
        state: state.into(),
        bound_us: c.bound,
        violations: c.violations,
        against: c.against.map(|n| n.0),
    }
}

/// A node that says nothing, or what is not known here, has no interval clock.
fn clock_from(c: Option<v1::ClockStatus>) -> Result<ClockStatus, Refusal> {
    let c = c.unwrap_or_default();
    Ok(ClockStatus {
        state: match c.state() {
            v1::ClockState::Unspecified => ClockState::Absent,
            v1::ClockState::TooWide => ClockState::TooWide,
            v1::ClockState::Violated => ClockState::Violated,
            v1::ClockState::Trusted => ClockState::Trusted,
        },
        bound: c.bound_us,
        violations: c.violations,
        against: c.against.map(NodeName),
    })
}

/// The reply that a message is, for a client; names it does not know yet are added.
///
/// # Errors
/// The server sent something that is no reply: whether the request took effect is not known.
pub fn reply_from_proto(wire: Wire, names: &mut Names) -> Result<Reply, Refusal> {
    parse(wire, names).map_err(|refusal| {
        let detail = format!("the server's answer is malformed: {}", refusal.detail);
        Refusal::unknown(Code::Unavailable, detail)
    })
}

fn parse(wire: Wire, names: &mut Names) -> Result<Reply, Refusal> {
    Ok(match wire {
        Wire::Event(e) => event_from(e, names)?,
        Wire::Value(v) => {
            let tag = v.tag.map(tag_from).transpose()?.unwrap_or(Tag::ZERO);
            Reply::Value {
                value: v.value,
                tag,
            }
        }
        Wire::Done(d) if d.left => Reply::Left,
        Wire::Done(d) => Reply::Done {
            tag: d.tag.map(tag_from).transpose()?,
        },
        Wire::Renewed(r) => {
            let states = r
                .states
                .into_iter()
                .map(state_from)
                .collect::<Result<_, _>>()?;
            Reply::Renewed { states }
        }
        Wire::Keys(k) => Reply::Keys(k.keys),
        Wire::Queue(q) => {
            let entries = q.entries.into_iter().map(|e| entry_from(e, names));
            Reply::Queue {
                entries: entries.collect::<Result<_, _>>()?,
                flag: q.flag,
            }
        }
        Wire::Transacted(m) => ledger::reply_from_transacted(m)?,
        Wire::Resolved(m) => ledger::reply_from_resolved(m)?,
        Wire::Snapshot(m) => ledger::reply_from_snapshot(m)?,
        Wire::Inspection(i) => Reply::Inspect(inspection_from(i)?),
        Wire::Keyspaces(k) => {
            let all = k.keyspaces.into_iter().map(keyspace_from);
            Reply::Keyspaces(all.collect::<Result<_, _>>()?)
        }
        Wire::Access(v1::Access { version, policy }) => Reply::Access(Access { version, policy }),
        Wire::Status(s) => Reply::Status(Box::new(status_from(*s, names)?)),
        Wire::Admitted(admitted) => Reply::Admitted(Box::new(ring::admitted_from(&admitted)?)),
        Wire::Ring(status) => Reply::Ring(Box::new(ring::ring_from(status)?)),
        Wire::Refusal(r) => Reply::Refused(refusal_from_proto(r)),
        // Of the stream, not of a request.
        Wire::Leaving(_) | Wire::Cluster(_) => Reply::Refused(Refusal::unknown(
            Code::Unavailable,
            "the node told of itself instead of answering",
        )),
    })
}

fn event_from(e: v1::EnterEvent, names: &mut Names) -> Result<Reply, Refusal> {
    let lookup = &mut Adding(names);
    match e.event.ok_or_else(|| bad("an event without content"))? {
        Event::Queued(q) => Ok(Reply::Queued {
            held: all_held(lookup, q.held)?,
            ahead: q.ahead,
        }),
        Event::Stalled(s) => Ok(Reply::Stalled { why: s.why }),
        Event::Entered(e) => {
            bounded(e.keys.len())?;
            let keys = e.keys.into_iter().map(|k| {
                let held = held_from(lookup, k.held)?;
                let value = match (k.value, k.omitted) {
                    (value, false) => value.into(),
                    (None, true) => EntryValue::Omitted,
                    (Some(_), true) => return Err(bad("a value that is there and omitted")),
                };
                Ok(Entered { held, value })
            });
            Ok(Reply::Entered {
                keys: keys.collect::<Result<_, Refusal>>()?,
                lease: e.lease_us,
            })
        }
        Event::Lost(l) => Ok(Reply::Lost {
            held: held_from(lookup, l.held)?,
        }),
    }
}

fn state_from(state: v1::RefState) -> Result<RefState, Refusal> {
    Ok(
        match state.state.ok_or_else(|| bad("a state without content"))? {
            State::QueuedAhead(ahead) => RefState::Queued { ahead },
            State::HoldingLeaseUs(lease) => RefState::Holding { lease },
            State::Gone(_) => RefState::Gone,
            State::Unknown(_) => RefState::Unknown,
            State::Deleted(_) => RefState::Deleted,
            State::Denied(_) => RefState::Denied,
        },
    )
}

fn entry_from(e: v1::QueueEntry, names: &mut Names) -> Result<QueueEntry, Refusal> {
    Ok(QueueEntry {
        lock_ref: LockRef(e.lock_ref),
        generation: e.generation,
        session: session_from(&e.session)?,
        mode: mode_from(e.mode)?,
        site: names.add_site(&e.site),
        since: e.since_us,
        holds: e.holds,
        label: label_from(&e.label)?,
    })
}

fn inspection_from(i: v1::Inspection) -> Result<Inspection, Refusal> {
    let eventual = |e: v1::EventualTag| {
        Ok(EventualTag {
            applied: e.applied,
            clock: e.clock_us,
            node: NodeName(e.node),
            counter: e.counter,
        })
    };
    let tag = |tag: Option<v1::Tag>| tag.map_or(Ok(Tag::ZERO), tag_from);
    Ok(Inspection {
        node: NodeName(i.node),
        segment: SegmentId(i.segment),
        epoch: Epoch(i.epoch),
        tag: tag(i.tag)?,
        fence: tag(i.fence)?,
        bytes: i.value_bytes,
        eventual: i.eventual.map(eventual).transpose()?,
        applied: i.applied,
    })
}

fn status_from(s: v1::NodeStatus, names: &mut Names) -> Result<NodeStatus, Refusal> {
    let log = |l: v1::LogStatus| LogStatus {
        segment: l.segment.map(SegmentId),
        epoch: Epoch(l.epoch),
        primary: l.primary.map(NodeName),
        applied: l.applied,
        commands: l.commands,
        busy_keys: l.busy_keys,
    };
    Ok(NodeStatus {
        node: NodeName(s.node),
        label: s.label,
        site: names.add_site(&s.site),
        writable: s.writable,
        alive: s.alive.into_iter().map(NodeName).collect(),
        logs: s.logs.into_iter().map(log).collect(),
        requests: s.requests,
        clock: clock_from(s.clock)?,
        group_sizes: s
            .group_sizes
            .into_iter()
            .map(|n| u8::try_from(n).map_err(|_| bad("a group has at most 13 members")))
            .collect::<Result<_, _>>()?,
        settings: s.settings.map(settings_from).transpose()?,
        storage: s.storage.into_iter().map(storage_from).collect(),
        upkeep: Box::new(s.upkeep.map(upkeep_from).unwrap_or_default()),
        moving: s.moving.map(moving_from).unwrap_or_default(),
        closed: s.closed.into_iter().map(closed_from).collect(),
        sessions: s.sessions,
        security: s.security.map(security_from).unwrap_or_default(),
        version: s.version,
        held: Box::default(),
    })
}
