//! Connections that ask for nothing, stop in the middle, or are too many.

use crate::common::{Choice, Session, TestCluster, write};
use crate::http::Rest;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use fermata_server::config::ClientsConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

const KEY: &str = "/v1/keyspaces/registers/keys/k?consistency=linearizable";

/// A node whose clients are granted so much.
async fn node(clients: ClientsConfig) -> TestCluster {
    let choice = Choice {
        clients,
        one_port: true,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(1, choice).await;
    cluster.client(0).await;
    cluster
}

/// The head of a request that writes so many bytes.
fn head(bytes: u64) -> String {
    format!(
        "PUT {KEY} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
         content-type: application/octet-stream\r\ncontent-length: {bytes}\r\n\r\n"
    )
}

async fn connected(address: &str, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    stream
}

/// All that a connection says until it ends, however it ends.
async fn until_end(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    // It may be cut off.
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_nothing_is_closed_whatever_was_begun() {
    let cluster = node(ClientsConfig {
        head_ms: Some(300),
        idle_ms: Some(300),
        ..ClientsConfig::default()
    })
    .await;
    let rest = &cluster.node(0).rest;
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /healthz HTTP/1.1\r\nhost:",
        b"PRI * HTTP/2.0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for sent in beginnings {
        let stream = connected(rest, sent).await;
        assert!(!until_end(stream).await.contains("200 OK"));
    }
    // After an answer, too.
    let stream = connected(rest, b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(until_end(stream).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_arrive_is_refused_and_its_connection_closed() {
    let cluster = node(ClientsConfig {
        body_ms: Some(300),
        ..ClientsConfig::default()
    })
    .await;
    let begun = head(1_000) + "some";
    let stream = connected(&cluster.node(0).rest, begun.as_bytes()).await;
    let said = until_end(stream).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    assert!(said.contains("body_timeout"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quiet_give_way_and_who_is_one_too_many_is_told() {
    let cluster = node(ClientsConfig {
        connections: Some(4),
        ..ClientsConfig::default()
    })
    .await;
    let address = &cluster.node(0).rest;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(connected(address, b"").await);
    }
    let rest = Rest(address.clone());
    // Whoever is refused for the moment asks again.
    while rest.send("GET", "/healthz", &[], b"").await.0 != 200 {}
    drop(silent);
    // All places are taken by those who ask for something.
    let mut asking = Vec::new();
    while asking.len() < 4 {
        asking.extend(asked(address).await);
    }
    let stream = connected(address, b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let said = until_end(stream).await.to_lowercase();
    assert!(said.starts_with("http/1.1 503"), "{said}");
    assert!(said.contains("retry-after: 1"), "{said}");
    assert!(said.contains("clients.connections"), "{said}");
    let call = Channel::from_shared(format!("http://{address}")).unwrap();
    let channel = call.connect().await.unwrap();
    let refused = FermataClient::new(channel)
        .cluster(v1::ClusterRequest {})
        .await;
    let refused = errors::from_status(&refused.unwrap_err());
    assert_eq!(refused.code, Code::Busy, "{}", refused.detail);
}

/// A connection with a request that is open for sure, unless there is no place for it.
async fn asked(address: &str) -> Option<TcpStream> {
    let head = head(10).replace("host: h", "host: h\r\nexpect: 100-continue");
    let mut stream = connected(address, head.as_bytes()).await;
    let mut said = [0; 12];
    stream.read_exact(&mut said).await.ok()?;
    (&said == b"HTTP/1.1 100").then_some(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_count_while_they_arrive_and_no_longer() {
    let cluster = node(ClientsConfig {
        request_bytes: Some(4 << 20),
        ..ClientsConfig::default()
    })
    .await;
    let address = &cluster.node(0).rest;
    let rest = Rest(address.clone());
    let raw = [("content-type", "application/octet-stream")];
    let part = vec![7; 1_500 << 10];
    let mut unfinished = Vec::new();
    for _ in 0..2 {
        let mut stream = connected(address, head(2 << 20).as_bytes()).await;
        stream.write_all(&part).await.unwrap();
        unfinished.push(stream);
    }
    // A third one finds no room, over REST and over gRPC, as soon as those two have arrived.
    let path = KEY;
    let (status, body) = loop {
        let (status, _, body) = rest.send("PUT", path, &raw, &part).await;
        if status != 200 {
            break (status, String::from_utf8(body).unwrap());
        }
    };
    assert!(status == 429 && body.contains("request_bytes"), "{body}");
    let mut client = cluster.client(0).await;
    let mut session = Session::new(81);
    let refused = write(&mut client, &mut session, "k", part.clone()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
    // What is given up is given back, sooner or later.
    drop(unfinished);
    while rest.send("PUT", path, &raw, &part).await.0 != 200 {}
    let mut again = async || write(&mut client, &mut session, "k", part.clone()).await;
    while again().await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_long_is_refused_by_name_to_who_sends_all_of_it_first() {
    let cluster = node(ClientsConfig::default()).await;
    let length = 33 << 20;
    let mut stream = connected(&cluster.node(0).rest, head(length).as_bytes()).await;
    stream.write_all(&vec![0; length as usize]).await.unwrap();
    let said = until_end(stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(said.contains("value_bytes"), "{said}");
    assert!(said.contains("33619968 bytes"), "{said}");
    // The same without its length said before.
    let chunked = head(length).replace("content-length: ", "transfer-encoding: chunked\r\nwas: ");
    let mut stream = connected(&cluster.node(0).rest, chunked.as_bytes()).await;
    let begin = format!("{length:x}\r\n");
    let chunk = [
        begin.as_bytes(),
        &vec![0; length as usize],
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    stream.write_all(&chunk).await.unwrap();
    let said = until_end(stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(said.contains("33619968 bytes"), "{said}");
    // What is announced is enough to refuse it.
    let stream = connected(&cluster.node(0).rest, head(u64::MAX - 2).as_bytes()).await;
    let said = until_end(stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_percent_sign_stands_for_a_byte() {
    let cluster = node(ClientsConfig::default()).await;
    let rest = Rest(cluster.node(0).rest.clone());
    for path in [
        "/keys/%zz",
        "/keys/a%2",
        "/keys/%",
        "/keys/a?consistency=%xx",
    ] {
        let path = format!("/v1/keyspaces/registers{path}");
        let (status, said) = rest.json("GET", &path, serde_json::Value::Null).await;
        assert_eq!(
            (status, &said["code"]),
            (400, &"bad_request".into()),
            "{said}"
        );
        assert!(said["detail"].as_str().unwrap().contains("%25"), "{said}");
    }
}
