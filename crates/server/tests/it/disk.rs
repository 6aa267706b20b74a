//! Disks that are full, that fail, that rot, that lose power.

use crate::common::{
    Choice, Client, Session, TestCluster, enter, eventually, key, read, register, write,
};
use crate::quota::Quota;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use fermata_server::Medium;
use fermata_server::config::TimingConfig;
use fermata_storage::{Disk, MemDisk, Options};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A small layout, so that segments and checkpoints come often.
const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    checkpoint_bytes: 256 << 10,
    verify_table: true,
};

/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(3);

fn medium(disk: Arc<dyn Disk>) -> Medium {
    Medium {
        disk,
        options: SMALL,
    }
}

/// A cluster whose nodes at `disks` keep their stores there.
async fn start_over(n: u32, disks: Vec<Arc<dyn Disk>>) -> TestCluster {
    let media: HashMap<usize, Medium> = disks.into_iter().map(medium).enumerate().collect();
    // What cannot be done is given up soon, and a repair begins soon.
    let timing = TimingConfig {
        request_ms: Some(REQUEST.as_millis() as u64),
        ..TimingConfig::default()
    };
    let choice = Choice {
        media,
        timing,
        ..Choice::default()
    };
    TestCluster::start_with(n, choice).await
}

fn code(status: &tonic::Status) -> Code {
    errors::from_status(status).code
}

