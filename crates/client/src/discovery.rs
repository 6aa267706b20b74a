//! Which nodes there are, and which to prefer.

use crate::account;
use crate::link;
use fermata_api::v1;
use fermata_protocol::base::NodeName;
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
    /// Where it is asked: `http://host:port`.
    pub endpoint: String,
}

/// The nodes given, and those that the first of them to answer within `patience` knows of; the
/// client's own site first, else in the order given. And, by address, why those given that were
/// heard of did not answer.
pub(crate) async fn nodes(
    given: &[String],
    site: Option<&str>,
    patience: Duration,
) -> (Vec<Node>, Vec<(String, String)>) {
    let (info, failed) = ask_all(given, patience).await;
    (arrange(given, info, site), failed)
}

async fn ask_all(
    given: &[String],
    patience: Duration,
) -> (Option<v1::ClusterInfo>, Vec<(String, String)>) {
    let mut asked = JoinSet::new();
    for uri in given {
        let uri = uri.clone();
        asked.spawn(async move {
            let answer = ask(&uri).await;
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
pub(crate) async fn ask(uri: &str) -> Result<v1::ClusterInfo, String> {
    let endpoint = link::channel(uri).map_err(|error| account::why(&error))?;
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|error| account::why(&error))?;
    let info = link::stub(channel).cluster(v1::ClusterRequest {}).await;
    match info {
        Ok(info) => Ok(info.into_inner()),
        // A node that has just started or is about to stop says so itself.
        Err(status) if status.code() == tonic::Code::Unavailable => {
            Err(status.message().to_owned())
        }
        Err(_) => Err("answers, but not as a node does at its gRPC address".to_owned()),
    }
}

fn arrange(given: &[String], info: Option<v1::ClusterInfo>, site: Option<&str>) -> Vec<Node> {
    let mut known: Vec<Node> = info
        .into_iter()
        .flat_map(|info| info.nodes)
        .filter(|node| !node.grpc.is_empty())
        .map(|node| Node {
            name: Some(NodeName(node.node)),
            label: node.label,
            site: node.site,
            endpoint: format!("http://{}", node.grpc),
        })
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
            }),
        }
    }
    nodes.append(&mut known);
    // Stable: within a site, and without one, the order given stays.
    nodes.sort_by_key(|node| site.is_some_and(|site| node.site != site));
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_site_comes_first_and_unknown_nodes_are_added() {
        let node = |node, site: &str, grpc: &str| v1::NodeAddress {
            node,
            label: format!("n{node}"),
            site: site.to_owned(),
            grpc: grpc.to_owned(),
            rest: String::new(),
        };
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
        let nodes = arrange(&given, Some(info), Some("oregon"));
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
