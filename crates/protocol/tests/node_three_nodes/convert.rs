//! A directory of an earlier version.

use super::*;
use fermata_protocol::Void;
use fermata_protocol::base::{Ballot, Group, Incarnation, Location, Past, Seat, Slot, Timestamp};
use fermata_protocol::convert as conversion;
use fermata_protocol::paxos::Stop;
use fermata_protocol::registry::{Registered, Registry, Standing};
use fermata_protocol::sessions::Sessions;
use fermata_protocol::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// The group that kept the catalogue.
const FIRST: GroupId = GroupId(1);

type OldLocation = (
    Group,
    u64,
    Epoch,
    BTreeSet<SegmentId>,
    Vec<View>,
    BTreeMap<SegmentId, Vec<Past>>,
);

/// A group's state in this version, with the formats of its location, and of its logs.
type GroupNow = (
    u64,
    (OldLocation, u16),
    u8,
    Option<View>,
    Option<(Registry, Catalogue)>,
    Sessions,
    (u16, u16),
);

/// Nodes of the first format of this version: what can be converted is of none later.
fn earlier(limits: &Limits) -> Small {
    Small::of(3, |i| Config {
        formats: wire::VERSION..=wire::VERSION,
        limits: limits.clone(),
        ..config(i, 3, BITS)
    })
}

fn location_before(location: &Location) -> OldLocation {
    let now: (OldLocation, u16) = wire::decode(&wire::encode(location)).expect("a location");
    now.0
}

/// A catalogue as it was: without an access policy.
fn catalogue_before(catalogue: &Catalogue) -> (u64, Vec<Keyspace>) {
    (catalogue.version(), catalogue.all().to_vec())
}

/// The node's copy of it.
fn copy_before(value: &Bytes) -> Bytes {
    let now: Catalogue = wire::decode(value).expect("a catalogue");
    wire::encode(&catalogue_before(&now))
}

/// A state of the meta-group, as the log of the first group had it.
fn state_before(config: &Config, state: &Bytes) -> Bytes {
    let now: GroupNow = wire::decode(state).expect("a group's state");
    let (commands, _, least, next, meta, sessions, _) = now;
    let location = location_before(&Location::beginning(&config.cluster.groups[0]));
    let (_, catalogue) = meta.expect("the meta-group's");
    let catalogue = catalogue_before(&catalogue);
    wire::encode(&(commands, location, least, next, catalogue, sessions))
}

/// A record of a log of the meta-group, with its state as it was.
fn record_before(
    kind: u8,
    value: &Bytes,
    view: Option<&View>,
    before: impl Fn(&Bytes) -> Bytes,
) -> Bytes {
    match kind {
        0 => {
            let (now, first, start): (View, Seat, Bytes) = wire::decode(value).expect("created");
            wire::encode(&(view.unwrap_or(&now), first, before(&start)))
        }
        3 => {
            type Snapshot = (Slot, Ballot, Option<Stop>, Timestamp, Bytes);
            let now: Snapshot = wire::decode(value).expect("a snapshot");
            let (slot, begin, stopped, upper, state) = now;
            wire::encode(&(slot, begin, stopped, upper, before(&state)))
        }
        _ => value.clone(),
    }
}

type OldRegistry = (
    u64,
    u64,
    NodeName,
    NodeName,
    Vec<String>,
    BTreeMap<NodeName, OldRegistered>,
);

/// A node of a registry as version 8 had it.
type OldRegistered = (Incarnation, String, SiteId, Standing);

/// A registry as version 8 had it.
fn registry_8(registry: &Registry) -> OldRegistry {
    type Now = (
        u64,
        u64,
        NodeName,
        NodeName,
        Vec<String>,
        BTreeMap<NodeName, Registered>,
        Settings,
    );
    let now: Now = wire::decode(&wire::encode(registry)).expect("a registry");
    let (version, file, first, next, sites, nodes, _) = now;
    let before = |(name, node): (NodeName, Registered)| {
        let of_8 = (node.incarnation, node.label, node.site, node.standing);
        (name, of_8)
    };
    let nodes = nodes.into_iter().map(before).collect();
    // It was of the cluster file alone.
    (version, file ^ 1, first, next, sites, nodes)
}

/// A state of the meta-group as version 8 had it.
fn state_8(state: &Bytes) -> Bytes {
    let now: GroupNow = wire::decode(state).expect("a group's state");
    let (commands, (location, _), least, next, meta, sessions, _) = now;
    let before = |(registry, catalogue)| (registry_8(&registry), catalogue_before(&catalogue));
    let meta = meta.map(before);
    wire::encode(&(commands, location, least, next, meta, sessions))
}

