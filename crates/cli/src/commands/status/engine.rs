//! Nodes on an engine other than the native one: they have no peers, logs, storage or clocks of
//! their own to tell of, but stores.

use std::time::Duration;

use fermata_client::{Client, EngineStatus, Node};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::Asked;
use crate::output::Table;

/// A node, and its engine or why that is not known.
pub(super) type Told = (Node, Result<EngineStatus, String>);

/// What the nodes say of their engines; empty where they run the native one.
pub(super) async fn ask(client: &Client, asked: &[Asked], patience: Duration) -> Vec<Told> {
    let answered = |(_, status): &Asked| status.as_ref().is_ok_and(|s| !super::is_native(s));
    if !asked.iter().any(answered) {
        return vec![];
    }
    let ask = |(node, status): &Asked| {
        let (client, node) = (client.clone(), node.clone());
        let silent = status.as_ref().err().map(ToString::to_string);
        async move {
            let index = client.nodes().iter().position(|known| *known == node);
            let told = match (index, silent) {
                (Some(index), None) => {
                    let told = tokio::time::timeout(patience, client.engine(index)).await;
                    let told = told.map_err(|_| "no answer".to_owned());
                    told.and_then(|told| told.map_err(|error| error.to_string()))
                }
                (_, why) => Err(why.unwrap_or_else(|| "no answer".to_owned())),
            };
            let native = || Err("the native engine, unlike others".to_owned());
            (node, told.and_then(|told| told.map_or_else(native, Ok)))
        }
    };
    join_all(asked.iter().map(ask)).await
}

/// `well`, or what is wrong.
fn health(told: &Told) -> &str {
    match &told.1 {
        Ok(status) => status.ailment.as_deref().unwrap_or(super::WELL),
        Err(_) => "no answer",
    }
}

/// Whether it answers, and its stores have their quorums.
pub(super) fn is_well((_, told): &Told) -> bool {
    matches!(told, Ok(status) if status.ailment.is_none())
}

/// The nodes, and below them each engine once.
pub(super) fn in_words(told: &[Told], asked: &[Asked]) -> String {
    let mut table = Table::new(&["node", "site", "gRPC", "version", "health"])
        .judged("health", |health| health == super::WELL);
    let mut engines: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in told {
        let (node, status) = one;
        table.row(vec![
            node.label.clone(),
            node.site.clone(),
            node.address().to_owned(),
            version(node, asked).unwrap_or("-").to_owned(),
            health(one).to_owned(),
        ]);
        let Ok(EngineStatus { engine, .. }) = status else {
            continue;
        };
        match engines.iter_mut().find(|(known, _)| known == engine) {
            Some((_, labels)) => labels.push(&node.label),
            None => engines.push((engine, vec![&node.label])),
        }
    }
    let lines = engines.iter();
    let lines = lines.map(|(engine, labels)| format!("\n{}: {engine}\n", labels.join(" ")));
    format!("{table}{}", lines.collect::<String>())
}

/// What a node's program is, where it has told its state.
fn version<'a>(node: &Node, asked: &'a [Asked]) -> Option<&'a str> {
    let said = asked.iter().find(|(known, _)| known == node);
    said.and_then(|(_, status)| super::version(status))
}

/// For programs.
pub(super) fn as_json(told: &[Told], asked: &[Asked]) -> Value {
    let node = |one: &Told| {
        let (node, status) = one;
        let said = asked.iter().find(|(known, _)| known == node);
        json!({
            "node": node.name.map(|name| name.0),
            "label": node.label,
            "site": node.site,
            "endpoint": node.endpoint,
            "version": version(node, asked),
            "health": health(one),
            "engine": status.as_ref().ok().map(|status| status.engine.as_str()),
            "error": status.as_ref().err(),
            "closed": said.and_then(|(_, status)| status.as_ref().ok()).map(super::closed_json),
        })
    };
    json!({ "nodes": told.iter().map(node).collect::<Vec<_>>() })
}
