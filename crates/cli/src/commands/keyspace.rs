//! `fermata keyspace`: create, list, describe, change, delete.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Duration;

use fermata_client::{Keyspace, Purpose};
use fermata_protocol::base::{Price, StoragePolicy, TagRule, Terms};
use serde_json::{Value, json};

use crate::args::{ChangeArgs, Global, KeyspaceArgs, KeyspaceCommand, PurposeArg, StorageArg};
use crate::connect::connect;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// Keys that are counted before a keyspace is deleted.
const COUNTED: u32 = 1_000;

/// Runs the action.
pub(crate) async fn run(global: &Global, action: KeyspaceCommand) -> Result<u8, Failure> {
    match action {
        KeyspaceCommand::Create(args) => create(global, args).await,
        KeyspaceCommand::List => list(global).await,
        KeyspaceCommand::Describe { name } => describe(global, &name).await,
        KeyspaceCommand::Change(args) => change(global, args).await,
        KeyspaceCommand::Delete { name, yes } => delete(global, &name, yes).await,
    }
}

async fn change(global: &Global, args: ChangeArgs) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let (name, lease, longest) = (args.name, args.lease, args.section_max);
    client.change_keyspace(&name, lease, longest).await?;
    done(global, &name)
}

async fn delete(global: &Global, name: &str, yes: bool) -> Result<u8, Failure> {
    let client = connect(global).await?;
    if !yes {
        if !std::io::stdin().is_terminal() {
            let why = "deleting a keyspace asks for its name on a terminal; elsewhere give --yes";
            return Err(Failure::usage(why));
        }
        let keys = client.keys(name, "", None, COUNTED).await?.len();
        let more = if keys == COUNTED as usize {
            " or more"
        } else {
            ""
        };
        eprint!(
            "keyspace `{name}` has {keys}{more} keys; all are deleted, whoever holds one loses \
             it, and nothing comes back.\nIts name again, to delete it: "
        );
        let mut again = String::new();
        let read = std::io::stdin().read_line(&mut again);
        read.map_err(|e| Failure::local("reading the name", e))?;
        if again.trim() != name {
            return Err(Failure::usage("that is another name: nothing was deleted"));
        }
    }
    client.delete_keyspace(name).await?;
    done(global, name)
}

fn done(global: &Global, name: &str) -> Result<u8, Failure> {
    if global.json {
        output::json(&json!({ "keyspace": name, "done": true }))?;
    }
    Ok(0)
}

async fn create(global: &Global, args: KeyspaceArgs) -> Result<u8, Failure> {
    let tag_rule = match args.tag_before {
        None => TagRule::Whole,
        Some(separator) if separator.is_ascii() => TagRule::Before(separator as u8),
        Some(_) => return Err(Failure::usage("--tag-before is one ASCII character")),
    };
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let storage = storage_of(&args)?;
    if args.lead.is_some() && args.purpose != PurposeArg::Ledger {
        return Err(Failure::usage(
            "--lead is of ledgers; add `--purpose ledger`",
        ));
    }
    let [template, _] = Keyspace::built_in();
    let keyspace = Keyspace {
        name: args.name,
        purpose: match args.purpose {
            PurposeArg::Sections => Purpose::Sections,
            PurposeArg::Registers => Purpose::Registers,
            PurposeArg::Ledger => Purpose::Ledger {
                lead: args.lead.map_or(0, micros),
            },
        },
        storage,
        tag_rule,
        lease: micros(args.lease),
        section_max: micros(args.section_max),
        ..template
    };
    let name = keyspace.name.clone();
    let client = connect(global).await?;
    let sizes = client.status(None).await?.group_sizes;
    client.create_keyspace(keyspace).await?;
    let prices = prices(storage, &sizes);
    if global.json {
        let prices: Vec<Value> = prices
            .iter()
            .map(|(n, p)| price_as_json(&storage, *n, p))
            .collect();
        output::json(&json!({ "keyspace": name, "done": true, "prices": prices }))?;
    } else if storage != StoragePolicy::Replicated {
        for (members, price) in &prices {
            output::text(price_in_words(&storage, *members, price))?;
        }
    }
    Ok(0)
}

/// The storage policy that the options name. The server refuses terms that are impossible for the
/// cluster's groups, with the bound that is broken.
fn storage_of(args: &KeyspaceArgs) -> Result<StoragePolicy, Failure> {
    let policy = match args.storage {
        StorageArg::Replicated => {
            let told = args.faults.is_some() || args.delta.is_some() || args.whole_below.is_some();
            if told {
                let why =
                    "--f, --delta and --whole-below are for coded storage; add `--storage coded`";
                return Err(Failure::usage(why));
            }
            return Ok(StoragePolicy::Replicated);
        }
        StorageArg::Coded => StoragePolicy::Coded,
        StorageArg::TreasOpt => StoragePolicy::TreasOpt,
        StorageArg::Oreas => StoragePolicy::Oreas,
        StorageArg::Ares => StoragePolicy::Ares,
    };
    let faults = args.faults.ok_or_else(|| {
        Failure::usage("coded storage needs --f: how many members of a key's group may fail")
    })?;
    let terms = Terms::new(faults);
    Ok(policy(Terms {
        delta: args.delta.unwrap_or(terms.delta),
        whole_below: args.whole_below.unwrap_or(terms.whole_below),
        ..terms
    }))
}

