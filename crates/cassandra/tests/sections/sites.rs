//! Three engines, one per site, and the clients' way to them.

use crate::barriers::{Barred, Barriers};
use crate::servers::Stores;
use fermata_engine::check::clients::{Client, Network, SITES, Terms, key, value};
use fermata_engine::check::history::{History, Notes};
use fermata_engine::check::{Promise, Violation};
use fermata_engine::settings::Settings;
use fermata_engine::{DataStore, Engine, LockStore, Service};
use fermata_protocol::base::{KeyId, NodeName, Rng, SiteId};
use fermata_protocol::request::Mode;
use fermata_protocol::{Reply, Request};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The lease of most sections.
pub(crate) const LEASE: Duration = Duration::from_millis(2_000);
/// How long clients wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the locks are. The data is always in Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    Cassandra,
    Zookeeper,
}

/// What differs from test to test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) locks: Locks,
    pub(crate) verify: bool,
    /// How long engines repeat what a store does not confirm.
    pub(crate) patience: Duration,
    /// How far the clock of site 0 is ahead.
    pub(crate) ahead: Duration,
}

impl Options {
    pub(crate) fn new(locks: Locks) -> Options {
        Options {
            locks,
            verify: true,
            patience: Duration::from_secs(10),
            ahead: Duration::ZERO,
        }
    }
}

/// What was done, and in which order.
struct Journal {
    start: Instant,
    lines: Mutex<Vec<String>>,
}

impl Notes for Journal {
    fn say(&self, line: String) {
        let at = self.start.elapsed().as_millis();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(format!("{at:>7} {line}"));
    }
}

/// Three engines with a history of their own.
pub(crate) struct Sites {
    /// The test's name, part of its keys.
    name: String,
    services: [Arc<dyn Service>; SITES],
    pub(crate) barriers: [Arc<Barriers>; SITES],
    pub(crate) history: Arc<History>,
    journal: Arc<Journal>,
    dice: Mutex<Rng>,
}

fn engine<L: LockStore, D: DataStore>(
    site: usize,
    options: Options,
    locks: &Arc<L>,
    data: &Arc<D>,
    barriers: &Arc<Barriers>,
) -> Arc<dyn Service> {
    let name = NodeName(site as u32 + 1);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = since.expect("after 1970").as_nanos() * 4 + site as u128;
    let mut settings = Settings::new(name, format!("n{site}"), SiteId(site as u16), seed);
    settings.verify = options.verify;
    settings.timing.request = options.patience.as_micros() as u64;
    if site == 0 && !options.ahead.is_zero() {
        let (wall, ahead) = (settings.wall, options.ahead);
        settings.wall = Arc::new(move || wall() + ahead);
    }
    let locks = Arc::new(Barred {
        store: Arc::clone(locks),
        barriers: Arc::clone(barriers),
    });
    let data = Arc::new(Barred {
        store: Arc::clone(data),
        barriers: Arc::clone(barriers),
    });
    Engine::new(settings, locks, data)
}

impl Sites {
    pub(crate) fn new(name: &str, stores: &Stores, options: Options) -> Arc<Sites> {
        let barriers: [Arc<Barriers>; SITES] = Default::default();
        let services = [0, 1, 2].map(|site| {
            let (data, barriers) = (&stores.cassandra[site], &barriers[site]);
            match options.locks {
                Locks::Cassandra => engine(site, options, data, data, barriers),
                Locks::Zookeeper => engine(site, options, &stores.zookeeper[site], data, barriers),
            }
        });
        Sites::of(
            format!("{name}, locks in {:?}", options.locks),
            services,
            barriers,
        )
    }

    /// Three engines over one and the same store.
    pub(crate) fn of_one(name: &str, store: &Arc<fermata_cassandra::CassandraStore>) -> Arc<Sites> {
        let barriers: [Arc<Barriers>; SITES] = Default::default();
        let options = Options::new(Locks::Cassandra);
        let services = [0, 1, 2].map(|site| engine(site, options, store, store, &barriers[site]));
        Sites::of(name.to_owned(), services, barriers)
    }

    fn of(
        name: String,
        services: [Arc<dyn Service>; SITES],
        barriers: [Arc<Barriers>; SITES],
    ) -> Arc<Sites> {
        let journal = Arc::new(Journal {
            start: Instant::now(),
            lines: Mutex::default(),
        });
        let notes: Arc<dyn Notes> = Arc::clone(&journal) as _;
        let seed = std::process::id().into();
        Arc::new(Sites {
            name,
            services,
            barriers,
            history: Arc::new(History::new(notes)),
            journal,
            dice: Mutex::new(Rng::new(seed)),
        })
    }

    /// A key that no other test has.
    pub(crate) fn key(&self, name: &str) -> KeyId {
        key(&format!("{}/{name}", self.name))
    }

    /// A client at `site`.
    pub(crate) fn client(self: &Arc<Sites>, who: usize, site: usize) -> Client {
        self.client_with(who, site, LEASE)
    }

    /// A client whose sections have this lease.
    pub(crate) fn client_with(
        self: &Arc<Sites>,
        who: usize,
        site: usize,
        lease: Duration,
    ) -> Client {
        let terms = Terms {
            lease,
            patience: PATIENCE,
        };
        let network: Arc<dyn Network> = Arc::clone(self) as _;
        Client::new(network, Arc::clone(&self.history), terms, who, site)
    }

    /// Most schedules begin with a section that puts `text` and leaves.
    pub(crate) async fn base(self: &Arc<Sites>, key: &KeyId, text: &str) {
        let mut client = self.client_with(9, 1, 10 * LEASE);
        let entered = client.enter(key, Mode::Exclusive).await;
        let mut section = entered.expect("the key is free");
        assert!(client.put_at(1, &mut section, value(text)).await);
        assert!(client.leave_at(1, section).await);
    }

    /// A line in what happened.
    pub(crate) fn say(&self, line: impl Into<String>) {
        self.journal.say(line.into());
    }

    /// What is wrong with what the clients saw.
    pub(crate) fn wrong(&self) -> Vec<Violation> {
        self.history.wrong()
    }

    /// What was found, and what happened.
    pub(crate) fn report(&self, found: &[Violation]) -> String {
        let found = found
            .iter()
            .map(|v| format!("{:?}: {}", v.promise, v.sentence));
        let found: Vec<String> = found.collect();
        let lines = self.journal.lines.lock();
        let lines = lines.unwrap_or_else(PoisonError::into_inner).join("\n");
        format!("{}\n{}\n{lines}", self.name, found.join("\n"))
    }

    /// Nothing is wrong with what the clients saw.
    pub(crate) fn passes(&self) {
        let found = self.wrong();
        assert!(found.is_empty(), "{}", self.report(&found));
    }

    /// Something is.
    pub(crate) fn is_caught(&self, by: Promise) {
        let found = self.wrong();
        let caught = found.iter().any(|violation| violation.promise == by);
        assert!(caught, "{by:?} says nothing\n{}", self.report(&found));
    }
}

impl Network for Sites {
    fn transmit(
        self: Arc<Sites>,
        _who: usize,
        _site: usize,
        node: usize,
        request: Request,
    ) -> mpsc::UnboundedReceiver<Reply> {
        let (tell, told) = mpsc::unbounded_channel();
        let service = Arc::clone(&self.services[node]);
        tokio::spawn(async move {
            let hung_up = tell.clone();
            tokio::select! {
                () = hung_up.closed() => {}
                () = service.serve(request, tell) => {}
            }
        });
        told
    }

    fn below(&self, bound: u64) -> u64 {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        dice.below(bound)
    }
}
