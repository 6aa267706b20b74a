//! What a node refuses to start on, and with which exit status its process ends.

use crate::common::{Session, TestCluster, write};
use fermata_server::{Listeners, Medium, StartError, run, run_on};
use fermata_storage::{MemDisk, Options};
use std::future::pending;
use std::sync::Arc;

/// Why a node of this configuration does not start.
async fn refusal(config: &fermata_server::ServerConfig) -> (u8, String) {
    let error = run(config.clone(), pending()).await.unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "more than one line: {line}");
    (error.exit_code(), line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_not_this_nodes_is_refused() {
    let mut cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let config = cluster.configs[0].clone();
    // A second process: other ports, the same directory.
    let mut second = config.clone();
    for listen in [
        &mut second.listen_peer,
        &mut second.listen_grpc,
        &mut second.listen_rest,
    ] {
        *listen = Some("127.0.0.1:0".into());
    }
    let (code, line) = refusal(&second).await;
    assert!(code == 3 && line.contains("in use"), "{code}: {line}");
    // The same ports.
    let (code, line) = refusal(&config).await;
    assert!(
        code == 4 && line.contains("cannot listen on"),
        "{code}: {line}"
    );
    cluster.stop(0).await;
    // Another cluster, another node, another version.
    let mut other = config.clone();
    other.cluster.as_mut().unwrap().id = format!("{:032x}", 0xff);
    let (code, line) = refusal(&other).await;
    assert!(
        code == 3 && line.contains("belongs to cluster"),
        "{code}: {line}"
    );
    let mut other = config.clone();
    other.cluster.as_mut().unwrap().nodes[0].name = 7;
    let (code, line) = refusal(&other).await;
    assert!(
        code == 3 && line.contains("belongs to node 1"),
        "{code}: {line}"
    );
    let file = config.data_dir.join("identity.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let [version, later] = [0, 1].map(|by| fermata_protocol::wire::VERSION + by);
    let of = |version| format!("version = {version}");
    std::fs::write(&file, text.replace(&of(version), &of(later))).unwrap();
    let (code, line) = refusal(&config).await;
    assert!(
        code == 3 && line.contains(&format!("format version {later}")),
        "{code}: {line}"
    );
    std::fs::write(&file, "not toml at all [").unwrap();
    let (code, line) = refusal(&config).await;
    assert!(code == 3 && line.contains("unreadable"), "{code}: {line}");
    std::fs::write(&file, text).unwrap();
    // The log is gone, or all of the store.
    for entry in std::fs::read_dir(config.data_dir.join("store")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("wal-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let (code, line) = refusal(&config).await;
    assert!(code == 3, "{code}: {line}");
    std::fs::remove_dir_all(config.data_dir.join("store")).unwrap();
    let (code, line) = refusal(&config).await;
    assert!(
        code == 3 && line.contains("lost its contents"),
        "{code}: {line}"
    );
    // A wrong configuration comes before everything.
    let mut wrong = config.clone();
    wrong.node = "nobody".into();
    assert_eq!(refusal(&wrong).await.0, 2);
    let mut wrong = config;
    wrong.rtt = "/nowhere/at/all".into();
    assert_eq!(refusal(&wrong).await.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_disk_that_rejoins_is_refused_by_the_cluster() {
    let mut cluster = TestCluster::start(3).await;
    let mut client = cluster.client(0).await;
    cluster.client(1).await;
    cluster.client(2).await;
    let mut session = Session::new(31);
    write(&mut client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    cluster.stop(2).await;
    std::fs::remove_dir_all(&cluster.configs[2].data_dir).unwrap();
    for _ in 0..2 {
        // Again and again: it is no way in to try once more.
        let error = loop {
            cluster.restart(2).await;
            let error = cluster.ended(2).await;
            // In one process the last start's threads may hold the directory for a moment more.
            if !error.to_string().contains("is in use") {
                break error;
            }
        };
        let line = error.to_string();
        assert_eq!(error.exit_code(), 5, "{line}");
        assert!(
            line.contains("knows n3 with another data directory") && !line.contains('\n'),
            "{line}"
        );
    }
    write(&mut client, &mut session, "k", b"w".to_vec())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_directory_is_refused_while_its_original_is_heard() {
    let mut cluster = TestCluster::start(3).await;
    let mut client = cluster.client(0).await;
    cluster.client(1).await;
    cluster.client(2).await;
    let mut session = Session::new(32);
    write(&mut client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    cluster.stop(2).await;
    let dir = tempfile::tempdir().unwrap();
    let original = cluster.configs[2].data_dir.clone();
    for folder in ["", "store"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(original.join(folder)).unwrap() {
            let from = entry.unwrap().path();
            let to = dir.path().join(folder).join(from.file_name().unwrap());
            if from.is_file() {
                std::fs::copy(from, to).unwrap();
            }
        }
    }
    cluster.restart(2).await;
    cluster.client(2).await;
    let mut copy = cluster.configs[2].clone();
    copy.data_dir = dir.path().to_owned();
    for listen in [
        &mut copy.listen_peer,
        &mut copy.listen_grpc,
        &mut copy.listen_rest,
    ] {
        *listen = Some("127.0.0.1:0".into());
    }
    let (code, line) = refusal(&copy).await;
    assert!(
        code == 5 && line.contains("hears another process under this node's identity"),
        "{code}: {line}"
    );
    let refused = cluster.metric(0, "fermata_frames_refused_total").await;
    assert!(refused + cluster.metric(1, "fermata_frames_refused_total").await > 0.0);
    write(&mut client, &mut session, "k", b"w".to_vec())
        .await
        .unwrap();
    // The original was never disturbed.
    let mut third = cluster.client(2).await;
    let mut session = Session::new(33);
    write(&mut third, &mut session, "k", b"x".to_vec())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_at_the_first_start_is_told() {
    let mut started = TestCluster::start(1).await;
    started.client(0).await;
    started.stop(0).await;
    let dir = tempfile::tempdir().unwrap();
    for full in [true, false] {
        let mut config = started.configs[0].clone();
        config.data_dir = dir.path().join(format!("{full}"));
        let disk = MemDisk::new();
        if full {
            disk.set_full(true);
        } else {
            disk.fail_after(Some(3));
        }
        let medium = Medium {
            disk: Arc::new(disk),
            options: Options::default(),
        };
        let resolved = config.resolve().unwrap();
        let listeners = Listeners::bind(&resolved).await.unwrap();
        let error = run_on(resolved, listeners, Some(medium), pending()).await;
        assert!(matches!(error, Err(StartError::Data(_))), "{error:?}");
    }
}
