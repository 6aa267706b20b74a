//! Networks that are cut and heal, and the port for peers among those who keep it busy.

use crate::common::{Choice, Session, TestCluster, enter, eventually, write};
use crate::http::Rest;
use crate::waits::{enter_by_http, leave, queue_of};
use fermata_protocol::base::{ClusterId, Incarnation, NodeId, NodeName};
use fermata_protocol::wire;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// What carries bytes between the nodes, and may be told not to.
#[derive(Clone, Default)]
struct Net(Arc<Mutex<Weather>>);

#[derive(Default)]
struct Weather {
    /// From, to.
    cut: HashSet<(usize, usize)>,
    /// What cannot pass is not even read.
    stalls: bool,
}

impl Net {
    fn cut(&self, ways: &[(usize, usize)], stalls: bool) {
        let mut weather = self.0.lock().unwrap();
        weather.cut.extend(ways);
        weather.stalls = stalls;
    }

    fn heal(&self) {
        self.0.lock().unwrap().cut.clear();
    }

    fn passes(&self, way: (usize, usize)) -> bool {
        !self.0.lock().unwrap().cut.contains(&way)
    }

    /// Carries what `from` says to `to` on the connections that it opens.
    async fn carry(self, from: usize, to: usize, listener: TcpListener, target: String) {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            // A connection wants both ways; one that finds a cut hears nothing for ever.
            let open = self.passes((from, to)) && self.passes((to, from));
            let far = match TcpStream::connect(&target).await {
                Ok(far) if open => far,
                Ok(_) => {
                    tokio::spawn(hold(near));
                    continue;
                }
                Err(_) => continue,
            };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::spawn(self.clone().pump((from, to), near_read, far_write));
            tokio::spawn(self.clone().pump((to, from), far_read, near_write));
        }
    }

    /// Passes one direction of a connection on. What meets a cut is lost, and the connection with
    /// it, after the healing too: as one whose sender will try again much later.
    async fn pump(
        self,
        way: (usize, usize),
        mut read: tokio::net::tcp::OwnedReadHalf,
        mut write: tokio::net::tcp::OwnedWriteHalf,
    ) {
        let mut bytes = vec![0; 64 << 10];
        let mut lost = false;
        loop {
            let count = read.read(&mut bytes).await.unwrap_or(0);
            lost |= !self.passes(way);
            if lost && (count == 0 || self.0.lock().unwrap().stalls) {
                return hold((read, write)).await;
            }
            if !lost && (count == 0 || write.write_all(&bytes[..count]).await.is_err()) {
                return;
            }
        }
    }
}

/// Keeps something open, and says nothing.
async fn hold<T>(held: T) {
    std::future::pending::<()>().await;
    drop(held);
}

/// Three nodes that reach each other over a net.
async fn cluster() -> (TestCluster, Net) {
    let net = Net::default();
    let (mut through, mut listeners) = (HashMap::new(), Vec::new());
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let (listener, address) = fermata_server::local::free().await.unwrap();
            through.insert((from, to), address);
            listeners.push((from, to, listener));
        }
    }
    let choice = Choice {
        through,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(3, choice).await;
    for (from, to, listener) in listeners {
        let target = cluster.node(to).peer.clone();
        tokio::spawn(net.clone().carry(from, to, listener, target));
    }
    (cluster, net)
}

