//! A client that does nothing more in a section gives its lease back (G14).

use super::*;

#[test]
fn a_lease_is_given_back_by_who_has_entered_and_has_nothing_open() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.put(section, "k", "new");
    let (at, put) = client.must_send();
    let early = client.call(Call::Relinquish { section });
    let refusal = client.must_end(early).expect_err("a put is open");
    assert_eq!(refusal.code, Code::Busy);
    assert!(client.sent().is_none(), "the section goes on");
    client.reply(at, put.number, done());
    let last = client.call(Call::Relinquish { section });
    let (at, request) = client.must_send();
    let relinquish = Operation::Relinquish {
        held: vec![held("k", 10)],
    };
    assert_eq!(request.operation, relinquish);
    // Not even from memory: it was over before it was said.
    let get = client.get(section, "k");
    assert!(client.must_end(get).is_err());
    let states = vec![RefState::Holding { lease: 1_000_000 }];
    client.reply(at, request.number, Reply::Renewed { states });
    assert!(client.must_end(last).is_ok());
    client.pass(5_000_000);
    assert!(client.heartbeat().is_none(), "nobody renews it");
}

#[test]
fn who_has_not_entered_has_no_lease_to_give_back() {
    let mut client = Client::new();
    let (section, _) = client.waits("k", 12);
    let waits = client.call(Call::Relinquish { section });
    assert!(client.must_end(waits).is_ok());
    assert!(client.sent().is_none(), "nothing is said of a lease");
}
