//! A client that is served no more.

use super::*;

#[test]
fn whoever_holds_is_told_at_once_and_leaves_as_far_as_it_can() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.put(section, "k", "new");
    let (at, put) = client.must_send();
    client.reply(at, put.number, definite(Code::Unauthenticated));
    client.deny();
    let reason = LostReason::Denied;
    assert!(client.has(&Event::SectionLost { section, reason }));
    let get = client.get(section, "k");
    assert!(client.must_end(get).is_err(), "it is over here");
    let (at, number, keys) = client.must_leave();
    assert_eq!(keys, [(held("k", 10), Leaving::Dirty)]);
    client.reply(at, number, definite(Code::Unauthenticated));
    client.pass(60_000_000);
    assert!(client.heartbeat().is_none(), "nobody renews it");
}

#[test]
fn whoever_waits_waits_no_longer() {
    let mut client = Client::new();
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 1_000_000,
        lease: None,
    });
    client.must_send();
    client.deny();
    assert!(client.must_end(enter).is_err());
}

#[test]
fn whoever_is_denied_one_section_loses_that_one_and_leaves_it() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.pass(5_000_000);
    let (at, number, refs) = client.heartbeat().expect("it is renewed");
    assert_eq!(refs, [held("k", 10)]);
    let states = vec![RefState::Denied];
    client.reply(at, number, Reply::Renewed { states });
    let reason = LostReason::Denied;
    assert!(client.has(&Event::SectionLost { section, reason }));
    assert_eq!(client.must_leave().2.len(), 1);
}