/// A segment's state as it was: without a format, and the last command that changed a record.
fn segment_before(state: &Bytes) -> Bytes {
    let behind = wire::encode(&(wire::VERSION, 0_u64)).len();
    state.slice(..state.len() - behind)
}

/// What version 8 has of this.
fn before_8(ram: &Ram) -> Ram {
    let mut old = Ram::default();
    for (key, value) in all(ram) {
        let value = match &key[..] {
            b"nregistry" => {
                let now: Registry = wire::decode(&value).expect("a registry");
                wire::encode(&registry_8(&now))
            }
            b"ncatalogue" => copy_before(&value),
            log if is_of(log, GroupId::META) || is_of(log, FIRST) => {
                record_before(log[30], &value, None, state_8)
            }
            [b'l', ..] => record_before(key[30], &value, None, segment_before),
            _ => value,
        };
        old.append(vec![Write::Put { key, value }]);
    }
    old
}

/// Whether a record is of the own log of this group.
fn is_of(key: &[u8], group: GroupId) -> bool {
    key.first() == Some(&b'l') && key[1..17] == group.0.to_be_bytes() && key[17] == 0
}

fn all(ram: &Ram) -> Vec<(Bytes, Bytes)> {
    let all = ram.scan(b"", b"\xff", usize::MAX).into_iter();
    all.map(|(key, value)| (key, value.expect("no rot")))
        .collect()
}

/// What version 7 has of this.
fn before_7(config: &Config, ram: &Ram) -> Ram {
    let mut old = Ram::default();
    for (key, value) in all(ram) {
        let (key, value) = match &key[..] {
            b"nregistry" => {
                let now: Registry = wire::decode(&value).expect("a registry");
                let then = now.all().map(|(name, node)| (name, node.incarnation));
                let then: Vec<(NodeName, Incarnation)> = then.collect();
                (key, wire::encode(&then))
            }
            b"ncatalogue" => (key, copy_before(&value)),
            [b'p', _, _, a, b] => (vec![b'p', *a, *b].into(), value),
            log if is_of(log, GroupId::META) => {
                let mut name = log.to_vec();
                name[1..17].copy_from_slice(&FIRST.0.to_be_bytes());
                let view = &config.cluster.groups[0].view;
                let state = |state: &Bytes| state_before(config, state);
                (
                    name.into(),
                    record_before(log[30], &value, Some(view), state),
                )
            }
            log if is_of(log, FIRST) => continue,
            [b'l', ..] => {
                let value = record_before(key[30], &value, None, segment_before);
                (key, value)
            }
            _ => (key, value),
        };
        old.append(vec![Write::Put { key, value }]);
    }
    old
}

