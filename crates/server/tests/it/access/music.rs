//! Whose MUSIC's locks are, wherever their homes are, and what its calls tell.

use super::{Choice, Stage, audited, entry, eventually, principal, rule};
use fermata_access::{Right, Token};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ROOT: &str = "/MUSIC/rest/v2";

/// A keyspace `shop` with a table `carts`, and, beside the application, another one with its
/// rights.
struct Shop {
    stage: Stage,
    other: Token,
}

impl Shop {
    async fn start(nodes: u32, choice: Choice) -> Shop {
        let stage = Stage::start(nodes, choice).await;
        let other = Token::new(9, 9);
        let token = (other.id(), entry("other", &other));
        stage
            .change(|policy| {
                policy.tokens.insert(token.0, token.1.clone());
                let same = principal(Some("app"));
                policy.principals.insert("other".into(), same);
            })
            .await;
        let shop = Shop { stage, other };
        let keyspace = json!({"replicationInfo": {"class": "SimpleStrategy",
            "replication_factor": 1}, "durabilityOfWrites": "true",
            "consistencyInfo": {"type": "eventual"}});
        let table = json!({"fields": {"id": "text", "n": "int", "PRIMARY KEY": "(id)"},
            "consistencyInfo": {"type": "eventual"}});
        let admin = &shop.stage.admin;
        for (path, body) in [("shop", keyspace), ("shop/tables/carts", table)] {
            let path = format!("/keyspaces/{path}");
            let (status, said) = shop.call(0, admin, ("POST", &path), &body).await;
            assert_eq!(status, 200, "{said}");
        }
        for at in 0..nodes as usize {
            let known = "/locks/enquire/shop.carts.none";
            let shop = &shop;
            let ask = async || {
                shop.call(at, &shop.other, ("GET", known), &Value::Null)
                    .await
            };
            // Its token has come there.
            eventually!(ask().await.0 == 400);
        }
        shop
    }

    async fn call(
        &self,
        at: usize,
        token: &Token,
        (method, path): (&str, &str),
        body: &Value,
    ) -> (u16, Value) {
        let path = format!("{ROOT}{path}");
        let asks = (method, path.as_str());
        self.stage.asked_at(at, Some(token), asks, body).await
    }

    /// A lock of the application's, whose home is that node.
    async fn lock(&self, at: usize, value: &str) -> String {
        let create = format!("/locks/create/shop.carts.{value}");
        let app = &self.stage.app;
        // It does not end because nobody speaks of it.
        let lasting = json!({ "leasePeriod": "3600000" });
        let (status, made) = self.call(at, app, ("POST", &create), &lasting).await;
        assert_eq!(status, 200, "{made}");
        made["lock"]["lock"].as_str().unwrap().replace('$', "%24")
    }

    async fn acquire(&self, at: usize, token: &Token, id: &str) -> (u16, Value) {
        let acquire = format!("/locks/acquire/{id}");
        self.call(at, token, ("GET", &acquire), &Value::Null).await
    }

    async fn is_held(&self, at: usize, value: &str) -> bool {
        let enquire = format!("/locks/enquire/shop.carts.{value}");
        let admin = &self.stage.admin;
        self.call(at, admin, ("GET", &enquire), &Value::Null)
            .await
            .0
            == 200
    }
}

/// A home that dies leaves its locks to their owners, and to nobody else who may lock the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_its_home_is_still_its_owners() {
    let mut shop = Shop::start(3, Choice::default()).await;
    let (kept, ended) = (shop.lock(2, "a").await, shop.lock(2, "b").await);
    assert_eq!(shop.acquire(2, &shop.stage.app, &kept).await.0, 200);
    assert_eq!(shop.acquire(2, &shop.stage.app, &ended).await.0, 200);
    // Nor does a header have it move that only a node may send.
    let sessions = async |stage: &Stage| {
        let admin = Some(&stage.admin);
        let (_, status) = stage.asked(admin, "GET", "/v1/status", &Value::Null).await;
        status["sessions"].as_u64().unwrap()
    };
    let before = sessions(&shop.stage).await;
    let shown = format!("Bearer {}", shop.stage.app.reveal());
    let moved = [("authorization", &*shown), ("fermata-moved", "3 60000")];
    let path = format!("{ROOT}/locks/acquire/{kept}");
    let (status, _, _) = shop.stage.rest.send("GET", &path, &moved, b"").await;
    assert_eq!(status, 200, "its home has answered");
    assert_eq!(sessions(&shop.stage).await, before);
    shop.stage.cluster.kill(2).await;
    let (status, said) = shop.acquire(0, &shop.other, &kept).await;
    assert_eq!(status, 400, "{said}");
    assert!(
        said.to_string().contains("not a lock of this interface"),
        "{said}"
    );
    let release = |id: &str| format!("/locks/release/{id}");
    let others = ("DELETE", release(&ended));
    let (status, said) = shop
        .call(0, &shop.other, (others.0, &others.1), &Value::Null)
        .await;
    assert_eq!(status, 403, "{said}");
    // The owner ends one, and goes on with the other.
    let app = &shop.stage.app;
    eventually!(
        shop.call(0, app, (others.0, &others.1), &Value::Null)
            .await
            .0
            == 200
    );
    eventually!(!shop.is_held(1, "b").await);
    eventually!(shop.acquire(0, app, &kept).await.0 == 200);
    assert!(shop.is_held(1, "a").await);
}

