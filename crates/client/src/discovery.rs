//! Which nodes there are, and which to prefer.

use crate::dial::Dial;
use crate::link;
use fermata_api::v1;
use fermata_protocol::base::NodeName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// A node as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number in the cluster; none where only its address is known.
    pub name: Option<NodeName>,
    /// What people call it.
    pub label: String,
    /// Its site; empty where only its address is known.
    pub site: String,
    /// Where it is asked: `http://host:port`, or `https://host:port` over TLS.
    pub endpoint: String,
    /// It is in the cluster no more, or reached elsewhere, and is not asked.
    pub left: bool,
    /// It hands over what it leads, and is asked last.
    pub drains: bool,
}

impl Node {
    /// Where it is asked: `host:port`.
    pub fn address(&self) -> &str {
        let endpoint = self.endpoint.as_str();
        endpoint.split_once("://").map_or(endpoint, |(_, at)| at)
    }
}

/// What a client knows of its nodes, each under the same index for as long as it lives.
pub(crate) type SharedNodes = Arc<Mutex<Vec<Node>>>;

/// The nodes themselves. A thread that panicked with them in hand leaves them whole.
pub(crate) fn locked(shared: &SharedNodes) -> MutexGuard<'_, Vec<Node>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the first of these that answers within `patience` knows of the cluster.
pub(crate) async fn again(
    dial: &Dial,
    uris: Vec<String>,
    patience: Duration,
) -> Option<v1::ClusterInfo> {
    ask_all(dial, &uris, patience).await.0
}

/// Takes over what a node knows of the cluster: nodes that are new come last, those that have left
/// stay, and are marked. Returns in which order to ask those that are there.
pub(crate) fn learn(
    dial: &Dial,
    nodes: &mut Vec<Node>,
    info: v1::ClusterInfo,
    site: Option<&str>,
) -> Vec<usize> {
    let mut told = Vec::new();
    let known = info.nodes.into_iter().filter(|node| !node.grpc.is_empty());
    for node in known.map(|node| node_of(dial, node)) {
        let at = nodes
            .iter()
            .position(|known| known.endpoint == node.endpoint);
        let at = at.unwrap_or(nodes.len());
        match nodes.get_mut(at) {
            Some(known) => *known = node,
            None => nodes.push(node),
        }
        told.push(at);
    }
    for (at, node) in nodes.iter_mut().enumerate() {
        // Of an address alone nobody knows whose it is: it may lead to any of them.
        node.left = node.name.is_some() && !told.contains(&at);
    }
    let others = (0..nodes.len()).filter(|at| nodes[*at].name.is_none());
    told.extend(others);
    told.sort_by_key(|at| rank(&nodes[*at], site));
    told
}

/// In which order to ask: the own site first, and who drains last.
fn rank(node: &Node, site: Option<&str>) -> (bool, bool) {
    (node.drains, site.is_some_and(|site| node.site != site))
}

/// A node says that it is about to stop, or hands over what it leads. Returns in which order to ask
/// from now on.
pub(crate) fn part(nodes: &mut [Node], from: usize, site: Option<&str>) -> Vec<usize> {
    if let Some(node) = nodes.get_mut(from) {
        node.drains = true;
    }
    let mut order: Vec<usize> = (0..nodes.len()).filter(|at| !nodes[*at].left).collect();
    order.sort_by_key(|at| rank(&nodes[*at], site));
    order
}

fn node_of(dial: &Dial, node: v1::NodeAddress) -> Node {
    Node {
        name: Some(NodeName(node.node)),
        label: node.label,
        site: node.site,
        endpoint: dial.uri(&node.grpc),
        left: false,
        drains: node.drains,
    }
}

/// The nodes given, and those that the first of them to answer within `patience` knows of; the
/// client's own site first, else in the order given. And, by address, why those given that were
/// heard of did not answer.
pub(crate) async fn nodes(
    dial: &Dial,
    given: &[String],
    site: Option<&str>,
    patience: Duration,
) -> (Vec<Node>, Vec<(String, String)>) {
    let (info, failed) = ask_all(dial, given, patience).await;
    (arrange(dial, given, info, site), failed)
}

async fn ask_all(
    dial: &Dial,
    given: &[String],
    patience: Duration,
) -> (Option<v1::ClusterInfo>, Vec<(String, String)>) {
    let mut asked = JoinSet::new();
    for uri in given {
        let (dial, uri) = (dial.clone(), uri.clone());
        asked.spawn(async move {
            let answer = ask(&dial, &uri).await;
            (uri, answer)
        });
    }
    let mut silent: Vec<String> = given.to_vec();
    let mut failed = Vec::new();
    let first = async {
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((_, Ok(info))) => return Some(info),
                Ok((uri, Err(why))) => {
                    silent.retain(|asked| *asked != uri);
                    failed.push((uri, why));
                }
                Err(_) => {}
            }
        }
        None
    };
    match tokio::time::timeout(patience, first).await {
        Ok(info) => (info, failed),
        Err(_) => {
            let why = crate::account::no_answer(patience);
            failed.extend(silent.into_iter().map(|uri| (uri, why.clone())));
            (None, failed)
        }
    }
}

