//! Lock rows: a peek, a read that decides, an update that compares first.
//!
//! A read that decides also says what became of updates whose answers were lost
//! ([`crate::unresolved`]). Where such an update might still come, the read raises the version of
//! the row, with the state that it has; where there is no row, with an empty state, which stands
//! for none from then on.

use crate::driver::{Named, What, nonsense};
use crate::poll::Polls;
use crate::store::{CassandraStore, Inner, row_key};
use bytes::Bytes;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_protocol::base::KeyId;
use scylla::statement::prepared::PreparedStatement;
use std::time::{Duration, Instant};

const PEEK: What = What::Reads("the peek at the lock row");
const READ: What = What::Reads("the read of the lock row");
const SETTLE: What = What::Reads("the settling of an earlier update of the lock row");
const SWAP: What = What::Writes("the update of the lock row");

impl Inner {
    /// The row as it is kept.
    async fn kept(
        &self,
        what: What,
        statement: &PreparedStatement,
        key: &Bytes,
    ) -> Result<Option<Row>, StoreError> {
        match self.run(what, statement, (key,)).await? {
            None => Ok(None),
            Some(row) => row_of(row).map(Some),
        }
    }

    async fn peek(&self, key: &Bytes) -> Result<Option<Row>, StoreError> {
        let begun = Instant::now();
        let row = self.kept(PEEK, &self.statements.peek, key).await?;
        self.note_peek(begun.elapsed());
        Ok(shown(row))
    }

    /// Reads to decide, and stops lost updates of the key from being applied later.
    async fn decide(&self, key: &Bytes) -> Result<Option<Row>, StoreError> {
        let Some(lost) = self.unresolved.of(key) else {
            return self
                .kept(READ, &self.statements.decide, key)
                .await
                .map(shown);
        };
        let mut row = self.kept(SETTLE, &self.statements.resolve, key).await?;
        if row.as_ref().map(|row| row.version.0) <= lost {
            row = Some(self.raise(key, row).await?);
        }
        self.unresolved
            .seen(key, row.as_ref().map(|row| row.version.0));
        Ok(shown(row))
    }

    /// Gives the row a higher version, unless somebody else does.
    async fn raise(&self, key: &Bytes, row: Option<Row>) -> Result<Row, StoreError> {
        let (expected, state) = match row {
            Some(row) => (Some(row.version), row.state),
            None => (None, Bytes::new()),
        };
        match self.swap(SETTLE, key, expected, state.clone()).await? {
            Swapped::Applied(version) => Ok(Row { version, state }),
            Swapped::Refused(Some(row)) => Ok(row),
            Swapped::Refused(None) => Err(nonsense(SETTLE, "a row has vanished")),
        }
    }

    /// S1 or S2, on the row as it is kept.
    async fn swap(
        &self,
        what: What,
        key: &Bytes,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        let (insert, update) = (&self.statements.insert, &self.statements.update);
        let (new, answer) = match expected {
            None => (Version(1), self.run(what, insert, (key, state)).await?),
            Some(old) => {
                let new = Version(old.0 + 1);
                (
                    new,
                    self.run(what, update, (new.0, state, key, old.0)).await?,
                )
            }
        };
        let mut answer = answer.ok_or_else(|| nonsense(what, "it is empty"))?;
        if answer.applied(what)? {
            return Ok(Swapped::Applied(new));
        }
        // An absent row that refuses S2 says nothing but that it was not applied.
        Ok(Swapped::Refused(row_of(answer).ok()))
    }
}

/// The row as its readers know it: none, where only its version was raised before there was one.
fn shown(row: Option<Row>) -> Option<Row> {
    row.filter(|row| !row.state.is_empty())
}

/// The row of an answer. A row without a version, or without a state, is none that S1 and S2 leave.
fn row_of(mut row: Named) -> Result<Row, StoreError> {
    match (row.number("v"), row.blob("s")) {
        (Some(version), Some(state)) => Ok(Row {
            version: Version(version),
            state,
        }),
        _ => Err(StoreError::Refused(
            "the lock row has lost its state: something else has written the table lock, with a \
             time to live or a delete, and the key cannot be locked any more"
                .to_owned(),
        )),
    }
}

impl LockStore for CassandraStore {
    async fn peek(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.inner.peek(&row_key(key)).await
    }

    async fn read(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.inner.decide(&row_key(key)).await
    }

    async fn swap(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        if state.is_empty() {
            return Err(StoreError::Refused(
                "the update of the lock row was refused: an empty state stands for no row"
                    .to_owned(),
            ));
        }
        if let Some(other) = self.inner.unresolved.surplus()
            && let Err(error) = self.inner.decide(&other).await
        {
            return Err(StoreError::Refused(format!(
                "the update of the lock row was refused: too many earlier updates are without \
                 answers ({error})"
            )));
        }
        let key = row_key(key);
        let mut pending = self
            .inner
            .unresolved
            .begin(&key, expected.map(|version| version.0));
        let mut swapped = self.inner.swap(SWAP, &key, expected, state.clone()).await;
        if expected.is_none()
            && let Ok(Swapped::Refused(Some(Row {
                version,
                state: found,
            }))) = &swapped
            && found.is_empty()
        {
            let version = *version;
            pending.expects(version.0);
            swapped = self.inner.swap(SWAP, &key, Some(version), state).await;
        }
        match &swapped {
            Ok(Swapped::Applied(version)) => pending.answered(Some(version.0)),
            Ok(Swapped::Refused(row)) => pending.answered(row.as_ref().map(|row| row.version.0)),
            Err(StoreError::Refused(_)) => pending.answered(None),
            Err(StoreError::Unknown(_)) => drop(pending),
        }
        swapped.map(|swapped| match swapped {
            Swapped::Refused(row) => Swapped::Refused(shown(row)),
            applied => applied,
        })
    }

    async fn changed(&self, key: &KeyId, seen: Option<Version>, patience: Duration) {
        let key = row_key(key);
        let seen = seen.map(|version| version.0);
        let mut polls = Polls::new(self.inner.peek_time());
        let watch = async {
            loop {
                let found = if polls.is_refresh() {
                    self.inner
                        .kept(PEEK, &self.inner.statements.refresh, &key)
                        .await
                        .map(shown)
                } else {
                    self.inner.peek(&key).await
                };
                // The nearest replica may be behind `seen`: only a later version is news.
                if let Ok(row) = found
                    && row.map(|row| row.version.0) > seen
                {
                    return;
                }
                tokio::time::sleep(polls.pause()).await;
            }
        };
        // Nothing lost: whoever waited peeks, or reads, whatever ended the wait.
        let _ = tokio::time::timeout(patience, watch).await;
    }

    async fn health(&self) -> Result<(), String> {
        self.inner.quorum(&self.inner.statements.resolve).await
    }

    fn describe(&self) -> String {
        self.inner.about()
    }
}
