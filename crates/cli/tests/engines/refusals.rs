//! A server that cannot run on its stores: one line that says why, and its exit status.

use crate::nodes::{Nodes, address, fermata, fresh, on_cassandra, on_zookeeper, stores};
use fermata_server::config::LimitsConfig;
use std::process::Output;

/// Runs a server on these stores to its end.
fn refused(arguments: &str) -> (i32, String) {
    let stores = stores().expect("they were asked for");
    let known = |word: &str| match word {
        "CASSANDRA" => stores.cassandra.endpoints()[0].to_string(),
        "ZOOKEEPER" => stores.zookeeper.endpoints()[0].to_string(),
        // Nobody is there.
        "NOBODY" => address(99).to_string(),
        "KEYSPACE" => fresh("refusals"),
        word => word.to_owned(),
    };
    let own = address(98);
    let Output { status, stderr, .. } = fermata()
        .arg("server")
        .args(arguments.split_whitespace().map(known))
        .args(["--listen-grpc", &format!("{own}:7100")])
        .args(["--listen-rest", &format!("{own}:7101")])
        .output()
        .expect("it runs");
    let code = status.code().expect("it ends by itself");
    (code, String::from_utf8(stderr).expect("text"))
}

const TABLES: &str = "--contact-points CASSANDRA --replication dc1=1 --allow-few-replicas";

/// Exit status, what the line says, and the arguments.
const REFUSALS: &str = "
2 | engine.contact_points is missing | CASS
2 | engine.kind is missing | AT CASSANDRA
2 | [possible values: native, cassandra | --engine dynamo AT CASSANDRA
2 | is not host:port | CASS AT CASSANDRA,db:port
2 | is not host:port | CASS AT http://db:9042
2 | --replication: \"dc1\" is not CENTER=N | CASS AT CASSANDRA --replication dc1
2 | has no copies in engine.replication | CASS TABLES --data-center dc2
2 | engine.zookeeper is missing | BOTH AT CASSANDRA
2 | engine.zookeeper is given | CASS TABLES --zookeeper ZOOKEEPER
2 | is not a name of | CASS TABLES IN Big-One
2 | asks for 1 replicas in all | CASS AT CASSANDRA --replication dc1=1
2 | names a data center again | CASS AT CASSANDRA --replication dc1=1,dc1=2
2 | keeps nothing on its own disk | CASS TABLES --data-dir data
69 | none of the contact points NOBODY:9042 of Cassandra answers | CASS AT NOBODY
69 | none of the contact points | CASS AT no-such-host.invalid
69 | none of the contact points | CASS AT ZOOKEEPER
69 | no data center 'nowhere' | CASS AT CASSANDRA --data-center nowhere
69 | and none is set: set data_center to | CASS AT CASSANDRA
69 | nobodys does not exist, and no replication is set | CASS AT CASSANDRA NEAR IN nobodys
69 | which has 1 nodes: ask for no more | CASS AT CASSANDRA NEAR --replication dc1=3
69 | no ZooKeeper server can be reached | TABLES NEAR IN KEYSPACE BOTH --zookeeper NOBODY
";

/// Arguments, written out.
fn words(short: &str) -> String {
    let word = |word| match word {
        "AT" => "--contact-points",
        "BOTH" => "--engine zookeeper+cassandra",
        "CASS" => "--engine cassandra",
        "IN" => "--engine-keyspace",
        "NEAR" => "--data-center dc1",
        "TABLES" => TABLES,
        word => word,
    };
    let words: Vec<&str> = short.split(' ').map(word).collect();
    words.join(" ")
}

#[test]
fn what_cannot_run_says_why_in_one_line() {
    if stores().is_none() {
        return;
    }
    for line in REFUSALS.trim().lines() {
        let parts: Vec<&str> = line.split(" | ").collect();
        let (code, said) = refused(&words(parts[2]));
        assert_eq!(code.to_string(), parts[0], "{line}: {said}");
        let wanted = parts[1].replace("NOBODY", &address(99).to_string());
        assert!(said.contains(&wanted), "{line}: {said}");
        let own = said.lines().filter(|line| line.starts_with("fermata: "));
        assert_eq!(
            own.count(),
            usize::from(!said.starts_with("error: ")),
            "{said}"
        );
    }
}

/// Two places for the locks of one keyspace would let two clients hold one key.
#[test]
fn another_engine_on_the_same_values_is_refused() {
    let refuses = async |other: &str| {
        let nodes = Nodes::start(1, LimitsConfig::default()).await;
        let other = words(&format!("TABLES NEAR IN {} {other}", nodes.keyspace()));
        let (code, said) = refused(&other);
        assert_eq!(code, 69, "{said}");
        assert!(
            said.contains("would let two clients hold one key"),
            "{said}"
        );
    };
    on_cassandra(refuses("BOTH --zookeeper ZOOKEEPER"));
    on_zookeeper(refuses("CASS"));
}
