//! Listings over the stores of two groups, and over earlier ones.

use super::*;
use crate::register::{KeyRange, Listed};

/// The present stores of these segments, of an epoch.
fn present(epoch: u64, segments: core::ops::Range<u32>, members: &[u32]) -> KeyStore {
    KeyStore {
        epoch: Epoch(epoch),
        segments: segments.map(SegmentId).collect(),
        past: false,
        over_past: false,
        members: members.iter().copied().map(NodeName).collect(),
    }
}

/// All segments have earlier stores.
fn two_epochs() -> Vec<KeyStore> {
    let now = KeyStore {
        over_past: true,
        ..present(2, 0..16, &[1])
    };
    let past = KeyStore {
        past: true,
        ..present(1, 0..16, &[2])
    };
    vec![now, past]
}

/// Keys with a value, and with `-` before them those that have been deleted.
fn listed(names: &[&'static str]) -> Vec<Listed> {
    let each = names.iter().map(|name| Listed {
        key: Bytes::from_static(name.trim_start_matches('-').as_bytes()),
        live: !name.starts_with('-'),
    });
    each.collect()
}

type Question = (NodeName, u64, bool, KeyRange);

impl Bench {
    fn lists(&mut self, stores: Vec<KeyStore>, limit: u32) {
        self.cluster.stores = stores;
        let operation = Operation::Keys {
            keyspace: Keyspace::SECTIONS,
            prefix: Bytes::new(),
            after: None,
            limit,
        };
        self.ask(9, operation);
    }

    /// Who is asked under which call, whether for an earlier store, and for what.
    fn asked(&self) -> Vec<Question> {
        let of = |(to, message): &(NodeName, crate::Message)| match message {
            crate::Message::Coordinator(Message::Keys {
                call, past, range, ..
            }) => (*to, *call, *past, range.clone()),
            other => panic!("{other:?}"),
        };
        self.sent.iter().map(of).collect()
    }

    fn tells(&mut self, (from, call, ..): &Question, names: &[&'static str]) {
        let (call, keys) = (*call, listed(names));
        self.step(|it, cx| it.on_coordinator(*from, Message::KeysAre { call, keys }, cx));
    }

    fn has_listed(&mut self, names: &[&'static str]) {
        let keys = names.iter().copied().map(Bytes::from).collect();
        assert_eq!(*self.reply(), Reply::Keys(keys));
        self.quiet();
    }
}

#[test]
fn keys_of_all_groups_are_merged_and_nobody_lists_what_another_has() {
    let mut bench = Bench::new();
    let first_half = |name: &&&'static str| bench.cluster.segment(&key(name)).unwrap().0 < 8;
    let names = ["a", "b", "c", "d", "e", "f"];
    let (one, two): (Vec<&'static str>, Vec<_>) = names.iter().partition(first_half);
    assert!(!one.is_empty() && !two.is_empty());
    bench.lists(vec![present(1, 0..8, &[1]), present(1, 8..16, &[2])], 9);
    let asked = bench.asked();
    assert_eq!([asked[0].0, asked[1].0], [1, 2].map(NodeName));
    bench.tells(&asked[0], &one);
    assert!(bench.replies.is_empty());
    // A member that had all of them once has others still, and says so.
    bench.tells(&asked[1], &names);
    bench.has_listed(&names);

    bench.lists(vec![present(1, 0..8, &[1])], 9);
    let asked = bench.asked();
    bench.tells(&asked[0], &names);
    bench.has_listed(&one);
}

#[test]
fn what_the_later_store_knows_of_a_key_is_so() {
    let mut bench = Bench::new();
    bench.lists(two_epochs(), 9);
    let asked = bench.asked();
    let deleted: Vec<(bool, bool)> = asked.iter().map(|of| (of.2, of.3.deleted)).collect();
    assert_eq!(deleted, [(false, true), (true, false)]);
    bench.tells(&asked[1], &["a", "b", "c"]);
    bench.tells(&asked[0], &["-b", "d", "-e"]);
    bench.has_listed(&["a", "c", "d"]);
}

#[test]
fn an_answer_that_is_cut_tells_nothing_beyond_its_last_key() {
    let mut bench = Bench::new();
    bench.lists(two_epochs(), 2);
    let asked = bench.asked();
    bench.tells(&asked[0], &["-a", "-b"]);
    bench.tells(&asked[1], &["a", "z"]);
    // Neither has said which keys there are above b.
    let asked = bench.asked();
    let after = Some(Bytes::from_static(b"b"));
    assert!(asked.iter().all(|of| of.3.after == after));
    bench.tells(&asked[0], &["c", "-d"]);
    bench.tells(&asked[1], &["d", "e"]);
    let asked = bench.asked();
    let rest: Vec<_> = asked
        .iter()
        .map(|of| (of.3.after.clone(), of.3.limit))
        .collect();
    assert_eq!(
        rest,
        [
            (Some(Bytes::from_static(b"d")), 1),
            (Some(Bytes::from_static(b"d")), 1)
        ]
    );
    bench.tells(&asked[0], &[]);
    bench.tells(&asked[1], &["e"]);
    bench.has_listed(&["c", "e"]);
}

#[test]
fn another_member_is_asked_where_one_is_silent_and_all_anew_where_a_group_has_gone_on() {
    let mut bench = Bench::new();
    bench.lists(vec![present(1, 0..16, &[1, 2])], 9);
    let first = bench.asked();
    bench.wait(bench.timing.retry);
    let second = bench.asked();
    assert_eq!((first[0].0, second[0].0), (NodeName(1), NodeName(2)));
    bench.tells(&first[0], &["a"]);
    assert!(bench.replies.is_empty(), "it was given up");

    let news = [SegmentId(3)].into();
    bench.step(|it, cx| it.on_news(&news, cx));
    assert!(bench.sent.is_empty(), "the same stores");
    bench.cluster.stores = two_epochs();
    bench.step(|it, cx| it.on_news(&news, cx));
    let third = bench.asked();
    assert_eq!(third.len(), 2);
    bench.tells(&third[0], &["a"]);
    bench.tells(&third[1], &["b"]);
    bench.has_listed(&["a", "b"]);
}

#[test]
fn of_no_keys_none_are_listed() {
    let mut bench = Bench::new();
    bench.lists(two_epochs(), 0);
    for question in bench.asked() {
        bench.tells(&question, &[]);
    }
    bench.has_listed(&[]);
}
