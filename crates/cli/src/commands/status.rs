//! `fermata status`: sites, nodes, segments and primaries, health.

mod engine;

use std::io::IsTerminal;
use std::time::Duration;

use fermata_client::{Client, Node, NodeStatus};
use fermata_protocol::base::{NodeName, Reach};
use fermata_protocol::register::Tally;
use fermata_protocol::request::{ClockState, ClockStatus, ClosedStatus};
use serde_json::{Value, json};

use crate::args::Global;
use crate::connect::connect;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, PLAIN, RED, Table};
use tokio::time::MissedTickBehavior;

/// A node, and what it said of itself.
type Asked = (Node, Result<NodeStatus, fermata_client::Error>);

/// The health of a node that has nothing to complain of.
const WELL: &str = "well";

/// Empties a terminal, so that what follows is a page of its own.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Seconds.
const DAY: i64 = 86_400;
/// A certificate that is over so soon is told of, seconds.
const ENDS_SOON: i64 = 30 * DAY;

/// How long a node may take to tell its state.
const PATIENCE: Duration = Duration::from_secs(3);

/// Shows the cluster, once or at every interval. Exit status 69 if a node does not answer, or its
/// engine's stores have no quorum.
pub(crate) async fn run(global: &Global, watch: Option<Duration>) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let Some(interval) = watch else {
        let (text, well) = look(global, &client, false).await?;
        output::coloured(&text)?;
        return Ok(if well { 0 } else { Exit::Unavailable as u8 });
    };
    let page = std::io::stdout().is_terminal() && !global.json;
    let mut again = tokio::time::interval(interval);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        again.tick().await;
        let (text, _) = look(global, &client, true).await?;
        if page {
            output::bytes(CLEAR)?;
        }
        if !output::coloured(&text)? {
            return Ok(0);
        }
    }
}

/// Asks every node: what to show, and whether all is well. What is shown again and again is one
/// line for programs.
async fn look(global: &Global, client: &Client, one_line: bool) -> Result<(String, bool), Failure> {
    // A dead node must not make a living one's state wait.
    let patience = global.timeout().min(PATIENCE);
    let ask = |index| {
        let client = client.clone();
        async move {
            let status = tokio::time::timeout(patience, client.status(Some(index))).await;
            status.unwrap_or_else(|_| {
                let code = fermata_client::Code::Unavailable;
                let detail = format!("no answer within {}", duration::show(patience));
                Err(fermata_protocol::Refusal::definite(code, detail).into())
            })
        }
    };
    let answers = futures_util::future::join_all((0..client.nodes().len()).map(ask)).await;
    let mut asked: Vec<Asked> = client.nodes().into_iter().zip(answers).collect();
    asked.retain(|(node, _)| !node.left);
    asked.sort_by_key(|(node, _)| node.name);
    // Who may not ask is told so, and not that nobody answers.
    let refused = |asked: &Asked| matches!(&asked.1, Err(error) if is_refusal(error.code()));
    if let Some((_, Err(error))) = asked.first().filter(|_| asked.iter().all(refused)) {
        return Err(error.clone().into());
    }
    let engines = engine::ask(client, &asked, patience).await;
    let text = match (global.json, engines.is_empty()) {
        (true, native) => {
            let value = match native {
                true => as_json(client, &asked),
                false => engine::as_json(&engines, &asked),
            };
            match one_line {
                true => format!("{value}\n"),
                false => format!("{value:#}\n"),
            }
        }
        (false, true) => in_words(&asked),
        (false, false) => {
            let secured = security_lines(&asked);
            let secured: String = secured.iter().map(|line| format!("{line}\n")).collect();
            engine::in_words(&engines, &asked) + &secured + &closed_lines(&asked)
        }
    };
    let well = asked.iter().all(|(_, status)| status.is_ok());
    Ok((text, well && engines.iter().all(engine::is_well)))
}

fn is_refusal(code: fermata_client::Code) -> bool {
    use fermata_client::Code::{Forbidden, Unauthenticated};
    matches!(code, Forbidden | Unauthenticated)
}

