//! Those who act in a section that is not theirs: its key and ref are public, its session's secret
//! is not.

use super::stage::Stage;
use crate::history::Heard;
use crate::network::{ClientId, Parcel};
use fermata_protocol::base::{NodeName, SessionId};
use fermata_protocol::request::{Critical, Held, Leaving, RefState};
use fermata_protocol::{Code, Operation, Reply, Request};

/// What a stranger tries, which has no session to show but its own, `of`.
fn acts(held: &Held, of: SessionId) -> [Operation; 5] {
    let put = |leave| Operation::Critical {
        held: held.clone(),
        operation: Critical::Put {
            number: 9,
            value: Some("stolen".into()),
        },
        leave,
    };
    let keys = vec![(held.clone(), Leaving::Clean(None))];
    let held = vec![held.clone()];
    [
        Operation::Renew { held: held.clone() },
        put(Vec::new()),
        put(keys.clone()),
        Operation::Leave { keys },
        Operation::Resume { held, of },
    ]
}

/// Whether a stranger was told that it may not.
fn refused(parcel: &Parcel) -> bool {
    match parcel {
        Parcel::Reply {
            reply: Some(Reply::Refused(why)),
            ..
        } => why.code == Code::NotHolder && !why.may_have_taken_effect,
        Parcel::Reply {
            reply: Some(Reply::Renewed { states }),
            ..
        } => states.iter().all(|state| *state == RefState::Gone),
        _ => false,
    }
}

/// The requests of one who asks without a session machine, so that it may ask for anything.
fn ask(stage: &mut Stage, client: ClientId, number: u64, operation: Operation, to: NodeName) {
    let of = &stage.world.clients[client.0 as usize];
    let request = Request {
        session: of.session().id(),
        number,
        attempt: 0,
        answered_through: 0,
        site: fermata_protocol::base::SiteId(of.site),
        operation,
    };
    let parcel = Parcel::Request {
        client,
        life: of.life,
        exchange: number,
        to,
        request,
    };
    stage.world.inject(parcel);
}

/// G49: one who knows key and ref of a section, but is of another session, asks to renew it, to
/// put, to put and leave, to leave and to resume it, at the holder's own node and at another. The
/// holder is told nothing of it, and goes on.
pub(super) fn anothers_ref(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let held = stage.world.history.sections[s1.0].held[0].clone();
    let of = stage.world.clients[h2.0 as usize].session().id();
    let answers = stage.hold(move |p| matches!(p, Parcel::Reply { client, .. } if *client == h2));
    let (mut asked, mut denied) = (0, 0);
    for node in [NodeName(4), NodeName(5)] {
        for operation in acts(&held, of) {
            asked += 1;
            ask(stage, h2, (1 << 40) + asked, operation, node);
            stage.pass(500);
            stage.get(h1, s1);
        }
    }
    for parcel in stage.world.network.release(answers) {
        denied += u64::from(refused(&parcel));
    }
    stage.expect(denied == asked, "whatever a stranger asks for is refused");
    let put = stage.put(h1, s1, "v2");
    let done = matches!(put, Some(Heard::Done(_)));
    stage.expect(done, "the holder goes on");
    stage.leave(h1, s1);
    stage.section(h2, "v3");
}
