//! The exact latency of every step, in virtual time: what a client waits for when nothing but
//! distance costs anything.
//!
//! The cluster of the paper's experiments (one node per site), real nodes and real clients, no
//! processing and no disk time, for every site of the client and of the primary. The trip between a
//! client and the node of its site is 0.2 ms there and back.
//!
//! A linearizable read and write are measured of a replicated and of a coded keyspace, of the
//! latter without and with an interval clock: a write takes two round trips or one, behind which
//! the wait until its tag has passed is hidden (F9) as long as it is shorter.

mod ledger;

use crate::clock::IntervalClock;
use crate::cluster;
use crate::history::{Heard, OpId, SectionIx};
use crate::nemesis;
use crate::network::ClientId;
use crate::profile::Profile;
use crate::world::{Setup, World};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, StoragePolicy, Terms, Timing};
use fermata_protocol::client::{Call, Options};
use fermata_protocol::command::GroupCommand;
use fermata_protocol::request::Mode;

/// One measured step.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The latency profile.
    pub profile: &'static str,
    /// The client's site.
    pub client: &'static str,
    /// The site of the segment's primary.
    pub primary: &'static str,
    /// `enter` (a key never written), `enter_value`, `get` (from a quorum, not from memory), `put`,
    /// `put_and_leave`, `leave` (not waited for), `section` (enter, `puts` pipelined puts, leave),
    /// `section_left` (the same, the last put with the leave, which is waited for),
    /// `handover` (from one client's leave to another's entry with the value), `read`, `write`; of
    /// a ledger `transact` (of one key), `snapshot` (the present), `recent` (a snapshot that
    /// may be 1 s old).
    pub step: &'static str,
    /// Puts in the section; 1 where the step is a single put, else 0.
    pub puts: u32,
    /// The keyspace's storage: `replicated`; `coded` (1 of 3 may fail); `coded+clock`, the same
    /// where every node has an interval clock of ±5 ms; `ledger`; `lead`, one that closes times
    /// ahead by 30 ms more than the longest round trip.
    pub storage: &'static str,
    /// Milliseconds.
    pub ms: f64,
}

/// Measures all steps for every site of the client and of the primary.
pub fn bench(profile: &'static Profile) -> Vec<Row> {
    let mut rows = Vec::new();
    for client in 0..3 {
        for primary in 0..3 {
            Bench::new(profile, client, primary).run(&mut rows);
            for clocked in [false, true] {
                Bench::new(profile, client, primary).run_coded(clocked, &mut rows);
            }
            for leads in [false, true] {
                Bench::new(profile, client, primary).run_ledger(leads, &mut rows);
            }
        }
    }
    rows
}

/// Longest virtual time that any step may take, microseconds.
const STEP_MAX: u64 = 30_000_000;

/// The bound of the interval clocks, microseconds: what NTP keeps over a wide area at its best.
const CLOCK_BOUND: u64 = 5_000;
/// The first keyspace that is created beside those that every cluster has.
const CODED: KeyspaceId = KeyspaceId(3);

struct Bench {
    profile: &'static Profile,
    world: World,
    me: ClientId,
    other: ClientId,
    row: Row,
    keys: u32,
}

impl Bench {
    /// The primary stays where it is said to be.
    fn new(profile: &'static Profile, client: u16, primary: u16) -> Bench {
        let timing = Timing {
            usage: 0,
            ..Timing::default()
        };
        Bench::with(profile, client, primary, timing)
    }

    fn with(profile: &'static Profile, client: u16, primary: u16, timing: Timing) -> Bench {
        let setup = Setup::measured(profile, cluster::paper_led_by(primary), timing);
        let mut world = World::new(setup);
        let options = Options {
            cached_gets: false,
            ..Options::default()
        };
        let me = world.add_client(client, options.clone());
        let other = world.add_client(client, options);
        // Every node has heard of every other, and the primary has its lease.
        world.run_for(5_000_000);
        let site = |i: u16| profile.sites[usize::from(i)];
        let row = Row {
            profile: profile.name,
            client: site(client),
            primary: site(primary),
            step: "",
            puts: 0,
            storage: "replicated",
            ms: 0.0,
        };
        Bench {
            profile,
            world,
            me,
            other,
            row,
            keys: 0,
        }
    }