/// What a node says of itself.
pub(crate) async fn ask(dial: &Dial, uri: &str) -> Result<v1::ClusterInfo, String> {
    let endpoint = dial.endpoint(uri).map_err(|error| error.to_string())?;
    let (channel, noted) = dial.connect(&endpoint).await?;
    let mut stub = link::stub(channel, dial.bearer()?);
    let info = stub.cluster(v1::ClusterRequest {}).await;
    match info {
        Ok(info) => Ok(info.into_inner()),
        Err(_) if noted.said().is_some() => Err(noted.said().unwrap_or_default()),
        // A node that has just started or is about to stop says so itself.
        Err(status)
            if matches!(
                status.code(),
                tonic::Code::Unavailable
                    | tonic::Code::Unauthenticated
                    | tonic::Code::PermissionDenied
                    | tonic::Code::ResourceExhausted
            ) =>
        {
            Err(status.message().to_owned())
        }
        Err(_) => Err(match dial.tls.is_some() {
            true => "answers, but not as a node does at its gRPC address".to_owned(),
            false => "answers, but not as a node does at its gRPC address in clear: it may speak \
                      TLS"
            .to_owned(),
        }),
    }
}

fn arrange(
    dial: &Dial,
    given: &[String],
    info: Option<v1::ClusterInfo>,
    site: Option<&str>,
) -> Vec<Node> {
    let mut known: Vec<Node> = info
        .into_iter()
        .flat_map(|info| info.nodes)
        .filter(|node| !node.grpc.is_empty())
        .map(|node| node_of(dial, node))
        .collect();
    let address = |uri: &str| uri.trim_end_matches('/').to_owned();
    let mut nodes = Vec::new();
    for uri in given.iter().map(|uri| address(uri)) {
        match known.iter().position(|node| node.endpoint == uri) {
            Some(at) => nodes.push(known.remove(at)),
            None => nodes.push(Node {
                name: None,
                label: uri.clone(),
                site: String::new(),
                endpoint: uri,
                left: false,
                drains: false,
            }),
        }
    }
    nodes.append(&mut known);
    // Stable: within a site, and without one, the order given stays.
    nodes.sort_by_key(|node| rank(node, site));
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u32, site: &str, grpc: &str) -> v1::NodeAddress {
        v1::NodeAddress {
            node,
            label: format!("n{node}"),
            site: site.to_owned(),
            grpc: grpc.to_owned(),
            ..v1::NodeAddress::default()
        }
    }

    #[test]
    fn who_comes_is_added_and_who_goes_keeps_its_place_and_is_not_asked() {
        let info = |nodes| v1::ClusterInfo {
            nodes,
            ..v1::ClusterInfo::default()
        };
        let given = ["http://lb:1".to_owned()];
        let first = info(vec![node(1, "ohio", "a:1"), node(2, "oregon", "b:1")]);
        let mut nodes = arrange(&Dial::default(), &given, Some(first), None);
        let next = info(vec![node(3, "oregon", "c:1"), node(2, "oregon", "b:1")]);
        assert_eq!(
            learn(&Dial::default(), &mut nodes, next.clone(), None),
            [3, 2, 0]
        );
        let left: Vec<bool> = nodes.iter().map(|node| node.left).collect();
        assert_eq!(left, [false, true, false, false]);
        // One that is reached elsewhere is another place.
        let moved = info(vec![node(3, "oregon", "c:2"), node(1, "ohio", "a:1")]);
        assert_eq!(
            learn(&Dial::default(), &mut nodes, moved, Some("ohio")),
            [1, 4, 0]
        );
        let left: Vec<bool> = nodes.iter().map(|node| node.left).collect();
        assert_eq!(left, [false, false, true, true, false]);
    }

    #[test]
    fn who_drains_is_asked_last_whatever_its_site() {
        let drains = v1::NodeAddress {
            drains: true,
            ..node(1, "ohio", "a:1")
        };
        let info = v1::ClusterInfo {
            nodes: vec![drains, node(2, "oregon", "b:1"), node(3, "ohio", "c:1")],
            ..v1::ClusterInfo::default()
        };
        let mut nodes = Vec::new();
        assert_eq!(
            learn(&Dial::default(), &mut nodes, info, Some("ohio")),
            [2, 1, 0]
        );
        assert_eq!(part(&mut nodes, 2, Some("ohio")), [1, 0, 2]);
    }

    #[test]
    fn the_own_site_comes_first_and_unknown_nodes_are_added() {
        let info = v1::ClusterInfo {
            nodes: vec![
                node(0, "ohio", "10.0.0.1:7101"),
                node(1, "oregon", "10.0.0.2:7101"),
                node(2, "oregon", "10.0.0.3:7101"),
            ],
            ..v1::ClusterInfo::default()
        };
        let given = [
            "http://10.0.0.1:7101/".to_owned(),
            "http://lb:7101".to_owned(),
        ];
        let nodes = arrange(&Dial::default(), &given, Some(info), Some("oregon"));
        let order: Vec<&str> = nodes.iter().map(|n| n.endpoint.as_str()).collect();
        assert_eq!(
            order,
            [
                "http://10.0.0.2:7101",
                "http://10.0.0.3:7101",
                "http://10.0.0.1:7101",
                "http://lb:7101"
            ]
        );
        assert_eq!(nodes[2].site, "ohio");
    }
}
