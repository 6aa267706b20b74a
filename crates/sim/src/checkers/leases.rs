//! While a client's clock says that its section is leased, nobody else is granted a conflicting one
//! (F10): the promise on which gets from memory rest. And the section does not end: its ref leaves
//! the queue by its client's own word, or when the lease has run out, be it released by force, its
//! `enter` repeated elsewhere, closed, or given up (G6, G13).

use super::Violation;
use crate::client::Client;
use crate::machine::Machine;
use crate::network::ClientId;
use crate::show;
use crate::workload::segment_of;
use fermata_protocol::base::{LockRef, SegmentId};
use fermata_protocol::request::Held;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "lease exclusivity";
/// The second property.
pub const KEPT: &str = "leased section ended";

/// The refs of a segment after so many commands, each with its generation.
type Queued = (u64, BTreeMap<LockRef, u32>);

/// The watcher. Leases are compared as they are granted, and with the refs that leave a queue.
#[derive(Debug, Default)]
pub struct Leases {
    compared: u64,
    queued: BTreeMap<SegmentId, Queued>,
}

impl Leases {
    /// Some of a node's segments moved.
    pub fn after_step(
        &mut self,
        now: u64,
        machine: &Machine,
        moved: &[SegmentId],
        clients: &[Client],
        found: &mut Vec<Violation>,
    ) {
        let segments = machine.node().map(|n| &n.here().segments);
        for id in moved {
            let Some(state) = segments.and_then(|s| s.get(id)).map(|s| &s.state) else {
                continue;
            };
            let (commands, refs) = self.queued.entry(*id).or_default();
            if state.commands() <= *commands {
                continue;
            }
            let bits = machine.config.cluster.segment_bits;
            for (lock_ref, generation) in refs
                .iter()
                .filter(|(r, _)| state.queues().get(**r).is_none())
            {
                let ended = |held: &Held| {
                    (held.lock_ref, held.generation) == (*lock_ref, *generation)
                        && segment_of(&held.key, bits) == *id
                };
                if let Some(client) = clients.iter().find(|c| is_leased(c, now, ended)) {
                    let detail = format!(
                        "segment {}: ref {} has left the queue, and client {} has its lease",
                        id.0, lock_ref.0, client.id.0
                    );
                    found.push(Violation::new(KEPT, detail));
                }
            }
            *commands = state.commands();
            *refs = state
                .queues()
                .refs()
                .map(|(r, known)| (r, known.generation))
                .collect();
        }
    }

    /// A client did something; perhaps it was granted a section.
    pub fn after_client(
        &mut self,
        now: u64,
        client: ClientId,
        clients: &[Client],
        found: &mut Vec<Violation>,
    ) {
        let me = &clients[client.0 as usize];
        if !me.alive {
            return;
        }
        for mine in me.session().sections().iter().filter(|s| s.holds) {
            for other in clients.iter().filter(|c| c.alive && c.id != client) {
                let reading = other.clock.monotonic(now);
                let leased = other.session().sections().into_iter();
                for theirs in leased.filter(|s| s.holds && s.lease_until > reading) {
                    self.compared += 1;
                    if me.is_shared(mine) && other.is_shared(&theirs) {
                        continue;
                    }
                    let clash = mine.held.iter().find(|h| {
                        theirs
                            .held
                            .iter()
                            .any(|t| t.key == h.key && rank(t) < rank(h))
                    });
                    if let Some(held) = clash {
                        let detail = format!(
                            "key {}: client {} is in section {}, client {} holds an earlier lease",
                            show::key(&held.key),
                            client.0,
                            held.lock_ref.0,
                            other.id.0
                        );
                        found.push(Violation::new(NAME, detail));
                    }
                }
            }
        }
    }
}

/// Whether the client is in a section with such a ref, and its lease runs by its own clock.
fn is_leased(client: &Client, now: u64, so: impl Fn(&Held) -> bool) -> bool {
    let reading = client.clock.monotonic(now);
    let sections = client.session().sections();
    let mut leased = sections
        .iter()
        .filter(|s| s.holds && s.lease_until > reading);
    client.alive && leased.any(|s| s.held.iter().any(&so))
}

/// A ref's generations exclude each other as refs do (G14).
fn rank(held: &Held) -> (LockRef, u32) {
    (held.lock_ref, held.generation)
}
