//! Data cells: stamped writes, so that the highest scalar wins at every replica.
//!
//! **Listings.** Cassandra keeps rows in the order of a hash of their keys, so the lowest keys of a
//! keyspace are found by reading the whole table, page by page, and keeping the lowest. That is
//! what it costs: listings are for people and for small tables. Memory is bounded by a page and by
//! what is returned; the rows of a page are fewer where they are large.

use crate::driver::{Named, What, rows, store_error};
use crate::store::{CassandraStore, Inner, key_of, row_key};
use bytes::Bytes;
use fermata_engine::cells::{Critical, Eventual};
use fermata_engine::scalar::Scalar;
use fermata_engine::{Cells, DataStore, Page, StoreError};
use fermata_protocol::base::{KeyId, KeyspaceId};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::prepared::PreparedStatement;
use std::collections::BTreeMap;

const READ: What = What::Reads("the read of the data row");
const SCAN: What = What::Reads("the scan of the data table");
const PUT: What = What::Writes("the critical write");
const OFFER: What = What::Writes("the eventual write");

/// What a page of a listing should weigh, in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Rows of the first page, before it is known how much rows weigh.
const PAGE_FIRST: usize = 64;
/// Rows of the smallest and of the largest page.
const PAGE_ROWS: (usize, usize) = (8, 5_000);

impl Inner {
    async fn cells(&self, statement: &PreparedStatement, key: &KeyId) -> Result<Cells, StoreError> {
        match self.run(READ, statement, (row_key(key),)).await? {
            None => Ok(Cells::default()),
            Some(row) => cells_of(row),
        }
    }
}

/// The cells of a row.
fn cells_of(mut row: Named) -> Result<Cells, StoreError> {
    let malformed = |cell: &str| {
        StoreError::Refused(format!(
            "the {cell} cell of the key is none that was written here: something else has written \
             the table data"
        ))
    };
    let critical = match (row.blob("c"), row.number("stamp")) {
        (None, _) => None,
        (Some(_), None) => return Err(malformed("critical")),
        (Some(bytes), Some(stamp)) => {
            let cell = Critical::decode(&bytes).map_err(|_| malformed("critical"))?;
            Some((Scalar::from_raw(stamp), cell))
        }
    };
    let eventual = match row.blob("e") {
        None => None,
        Some(bytes) => Some(Eventual::decode(&bytes).map_err(|_| malformed("eventual"))?),
    };
    Ok(Cells { critical, eventual })
}

/// Whether there may be a value: of one cell at least, which of them counts is not decided here.
fn may_have_value(cells: &Cells) -> bool {
    let critical = cells
        .critical
        .as_ref()
        .is_some_and(|(_, cell)| cell.value.is_some());
    let eventual = cells
        .eventual
        .as_ref()
        .is_some_and(|cell| cell.value.is_some());
    critical || eventual
}

/// The lowest keys so far of a listing.
struct Lowest<'a> {
    keyspace: KeyspaceId,
    prefix: &'a [u8],
    after: Option<&'a [u8]>,
    limit: usize,
    found: BTreeMap<Bytes, Cells>,
}

impl Lowest<'_> {
    fn wants(&self, key: &Bytes) -> bool {
        key.starts_with(self.prefix)
            && self.after.is_none_or(|after| key[..] > *after)
            && (self.found.len() < self.limit
                || self
                    .found
                    .last_key_value()
                    .is_some_and(|(last, _)| key < last))
    }

    fn offer(&mut self, mut row: Named) -> Result<(), StoreError> {
        let row_key = row.blob("k").unwrap_or_default();
        let Some(key) = key_of(&row_key, self.keyspace).filter(|key| self.wants(key)) else {
            return Ok(());
        };
        let cells = cells_of(row)?;
        if may_have_value(&cells) {
            self.found.insert(key, cells);
            if self.found.len() > self.limit {
                self.found.pop_last();
            }
        }
        Ok(())
    }
}

impl DataStore for CassandraStore {
    async fn read(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.inner.cells(&self.inner.statements.get, key).await
    }

    async fn read_near(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.inner.cells(&self.inner.statements.get_near, key).await
    }

    async fn write(&self, key: &KeyId, scalar: Scalar, value: &Critical) -> Result<(), StoreError> {
        let values = (scalar.get(), value.encode(), row_key(key));
        self.inner
            .run(PUT, &self.inner.statements.put, values)
            .await
            .map(drop)
    }

    async fn offer(&self, key: &KeyId, value: &Eventual) -> Result<(), StoreError> {
        let clock = i64::try_from(value.tag.clock).map_err(|_| {
            StoreError::Refused(
                "the eventual write was refused: its clock is beyond what Cassandra can stamp"
                    .to_owned(),
            )
        })?;
        let values = (clock, value.encode(), row_key(key));
        self.inner
            .run(OFFER, &self.inner.statements.offer, values)
            .await
            .map(drop)
    }

    async fn keys(
        &self,
        keyspace: KeyspaceId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut lowest = Lowest {
            keyspace,
            prefix,
            after,
            limit,
            found: BTreeMap::new(),
        };
        if limit == 0 {
            return Ok(Page::default());
        }
        let mut scan = self.inner.statements.scan.clone();
        let mut page_rows = PAGE_FIRST;
        let mut state = PagingState::start();
        loop {
            scan.set_page_size(i32::try_from(page_rows).unwrap_or(i32::MAX));
            let page = self
                .inner
                .session
                .execute_single_page(&scan, (), state)
                .await;
            let (page, next) = page.map_err(|error| store_error(SCAN, &error))?;
            let page = rows(SCAN, page)?;
            page_rows = next_page(page.len(), page.iter().map(Named::weight).sum());
            for row in page {
                lowest.offer(row)?;
            }
            match next {
                PagingStateResponse::HasMorePages { state: next } => state = next,
                PagingStateResponse::NoMorePages => break,
            }
        }
        Ok(Page {
            keys: lowest.found.into_iter().collect(),
        })
    }

    async fn health(&self) -> Result<(), String> {
        self.inner.quorum(&self.inner.statements.get).await
    }

    fn describe(&self) -> String {
        self.inner.about()
    }
}

/// How many rows to ask for next, after so many that weighed so much.
fn next_page(rows: usize, weight: usize) -> usize {
    let each = weight.div_ceil(rows.max(1)).max(1);
    (PAGE_BYTES / each).clamp(PAGE_ROWS.0, PAGE_ROWS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_long_as_their_rows_are_light() {
        assert_eq!(next_page(64, 64 << 20), PAGE_ROWS.0);
        assert_eq!(next_page(64, 64 << 10), 1_024);
        assert_eq!(next_page(64, 64), PAGE_ROWS.1);
        assert_eq!(next_page(0, 0), PAGE_ROWS.1);
    }
}
