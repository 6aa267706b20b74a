//! MUSIC's own clients, as they speak: each test is what one of them sends, against real nodes,
//! which run on whatever engine the module above has a `Stage` of.

use super::Stage;
use crate::http::Rest;
use serde_json::{Value, json};
use std::time::Duration;

/// One node's MUSIC interface, spoken to with a client's headers.
pub(crate) struct Music {
    pub(crate) rest: Rest,
    root: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

impl Music {
    pub(crate) fn new(address: String) -> Music {
        Music {
            rest: Rest(address),
            root: "/MUSIC/rest/v2",
            headers: vec![("content-type", "application/json")],
        }
    }

    /// The same node for an owner of locks.
    pub(crate) fn owned(node: &Music, owner: &'static str) -> Music {
        Music {
            rest: Rest(node.rest.0.clone()),
            root: node.root,
            headers: vec![("content-type", "application/json"), ("owner", owner)],
        }
    }

    /// The same node for a page of another origin.
    pub(crate) fn page(node: &Music) -> Music {
        Music {
            rest: Rest(node.rest.0.clone()),
            root: node.root,
            headers: vec![
                ("content-type", "text/plain"),
                ("origin", "http://elsewhere"),
            ],
        }
    }

    /// Status, content type and text.
    pub(crate) async fn raw(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let path = format!("{}{path}", self.root);
        let sent = self
            .rest
            .send(method, &path, &self.headers, body.as_bytes());
        let (status, kind, body) = sent.await;
        (status, kind, String::from_utf8(body).unwrap())
    }

    /// Status and JSON.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, kind, text) = self.raw(method, path, &body).await;
        assert_eq!(kind, "application/json", "{method} {path}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let says = if status == 200 { "SUCCESS" } else { "FAILURE" };
        if !path.starts_with("/conditional") && !path.starts_with("/service") {
            let says = if path == "/test" || path.starts_with("/admin") {
                Value::Null
            } else {
                says.into()
            };
            let said = answer.get("status").unwrap_or(&Value::Null);
            assert_eq!(*said, says, "{method} {path}: {status} {answer}");
        }
        (status, answer)
    }

    /// A call of the node's own REST face.
    pub(crate) async fn beside(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.rest.json(method, path, body).await
    }

