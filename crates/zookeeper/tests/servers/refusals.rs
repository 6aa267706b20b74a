//! What start-up refuses, one sentence each.

use crate::common::{TIMEOUT, alone, beside, fresh, servers};
use fermata_engine::LockStore;
use fermata_peers::{Cluster, Spec, System, testable};
use fermata_zookeeper::{Settings, ZookeeperStore};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use zookeeper_client::{Acls, Client, CreateMode};

async fn refusal(servers: &[String], root: &str, timeout: Duration) -> String {
    let settings = Settings {
        servers: servers.to_vec(),
        root: root.to_owned(),
        timeout,
        tls: None,
    };
    match ZookeeperStore::connect(settings).await {
        Ok(store) => panic!("not refused: {}", store.describe()),
        Err(why) => {
            assert!(!why.contains('\n'), "one sentence: {why}");
            why
        }
    }
}

/// Something that answers a server's commands like this, and cuts everything else.
async fn says(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut word = [0; 4];
            if stream.read_exact(&mut word).await.is_ok() && &word == b"srvr" {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn nobody_there() {
    // Bound and gone: nobody listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap().to_string();
    drop(gone);
    let why = refusal(&[address], "/fermata", TIMEOUT).await;
    assert!(why.contains("no ZooKeeper server can be reached"), "{why}");
}

#[tokio::test]
async fn too_old() {
    let old = says("Zookeeper version: 3.4.14-4c25d48, built on 03/06/2019\nMode: leader\n").await;
    let new = says("Zookeeper version: 3.9.5-293c895, built on 2026\nMode: follower\n").await;
    let why = refusal(&[new, old], "/fermata", TIMEOUT).await;
    assert!(why.contains("is version 3.4.14; 3.5 or later"), "{why}");
}

#[tokio::test]
async fn no_quorum_says_the_server_itself() {
    let idle = says("This ZooKeeper instance is not currently serving requests\n").await;
    let why = refusal(std::slice::from_ref(&idle), "/fermata", TIMEOUT).await;
    assert!(
        why.contains("have no quorum") && why.contains(&idle),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_quorum_for_real() {
    let Some(ensemble) = alone().await else {
        return;
    };
    for node in [1, 2] {
        ensemble.cluster.kill_node(node).unwrap();
    }
    let why = refusal(&ensemble.servers, "/fermata", Duration::from_secs(8)).await;
    // The tests after this one need them, whatever was said.
    for node in [1, 2] {
        ensemble.cluster.start_node(node).unwrap();
    }
    assert!(why.contains("have no quorum"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_others_own() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let client = Client::connect(&servers[0]).await.unwrap();
    let closed = CreateMode::Persistent.with_acls(Acls::anyone_read());
    let root = fresh("closed");
    client.create(&root, b"", &closed).await.unwrap();
    for root in [&root, &format!("{root}/below")] {
        let why = refusal(servers, root, TIMEOUT).await;
        assert!(why.contains("cannot be written (not authorized)"), "{why}");
        assert!(why.contains(root), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_that_would_not_fit() {
    if !testable(System::Zookeeper) {
        return;
    }
    let mut spec = Spec::new(System::Zookeeper, 1).with("-Djute.maxbuffer", "65536");
    spec.quick = true;
    let cluster = Cluster::start(&spec).expect("a server starts");
    let why = refusal(&servers(&cluster), "/fermata", TIMEOUT).await;
    assert!(why.contains("jute.maxbuffer"), "{why}");
}
