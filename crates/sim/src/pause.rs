//! How much longer clients wait while a group changes its members, in virtual time.
//!
//! One client for each kind of operation, at the site of the segment's primary, issues the next one
//! as soon as the last one has ended. What it waits at most across the change, until all values
//! have moved, is compared with what it waits at most before and after. Only distance costs
//! anything; every key has a value, and is moved by whoever comes first.

use crate::cluster;
use crate::history::{Heard, OpId, SectionIx};
use crate::nemesis;
use crate::network::ClientId;
use crate::profile::Profile;
use crate::workload::segment_of;
use crate::world::{Setup, World};
use bytes::Bytes;
use fermata_protocol::base::{GroupId, KeyId, Keyspace, KeyspaceId, NodeName, SegmentId, Timing};
use fermata_protocol::client::{Call, Options};
use fermata_protocol::request::Mode;

/// The kinds of operations, as they are called in a row.
pub const OPERATIONS: [&str; 9] = [
    "section",
    "enter",
    "leave",
    "put",
    "get",
    "write",
    "read",
    "eventual put",
    "eventual get",
];

/// Nodes 1 to 3 are at the sites 1 to 3, nodes 4 to 6 as well; node 1 leads.
#[derive(Clone, Copy)]
struct Change {
    name: &'static str,
    /// The group's members before,
    from: &'static [u32],
    /// and after. None: they stay.
    to: &'static [u32],
    /// Who loses its power, and what it has not flushed, for good: at that moment, or up to a round
    /// trip after the change was proposed.
    dies: Option<u32>,
}

const fn change(name: &'static str, from: &'static [u32], to: &'static [u32]) -> Change {
    Change {
        name,
        from,
        to,
        dies: None,
    }
}

const CHANGES: [Change; 10] = [
    change("none", &[1, 2, 3], &[]),
    change("replace, primary stays", &[1, 2, 3], &[1, 2, 6]),
    change("replace, primary goes", &[1, 2, 3], &[4, 2, 3]),
    change("join", &[1, 2, 3], &[1, 2, 3, 4]),
    change("leave, primary stays", &[1, 2, 3, 4], &[1, 2, 3]),
    change("leave, primary goes", &[1, 2, 3, 4], &[4, 2, 3]),
    change("replace all", &[1, 2, 3], &[4, 5, 6]),
    Change {
        dies: Some(3),
        ..change("replace who dies", &[1, 2, 3], &[1, 2, 6])
    },
    Change {
        dies: Some(1),
        ..change("primary dies", &[1, 2, 3], &[])
    },
    Change {
        dies: Some(1),
        ..change("replace primary, dies", &[1, 2, 3], &[4, 2, 3])
    },
];

/// Who leads first.
const PRIMARY: u32 = 1;

/// What one kind of operation has waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The latency profile.
    pub profile: &'static str,
    /// What has changed.
    pub change: &'static str,
    /// One of [`OPERATIONS`].
    pub operation: &'static str,
    /// The longest before the change and after it, milliseconds.
    pub steady: f64,
    /// The longest across it, milliseconds.
    pub across: f64,
    /// Round trip from the primary's site to the nearest other one, milliseconds.
    pub rtt: f64,
    /// What the primary's death costs by itself: its read lease from its last beat on, as it binds
    /// the next seat; the pause before that one stands for election; and the election, two round
    /// trips between those who are left. 0 where it lives. Milliseconds.
    pub death: f64,
    /// Operations whose outcome is unknown, or that were refused.
    pub failed: usize,
}

/// Virtual time for what is to be ready before, microseconds.
const READY: u64 = 8_000_000;
/// Round trips before a change, after it, and across one,
const STEADY: u64 = 40;
const ACROSS: u64 = 150;
/// and microseconds at least: operations may be slower after a change, and what moves values does
/// so at each beat.
const STEADY_MIN: u64 = 500_000;
const ACROSS_MIN: u64 = 2_000_000;

/// A change is proposed at so many moments, one in each run: operations are at another point then.
/// Together they are about the three round trips of a section, twice: the clients' coordinator is
/// the primary's node first, where that lives, then one of its site that has no seat before.
const MOMENTS: u64 = 18;
/// Moments in a round trip.
const IN_A_TRIP: u64 = 3;

/// From the primary's site to the nearest other one and back, microseconds.
fn rtt(profile: &Profile) -> u64 {
    let all = (1..3).map(|site| profile.rtt(0, site));
    all.min().unwrap_or_default()
}

