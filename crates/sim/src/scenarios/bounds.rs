//! Much at once, under limits so small that a few commands are much.

use super::stage::{A, B, C, Stage, candidacy_of};
use crate::history::{OpId, SectionIx};
use crate::network::{ClientId, Parcel};
use fermata_protocol::base::{KeyId, Limits, NodeName, Slot};
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, paxos};

/// Bytes of a key here: eight enqueues are longer than a frame.
const KEY: usize = 900;

fn begin(stage: &mut Stage) {
    stage.again(|setup| {
        setup.limits = Limits {
            key: 1 << 10,
            value: 1 << 10,
            key_most: 1 << 10,
            value_most: 1 << 10,
            section_keys: 1,
            grant: 2 << 10,
            transaction: 2 << 10,
            ledger_value: 1 << 10,
            proposals_bytes: 32 << 10,
            batch_bytes: 4 << 10,
            window: 1,
            window_bytes: 5 << 10,
            votes_bytes: 64 << 10,
            chunk: 2 << 10,
            frame: 8 << 10,
            ..Limits::default()
        };
    });
}

/// As many clients of A's as there are letters want a long key each, of one segment, at once.
fn crowd(stage: &mut Stage) -> Vec<(ClientId, KeyId, OpId)> {
    let letters: Vec<char> = ('a'..='p').collect();
    let mut crowd = Vec::new();
    for letter in letters {
        let client = stage.client(&[1]);
        let key = stage.key_beside(&letter.to_string().repeat(KEY));
        let enter = stage.enter_keys(client, vec![key.clone()], Mode::Exclusive);
        crowd.push((client, key, enter));
    }
    crowd
}

fn leave(stage: &mut Stage, crowd: Vec<(ClientId, KeyId, OpId)>) {
    for (client, _, enter) in crowd {
        let section: Option<SectionIx> = stage.entered(enter);
        if let Some(section) = section {
            stage.leave(client, section);
        }
    }
}

/// G34: the window is full, and what waits for it is more than a frame holds.
pub(super) fn burst(stage: &mut Stage) {
    begin(stage);
    let crowd = crowd(stage);
    leave(stage, crowd);
}

/// G35: B misses one slot, C the next, and neither catches up. A goes on with one vote or the
/// other, and dies. What B and C have voted for since is chosen, and more than a frame holds.
pub(super) fn many_votes(stage: &mut Stage) {
    begin(stage);
    let chosen = chosen_at(stage, A);
    let missed_by = [(B, chosen.next()), (C, chosen.next().next())];
    let missed = stage.lose(move |p| {
        let Parcel::Peer { to, message, .. } = p else {
            return false;
        };
        let Message::Paxos { message, .. } = message else {
            return false;
        };
        match message {
            paxos::Message::Accept { slot, .. } => missed_by.contains(&(*to, *slot)),
            paxos::Message::Fetch { .. } => true,
            _ => false,
        }
    });
    let crowd = crowd(stage);
    for (_, _, enter) in &crowd {
        stage.entered(*enter);
    }
    let behind =
        chosen_at(stage, B) < chosen_at(stage, C) && chosen_at(stage, C) < chosen_at(stage, A);
    stage.expect(behind, "two members lag, each behind a slot of its own");
    stage.world.stop(A, true);
    let patient = stage.lose(candidacy_of(B));
    let led = stage.leader_other_than(A).is_some();
    stage.expect(led, "C leads, which knows as much to be chosen as B");
    stage.world.network.release(patient);
    stage.world.network.release(missed);
    stage.world.start(A);
    leave(stage, crowd);
}

/// How far a node knows the log of the key's segment to be chosen.
fn chosen_at(stage: &Stage, name: NodeName) -> Slot {
    let node = stage.world.machines[&name].node();
    let segment = node.and_then(|node| node.here().segments.get(&stage.segment()));
    segment.map_or(Slot(0), |segment| segment.log.chosen())
}
