//! Listings of more keys than a page has: none is cut without a word.

use crate::common::{Choice, Client, Session, TestCluster, register};
use crate::http::Rest;
use fermata_api::v1;
use fermata_api::v1::session_reply::Reply;
use fermata_api::v1::session_request::Operation;
use fermata_server::config::LimitsConfig;
use serde_json::Value;
use std::collections::BTreeSet;
use tokio_stream::StreamExt;

/// More than a page has by itself, and than an answer holds with the longest keys.
const KEYS: usize = 2_000;

/// Operations on one stream, and their answers as they come.
async fn on_stream(client: &mut Client, operations: Vec<Operation>) -> Vec<Reply> {
    let frames = operations.into_iter().zip(1..).map(|(operation, id)| {
        let operation = Some(operation);
        v1::SessionRequest { id, operation }
    });
    let frames = tokio_stream::iter(frames.collect::<Vec<_>>());
    let replies = client.session(frames).await.unwrap().into_inner();
    replies
        .map(|reply| reply.unwrap().reply.unwrap())
        .collect()
        .await
}

async fn filled() -> (TestCluster, Client, Session) {
    // With keys so long a frame between nodes does not hold a listing as long as may be asked for.
    let limits = LimitsConfig {
        key_bytes: Some(32 << 10),
        ..LimitsConfig::default()
    };
    let choice = Choice {
        limits,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(1, choice).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(91);
    let write = |at: usize| {
        Operation::Write(v1::WriteRequest {
            header: session.header(),
            key: Some(register(&format!("k{at:04}"))),
            value: Some("v".into()),
        })
    };
    let writes = (0..KEYS).map(write).collect();
    for reply in on_stream(&mut client, writes).await {
        assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    }
    (cluster, client, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_says_whether_there_are_more_and_where_they_begin() {
    let (cluster, mut client, mut session) = filled().await;
    let rest = Rest(cluster.node(0).rest.clone());
    let list = async |query: String| {
        let path = format!("/v1/keyspaces/registers/keys?{query}");
        let (status, page) = rest.json("GET", &path, Value::Null).await;
        assert_eq!(status, 200, "{page}");
        page
    };
    // Nothing was said of a limit; one that no answer holds; one that an answer just holds.
    for (limit, pages) in [("", 2), ("limit=10000&", 2), ("limit=1500&", 2)] {
        let (mut seen, mut cursor, mut asked) = (BTreeSet::new(), String::new(), 0);
        loop {
            let page = list(format!("{limit}{cursor}")).await;
            asked += 1;
            let keys = page["keys"].as_array().unwrap();
            seen.extend(keys.iter().map(|k| k["key"].as_str().unwrap().to_owned()));
            let Some(next) = page["cursor"].as_str() else {
                assert_eq!(page["more"], false, "{limit}");
                break;
            };
            assert_eq!(page["more"], true, "{limit}");
            cursor = format!("cursor={next}");
        }
        assert_eq!((seen.len(), asked), (KEYS, pages), "{limit}");
    }
    // A page that has all of them to the last says that there are no more.
    let page = list("prefix=k00&limit=100".into()).await;
    assert_eq!(page["keys"].as_array().unwrap().len(), 100);
    assert_eq!((&page["more"], page.get("cursor")), (&false.into(), None));
    let page = list("prefix=k0&limit=1".into()).await;
    let cursor = page["cursor"].as_str().unwrap();
    for (space, query) in [
        ("registers", "cursor=!".into()),
        ("registers", "limit=0".into()),
        ("registers", format!("prefix=k0&cursor={cursor}&after=k")),
        // It is of another list, and would leave keys of this one out.
        ("registers", format!("cursor={cursor}")),
        ("registers", format!("prefix=k&cursor={cursor}")),
        ("default", format!("prefix=k0&cursor={cursor}")),
    ] {
        let path = format!("/v1/keyspaces/{space}/keys?{query}");
        assert_eq!(rest.json("GET", &path, Value::Null).await.0, 400, "{path}");
    }
    let page = list(format!("prefix=k0&limit=2&cursor={cursor}")).await;
    assert_eq!(page["keys"][0]["key"], "k0001", "{page}");
    // The same by gRPC, by a call of its own and on a stream.
    let mut keys = |after: Option<&str>| v1::KeysRequest {
        header: session.header(),
        keyspace: "registers".into(),
        after: after.map(|after| after.to_owned().into()),
        ..v1::KeysRequest::default()
    };
    for (request, more) in [(keys(None), true), (keys(Some("k0999")), false)] {
        let page = client.keys(request).await.unwrap().into_inner();
        assert_eq!((page.keys.len(), page.more), (1_000, more));
    }
    for (request, more) in [(keys(None), true), (keys(Some("k0999")), false)] {
        let replies = on_stream(&mut client, vec![Operation::Keys(request)]).await;
        let [Reply::Keys(page)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert_eq!((page.keys.len(), page.more), (1_000, more));
    }
}
