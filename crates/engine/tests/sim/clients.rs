//! The engine nodes of a simulated world, and the way to them.

use crate::world::{Call, Leg, SITES, Step, World};
use fermata_engine::Service;
pub(crate) use fermata_engine::check::clients::{Client, Section, key, value};
use fermata_engine::check::clients::{Network, Terms};
use fermata_engine::check::history::{History, Notes};
use fermata_protocol::{Reply, Request};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// What a section's lease is, unless a schedule says otherwise.
pub(crate) const LEASE: Duration = Duration::from_millis(4_000);
/// How long a client waits for an answer before it asks elsewhere.
const PATIENCE: Duration = Duration::from_millis(6_000);

type Build = Box<dyn Fn(usize, u64) -> Arc<dyn Service> + Send + Sync>;

/// Three engine nodes in a world, and what their clients saw.
pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) history: Arc<History>,
    nodes: Mutex<[Arc<dyn Service>; SITES]>,
    build: Build,
}

impl Cluster {
    /// `build` makes the node of a site in an incarnation.
    pub(crate) fn new(world: Arc<World>, build: Build) -> Arc<Cluster> {
        let nodes = [build(0, 0), build(1, 0), build(2, 0)];
        let notes: Arc<dyn Notes> = Arc::clone(&world) as _;
        let history = Arc::new(History::new(notes));
        Arc::new(Cluster {
            world,
            history,
            nodes: Mutex::new(nodes),
            build,
        })
    }

    /// The node dies, and another process takes its place.
    pub(crate) fn restart(&self, node: usize) {
        let incarnation = self.world.kill_node(node);
        self.nodes.lock().expect("nobody panics with it")[node] = (self.build)(node, incarnation);
    }

    /// A client at `site`.
    pub(crate) fn client(self: &Arc<Cluster>, who: usize, site: usize) -> Client {
        let terms = Terms {
            lease: LEASE,
            patience: PATIENCE,
        };
        let network: Arc<dyn Network> = Arc::clone(self) as _;
        Client::new(network, Arc::clone(&self.history), terms, who, site)
    }
}

impl Network for Cluster {
    fn transmit(
        self: Arc<Cluster>,
        client: usize,
        site: usize,
        node: usize,
        request: Request,
    ) -> mpsc::UnboundedReceiver<Reply> {
        let (tell, told) = mpsc::unbounded_channel();
        let cluster = self;
        tokio::spawn(async move {
            let leg = |step| Leg {
                call: Call::Request,
                step,
                node,
                peer: client,
                key: None,
            };
            if !cluster.world.travel(leg(Step::To), site, node).await {
                // A connection that is cut says nothing.
                return tell.closed().await;
            }
            let incarnation = cluster.world.incarnation(node);
            let service = cluster.nodes.lock().expect("nobody panics with it")[node].clone();
            let (answers, mut answered) = mpsc::unbounded_channel();
            let serve = service.serve(request, answers);
            let relay = async {
                while let Some(reply) = answered.recv().await {
                    let gone = cluster.world.incarnation(node) != incarnation;
                    if gone || !cluster.world.travel(leg(Step::From), node, site).await {
                        return tell.closed().await;
                    }
                    // The client may have hung up.
                    let _ = tell.send(reply);
                }
            };
            tokio::select! {
                biased;
                () = tell.closed() => {}
                ((), ()) = async { tokio::join!(biased; serve, relay) } => {}
            }
        });
        told
    }

    fn below(&self, bound: u64) -> u64 {
        self.world.below(bound)
    }
}

impl Notes for World {
    fn say(&self, line: String) {
        World::say(self, line);
    }
}
