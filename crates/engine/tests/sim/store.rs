//! The two stores of the engine, as one node of one incarnation reaches them.

use crate::world::{Call, Cell, Column, Leg, Row as Cells_, SITES, Step, World, merge};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use fermata_engine::cells::{Critical, Eventual};
use fermata_engine::scalar::Scalar;
use fermata_engine::{Cells, DataStore, LockStore, Page, Row, StoreError, Swapped, Version};
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// One node's way to the replicas.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) world: Arc<World>,
    pub(crate) node: usize,
    pub(crate) incarnation: u64,
    /// Whether a refused compare-and-set tells the present row: Cassandra does, `ZooKeeper` does
    /// not.
    pub(crate) tells: bool,
    /// Keys with compare-and-sets of unknown outcome, and the highest version that one expects.
    pub(crate) lost: Arc<Mutex<BTreeMap<KeyId, Option<i64>>>>,
}

fn unknown(what: &str) -> StoreError {
    StoreError::Unknown(format!("{what} was not answered in time"))
}

fn row_of(row: Option<&Cells_>) -> Option<Row> {
    let (_, bytes) = row?.get(&Column::Lock)?;
    let mut bytes = bytes.clone()?;
    let version = Version(bytes.get_i64());
    Some(Row {
        version,
        state: bytes,
    })
}

/// Whether it is a row to its readers: one of which only the version was raised is none.
fn shown(row: &Row) -> bool {
    !row.state.is_empty()
}

fn row_bytes(row: &Row) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i64(row.version.0);
    bytes.put_slice(&row.state);
    bytes.freeze()
}