/// A native cluster, for people.
fn in_words(asked: &[Asked]) -> String {
    let mut text = nodes_table(asked).to_string();
    for line in clock_lines(asked) {
        text += &format!("{line}\n");
    }
    for line in security_lines(asked) {
        text += &format!("{RED}{line}{PLAIN}\n");
    }
    text += &format!("\n{}", segments_table(asked));
    text += &format!("\n{}{}\n", storage_table(asked), walked_line(asked));
    text += &closed_lines(asked);
    for keyspace in keyspaces(asked).iter().filter(|k| !k.is_available()) {
        text += &format!("\n{RED}{}{PLAIN}\n", keyspace.line(asked));
    }
    text
}

fn nodes_table(asked: &[Asked]) -> Table {
    let mut table = Table::new(&[
        "node",
        "site",
        "gRPC",
        "version",
        "health",
        "hears",
        "leads",
        "logs",
        "busy keys",
        "requests",
        "clock",
    ])
    .judged("health", |health| health == WELL);
    for (node, status) in asked {
        let endpoint = node.address().to_owned();
        let mut row = vec![node.label.clone(), node.site.clone(), endpoint];
        row.push(version(status).unwrap_or("-").to_owned());
        row.extend(match status {
            Ok(status) => {
                let leads = status
                    .logs
                    .iter()
                    .filter(|log| log.primary == Some(status.node));
                let busy: u64 = status.logs.iter().map(|log| log.busy_keys).sum();
                vec![
                    health(status, asked.len()).to_owned(),
                    labels(asked, &heard(status)),
                    leads.count().to_string(),
                    status.logs.len().to_string(),
                    busy.to_string(),
                    status.requests.to_string(),
                    clock(&status.clock),
                ]
            }
            Err(_) => {
                let nothing = std::iter::repeat_n("-".to_owned(), 6);
                std::iter::once("no answer".to_owned())
                    .chain(nothing)
                    .collect()
            }
        });
        table.row(row);
    }
    table
}

fn health(status: &NodeStatus, nodes: usize) -> &'static str {
    if !status.writable {
        "read-only (disk full)"
    } else if nodes > 1 && heard(status).is_empty() {
        "hears nobody"
    } else if status.logs.iter().any(|log| log.primary.is_none()) {
        "a segment without primary"
    } else {
        WELL
    }
}

/// What a node's program is; none where it does not tell.
fn version(status: &Result<NodeStatus, fermata_client::Error>) -> Option<&str> {
    let version = status.as_ref().ok().map(|status| status.version.as_str());
    version.filter(|version| !version.is_empty())
}

/// Whether the node runs the native engine: others have no groups of members.
fn is_native(status: &NodeStatus) -> bool {
    !status.group_sizes.is_empty()
}

/// The interval clock, in a word: its bound where it is relied on.
fn clock(status: &ClockStatus) -> String {
    match (status.state, status.bound) {
        (ClockState::Trusted, Some(micros)) => {
            format!("within {}", duration::show(Duration::from_micros(micros)))
        }
        (state, _) => state.name().replace('_', " "),
    }
}

/// A line for each way in which clocks of nodes are not relied on.
fn clock_lines(asked: &[Asked]) -> Vec<String> {
    let mut lines = Vec::new();
    for state in ClockState::ALL {
        let has = |status: &NodeStatus| status.clock.state == state;
        let of = asked.iter().filter(|(_, s)| s.as_ref().is_ok_and(has));
        let of: Vec<&str> = of.map(|(node, _)| node.label.as_str()).collect();
        if state != ClockState::Trusted && !of.is_empty() {
            lines.push(format!("{}: {}", of.join(" "), state.sentence()));
        }
    }
    lines
}

/// The peers that a node hears. A node's word for who is alive may include itself.
fn heard(status: &NodeStatus) -> Vec<NodeName> {
    let others = status.alive.iter().filter(|name| **name != status.node);
    others.copied().collect()
}

