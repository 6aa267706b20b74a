//! A real etcd: a spare becomes a member.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use fermata_peers::{Cluster, Spec, State, System, testable};

/// Asks etcd's gateway, which speaks JSON, and returns all that it says.
fn ask(address: SocketAddr, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

#[test]
fn a_spare_of_etcd_becomes_a_member_and_ends_with_the_others() {
    if !testable(System::Etcd) {
        return;
    }
    let mut spec = Spec::new(System::Etcd, 1);
    spec.spares = 1;
    let cluster = Cluster::start(&spec).expect("it serves");
    let states = |cluster: &Cluster| cluster.nodes().iter().map(|n| n.state).collect::<Vec<_>>();
    assert_eq!(states(&cluster), [State::Up, State::Down]);
    let error = cluster.start_node(2).expect_err("it is no member");
    assert!(error.to_string().contains("as a new member"), "{error}");
    let member = cluster.member(2);
    let (_, url) = member.split_once('=').expect("a name and a URL");
    // One that votes would have to be there before anything is decided again.
    let body = format!("{{\"peerURLs\":[\"{url}\"],\"isLearner\":true}}");
    let said = ask(cluster.endpoint(1), "/v3/cluster/member/add", &body).expect("an answer");
    assert!(said.contains(" 200 "), "{said}");
    cluster.start_spare(2, &[1]).expect("it serves");
    assert!(cluster.start_spare(2, &[1]).is_err());
    assert_eq!(states(&cluster), [State::Up, State::Up]);
    // It does not vote, so it does not answer this itself.
    let said = ask(cluster.endpoint(1), "/v3/cluster/member/list", "{}").expect("an answer");
    assert!(said.contains("\"n1\"") && said.contains("\"n2\""), "{said}");
    cluster.kill_node(2).expect("it was up");
    cluster.start_node(2).expect("it serves again");
    let pids: Vec<_> = cluster.nodes().iter().filter_map(|n| n.pid).collect();
    let folder = cluster.folder().to_owned();
    drop(cluster);
    assert!(!folder.exists());
    for pid in pids {
        // What has ended stays in the table until the system's first process has looked at it.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let runs = stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
        assert!(!runs, "{stat}");
    }
}
