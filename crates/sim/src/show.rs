//! Messages, requests and calls in few words, for the trace.

use crate::network::Parcel;
use fermata_protocol::base::{KeyId, Tag};
use fermata_protocol::client::Call;
use fermata_protocol::register::{Answer, Ask, Coding, Content, Version};
use fermata_protocol::request::Critical;
use fermata_protocol::{Message, Operation, Reply, lock, paxos, register};

/// Longest text of anything that has no short form of its own.
const LONG: usize = 160;

/// One thing that travels.
pub fn parcel(parcel: &Parcel) -> String {
    match parcel {
        Parcel::Peer {
            from,
            to,
            message: what,
        } => {
            format!("node {} -> node {}: {}", from.name.0, to.0, message(what))
        }
        Parcel::Request {
            client,
            to,
            request,
            ..
        } => {
            let what = operation(&request.operation);
            format!(
                "client {} -> node {}: #{} {what}",
                client.0, to.0, request.number
            )
        }
        Parcel::Cancel {
            client,
            to,
            exchange,
            ..
        } => {
            format!("client {} -> node {}: closes #{exchange}", client.0, to.0)
        }
        Parcel::Reply {
            from,
            client,
            exchange,
            reply: Some(what),
            ..
        } => {
            format!(
                "node {} -> client {}: #{exchange} {}",
                from.0,
                client.0,
                reply(what)
            )
        }
        Parcel::Reply {
            from,
            client,
            exchange,
            reply: None,
            ..
        } => {
            format!(
                "node {} -> client {}: #{exchange} connection broken",
                from.0, client.0
            )
        }
    }
}

/// A message between nodes.
pub fn message(message: &Message) -> String {
    match message {
        Message::Register(register::Message::Ask {
            call,
            key: k,
            ask: what,
            ..
        }) => {
            format!("ask {call} {} {}", key(k), ask(what))
        }
        Message::Register(register::Message::Answer {
            call, answer: what, ..
        }) => {
            format!("answer {call} {}", answer(what))
        }
        Message::Paxos { log, message } => {
            let part = match log.scope {
                fermata_protocol::base::Scope::Group => "group".to_owned(),
                fermata_protocol::base::Scope::Segment(s) => format!("segment {}", s.0),
            };
            format!("log {part}.{}: {}", log.epoch.0, paxos_message(message))
        }
        Message::Lock(lock::Message::Submit {
            call,
            segment,
            command,
        }) => cut(format!(
            "submit {call} to segment {}: {:x}.{} {:?}",
            segment.0,
            command.session.0 >> 112,
            command.number,
            command.body
        )),
        Message::Lock(other) => cut(format!("{other:?}")),
        Message::Beat(beat) => format!("beat, leads {}", beat.leads.len()),
        Message::BeatAck(ack) => format!("beat ack, follows {}", ack.follows.len()),
        other => cut(format!("{other:?}")),
    }
}

fn paxos_message(message: &paxos::Message) -> String {
    match message {
        paxos::Message::Accept {
            ballot,
            slot,
            entry,
            chosen,
            ..
        } => cut(format!(
            "accept {}.{} slot {} (chosen {}) {entry:?}",
            ballot.round, ballot.seat.0, slot.0, chosen.0
        )),
        paxos::Message::Accepted { ballot, slot } => {
            format!(
                "accepted {}.{} slot {}",
                ballot.round, ballot.seat.0, slot.0
            )
        }
        other => cut(format!("{other:?}")),
    }
}

fn ask(ask: &Ask) -> String {
    match ask {
        Ask::Read {
            holder,
            fence,
            eventual,
            ..
        } => {
            let holder = holder.map_or(String::new(), |h| format!(" as {}", h.lock_ref.0));
            let fence = fence.map_or(String::new(), |f| format!(" fence {}", tag(&f)));
            let both = if *eventual { " both cells" } else { "" };
            format!("read{holder}{fence}{both}")
        }
        Ask::Store {
            tag: t, content: c, ..
        } => format!("store {} {}", tag(t), content(c)),
        other => cut(format!("{other:?}")),
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Cells {
            versions,
            fence,
            eventual,
            ..
        } => {
            let eventual = if eventual.is_some() { ", eventual" } else { "" };
            let one = |v: &Version| format!("{} {}", tag(&v.tag), content(&v.content));
            let cell = match &versions[..] {
                [] => "nothing".to_owned(),
                versions => versions.iter().map(one).collect::<Vec<_>>().join(", "),
            };
            format!("{cell} (fence {}{eventual})", tag(fence))
        }
        Answer::Past { tag: t } => format!("past, {} is here", tag(t)),
        other => cut(format!("{other:?}")),
    }
}

fn content(content: &Content) -> String {
    match content {
        Content::Value(fragment) => match fragment.coding {
            Coding::Whole => value(&Some(fragment.bytes.clone())),
            Coding::Parts { members, needed } => {
                let (seat, digest) = (fragment.seat.0, fragment.digest >> 48);
                format!("part {seat} of [{members},{needed}] of {digest:x}")
            }
        },
        Content::Absent => "absent".to_owned(),
        Content::Tombstone => "tombstone".to_owned(),
        Content::Undecodable => "undecodable".to_owned(),
    }
}

/// A tag.
pub fn tag(tag: &Tag) -> String {
    let generation = tag.sequence >> 40;
    let number = tag.sequence & ((1 << 40) - 1);
    format!(
        "({},{generation}.{number},{:x})",
        tag.lock_ref.0,
        tag.writer & 0xffff_ffff_ffff
    )
}

/// A key.
pub fn key(key: &KeyId) -> String {
    // What is put behind a name to make it long says nothing.
    let name = String::from_utf8_lossy(&key.key);
    name.trim_end_matches('~').to_owned()
}

fn value(value: &Option<bytes::Bytes>) -> String {
    crate::checkers::show(value)
}

fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Enter { keys, mode, .. } => {
            let keys: Vec<String> = keys.iter().map(key).collect();
            format!("enter {mode:?} {}", keys.join(" "))
        }
        Operation::Critical {
            held,
            operation,
            leave,
        } => {
            let leave = if leave.is_empty() { "" } else { " and leave" };
            let what = match operation {
                Critical::Get => "get".to_owned(),
                Critical::Put { number, value: v } => format!("put {number} {}", value(v)),
            };
            format!(
                "{} ref {}.{}: {what}{leave}",
                key(&held.key),
                held.lock_ref.0,
                held.generation
            )
        }
        other => cut(format!("{other:?}")),
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Entered { keys, .. } => {
            let show = |k: &fermata_protocol::request::Entered| {
                format!(
                    "{}={} ref {}",
                    key(&k.held.key),
                    k.value
                        .known()
                        .map_or("(omitted)".into(), |v| value(&v.cloned())),
                    k.held.lock_ref.0
                )
            };
            format!(
                "entered {}",
                keys.iter().map(show).collect::<Vec<_>>().join(", ")
            )
        }
        Reply::Value { value: v, tag: t } => format!("value {} {}", value(v), tag(t)),
        Reply::Done { tag: Some(t) } => format!("done {}", tag(t)),
        other => cut(format!("{other:?}")),
    }
}

/// A client's call.
pub fn call(call: &Call) -> String {
    cut(format!("{call:?}"))
}

fn cut(mut text: String) -> String {
    if text.len() > LONG {
        let end = (0..=LONG)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
