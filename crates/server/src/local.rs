//! Clusters in this process, on this machine's own addresses: what tests and benchmarks start.
//! Their nodes are those of `fermata server`, with sockets, threads and flushes of their own.

use crate::config::Resolved;
use crate::{ClusterConfig, Listeners, Medium, NodeConfig, StartError, run_on};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// `n` nodes `n1` … on sites `s1` …, all one group, and the sockets that they listen on.
///
/// # Errors
/// When no port is free.
pub async fn cluster(n: u32, segment_bits: u8) -> std::io::Result<(ClusterConfig, Vec<Listeners>)> {
    let (mut nodes, mut listeners) = (Vec::new(), Vec::new());
    for name in 1..=n {
        let ((peer, peer_at), (grpc, grpc_at)) = (free().await?, free().await?);
        let (rest, rest_at) = free().await?;
        let rest = Some(rest);
        listeners.push(Listeners { peer, grpc, rest });
        nodes.push(NodeConfig {
            name,
            label: format!("n{name}"),
            site: format!("s{name}"),
            peer: peer_at,
            grpc: grpc_at,
            rest: rest_at,
        });
    }
    let cluster = ClusterConfig {
        id: format!("{:032x}", 0xfe),
        segment_bits,
        lowest_ref: 1,
        sites: (1..=n).map(|s| format!("s{s}")).collect(),
        nodes,
        groups: vec![],
    };
    Ok((cluster, listeners))
}

/// A socket on a free port, and its address.
///
/// # Errors
/// When no port is free.
pub async fn free() -> std::io::Result<(TcpListener, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    Ok((listener, address))
}

/// A node that runs. Dropped, it ends as if it had been told to.
#[derive(Debug)]
pub struct Running {
    stop: oneshot::Sender<()>,
    /// Its end.
    pub done: JoinHandle<Result<(), StartError>>,
}

impl Running {
    /// Starts it, with its store in `medium` if there is one.
    pub fn start(resolved: Resolved, listeners: Listeners, medium: Option<Medium>) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            // A dropped sender stops the node too.
            let _ = stopped.await;
        };
        Running {
            stop,
            done: tokio::spawn(run_on(resolved, listeners, medium, shutdown)),
        }
    }

    /// Tells it to stop. What it says is in its end, should it have ended before.
    pub fn stop(self) -> JoinHandle<Result<(), StartError>> {
        let _ended = self.stop.send(());
        self.done
    }
}
