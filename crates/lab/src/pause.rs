//! `fermata-lab pause`: how much longer clients wait while a group changes its members.

use fermata_sim::pause::{self, Row};
use serde_json::json;

use crate::{Failure, print};

/// Measures one profile or all.
pub(crate) fn run(as_json: bool, wanted: Option<&str>) -> Result<(), Failure> {
    let profiles = crate::rtt::profiles(wanted)?;
    let rows: Vec<Row> = profiles.into_iter().flat_map(pause::bench).collect();
    if as_json {
        let rows: serde_json::Value = rows.iter().map(json_of).collect();
        return print(format_args!("{rows:#}"));
    }
    print(line([
        "profile",
        "change",
        "operation",
        "steady",
        "across",
        "more",
        "RTTs",
        "failed",
    ]))?;
    for row in &rows {
        let more = row.across - row.steady;
        let ms = |ms: f64| format!("{ms:.1}");
        let rtts = format!("{:.1}", (more - row.death) / row.rtt);
        let (steady, across, more) = (ms(row.steady), ms(row.across), ms(more));
        print(line([
            row.profile,
            row.change,
            row.operation,
            &steady,
            &across,
            &more,
            &rtts,
            &row.failed.to_string(),
        ]))?;
    }
    print(
        "\nVirtual time, in milliseconds: the longest operation before and after the change, and \
         across it. RTTs: what it takes more, and more than the read lease from the last beat on, \
         the pause before an election and the election's two round trips where the primary dies, \
         in round trips from the primary to the nearest other site.",
    )
}

/// A line of the table.
fn line(
    [
        profile,
        change,
        operation,
        steady,
        across,
        more,
        rtts,
        failed,
    ]: [&str; 8],
) -> String {
    let what = format!("{profile:<7}  {change:<22}  {operation:<12}");
    format!("{what}  {steady:>8}  {across:>8}  {more:>8}  {rtts:>6}  {failed:>6}")
}

fn json_of(row: &Row) -> serde_json::Value {
    json!({
        "profile": row.profile,
        "change": row.change,
        "operation": row.operation,
        "steady_ms": row.steady,
        "across_ms": row.across,
        "rtt_ms": row.rtt,
        "death_ms": row.death,
        "failed": row.failed,
    })
}