/// Fills the registers until the node has no space; returns what was acknowledged.
async fn fill(client: &mut Client, session: &mut Session) -> HashMap<String, Vec<u8>> {
    let mut acknowledged = HashMap::new();
    for i in 0.. {
        let (name, value) = (format!("f{}", i % 40), vec![i as u8; 20_000]);
        match write(client, session, &name, value.clone()).await {
            Ok(()) => {
                acknowledged.insert(name, value);
            }
            Err(status) => {
                assert_eq!(code(&status), Code::DiskFull, "{status}");
                // It may have been stored all the same.
                acknowledged.remove(&name);
                return acknowledged;
            }
        }
    }
    unreachable!("no disk is so large");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_reads_on_refuses_writes_and_recovers() {
    let quota = Quota::new(u64::MAX);
    let mut cluster = start_over(1, vec![Arc::new(quota.clone())]).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(51);
    let held = enter(&mut client, &mut session, "s").await.unwrap().keys[0]
        .held
        .clone();
    let put = |session: &mut Session, sequence| v1::CriticalPutRequest {
        header: session.header(),
        held: held.clone(),
        sequence,
        value: Some(sequence.to_string().into()),
        leave: vec![],
    };
    client.critical_put(put(&mut session, 1)).await.unwrap();
    for round in 2..4 {
        quota.fill();
        let acknowledged = fill(&mut client, &mut session).await;
        eventually!(cluster.metric(0, "fermata_disk_writable").await == 0.0);
        // Writes are refused, each by name, whatever their kind; reads go on.
        let unsaved = cluster.metric(0, "fermata_unsaved_bytes").await;
        for _ in 0..20 {
            let refused = write(&mut client, &mut session, "w", vec![1; 1_000]).await;
            assert_eq!(code(&refused.unwrap_err()), Code::DiskFull);
            for (name, value) in acknowledged.iter().take(3) {
                assert_eq!(
                    read(&mut client, &mut session, name).await.as_ref(),
                    Some(value)
                );
            }
        }
        let refused = client
            .critical_put(put(&mut session, round))
            .await
            .unwrap_err();
        assert_eq!(code(&refused), Code::DiskFull, "{refused}");
        let get = v1::CriticalGetRequest {
            header: session.header(),
            held: held.clone(),
        };
        let value = client.critical_get(get).await.unwrap().into_inner().value;
        assert_eq!(value.unwrap(), (round - 1).to_string());
        let status = v1::StatusRequest {
            header: session.header(),
        };
        assert!(!client.status(status).await.unwrap().into_inner().writable);
        // Nothing piled up.
        assert_eq!(
            cluster.metric(0, "fermata_outputs_awaiting_flush").await,
            0.0
        );
        assert!(cluster.metric(0, "fermata_unsaved_bytes").await < unsaved + 300_000.0);
        quota.set_limit(u64::MAX);
        eventually!(write(&mut client, &mut session, "w", vec![2]).await.is_ok());
        client.critical_put(put(&mut session, round)).await.unwrap();
        assert_eq!(cluster.metric(0, "fermata_disk_writable").await, 1.0);
        cluster.kill(0).await;
        cluster.restart(0).await;
        client = cluster.client(0).await;
        for (name, value) in &acknowledged {
            assert_eq!(
                read(&mut client, &mut session, name).await.as_ref(),
                Some(value)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_descriptors_refuses_writes_and_goes_on() {
    let disk = Arc::new(MemDisk::new());
    let cluster = start_over(1, vec![disk.clone()]).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(57);
    write(&mut client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    disk.set_crowded(true);
    // The segment that is open has room for some.
    let mut more = async || write(&mut client, &mut session, "f", vec![1; 20_000]).await;
    while more().await.is_ok() {}
    eventually!(cluster.metric(0, "fermata_disk_writable").await == 0.0);
    assert_eq!(read(&mut client, &mut session, "k").await.unwrap(), b"v");
    disk.set_crowded(false);
    eventually!(
        write(&mut client, &mut session, "k", b"w".to_vec())
            .await
            .is_ok()
    );
    assert_eq!(cluster.metric(0, "fermata_disk_writable").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_on_a_full_disk_reads() {
    let quota = Quota::new(u64::MAX);
    let mut cluster = start_over(1, vec![Arc::new(quota.clone())]).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(52);
    write(&mut client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    cluster.kill(0).await;
    quota.disk_without("reserve");
    quota.fill();
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    eventually!(cluster.metric(0, "fermata_disk_writable").await == 0.0);
    assert_eq!(read(&mut client, &mut session, "k").await.unwrap(), b"v");
    let refused = write(&mut client, &mut session, "k", b"w".to_vec()).await;
    assert_eq!(code(&refused.unwrap_err()), Code::DiskFull);
    quota.set_limit(u64::MAX);
    eventually!(
        write(&mut client, &mut session, "k", b"w".to_vec())
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_log_harms_one_node_only_and_nothing_piles_up() {
    let disk = Arc::new(MemDisk::new());
    let cluster = start_over(3, vec![disk.clone()]).await;
    let mut stuck = cluster.client(0).await;
    let mut client = cluster.client(1).await;
    cluster.client(2).await;
    let mut session = Session::new(53);
    write(&mut client, &mut session, "k0", b"v".to_vec())
        .await
        .unwrap();
    // No reserve helps here: nothing at all can grow.
    disk.set_full(true);
    for i in 0..120 {
        let value = vec![i as u8; 20_000];
        let name = format!("k{}", i % 8);
        eventually!(
            write(&mut client, &mut session, &name, value.clone())
                .await
                .is_ok()
        );
    }
    eventually!(cluster.metric(0, "fermata_disk_writable").await == 0.0);
    let unsaved = cluster.metric(0, "fermata_unsaved_bytes").await;
    for i in 0..50 {
        let value = vec![i as u8; 20_000];
        write(&mut client, &mut session, "k1", value.clone())
            .await
            .unwrap();
        assert_eq!(read(&mut stuck, &mut session, "k1").await.unwrap(), value);
    }
    assert!(cluster.metric(0, "fermata_unsaved_bytes").await < unsaved + 500_000.0);
    disk.set_full(false);
    eventually!(cluster.metric(0, "fermata_disk_writable").await == 1.0);
    eventually!(
        write(&mut stuck, &mut session, "k1", b"again".to_vec())
            .await
            .is_ok()
    );
    assert_eq!(
        read(&mut client, &mut session, "k1").await.unwrap(),
        b"again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_power_loss_at_any_change() {
    let mut disk = Arc::new(MemDisk::new());
    let mut cluster = start_over(1, vec![disk.clone()]).await;
    let mut session = Session::new(54);
    let mut acknowledged: HashMap<String, u64> = HashMap::new();
    let mut next = 1u64;
    for seed in 0..8 {
        let mut client = cluster.client(0).await;
        // What was tried and not acknowledged may have been stored.
        for (name, at_least) in &acknowledged {
            let found = read(&mut client, &mut session, name).await.unwrap();
            let found: u64 = String::from_utf8(found).unwrap().parse().unwrap();
            assert!(
                found >= *at_least,
                "{name} is {found}, was {at_least}, seed {seed}"
            );
        }
        disk.fail_after(Some(5 + 11 * seed));
        loop {
            let name = format!("k{}", next % 7);
            if write(
                &mut client,
                &mut session,
                &name,
                next.to_string().into_bytes(),
            )
            .await
            .is_err()
            {
                next += 1;
                break;
            }
            acknowledged.insert(name, next);
            next += 1;
        }
        let error = cluster.ended(0).await;
        assert_eq!(error.exit_code(), 5, "{error}");
        let line = error.to_string();
        assert!(
            line.contains("can no longer be trusted") && !line.contains('\n'),
            "{line}"
        );
        disk = Arc::new(disk.crash(seed));
        cluster.media.insert(0, medium(disk.clone()));
        cluster.restart(0).await;
    }
    assert_eq!(acknowledged.len(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_and_sudden_ends_under_load_lose_nothing() {
    let mut disk = Arc::new(MemDisk::new());
    let mut cluster = start_over(1, vec![disk.clone()]).await;
    for seed in 0..3 {
        cluster.client(0).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for writer in 0..4u8 {
            let (mut client, stop) = (cluster.client(0).await, stop.clone());
            writers.push(tokio::spawn(async move {
                let mut session = Session::new(5_500 + u128::from(writer) + 100 * u128::from(seed));
                let mut last = None;
                for i in 0..u64::MAX {
                    let mut value = vec![writer; 8_000];
                    value[..8].copy_from_slice(&(seed << 32 | i).to_be_bytes());
                    let name = format!("c{writer}");
                    if write(&mut client, &mut session, &name, value)
                        .await
                        .is_err()
                    {
                        break;
                    }
                    last = Some(seed << 32 | i);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                last
            }));
        }
        // Several checkpoints' worth.
        eventually!(cluster.metric(0, "fermata_table_bytes").await > 0.0);
        eventually!(cluster.metric(0, "fermata_flushed_records_total").await > 150.0);
        cluster.kill(0).await;
        stop.store(true, Ordering::Relaxed);
        // Its threads, which a process would take with it, may write and answer a moment longer.
        cluster.media.remove(&0);
        while Arc::strong_count(&disk) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        disk = Arc::new(disk.crash(seed));
        cluster.media.insert(0, medium(disk.clone()));
        cluster.restart(0).await;
        let mut client = cluster.client(0).await;
        let mut session = Session::new(5_600 + u128::from(seed));
        for (writer, last) in writers.into_iter().enumerate() {
            let Some(last) = last.await.unwrap() else {
                continue;
            };
            let value = read(&mut client, &mut session, &format!("c{writer}"))
                .await
                .unwrap();
            let found = u64::from_be_bytes(value[..8].try_into().unwrap());
            assert!(found >= last, "writer {writer}: {found:x}, was {last:x}");
        }
    }
}

/// Where `needle` is on the disk.
fn places(disk: &MemDisk, needle: &[u8]) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for name in disk.list().unwrap() {
        let file = disk.open(&name).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        let at = bytes.windows(needle.len()).enumerate();
        let at = at.filter(|(_, window)| *window == needle);
        found.extend(at.map(|(at, _)| (name.clone(), at as u64)));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_value_is_answered_from_the_others_and_repaired() {
    let disk = Arc::new(MemDisk::new());
    let mut cluster = start_over(3, vec![disk.clone()]).await;
    let mut client = cluster.client(0).await;
    cluster.client(1).await;
    cluster.client(2).await;
    let mut session = Session::new(56);
    let value = b"a value that is found on the disk by its bytes".to_vec();
    write(&mut client, &mut session, "k", value.clone())
        .await
        .unwrap();
    let inspect = |session: &mut Session| v1::InspectRequest {
        header: session.header(),
        key: Some(register("k")),
    };
    // A write needs two of three: wait until this one has it.
    let bytes = |i: tonic::Response<v1::Inspection>| i.into_inner().value_bytes;
    let whole = Some(value.len() as u64);
    eventually!(bytes(client.inspect(inspect(&mut session)).await.unwrap()) == whole);
    cluster.stop(0).await;
    let places = places(&disk, &value);
    assert!(!places.is_empty());
    for (file, at) in places {
        disk.corrupt(&file, at + 7);
    }
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    assert!(cluster.metric(0, "fermata_void_records").await >= 1.0);
    assert_eq!(read(&mut client, &mut session, "k").await.unwrap(), value);
    // The repair begins when the answers under way are over, and shows on the disk.
    loop {
        assert_eq!(read(&mut client, &mut session, "k").await.unwrap(), value);
        tokio::time::sleep(2 * REQUEST).await;
        cluster.stop(0).await;
        cluster.restart(0).await;
        client = cluster.client(0).await;
        if cluster.metric(0, "fermata_void_records").await == 0.0 {
            break;
        }
    }
    assert_eq!(read(&mut client, &mut session, "k").await.unwrap(), value);
    let get = v1::GetRequest {
        header: session.header(),
        key: Some(key("never written")),
    };
    assert_eq!(client.get(get).await.unwrap().into_inner().value, None);
}
