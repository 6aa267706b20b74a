//! Everything that travels, and what may happen to it on the way.
//!
//! Between nodes anything may be lost, repeated, delayed and reordered. Between a client and a node
//! there is a connection: it keeps order, but it may break or fall silent at any time, and nobody
//! says what became of what was on it.
//!
//! Three mechanisms, asked in this order: **rules** (a scenario's hooks: hold or drop whatever
//! matches, until told otherwise), **fates** (the nemesis's macro-steps, see [`crate::nemesis`]),
//! and chance (loss, repetition, jitter, one-way cuts).

use crate::dice::Dice;
use crate::profile::Profile;
pub use fermata_check::sections::ClientId;
use fermata_protocol::base::{NodeId, NodeName};
use fermata_protocol::{Message, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

/// One thing that travels.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// Node to node.
    Peer {
        /// The sender, as a durable memory.
        from: NodeId,
        /// The receiver, as a role.
        to: NodeName,
        /// What it says.
        message: Message,
    },
    /// Client to node.
    Request {
        /// The client.
        client: ClientId,
        /// Its process: a restarted client is another one.
        life: u32,
        /// The client's name of the exchange.
        exchange: u64,
        /// The node asked.
        to: NodeName,
        /// What is asked.
        request: Request,
    },
    /// Client to node: nobody reads answers of this exchange any more.
    Cancel {
        /// The client.
        client: ClientId,
        /// Its process.
        life: u32,
        /// The exchange.
        exchange: u64,
        /// The node asked.
        to: NodeName,
    },
    /// Node to client.
    Reply {
        /// The node.
        from: NodeName,
        /// The client.
        client: ClientId,
        /// Its process.
        life: u32,
        /// The exchange.
        exchange: u64,
        /// The answer; none: the connection broke.
        reply: Option<Reply>,
    },
}

/// One end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A node.
    Node(NodeName),
    /// A client.
    Client(ClientId),
}

impl Parcel {
    /// Where it comes from and where it goes.
    pub fn ends(&self) -> (End, End) {
        match self {
            Parcel::Peer { from, to, .. } => (End::Node(from.name), End::Node(*to)),
            Parcel::Request { client, to, .. } | Parcel::Cancel { client, to, .. } => {
                (End::Client(*client), End::Node(*to))
            }
            Parcel::Reply { from, client, .. } => (End::Node(*from), End::Client(*client)),
        }
    }
}

/// A scenario's hook on the traffic.
pub type Filter = Box<dyn Fn(&Parcel) -> bool>;

/// The name of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

struct Rule {
    id: RuleId,
    filter: Filter,
    /// What was held; none: whatever matches is dropped.
    held: Option<Vec<Parcel>>,
    /// What matches goes on its way, too: copies are held.
    copies: bool,
}

/// What becomes of a parcel that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It arrives at this true time.
    At(u64),
    /// It arrives twice.
    Twice(u64, u64),
    /// It never arrives.
    Lost,
    /// A rule keeps it.
    Held,
}

/// How likely the misfortunes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Loss between nodes, per million messages.
    pub loss_ppm: u64,
    /// Repetition between nodes, per million messages.
    pub twice_ppm: u64,
    /// Late arrival, per million messages: up to `late_max` later.
    pub late_ppm: u64,
    /// Microseconds.
    pub late_max: u64,
    /// Every one-way trip takes up to this much longer, per cent.
    pub jitter_percent: u64,
}

/// The network of one world.
pub struct Network {
    profile: &'static Profile,
    sites: BTreeMap<End, u16>,
    /// How likely the misfortunes are now.
    pub weather: Weather,
    /// Slow-time mode: every way between two ends takes so many microseconds, wherever they are.
    pub pace: Option<u64>,
    cuts: BTreeSet<(End, End)>,
    rules: Vec<Rule>,
    next_rule: u64,
    /// When the last parcel of a connection arrives: connections keep order.
    order: BTreeMap<(End, End), u64>,
    dice: Dice,
}

impl Network {
    /// A network in calm weather.
    pub fn new(profile: &'static Profile, dice: Dice) -> Network {
        Network {
            profile,
            sites: BTreeMap::new(),
            weather: Weather::default(),
            pace: None,
            cuts: BTreeSet::new(),
            rules: Vec::new(),
            next_rule: 1,
            order: BTreeMap::new(),
            dice,
        }
    }

