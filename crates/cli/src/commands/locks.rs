//! `fermata locks`: a key's lock queue, head first.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fermata_client::{Client, Code, Inspection, Keyspace, Mode, Purpose, Tag};
use fermata_protocol::base::{Seat, Shape, StoragePolicy};
use fermata_protocol::register::policy::part_length;
use serde_json::json;

use crate::args::{Global, LocksArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::output::{self, Table};

/// Prints the queue. An empty one is a line (or an empty array), not a failure.
pub(crate) async fn run(global: &Global, args: LocksArgs) -> Result<u8, Failure> {
    let key = args.key.as_bytes();
    let client = connect(global).await?;
    if args.replicas && !show_replicas(global, &client, key).await? {
        return Ok(0);
    }
    show_queue(global, &client, key).await
}

/// Prints what each replica holds; whether the queue is to follow.
async fn show_replicas(global: &Global, client: &Client, key: &[u8]) -> Result<bool, Failure> {
    let told = inspect(client, global.keyspace(), key).await;
    // Afterwards: a node that was asked about a key knows its keyspace.
    let keyspaces = client.keyspaces().await?;
    let keyspace = keyspaces.iter().find(|k| k.name == global.keyspace());
    let sizes = client.status(None).await?.group_sizes;
    if let Some(refused) = refused_by_all(&told) {
        return Err(refused.into());
    }
    let parts = Parts::of(keyspace, &sizes);
    if global.json {
        return output::json(&replicas_as_json(&told, parts)).map(|()| false);
    }
    output::text(format!("{}\n", replicas_table(&told, parts)))?;
    if keyspace.is_some_and(|k| k.purpose == Purpose::Registers) {
        let text = "keys of a register keyspace have no locks, and so no queue";
        return output::text(text).map(|()| false);
    }
    Ok(true)
}

async fn show_queue(global: &Global, client: &Client, key: &[u8]) -> Result<u8, Failure> {
    let (entries, flag) = client.queue(global.keyspace(), key).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    if global.json {
        let listed: Vec<serde_json::Value> = (entries.iter())
            .map(|entry| {
                json!({
                    "lock_ref": entry.lock_ref.0,
                    "generation": entry.generation,
                    "session": format!("{:032x}", entry.session.0),
                    "mode": mode(entry.mode),
                    "site": client.site_name(entry.site),
                    "label": entry.label.as_str(),
                    "since_us": entry.since,
                    "holds": entry.holds,
                })
            })
            .collect();
        let queue = json!({ "entries": listed, "synch_flag": flag });
        return output::json(&queue).map(|()| 0);
    }
    if entries.is_empty() {
        output::text("nobody holds this key or waits for it")?;
        if flag {
            output::text(
                "its last section ended without a clean leave: until a `get`, a `put` or a \
                 section has synchronized it, `put --eventual` is refused",
            )?;
        }
        return Ok(0);
    }
    let mut table = Table::new(&[
        "lock ref", "state", "mode", "site", "age", "session", "label",
    ]);
    for entry in &entries {
        let age = now.saturating_sub(Duration::from_micros(entry.since));
        table.row(vec![
            entry.lock_ref.0.to_string(),
            if entry.holds { "holds" } else { "waits" }.to_owned(),
            mode(entry.mode).to_owned(),
            client.site_name(entry.site),
            crate::duration::show(age),
            // Enough to tell sessions apart.
            format!("{:032x}", entry.session.0)[..8].to_owned(),
            entry.label.as_str().to_owned(),
        ]);
    }
    output::text(table)?;
    if flag {
        output::text(
            "the next holder will synchronize: a section on this key ended without a clean leave",
        )?;
    }
    Ok(0)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

/// What each replica said, by the node's label. A node of another group has nothing to say.
type Told = Vec<(String, Result<Inspection, fermata_client::Error>)>;

async fn inspect(client: &Client, keyspace: &str, key: &[u8]) -> Told {
    let nodes = client.nodes();
    let there = nodes.iter().enumerate().filter(|(_, node)| !node.left);
    let asked = there.map(|(index, node)| async move {
        (
            node.label.clone(),
            client.inspect(keyspace, key, Some(index)).await,
        )
    });
    futures_util::future::join_all(asked).await
}

/// Why no replica can tell anything: the keyspace or the key is wrong.
fn refused_by_all(told: &Told) -> Option<fermata_client::Error> {
    let wrong = |error: &&fermata_client::Error| {
        let refused = [Code::NoSuchKeyspace, Code::BadRequest, Code::TooLarge];
        refused.contains(&error.code())
    };
    let errors = told.iter().filter_map(|(_, said)| said.as_ref().err());
    errors.into_iter().find(wrong).cloned()
}

/// How members keep the keyspace's values.
#[derive(Clone, Copy)]
struct Parts {
    storage: StoragePolicy,
    shape: Shape,
}

impl Parts {
    /// None where it is not known: the groups differ in size, so that it depends on the key.
    fn of(keyspace: Option<&Keyspace>, sizes: &[u8]) -> Option<Parts> {
        let storage = keyspace?.storage;
        let members = *sizes.first()?;
        let shape = storage.shape(members.into()).ok()?;
        let same = sizes.iter().all(|size| *size == members);
        same.then_some(Parts { storage, shape })
    }

    /// Bytes that a member keeps of a value of so many: of a part as long as the longest.
    fn kept(self, bytes: u64) -> u64 {
        part_length(self.storage, self.shape, bytes, Seat(0))
    }
}

/// What is kept of a value, for people: `5592406 (1/3)`.
fn kept(parts: Option<Parts>, bytes: u64) -> String {
    match parts.map(|parts| (parts.kept(bytes), parts.shape.parts)) {
        Some((part, of)) if part < bytes => format!("{part} (1/{of})"),
        Some(_) => format!("{bytes} (all)"),
        None => "?".to_owned(),
    }
}

/// A tag as `ref/sequence`; the writer only breaks ties.
fn tag(tag: Tag) -> String {
    format!("{}/{}", tag.lock_ref.0, tag.sequence)
}

fn eventual(inspection: &Inspection) -> Option<String> {
    let tag = inspection.eventual.as_ref()?;
    Some(format!("{}@{}", tag.applied, tag.clock))
}

fn replicas_table(told: &Told, parts: Option<Parts>) -> Table {
    let mut table = Table::new(&[
        "replica",
        "segment",
        "critical tag",
        "fence",
        "value bytes",
        "kept here",
        "eventual",
        "applied",
    ]);
    for (label, said) in told {
        let cells = match said {
            Ok(inspection) => [
                inspection.segment.0.to_string(),
                tag(inspection.tag),
                tag(inspection.fence),
                inspection
                    .bytes
                    .map_or("-".to_owned(), |bytes| bytes.to_string()),
                inspection
                    .bytes
                    .map_or("-".to_owned(), |bytes| kept(parts, bytes)),
                eventual(inspection).unwrap_or_else(|| "-".to_owned()),
                inspection.applied.to_string(),
            ],
            Err(_) => std::array::from_fn(|_| "?".to_owned()),
        };
        table.row(std::iter::once(label.clone()).chain(cells).collect());
    }
    table
}

fn replicas_as_json(told: &Told, parts: Option<Parts>) -> serde_json::Value {
    let one = |(label, said): &(String, Result<Inspection, fermata_client::Error>)| match said {
        Ok(inspection) => json!({
            "replica": label,
            "segment": inspection.segment.0,
            "epoch": inspection.epoch.0,
            "critical_tag": tag(inspection.tag),
            "fence": tag(inspection.fence),
            "value_bytes": inspection.bytes,
            "kept_bytes": inspection.bytes.zip(parts).map(|(bytes, parts)| parts.kept(bytes)),
            "is_part": inspection.bytes.zip(parts).map(|(bytes, parts)| parts.kept(bytes) < bytes),
            "eventual_tag": eventual(inspection),
            "applied": inspection.applied,
        }),
        Err(error) => json!({ "replica": label, "error": error.to_string() }),
    };
    json!({ "replicas": told.iter().map(one).collect::<Vec<_>>() })
}
