//! Rows that expire: `ttl` of a write.
//!
//! **Problem.** A row is not to be seen after its time, on whatever engine, and not to come back:
//! not by a replica that was away, nor by a repair. And what nobody sees takes no space for ever.
//!
//! **Idea.** When a column is over is part of the unit's own value, beside the column
//! ([`rows`](super::rows)): whoever reads leaves out what is over, and whoever writes does not
//! write it again. So nothing has to happen at that time, and no older copy can say otherwise.
//!
//! What is over and not touched again is taken out by the nodes that have written or read it: each
//! remembers which units have something that expires ([`Due`]), looks at its nearest copy a while
//! after that time, and writes what is left of the unit in a section of its own, if nobody holds or
//! waits for its key. Nothing is searched for. Where all who would remember have started again, the
//! bytes stay until somebody reads the row, or lists its table.
//!
//! **Clocks.** As in CQL, the time is by the wall clock of the node that was asked, and is compared
//! with that of whoever is asked later: clocks that differ make it as much longer or shorter.

use super::answers::Failure;
use super::rows;
use super::store::MusicStore;
use bytes::Bytes;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Milliseconds since 1970.
pub(super) type Millis = u64;

/// The longest time, in seconds: twenty years, as in CQL.
const TTL_MAX: u64 = 20 * 365 * 86_400;
/// What is over is left for so long: an eventual put that sets it anew has arrived everywhere by
/// then, where nobody is cut off, and clocks differ by less.
const GRACE: Millis = 30_000;
/// How often a node looks.
const LOOK: Duration = Duration::from_secs(10);
/// Units that are looked at together.
const LOOKED_AT: usize = 32;
/// Units that are remembered, and bytes of their keys. What is more is not.
const UNITS_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 16 << 20;

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

/// Units in which something expires.
#[derive(Default)]
pub(super) struct Due(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    units: BTreeMap<Bytes, Note>,
    bytes: usize,
}

/// What is remembered of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// When the first of it is over.
    until: Millis,
    /// The key columns of its table.
    key: Vec<String>,
}

impl Due {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that something of a unit is over then.
    pub(super) fn note(&self, unit: &Bytes, key: &[String], until: Millis) {
        let mut notes = self.notes();
        if let Some(note) = notes.units.get_mut(unit) {
            note.until = note.until.min(until);
            return;
        }
        if notes.units.len() < UNITS_MAX && notes.bytes + unit.len() <= BYTES_MAX {
            notes.bytes += unit.len();
            let key = key.to_vec();
            notes.units.insert(unit.clone(), Note { until, key });
        }
    }

    /// The units of which something was over at a time; they are remembered no more.
    fn take(&self, at: Millis) -> Vec<(Bytes, Note)> {
        let mut notes = self.notes();
        let all = std::mem::take(&mut notes.units);
        let (over, left) = all.into_iter().partition(|(_, note)| note.until <= at);
        notes.units = left;
        let over: BTreeMap<Bytes, Note> = over;
        notes.bytes -= over.keys().map(Bytes::len).sum::<usize>();
        over.into_iter().collect()
    }
}

/// Takes out what is over, for as long as the node runs.
pub(super) async fn sweep(store: Arc<MusicStore>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let due = store.due.take(now().saturating_sub(GRACE));
        for some in due.chunks(LOOKED_AT) {
            let mut looks = JoinSet::new();
            for (unit, note) in some.iter().cloned() {
                let store = store.clone();
                looks.spawn(async move {
                    let left = take_out(&store, &unit, &note.key).await;
                    // Who cannot be asked now, or is held, is looked at again: not at once.
                    let until = left.unwrap_or_else(|_| Some(now()));
                    if let Some(until) = until {
                        store.due.note(&unit, &note.key, until);
                    }
                });
            }
            while looks.join_next().await.is_some() {}
        }
    }
}

/// Takes out of a unit what is over, if it is so for long; when the first of the rest is.
///
/// # Errors
/// It cannot be asked now, or somebody holds it.
async fn take_out(
    store: &MusicStore,
    unit: &Bytes,
    key: &[String],
) -> Result<Option<Millis>, Failure> {
    let id = store.key(unit.clone()).await?;
    let seen = store.get(id.clone()).await?;
    match rows::earliest(seen.as_ref()) {
        None => return Ok(None),
        Some(until) if until > now().saturating_sub(GRACE) => return Ok(Some(until)),
        Some(_) => {}
    }
    let own = store.enter_free(id).await?;
    let before = own.value.clone();
    let left = rows::decode(before.as_ref(), key, now()).map(|rows| rows::encode(&rows));
    let until = left
        .as_ref()
        .ok()
        .and_then(|left| rows::earliest(left.as_ref()));
    own.end(left.map(|left| (left != before).then_some(left)))
        .await?;
    Ok(until)
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
            let until = of(&body(ten)).unwrap().unwrap();
            assert!(until > now(), "{until}");
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
    fn what_is_due_is_remembered_once_and_within_bounds() {
        let (due, key) = (Due::default(), ["k".to_owned()]);
        let unit = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        due.note(&unit("a"), &key, 7);
        due.note(&unit("a"), &key, 5);
        due.note(&unit("a"), &key, 9);
        due.note(&unit("b"), &key, 6);
        let taken = |at| -> Vec<Bytes> { due.take(at).into_iter().map(|(unit, _)| unit).collect() };
        assert!(taken(4).is_empty());
        assert_eq!(taken(5), [unit("a")]);
        assert_eq!(taken(9), [unit("b")]);
        assert_eq!(due.notes().bytes, 0);
        let long = "x".repeat(BYTES_MAX - 1);
        due.note(&unit(&long), &key, 1);
        due.note(&unit("cd"), &key, 1);
        due.note(&unit("e"), &key, 1);
        assert_eq!(taken(1), [unit("e"), unit(&long)]);
        for at in 0..=UNITS_MAX {
            due.note(&unit(&at.to_string()), &key, 1);
        }
        assert_eq!(due.notes().units.len(), UNITS_MAX);
        assert_eq!(due.take(1).len(), UNITS_MAX);
    }
}