    /// A call that succeeds.
    pub(crate) async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// A call that succeeds once no answer says any more to ask, or try, again.
    pub(crate) async fn insist(&self, method: &str, path: &str, body: Value) -> Value {
        for _ in 0..200 {
            let (status, answer) = self.call(method, path, body.clone()).await;
            if status == 200 {
                return answer;
            }
            let said = answer.to_string();
            let again = said.contains("ask again") || said.contains("try again");
            assert!(again, "{path}: {answer}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{method} {path}: \"ask again\" for ever")
    }

    /// A call that fails with 400; what it says.
    pub(crate) async fn no(&self, method: &str, path: &str, body: Value) -> String {
        let (status, answer) = self.call(method, path, body).await;
        assert_eq!(status, 400, "{method} {path}: {answer}");
        let said = answer.get("error").or(answer.get("message"));
        said.and_then(Value::as_str).unwrap().to_owned()
    }

    /// The rows of a GET, once they are as wanted: reads are of one replica.
    pub(crate) async fn rows(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut answer = Value::Null;
        for _ in 0..200 {
            answer = self.ok("GET", path, Value::Null).await;
            if wanted(&answer["result"]) {
                return answer["result"].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path}: {answer}");
    }

    /// Creates a lock; its id.
    pub(crate) async fn lock(&self, name: &str) -> String {
        let answer = self
            .ok("POST", &format!("/locks/create/{name}"), Value::Null)
            .await;
        answer["lock"]["lock"].as_str().unwrap().to_owned()
    }

    /// Polls until the lock is acquired.
    pub(crate) async fn acquire(&self, id: &str) {
        for _ in 0..300 {
            let path = format!("/locks/acquire/{}", encoded(id));
            let (status, answer) = self.call("GET", &path, Value::Null).await;
            if status == 200 {
                assert!(
                    answer["message"]
                        .as_str()
                        .unwrap()
                        .ends_with("is the lock holder for the key")
                );
                return;
            }
            assert!(
                answer.get("message").is_some(),
                "the lock is gone: {answer}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{id} was never acquired");
    }
}

/// A path's segment or a query's value.
pub(crate) fn encoded(text: &str) -> String {
    let letter = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'$' => {
            char::from(b).to_string()
        }
        b => format!("%{b:02X}"),
    };
    text.bytes().map(letter).collect()
}

/// A keyspace's definition as everybody sends it.
pub(crate) fn keyspace() -> Value {
    json!({
        "replicationInfo": {"class": "SimpleStrategy", "replication_factor": 1},
        "durabilityOfWrites": "true",
        "consistencyInfo": {"type": "eventual"},
    })
}

pub(crate) async fn start(n: u32) -> (Stage, Vec<Music>) {
    start_on(Stage::start(n).await, n)
}

pub(crate) fn start_on(stage: Stage, n: u32) -> (Stage, Vec<Music>) {
    let nodes = (0..n as usize).map(|at| Music::new(stage.rest(at)));
    let nodes = nodes.collect();
    (stage, nodes)
}

fn atomic() -> Value {
    json!({"consistencyInfo": {"type": "atomic"}})
}

/// An atomic call with more in its body.
fn with(more: Value) -> Value {
    let mut body = atomic();
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    body
}

pub(crate) async fn conductor_defines_polls_and_claims() {
    let (_cluster, mut nodes) = start(3).await;
    for node in &mut nodes {
        node.headers.extend([
            ("X-minorVersion", "4"),
            ("X-patchVersion", "3"),
            ("ns", "conductor"),
            ("userId", "conductor"),
            ("password", "c0nduct0r"),
            ("Authorization", "Basic Y29uZHVjdG9yOmMwbmR1Y3Qwcg=="),
        ]);
    }
    let [one, two, _] = &nodes[..] else { panic!() };
    // Every start of every process defines everything, at whichever node.
    let table = "/keyspaces/conductor_rpc/tables/plans/";
    let create = with(json!({
        "durabilityOfWrites": true,
        "replicationInfo": {"class": "SimpleStrategy", "replication_factor": 3},
    }));
    let fields = with(json!({"fields": {
        "id": "text", "status": "text", "created": "bigint", "timeout": "bigint", "name": "text",
        "recommend_max": "text", "message": "text", "translation": "text", "solution": "text",
        "PRIMARY KEY": "(id)",
    }}));
    one.ok("POST", "/keyspaces/conductor_rpc", create.clone())
        .await;
    two.ok("POST", table, fields.clone()).await;
    for node in &nodes {
        let again = node
            .no("POST", "/keyspaces/Conductor_RPC", create.clone())
            .await;
        assert!(again.contains("already exists"), "{again}");
        let again = node.no("POST", table, fields.clone()).await;
        assert!(
            again.contains("Table conductor_rpc.plans already exists"),
            "{again}"
        );
        node.ok("POST", &format!("{table}index/status"), Value::Null)
            .await;
    }
    claims(&nodes).await;
}

/// A plan, claimed by one of three workers at a time.
async fn claims(nodes: &[Music]) {
    let [one, two, three] = nodes else { panic!() };
    let rows = "/keyspaces/conductor_rpc/tables/plans/rows";
    let plan = with(json!({"values": {
        "id": "p-1", "status": "template", "created": 1_605_000_000_000_i64, "timeout": "0",
        "name": "vCPE", "translation": "{\"a\": \"it's\"}",
    }}));
    let made = three.ok("POST", rows, plan).await;
    assert_eq!(made["message"], "Insert Successful");
    let by_status = format!("{rows}?status=template");
    let found = one
        .rows(&by_status, |rows| rows.get("row 0").is_some())
        .await;
    assert_eq!(found["row 0"]["translation"], "{\"a\": \"it's\"}");
    assert_eq!(
        found["row 0"]["solution"],
        Value::Null,
        "unset text is null"
    );
    let claim = |by: &str| {
        with(json!({
            "values": {"status": "translating", "message": by},
            "conditions": {"status": "template"},
        }))
    };
    let put = format!("{rows}?id=p-1");
    let (a, b, c) = tokio::join!(
        one.call("PUT", &put, claim("one")),
        two.call("PUT", &put, claim("two")),
        three.call("PUT", &put, claim("three")),
    );
    let won: Vec<&Value> = [&a, &b, &c]
        .iter()
        .filter(|c| c.0 == 200)
        .map(|c| &c.1)
        .collect();
    assert_eq!(won.len(), 1, "{a:?} {b:?} {c:?}");
    assert_eq!(won[0]["message"], "Update performed");
    for (status, answer) in [&a, &b, &c] {
        let lost = "Lock acquired but the condition is not true";
        assert!(*status == 200 || answer["error"] == lost, "{answer}");
    }
    let absent = with(json!({"values": {"status": "x"}, "conditions": {"status": "y"}}));
    let absent = one.no("PUT", &format!("{rows}?id=p-2"), absent).await;
    assert!(absent.contains("No data found to update"), "{absent}");
    one.ok("DELETE", &put, atomic()).await;
    let none = two.rows(rows, |rows| rows.get("row 0").is_none()).await;
    assert_eq!(none, json!({}));
    assert_eq!(
        two.ok("GET", rows, Value::Null).await["error"],
        "No data found"
    );
}

pub(crate) async fn conductor_sends_messages() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    node.ok("POST", "/keyspaces/conductor_rpc", keyspace())
        .await;
    let table = "/keyspaces/conductor_rpc/tables/controller";
    let fields = with(json!({"fields": {
        "id": "text", "action": "text", "created": "bigint", "ctxt": "text", "method": "text",
        "args": "text", "status": "text", "response": "text", "failure": "text",
        "PRIMARY KEY": "(id)",
    }}));
    node.ok("POST", table, fields).await;
    let rows = format!("{table}/rows");
    // A failure that has not happened is an empty object, though its column is text.
    let call = with(json!({"values": {
        "id": "m-1", "action": "call", "created": 1_605_000_000_000_i64, "ctxt": "{}",
        "method": "plan_get", "args": {"plan": ["p-1", 2]}, "status": "enqueued", "response": "{}",
        "failure": {},
    }}));
    node.ok("POST", &rows, call).await;
    let kept = node.ok("GET", &rows, Value::Null).await["result"]["row 0"].clone();
    assert_eq!(kept["failure"], "{}");
    assert_eq!(kept["args"], r#"{"plan":["p-1",2]}"#);
    let done = with(json!({
        "values": {"status": "completed", "response": [], "failure": true, "method": 7},
        "conditions": {"status": "enqueued", "failure": {}},
    }));
    node.ok("PUT", &format!("{rows}?id=m-1"), done).await;
    let kept = node.ok("GET", &rows, Value::Null).await["result"]["row 0"].clone();
    let texts = ["response", "failure", "method"].map(|column| kept[column].clone());
    assert_eq!(texts, [json!("[]"), json!("true"), json!("7")]);
}

pub(crate) async fn conductor_cascades_its_order_locks() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    node.ok("POST", "/keyspaces/order", keyspace()).await;
    let table = "/keyspaces/order/tables/order_locks";
    let fields = json!({"fields": {
        "id": "text", "plans": "map<text,text>", "is_spinup_completed": "boolean",
        "PRIMARY KEY": "(id)",
    }, "consistencyInfo": {"type": "atomic"}});
    node.ok("POST", table, fields).await;
    let insert = |plan: &str| {
        json!({
            "primaryKey": "id", "primaryKeyValue": "c1", "casscadeColumnName": "plans",
            "tableValues": {"id": "c1", "is_spinup_completed": false},
            "casscadeColumnData": {"key": plan, "value": {"created": "1", "updated": "2"}},
            "conditions": {"exists": {"status": "parked"}, "nonexists": {"status": "rehome"}},
        })
    };
    let path = "/conditional/insert/keyspaces/order/tables/order_locks";
    for plan in ["p1", "p2"] {
        let (status, answer) = node.call("POST", path, insert(plan)).await;
        assert_eq!(
            (status, answer["status"].as_str()),
            (200, Some("SUCCESS")),
            "{answer}"
        );
    }
    let rows = node
        .ok("GET", &format!("{table}/rows?id=c1"), Value::Null)
        .await;
    let plans = &rows["result"]["row 0"]["plans"];
    let status = |plans: &Value, plan: &str| {
        let plan: Value = serde_json::from_str(plans[plan].as_str().unwrap()).unwrap();
        (plan["status"].clone(), plan["created"].clone())
    };
    assert_eq!(status(plans, "p1"), (json!("rehome"), json!("1")));
    assert_eq!(status(plans, "p2"), (json!("parked"), json!("1")));
    // An update overwrites what is there, and writes the table's values, with or without the key.
    let update = json!({
        "primaryKey": "id", "primaryKeyValue": "c1", "casscadeColumnName": "plans",
        "tableValues": {"is_spinup_completed": "true"},
        "casscadeColumnData": {"key": "p2", "value": {"status": "completed", "surprise": "no"}},
    });
    let path = "/conditional/update/keyspaces/order/tables/order_locks";
    let (status_of, answer) = node.call("PUT", path, update.clone()).await;
    assert_eq!(
        (status_of, answer["message"].as_str()),
        (200, Some("update success"))
    );
    let rows = node
        .ok("GET", &format!("{table}/rows?id=c1"), Value::Null)
        .await;
    let row = &rows["result"]["row 0"];
    assert_eq!(
        status(&row["plans"], "p2"),
        (json!("completed"), json!("1"))
    );
    assert_eq!(status(&row["plans"], "p1"), (json!("rehome"), json!("1")));
    assert!(!row["plans"]["p2"].as_str().unwrap().contains("surprise"));
    assert_eq!(row["is_spinup_completed"], true);
    fails_as_the_original(node, path, update).await;
}

/// What is missing is 401; what fails inside is 200 with FAILURE.
async fn fails_as_the_original(node: &Music, path: &str, update: Value) {
    let mut bare = update.clone();
    bare["primaryKeyValue"] = Value::Null;
    assert_eq!(node.call("PUT", path, bare).await.0, 401);
    let mut other = update;
    other["primaryKeyValue"] = json!("c2");
    let (status, answer) = node.call("PUT", path, other).await;
    assert_eq!(
        (status, answer["status"].as_str()),
        (200, Some("FAILURE")),
        "{answer}"
    );
}

pub(crate) async fn voting_app_votes_to_its_end() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    assert_eq!(
        node.ok("GET", "/version", Value::Null).await["version"],
        "MUSIC:3.2.40"
    );
    node.ok("POST", "/keyspaces/VotingAppBharath", keyspace())
        .await;
    let table = "/keyspaces/VotingAppBharath/tables/votevolume";
    let fields = json!({
        "fields": {"name": "text", "count": "varint", "PRIMARY KEY": "(name)"},
        "consistencyInfo": {"type": "eventual"}, "keyspaceName": "VotingAppBharath",
    });
    let made = node.ok("POST", table, fields).await;
    assert_eq!(
        made["message"],
        "TableName votevolume Created under keyspace VotingAppBharath"
    );
    let rows = format!("{table}/rows");
    for (name, count) in [("Trump", json!(0)), ("Bernie", json!("0"))] {
        let row = json!({
            "values": {"name": name, "count": count}, "consistencyInfo": {"type": "eventual"},
            "ttl": null, "timestamp": null, "row_specification": null,
        });
        node.ok("POST", &rows, row).await;
    }
    // The vote, with the lock id raw or encoded in paths.
    let id = node.lock("VotingAppBharath.votevolume.Trump").await;
    assert!(
        id.starts_with("$VotingAppBharath.votevolume.Trump$"),
        "{id}"
    );
    node.acquire(&id).await;
    let vote = json!({
        "values": {"count": 5}, "consistencyInfo": {"type": "critical", "lockId": id},
    });
    let done = node.ok("PUT", &format!("{rows}?name=Trump"), vote).await;
    assert_eq!(done["message"], "Update performed");
    let released = node
        .ok(
            "DELETE",
            &format!("/locks/release/{}", id.replace('$', "%24")),
            Value::Null,
        )
        .await;
    assert_eq!(
        released["lock"],
        json!({"lock": id, "lock-status": "UNLOCKED"})
    );
    let read = node
        .ok("GET", &format!("{rows}?name=Trump"), Value::Null)
        .await;
    assert_eq!(
        read["result"]["row 0"],
        json!({"name": "Trump", "count": 5})
    );
    ends(node, table).await;
}

/// Where the original loses the delete, and refuses the last call.
async fn ends(node: &Music, table: &str) {
    let rows = format!("{table}/rows");
    let delete = json!({"consistencyInfo": {"type": "eventual"}});
    let deleted = node
        .ok("DELETE", &format!("{rows}?name=Trump"), delete)
        .await;
    assert_eq!(
        deleted["message"],
        "Eventual Operation Successfully performed"
    );
    let left = node.ok("GET", &rows, Value::Null).await;
    assert_eq!(
        left["result"],
        json!({"row 0": {"name": "Bernie", "count": 0}})
    );
    node.ok(
        "DELETE",
        "/locks/delete/VotingAppBharath.votevolume.Trump",
        Value::Null,
    )
    .await;
    node.ok("DELETE", "/keyspaces/VotingAppBharath", keyspace())
        .await;
}

pub(crate) async fn prom_takes_over_from_a_dead_site() {
    let (mut cluster, nodes) = start(3).await;
    let [active, passive, _] = &nodes[..] else {
        panic!()
    };
    let replicas = "/keyspaces/prom_app/tables/Replicas";
    for node in [active, passive] {
        // The second daemon finds it there, and goes on.
        node.call("POST", "/keyspaces/prom_app", keyspace()).await;
        let fields = json!({
            "fields": {"id": "text", "isactive": "boolean", "timeoflastupdate": "varint",
                "lockref": "text", "PRIMARY KEY": "(id)"},
            "consistencyInfo": {"type": "eventual"},
        });
        node.call("POST", replicas, fields).await;
        node.ok("POST", &format!("{replicas}/index/lockref"), Value::Null)
            .await;
    }
    let rows = format!("{replicas}/rows");
    let health = |id: &str, lock: &str, active: bool| {
        json!({
            "values": {"id": id, "timeoflastupdate": 1_605_000_000_000_i64, "lockref": lock,
                "isactive": active},
            "consistencyInfo": {"type": "eventual"}, "ttl": null, "timestamp": null,
        })
    };
    // The lock is of no table.
    let first = active.lock("prom_app.active.lock").await;
    active.acquire(&first).await;
    active
        .ok("POST", &rows, health("site1", &first, true))
        .await;
    let second = passive.lock("prom_app.active.lock").await;
    passive
        .ok("POST", &rows, health("site2", &second, false))
        .await;
    // Waiting is a failure with a message, and no reason to make another lock.
    let (status, waits) = passive
        .call("GET", &format!("/locks/acquire/{second}"), Value::Null)
        .await;
    assert_eq!(status, 400);
    assert_eq!(waits["message"], format!("{second} is not a lock holder"));
    let holder = passive
        .ok("GET", "/locks/enquire/prom_app.active.lock", Value::Null)
        .await;
    assert_eq!(holder["lock"]["lock-holder"], first.as_str());
    let of = format!("{rows}?lockref={first}");
    let found = passive.rows(&of, |rows| rows.get("row 0").is_some()).await;
    assert_eq!(found["row 0"]["id"], "site1");
    assert!(found["row 0"]["timeoflastupdate"].is_i64());
    // The active site and its node die; the passive site releases its lock and takes over.
    cluster.kill(0).await;
    passive
        .ok("DELETE", &format!("/locks/release/{first}"), Value::Null)
        .await;
    passive.acquire(&second).await;
    let gone = json!({
        "values": {"isactive": false, "lockref": ""}, "consistencyInfo": {"type": "eventual"},
    });
    passive.ok("PUT", &format!("{rows}?id=site1"), gone).await;
    let site = passive
        .ok("GET", &format!("{rows}?id=site1"), Value::Null)
        .await;
    assert_eq!(
        site["result"]["row 0"]["timeoflastupdate"], 1_605_000_000_000_i64,
        "{site}"
    );
    // The old id is past: a failure without a message.
    let (status, past) = passive
        .call("GET", &format!("/locks/acquire/{first}"), Value::Null)
        .await;
    assert_eq!((status, past.get("message")), (400, None), "{past}");
    assert!(past.get("lock").is_none() && past.get("error").is_some());
}

pub(crate) async fn clients_of_the_first_generation() {
    let (_cluster, mut nodes) = start(1).await;
    let mut node = nodes.remove(0);
    node.root = "/MUSIC/rest";
    let data = "/keyspaces/ks/tables/votes/rows";
    assert_eq!(node.raw("GET", "/version", "null").await.2, "MUSIC:3.2.40");
    assert_eq!(
        node.raw("POST", "/keyspaces/ks", &keyspace().to_string())
            .await
            .0,
        200
    );
    let fields = json!({
        "fields": {"name": "text", "count": "varint", "PRIMARY KEY": "(name)"},
        "consistencyInfo": {"type": "eventual"},
    });
    // The Python client sends a slash after the table.
    let (status, ..) = node
        .raw("POST", "/keyspaces/ks/tables/votes/", &fields.to_string())
        .await;
    assert_eq!(status, 200);
    let row = json!({
        "values": {"name": "joe", "count": 0}, "consistencyInfo": {"type": "eventual"},
    });
    assert_eq!(node.raw("POST", data, &row.to_string()).await.0, 200);
    // It sends `null` as text to the locks, and reads text.
    node.headers = vec![("content-type", "text/plain"), ("accept", "text/plain")];
    let (status, kind, id) = node.raw("POST", "/locks/create/ks.votes.joe", "null").await;
    assert_eq!((status, kind.as_str()), (200, "text/plain"), "{id}");
    assert!(id.starts_with("$ks.votes.joe$"), "{id}");
    let (_, _, other) = node.raw("POST", "/locks/create/ks.votes.joe", "null").await;
    let acquire = |id: &str| format!("/locks/acquire/{id}");
    assert_eq!(node.raw("GET", &acquire(&id), "").await.2, "true");
    assert_eq!(node.raw("GET", &acquire(&other), "").await.2, "false");
    // Its "atomic" with a lock is a critical put.
    let vote = json!({
        "values": {"count": 1}, "consistencyInfo": {"type": "atomic", "lockId": id},
    });
    node.headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json"),
    ];
    let (status, _, said) = node
        .raw("PUT", &format!("{data}?name=joe"), &vote.to_string())
        .await;
    assert_eq!(status, 200, "{said}");
    // Released and deleted: exactly 204.
    for path in [
        format!("/locks/release/{id}"),
        format!("/locks/release/{other}"),
        "/locks/delete/ks.votes.joe".into(),
    ] {
        assert_eq!(node.raw("DELETE", &path, "").await.0, 204, "{path}");
    }
    // Rows without an envelope.
    let (_, _, rows) = node.raw("GET", &format!("{data}?name=joe"), "").await;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows, json!({"row 0": {"name": "joe", "count": 1}}));
    // A client of the second generation that asks for text has it: conductor's lock methods.
    node.root = "/MUSIC/rest/v2";
    node.headers = vec![("content-type", "text/plain"), ("accept", "text/plain")];
    let (_, _, id) = node.raw("POST", "/locks/create/ks.votes.joe", "").await;
    assert_eq!(node.raw("GET", &acquire(&id), "").await.2, "true");
}

