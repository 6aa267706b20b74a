//! The world below the engines: three sites with a replica and an engine node each, messages
//! between them, and everything that can go wrong on the way.
//!
//! Time is tokio's paused clock, chance is one seeded generator, and there is one thread: a seed
//! replays exactly. A schedule is made of *rules*: each matches messages, or the beginnings and
//! ends of store calls, and holds them, loses them, or decides their fate. What no rule names is
//! subject to the faults that the seed draws.

use bytes::Bytes;
use fermata_protocol::base::{KeyId, Rng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Replicas, sites and engine nodes.
pub(crate) const SITES: usize = 3;
/// How long a store call waits for its quorum.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_millis(2_000);
/// One way between two sites, milliseconds: MUSIC's lUs, rounded.
const ONE_WAY: [[u64; SITES]; SITES] = [[1, 27, 35], [27, 1, 12], [35, 12, 1]];
/// Microseconds since 1970 when the world begins.
const GENESIS: u64 = 1_790_000_000_000_000;

/// What a message, or a call, is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// Lock row, near.
    Peek,
    /// Lock row, deciding: the round that settles.
    Read,
    /// Compare-and-set: the first round.
    Swap,
    /// Its second round.
    Propose,
    /// A chosen state on its way to a replica.
    Commit,
    /// Wait for a change of the lock row.
    Changed,
    /// Data, quorum.
    DataRead,
    /// Data, near.
    DataNear,
    /// Critical write.
    Write,
    /// What a quorum read writes back.
    Repair,
    /// Eventual write.
    Offer,
    /// Listing.
    Keys,
    /// The paper's plain update of a start time.
    Start,
    /// The paper's synch flag, written.
    Flag,
    /// A client's request to a node, and its answers.
    Request,
}

/// Where a message, or a call, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The engine makes the call.
    Begin,
    /// The call is about to return to the engine.
    End,
    /// From the engine to a replica (a request: from the client to a node).
    To,
    /// Back.
    From,
}

/// One step of one message or call.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    pub(crate) call: Call,
    pub(crate) step: Step,
    /// The engine node.
    pub(crate) node: usize,
    /// The replica; for a request, the client.
    pub(crate) peer: usize,
    pub(crate) key: Option<KeyId>,
}

/// Which legs a rule is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    calls: Vec<Call>,
    step: Option<Step>,
    node: Option<usize>,
    peers: Vec<usize>,
    key: Option<KeyId>,
    times: Option<usize>,
}

/// Legs of these calls.
pub(crate) fn on(calls: &[Call]) -> Filter {
    Filter {
        calls: calls.to_vec(),
        ..Filter::default()
    }
}

impl Filter {
    pub(crate) fn step(mut self, step: Step) -> Filter {
        self.step = Some(step);
        self
    }

    pub(crate) fn node(mut self, node: usize) -> Filter {
        self.node = Some(node);
        self
    }

    pub(crate) fn peers(mut self, peers: &[usize]) -> Filter {
        self.peers = peers.to_vec();
        self
    }

    pub(crate) fn key(mut self, key: &KeyId) -> Filter {
        self.key = Some(key.clone());
        self
    }

    /// Only the first so many.
    pub(crate) fn times(mut self, times: usize) -> Filter {
        self.times = Some(times);
        self
    }

    fn matches(&self, leg: &Leg) -> bool {
        (self.calls.is_empty() || self.calls.contains(&leg.call))
            && self.step.is_none_or(|s| s == leg.step)
            && self.node.is_none_or(|n| n == leg.node)
            && (self.peers.is_empty() || self.peers.contains(&leg.peer))
            && (self.key.is_none() || self.key == leg.key)
    }
}

/// What becomes of a compare-and-set that is not simply applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Chosen, but nobody is told.
    Applied,
    /// Reached nobody.
    Never,
    /// Reached one: chosen later, or buried, by whoever decides next on the key.
    Pending,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Hold,
    Lose,
    Fate(Fate),
    Count,
}

/// Names a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleId(usize);

struct Rule {
    filter: Filter,
    act: Act,
    caught: usize,
    over: bool,
}

/// How often things go wrong by themselves, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A message is lost.
    pub(crate) lost: u64,
    /// A message is late, by up to four store timeouts.
    pub(crate) late: u64,
    /// A compare-and-set has an unknown outcome.
    pub(crate) unknown: u64,
    /// A commit never reaches a replica.
    pub(crate) uncommitted: u64,
    /// Jitter, percent of the way.
    pub(crate) jitter: u64,
}