    fn run(&mut self, rows: &mut Vec<Row>) {
        let key = self.fresh(Keyspace::SECTIONS);
        let (at, section) = self.enter(self.me, &key);
        self.push(rows, "enter", 0, at);
        let at = self.put(section, &key);
        self.push(rows, "put", 1, at);
        let call = Call::CriticalGet {
            section: self.name(section),
            key: key.clone(),
        };
        let at = self.time(self.me, call);
        self.push(rows, "get", 0, at);
        let call = Call::Leave {
            section: self.name(section),
            wait: false,
        };
        let at = self.time(self.me, call);
        self.push(rows, "leave", 0, at);
        self.settle();
        let (at, section) = self.enter(self.me, &key);
        self.push(rows, "enter_value", 0, at);
        let (section, value) = (self.name(section), self.value());
        let at = self.time(
            self.me,
            Call::PutAndLeave {
                section,
                key: key.clone(),
                value,
            },
        );
        self.push(rows, "put_and_leave", 1, at);
        self.settle();
        for puts in [1, 10, 100] {
            let at = self.section(&key, puts);
            self.push(rows, "section", puts, at);
            self.settle();
            let at = self.section_left(&key, puts);
            self.push(rows, "section_left", puts, at);
            self.settle();
        }
        let at = self.handover(&key);
        self.push(rows, "handover", 0, at);
        self.settle();
        self.register(Keyspace::REGISTERS, rows);
    }

    /// A register of a coded keyspace.
    fn run_coded(&mut self, clocked: bool, rows: &mut Vec<Row>) {
        self.row.storage = if clocked { "coded+clock" } else { "coded" };
        for machine in self.world.machines.values_mut().filter(|_| clocked) {
            machine.clock.interval = Some(IntervalClock {
                width: CLOCK_BOUND,
                error: 0,
            });
        }
        let keyspace = Keyspace {
            name: "coded".into(),
            storage: StoragePolicy::Coded(Terms::new(1)),
            ..Keyspace::built_in()[1].clone()
        };
        let command = GroupCommand::CreateKeyspace(keyspace);
        nemesis::propose(&mut self.world, 1, command);
        self.settle();
        self.register(CODED, rows);
    }

    fn register(&mut self, keyspace: KeyspaceId, rows: &mut Vec<Row>) {
        let register = self.fresh(keyspace);
        let value = self.value();
        let at = self.time(
            self.me,
            Call::Write {
                key: register.clone(),
                value,
            },
        );
        self.push(rows, "write", 0, at);
        self.settle();
        let at = self.time(self.me, Call::Read { key: register });
        self.push(rows, "read", 0, at);
    }

    fn push(&self, rows: &mut Vec<Row>, step: &'static str, puts: u32, micros: u64) {
        let ms = micros as f64 / 1_000.0;
        rows.push(Row {
            step,
            puts,
            ms,
            ..self.row.clone()
        });
    }

    fn fresh(&mut self, keyspace: KeyspaceId) -> KeyId {
        self.keys += 1;
        KeyId {
            keyspace,
            key: Bytes::from(format!("key{}", self.keys)),
        }
    }

    /// Ten bytes, as in the paper.
    fn value(&self) -> Option<Bytes> {
        Some(Bytes::from_static(b"0123456789"))
    }

    /// What goes on in the background comes to an end.
    fn settle(&mut self) {
        self.world.run_for(3_000_000);
    }

    fn name(&self, section: SectionIx) -> fermata_protocol::client::SectionId {
        let client = &self.world.clients[self.me.0 as usize];
        client
            .name_of(section)
            .expect("the section was entered by this client")
    }

    /// How long an operation takes, microseconds.
    fn time(&mut self, client: ClientId, call: Call) -> u64 {
        let op = self.world.call(client, call);
        self.wait(op)
    }

