//! `fermata keyspace`: create, list, describe.

use std::time::Duration;

use fermata_client::{Keyspace, Purpose};
use fermata_protocol::base::{StoragePolicy, TagRule};
use serde_json::{Value, json};

use crate::args::{Global, KeyspaceArgs, KeyspaceCommand, PurposeArg};
use crate::connect::connect;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// Runs the action.
pub(crate) async fn run(global: &Global, action: KeyspaceCommand) -> Result<u8, Failure> {
    match action {
        KeyspaceCommand::Create(args) => create(global, args).await,
        KeyspaceCommand::List => list(global).await,
        KeyspaceCommand::Describe { name } => describe(global, &name).await,
    }
}

async fn create(global: &Global, args: KeyspaceArgs) -> Result<u8, Failure> {
    let tag_rule = match args.tag_before {
        None => TagRule::Whole,
        Some(separator) if separator.is_ascii() => TagRule::Before(separator as u8),
        Some(_) => return Err(Failure::usage("--tag-before is one ASCII character")),
    };
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let [template, _] = Keyspace::built_in();
    let keyspace = Keyspace {
        name: args.name,
        purpose: match args.purpose {
            PurposeArg::Sections => Purpose::Sections,
            PurposeArg::Registers => Purpose::Registers,
        },
        storage: StoragePolicy::Replicated,
        tag_rule,
        lease: micros(args.lease),
        section_max: micros(args.section_max),
        ..template
    };
    let name = keyspace.name.clone();
    connect(global).await?.create_keyspace(keyspace).await?;
    if global.json {
        output::json(&json!({ "keyspace": name, "done": true }))?;
    }
    Ok(0)
}

async fn list(global: &Global) -> Result<u8, Failure> {
    let mut keyspaces = connect(global).await?.keyspaces().await?;
    keyspaces.sort_by_key(|keyspace| keyspace.id);
    if global.json {
        let all: Vec<Value> = keyspaces.iter().map(as_json).collect();
        return output::json(&all).map(|()| 0);
    }
    let mut table = Table::new(&["keyspace", "for", "storage", "lease", "longest section"]);
    for keyspace in &keyspaces {
        table.row(vec![
            keyspace.name.clone(),
            purpose(keyspace).to_owned(),
            storage(keyspace).to_owned(),
            duration::show(Duration::from_micros(keyspace.lease)),
            duration::show(Duration::from_micros(keyspace.section_max)),
        ]);
    }
    output::text(table).map(|()| 0)
}

async fn describe(global: &Global, name: &str) -> Result<u8, Failure> {
    let keyspaces = connect(global).await?.keyspaces().await?;
    let Some(keyspace) = keyspaces.iter().find(|keyspace| keyspace.name == name) else {
        let sentence = format!("there is no keyspace `{name}`; `fermata keyspace list` shows all");
        return Err(Failure::new(Exit::Refused, sentence));
    };
    if global.json {
        return output::json(&as_json(keyspace)).map(|()| 0);
    }
    let rule = match keyspace.tag_rule {
        TagRule::Whole => "the whole key decides where it lives".to_owned(),
        TagRule::Before(byte) => format!(
            "the part of a key before `{}` decides where it lives",
            char::from(byte).escape_default()
        ),
    };
    output::text(format!(
        "{} (number {}): {}\nstorage: {}\nplacement: {rule}\nlease: {}\nlongest section: {}",
        keyspace.name,
        keyspace.id.0,
        match keyspace.purpose {
            Purpose::Sections => "critical sections, eventual get and put, read and write",
            Purpose::Registers => "linearizable read and write, no locks",
        },
        storage(keyspace),
        duration::show(Duration::from_micros(keyspace.lease)),
        duration::show(Duration::from_micros(keyspace.section_max)),
    ))
    .map(|()| 0)
}

fn purpose(keyspace: &Keyspace) -> &'static str {
    match keyspace.purpose {
        Purpose::Sections => "sections",
        Purpose::Registers => "registers",
    }
}

fn storage(keyspace: &Keyspace) -> &'static str {
    match keyspace.storage {
        StoragePolicy::Replicated => "replicated",
    }
}

fn as_json(keyspace: &Keyspace) -> Value {
    json!({
        "id": keyspace.id.0,
        "name": keyspace.name,
        "purpose": purpose(keyspace),
        "storage": storage(keyspace),
        "tag_before": match keyspace.tag_rule {
            TagRule::Whole => None,
            TagRule::Before(byte) => Some(byte),
        },
        "lease_us": keyspace.lease,
        "section_max_us": keyspace.section_max,
    })
}
