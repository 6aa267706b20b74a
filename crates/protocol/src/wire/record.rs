//! Keys of durable records. One ordered space of bytes holds everything; the first byte says what:
//!
//! ```text
//! n <name>                                             the node's own: registry, catalogue
//! l <group 16> <scope 1+4> <epoch 8> <kind 1> [slot 8]  a replica of a log
//! r <segment 4> <epoch 8> <kind 1> <address 8> <keyspace 4> <key>  a record of a key's registers
//! s <segment 4> <epoch 8>                              a register store that is not open any more
//! f <segment 4> <epoch 8>                              the floor under which keys were removed
//! p <node 2>                                           the eventual puts taken from a node
//! t <group 16> <scope 1+4>                             the epoch up to which no log is created
//! v <segment 4> <part 1> <key>                         a record of a segment's state
//! ```
//!
//! Numbers are big-endian, so that order in bytes is order in numbers. A key's registers are a
//! small head with all tags and the fence, and one record for each content. So a
//! fence or an eventual put never rewrites a large critical value, and a store's keys can be listed
//! from the heads alone, which lie together.

use crate::base::{
    Address, Epoch, GroupId, KeyId, KeyspaceId, LogId, NodeName, Scope, SegmentId, Slot,
};
use crate::io::Memory;
use crate::register::StoreId;
use crate::wire;
use alloc::vec::Vec;
use bytes::Bytes;

/// What a log record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogRecord {
    /// That the log exists, with what it was created from.
    Created = 0,
    /// The acceptor's promise.
    Promise = 1,
    /// An accepted slot.
    Accepted = 2,
    /// The state after a slot; everything up to it is truncated.
    Snapshot = 3,
}

/// A record of the node itself.
pub fn node(name: &str) -> Bytes {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(b'n');
    key.extend_from_slice(name.as_bytes());
    key.into()
}

/// The range of all log records of this node.
pub fn all_logs() -> (Bytes, Bytes) {
    (Bytes::from_static(b"l"), Bytes::from_static(b"m"))
}

fn log_prefix(log: LogId) -> Vec<u8> {
    let mut key = Vec::with_capacity(40);
    key.push(b'l');
    key.extend_from_slice(&log.group.0.to_be_bytes());
    match log.scope {
        Scope::Group => key.extend_from_slice(&[0; 5]),
        Scope::Segment(segment) => {
            key.push(1);
            key.extend_from_slice(&segment.0.to_be_bytes());
        }
    }
    key.extend_from_slice(&log.epoch.0.to_be_bytes());
    key
}

/// A log record that exists once per log.
pub fn log(log: LogId, kind: LogRecord) -> Bytes {
    let mut key = log_prefix(log);
    key.push(kind as u8);
    key.into()
}

/// The record of an accepted slot.
pub fn accepted(log: LogId, slot: Slot) -> Bytes {
    let mut key = log_prefix(log);
    key.push(LogRecord::Accepted as u8);
    key.extend_from_slice(&slot.0.to_be_bytes());
    key.into()
}

/// The epochs in which this node has a log of `scope`, lowest first.
pub fn epochs(group: GroupId, scope: Scope, memory: &dyn Memory) -> Vec<Epoch> {
    let mut found = Vec::new();
    let mut epoch = Epoch(0);
    loop {
        let from = log_prefix(LogId {
            group,
            scope,
            epoch,
        });
        let to = log_prefix(LogId {
            group,
            scope,
            epoch: Epoch(u64::MAX),
        });
        let Some((key, _)) = memory.scan(&from, &to, 1).pop() else {
            return found;
        };
        let Some(number) = key.get(22..30).and_then(|b| <[u8; 8]>::try_from(b).ok()) else {
            return found;
        };
        epoch = Epoch(u64::from_be_bytes(number));
        found.push(epoch);
        epoch = epoch.next();
    }
}

/// All logs of this node, each once, in order.
pub fn logs(memory: &dyn Memory) -> Vec<LogId> {
    let (mut from, to) = all_logs();
    let mut found = Vec::new();
    while let Some((key, _)) = memory.scan(&from, &to, 1).pop() {
        let Some(id) = log_of(&key) else {
            return found;
        };
        found.push(id);
        let mut next = log_prefix(id);
        next.push(u8::MAX);
        from = next.into();
    }
    found
}

/// The log that a record belongs to.
fn log_of(record: &[u8]) -> Option<LogId> {
    let group: [u8; 16] = record.get(1..17)?.try_into().ok()?;
    let segment: [u8; 4] = record.get(18..22)?.try_into().ok()?;
    let epoch: [u8; 8] = record.get(22..30)?.try_into().ok()?;
    Some(LogId {
        group: GroupId(u128::from_be_bytes(group)),
        scope: match record.get(17)? {
            0 => Scope::Group,
            _ => Scope::Segment(SegmentId(u32::from_be_bytes(segment))),
        },
        epoch: Epoch(u64::from_be_bytes(epoch)),
    })
}

