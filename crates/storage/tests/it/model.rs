//! Random histories against a plain ordered map: whatever happens, the contents are those after a
//! prefix of the batches that holds all durable ones, but for keys whose value was made to rot.

use crate::common::{contents, find, open, small};
use fermata_storage::{Batch, Disk, MemDisk, Op, Options, Persisted, Store, Void};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Values that were made to rot are `None`.
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u8, u8, u8, u16)>),
    Flush,
    Checkpoint,
    Crash(u64),
    Reopen,
    CutFlush(u8, u64),
    Full(bool),
    Rot(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let op = (
        0..6_u8,
        0..12_u8,
        0..12_u8,
        prop_oneof![0..40_u16, 0..3000_u16],
    );
    prop_oneof![
        8 => prop::collection::vec(op, 0..4).prop_map(Step::Append),
        6 => Just(Step::Flush),
        3 => Just(Step::Checkpoint),
        1 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Reopen),
        1 => (0..12_u8, any::<u64>()).prop_map(|(fuse, seed)| Step::CutFlush(fuse, seed)),
        1 => any::<bool>().prop_map(Step::Full),
        1 => any::<u8>().prop_map(Step::Rot),
    ]
}

/// A value that is unlike every other one, so that a test can find and hurt it on the disk.
fn value(serial: u64, len: u16) -> Vec<u8> {
    let mut value = format!("<{serial:08}>").into_bytes();
    value.resize(value.len().max(len as usize), b'0' + (serial % 60) as u8);
    value
}

fn apply(model: &mut Model, batch: &Batch) {
    for op in &batch.0 {
        match op {
            Op::Put { key, value } => {
                model.insert(key.to_vec(), Some(value.to_vec()));
            }
            Op::Delete { key } => {
                model.remove(&key[..]);
            }
            Op::DeleteRange { from, to } => {
                model.retain(|key, _| key[..] < from[..] || (!to.is_empty() && key[..] >= to[..]));
            }
        }
    }
}

/// A store under test, with the state after every batch that can still be the last one.
struct Bench {
    disk: Arc<MemDisk>,
    store: Store,
    options: Options,
    models: BTreeMap<u64, Model>,
    serial: u64,
}

impl Bench {
    fn new(options: Options) -> Self {
        let disk = Arc::new(MemDisk::new());
        let (store, _) = open(&disk, options);
        let models = BTreeMap::from([(0, Model::new())]);
        Self {
            disk,
            store,
            options,
            models,
            serial: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(ops) => self.append(ops),
            Step::Flush => self.flush(),
            Step::Checkpoint => self.checkpoint(),
            Step::Crash(seed) => self.restart(self.disk.crash(*seed)),
            Step::Reopen => self.restart(self.disk.as_ref().clone()),
            Step::CutFlush(fuse, seed) => {
                self.disk.fail_after(Some(u64::from(*fuse)));
                self.flush();
                self.checkpoint();
                // A process that is killed leaves the page cache, a power loss does not.
                let killed = seed % 2 == 0;
                let left = if killed {
                    self.disk.as_ref().clone()
                } else {
                    self.disk.crash(*seed)
                };
                self.restart(left);
            }
            Step::Full(full) => self.disk.set_full(*full),
            Step::Rot(pick) => self.rot(*pick),
        }
        self.check();
    }

    fn append(&mut self, ops: &[(u8, u8, u8, u16)]) {
        let key = |n: u8| format!("k{n:02}").into_bytes();
        let mut batch = Batch::new();
        for (kind, a, b, len) in ops {
            self.serial += 1;
            batch = match kind {
                0 => batch.delete(key(*a)),
                1 => batch.delete_range(key(*a), if *b == 11 { vec![] } else { key(*b) }),
                _ => batch.put(key(*a), value(self.serial, *len)),
            };
        }
        let mut model = self.models[&self.store.last()].clone();
        apply(&mut model, &batch);
        let lsn = self.store.append(batch);
        self.models.insert(lsn, model);
    }