/// A column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// Our lock row: version and state.
    Lock,
    /// Our critical cell.
    Critical,
    /// Our eventual cell.
    Eventual,
    /// The paper's guard.
    Guard,
    /// The paper's row of a lock ref.
    Entry(u64),
    /// The paper's start time of a lock ref.
    Start(u64),
    /// The paper's synch flag, in the data row.
    Flag,
    /// The paper's value columns.
    Value(u8),
}

/// A cell: its time, and its bytes; none: a tombstone.
pub(crate) type Cell = (i64, Option<Bytes>);
/// Cells of one key.
pub(crate) type Row = BTreeMap<Column, Cell>;
/// Cells to write.
pub(crate) type Changes = Vec<(Column, Cell)>;

/// Cassandra's order: the higher time; at equal times a tombstone, then the larger bytes.
pub(crate) fn merge(row: &mut Row, column: Column, cell: &Cell) {
    let rank = |c: &Cell| (c.0, c.1.is_none(), c.1.clone());
    match row.get(&column) {
        Some(old) if rank(old) >= rank(cell) => {}
        _ => {
            row.insert(column, cell.clone());
        }
    }
}

/// The replica of one site.
#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) rows: BTreeMap<KeyId, Row>,
    down: bool,
    stalled: bool,
}

/// The one true history of a key's conditional updates.
#[derive(Default)]
struct Truth {
    chosen: u64,
    row: Row,
    pending: Vec<(u64, Changes)>,
}

#[derive(Default)]
struct Node {
    incarnation: u64,
    stalled: bool,
    skew: i64,
}

struct Inner {
    rng: Rng,
    faults: Faults,
    replicas: [Replica; SITES],
    truths: BTreeMap<KeyId, Truth>,
    nodes: [Node; SITES],
    cut: [[bool; SITES]; SITES],
    rules: Vec<Rule>,
    /// Whether the next who decides finishes what is pending; none: chance.
    finish: Option<bool>,
    trace: Vec<String>,
}