/// Up to which epoch no log of the scope of `id` is created here. Logs of a segment are of one
/// history, whichever group has them.
pub fn retired(id: LogId) -> Bytes {
    let group = match id.scope {
        Scope::Group => id.group,
        Scope::Segment(_) => GroupId::META,
    };
    let mut key = log_prefix(LogId { group, ..id });
    key[0] = b't';
    key.truncate(22);
    key.into()
}

/// All such notes, each with some log of the scope.
pub fn all_retired(memory: &dyn Memory) -> Vec<(LogId, Epoch)> {
    let (mut from, to) = (Bytes::from_static(b"t"), Bytes::from_static(b"u"));
    let mut found = Vec::new();
    while let Some((key, value)) = memory.scan(&from, &to, 1).pop() {
        let mut padded = key.to_vec();
        padded.resize(30, 0);
        // A note that is damaged forbids every log of its scope.
        let epoch = value.ok().and_then(|bytes| wire::decode(&bytes).ok());
        if let Some(id) = log_of(&padded) {
            found.push((id, epoch.unwrap_or(Epoch(u64::MAX))));
        }
        let mut next = key.to_vec();
        next.push(0);
        from = next.into();
    }
    found
}

/// The slot of an accepted-slot key.
pub fn slot_of(key: &[u8]) -> Option<Slot> {
    let tail: [u8; 8] = key.get(key.len().checked_sub(8)?..)?.try_into().ok()?;
    Some(Slot(u64::from_be_bytes(tail)))
}

fn store_prefix(store: StoreId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(b'r');
    key.extend_from_slice(&store.segment.0.to_be_bytes());
    key.extend_from_slice(&store.epoch.0.to_be_bytes());
    key
}

/// What a register record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellRecord {
    /// Tags, digests and fence.
    Head,
    /// The content of the eventual cell.
    Eventual,
    /// The content of one version of the critical or register cell; the head says which is where.
    Version(u8),
}

impl CellRecord {
    fn code(self) -> u8 {
        match self {
            CellRecord::Head => 0,
            CellRecord::Eventual => 1,
            CellRecord::Version(slot) => 2 + slot.min(u8::MAX - 3),
        }
    }
}

/// One record of one key's registers.
pub fn cell(store: StoreId, kind: CellRecord, address: Address, key: &KeyId) -> Bytes {
    let mut out = store_prefix(store);
    out.push(kind.code());
    out.extend_from_slice(&address.0.to_be_bytes());
    out.extend_from_slice(&key.keyspace.0.to_be_bytes());
    out.extend_from_slice(&key.key);
    out.into()
}

/// All stores of registers of which there is a record, in order.
pub fn stores(memory: &dyn Memory) -> Vec<StoreId> {
    let (mut from, to) = (Bytes::from_static(b"r"), Bytes::from_static(b"s"));
    let mut found = Vec::new();
    while let Some((key, _)) = memory.scan(&from, &to, 1).pop() {
        let Some(store) = store_of(&key) else {
            return found;
        };
        found.push(store);
        from = cells(store).1;
    }
    found
}

/// The range of all register records of one store: what is deleted with it.
pub fn cells(store: StoreId) -> (Bytes, Bytes) {
    let from = store_prefix(store);
    let mut to = from.clone();
    to.push(0xff);
    (from.into(), to.into())
}

/// The range of the records of one kind in one store, in address order.
pub fn cells_of(store: StoreId, kind: CellRecord) -> (Bytes, Bytes) {
    let mut from = store_prefix(store);
    let mut to = from.clone();
    from.push(kind.code());
    to.push(kind.code() + 1);
    (from.into(), to.into())
}

/// The address in the key of a register record.
pub fn address_of(cell: &[u8]) -> Option<Address> {
    let address: [u8; 8] = cell.get(14..22)?.try_into().ok()?;
    Some(Address(u64::from_be_bytes(address)))
}

/// The status of a register store: outside the range that is deleted with it.
pub fn status(store: StoreId) -> Bytes {
    let mut key = store_prefix(store);
    key[0] = b's';
    key.into()
}

/// The floor under which a register store's deleted keys were removed.
pub fn buried(store: StoreId) -> Bytes {
    let mut key = store_prefix(store);
    key[0] = b'f';
    key.into()
}

/// The range of all such floors of this node.
pub fn all_buried() -> (Bytes, Bytes) {
    (Bytes::from_static(b"f"), Bytes::from_static(b"g"))
}