impl SimStore {
    /// Replicas, the nearest first.
    fn nearest(&self) -> [usize; SITES] {
        [[0, 1, 2], [1, 2, 0], [2, 1, 0]][self.node]
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<KeyId, Option<i64>>> {
        self.lost.lock().expect("no holder of this lock panics")
    }

    /// One compare-and-set of the row as it is kept; none: its outcome is unknown.
    async fn exchange(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> Option<Swapped> {
        self.world
            .decide(Call::Swap, self.node, key, |row, ballot| {
                let present = row_of(Some(row));
                if present.as_ref().map(|r| r.version) != expected {
                    return (Swapped::Refused(present), Vec::new());
                }
                let version = Version(expected.map_or(0, |v| v.0) + 1);
                let bytes = row_bytes(&Row { version, state });
                let change = (Column::Lock, (ballot, Some(bytes)));
                (Swapped::Applied(version), vec![change])
            })
            .await
    }

    /// Gives the row a higher version with the state that it has, unless somebody else does: then a
    /// lost compare-and-set can come no more.
    async fn raise(&self, key: &KeyId, row: Option<Row>) -> Option<Option<Row>> {
        let expected = row.as_ref().map(|row| row.version);
        let state = row.map(|row| row.state).unwrap_or_default();
        match self.exchange(key, expected, state.clone()).await? {
            Swapped::Applied(version) => Some(Some(Row { version, state })),
            Swapped::Refused(row) => Some(row),
        }
    }

    pub(crate) async fn turn(&self, call: Call, step: Step, key: &KeyId) {
        let leg = Leg {
            call,
            step,
            node: self.node,
            peer: self.node,
            key: Some(key.clone()),
        };
        self.world.turn(self.incarnation, leg).await;
    }

    /// The key's cells at the nearest replica that answers.
    pub(crate) async fn near(&self, call: Call, key: &KeyId) -> Option<Cells_> {
        for replica in self.nearest() {
            let at = key.clone();
            let answers = self
                .world
                .ask_some(call, self.node, key, &[replica], move |r| {
                    r.rows.get(&at).cloned().unwrap_or_default()
                });
            let patience = Duration::from_millis(500);
            let answer = tokio::time::timeout(patience, World::gather(answers, 1)).await;
            if let Ok(Some(answer)) = answer {
                return answer.into_iter().next().map(|(_, row)| row);
            }
        }
        None
    }

    /// The columns at a quorum; what differs between those that answered is written back to them
    /// before it is returned (read repair: blocking).
    pub(crate) async fn quorum(&self, key: &KeyId, columns: fn(&Column) -> bool) -> Option<Cells_> {
        let at = key.clone();
        let asked = self.world.ask(Call::DataRead, self.node, key, move |r| {
            let row = r.rows.get(&at).cloned().unwrap_or_default();
            row.into_iter().filter(|(c, _)| columns(c)).collect()
        });
        let answers: Vec<(usize, Cells_)> = World::gather(asked, 2).await?;
        let mut whole = Cells_::new();
        for (_, row) in &answers {
            row.iter()
                .for_each(|(column, cell)| merge(&mut whole, *column, cell));
        }
        let stale: Vec<usize> = answers
            .iter()
            .filter(|a| a.1 != whole)
            .map(|a| a.0)
            .collect();
        if !stale.is_empty() {
            let (at, cells) = (key.clone(), whole.clone());
            let written = self
                .world
                .ask_some(Call::Repair, self.node, key, &stale, move |r| {
                    let row = r.rows.entry(at.clone()).or_default();
                    cells
                        .iter()
                        .for_each(|(column, cell)| merge(row, *column, cell));
                });
            World::gather(written, stale.len()).await?;
        }
        Some(whole)
    }

    /// Writes at all, waits for `enough`.
    pub(crate) async fn put(
        &self,
        call: Call,
        key: &KeyId,
        cells: Vec<(Column, Cell)>,
        enough: usize,
    ) -> Option<()> {
        let at = key.clone();
        let written = self.world.ask(call, self.node, key, move |r| {
            let row = r.rows.entry(at.clone()).or_default();
            cells
                .iter()
                .for_each(|(column, cell)| merge(row, *column, cell));
        });
        World::gather(written, enough).await.map(|_| ())
    }
}

impl LockStore for SimStore {
    async fn peek(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.turn(Call::Peek, Step::Begin, key).await;
        let row = self.near(Call::Peek, key).await;
        self.turn(Call::Peek, Step::End, key).await;
        Ok(row_of(Some(&row.ok_or_else(|| unknown("the peek"))?)).filter(shown))
    }

    async fn read(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.turn(Call::Read, Step::Begin, key).await;
        let lost = self.lost().get(key).copied();
        let read = self
            .world
            .decide(Call::Read, self.node, key, |row, _| {
                (row_of(Some(row)), Vec::new())
            })
            .await;
        let read = match (read, lost) {
            (Some(row), Some(lost)) if row.as_ref().map(|r| r.version.0) <= lost => {
                self.raise(key, row).await
            }
            (read, _) => read,
        };
        if let Some(row) = &read {
            let version = row.as_ref().map(|row| row.version.0);
            self.lost().retain(|k, lost| k != key || version <= *lost);
        }
        self.turn(Call::Read, Step::End, key).await;
        Ok(read
            .ok_or_else(|| unknown("the deciding read"))?
            .filter(shown))
    }

    async fn swap(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        self.turn(Call::Swap, Step::Begin, key).await;
        let mut expected = expected;
        let mut swapped = self.exchange(key, expected, state.clone()).await;
        if expected.is_none()
            && let Some(Swapped::Refused(Some(row))) = &swapped
            && !shown(row)
        {
            // No row for its readers, but its version counts.
            expected = Some(row.version);
            swapped = self.exchange(key, expected, state).await;
        }
        if swapped.is_none() {
            let mut lost = self.lost();
            let known = lost.entry(key.clone()).or_default();
            *known = (*known).max(expected.map(|version| version.0));
        }
        self.turn(Call::Swap, Step::End, key).await;
        let swapped = swapped.ok_or_else(|| unknown("the compare-and-set"))?;
        Ok(match swapped {
            Swapped::Refused(row) => Swapped::Refused(row.filter(|r| self.tells && shown(r))),
            applied => applied,
        })
    }

    async fn changed(&self, key: &KeyId, seen: Option<Version>, patience: Duration) {
        self.turn(Call::Changed, Step::Begin, key).await;
        let wait = self.world.row_changes(self.node, key, |row| {
            row_of(row).filter(shown).map(|r| r.version) == seen
        });
        // What may have changed is all that is told.
        let _ = tokio::time::timeout(patience, wait).await;
        self.turn(Call::Changed, Step::End, key).await;
    }

    async fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> String {
        "simulated".into()
    }
}

fn ours(column: &Column) -> bool {
    matches!(column, Column::Critical | Column::Eventual)
}

fn cells_of(row: &Cells_) -> Result<Cells, StoreError> {
    let bytes = |column| match row.get(&column) {
        Some((time, Some(bytes))) => Some((*time, bytes.clone())),
        _ => None,
    };
    let malformed = |_| StoreError::Refused("a cell is malformed".into());
    let critical = match bytes(Column::Critical) {
        Some((time, b)) => Some((
            Scalar::from_raw(time),
            Critical::decode(&b).map_err(malformed)?,
        )),
        None => None,
    };
    let eventual = match bytes(Column::Eventual) {
        Some((_, b)) => Some(Eventual::decode(&b).map_err(malformed)?),
        None => None,
    };
    Ok(Cells { critical, eventual })
}

impl DataStore for SimStore {
    async fn read(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.turn(Call::DataRead, Step::Begin, key).await;
        let row = self.quorum(key, ours).await;
        self.turn(Call::DataRead, Step::End, key).await;
        cells_of(&row.ok_or_else(|| unknown("the quorum read"))?)
    }

    async fn read_near(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.turn(Call::DataNear, Step::Begin, key).await;
        let row = self.near(Call::DataNear, key).await;
        self.turn(Call::DataNear, Step::End, key).await;
        cells_of(&row.ok_or_else(|| unknown("the read near by"))?)
    }

    async fn write(&self, key: &KeyId, scalar: Scalar, value: &Critical) -> Result<(), StoreError> {
        self.turn(Call::Write, Step::Begin, key).await;
        let cell = (Column::Critical, (scalar.get(), Some(value.encode())));
        let written = self.put(Call::Write, key, vec![cell], 2).await;
        self.turn(Call::Write, Step::End, key).await;
        written.ok_or_else(|| unknown("the quorum write"))
    }

    async fn offer(&self, key: &KeyId, value: &Eventual) -> Result<(), StoreError> {
        self.turn(Call::Offer, Step::Begin, key).await;
        let cell = (
            Column::Eventual,
            (value.tag.clock as i64, Some(value.encode())),
        );
        let written = self.put(Call::Offer, key, vec![cell], 1).await;
        self.turn(Call::Offer, Step::End, key).await;
        written.ok_or_else(|| unknown("the write near by"))
    }

    async fn keys(
        &self,
        keyspace: KeyspaceId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let any = KeyId {
            keyspace,
            key: Bytes::new(),
        };
        self.turn(Call::Keys, Step::Begin, &any).await;
        let asked = self
            .world
            .ask_some(Call::Keys, self.node, &any, &[self.node], |r| {
                r.rows.clone()
            });
        let rows: BTreeMap<KeyId, Cells_> = match World::gather(asked, 1).await {
            Some(answers) => answers
                .into_iter()
                .map(|(_, rows)| rows)
                .next()
                .unwrap_or_default(),
            None => return Err(unknown("the listing")),
        };
        self.turn(Call::Keys, Step::End, &any).await;
        let mut page = Page::default();
        for (key, row) in rows {
            let after = after.is_none_or(|after| &key.key[..] > after);
            if key.keyspace == keyspace
                && key.key.starts_with(prefix)
                && after
                && row.keys().any(ours)
                && page.keys.len() < limit
            {
                page.keys.push((key.key, cells_of(&row)?));
            }
        }
        Ok(page)
    }

    async fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> String {
        "simulated".into()
    }
}