    fn wait(&mut self, op: OpId) -> u64 {
        let deadline = self.world.now + STEP_MAX;
        let ended = self
            .world
            .run_until(deadline, |w| *w.outcome(op) != Heard::Open);
        let done = &self.world.history.ops[op.0];
        assert!(
            ended && done.succeeded(),
            "a calm cluster answers: {done:?}"
        );
        done.end() - done.invoked
    }

    fn enter(&mut self, client: ClientId, key: &KeyId) -> (u64, SectionIx) {
        let op = self.world.call(client, enter(key));
        let took = self.wait(op);
        let section = self.world.history.ops[op.0].section;
        (
            took,
            section.expect("an enter that succeeded has its section"),
        )
    }

    fn put(&mut self, section: SectionIx, key: &KeyId) -> u64 {
        let (section, value) = (self.name(section), self.value());
        self.time(
            self.me,
            Call::CriticalPut {
                section,
                key: key.clone(),
                value,
            },
        )
    }

    fn section(&mut self, key: &KeyId, puts: u32) -> u64 {
        let begin = self.world.now;
        let (_, section) = self.enter(self.me, key);
        let section = self.name(section);
        let mut open = Vec::new();
        for _ in 0..puts {
            let value = self.value();
            let call = Call::CriticalPut {
                section,
                key: key.clone(),
                value,
            };
            open.push(self.world.call(self.me, call));
        }
        for op in open {
            if *self.world.outcome(op) == Heard::Open {
                self.wait(op);
            }
        }
        let leave = Call::Leave {
            section,
            wait: false,
        };
        self.world.call(self.me, leave);
        self.world.now - begin
    }

    /// A whole section: it has ended for its client, and with its primary, too.
    fn section_left(&mut self, key: &KeyId, puts: u32) -> u64 {
        let begin = self.world.now;
        let (_, section) = self.enter(self.me, key);
        let section = self.name(section);
        let mut open = Vec::new();
        for last in (0..puts).rev() {
            let (key, value) = (key.clone(), self.value());
            let call = match last {
                0 => Call::PutAndLeave {
                    section,
                    key,
                    value,
                },
                _ => Call::CriticalPut {
                    section,
                    key,
                    value,
                },
            };
            open.push(self.world.call(self.me, call));
        }
        for op in open {
            if *self.world.outcome(op) == Heard::Open {
                self.wait(op);
            }
        }
        self.world.now - begin
    }

    fn handover(&mut self, key: &KeyId) -> u64 {
        let (_, section) = self.enter(self.me, key);
        self.put(section, key);
        let next = self.world.call(self.other, enter(key));
        self.settle();
        let begin = self.world.now;
        let leave = Call::Leave {
            section: self.name(section),
            wait: false,
        };
        self.world.call(self.me, leave);
        self.wait(next);
        self.world.now - begin
    }
}