/// The range of all statuses of register stores of this node.
pub fn all_statuses() -> (Bytes, Bytes) {
    (Bytes::from_static(b"s"), Bytes::from_static(b"t"))
}

/// The store that a status, or a register record, is of.
pub fn store_of(record: &[u8]) -> Option<StoreId> {
    let segment: [u8; 4] = record.get(1..5)?.try_into().ok()?;
    let epoch: [u8; 8] = record.get(5..13)?.try_into().ok()?;
    Some(StoreId {
        segment: SegmentId(u32::from_be_bytes(segment)),
        epoch: Epoch(u64::from_be_bytes(epoch)),
    })
}

/// The first of a segment's parts that hold what its log orders. Before it are how far they are
/// here, and which names were changed by which command.
pub const FIRST_PART: u8 = 2;
const STANDING: u8 = 0;
const CHANGED: u8 = 1;

fn parts_prefix(segment: SegmentId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(b'v');
    key.extend_from_slice(&segment.0.to_be_bytes());
    key
}

/// The lowest name of a record of a segment's state.
pub fn first_part() -> Bytes {
    Bytes::from_static(&[FIRST_PART])
}

/// A record of a segment's state. Its name is the part, and the key in it.
pub fn part(segment: SegmentId, name: &[u8]) -> Bytes {
    let mut key = parts_prefix(segment);
    key.extend_from_slice(name);
    key.into()
}

/// The range of all of them.
pub fn parts(segment: SegmentId) -> (Bytes, Bytes) {
    (part(segment, &[FIRST_PART]), all_parts(segment).1)
}

/// The same, with what is noted of them.
pub fn all_parts(segment: SegmentId) -> (Bytes, Bytes) {
    let to = match segment.0.checked_add(1) {
        Some(next) => parts_prefix(SegmentId(next)),
        None => Vec::from([b'v' + 1]),
    };
    (parts_prefix(segment).into(), to.into())
}

/// The name of a record of a segment's state.
pub fn name_of(part: &[u8]) -> Bytes {
    Bytes::copy_from_slice(part.get(5..).unwrap_or_default())
}

/// How far the records of a segment are here.
pub fn standing(segment: SegmentId) -> Bytes {
    part(segment, &[STANDING])
}

/// The name of the record that a command has changed as its `n`th.
pub fn changed(segment: SegmentId, position: u64, n: u32) -> Bytes {
    let mut key = parts_prefix(segment);
    key.push(CHANGED);
    key.extend_from_slice(&position.to_be_bytes());
    key.extend_from_slice(&n.to_be_bytes());
    key.into()
}

/// The range of what was changed after the `n`th change of a command.
pub fn changed_since(segment: SegmentId, (position, n): (u64, u32)) -> (Bytes, Bytes) {
    let mut from = changed(segment, position, n).to_vec();
    from.push(0);
    (from.into(), part(segment, &[FIRST_PART]))
}

/// The range of what commands up to this position have changed.
pub fn changed_through(segment: SegmentId, position: u64) -> (Bytes, Bytes) {
    let to = changed_since(segment, (position, u32::MAX)).0;
    (part(segment, &[CHANGED]), to)
}

/// The command's number in the key of a change, and which of its changes it is.
pub fn mark_of(changed: &[u8]) -> Option<(u64, u32)> {
    let position: [u8; 8] = changed.get(6..14)?.try_into().ok()?;
    let n: [u8; 4] = changed.get(14..18)?.try_into().ok()?;
    Some((u64::from_be_bytes(position), u32::from_be_bytes(n)))
}

/// The segments of whose state there are records.
pub fn segments_with_parts(memory: &dyn Memory) -> Vec<SegmentId> {
    let (mut from, to) = (Bytes::from_static(b"v"), Bytes::from_static(b"w"));
    let mut found = Vec::new();
    while let Some((key, _)) = memory.scan(&from, &to, 1).pop() {
        let Some(segment) = key.get(1..5).and_then(|b| <[u8; 4]>::try_from(b).ok()) else {
            return found;
        };
        let segment = SegmentId(u32::from_be_bytes(segment));
        found.push(segment);
        from = all_parts(segment).1;
    }
    found
}

/// Which eventual puts were taken from `node`.
pub fn taken(node: NodeName) -> Bytes {
    let [a, b, c, d] = node.0.to_be_bytes();
    Bytes::copy_from_slice(&[b'p', a, b, c, d])
}

/// The key that a register record belongs to.
pub fn key_of(cell: &[u8]) -> Option<KeyId> {
    let keyspace: [u8; 4] = cell.get(22..26)?.try_into().ok()?;
    Some(KeyId {
        keyspace: KeyspaceId(u32::from_be_bytes(keyspace)),
        key: Bytes::copy_from_slice(cell.get(26..)?),
    })
}
