//! Rows that expire: `ttl` of a write.
//!
//! **Problem.** A row is not to be seen after its time, on whatever engine, and not to come back:
//! not by a replica that was away, nor by a repair. And what nobody sees takes no space for ever.
//!
//! **Idea.** When a column is over is part of the unit's own value, beside the column
//! ([`rows`](super::rows)): whoever reads leaves out what is over, and whoever writes does not
//! write it again. So nothing has to happen at that time, and no older copy can say otherwise. What
//! is over and never touched again is *due* under a key of its own, which begins with the time;
//! each node looks for such keys once in a while, and takes out of their units what is over, in a
//! section of its own.
//!
//! **Clocks.** As in CQL, the time is by the wall clock of the node that was asked, and is compared
//! with that of whoever is asked later: clocks that differ make it as much longer or shorter.

use super::answers::Failure;
use super::rows;
use super::schema::Table;
use super::store::MusicStore;
use bytes::Bytes;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(super) type Millis = u64;

/// The longest time, in seconds: twenty years, as in CQL.
const TTL_MAX: u64 = 20 * 365 * 86_400;
/// Rows that are over within so long are looked for together.
const SPAN: Millis = 10_000;
/// How often a node looks.
const LOOK: Duration = Duration::from_secs(15);
/// Keys of what is due begin so; no other key does.
const DUE: &[u8] = b"x\0";

/// The wall clock.
pub(super) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as Millis)
}

/// When what a body writes is over: by its `ttl`, in seconds; none or 0: never.
///
/// # Errors
/// It is no such number.
pub(super) fn of(body: &Map<String, Value>) -> Result<Option<Millis>, Failure> {
    let given = body.get("ttl").unwrap_or(&Value::Null);
    match super::lenient::number(given) {
        Ok(None | Some(0)) => Ok(None),
        Ok(Some(seconds)) if seconds <= TTL_MAX => Ok(Some(now() + seconds * 1_000)),
        _ => Err(Failure::error(format!(
            "Invalid ttl {given}: whole seconds, 0 to {TTL_MAX}. Nothing was written"
        ))),
    }
}

/// The key under which a unit is due: in the span after that in which it is over.
fn due_key(until: Millis, unit: &[u8]) -> Bytes {
    let span = format!("{:016x}\0", until / SPAN + 1);
    [DUE, span.as_bytes(), unit].concat().into()
}

/// The span and the unit of a key of what is due.
fn due(key: &Bytes) -> Option<(u64, Bytes)> {
    let rest = key.strip_prefix(DUE)?;
    let (span, unit) = rest.split_at_checked(17)?;
    let span = u64::from_str_radix(str::from_utf8(&span[..16]).ok()?, 16).ok()?;
    Some((span, Bytes::copy_from_slice(unit)))
}

/// Notes, before it is written, that something of a unit is over then.
///
/// # Errors
/// It could not be noted, and nothing is to be written.
pub(super) async fn note(
    store: &MusicStore,
    table: &Table,
    unit: &[u8],
    until: Millis,
) -> Result<(), Failure> {
    let key = store.key(due_key(until, unit)).await?;
    // What is over is taken out without the table, which may be gone by then.
    let columns = serde_json::to_vec(&table.key).unwrap_or_default();
    Ok(store.put(key, Some(columns.into())).await?)
}

/// Takes out what is over, for as long as the node runs.
pub(super) async fn sweep(store: Arc<MusicStore>) {
    loop {
        tokio::time::sleep(LOOK).await;
        // Who cannot be asked now is asked again.
        let _later = take_out(&store).await;
    }
}

/// Takes out of their units what is due.
async fn take_out(store: &Arc<MusicStore>) -> Result<(), Failure> {
    if !store.exists().await? {
        return Ok(());
    }
    let (prefix, mut after) = (Bytes::from_static(DUE), None);
    loop {
        let (page, more) = store.page(&prefix, after).await?;
        for key in &page {
            match due(key) {
                Some((span, _)) if span > now() / SPAN => return Ok(()),
                Some((_, unit)) => {
                    // Somebody holds it, or cannot be asked: it stays due.
                    let _later = take_out_of(store, key, unit).await;
                }
                None => {}
            }
        }
        after = page.last().cloned();
        if !more || after.is_none() {
            return Ok(());
        }
    }
}

async fn take_out_of(store: &MusicStore, due: &Bytes, unit: Bytes) -> Result<(), Failure> {
    let noted = store.key(due.clone()).await?;
    let Some(columns) = store.get(noted.clone()).await? else {
        return Ok(()); // Another node has done it.
    };
    let columns: Vec<String> = serde_json::from_slice(&columns).unwrap_or_default();
    let own = store.enter(store.key(unit).await?).await?;
    let before = own.value.clone();
    let left = rows::decode(before.as_ref(), &columns, now()).map(|rows| {
        let left = rows::encode(&rows);
        (left != before).then_some(left)
    });
    own.end(left).await?;
    Ok(store.put(noted, None).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(ttl: Value) -> Map<String, Value> {
        [("ttl".to_owned(), ttl)].into_iter().collect()
    }

    #[test]
    fn a_ttl_is_whole_seconds_in_any_form() {
        for none in [json!(null), json!(""), json!(0), json!("0")] {
            assert_eq!(of(&body(none)).unwrap(), None);
        }
        for ten in [json!(10), json!("10"), json!(" 10 ")] {
            let left = of(&body(ten)).unwrap().unwrap() - now();
            assert!((9_000..=10_000).contains(&left), "{left}");
        }
        for wrong in [
            json!(-1),
            json!("soon"),
            json!(1.5),
            json!(TTL_MAX + 1),
            json!([]),
        ] {
            assert!(of(&body(wrong)).is_err());
        }
    }

    #[test]
    fn what_is_due_comes_in_the_order_of_its_time_and_never_early() {
        let keys = [1, SPAN - 1, SPAN, 7 * SPAN, 1 << 42].map(|until| due_key(until, b"r\0unit"));
        assert!(keys.is_sorted());
        for (key, until) in keys.iter().zip([1, SPAN - 1, SPAN, 7 * SPAN, 1 << 42]) {
            let (span, unit) = due(key).unwrap();
            assert_eq!(unit, &b"r\0unit"[..]);
            assert!(span * SPAN > until && span * SPAN <= until + SPAN);
        }
        assert_eq!(due(&Bytes::from_static(b"x\0short")), None);
    }
}
