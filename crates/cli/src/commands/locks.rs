//! `fermata locks`: a key's lock queue, head first.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fermata_client::Mode;
use serde_json::json;

use crate::args::{Global, KeyArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::output::{self, Table};

/// Prints the queue. An empty one is a line (or an empty array), not a failure.
pub(crate) async fn run(global: &Global, args: KeyArgs) -> Result<u8, Failure> {
    let key = args.key.as_bytes();
    let client = connect(global).await?;
    let (entries, flag) = client.queue(&args.space.keyspace, key).await?;
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
        return Ok(0);
    }
    let mut table = Table::new(&["lock ref", "state", "mode", "site", "age", "session"]);
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
        ]);
    }
    output::text(table)?;
    if flag {
        output::text("the next holder will synchronize: a section on this key ended by force")?;
    }
    Ok(0)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}
