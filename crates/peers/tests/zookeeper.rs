//! A real ZooKeeper: what it has acknowledged is there after it was killed, and a spare becomes a
//! member.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use fermata_peers::{Cluster, Spec, State, System, testable};

/// A session, with as much of the protocol as the test needs: records in big-endian, each request
/// behind its length.
struct Session(TcpStream);

impl Session {
    fn open(address: SocketAddr) -> io::Result<Session> {
        let mut session = Session(TcpStream::connect(address)?);
        let mut connect = vec![0; 12]; // Version, last transaction seen.
        connect.extend(10_000_i32.to_be_bytes()); // Time until it expires, in ms.
        connect.extend([0; 8]); // A new session,
        put(&mut connect, &[0; 16]); // with a new password.
        session.exchange(&connect)?;
        Ok(session)
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut frame = Vec::new();
        put(&mut frame, request);
        self.0.write_all(&frame)?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// The body of an answer; its error code as an error.
    fn call(&mut self, operation: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = 1_i32.to_be_bytes().to_vec();
        request.extend(operation.to_be_bytes());
        request.extend(body);
        let answer = self.exchange(&request)?;
        match answer[12..16] {
            [0, 0, 0, 0] => Ok(answer[16..].to_vec()),
            ref code => Err(io::Error::other(format!("code {code:?}"))),
        }
    }

    /// A node that anybody may do anything with.
    fn create(&mut self, path: &str, value: &[u8]) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        put(&mut body, value);
        body.extend([1_i32, 31].map(i32::to_be_bytes).concat());
        put(&mut body, b"world");
        put(&mut body, b"anyone");
        body.extend(0_i32.to_be_bytes());
        self.call(1, &body).map(drop)
    }

    /// Adds a server to the members.
    fn add(&mut self, server: &str) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, server.as_bytes());
        // Nobody leaves, no list of all of them, whatever the members are now.
        body.extend([-1_i32; 2].map(i32::to_be_bytes).concat());
        body.extend((-1_i64).to_be_bytes());
        self.call(16, &body).map(drop)
    }

    fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.call(4, &body)?;
        let (length, rest) = answer.split_at(4);
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        Ok(rest[..length as usize].to_vec())
    }
}

fn put(body: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("short");
    body.extend(length.to_be_bytes());
    body.extend(bytes);
}

#[test]
fn what_zookeeper_acknowledged_survives_a_kill() {
    if !testable(System::Zookeeper) {
        return;
    }
    let mut spec = Spec::new(System::Zookeeper, 1);
    spec.quick = true;
    let cluster = Cluster::start(&spec).expect("it serves");
    let [address] = cluster.endpoints()[..] else {
        panic!("one node has one endpoint");
    };
    let mut session = Session::open(address).expect("a session");
    session.create("/kept", b"value").expect("created");
    assert_eq!(session.get("/kept").expect("there"), b"value");
    cluster.kill_node(1).expect("it was up");
    assert!(session.get("/kept").is_err());
    assert_eq!(cluster.nodes()[0].state, State::Down);
    assert!(cluster.kill_node(1).is_err());
    cluster.start_node(1).expect("it serves again");
    let mut session = Session::open(address).expect("a session");
    assert_eq!(session.get("/kept").expect("still there"), b"value");
    assert_eq!(cluster.nodes()[0].says.as_deref(), Ok("standalone"));
    spec.base = Some(cluster.ip(1));
    let second = Cluster::start(&spec).expect_err("its address is taken");
    assert!(
        second.to_string().contains("is in use by somebody else"),
        "{second}"
    );
    let folder = cluster.folder().to_owned();
    drop(cluster);
    assert!(!folder.exists());
}

#[test]
fn a_spare_of_zookeeper_becomes_a_member() {
    if !testable(System::Zookeeper) {
        return;
    }
    let mut spec = Spec::new(System::Zookeeper, 1);
    spec.quick = true;
    spec.spares = 1;
    let cluster = Cluster::start(&spec).expect("it serves");
    assert_eq!(cluster.nodes()[1].state, State::Down);
    let mut session = Session::open(cluster.endpoint(1)).expect("a session");
    session.create("/kept", b"value").expect("created");
    cluster.start_spare(2, &[1]).expect("it serves");
    session.add(&cluster.member(2)).expect("added");
    let mut session = Session::open(cluster.endpoint(2)).expect("a session");
    assert_eq!(session.get("/kept").expect("there"), b"value");
    let members = session.get("/zookeeper/config").expect("readable");
    let members = String::from_utf8(members).expect("text");
    assert!(members.contains(&cluster.member(2)), "{members}");
    cluster.kill_node(2).expect("it was up");
    cluster.start_node(2).expect("it knows the members");
}
