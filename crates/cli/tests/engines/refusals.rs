//! A server that cannot run on its stores: one line that says why, and its exit status.

use crate::nodes::{address, fermata, stores};
use std::process::Output;

/// Runs a server on these stores to its end.
fn refused(arguments: &str) -> (i32, String) {
    let stores = stores().expect("they were asked for");
    let known = |word: &str| match word {
        "CASSANDRA" => stores.cassandra.endpoints()[0].to_string(),
        "ZOOKEEPER" => stores.zookeeper.endpoints()[0].to_string(),
        // Nobody is there.
        "NOBODY" => address(99).to_string(),
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
2 | engine.contact_points is missing | --engine cassandra
2 | engine.kind is missing | --contact-points CASSANDRA
2 | [possible values: native, cassandra, zookeeper+cassandra] | --engine dynamo --contact-points CASSANDRA
2 | is not host:port | --engine cassandra --contact-points CASSANDRA,db:port
2 | is not host:port | --engine cassandra --contact-points http://db:9042
2 | --replication: \"dc1\" is not CENTER=N | --engine cassandra --contact-points CASSANDRA --replication dc1
2 | has no copies in engine.replication | --engine cassandra TABLES --data-center dc2
2 | engine.zookeeper is missing | --engine zookeeper+cassandra --contact-points CASSANDRA
2 | engine.zookeeper is given | --engine cassandra TABLES --zookeeper ZOOKEEPER
2 | is not a name of | --engine cassandra TABLES --engine-keyspace Big-One
69 | none of the contact points NOBODY:9042 of Cassandra answers | --engine cassandra --contact-points NOBODY
69 | none of the contact points | --engine cassandra --contact-points no-such-host.invalid
69 | none of the contact points | --engine cassandra --contact-points ZOOKEEPER
69 | no data center 'nowhere' | --engine cassandra --contact-points CASSANDRA --data-center nowhere
69 | the keyspace nobodys does not exist, and no replication is set | --engine cassandra --contact-points CASSANDRA --engine-keyspace nobodys
69 | asks for 1 replicas in all | --engine cassandra --contact-points CASSANDRA --replication dc1=1
69 | no ZooKeeper server can be reached | TABLES --engine-keyspace refusals --engine zookeeper+cassandra --zookeeper NOBODY
";

#[test]
fn what_cannot_run_says_why_in_one_line() {
    if stores().is_none() {
        return;
    }
    for line in REFUSALS.trim().lines() {
        let parts: Vec<&str> = line.split(" | ").collect();
        let (code, said) = refused(&parts[2].replace("TABLES", TABLES));
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