pub(crate) async fn robots_and_health_checks() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    let ping = node
        .ok("GET", "/service/pingCassandra/ONE", Value::Null)
        .await;
    assert_eq!(ping["status"], "ACTIVE");
    assert_eq!(ping["message"], ping["ACTIVE"]);
    let health = node
        .ok("GET", "/service/musicHealthCheck", Value::Null)
        .await;
    assert_eq!(health, json!({"MUSIC": "Active", "Cassandra": "Active"}));
    let test = node.ok("GET", "/test", Value::Null).await;
    assert_eq!(test["1"]["2"], "3");
    assert!(
        node.ok("GET", "/version/build", Value::Null)
            .await
            .get("build")
            .is_some()
    );
    let body = json!({"appname": "testapp", "userId": "u", "isAAF": "false", "password": "p"});
    let first = node
        .ok("POST", "/admin/onboardAppWithMusic", body.clone())
        .await;
    let again = node.ok("POST", "/admin/onboardAppWithMusic", body).await;
    assert_eq!(first["Generated AID"], again["Generated AID"]);
    // CSIT: definitions, a row with a query that means nothing, an atomic put.
    node.ok("POST", "/keyspaces/MusicOnapKeyspace", keyspace())
        .await;
    let table = "/keyspaces/MusicOnapKeyspace/tables/MusicOnapTable";
    let fields = json!({
        "fields": {"emp_id": "text", "emp_name": "text", "emp_salary": "int", "threadIndex": "int",
            "PRIMARY KEY": "(emp_name)"},
        "properties": {"comment": "Financial Info from employees",
            "compression": {"sstable_compression": "DeflateCompressor"}},
        "consistencyInfo": {"type": "eventual"},
    });
    node.ok("POST", table, fields).await;
    let rows = format!("{table}/rows");
    let row = json!({
        "values": {"emp_name": "fred", "emp_salary": "1000", "threadIndex": 7},
        "consistencyInfo": {"type": "eventual", "consistency": "QUORUM"},
    });
    node.ok("POST", &format!("{rows}/?row=emp1"), row).await;
    let put = json!({"values": {"emp_salary": 2000}, "consistencyInfo": {"type": "ATOMIC"}});
    node.ok("PUT", &format!("{rows}?emp_name=fred"), put).await;
    let read = node
        .ok("GET", &format!("{rows}?emp_name=fred"), Value::Null)
        .await;
    let shown = json!({
        "emp_name": "fred", "emp_salary": 2000, "emp_id": null, "threadindex": 7,
    });
    assert_eq!(read["result"]["row 0"], shown);
    let unknown = node.no("GET", "/nothing", Value::Null).await;
    assert_eq!(unknown, "HTTP 404 Not Found");
    assert_eq!(
        node.no("PUT", table, Value::Null).await,
        "HTTP 405 Method Not Allowed"
    );
    let path = "/MUSIC/rest/v3/version";
    assert_eq!(
        node.rest.send("GET", path, &[], b"").await.0,
        200,
        "any version number"
    );
}