/// See the module.
pub(crate) struct World {
    inner: Mutex<Inner>,
    start: Instant,
    moved: Notify,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Arc<World> {
        Arc::new(World {
            inner: Mutex::new(Inner {
                rng: Rng::new(seed),
                faults,
                replicas: Default::default(),
                truths: BTreeMap::new(),
                nodes: Default::default(),
                cut: Default::default(),
                rules: Vec::new(),
                finish: None,
                trace: Vec::new(),
            }),
            start: Instant::now(),
            moved: Notify::new(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// One line of the trace.
    pub(crate) fn say(&self, line: impl Into<String>) {
        let at = self.start.elapsed().as_millis();
        self.inner().trace.push(format!("{at:>7} {}", line.into()));
    }

    /// All lines so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.inner().trace.clone()
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.inner().rng.below(bound)
    }

    /// The wall clock of a node's machine.
    pub(crate) fn wall(&self, node: usize) -> Duration {
        let skew = self.inner().nodes[node].skew;
        let micros = GENESIS + self.start.elapsed().as_micros() as u64;
        Duration::from_micros(micros.saturating_add_signed(skew))
    }

    // ---- schedules ------------------------------------------------------------------------------

    fn rule(&self, filter: Filter, act: Act) -> RuleId {
        let mut inner = self.inner();
        inner.rules.push(Rule {
            filter,
            act,
            caught: 0,
            over: false,
        });
        RuleId(inner.rules.len() - 1)
    }

    /// Holds what matches until [`World::end`].
    pub(crate) fn hold(&self, filter: Filter) -> RuleId {
        self.rule(filter, Act::Hold)
    }

    /// Loses what matches until [`World::end`].
    pub(crate) fn lose(&self, filter: Filter) -> RuleId {
        self.rule(filter, Act::Lose)
    }

    /// Compare-and-sets that match have this fate.
    pub(crate) fn fate(&self, filter: Filter, fate: Fate) -> RuleId {
        self.rule(filter, Act::Fate(fate))
    }

    /// Counts what matches.
    pub(crate) fn count(&self, filter: Filter) -> RuleId {
        self.rule(filter, Act::Count)
    }

    /// How many the rule has caught so far.
    pub(crate) fn counted(&self, rule: RuleId) -> usize {
        self.inner().rules[rule.0].caught
    }

    /// Ends a rule: what it held goes on.
    pub(crate) fn end(&self, rule: RuleId) {
        self.inner().rules[rule.0].over = true;
        self.moved.notify_waiters();
    }

    /// Waits until the rule has caught so many, at most ten seconds; whether it has.
    pub(crate) async fn caught(&self, rule: RuleId, count: usize) -> bool {
        let wait = async {
            loop {
                let moved = self.moved.notified();
                if self.inner().rules[rule.0].caught >= count {
                    return;
                }
                moved.await;
            }
        };
        let caught = tokio::time::timeout(Duration::from_secs(10), wait).await;
        caught.is_ok()
    }

    /// Whoever decides next on a key finishes, or buries, what is pending there.
    pub(crate) fn settle_by(&self, finish: Option<bool>) {
        self.inner().finish = finish;
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    pub(crate) fn skew(&self, node: usize, micros: i64) {
        self.inner().nodes[node].skew = micros;
    }

    pub(crate) fn cut(&self, a: usize, b: usize, cut: bool) {
        let mut inner = self.inner();
        inner.cut[a][b] = cut;
        inner.cut[b][a] = cut;
        drop(inner);
        self.moved.notify_waiters();
    }

    pub(crate) fn stall_replica(&self, replica: usize, stalled: bool) {
        self.inner().replicas[replica].stalled = stalled;
        self.moved.notify_waiters();
    }

    pub(crate) fn down_replica(&self, replica: usize, down: bool) {
        self.inner().replicas[replica].down = down;
        self.moved.notify_waiters();
    }

    pub(crate) fn stall_node(&self, node: usize, stalled: bool) {
        self.inner().nodes[node].stalled = stalled;
        self.moved.notify_waiters();
    }

    /// The node's process dies: nothing that its present incarnation does has any effect from here
    /// on. The next incarnation's number.
    pub(crate) fn kill_node(&self, node: usize) -> u64 {
        let mut inner = self.inner();
        inner.nodes[node].incarnation += 1;
        inner.nodes[node].stalled = false;
        inner.nodes[node].incarnation
    }

    pub(crate) fn incarnation(&self, node: usize) -> u64 {
        self.inner().nodes[node].incarnation
    }

    /// Everything works again, and every rule is over.
    pub(crate) fn heal(&self) {
        let mut inner = self.inner();
        inner.cut = Default::default();
        inner.faults = Faults::default();
        for site in 0..SITES {
            inner.replicas[site].down = false;
            inner.replicas[site].stalled = false;
            inner.nodes[site].stalled = false;
        }
        for rule in &mut inner.rules {
            rule.over = true;
        }
        drop(inner);
        self.moved.notify_waiters();
    }

    /// Replicas tell each other everything (an operator's full repair).
    pub(crate) fn repair_all(&self) {
        let mut inner = self.inner();
        let mut all: BTreeMap<KeyId, Row> = BTreeMap::new();
        for replica in &inner.replicas {
            for (key, row) in &replica.rows {
                let whole = all.entry(key.clone()).or_default();
                row.iter()
                    .for_each(|(column, cell)| merge(whole, *column, cell));
            }
        }
        for (key, truth) in &inner.truths {
            let whole = all.entry(key.clone()).or_default();
            truth
                .row
                .iter()
                .for_each(|(column, cell)| merge(whole, *column, cell));
        }
        inner.replicas.iter_mut().for_each(|r| r.rows = all.clone());
        drop(inner);
        self.moved.notify_waiters();
    }

    // ---- messages -------------------------------------------------------------------------------

    /// Waits while a rule holds the leg; false: it is lost.
    async fn judged(&self, leg: &Leg) -> bool {
        let (mut held_by, mut noted): (Option<usize>, bool) = (None, false);
        loop {
            let moved = self.moved.notified();
            {
                let mut inner = self.inner();
                if !std::mem::replace(&mut noted, true) {
                    for rule in &mut inner.rules {
                        let counts = rule.act == Act::Count && !rule.over;
                        rule.caught += usize::from(counts && rule.filter.matches(leg));
                    }
                }
                if let Some(rule) = held_by {
                    if inner.rules[rule].over {
                        held_by = None;
                    }
                } else {
                    let hit = inner.rules.iter_mut().position(|rule| {
                        !rule.over
                            && matches!(rule.act, Act::Hold | Act::Lose)
                            && rule.filter.matches(leg)
                            && rule.filter.times.is_none_or(|most| rule.caught < most)
                    });
                    let Some(hit) = hit else { return true };
                    inner.rules[hit].caught += 1;
                    let act = inner.rules[hit].act;
                    let at = self.start.elapsed().as_millis();
                    inner.trace.push(format!("{at:>7}   {act:?} {leg:?}"));
                    drop(inner);
                    self.moved.notify_waiters();
                    if act == Act::Lose {
                        return false;
                    }
                    held_by = Some(hit);
                    continue;
                }
            }
            if held_by.is_some() {
                moved.await;
            } else {
                return true;
            }
        }
    }

    /// Waits until `free` says so.
    async fn until(&self, free: impl Fn(&Inner) -> bool) {
        loop {
            let moved = self.moved.notified();
            if free(&self.inner()) {
                return;
            }
            moved.await;
        }
    }

    /// The node makes a call, or gets its answer. A node that was killed stays here for ever.
    pub(crate) async fn turn(&self, incarnation: u64, leg: Leg) {
        let passes = self.judged(&leg).await;
        let node = leg.node;
        self.until(|inner| !inner.nodes[node].stalled).await;
        if !passes || self.incarnation(node) != incarnation {
            std::future::pending::<()>().await;
        }
    }

    /// A message between a node (or a client beside it) and a replica, either way. False: lost.
    pub(crate) async fn travel(&self, leg: Leg, from: usize, to: usize) -> bool {
        if !self.judged(&leg).await {
            return false;
        }
        let (lost, wait) = {
            let mut inner = self.inner();
            let faults = inner.faults;
            let way = ONE_WAY[from][to];
            let mut wait = way + inner.rng.below(way * faults.jitter / 100 + 1);
            let commit = leg.call == Call::Commit;
            let lost = inner.rng.below(1_000) < faults.lost
                || (commit && inner.rng.below(1_000) < faults.uncommitted);
            if inner.rng.below(1_000) < faults.late {
                wait += inner.rng.below(4 * STORE_TIMEOUT.as_millis() as u64);
            }
            (lost || inner.cut[from][to], wait)
        };
        if lost {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if leg.step == Step::To && leg.call != Call::Request {
            let peer = leg.peer;
            if self.inner().replicas[peer].down {
                return false;
            }
            self.until(|inner| !inner.replicas[peer].stalled).await;
        }
        !self.inner().cut[from][to]
    }

    /// Asks all replicas; their answers in the order in which they come.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<World>,
        call: Call,
        node: usize,
        key: &KeyId,
        serve: impl Fn(&mut Replica) -> T + Send + Sync + 'static,
    ) -> mpsc::UnboundedReceiver<(usize, T)> {
        self.ask_some(call, node, key, &[0, 1, 2], serve)
    }

    /// Asks some replicas.
    pub(crate) fn ask_some<T: Send + 'static>(
        self: &Arc<World>,
        call: Call,
        node: usize,
        key: &KeyId,
        replicas: &[usize],
        serve: impl Fn(&mut Replica) -> T + Send + Sync + 'static,
    ) -> mpsc::UnboundedReceiver<(usize, T)> {
        let (answers, receiver) = mpsc::unbounded_channel();
        let serve = Arc::new(serve);
        for &peer in replicas {
            let (world, serve, answers) = (Arc::clone(self), Arc::clone(&serve), answers.clone());
            let leg = move |step, key: &KeyId| Leg {
                call,
                step,
                node,
                peer,
                key: Some(key.clone()),
            };
            let key = key.clone();
            tokio::spawn(async move {
                if !world.travel(leg(Step::To, &key), node, peer).await {
                    return;
                }
                let answer = serve(&mut world.inner().replicas[peer]);
                world.moved.notify_waiters();
                if world.travel(leg(Step::From, &key), peer, node).await {
                    // Nobody may be waiting any more.
                    let _ = answers.send((peer, answer));
                }
            });
        }
        receiver
    }

    /// The first `count` answers, or none in time.
    pub(crate) async fn gather<T>(
        mut answers: mpsc::UnboundedReceiver<(usize, T)>,
        count: usize,
    ) -> Option<Vec<(usize, T)>> {
        let mut got = Vec::new();
        let wait = async {
            while got.len() < count {
                match answers.recv().await {
                    Some(answer) => got.push(answer),
                    // All that could answer have; the others are lost: wait for the timeout.
                    None => std::future::pending().await,
                }
            }
        };
        let in_time = tokio::time::timeout(STORE_TIMEOUT, wait).await.is_ok();
        in_time.then_some(got)
    }

    /// Waits until the row of `key` at `replica` may be another than what `same` recognises.
    pub(crate) async fn row_changes(
        &self,
        replica: usize,
        key: &KeyId,
        same: impl Fn(Option<&Row>) -> bool,
    ) {
        self.until(|inner| !same(inner.replicas[replica].rows.get(key)))
            .await;
    }

    // ---- conditional updates --------------------------------------------------------------------

    /// Finishes or buries all pending writes of the key.
    fn settle(self: &Arc<World>, inner: &mut Inner, node: usize, key: &KeyId) {
        let truth = inner.truths.entry(key.clone()).or_default();
        for (base, changes) in std::mem::take(&mut truth.pending) {
            let finish = match inner.finish {
                Some(finish) => finish,
                None => inner.rng.below(2) == 0,
            };
            let truth = inner.truths.entry(key.clone()).or_default();
            if finish && truth.chosen == base {
                self.choose(inner, node, key, changes);
            }
        }
    }

    /// Chosen: part of the truth now, and on its way to the replicas.
    fn choose(self: &Arc<World>, inner: &mut Inner, node: usize, key: &KeyId, changes: Changes) {
        let truth = inner.truths.entry(key.clone()).or_default();
        truth.chosen += 1;
        for (column, cell) in &changes {
            merge(&mut truth.row, *column, cell);
        }
        let world = Arc::clone(self);
        let key = key.clone();
        tokio::spawn(async move {
            let at = key.clone();
            drop(world.ask(Call::Commit, node, &key, move |replica| {
                let row = replica.rows.entry(at.clone()).or_default();
                for (column, cell) in &changes {
                    merge(row, *column, cell);
                }
            }));
        });
    }

    /// One deciding operation on a key: it sees the truth and may change it, at one moment. None:
    /// the outcome is unknown.
    pub(crate) async fn decide<T>(
        self: &Arc<World>,
        call: Call,
        node: usize,
        key: &KeyId,
        decide: impl FnOnce(&Row, i64) -> (T, Changes),
    ) -> Option<T> {
        World::gather(self.ask(call, node, key, |_| ()), 2).await?;
        let (fate, answer) = {
            let mut inner = self.inner();
            self.settle(&mut inner, node, key);
            let mut view = inner.truths.entry(key.clone()).or_default().row.clone();
            // Plain updates of the same table are seen too: only the paper makes any.
            for replica in &inner.replicas {
                let Some(row) = replica.rows.get(key) else {
                    continue;
                };
                row.iter()
                    .for_each(|(column, cell)| merge(&mut view, *column, cell));
            }
            // Ballots are times, and grow.
            let micros = (GENESIS + self.start.elapsed().as_micros() as u64) as i64;
            let ballot = micros + inner.truths[key].chosen as i64;
            let (answer, changes) = decide(&view, ballot);
            if changes.is_empty() {
                return Some(answer);
            }
            let fate = fate_of(&mut inner, call, node, key);
            match fate {
                None | Some(Fate::Applied) => self.choose(&mut inner, node, key, changes),
                Some(Fate::Never) => {}
                Some(Fate::Pending) => {
                    let truth = inner.truths.entry(key.clone()).or_default();
                    truth.pending.push((truth.chosen, changes));
                    self.finish_later(&mut inner, node, key);
                }
            }
            (fate, answer)
        };
        self.moved.notify_waiters();
        if fate.is_some() {
            tokio::time::sleep(STORE_TIMEOUT).await;
            return None;
        }
        World::gather(self.ask(Call::Propose, node, key, |_| ()), 2).await?;
        Some(answer)
    }

    /// A proposal on its way may be chosen by itself, unless somebody buries it before.
    fn finish_later(self: &Arc<World>, inner: &mut Inner, node: usize, key: &KeyId) {
        if inner.finish.is_some() {
            return;
        }
        let wait = inner.rng.below(3 * STORE_TIMEOUT.as_millis() as u64);
        let (world, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            world.settle(&mut world.inner(), node, &key);
            world.moved.notify_waiters();
        });
    }
}

fn fate_of(inner: &mut Inner, call: Call, node: usize, key: &KeyId) -> Option<Fate> {
    let leg = Leg {
        call,
        step: Step::To,
        node,
        peer: node,
        key: Some(key.clone()),
    };
    for rule in &mut inner.rules {
        let Act::Fate(fate) = rule.act else { continue };
        let open = rule.filter.times.is_none_or(|most| rule.caught < most);
        if !rule.over && open && rule.filter.matches(&leg) {
            rule.caught += 1;
            return Some(fate);
        }
    }
    if inner.rng.below(1_000) >= inner.faults.unknown {
        return None;
    }
    let fates = [Fate::Applied, Fate::Never, Fate::Pending];
    Some(fates[inner.rng.below(3) as usize])
}
