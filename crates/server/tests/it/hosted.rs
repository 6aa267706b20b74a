//! Sessions that nodes keep, through generated stubs alone.

use crate::common::{Choice, Session, TestCluster, eventually, key};
use fermata_api::v1::section_event::Event;
use fermata_api::v1::sessions_client::SessionsClient;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use fermata_server::config::ClientsConfig;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

type Stream = Streaming<v1::SectionEvent>;

/// A client of one node, and its session there.
struct User {
    stub: SessionsClient<Channel>,
    opened: v1::OpenedSession,
}

impl User {
    async fn open(cluster: &TestCluster, at: usize, idle_us: u64) -> Result<User, Status> {
        cluster.client(at).await;
        let uri = format!("http://{}", cluster.node(at).grpc);
        let mut stub = SessionsClient::connect(uri).await.unwrap();
        let label = "billing".into();
        let open = v1::OpenSessionRequest { idle_us, label };
        let opened = stub.open(open).await?;
        let opened = opened.into_inner();
        Ok(User { stub, opened })
    }

    async fn enter(&mut self, name: &str) -> Stream {
        let enter = v1::EnterSectionRequest {
            secret: self.opened.secret.clone(),
            keys: vec![key(name)],
            ..v1::EnterSectionRequest::default()
        };
        self.stub.enter(enter).await.unwrap().into_inner()
    }

    async fn resume(&mut self, former: &[u8], held: v1::Held) -> Result<Stream, Status> {
        let resume = v1::ResumeSectionRequest {
            secret: self.opened.secret.clone(),
            former: former.to_vec().into(),
            held: vec![held],
        };
        Ok(self.stub.resume(resume).await?.into_inner())
    }

    async fn put(&mut self, section: u64, name: &str, value: &'static str) -> Result<(), Status> {
        let put = v1::SectionPutRequest {
            secret: self.opened.secret.clone(),
            section,
            key: Some(key(name)),
            value: value.into(),
            leave: false,
        };
        self.stub.put(put).await.map(drop)
    }

    fn key_of(&self, section: u64, name: &str) -> v1::SectionKeyRequest {
        v1::SectionKeyRequest {
            secret: self.opened.secret.clone(),
            section,
            key: Some(key(name)),
        }
    }

    async fn get(&mut self, section: u64, name: &str) -> Option<Vec<u8>> {
        let get = self.key_of(section, name);
        let got = self.stub.get(get).await.unwrap().into_inner();
        got.value.map(|value| value.to_vec())
    }

    async fn leave(&mut self, section: u64) -> Result<(), Status> {
        let secret = self.opened.secret.clone();
        let leave = v1::SectionRequest { secret, section };
        self.stub.leave(leave).await.map(drop)
    }

    async fn close(&mut self) -> Result<(), Status> {
        let secret = self.opened.secret.clone();
        let close = v1::CloseSessionRequest { secret };
        self.stub.close(close).await.map(drop)
    }
}

/// The next thing that happens, but for waiting.
async fn next(stream: &mut Stream) -> Option<Event> {
    loop {
        let event = stream.message().await.unwrap()?.event.unwrap();
        if !matches!(event, Event::QueuedAhead(_)) {
            return Some(event);
        }
    }
}

async fn entered(stream: &mut Stream) -> v1::EnteredSection {
    match next(stream).await {
        Some(Event::Entered(entered)) => entered,
        other => panic!("not entered: {other:?}"),
    }
}

