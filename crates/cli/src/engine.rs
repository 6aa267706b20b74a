//! The engines besides the native one, over Cassandra and `ZooKeeper`, and where this program makes
//! them.

use std::sync::Arc;
use std::time::Duration;

use fermata_cassandra as cassandra;
use fermata_engine::{Engine, Service, Settings};
use fermata_server::config::{EngineConfig, EngineKind, Resolved};
use fermata_tls::Trust;
use fermata_zookeeper as zookeeper;

use crate::exit::{Exit, Failure};

/// The node of `ZooKeeper` below which everything is, each in a node with the name of its
/// keyspace in Cassandra: locks without their values would be no use, and others' do harm.
const ROOT: &str = "/fermata";
/// How long `ZooKeeper` may take for one operation.
const PATIENCE: Duration = Duration::from_secs(6);

/// Connects to the stores that the configuration names; they are checked, and their tables made
/// where they are missing.
///
/// # Errors
/// One sentence: a store is down, or is set so that it cannot keep what an engine promises.
pub(crate) async fn service(resolved: &Resolved) -> Result<Arc<dyn Service>, Failure> {
    let Some(engine) = &resolved.engine else {
        return Err(Failure::usage("the native engine needs no stores"));
    };
    let mut settings = settings(resolved, engine)?;
    let refused = |why: String| Failure::new(Exit::Unavailable, why);
    let trust = engine
        .tls()
        .and_then(|files| files.map(Trust::read).transpose());
    let trust = trust.map_err(|why| Failure::usage(format!("TLS to the stores: {why}")))?;
    let tables = tables(engine, trust.clone());
    tables.check().map_err(Failure::usage)?;
    // What is wrong with the locks is found before anything is made for the data.
    let locks = match engine.kind {
        EngineKind::ZooKeeperCassandra => Some(locks(engine, trust).await.map_err(refused)?),
        _ => None,
    };
    let data = cassandra::CassandraStore::connect(tables).await;
    let data = Arc::new(data.map_err(refused)?);
    settings.limits.value = settings.limits.value.min(data.value_max());
    Ok(match locks {
        Some(locks) => {
            let place = locks.identity().await.map_err(refused)?;
            let place = format!("ZooKeeper ({place})");
            data.claim(&place).await.map_err(refused)?;
            Engine::new(settings, Arc::new(locks), data)
        }
        None => {
            data.claim("Cassandra").await.map_err(refused)?;
            Engine::new(settings, data.clone(), data)
        }
    })
}

async fn locks(
    engine: &EngineConfig,
    tls: Option<Trust>,
) -> Result<zookeeper::ZookeeperStore, String> {
    let locks = zookeeper::ZookeeperStore::connect(zookeeper::Settings {
        servers: engine.zookeeper.clone(),
        root: format!("{ROOT}/{}", engine.keyspace),
        timeout: PATIENCE,
        tls,
    });
    // A leader that was deposed may answer a `sync`: a look at the lock that decides on an
    // acknowledgement asks a quorum.
    Ok(locks.await?.with_reads(zookeeper::Reads::Quorum))
}

fn settings(resolved: &Resolved, engine: &EngineConfig) -> Result<Settings, Failure> {
    let own = resolved.config.name;
    let label = resolved.nodes.iter().find(|node| node.name == own.0);
    let label = label.map_or_else(|| own.0.to_string(), |node| node.label.clone());
    let seed = fermata_server::random()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("no randomness: {error}")))?;
    Ok(Settings {
        limits: resolved.config.limits.clone(),
        lowest_ref: resolved.config.cluster.lowest_ref,
        timing: resolved.config.timing.clone(),
        verify: engine.verify,
        unverified: engine.unverified.iter().cloned().collect(),
        ..Settings::new(own, label, resolved.site, seed)
    })
}

fn tables(engine: &EngineConfig, tls: Option<Trust>) -> cassandra::Settings {
    let replication = engine.replication.iter();
    let replication = replication.map(|(dc, copies)| (dc.clone(), u32::from(*copies)));
    cassandra::Settings {
        username: engine.username.clone(),
        password: engine.password.as_ref().map(|secret| secret.0.clone()),
        tls,
        allow_paxos_v1: engine.allow_paxos_v1,
        allow_few_replicas: engine.allow_few_replicas,
        ..cassandra::Settings::new(
            engine.contact_points.iter().cloned(),
            engine.data_center.clone().unwrap_or_default(),
            engine.keyspace.clone(),
            replication,
        )
    }
}