/// All that there was is there afterwards, record by record, in a log with a snapshot as in one
/// without; and it serves.
#[test]
fn a_directory_of_an_earlier_version_is_converted() {
    let limits = Limits {
        snapshot_every: 4,
        ..Limits::default()
    };
    for (limits, keyspaces) in [(Limits::default(), 1), (limits, 9)] {
        let mut small = earlier(&limits);
        let value = Some(Bytes::from_static(b"v"));
        let put = Operation::Put {
            key: key("e"),
            value: value.clone(),
        };
        small.ask(0, 1, put);
        for number in 0..keyspaces {
            let keyspace = Keyspace {
                name: format!("old{number}"),
                ..Keyspace::built_in()[0].clone()
            };
            small.ask(0, 2 + number, Operation::CreateKeyspace(keyspace));
        }
        // Others lead, so that there are promises.
        small.dead = Some(0);
        small.run(5_000_000);
        small.dead = None;
        small.run(5_000_000);
        small.nodes = core::mem::take(&mut small.nodes)
            .into_iter()
            .map(|(node, ram)| {
                let config = Config {
                    formats: wire::FORMATS,
                    ..node.config().clone()
                };
                let near = before_8(&ram);
                assert_ne!(all(&near), all(&ram));
                let mut converted = before_8(&ram);
                converted.append(conversion::directory(8, &config, &near).expect("of version 8"));
                assert_eq!(all(&converted), all(&ram));
                let mut old = before_7(&config, &ram);
                let snapshot = |(key, _): &(Bytes, Bytes)| is_of(key, FIRST) && key[30] == 3;
                assert_eq!(all(&old).iter().any(snapshot), keyspaces > 1);
                let promise = |(key, _): &(Bytes, Bytes)| is_of(key, FIRST) && key[30] == 1;
                assert!(all(&old).iter().any(promise));
                old.append(conversion::directory(7, &config, &old).expect("it can be converted"));
                let same = |(key, _): &(Bytes, Bytes)| !is_of(key, FIRST);
                let now: Vec<_> = all(&old).into_iter().filter(same).collect();
                let then: Vec<_> = all(&ram).into_iter().filter(same).collect();
                assert_eq!(now, then);
                let again = Node::recover(config, node.id(), &old, at(small.now), 77);
                (again.expect("a directory of this version"), old)
            })
            .collect();
        small.inputs.clear();
        small.run(5_000_000);
        let known = small.nodes[2].0.here().catalogue().all();
        let names: Vec<&str> = known.iter().map(|k| &k.name[..]).collect();
        assert_eq!(names.len() as u64, 2 + keyspaces, "{names:?}");
        let (_, entry) = entered(small.ask(1, 50, enter("e")));
        assert_eq!(entry, value);
        let keyspace = Keyspace {
            name: "new".into(),
            ..Keyspace::built_in()[0].clone()
        };
        let reply = small.ask(2, 51, Operation::CreateKeyspace(keyspace));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
}

/// What the version before could not have had is refused, and a directory that never took part has
/// nothing to convert.
#[test]
fn a_directory_that_cannot_be_converted_is_refused() {
    let config = config(0, 3, BITS);
    for version in conversion::FROM {
        let none = conversion::directory(version, &config, &Ram::default());
        assert_eq!(none, Ok(vec![]));
    }
    let small = earlier(&Limits::default());
    let mut old = before_7(&config, &small.nodes[0].1);
    let id = LogId {
        group: FIRST,
        scope: Scope::Group,
        epoch: Epoch::FIRST,
    };
    let key = record::log(id, LogRecord::Created);
    let value = old.get(&key).expect("no rot").expect("a log");
    let epoch = Epoch(2);
    let moved = record::log(LogId { epoch, ..id }, LogRecord::Created);
    old.append(vec![Write::Put { key: moved, value }]);
    let refused = conversion::directory(7, &config, &old);
    assert!(refused.is_err_and(|why| why.contains("changed its members")));
}

/// A memory whose votes are all damaged.
struct NoVotes<'a>(&'a Ram);

fn is_vote(key: &[u8]) -> bool {
    key[0] == b'l' && key.get(30) == Some(&2)
}

impl Memory for NoVotes<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        match is_vote(key) {
            true => Err(Void),
            false => self.0.get(key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let all = self.0.scan(from, to, limit).into_iter();
        let seen = all.map(|(key, value)| match is_vote(&key) {
            true => (key, Err(Void)),
            false => (key, value),
        });
        seen.collect()
    }

    fn is_durable(&self, _: &[u8]) -> bool {
        true
    }
}

/// Votes are as they were, damaged ones too: that is their log's affair, afterwards as before.
#[test]
fn votes_of_version_8_are_left_alone() {
    let mut small = earlier(&Limits::default());
    small.ask(0, 1, enter("e"));
    let (node, ram) = &small.nodes[0];
    let old = before_8(ram);
    assert!(all(&old).iter().any(|(key, _)| is_vote(key)));
    let writes = conversion::directory(8, node.config(), &NoVotes(&old)).expect("of version 8");
    let votes = |write: &Write| matches!(write, Write::Put { key, .. } if is_vote(key));
    assert!(!writes.is_empty() && !writes.iter().any(votes));
}

/// No server of version 8 could change a group's members.
#[test]
fn a_directory_of_version_8_whose_groups_have_moved_is_refused() {
    let small = earlier(&Limits::default());
    let (node, ram) = &small.nodes[0];
    let group = &node.config().cluster.groups[0];
    let mut location = Location::beginning(group);
    let next = View {
        epoch: Epoch(2),
        ..group.view.clone()
    };
    location.succeed(next, wire::VERSION);
    let mut old = before_8(ram);
    old.append(vec![Write::Put {
        key: record::node("locations"),
        value: wire::encode(&[location_before(&location)].to_vec()),
    }]);
    let refused = conversion::directory(8, node.config(), &old);
    assert!(refused.is_err_and(|why| why.contains("changed its members")));
}