/// Measures every change.
pub fn bench(profile: &'static Profile) -> Vec<Row> {
    let each = |change| measure(profile, change, MOMENTS);
    CHANGES.iter().flat_map(each).collect()
}

/// The longest of each operation, over these moments.
fn measure(profile: &'static Profile, change: &Change, moments: u64) -> Vec<Row> {
    let still = change.to.is_empty() && change.dies.is_none();
    let moments = if still { 1 } else { moments };
    let run = |moment| {
        let apart = change.dies.is_some() || moment >= moments / 2;
        Bench::new(profile, change, apart).run(profile, change, moment)
    };
    let mut worst = run(0);
    for moment in 1..moments {
        for (worst, row) in worst.iter_mut().zip(run(moment)) {
            let failed = worst.failed + row.failed;
            if row.across > worst.across {
                *worst = row;
            }
            worst.failed = failed;
        }
    }
    worst
}

struct Bench {
    world: World,
    loops: Vec<Loop>,
    names: u64,
}

/// One client's operations.
struct Loop {
    client: ClientId,
    key: KeyId,
    /// The section that it is in.
    section: Option<SectionIx>,
    /// Which of [`OPERATIONS`] it does: always the same, or in turn to enter and to leave.
    kind: usize,
    /// What it waits for.
    op: OpId,
}

impl Bench {
    fn new(profile: &'static Profile, change: &Change, apart: bool) -> Bench {
        let timing = Timing {
            usage: 0,
            ..Timing::default()
        };
        let mut world = World::new(Setup::measured(profile, cluster::schedule(3), timing));
        world.run_for(5_000_000);
        if change.from.len() > 3 {
            next(&mut world, change.from);
            world.run_for(READY);
        }
        let mut bench = Bench {
            world,
            loops: Vec::new(),
            names: 0,
        };
        for (kind, operation) in OPERATIONS.iter().enumerate() {
            if *operation == "leave" {
                continue;
            }
            let options = Options {
                cached_gets: false,
                ..Options::default()
            };
            let client = bench.client(apart, options);
            let keyspace = match *operation {
                "write" | "read" => Keyspace::REGISTERS,
                _ => Keyspace::SECTIONS,
            };
            let key = key_of(keyspace, kind);
            let value = bench.value();
            let call = Call::Write {
                key: key.clone(),
                value,
            };
            bench.done(client, call);
            let held = ["put", "get"].contains(operation);
            let section = held.then(|| bench.entered(client, &key)).flatten();
            bench.loops.push(Loop {
                client,
                key,
                section,
                kind,
                op: OpId(0),
            });
        }
        bench
    }

    /// A client at the primary's site, which may know only nodes without a seat.
    fn client(&mut self, apart: bool, options: Options) -> ClientId {
        if !apart {
            return self.world.add_client(0, options);
        }
        let nodes = [4, 5, 6].map(NodeName);
        self.world.add_client_at(0, nodes.to_vec(), options)
    }

    fn value(&mut self) -> Option<Bytes> {
        self.names += 1;
        Some(Bytes::from(format!("v{}", self.names)))
    }

    fn done(&mut self, client: ClientId, call: Call) -> OpId {
        let op = self.world.call(client, call);
        let until = self.world.now + READY;
        let ended = |w: &World| *w.outcome(op) != Heard::Open;
        assert!(self.world.run_until(until, ended), "nothing is in the way");
        op
    }

    fn entered(&mut self, client: ClientId, key: &KeyId) -> Option<SectionIx> {
        let op = self.done(client, enter(key.clone()));
        self.world.history.ops[op.0].section
    }

    /// The next operation of a loop.
    fn begin(&mut self, at: usize) {
        let value = self.value();
        let Loop {
            client,
            key,
            section,
            kind,
            ..
        } = &self.loops[at];
        let (client, key) = (*client, key.clone());
        let name = section.and_then(|s| self.world.clients[client.0 as usize].name_of(s));
        let call = match (OPERATIONS[*kind], name) {
            ("put", Some(section)) => Call::CriticalPut {
                section,
                key,
                value,
            },
            ("get", Some(section)) => Call::CriticalGet { section, key },
            ("leave", Some(section)) => Call::Leave {
                section,
                wait: true,
            },
            ("enter", _) => enter(key),
            ("section" | "write", _) => Call::Write { key, value },
            ("read", _) => Call::Read { key },
            ("eventual put", _) => Call::Put { key, value },
            _ => Call::Get { key },
        };
        self.loops[at].op = self.world.call(client, call);
    }