const ALIVE: &str = "fermata_peers_alive";
const SILENT: &str = "fermata_peer_connections_ended_total{reason=\"silent\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_was_cut_off_is_heard_again_when_the_network_heals() {
    let (cluster, net) = cluster().await;
    let mut clients = Vec::new();
    for at in 0..3 {
        clients.push(cluster.client(at).await);
    }
    let mut session = Session::new(1);
    let (out, back) = ([(2, 0), (2, 1)], [(0, 2), (1, 2)]);
    let both = [out, back].concat();
    for (ways, stalls) in [(&both[..], false), (&both[..], true), (&out[..], false)] {
        for at in 0..3 {
            eventually!(cluster.metric(at, ALIVE).await == 2.0);
        }
        let ended = cluster.metric(0, SILENT).await;
        net.cut(ways, stalls);
        eventually!(cluster.metric(0, ALIVE).await == 1.0);
        net.heal();
        for at in 0..3 {
            eventually!(cluster.metric(at, ALIVE).await == 2.0);
        }
        eventually!(
            write(&mut clients[2], &mut session, "k", b"v".to_vec())
                .await
                .is_ok()
        );
        // Whoever heard nothing gave the connection up, and so did who was not answered.
        assert!(cluster.metric(0, SILENT).await > ended);
    }
}

/// G47: the grant is on its way to a node that is cut off when its caller hangs up there. The
/// caller was never told the section's name, so that nobody would ever leave it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_in_the_moment_of_its_grant_keeps_no_key() {
    let (cluster, net) = cluster().await;
    let mut client = cluster.client(0).await;
    cluster.client(2).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let mut holder = Session::new(60);
    let held = enter(&mut client, &mut holder, "k").await.unwrap();
    let mut caller = enter_by_http(&cluster.node(2).rest).await;
    queue_of(&rest, |all| all.len() == 2).await;
    net.cut(&[(2, 0), (2, 1), (0, 2), (1, 2)], false);
    let held = held.keys[0].held.clone().unwrap();
    leave(&mut client, &mut holder, held).await;
    queue_of(&rest, |all| all.len() == 1 && all[0]["holds"] == true).await;
    caller.shutdown().await.unwrap();
    drop(caller);
    // Its node has heard of that before it hears of the grant; who asks is a connection, too.
    eventually!(
        cluster
            .metric(2, "fermata_connections{face=\"rest\"}")
            .await
            == 1.0
    );
    net.heal();
    queue_of(&rest, |all| all.is_empty()).await;
}

/// The greeting of an incarnation of the second node to the first.
fn greeting(incarnation: u128) -> Vec<u8> {
    let from = NodeId {
        name: NodeName(2),
        incarnation: Incarnation(incarnation),
    };
    let fields = (
        *b"FERMATA\n",
        wire::VERSION,
        ClusterId(0xfe),
        from,
        NodeName(1),
        1_u64,
    );
    let bytes = wire::encode(&fields);
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

/// Connects, says so much, and waits until the other side has hung up.
async fn greeted(address: &str, bytes: &[u8]) -> oneshot::Receiver<()> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let (ended, end) = oneshot::channel();
    tokio::spawn(async move {
        let mut heard = Vec::new();
        // Hung up, or reset: it is gone.
        let _ = stream.read_to_end(&mut heard).await;
        let _ = ended.send(());
    });
    end
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_for_peers_has_a_place_for_a_peer_whoever_else_is_there() {
    let mut cluster = TestCluster::start(3).await;
    for at in 0..3 {
        cluster.client(at).await;
    }
    cluster.stop(1).await;
    let address = cluster.node(0).peer.clone();
    // Those who say nothing, and a process of the second node that vanished many times.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(greeted(&address, &[]).await);
    }
    let mut vanished = Vec::new();
    for _ in 0..40 {
        vanished.push(greeted(&address, &greeting(0xabc)).await);
    }
    for incarnation in 0..40 {
        vanished.push(greeted(&address, &greeting(incarnation)).await);
    }
    cluster.restart(1).await;
    eventually!(cluster.metric(0, ALIVE).await == 2.0);
    eventually!(cluster.metric(1, ALIVE).await == 2.0);
    for end in silent.into_iter().chain(vanished) {
        end.await.unwrap();
    }
    for reason in ["crowded", "replaced"] {
        let ended = format!("fermata_peer_connections_ended_total{{reason=\"{reason}\"}}");
        assert!(cluster.metric(0, &ended).await > 0.0, "{reason}");
    }
}