    /// Puts a node or a client at a site.
    pub fn place(&mut self, end: End, site: u16) {
        self.sites.insert(end, site);
    }

    /// Cuts one direction between two ends.
    pub fn cut(&mut self, from: End, to: End) {
        self.cuts.insert((from, to));
    }

    /// Whether a connection between two ends can be opened, which takes both directions.
    pub fn connects(&self, one: End, other: End) -> bool {
        !self.cuts.contains(&(one, other)) && !self.cuts.contains(&(other, one))
    }

    /// Mends one direction between two ends.
    pub fn mend(&mut self, from: End, to: End) {
        self.cuts.remove(&(from, to));
    }

    /// Mends everything that is cut.
    pub fn mend_all(&mut self) {
        self.cuts.clear();
    }

    /// From now on whatever matches is kept, until [`Network::release`].
    pub fn hold(&mut self, filter: impl Fn(&Parcel) -> bool + 'static) -> RuleId {
        self.add(Box::new(filter), Some(Vec::new()), false)
    }

    /// From now on a copy of whatever matches is kept, until [`Network::release`].
    pub fn copy(&mut self, filter: impl Fn(&Parcel) -> bool + 'static) -> RuleId {
        self.add(Box::new(filter), Some(Vec::new()), true)
    }

    /// From now on whatever matches is lost, until [`Network::release`].
    pub fn lose(&mut self, filter: impl Fn(&Parcel) -> bool + 'static) -> RuleId {
        self.add(Box::new(filter), None, false)
    }

    fn add(&mut self, filter: Filter, held: Option<Vec<Parcel>>, copies: bool) -> RuleId {
        let id = RuleId(self.next_rule);
        self.next_rule += 1;
        self.rules.push(Rule {
            id,
            filter,
            held,
            copies,
        });
        id
    }

    /// Ends a rule; what it held comes back, to be delivered or not.
    pub fn release(&mut self, id: RuleId) -> Vec<Parcel> {
        let Some(at) = self.rules.iter().position(|r| r.id == id) else {
            return Vec::new();
        };
        self.rules.remove(at).held.unwrap_or_default()
    }

    /// Ends all rules and forgets what they held.
    pub fn release_all(&mut self) -> Vec<Parcel> {
        let rules = std::mem::take(&mut self.rules);
        rules.into_iter().filter_map(|r| r.held).flatten().collect()
    }

    /// How many parcels a rule holds.
    pub fn held(&self, id: RuleId) -> usize {
        let rule = self.rules.iter().find(|r| r.id == id);
        rule.and_then(|r| r.held.as_ref()).map_or(0, Vec::len)
    }

    /// One way between two ends now, microseconds.
    pub fn trip(&mut self, from: End, to: End) -> u64 {
        if from == to {
            return 0;
        }
        let site = |end: &End| self.sites.get(end).copied().unwrap_or(0);
        let far = self.profile.one_way(site(&from), site(&to));
        let base = self.pace.unwrap_or(far);
        let jitter = base * self.weather.jitter_percent / 100;
        base + self.dice.below(jitter + 1)
    }

    /// Sends a parcel: what becomes of it.
    pub fn send(&mut self, now: u64, parcel: &Parcel) -> Way {
        let (from, to) = parcel.ends();
        if from == to {
            // What a node says to itself is memory, which nothing can hold or lose.
            return Way::At(now);
        }
        for rule in &mut self.rules {
            if (rule.filter)(parcel) {
                match &mut rule.held {
                    Some(held) => held.push(parcel.clone()),
                    None => return Way::Lost,
                }
                if !rule.copies {
                    return Way::Held;
                }
            }
        }
        if self.cuts.contains(&(from, to)) {
            return Way::Lost;
        }
        let at = now + self.trip(from, to);
        if !matches!(parcel, Parcel::Peer { .. }) {
            let last = self.order.entry((from, to)).or_insert(0);
            *last = at.max(*last);
            return Way::At(*last);
        }
        self.luck(at)
    }

    fn luck(&mut self, at: u64) -> Way {
        let weather = self.weather;
        if self.dice.rarely(weather.loss_ppm) {
            return Way::Lost;
        }
        let mut at = at;
        if self.dice.rarely(weather.late_ppm) {
            at += self.dice.below(weather.late_max + 1);
        }
        if self.dice.rarely(weather.twice_ppm) {
            return Way::Twice(at, at + self.dice.below(weather.late_max + 1));
        }
        Way::At(at)
    }
}
