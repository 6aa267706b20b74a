//! `fermata-lab idle`: what a cluster costs that nobody uses.

use fermata_sim::idle::{self, Row};
use fermata_sim::profile;
use serde_json::json;

use crate::{Failure, print};

/// Watches clusters of four sizes on the profile lUs.
pub(crate) fn run(as_json: bool) -> Result<(), Failure> {
    let rows = idle::bench(&profile::ALL[1]);
    if as_json {
        let rows: serde_json::Value = rows.iter().map(json_of).collect();
        return print(format_args!("{rows:#}"));
    }
    print(line([
        "nodes", "groups", "messages", "others", "bytes", "per peer", "events", "batches",
    ]))?;
    for row in &rows {
        print(line([
            &row.nodes.to_string(),
            &row.groups.to_string(),
            &format!("{:.1}", row.messages),
            &format!("{:.1}", row.others),
            &format!("{:.0}", row.bytes),
            &format!("{:.0}", row.bytes_per_peer),
            &format!("{:.1}", row.events),
            &row.batches.to_string(),
        ]))?;
    }
    print(
        "\nPer second of virtual time and node: messages to other nodes, those of them that are \
         neither beats nor answers to beats, bytes of messages, these for each other node, and \
         events. Batches: what all nodes together have written to their \
         disks in ten seconds.",
    )
}

/// A line of the table.
fn line(fields: [&str; 8]) -> String {
    let widths = [5, 6, 8, 6, 8, 8, 8, 7];
    let fields = fields.iter().zip(widths);
    let fields = fields.map(|(field, width)| format!("{field:>width$}"));
    fields.collect::<Vec<_>>().join("  ")
}

fn json_of(row: &Row) -> serde_json::Value {
    json!({
        "nodes": row.nodes,
        "groups": row.groups,
        "messages": row.messages,
        "others": row.others,
        "bytes": row.bytes,
        "bytes_per_peer": row.bytes_per_peer,
        "events": row.events,
        "batches": row.batches,
    })
}