fn enter(key: &KeyId) -> Call {
    Call::Enter {
        keys: vec![key.clone()],
        mode: Mode::Exclusive,
        wait: STEP_MAX,
        lease: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lus() -> Vec<Row> {
        bench(Profile::named("lUs").unwrap())
    }

    #[test]
    fn a_section_with_one_put_from_ohio_is_two_round_trips() {
        let rows = lus();
        let here = |r: &&Row| (r.client, r.primary) == ("Ohio", "Ohio");
        let section = rows
            .iter()
            .filter(here)
            .find(|r| (r.step, r.puts) == ("section", 1));
        let ms = section.expect("every step is measured").ms;
        assert!(ms <= 110.0, "{ms} ms");
    }

    /// A client at `site`, far from its segment's primary, uses it: what a section with one put
    /// takes before the primary has come to that site, at most while it comes, and afterwards, in
    /// microseconds.
    fn followed(profile: &'static Profile, site: u16, home: u16) -> (u64, u64, u64) {
        let mut bench = Bench::with(profile, site, home, Timing::default());
        let key = bench.fresh(Keyspace::SECTIONS);
        bench.section(&key, 1);
        bench.settle();
        let before = bench.section(&key, 1);
        let beside = |bench: &Bench| {
            let mut led = bench.world.machines.values().filter_map(|m| {
                let led = m.node()?.here().led().count();
                (led > 0).then_some(m.site)
            });
            led.next() == Some(site)
        };
        let mut most = 0;
        for _ in 0..600 {
            if beside(&bench) {
                break;
            }
            most = most.max(bench.section(&key, 1));
            bench.world.run_for(10_000);
        }
        assert!(beside(&bench), "the primary follows");
        // The node still asks where the primary was, and is told.
        most = most.max(bench.section(&key, 1));
        bench.settle();
        (before, most, bench.section(&key, 1))
    }

    #[test]
    fn where_the_primary_has_come_to_a_client_a_section_is_two_round_trips() {
        for profile in [
            Profile::named("lUs").unwrap(),
            Profile::named("lUsEu").unwrap(),
        ] {
            for (site, home) in [(2, 0), (0, 2), (1, 2)] {
                let (before, most, after) = followed(profile, site, home);
                let mut there = Bench::new(profile, site, site);
                let key = there.fresh(Keyspace::SECTIONS);
                there.section(&key, 1);
                there.settle();
                assert_eq!(after, there.section(&key, 1), "{} {site}", profile.name);
                println!(
                    "{} {home} to {site}: {before}, {most}, {after}",
                    profile.name
                );
                let nearest = (0..3).filter(|s| *s != site).map(|s| profile.rtt(site, s));
                let two = 2 * nearest.min().unwrap();
                assert!((two..two + 2_000).contains(&after), "{after}, not {two}");
                assert!(before > after, "{before} and {after}");
            }
        }
    }

    /// At every site beside its primary: with one put and with ten, and also when the next section
    /// begins in the moment in which the last one has ended.
    #[test]
    fn a_whole_section_with_its_leave_is_two_round_trips() {
        for name in ["lUs", "lUsEu"] {
            let profile = Profile::named(name).unwrap();
            for site in 0..3 {
                let nearest = (0..3).filter(|s| *s != site).map(|s| profile.rtt(site, s));
                let two = 2 * nearest.min().unwrap();
                let mut bench = Bench::new(profile, site, site);
                let key = bench.fresh(Keyspace::SECTIONS);
                for puts in [1, 1, 10, 10, 1] {
                    let took = bench.section_left(&key, puts);
                    println!("{name} {site}, {puts} puts: {took} of {two}");
                    assert!(took <= two + 1_000, "{name} {site}, {puts} puts: {took}");
                }
                bench.settle();
                let took = bench.section_left(&key, 1);
                assert!(took <= two + 1_000, "{name} {site}, later: {took}");
            }
        }
    }

    #[test]
    fn an_interval_clock_saves_a_coded_write_one_of_its_two_round_trips() {
        let rows = lus();
        let of = |storage, step| {
            let mut found = rows
                .iter()
                .filter(|r| (r.client, r.primary, r.storage) == ("Ohio", "Ohio", storage));
            found.find(|r| r.step == step).expect("measured").ms
        };
        assert_eq!(of("coded", "write"), of("replicated", "write"));
        // The client's own trip, 0.2 ms, is in both.
        let trip = |ms: f64| ms - 0.2;
        let (two, one) = (trip(of("coded", "write")), trip(of("coded+clock", "write")));
        assert!((two - 2.0 * one).abs() < 0.01, "{two} and {one}");
        assert_eq!(of("coded", "read"), of("coded+clock", "read"));
    }

    #[test]
    fn pipelined_puts_cost_no_more_round_trips() {
        let rows = lus();
        let of = |puts| {
            let mut found = rows
                .iter()
                .filter(|r| (r.client, r.primary) == ("Ohio", "Ohio"));
            found
                .find(|r| (r.step, r.puts) == ("section", puts))
                .expect("measured")
                .ms
        };
        assert!(of(100) - of(1) < 1.0, "{} and {}", of(1), of(100));
    }
}