fn code(status: &Status) -> Code {
    errors::from_status(status).code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_goes_on_at_another_node_after_the_death_of_its_own() {
    let mut cluster = TestCluster::start(3).await;
    let mut user = User::open(&cluster, 0, 0).await.unwrap();
    let mut stream = user.enter("k").await;
    let first = entered(&mut stream).await;
    user.put(first.section, "k", "1").await.unwrap();
    assert_eq!(user.get(first.section, "k").await.unwrap(), b"1");
    cluster.kill(0).await;
    assert!(user.put(first.section, "k", "2").await.is_err());
    let former = user.opened.secret.clone();
    let held = first.keys[0].held.clone().unwrap();
    let mut user = User::open(&cluster, 1, 0).await.unwrap();
    // Whoever has no secret of the former session, and be it another session's, takes nothing.
    let mut stranger = User::open(&cluster, 2, 0).await.unwrap();
    let own = stranger.opened.secret.clone();
    let mut refused = stranger.resume(&own, held.clone()).await.unwrap();
    let status = loop {
        match refused.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it was not refused"),
            Err(status) => break status,
        }
    };
    assert_eq!(code(&status), Code::NotHolder, "{status}");
    let mut stream = user.resume(&former, held.clone()).await.unwrap();
    let again = entered(&mut stream).await;
    let now = again.keys[0].held.clone().unwrap();
    assert_eq!(
        (now.lock_ref, now.generation),
        (held.lock_ref, held.generation + 1)
    );
    assert_eq!(user.get(again.section, "k").await.unwrap(), b"1");
    user.put(again.section, "k", "2").await.unwrap();
    let delete = user.key_of(again.section, "k");
    user.stub.delete(delete).await.unwrap();
    assert_eq!(user.get(again.section, "k").await, None);
    user.leave(again.section).await.unwrap();
    assert!(
        next(&mut stream).await.is_none(),
        "the stream ends with the section"
    );
    let status = user.put(again.section, "k", "3").await.unwrap_err();
    assert_eq!(code(&status), Code::NoLongerHolder);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_tell_the_queue_the_grant_and_the_loss() {
    let cluster = TestCluster::start(1).await;
    // They are silent for longer than a lease.
    let mut holder = User::open(&cluster, 0, 3_600_000_000).await.unwrap();
    let mut waiter = User::open(&cluster, 0, 3_600_000_000).await.unwrap();
    let mut held = holder.enter("k").await;
    let section = entered(&mut held).await.section;
    let mut waits = waiter.enter("k").await;
    loop {
        let event = waits.message().await.unwrap().unwrap().event;
        if event == Some(Event::QueuedAhead(1)) {
            break;
        }
    }
    holder.leave(section).await.unwrap();
    let granted = entered(&mut waits).await;
    let lock_ref = granted.keys[0].held.clone().unwrap().lock_ref;
    let mut anybody = crate::common::Session::new(9);
    let release = v1::ReleaseRequest {
        header: anybody.header(),
        key: Some(key("k")),
        lock_ref,
    };
    // It may be answered before the lease has run out, which is not renewed any more.
    let _released = cluster.client(0).await.release(release).await;
    assert_eq!(next(&mut waits).await, Some(Event::Lost(v1::Nothing {})));
    let status = waiter.put(granted.section, "k", "v").await.unwrap_err();
    assert_eq!(code(&status), Code::NoLongerHolder);
    // A wait that is given up leaves the queue.
    let mut held = holder.enter("k").await;
    entered(&mut held).await;
    drop(waiter.enter("k").await);
    let mut client = cluster.client(0).await;
    eventually!({
        let queue = v1::QueueRequest {
            header: anybody.header(),
            key: Some(key("k")),
        };
        let entries = client.queue(queue).await.unwrap().into_inner().entries;
        entries.iter().all(|entry| entry.label == "billing") && entries.len() == 1
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_bounded_and_end_by_themselves() {
    let clients = ClientsConfig {
        sessions: Some(2),
        ..ClientsConfig::default()
    };
    let choice = Choice {
        clients,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(1, choice).await;
    let mut one = User::open(&cluster, 0, 0).await.unwrap();
    let mut two = User::open(&cluster, 0, 1_000_000).await.unwrap();
    let refused = User::open(&cluster, 0, 0).await.err().unwrap();
    assert_eq!(code(&refused), Code::Busy);
    assert!(refused.message().contains("clients.sessions"), "{refused}");
    one.close().await.unwrap();
    assert_eq!(code(&one.close().await.unwrap_err()), Code::NotHolder);
    let mut one = User::open(&cluster, 0, 0).await.unwrap();
    // Its stream ends and nobody calls: its section is left for the next.
    let mut stream = two.enter("k").await;
    let section = entered(&mut stream).await.section;
    two.put(section, "k", "v").await.unwrap();
    let mut waits = one.enter("k").await;
    drop(stream);
    let next = entered(&mut waits).await;
    assert_eq!(next.keys[0].value.as_deref(), Some(&b"v"[..]));
    assert_eq!(
        code(&two.leave(section).await.unwrap_err()),
        Code::NotHolder
    );
    for idle_us in [1, 3_600_000_001] {
        let refused = User::open(&cluster, 0, idle_us).await.err().unwrap();
        assert_eq!(code(&refused), Code::BadRequest, "{refused}");
    }
}

/// What a client of the service does by hand: it goes on at the next node that opens a session.
struct Counter {
    user: User,
    stream: Stream,
    entered: v1::EnteredSection,
}

impl Counter {
    async fn enter(mut user: User, name: &str) -> Counter {
        let mut stream = user.enter(name).await;
        let entered = entered(&mut stream).await;
        Counter {
            user,
            stream,
            entered,
        }
    }

    fn generation(&self) -> u32 {
        self.entered.keys[0].held.as_ref().unwrap().generation
    }

    /// Resumes at the first of these nodes that takes it.
    async fn move_on(&mut self, cluster: &TestCluster, nodes: &[usize]) {
        let former = self.user.opened.secret.clone();
        let held = self.entered.keys[0].held.clone().unwrap();
        for at in nodes {
            let mut user = match User::open(cluster, *at, 0).await {
                Ok(user) => user,
                Err(refused) => {
                    assert_eq!(code(&refused), Code::Unavailable, "{refused}");
                    continue;
                }
            };
            self.stream = user.resume(&former, held).await.unwrap();
            self.entered = entered(&mut self.stream).await;
            self.user = user;
            return;
        }
        panic!("no node opens a session");
    }

    async fn add(&mut self, name: &str) -> Result<(), Status> {
        let section = self.entered.section;
        let asked = self.user.key_of(section, name);
        let got = self.user.stub.get(asked).await?.into_inner().value;
        let before: u64 = got.map_or(0, |v| String::from_utf8_lossy(&v).parse().unwrap());
        let put = v1::SectionPutRequest {
            secret: self.user.opened.secret.clone(),
            section,
            key: Some(key(name)),
            value: (before + 1).to_string().into(),
            leave: false,
        };
        self.user.stub.put(put).await.map(drop)
    }
}

/// A session goes on elsewhere when its node begins to drain, before anybody stops it: its client
/// is told, a call that is refused was certainly not done, and no other session is opened there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_drains_hands_its_sessions_over() {
    let mut cluster = TestCluster::start(3).await;
    let mut counter = Counter::enter(User::open(&cluster, 0, 0).await.unwrap(), "c").await;
    let mut holder = User::open(&cluster, 1, 0).await.unwrap();
    let mut held = holder.enter("w").await;
    let section = entered(&mut held).await.section;
    let mut waiter = User::open(&cluster, 0, 0).await.unwrap();
    let mut waits = waiter.enter("w").await;
    assert_eq!(cluster.sessions(0).await, 2);
    let mut done = 0;
    while counter.generation() == 0 {
        if done == 10 {
            cluster.drain(1, 0, true).await;
        }
        if let Err(status) = counter.add("c").await {
            let refusal = errors::from_status(&status);
            assert_eq!(refusal.code, Code::Unavailable, "{status}");
            assert!(!refusal.may_have_taken_effect, "{status}");
            assert!(status.message().contains("n1 drains"), "{status}");
            counter.move_on(&cluster, &[0, 1, 2]).await;
            counter.add("c").await.unwrap();
        }
        done += 1;
    }
    let section_now = counter.entered.section;
    let count = counter.user.get(section_now, "c").await.unwrap();
    assert_eq!(count, done.to_string().into_bytes());
    // One who waits keeps its place until it has entered.
    assert_eq!(cluster.sessions(0).await, 1);
    holder.leave(section).await.unwrap();
    let granted = entered(&mut waits).await;
    let told = waits.message().await.unwrap_err();
    assert_eq!(code(&told), Code::Unavailable, "{told}");
    let mut moved = Counter {
        user: waiter,
        stream: waits,
        entered: granted,
    };
    moved.move_on(&cluster, &[0, 2]).await;
    moved.add("w").await.unwrap();
    eventually!(cluster.sessions(0).await == 0);
    cluster.stop(0).await;
    counter.add("c").await.unwrap();
    moved.add("w").await.unwrap();
    cluster.restart(0).await;
    cluster.drain(1, 0, false).await;
    User::open(&cluster, 0, 0).await.unwrap();
}

/// Where nobody else is there to go to, a node does not drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_node_does_not_drain_and_keeps_its_sessions() {
    let cluster = TestCluster::start(1).await;
    let drain = v1::Drain {
        node: 1,
        drains: true,
    };
    let change = v1::ChangeRingRequest {
        header: Session::new(0x0d_0000).header(),
        change: Some(v1::change_ring_request::Change::Drain(drain)),
    };
    let refused = cluster.client(0).await.change_ring(change).await;
    let refused = refused.unwrap_err();
    assert!(
        refused.message().contains("nobody else could lead"),
        "{refused}"
    );
    let mut counter = Counter::enter(User::open(&cluster, 0, 0).await.unwrap(), "c").await;
    counter.add("c").await.unwrap();
}