/// Names of nodes.
fn labels(asked: &[Asked], names: &[NodeName]) -> String {
    let labels: Vec<String> = names.iter().map(|name| label(asked, *name)).collect();
    if labels.is_empty() {
        "nobody".to_owned()
    } else {
        labels.join(" ")
    }
}

fn label(asked: &[Asked], name: NodeName) -> String {
    let node = asked.iter().find(|(node, _)| node.name == Some(name));
    node.map_or_else(|| format!("#{}", name.0), |(node, _)| node.label.clone())
}

/// Segments, each as the node says that has applied most of its log.
fn segments_table(asked: &[Asked]) -> Table {
    let mut table = Table::new(&["segment", "epoch", "primary", "commands", "busy keys"]);
    let statuses = asked.iter().filter_map(|(_, status)| status.as_ref().ok());
    let mut logs: Vec<_> = statuses.flat_map(|status| &status.logs).collect();
    logs.sort_by_key(|log| (log.segment, std::cmp::Reverse((log.epoch, log.applied))));
    logs.dedup_by_key(|log| log.segment);
    for log in logs {
        table.row(vec![
            log.segment
                .map_or("(group)".to_owned(), |segment| segment.0.to_string()),
            log.epoch.0.to_string(),
            log.primary
                .map_or("none".to_owned(), |name| label(asked, name)),
            log.commands.to_string(),
            log.busy_keys.to_string(),
        ]);
    }
    table
}

/// What the nodes that answer say of a keyspace's quorum.
struct Quorum<'a> {
    keyspace: &'a str,
    /// Of each node that tells it.
    said: Vec<(NodeName, Reach)>,
}

impl Quorum<'_> {
    /// The most that any node has in reach.
    fn best(&self) -> Option<Reach> {
        self.said
            .iter()
            .map(|(_, reach)| *reach)
            .max_by_key(Reach::spare)
    }

    /// Nodes through which it is not to be had.
    fn without(&self) -> Vec<NodeName> {
        let lacking = self.said.iter().filter(|(_, reach)| !reach.suffices());
        lacking.map(|(node, _)| *node).collect()
    }

    /// Through every node that answers. A node that tells nothing of it says nothing against it.
    fn is_available(&self) -> bool {
        self.without().is_empty()
    }

    /// One line for people; for what is available through some nodes alone it names the others.
    fn line(&self, asked: &[Asked]) -> String {
        let Some(reach) = self.best() else {
            return String::new();
        };
        let told = reach_in_words(self.keyspace, &reach);
        if reach.suffices() {
            format!(
                "{told}, but unavailable through {}",
                labels(asked, &self.without())
            )
        } else {
            told
        }
    }
}

/// `coded1: 3 of 5 members, needs 4: unavailable`.
fn reach_in_words(keyspace: &str, reach: &Reach) -> String {
    let state = match reach.suffices() {
        true => "available",
        false => "unavailable",
    };
    format!(
        "{keyspace}: {} of {} members, needs {}: {state}",
        reach.heard, reach.members, reach.needed
    )
}

/// Every keyspace that a node has told of.
fn keyspaces(asked: &[Asked]) -> Vec<Quorum<'_>> {
    let mut all: Vec<Quorum<'_>> = Vec::new();
    for status in asked.iter().flat_map(|(_, status)| status) {
        for storage in &status.storage {
            let said = storage.reach.map(|reach| (status.node, reach));
            match all.iter_mut().find(|k| k.keyspace == storage.keyspace) {
                Some(known) => known.said.extend(said),
                None => all.push(Quorum {
                    keyspace: &storage.keyspace,
                    said: said.into_iter().collect(),
                }),
            }
        }
    }
    all
}

fn keyspaces_json(asked: &[Asked]) -> Value {
    let one = |quorum: &Quorum<'_>| {
        let best = quorum.best();
        json!({
            "keyspace": quorum.keyspace,
            "available": quorum.is_available(),
            "heard": best.map(|reach| reach.heard),
            "members": best.map(|reach| reach.members),
            "needed": best.map(|reach| reach.needed),
            "unavailable_through": quorum.without().iter().map(|n| n.0).collect::<Vec<_>>(),
        })
    };
    keyspaces(asked).iter().map(one).collect()
}

