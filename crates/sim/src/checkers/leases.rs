//! While a client's clock says that its section is leased, nobody else is granted a conflicting one
//! (F10): the promise on which gets from memory rest.

use super::Violation;
use crate::client::Client;
use crate::network::ClientId;
use crate::show;
use fermata_protocol::base::LockRef;
use fermata_protocol::request::{Held, Mode};

const NAME: &str = "lease exclusivity";

/// The watcher. It needs no memory: leases are compared as they are granted.
#[derive(Debug, Default)]
pub struct Leases {
    compared: u64,
}

impl Leases {
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
                    if mine.mode == Mode::Shared && theirs.mode == Mode::Shared {
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

/// A ref's generations exclude each other as refs do (G14).
fn rank(held: &Held) -> (LockRef, u32) {
    (held.lock_ref, held.generation)
}
