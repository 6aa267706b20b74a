//! Keyspaces with coded values, where many write at once.

use crate::common::{Choice, Client, Session, TestCluster};
use fermata_api::{errors, v1};
use fermata_server::config::TimingConfig;

fn hot() -> v1::Key {
    v1::Key {
        keyspace: "hot".into(),
        key: "k".into(),
    }
}

/// Writes of one client, one after the other; what was not simply done.
async fn writes(mut client: Client, id: u128) -> Vec<String> {
    let mut session = Session::new(id);
    let mut odd = Vec::new();
    for round in 0..4_u8 {
        let write = v1::WriteRequest {
            header: session.header(),
            key: Some(hot()),
            value: Some(vec![round; 4_096].into()),
        };
        if let Err(status) = client.write(write).await {
            let refusal = errors::from_status(&status);
            let unsure = refusal.may_have_taken_effect;
            odd.push(format!("{:?} {unsure} {}", refusal.code, refusal.detail));
        }
    }
    odd
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_of_one_key_where_members_keep_one_wait_for_each_other() {
    // Whoever waits for its turn waits for that of fifteen others, on a machine that may be slow.
    let timing = TimingConfig {
        request_ms: Some(120_000),
        ..TimingConfig::default()
    };
    let choice = Choice {
        timing,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(3, choice).await;
    let mut client = cluster.client(0).await;
    let create = v1::CreateKeyspaceRequest {
        header: Session::new(1).header(),
        keyspace: Some(v1::Keyspace {
            name: "hot".into(),
            purpose: v1::Purpose::Registers.into(),
            storage: v1::StoragePolicy::Coded.into(),
            terms: Some(v1::StorageTerms {
                faults: 1,
                delta: Some(1),
                ..v1::StorageTerms::default()
            }),
            ..v1::Keyspace::default()
        }),
    };
    client.create_keyspace(create).await.unwrap();
    let mut writers = Vec::new();
    for at in 0..16 {
        let client = cluster.client(at % 3).await;
        writers.push(tokio::spawn(writes(client, 100 + at as u128)));
    }
    for writer in writers {
        assert_eq!(writer.await.unwrap(), [""; 0]);
    }
}
