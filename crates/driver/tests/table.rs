//! What a driver does with the table behind the log while nobody asks it anything.

use fermata_driver::{Action, Driver, Event, Shell};
use fermata_protocol::base::{
    Addresses, Cluster, ClusterId, Config, Epoch, Group, GroupId, Incarnation, Limits, LockRef,
    Member, NodeId, NodeInfo, NodeName, Now, Planted, SegmentId, SiteId, Timing, View,
};
use fermata_storage::{Batch, Disk, MemDisk, Options, Store};
use std::sync::Arc;

/// Values of about this many bytes, under names that no node knows.
const VALUE: usize = 1000;

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        checkpoint_bytes: 64 << 10,
        verify_table: false,
    }
}

/// Virtual time, and what the driver wants done.
struct Hands(u64, Vec<Action>);

impl Shell for Hands {
    fn now(&mut self) -> Now {
        Now {
            monotonic: self.0,
            wall: self.0,
            interval: None,
        }
    }

    fn act(&mut self, action: Action) {
        self.1.push(action);
    }
}

/// A cluster of one node.
fn config(name: NodeName) -> Config {
    let site = SiteId(0);
    let seat = Member {
        name,
        site,
        public_key: None,
    };
    let view = View {
        group: GroupId(1),
        epoch: Epoch::FIRST,
        seats: vec![seat],
    };
    Config {
        name,
        cluster: Cluster {
            id: ClusterId(1),
            segment_bits: 0,
            lowest_ref: LockRef(1),
            sites: vec!["one".into()],
            nodes: vec![NodeInfo {
                name,
                label: "n1".into(),
                site,
                addresses: Addresses::default(),
            }],
            groups: vec![Group {
                id: GroupId(1),
                from: SegmentId(0),
                to: SegmentId(0),
                view,
            }],
        },
        timing: Timing::default(),
        limits: Limits::default(),
        formats: fermata_protocol::wire::FORMATS,
        planted: Planted::NONE,
    }
}

/// Does all that is due at a store.
fn settle(store: &mut Store) {
    while let Some(flush) = store.take_flush() {
        store.flushed(flush.run());
    }
    while let Some(checkpoint) = store.take_checkpoint() {
        store.checkpointed(checkpoint.run());
    }
}

/// A store of so many values.
fn filled(disk: &Arc<MemDisk>, values: u32) -> Store {
    let (mut store, _) = Store::open(disk.clone(), options()).expect("opens");
    for number in 0..values {
        let key = format!("\u{ff}{:05}", number * 7919 % 10_007);
        store.append(Batch::new().put(key, vec![number as u8; VALUE]));
        settle(&mut store);
    }
    store
}

/// A driver over a store that was opened again, for so many seconds of virtual time.
fn idle(disk: &Arc<MemDisk>, seconds: u64) -> Result<Driver, String> {
    let (store, _) = Store::open(disk.clone(), options()).expect("opens");
    let name = NodeName(1);
    let id = NodeId {
        name,
        incarnation: Incarnation(1),
    };
    let mut hands = Hands(1_000_000, Vec::new());
    let mut driver = Driver::recover(config(name), id, store, hands.now(), 1)?;
    driver.start(&mut hands)?;
    for _ in 0..seconds * 10 {
        loop {
            while driver.go_on(&mut hands)? {}
            driver.close_round(&mut hands);
            let actions = std::mem::take(&mut hands.1);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                let event = match action {
                    Action::Flush(flush) => Event::Flushed(flush.run()),
                    Action::Checkpoint(checkpoint) => Event::Checkpointed(checkpoint.run()),
                    Action::Raise => Event::Raised(Ok(())),
                    _ => continue,
                };
                driver.handle(event, &mut hands)?;
            }
        }
        hands.0 += 100_000;
    }
    Ok(driver)
}

#[test]
fn the_space_of_what_was_deleted_comes_back_in_a_quiet_hour() {
    let disk = Arc::new(MemDisk::new());
    let mut store = filled(&disk, 1000);
    for number in 0..900_u32 {
        let key = format!("\u{ff}{:05}", number * 7919 % 10_007);
        store.append(Batch::new().delete(key));
    }
    settle(&mut store);
    let full = store.stats().table_bytes;
    drop(store);
    assert!(full > 900 * VALUE as u64, "{full}");
    // Nothing says yet that the hour is quiet.
    let driver = idle(&disk, 5).expect("runs");
    assert_eq!(driver.store().stats().table_bytes, full);
    drop(driver);
    let driver = idle(&disk, 30).expect("runs");
    let left = driver.store().stats().table_bytes;
    assert!(left < 110 * VALUE as u64, "{left} of {full}");
}

#[test]
fn what_a_start_has_not_read_is_read_behind_it() {
    let origin = Arc::new(MemDisk::new());
    drop(filled(&origin, 1000));
    let files = origin.list().expect("lists");
    let file = files.iter().find(|name| name.starts_with("run-"));
    let file = file.expect("there is a table");
    // The first block: keys in its head, then values.
    for (offset, is_void) in [(13, false), (15_000, true)] {
        let disk = Arc::new(origin.as_ref().clone());
        disk.corrupt(file, offset);
        match idle(&disk, 1) {
            Ok(driver) => assert!(is_void && driver.store().stats().void == 1),
            Err(why) => assert!(!is_void && why.contains("damaged keys"), "{why}"),
        }
    }
}