    /// An operation of a loop has ended: which one is next.
    fn turn(&mut self, at: usize) {
        let Loop { kind, op, .. } = self.loops[at];
        match OPERATIONS[kind] {
            "enter" => {
                self.loops[at].section = self.world.history.ops[op.0].section;
                self.loops[at].kind = kind + 1;
            }
            "leave" => self.loops[at].kind = kind - 1,
            _ => {}
        }
    }

    /// All go on until then: the longest of each kind, microseconds, and how many did not succeed.
    fn go_on(&mut self, until: u64) -> Vec<(u64, usize)> {
        let mut longest = vec![(0, 0); OPERATIONS.len()];
        while self.world.now < until {
            for client in &mut self.world.clients {
                client.ended.clear();
            }
            for at in 0..self.loops.len() {
                let Loop { kind, op, .. } = self.loops[at];
                let op = &self.world.history.ops[op.0];
                if let Some(returned) = op.returned {
                    let (most, failed) = &mut longest[kind];
                    *most = (returned - op.invoked).max(*most);
                    *failed += usize::from(!op.succeeded());
                    self.turn(at);
                    self.begin(at);
                }
            }
            let ended = |w: &World| w.clients.iter().any(|c| !c.ended.is_empty());
            self.world.run_until(until, ended);
        }
        longest
    }

    fn run(mut self, profile: &'static Profile, change: &Change, moment: u64) -> Vec<Row> {
        for at in 0..self.loops.len() {
            self.begin(at);
        }
        let trip = rtt(profile);
        let steady = STEADY_MIN.max(STEADY * trip);
        let before = self.go_on(self.world.now + steady + moment * trip / IN_A_TRIP);
        if !change.to.is_empty() {
            next(&mut self.world, change.to);
        }
        if let Some(name) = change.dies {
            let at = match change.to {
                [] => self.world.now,
                _ => self.world.now + moment % 4 * trip / IN_A_TRIP,
            };
            self.world.at(at, move |w| w.stop(NodeName(name), true));
        }
        let timing = &self.world.setup.timing;
        let death = match change.dies {
            Some(PRIMARY) => {
                let lease = profile.one_way(0, 1) + timing.lease_bound();
                lease + timing.election + timing.stagger + 2 * profile.rtt(1, 2)
            }
            _ => 0,
        };
        let across = ACROSS_MIN.max(ACROSS * trip) + 2 * death;
        let across = self.go_on(self.world.now + across);
        let after = self.go_on(self.world.now + steady);
        let ms = |us: u64| us as f64 / 1_000.0;
        let row = |(kind, operation): (usize, &&'static str)| Row {
            profile: profile.name,
            change: change.name,
            operation,
            steady: ms(before[kind].0.max(after[kind].0)),
            across: ms(across[kind].0),
            rtt: ms(trip),
            death: ms(death),
            failed: before[kind].1 + across[kind].1 + after[kind].1,
        };
        OPERATIONS.iter().enumerate().map(row).collect()
    }
}

fn enter(key: KeyId) -> Call {
    Call::Enter {
        keys: vec![key],
        mode: Mode::Exclusive,
        wait: READY,
        lease: None,
    }
}

/// The group's members shall be these.
fn next(world: &mut World, names: &[u32]) {
    let names: Vec<NodeName> = names.iter().map(|name| NodeName(*name)).collect();
    let session = world.now;
    nemesis::next_members(world, GroupId(1), session, &names);
}

/// A key of the segment that node 1 leads first.
fn key_of(keyspace: KeyspaceId, kind: usize) -> KeyId {
    let name = |i: u32| KeyId {
        keyspace,
        key: Bytes::from(format!("{kind}.{i}")),
    };
    let mut keys = (0..).map(name);
    let here = keys.find(|key| segment_of(key, 1) == SegmentId(0));
    here.expect("half of all keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round trip: the end of a log. What the next one takes to begin, and the first use of a
    /// key that has not moved, is what an operation takes anyway.
    #[test]
    fn no_operation_fails_and_none_takes_more_than_one_round_trip_longer() {
        let profile = Profile::named("lUs").expect("a profile of the table");
        for (change, trips) in [
            (&CHANGES[0], 0.0),
            (&CHANGES[1], 1.0),
            (&CHANGES[2], 1.0),
            (&CHANGES[3], 1.0),
            (&CHANGES[6], 1.0),
            (&CHANGES[7], 1.0),
        ] {
            for row in measure(profile, change, 2) {
                assert_eq!(row.failed, 0, "{row:?}");
                let most = row.steady + trips * row.rtt + 1.0;
                assert!(row.across <= most, "{row:?}");
            }
        }
    }
}
