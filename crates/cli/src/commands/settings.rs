//! `fermata settings`: what all nodes of a cluster count alike, and how it is changed.

use std::time::Duration;

use fermata_client::Client;
use fermata_protocol::settings::{Join, Setting, Settings};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::settable::setting;
use crate::args::{Global, SettingsArgs, SettingsCommand};
use crate::connect::connect;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// How long a node may take to tell.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a change is looked after.
const LOOKS: Duration = Duration::from_millis(100);

/// Shows the settings, or changes one.
pub(crate) async fn command(global: &Global, args: SettingsArgs) -> Result<u8, Failure> {
    let change = match &args.action {
        Some(SettingsCommand::Set { .. }) if args.change().is_some() => {
            return Err(Failure::usage(
                "one setting is changed at a time: --lease and --format change one without `set`",
            ));
        }
        Some(SettingsCommand::Set { name, value }) => Some(setting(name, value)?),
        None => args.change(),
    };
    run(global, change.as_slice()).await
}

/// Shows the settings, changed before if that is asked for. Exit status 69 while a node does not
/// know of the change.
pub(crate) async fn run(global: &Global, changes: &[Setting]) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let mut settings = known(&client).await?;
    let mut so = true;
    for change in changes {
        // What has not come about keeps the next one from being asked for.
        if so {
            (settings, so) = bring_about(global, &client, &settings, *change).await?;
        }
    }
    show(global, &settings)?;
    Ok(if so { 0 } else { Exit::Unavailable as u8 })
}

/// Has a setting changed; the settings then, and whether it is so.
async fn bring_about(
    global: &Global,
    client: &Client,
    before: &Settings,
    change: Setting,
) -> Result<(Settings, bool), Failure> {
    client.change_settings(change).await?;
    let deadline = Instant::now() + global.timeout();
    let (settings, over) = loop {
        let settings = known(client).await?;
        let over = settings.version > before.version && !settings.is_changing();
        if over || Instant::now() >= deadline {
            break (settings, over);
        }
        tokio::time::sleep(LOOKS).await;
    };
    // Somebody else may have taken it back.
    let so = match change {
        Setting::Lease(lease) => settings.lease == lease,
        Setting::Format(format) => settings.format == format,
        Setting::DeadAfter(after) => settings.dead_after == after,
        Setting::Join(join) => settings.join == join,
        Setting::NearestLeads(nearest) => settings.nearest_leads == nearest,
        Setting::KeyBytes(bytes) => settings.key_bytes == bytes,
        Setting::ValueBytes(bytes) => settings.value_bytes == bytes,
        Setting::MoveRate(rate) => settings.move_rate == rate,
    };
    Ok((settings, over && so))
}

/// The settings after most changes that any node knows of.
async fn known(client: &Client) -> Result<Settings, Failure> {
    let ask = |index| tokio::time::timeout(PATIENCE, client.status(Some(index)));
    let answers = futures_util::future::join_all((0..client.nodes().len()).map(ask)).await;
    let statuses = answers.into_iter().filter_map(|answer| answer.ok()?.ok());
    let statuses: Vec<_> = statuses.collect();
    let known = statuses.iter().filter_map(|status| status.settings);
    match known.max_by_key(|settings| settings.version) {
        Some(settings) => Ok(settings),
        // Of all that are asked no node has answered: that one says why.
        None if statuses.is_empty() => Err(client.status(None).await.err().map_or_else(
            || Failure::usage("no node has answered; try again"),
            Failure::from,
        )),
        None => Err(Failure::usage(
            "this cluster's values and locks are in other stores: it has no settings",
        )),
    }
}

fn joined(join: Join) -> &'static str {
    match join {
        Join::Load => "load",
        Join::Latency => "latency",
        Join::Resilient => "resilient",
    }
}

/// The settings for programs.
pub(super) fn as_json(settings: &Settings) -> Value {
    json!({
        "changes": settings.version,
        "lease_ms": settings.lease / 1_000,
        "before_ms": settings.before.map(|before| before / 1_000),
        "request_ms": settings.request / 1_000,
        "format": settings.format,
        "raising": settings.raising,
        "dead_after_ms": settings.dead_after / 1_000,
        "join": settings.join.map(joined),
        "nearest_leads": settings.nearest_leads,
        "key_bytes": settings.key_bytes,
        "value_bytes": settings.value_bytes,
        "move_rate": settings.move_rate,
    })
}

fn show(global: &Global, settings: &Settings) -> Result<(), Failure> {
    if global.json {
        return output::json(&as_json(settings));
    }
    let time = |micros| duration::show(Duration::from_micros(micros));
    let mut table = Table::new(&["setting", "value"]);
    let changing = settings.before.map(|before| {
        format!(
            ", before {}: a node of the cluster does not know yet",
            time(before)
        )
    });
    let lease = time(settings.lease) + &changing.unwrap_or_default();
    table.row(vec!["lease".to_owned(), lease]);
    table.row(vec!["request".to_owned(), time(settings.request)]);
    let raising = settings.raising.map(|next| {
        format!(", then {next}: a node of the cluster has not said yet that it reads it")
    });
    let format = settings.format.to_string() + &raising.unwrap_or_default();
    table.row(vec!["format".to_owned(), format]);
    let dead_after = match settings.dead_after {
        0 => "never: `fermata node replace` is asked for".to_owned(),
        after => time(after),
    };
    table.row(vec!["replace dead after".to_owned(), dead_after]);
    let join = settings.join.map(joined);
    let join = join.unwrap_or("no group unasked: `fermata node add` is asked for");
    table.row(vec!["nodes join by".to_owned(), join.to_owned()]);
    let leads = match settings.nearest_leads {
        true => "the member that is the nearest to a quorum",
        false => "its first seat",
    };
    table.row(vec!["a group is led by".to_owned(), leads.to_owned()]);
    let bytes = |bytes: u64| format!("{bytes} bytes");
    table.row(vec!["longest key".to_owned(), bytes(settings.key_bytes)]);
    table.row(vec![
        "longest value".to_owned(),
        bytes(settings.value_bytes),
    ]);
    let rate = match settings.move_rate {
        0 => "as fast as they can".to_owned(),
        rate => format!("{rate} bytes per second"),
    };
    table.row(vec!["nodes move".to_owned(), rate]);
    output::text(table)
}
