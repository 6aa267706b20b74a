//! A few operations as a picture in time, one line each.

use crate::{Action, Ending, Operation};
use std::fmt::Write;

/// Columns of the time axis at most.
const AXIS_MAX: usize = 60;

/// Columns from one event to the next at most.
const STRIDE_MAX: usize = 4;

/// Draws the operations at `places`, in the order given, one line each with a newline. `show`
/// writes a value.
///
/// The axis is not to scale: it has the calls and returns of these operations in their order, and
/// operations overlap in the picture as they did in time. An operation of unknown outcome is open
/// to the right.
///
/// ```text
/// client 1  write "a"  [---]              0..10
/// client 1  write "b"          [---]      20..30
/// client 2  read  "a"                [---]  40..50
/// ```
///
/// # Panics
///
/// If a place is not in `operations`.
pub fn diagram<V>(
    operations: &[Operation<V>],
    places: &[usize],
    show: impl Fn(&V) -> String,
) -> String {
    let chosen: Vec<&Operation<V>> = places.iter().map(|place| &operations[*place]).collect();
    let mut times: Vec<u64> = (chosen.iter())
        .flat_map(|operation| {
            [
                operation.call,
                returned(operation).unwrap_or(operation.call),
            ]
        })
        .collect();
    times.sort_unstable();
    times.dedup();
    let stride = (AXIS_MAX / times.len().max(1)).clamp(1, STRIDE_MAX);
    let column = |time: u64| times.partition_point(|t| *t < time) * stride;
    let axis = (times.len().saturating_sub(1)) * stride + 2;
    let labels: Vec<(String, String)> = (chosen.iter())
        .map(|operation| {
            let client = format!("client {}", operation.client);
            (client, label(&operation.action, &show))
        })
        .collect();
    let width = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let clients = width(&mut labels.iter().map(|label| &label.0));
    let actions = width(&mut labels.iter().map(|label| &label.1));
    let mut text = String::new();
    for (operation, (client, action)) in chosen.iter().zip(&labels) {
        let start = column(operation.call);
        let (bar, end) = match returned(operation) {
            Some(at) if column(at) > start => (column(at) - start - 1, "]"),
            Some(_) => (0, "]"),
            None => (axis.saturating_sub(start + 1), "?"),
        };
        let bar = format!("{}[{}{end}", " ".repeat(start), "-".repeat(bar));
        let until = match returned(operation) {
            Some(at) => at.to_string(),
            None => "?".to_owned(),
        };
        let times = format!("{}..{until}", operation.call);
        let room = axis + 1;
        let line = format!("{client:<clients$}  {action:<actions$}  {bar:<room$} {times}");
        writeln!(text, "{line}").expect("a string takes all");
    }
    text
}

/// None: nobody knows.
fn returned<V>(operation: &Operation<V>) -> Option<u64> {
    match operation.outcome {
        Ending::Ok { returned } => Some(returned),
        Ending::Failed | Ending::Unknown => None,
    }
}

fn label<V>(action: &Action<V>, show: impl Fn(&V) -> String) -> String {
    match action {
        Action::Write(Some(value)) => format!("write {}", show(value)),
        Action::Write(None) => "delete".to_owned(),
        Action::Read(Some(value)) => format!("read  {}", show(value)),
        Action::Read(None) => "read  nothing".to_owned(),
    }
}
