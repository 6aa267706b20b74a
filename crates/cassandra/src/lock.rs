//! Lock rows: a peek, a read that decides, an update that compares first.

use crate::driver::{Named, What, nonsense};
use crate::levels::Levels;
use crate::poll::Polls;
use crate::store::{Inner, Store, row_key};
use bytes::Bytes;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_protocol::base::KeyId;
use scylla::statement::prepared::PreparedStatement;
use std::time::{Duration, Instant};

const PEEK: What = What::Reads("the peek at the lock row");
const READ: What = What::Reads("the read of the lock row");
const SWAP: What = What::Writes("the update of the lock row");

impl Inner {
    async fn row(
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
        let row = self.row(PEEK, &self.statements.peek, key).await?;
        self.note_peek(begun.elapsed());
        Ok(row)
    }

    /// Reads to decide: C5's other half, that nothing of what was lost comes later.
    async fn decide(&self, key: &Bytes) -> Result<Option<Row>, StoreError> {
        if self.levels == Levels::V1
            && let Some(token) = self.unresolved.of(key)
        {
            let row = self.row(READ, &self.statements.resolve, key).await?;
            self.unresolved.settled(key, token);
            return Ok(row);
        }
        self.row(READ, &self.statements.decide, key).await
    }

    async fn swap(
        &self,
        key: &Bytes,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        let (insert, update) = (&self.statements.insert, &self.statements.update);
        let (new, answer) = match expected {
            None => (Version(1), self.run(SWAP, insert, (key, state)).await?),
            Some(old) => {
                let new = Version(old.0 + 1);
                (
                    new,
                    self.run(SWAP, update, (new.0, state, key, old.0)).await?,
                )
            }
        };
        let mut answer = answer.ok_or_else(|| nonsense(SWAP, "it is empty"))?;
        if answer.applied(SWAP)? {
            return Ok(Swapped::Applied(new));
        }
        // An absent row that refuses S2 says nothing but that it was not applied.
        Ok(Swapped::Refused(row_of(answer).ok()))
    }
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

impl LockStore for Store {
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
        let key = row_key(key);
        let pending = self.inner.unresolved.begin(&key);
        let swapped = self.inner.swap(&key, expected, state).await;
        if !matches!(swapped, Err(StoreError::Unknown(_))) {
            pending.answered();
        }
        swapped
    }

    async fn changed(&self, key: &KeyId, seen: Option<Version>, patience: Duration) {
        let key = row_key(key);
        let mut polls = Polls::new(self.inner.peek_time());
        let watch = async {
            loop {
                let found = if polls.is_refresh() {
                    self.inner
                        .row(PEEK, &self.inner.statements.refresh, &key)
                        .await
                } else {
                    self.inner.peek(&key).await
                };
                // The nearest replica may be behind `seen`: only a later version is news.
                if let Ok(row) = found
                    && row.map(|row| row.version.0) > seen.map(|seen| seen.0)
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