    fn flush(&mut self) {
        if let Some(flush) = self.store.take_flush() {
            let before = self.store.durable();
            let done = flush.run();
            let is_done = matches!(done.outcome(), Persisted::Done);
            self.store.flushed(done);
            assert_eq!(self.store.durable() > before, is_done);
            self.models = self.models.split_off(&self.store.durable());
        }
    }

    fn checkpoint(&mut self) {
        if let Some(checkpoint) = self.store.take_checkpoint() {
            self.store.checkpointed(checkpoint.run());
        }
    }

    fn restart(&mut self, disk: MemDisk) {
        let durable = self.store.durable();
        self.disk = Arc::new(disk);
        self.disk.set_full(false);
        self.disk.fail_after(None);
        let (store, recovery) = open(&self.disk, self.options);
        self.store = store;
        assert!(recovery.last >= durable, "{} < {durable}", recovery.last);
        self.models.split_off(&(recovery.last + 1));
        self.models = self.models.split_off(&recovery.last);
        assert_eq!(
            self.models.len(),
            1,
            "the contents are those after some appended batch"
        );
        let rotten = self.models[&recovery.last]
            .iter()
            .filter(|(_, value)| value.is_none());
        let void = recovery.void.iter().map(|key| key.to_vec());
        assert!(
            void.eq(rotten.map(|(key, _)| key.clone())),
            "{:?}",
            recovery.void
        );
    }

    /// Lets one durable value rot wherever its newest copy lies, then restarts.
    fn rot(&mut self, pick: u8) {
        self.disk.set_full(false);
        for _ in 0..2 {
            self.flush();
        }
        self.restart(self.disk.crash(u64::from(pick)));
        let model = &self.models[&self.store.last()];
        let Some((key, Some(value))) = model.iter().nth(usize::from(pick) % 12) else {
            return;
        };
        let (key, needle) = (key.clone(), value[..10].to_vec());
        for name in self.disk.list().unwrap() {
            let bytes = crate::common::read(&self.disk, &name);
            let hits = bytes.windows(10).filter(|part| *part == needle).count();
            if hits == 1 {
                self.disk.corrupt(&name, find(&self.disk, &name, &needle));
            } else if hits > 1 {
                // Copies in pages that the table has let go of; which one counts is its secret.
                return;
            }
        }
        let (store, recovery) = open(&Arc::new(self.disk.as_ref().clone()), self.options);
        drop(store);
        if recovery.void.iter().any(|void| void[..] == key[..]) {
            self.models
                .get_mut(&self.store.last())
                .unwrap()
                .insert(key, None);
        }
        self.restart(self.disk.as_ref().clone());
    }

    fn check(&self) {
        if self.store.failure().is_some() {
            return;
        }
        let model = &self.models[&self.store.last()];
        let expect: Vec<_> = model.clone().into_iter().collect();
        assert_eq!(contents(&self.store), expect);
        for n in 0..12 {
            let key = format!("k{n:02}").into_bytes();
            match (self.store.get(&key), model.get(&key)) {
                (Err(Void), Some(None)) | (Ok(None), None) => {}
                (Ok(Some(got)), Some(Some(value))) => assert_eq!(&got[..], &value[..]),
                (got, expected) => panic!("{got:?} instead of {expected:?}"),
            }
        }
        let bounds = (
            Bound::Included(b"k03".to_vec()),
            Bound::Excluded(b"k08".to_vec()),
        );
        let part: Vec<_> = self
            .store
            .scan(b"k03", b"k08")
            .map(|(key, _)| key.to_vec())
            .collect();
        assert_eq!(
            part,
            model
                .range(bounds)
                .map(|(key, _)| key.clone())
                .collect::<Vec<_>>()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_is_a_durable_map(
        steps in prop::collection::vec(step(), 1..60),
        often in any::<bool>(),
    ) {
        let checkpoint_bytes = if often { 500 } else { small().checkpoint_bytes };
        let mut bench = Bench::new(Options { checkpoint_bytes, ..small() });
        for step in &steps {
            bench.step(step);
        }
    }
}
