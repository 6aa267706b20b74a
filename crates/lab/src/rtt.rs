//! `fermata-lab rtt`: exact latencies in virtual time, beside the published ones.

use fermata_sim::profile::{self, Profile};
use fermata_sim::rtt::{self, Row};
use serde_json::json;

use crate::{Failure, print};

/// What MUSIC on Cassandra took, as published for Ohio on the profile lUs: step, puts,
/// milliseconds. Entering is `createLockRef` and `acquireLock`, with the value also the first get.
const PUBLISHED: [(&str, u32, f64); 6] = [
    ("enter", 0, 274.0),
    ("enter_value", 0, 329.0),
    ("get", 0, 55.0),
    ("put", 1, 93.0),
    ("leave", 0, 219.0),
    ("section", 1, 590.0),
];

/// One profile or all.
pub(crate) fn profiles(wanted: Option<&str>) -> Result<Vec<&'static Profile>, Failure> {
    let Some(name) = wanted else {
        return Ok(profile::ALL.iter().collect());
    };
    let names: Vec<&str> = profile::ALL.iter().map(|profile| profile.name).collect();
    let none = || format!("there is no profile `{name}`: choose {}", names.join(", "));
    let found = Profile::named(name).ok_or_else(|| Failure::Usage(none()))?;
    Ok(vec![found])
}

/// Measures one profile or all.
pub(crate) fn run(as_json: bool, wanted: Option<&str>) -> Result<(), Failure> {
    let rows: Vec<Row> = profiles(wanted)?.into_iter().flat_map(rtt::bench).collect();
    if as_json {
        let rows: serde_json::Value = rows.iter().map(json_of).collect();
        return print(format_args!("{rows:#}"));
    }
    print(line([
        "profile", "client", "primary", "step", "puts", "ms", "MUSIC ms",
    ]))?;
    for row in &rows {
        let step = match row.storage {
            "replicated" | "ledger" => row.step.to_owned(),
            storage => format!("{} ({storage})", row.step),
        };
        let (puts, ms) = (row.puts.to_string(), format!("{:.2}", row.ms));
        let music = published(row).map_or(String::new(), |ms| format!("{ms:.0}"));
        print(line([
            row.profile,
            row.client,
            row.primary,
            &step,
            &puts,
            &ms,
            &music,
        ]))?;
    }
    print(
        "\nVirtual time: only distance costs anything. MUSIC ms: MUSIC on Cassandra as published. \
         coded: a coded keyspace; clock: interval clocks of 5 ms; lead: a ledger that closes \
         times ahead.",
    )
}

/// A line of the table. The columns are as wide as the longest names that there are.
fn line([profile, client, primary, step, puts, ms, music]: [&str; 7]) -> String {
    let line = format!(
        "{profile:<7}  {client:<13}  {primary:<13}  {step:<19}  {puts:>4}  {ms:>6}  {music}"
    );
    line.trim_end().to_owned()
}

fn json_of(row: &Row) -> serde_json::Value {
    json!({
        "profile": row.profile,
        "client": row.client,
        "primary": row.primary,
        "step": row.step,
        "puts": row.puts,
        "storage": row.storage,
        "ms": row.ms,
    })
}

/// The published figure for the same step from the same place.
fn published(row: &Row) -> Option<f64> {
    let same_place = row.profile == "lUs" && row.client == "Ohio" && row.primary == "Ohio";
    let mut figures = PUBLISHED.iter().filter(|_| same_place);
    let found = figures.find(|(step, puts, _)| *step == row.step && *puts == row.puts);
    found.map(|(_, _, ms)| *ms)
}
