//! A real Cassandra: what it has acknowledged is there after it was killed.

use fermata_peers::{Cluster, Consistency, Paxos, Spec, State, System, testable};

#[test]
fn what_cassandra_acknowledged_survives_a_kill() {
    if !testable(System::Cassandra) {
        return;
    }
    let mut spec = Spec::new(System::Cassandra, 1);
    spec.quick = true;
    spec.dcs = true;
    spec.paxos = Paxos::V2;
    let cluster = Cluster::start(&spec).expect("it serves");
    let mut cql = cluster.cql(1).expect("a connection");
    let mut ask = |statement: &str| {
        let rows = cql.query(statement, Consistency::Quorum);
        rows.unwrap_or_else(|error| panic!("{statement}: {error}"))
            .to_string()
    };
    ask("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}");
    ask("CREATE TABLE k.t (k text PRIMARY KEY, n bigint, v blob, m map<text, int>, b boolean)");
    let insert = "INSERT INTO k.t (k, n, v, m, b) VALUES ('a', -7, 0xcafe, {'x': 1}, true)";
    assert_eq!(ask(&format!("{insert} IF NOT EXISTS")), "[applied]\ntrue\n");
    let select = "SELECT k, n, v, m, b FROM k.t";
    let row = "k | n | v | m | b\na | -7 | 0xcafe | {x: 1} | true\n";
    assert_eq!(ask(select), row);
    cluster.kill_node(1).expect("it was up");
    assert!(cluster.cql(1).is_err());
    assert_eq!(cluster.nodes()[0].state, State::Down);
    cluster.start_node(1).expect("it serves again");
    let mut cql = cluster.cql(1).expect("a connection");
    let rows = cql.query(select, Consistency::Quorum).expect("rows");
    assert_eq!(rows.to_string(), row);
    let unknown = cql.query("SELECT * FROM k.u", Consistency::One);
    let error = unknown.expect_err("no such table").to_string();
    assert!(error.contains("code 0x2200"), "{error}");
}