/// Whoever may not lock any more holds no lock any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_ends_with_its_owners_right() {
    let shop = Shop::start(1, Choice::default()).await;
    let id = shop.lock(0, "a").await;
    eventually!(shop.acquire(0, &shop.stage.app, &id).await.0 == 200);
    let less = vec![rule("music", "shop.carts.b", &[Right::Lock])];
    shop.stage
        .change(|policy| drop(policy.roles.insert("app".into(), less.clone())))
        .await;
    eventually!(!shop.is_held(0, "a").await);
    // One that it still may have stays while others go.
    let id = shop.lock(0, "b").await;
    eventually!(shop.acquire(0, &shop.stage.app, &id).await.0 == 200);
    shop.stage
        .change(|policy| drop(policy.tokens.remove(&shop.other.id())))
        .await;
    assert!(shop.is_held(0, "b").await);
    shop.stage
        .change(|policy| {
            policy.principals.remove("app");
            policy.tokens.remove(&shop.stage.app.id());
        })
        .await;
    eventually!(!shop.is_held(0, "b").await);
}

/// A table of which one may know nothing is as one that there is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_call_does_not_say_which_tables_there_are() {
    let shop = Shop::start(1, Choice::default()).await;
    let table = json!({"fields": {"id": "int", "PRIMARY KEY": "(id)"},
        "consistencyInfo": {"type": "eventual"}});
    let admin = &shop.stage.admin;
    let hidden = ("POST", "/keyspaces/shop/tables/hidden");
    assert_eq!(shop.call(0, admin, hidden, &table).await.0, 200);
    let row = json!({"values": {"id": "x"}, "consistencyInfo": {"type": "atomic"}});
    let none = json!({"consistencyInfo": {"type": "atomic"}});
    let conditional = json!({"primaryKey": "id", "primaryKeyValue": "a"});
    for (method, path, body) in [
        (
            "GET",
            "/keyspaces/shop/tables/TABLE/rows?id=1",
            &Value::Null,
        ),
        (
            "GET",
            "/keyspaces/shop/tables/TABLE/rows?wrong=1",
            &Value::Null,
        ),
        ("POST", "/keyspaces/shop/tables/TABLE/rows", &row),
        ("PUT", "/keyspaces/shop/tables/TABLE/rows?id=x", &row),
        ("DELETE", "/keyspaces/shop/tables/TABLE/rows?id=x", &none),
        (
            "PUT",
            "/keyspaces/shop/tables/TABLE/rows/criticalget?id=1",
            &none,
        ),
        (
            "POST",
            "/conditional/insert/keyspaces/shop/tables/TABLE",
            &conditional,
        ),
    ] {
        let mut said = Vec::new();
        for table in ["hidden", "absent"] {
            let path = path.replace("TABLE", table);
            let answer = shop.call(0, &shop.other, (method, &path), body).await;
            assert_eq!(answer.0, 403, "{path}: {}", answer.1);
            said.push(answer.1);
        }
        assert_eq!(said[0], said[1], "{path}");
    }
}

/// Nothing is read from who is nobody, and a lock that is ended by force is written down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_first_and_force_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let shop = Shop::start(1, audited(&file)).await;
    // A body that never comes.
    let rows = format!("POST {ROOT}/keyspaces/shop/tables/carts/rows");
    for asks in [rows.as_str(), "PUT /v1/keyspaces/default/keys/k"] {
        let mut stream = TcpStream::connect(&shop.stage.rest.0).await.unwrap();
        let head = format!(
            "{asks} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut heard = [0; 12];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"HTTP/1.1 401", "{asks}");
    }
    let admin = &shop.stage.admin;
    let forced = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let forced = |line: &Value| line["event"] == "release" && line["outcome"] == "done";
        let lines: Vec<Value> = lines.filter(forced).collect();
        assert!(
            lines.iter().all(|line| line["principal"] == "root"),
            "{lines:?}"
        );
        lines.len()
    };
    for (at, path) in ["/locks/release/ID", "/locks/delete/shop.carts.a"]
        .iter()
        .enumerate()
    {
        let id = shop.lock(0, "a").await;
        eventually!(shop.acquire(0, &shop.stage.app, &id).await.0 == 200);
        let path = path.replace("ID", &id);
        let (status, said) = shop.call(0, admin, ("DELETE", &path), &Value::Null).await;
        assert_eq!(status, 200, "{said}");
        eventually!(forced() == at + 1);
    }
    // Its owner's own end is none.
    let id = shop.lock(0, "a").await;
    let release = format!("/locks/release/{id}");
    let app = &shop.stage.app;
    assert_eq!(
        shop.call(0, app, ("DELETE", &release), &Value::Null)
            .await
            .0,
        200
    );
    let made = json!({ "name": "made", "purpose": "sections" });
    assert_eq!(
        shop.stage
            .ask(Some(admin), "POST", "/v1/keyspaces", &made)
            .await,
        201
    );
    eventually!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains("create_keyspace")
    );
    assert_eq!(forced(), 2);
}