/// What a policy costs in groups of each size that the cluster has.
fn prices(storage: StoragePolicy, sizes: &[u8]) -> Vec<(usize, Price)> {
    let distinct: BTreeSet<usize> = sizes.iter().map(|n| usize::from(*n)).collect();
    let price = |n| storage.price(n).ok().map(|price| (n, price));
    distinct.into_iter().filter_map(price).collect()
}

fn price_in_words(storage: &StoragePolicy, members: usize, price: &Price) -> String {
    let concurrent = match price.concurrent {
        None => "any number".to_owned(),
        Some(delta) => format!("{delta} (delta)"),
    };
    let writes = match price.write_rounds_with_clock {
        1 => "2 round trips per write, 1 with an interval clock",
        _ => "2 round trips per write",
    };
    let mut text = format!(
        "{} over {members} members:\n  storage per member: {} of a value, {:.2} of it over all\n  \
         failures tolerated: {}\n  writes of a key tolerated beside a read of it: {concurrent}\n  \
         1 round trip per read (2 while a write is under way), {writes}; a section's put takes 1",
        storage.name(),
        fraction(price),
        price.stored() * members as f64,
        price.faults,
    );
    if let Some(terms) = storage.terms() {
        text += &format!(
            "\n  values shorter than {} bytes are kept whole at every member",
            terms.whole_below
        );
        if storage.finalizes() {
            text += &format!(
                "\n  above {} writes of one key at once (delta) further ones wait, up to a beat \
                 each",
                terms.delta
            );
        }
    }
    if let Some(hint) = hint(storage, members, price) {
        text += &format!("\n  hint: {hint}");
    }
    text
}

/// Where the terms leave nothing to be coded: what would.
fn hint(storage: &StoragePolicy, members: usize, price: &Price) -> Option<String> {
    let terms = storage.terms()?;
    if price.parts > 1 {
        return None;
    }
    let parts = |terms| {
        storage
            .with(terms)?
            .shape(members)
            .ok()
            .map(|shape| shape.parts)
    };
    if let Some(none) = parts(Terms { delta: 0, ..terms }).filter(|parts| *parts > 1) {
        return Some(format!(
            "with delta = {} every member keeps all of a value; --delta 0 makes it 1/{none}",
            terms.delta
        ));
    }
    let fewer = (0..terms.faults).rev();
    let coded = fewer.filter_map(|faults| Some((faults, parts(Terms { faults, ..terms })?)));
    let (faults, parts) = coded.into_iter().find(|(_, parts)| *parts > 1)?;
    Some(format!(
        "with f = {} of {members} members every one keeps all of a value; --f {faults} makes it \
         1/{parts}",
        terms.faults
    ))
}

fn fraction(price: &Price) -> String {
    match (price.fragments, price.parts) {
        (1, 1) => "all".to_owned(),
        (fragments, parts) => format!("{fragments}/{parts}"),
    }
}

fn price_as_json(storage: &StoragePolicy, members: usize, price: &Price) -> Value {
    json!({
        "members": members,
        "stored_per_member": price.stored(),
        "failures": price.faults,
        "concurrent_writes": price.concurrent,
        "whole_below": storage.terms().map(|terms| terms.whole_below),
        "read_round_trips": 1,
        "read_round_trips_beside_a_write": 2,
        "write_round_trips": price.write_rounds,
        "write_round_trips_with_clock": price.write_rounds_with_clock,
    })
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
            keyspace.purpose.name().to_owned(),
            storage(keyspace),
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
            Purpose::Ledger { .. } => "transactions and snapshots",
        },
        storage(keyspace),
        duration::show(Duration::from_micros(keyspace.lease)),
        duration::show(Duration::from_micros(keyspace.section_max)),
    ))
    .map(|()| 0)
}

fn storage(keyspace: &Keyspace) -> String {
    let name = keyspace.storage.name();
    match keyspace.storage.terms() {
        None => name.to_owned(),
        Some(terms) => format!(
            "{name}, f = {}, delta = {}, whole below {} bytes",
            terms.faults, terms.delta, terms.whole_below
        ),
    }
}

fn as_json(keyspace: &Keyspace) -> Value {
    json!({
        "id": keyspace.id.0,
        "name": keyspace.name,
        "purpose": keyspace.purpose.name(),
        "storage": keyspace.storage.name(),
        "faults": keyspace.storage.terms().map(|terms| terms.faults),
        "delta": keyspace.storage.terms().map(|terms| terms.delta),
        "whole_below": keyspace.storage.terms().map(|terms| terms.whole_below),
        "tag_before": match keyspace.tag_rule {
            TagRule::Whole => None,
            TagRule::Before(byte) => Some(byte),
        },
        "lease_us": keyspace.lease,
        "section_max_us": keyspace.section_max,
        "lead_us": match keyspace.purpose {
            Purpose::Ledger { lead } => Some(lead),
            Purpose::Sections | Purpose::Registers => None,
        },
    })
}
