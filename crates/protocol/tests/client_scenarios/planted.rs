//! Wrong rules of a session, each of which shows.

use super::*;
use fermata_protocol::base::{Bug, Planted};

fn with(bug: Bug) -> Client {
    Client::with(Options {
        planted: Planted::only(bug),
        ..Options::default()
    })
}

#[test]
fn dirty_leave_taken_as_clean() {
    let mut client = with(Bug::DirtyLeaveTakenAsClean);
    let section = client.entered(&["k"]);
    client.put(section, "k", "new");
    client.must_send();
    client.leave(section);
    let leaving = Leaving::Clean(None);
    assert_eq!(client.must_leave().2, [(held("k", 10), leaving)]);
}

#[test]
fn lost_key_ignored() {
    let mut client = with(Bug::LostKeyIgnored);
    let section = client.entered(&["k", "l"]);
    client.put(section, "k", "new");
    let (at, request) = client.must_send();
    client.reply(at, request.number, unknown(Code::NoLongerHolder));
    client.put(section, "l", "new");
    assert_eq!(write_number(&client.must_send().1), 2);
}

#[test]
fn late_grant_revives() {
    let mut client = with(Bug::LateGrantRevives);
    let (section, poll) = granted_after_the_leave(&mut client);
    assert!(client.must_end(poll).is_ok());
    assert_eq!(
        client.must_leave().2,
        [(held("k", 10), Leaving::Clean(None))]
    );
    client.put(section, "k", "late");
    assert_eq!(write_number(&client.must_send().1), 1);
}

#[test]
fn resume_reuses_numbers() {
    let mut client = with(Bug::ResumeReusesNumbers);
    let resume = client.call(Call::Resume {
        held: vec![held("k", 10)],
        of: SessionId(3),
    });
    let (at, request) = client.must_send();
    client.reply(at, request.number, quorum("old"));
    let Ok(Success::Entered { section, .. }) = client.must_end(resume) else {
        panic!("not resumed");
    };
    client.put(section, "k", "new");
    let (_, put) = client.must_send();
    let Operation::Critical { held: used, .. } = &put.operation else {
        panic!("not a critical operation");
    };
    assert_eq!((used, write_number(&put)), (&held("k", 10), 1));
}