/// What is stored of each keyspace: of a member's share the least and the most, where members
/// differ.
fn storage_table(asked: &[Asked]) -> Table {
    let mut table = Table::new(&[
        "keyspace",
        "keys",
        "deleted",
        "versions",
        "bytes per member",
        "by the formula",
        "damaged",
    ]);
    let said = || asked.iter().flat_map(|(_, status)| status);
    let mut names: Vec<&str> = Vec::new();
    for storage in said().flat_map(|status| &status.storage) {
        if !names.contains(&storage.keyspace.as_str()) {
            names.push(&storage.keyspace);
        }
    }
    for name in names {
        let of = |what: fn(&Tally) -> u64| {
            let walked = said().filter(|status| status.upkeep.walked.is_some());
            let storages = walked.flat_map(|status| &status.storage);
            let ours = storages.filter(|storage| storage.keyspace == name);
            range(ours.map(|storage| what(&storage.at_rest)))
        };
        table.row(vec![
            name.to_owned(),
            of(|t| t.keys),
            of(|t| t.dead),
            of(|t| t.versions),
            of(|t| t.bytes),
            of(|t| t.expected),
            of(|t| t.damaged),
        ]);
    }
    table
}

/// One number where all are equal.
fn range(numbers: impl Iterator<Item = u64>) -> String {
    let all: Vec<u64> = numbers.collect();
    match (all.iter().min(), all.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "-".to_owned(),
    }
}

/// A line for what is not secured, or soon will not be.
fn security_lines(asked: &[Asked]) -> Vec<String> {
    let mut lines = Vec::new();
    for (node, status) in asked {
        let Ok(status) = status else { continue };
        if status.security.exposed {
            lines.push(format!(
                "{}: listens beyond loopback in clear (--insecure): whoever reaches it may do \
                 anything",
                node.label
            ));
        }
        match status.security.ends_in {
            Some(left) if left <= 0 => {
                lines.push(format!("{}: a certificate is over: renew it", node.label));
            }
            Some(left) if left < ENDS_SOON => lines.push(format!(
                "{}: a certificate is over in {} days: renew it",
                node.label,
                left / DAY
            )),
            _ => {}
        }
    }
    lines
}

/// What nodes have refused or ended of their connections; nothing where there was none.
fn closed_lines(asked: &[Asked]) -> String {
    let mut table = Table::new(&["node", "face", "count", "last", "with", "cause"]);
    let mut any = false;
    for (node, status) in asked {
        for closed in status.iter().flat_map(|status| &status.closed) {
            any = true;
            table.row(vec![
                node.label.clone(),
                closed.face.clone(),
                closed.count.to_string(),
                format!("{} ago", age(closed.last)),
                with(asked, &closed.who),
                format!("{}: {}", closed.cause, closed.detail),
            ]);
        }
    }
    match any {
        true => format!("\nConnections that nodes refused or ended since they started:\n{table}"),
        false => String::new(),
    }
}

/// Who was at the other end of the last one: a node by its label.
fn with(asked: &[Asked], who: &str) -> String {
    let number = who.strip_prefix("node ").and_then(|n| n.parse().ok());
    match number {
        Some(number) => label(asked, NodeName(number)),
        None if who.is_empty() => "-".to_owned(),
        None => who.to_owned(),
    }
}

fn age(micros: u64) -> String {
    duration::show(Duration::from_micros(micros))
}

fn closed_json(status: &NodeStatus) -> Value {
    let one = |closed: &ClosedStatus| {
        json!({
            "face": closed.face,
            "cause": closed.cause,
            "detail": closed.detail,
            "count": closed.count,
            "last_us": closed.last,
            "who": closed.who,
        })
    };
    status.closed.iter().map(one).collect()
}

/// As of when the table of storage is.
fn walked_line(asked: &[Asked]) -> String {
    let said = asked
        .iter()
        .filter_map(|(node, status)| Some((node, status.as_ref().ok()?)));
    let (mut oldest, mut not_yet) = (None, Vec::new());
    for (node, status) in said {
        match status.upkeep.walked {
            Some(age) => oldest = oldest.max(Some(age)),
            None => not_yet.push(node.label.as_str()),
        }
    }
    match (oldest, not_yet.is_empty()) {
        (Some(oldest), true) => format!(
            "Storage as each node counted it on its last walk over its keys, {} ago at most.",
            age(oldest)
        ),
        _ => format!(
            "Storage is counted by a node's walk over its keys; not walked yet: {}.",
            not_yet.join(" ")
        ),
    }
}

fn storage_json(status: &NodeStatus) -> Value {
    let keyspace = |said: &fermata_protocol::request::StorageStatus| {
        json!({
            "keyspace": said.keyspace,
            "keys": said.at_rest.keys,
            "dead": said.at_rest.dead,
            "damaged": said.at_rest.damaged,
            "versions": said.at_rest.versions,
            "bytes": said.at_rest.bytes,
            "expected_bytes": said.at_rest.expected,
            "reach": said.reach.map(|reach| json!({
                "heard": reach.heard,
                "members": reach.members,
                "needed": reach.needed,
            })),
        })
    };
    status.storage.iter().map(keyspace).collect()
}

fn upkeep_json(status: &NodeStatus) -> Value {
    let counts = status.upkeep.upkeep;
    json!({
        "rounds": counts.rounds,
        "looks": counts.looks,
        "uneven": counts.uneven,
        "given": counts.given,
        "taken": counts.taken,
        "refused": counts.refused,
        "settled": counts.settled,
        "buried": counts.buried,
        "rebuilt": status.upkeep.rebuilt,
        "voids": status.upkeep.voids,
        "walked_us": status.upkeep.walked,
    })
}

fn as_json(client: &Client, asked: &[Asked]) -> Value {
    let node = |(node, status): &Asked| {
        let known = json!({
            "node": node.name.map(|name| name.0),
            "label": node.label,
            "site": node.site,
            "endpoint": node.endpoint,
        });
        let said = match status {
            Ok(status) => json!({
                "health": health(status, asked.len()),
                "version": status.version,
                "writable": status.writable,
                "clock": {
                    "state": status.clock.state.name(),
                    "detail": status.clock.state.sentence(),
                    "bound_us": status.clock.bound,
                    "violations": status.clock.violations,
                    "against": status.clock.against.map(|name| name.0),
                },
                "site": client.site_name(status.site),
                "alive": heard(status).iter().map(|name| name.0).collect::<Vec<_>>(),
                "requests": status.requests,
                "security": {
                    "tls": status.security.tls,
                    "exposed": status.security.exposed,
                    "ends_in_s": status.security.ends_in,
                },
                "settings": status.settings.as_ref().map(super::settings::as_json),
                "storage": storage_json(status),
                "upkeep": upkeep_json(status),
                "closed": closed_json(status),
                "logs": status.logs.iter().map(|log| json!({
                    "segment": log.segment.map(|segment| segment.0),
                    "epoch": log.epoch.0,
                    "primary": log.primary.map(|name| name.0),
                    "applied": log.applied,
                    "commands": log.commands,
                    "busy_keys": log.busy_keys,
                })).collect::<Vec<_>>(),
            }),
            Err(error) => json!({ "health": "no answer", "error": error.to_string() }),
        };
        merged(known, said)
    };
    json!({
        "nodes": asked.iter().map(node).collect::<Vec<_>>(),
        "keyspaces": keyspaces_json(asked),
    })
}

/// The fields of both objects.
fn merged(mut first: Value, second: Value) -> Value {
    if let (Value::Object(into), Value::Object(from)) = (&mut first, second) {
        into.extend(from);
    }
    first
}
