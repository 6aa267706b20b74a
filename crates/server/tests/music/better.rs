//! What ONAP's MUSIC server does wrong, one test for each kind: here it is done right.

use super::Stage;
use super::clients::{Music, encoded, keyspace, start, start_on};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) async fn define(node: &Music, fields: Value) {
    node.ok("POST", "/keyspaces/ks", keyspace()).await;
    let table = json!({"fields": fields, "consistencyInfo": {"type": "eventual"}});
    node.ok("POST", "/keyspaces/ks/tables/t", table).await;
}

pub(crate) const ROWS: &str = "/keyspaces/ks/tables/t/rows";

fn write(values: Value, kind: &str) -> Value {
    json!({"values": values, "consistencyInfo": {"type": kind}})
}

pub(crate) fn critical(values: Value, id: &str) -> Value {
    json!({"values": values, "consistencyInfo": {"type": "critical", "lockId": id}})
}

pub(crate) async fn nothing_is_dropped_that_was_answered_success() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    let fields = json!({"k": "text", "a": "int", "b": "int", "u": "uuid", "x": "blob",
        "m": "map<text,text>", "l": "list<text>", "PRIMARY KEY": "(k)"});
    define(node, fields).await;
    // A critical put, and then eventual ones: the original drops these for ever.
    let id = node.lock("ks.t.k").await;
    node.acquire(&id).await;
    node.ok(
        "PUT",
        &format!("{ROWS}?k=k"),
        critical(json!({"a": 1}), &id),
    )
    .await;
    // Beside the holder, an eventual write is refused, or it would be dropped.
    let said = node
        .no("POST", ROWS, write(json!({"k": "k", "b": 9}), "eventual"))
        .await;
    assert!(said.contains("nothing was written"), "{said}");
    node.ok("DELETE", &format!("/locks/release/{id}"), Value::Null)
        .await;
    for kind in ["eventual", "eventual_nb", "atomic"] {
        node.ok("PUT", &format!("{ROWS}?k=k"), write(json!({"b": 2}), kind))
            .await;
    }
    let read = node.ok("GET", &format!("{ROWS}?k=k"), Value::Null).await;
    let row = json!({"k": "k", "a": 1, "b": 2, "u": null, "x": null, "m": {}, "l": []});
    assert_eq!(
        read["result"]["row 0"], row,
        "unset is null, and a null blob can be read"
    );
    // What does not convert is refused, not stored as null.
    for (column, value) in [
        ("a", json!("seven")),
        ("u", json!("x")),
        ("m", json!(1)),
        ("x", json!("!")),
    ] {
        let said = node
            .no(
                "PUT",
                &format!("{ROWS}?k=k"),
                write(json!({column: value}), "eventual"),
            )
            .await;
        assert!(
            said.starts_with(&format!("Invalid value of column {column}")),
            "{said}"
        );
    }
    conditions_and_deletes_hold(node).await;
}

/// Of a row `k` with `a` 1 and `b` 2.
async fn conditions_and_deletes_hold(node: &Music) {
    // Stamps are refused, and conditions hold for every kind of write.
    for (name, value, why) in [
        ("timestamp", json!(5), "is not supported"),
        ("ttl", json!("soon"), "Invalid ttl"),
    ] {
        let mut body = write(json!({"k": "k", "a": 3}), "eventual");
        body[name] = value;
        let said = node.no("POST", ROWS, body).await;
        assert!(said.contains(why), "{said}");
    }
    let mut body = write(json!({"a": 4}), "eventual");
    body["conditions"] = json!({"b": 3});
    node.no("PUT", &format!("{ROWS}?k=k"), body).await;
    // Columns are deleted, and rows.
    let delete = json!({"columns": ["B"], "consistencyInfo": {"type": "eventual"}});
    node.ok("DELETE", &format!("{ROWS}?k=k"), delete).await;
    let read = node.ok("GET", ROWS, Value::Null).await;
    assert_eq!(
        (&read["result"]["row 0"]["a"], &read["result"]["row 0"]["b"]),
        (&json!(1), &Value::Null)
    );
    // A table of the same name is another table.
    node.ok("DELETE", "/keyspaces/ks/tables/t", Value::Null)
        .await;
    let table = json!({"fields": {"k": "text", "PRIMARY KEY": "k"}});
    node.ok("POST", "/keyspaces/ks/tables/t", table).await;
    assert_eq!(node.ok("GET", ROWS, Value::Null).await["result"], json!({}));
}

/// How many values of rows there are.
async fn kept(node: &Music) -> usize {
    let path = "/v1/keyspaces/music/keys?limit=1000";
    let (status, listed) = node.rest.json("GET", path, Value::Null).await;
    assert_eq!(status, 200, "{listed}");
    let keys = listed["keys"].as_array().unwrap().iter();
    let begins = |key: &&Value| key["key"].as_str().unwrap().starts_with("r\0");
    keys.filter(begins).count()
}

pub(crate) async fn what_expires_is_seen_no_more_and_goes() {
    let (_cluster, nodes) = start(3).await;
    define(
        &nodes[0],
        json!({"k": "text", "a": "int", "b": "int", "PRIMARY KEY": "(k)"}),
    )
    .await;
    let expiring = |values: Value, kind: &str, ttl: Value| {
        let mut body = write(values, kind);
        body["ttl"] = ttl;
        body
    };
    // As text or as a number, and for every kind of write.
    let id = nodes[0].lock("ks.t.critical").await;
    nodes[0].acquire(&id).await;
    let mut held = critical(json!({"k": "critical", "a": 1}), &id);
    held["ttl"] = json!("2");
    nodes[0].ok("POST", ROWS, held).await;
    let release = format!("/locks/release/{id}");
    nodes[0].ok("DELETE", &release, Value::Null).await;
    for kind in ["eventual", "atomic"] {
        let row = json!({"k": kind, "a": 1, "b": 2});
        let body = expiring(row, kind, json!(2));
        nodes[1].ok("POST", ROWS, body).await;
    }
    let long = expiring(json!({"k": "long", "a": 1}), "eventual", json!(3_600));
    nodes[0].ok("POST", ROWS, long).await;
    // A column alone, of a row that stays.
    nodes[2]
        .ok("POST", ROWS, write(json!({"k": "stays", "a": 1}), "atomic"))
        .await;
    let body = expiring(json!({"b": 2}), "atomic", json!(2));
    nodes[2].ok("PUT", &format!("{ROWS}?k=stays"), body).await;
    let critical_get = |k: &str| format!("{ROWS}/criticalget?k={k}");
    let atomic = json!({"consistencyInfo": {"type": "atomic"}});
    for node in &nodes {
        let left = |k: &str| json!({"k": k, "a": 1, "b": null});
        let (long, stays) = (left("long"), left("stays"));
        let two = |rows: &Value| {
            let rows: Vec<&Value> = rows.as_object().unwrap().values().collect();
            rows.len() == 2 && rows.contains(&&long) && rows.contains(&&stays)
        };
        node.rows(ROWS, two).await;
        for gone in ["critical", "eventual", "atomic"] {
            let read = node.ok("PUT", &critical_get(gone), atomic.clone()).await;
            assert_eq!(read["result"], json!({}), "{gone}");
        }
    }
    // In the end nothing is left of what is over.
    let mut left = kept(&nodes[0]).await;
    for _ in 0..600 {
        if left == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        left = kept(&nodes[0]).await;
    }
    panic!("{left} units are left");
}

pub(crate) async fn columns_written_at_the_same_time_are_all_kept() {
    let (_cluster, nodes) = start(3).await;
    let mut fields = json!({"k": "text", "PRIMARY KEY": "(k)"});
    for column in 0..9 {
        fields[format!("c{column}")] = json!("int");
    }
    define(&nodes[0], fields).await;
    nodes[0]
        .ok("POST", ROWS, write(json!({"k": "k"}), "eventual"))
        .await;
    let put = |column: usize| {
        let values = write(json!({format!("c{column}"): column}), "eventual");
        let node = &nodes[column % 3];
        // Stores that are busy say to ask again.
        async move { node.insist("PUT", &format!("{ROWS}?k=k"), values).await }
    };
    tokio::join!(
        put(0),
        put(1),
        put(2),
        put(3),
        put(4),
        put(5),
        put(6),
        put(7),
        put(8)
    );
    let get = json!({"consistencyInfo": {"type": "atomic"}});
    let read = nodes[1]
        .ok("PUT", &format!("{ROWS}/criticalget?k=k"), get)
        .await;
    for column in 0..9 {
        assert_eq!(
            read["result"]["row 0"][format!("c{column}")],
            column,
            "{read}"
        );
    }
}

pub(crate) async fn keys_of_any_letters_are_locked_written_and_released() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    define(
        node,
        json!({"k": "text", "v": "text", "PRIMARY KEY": "(k)"}),
    )
    .await;
    let keys = [
        "a.b",
        "a.c",
        "a",
        "o'hara",
        "x'; DROP TABLE t; --",
        "a/b",
        "a$1",
        "$a$2",
        "é ü",
        "a+b&c=d%",
    ];
    let mut ids = Vec::new();
    for key in keys {
        // All at a time: no key's lock is another's.
        let id = node.lock(&format!("ks.t.{}", encoded(key))).await;
        assert!(id.starts_with(&format!("$ks.t.{key}$")), "{id}");
        node.acquire(&id).await;
        let path = format!("{ROWS}?k={}", encoded(key));
        node.ok("PUT", &path, critical(json!({"v": key}), &id))
            .await;
        let get = json!({"consistencyInfo": {"type": "critical", "lockId": id}});
        let read = node
            .ok("PUT", &path.replace("rows?", "rows/criticalget?"), get)
            .await;
        assert_eq!(read["result"]["row 0"], json!({"k": key, "v": key}));
        ids.push(id);
    }
    for (key, id) in keys.iter().zip(&ids) {
        let name = format!("/locks/enquire/ks.t.{}", encoded(key));
        let holder = node.ok("GET", &name, Value::Null).await;
        assert_eq!(holder["lock"]["lock-holder"], id.as_str());
        node.ok(
            "DELETE",
            &format!("/locks/release/{}", encoded(id)),
            Value::Null,
        )
        .await;
        let free = node.no("GET", &name, Value::Null).await;
        assert_eq!(free, "There was a problem getting the lock holder");
        let row = node
            .ok("GET", &format!("{ROWS}?k={}", encoded(key)), Value::Null)
            .await;
        assert_eq!(row["result"]["row 0"]["v"], *key);
    }
    let all = node.ok("GET", ROWS, Value::Null).await;
    assert_eq!(all["result"].as_object().unwrap().len(), keys.len());
}

pub(crate) async fn locks_say_who_they_are_and_whose_turn_it_is() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    let read_lock = json!({"locktype": "read"});
    let mut readers = Vec::new();
    for _ in 0..2 {
        let made = node
            .ok("POST", "/locks/create/ks.t.k", read_lock.clone())
            .await;
        readers.push(made["lock"]["lock"].as_str().unwrap().to_owned());
    }
    for reader in &readers {
        node.acquire(reader).await;
    }
    let put = |id: &str| critical(json!({"v": 1}), id);
    let path = format!("{ROWS}?k=k");
    let holders = node.ok("GET", "/locks/holders/ks.t.k", Value::Null).await;
    assert_eq!(
        holders["lock"]["lock-holder"],
        json!(readers),
        "all leading readers"
    );
    let said = node.no("PUT", &path, put(&readers[0])).await;
    assert_eq!(
        said,
        format!(
            "Attempting to do write operation, but {} is a read lock",
            readers[0]
        )
    );
    // Promoted for real: in progress beside another reader, and then a write lock.
    let promote = format!("/locks/promote/{}", readers[0]);
    let said = node.no("POST", &promote, Value::Null).await;
    assert!(said.contains("in progress"), "{said}");
    let said = node
        .no(
            "POST",
            &format!("/locks/promote/{}", readers[1]),
            Value::Null,
        )
        .await;
    assert_eq!(said, "Can't promote, already promoting another lockref.");
    node.ok(
        "DELETE",
        &format!("/locks/release/{}", readers[1]),
        Value::Null,
    )
    .await;
    let done = node.ok("POST", &promote, Value::Null).await;
    assert_eq!(done["message"], "Lock has successfully been upgraded.");
    node.ok("PUT", &path, put(&readers[0])).await;
    let said = node.no("POST", &promote, Value::Null).await;
    assert_eq!(said, "Lockref is already write.");
    let holders = node.ok("GET", "/locks/holders/ks.t.k", Value::Null).await;
    assert_eq!(
        holders["lock"]["lock-holder"],
        json!([readers[0]]),
        "the one writer"
    );
}

pub(crate) async fn who_does_not_hold_is_told_why() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    let put = |id: &str| critical(json!({"v": 1}), id);
    let path = format!("{ROWS}?k=k");
    let reader = node
        .ok("POST", "/locks/create/ks.t.k", json!({"lockType": "READ"}))
        .await;
    let reader = reader["lock"]["lock"].as_str().unwrap().to_owned();
    let other = node.lock("ks.t.k").await;
    let said = node.no("PUT", &path, put(&other)).await;
    assert_eq!(said, format!("{other} is not the lock holder"));
    // A reader behind which a writer waits cannot become one: not without a write in between.
    let said = node
        .no("POST", &format!("/locks/promote/{reader}"), Value::Null)
        .await;
    assert!(said.contains("a write lock already waits"), "{said}");
    node.ok("DELETE", &format!("/locks/release/{reader}"), Value::Null)
        .await;
    node.acquire(&other).await;
    // Another key's lock, and ids of nothing.
    let said = node.no("PUT", &format!("{ROWS}?k=full"), put(&other)).await;
    assert!(
        said.contains("Lock value 'k' and key value 'full' not match"),
        "{said}"
    );
    assert!(
        node.no("PUT", &path, put("junk"))
            .await
            .contains("is no lock id")
    );
    assert!(
        node.no("PUT", &path, put(&reader))
            .await
            .contains("does not exist")
    );
}

pub(crate) async fn whoever_would_wait_for_himself_is_refused() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    // Somebody who waits for whoever waits for him is refused.
    let owned = |owner: &'static str| Music::owned(node, owner);
    let a = owned("A").lock("ks.t.one").await;
    let b = owned("B").lock("ks.t.two").await;
    owned("A").lock("ks.t.two").await;
    let said = owned("B")
        .no("POST", "/locks/create/ks.t.one", Value::Null)
        .await;
    assert_eq!(
        said,
        "Deadlock detected when B tried to create lock on ks.t.one"
    );
    node.ok("DELETE", &format!("/locks/release/{b}"), Value::Null)
        .await;
    node.ok("DELETE", &format!("/locks/release/{a}"), Value::Null)
        .await;
    owned("B").lock("ks.t.one").await;
}

pub(crate) async fn a_lock_of_which_nobody_speaks_ends_and_an_old_one_is_evicted() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    // The head of the queue, never acquired; in the original it blocks for ever.
    let short = json!({"leasePeriod": 1_000});
    node.ok("POST", "/locks/create/ks.t.k", short).await;
    let next = node.lock("ks.t.k").await;
    node.acquire(&next).await;
    // Older than the period: out of the way. Who was evicted is told so.
    let third = node.lock("ks.t.k").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let lease = json!({"leasePeriod": "10"});
    let path = format!("/locks/acquire-with-lease/{third}");
    let mut answer = node.call("POST", &path, lease.clone()).await;
    for _ in 0..100 {
        if answer.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = node.call("POST", &path, lease.clone()).await;
    }
    assert_eq!(
        answer.1["lock"],
        json!({"lock": "ks.t.k", "lock-lease": "10"}),
        "{answer:?}"
    );
    let said = node
        .no(
            "PUT",
            &format!("{ROWS}?k=k"),
            critical(json!({"v": 1}), &next),
        )
        .await;
    assert!(said.contains("does not exist"), "{said}");
    node.ok(
        "PUT",
        &format!("{ROWS}?k=k"),
        critical(json!({"v": 3}), &third),
    )
    .await;
    // All of a name's locks, by the name.
    node.lock("ks.t.k").await;
    node.ok("DELETE", "/locks/delete/ks.t.k", Value::Null).await;
    node.no("GET", "/locks/holders/ks.t.k", Value::Null).await;
}

pub(crate) async fn any_node_answers_for_a_lock_and_survives_its_home() {
    let (mut cluster, nodes) = start(3).await;
    let [home, other, third] = &nodes[..] else {
        panic!()
    };
    define(
        home,
        json!({"k": "text", "v": "int", "w": "int", "PRIMARY KEY": "(k)"}),
    )
    .await;
    let id = home.lock("ks.t.k").await;
    other.acquire(&id).await;
    let path = format!("{ROWS}?k=k");
    // One node numbers all writes, whoever is asked.
    for (at, node) in [third, other, home, third].into_iter().enumerate() {
        node.ok("PUT", &path, critical(json!({"v": at}), &id)).await;
    }
    let get = json!({"consistencyInfo": {"type": "critical", "lockId": id}});
    let read = other
        .ok("PUT", &format!("{ROWS}/criticalget?k=k"), get.clone())
        .await;
    assert_eq!(read["result"]["row 0"]["v"], 3, "{read}");
    // The home dies: the next node that is asked goes on, with everything that was acknowledged.
    cluster.kill(0).await;
    // Two that are asked at a time do not tell each other's client that the lock is gone.
    tokio::join!(third.acquire(&id), other.acquire(&id));
    third.ok("PUT", &path, critical(json!({"w": 1}), &id)).await;
    let read = other
        .ok("PUT", &format!("{ROWS}/criticalget?k=k"), get)
        .await;
    assert_eq!(read["result"]["row 0"], json!({"k": "k", "v": 3, "w": 1}));
    other
        .ok("DELETE", &format!("/locks/release/{id}"), Value::Null)
        .await;
    third
        .ok("PUT", &path, write(json!({"v": 9}), "atomic"))
        .await;
}

/// Nobody asks for a moment, then a write comes first.
pub(crate) async fn a_write_is_done_though_the_home_of_its_lock_is_gone() {
    let (mut cluster, nodes) = start(3).await;
    let [home, other, third] = &nodes[..] else {
        panic!()
    };
    define(home, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    let id = home.lock("ks.t.k").await;
    home.acquire(&id).await;
    let path = format!("{ROWS}?k=k");
    home.ok("PUT", &path, critical(json!({"v": 1}), &id)).await;
    cluster.kill(0).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    for (node, v) in [(other, 2), (third, 3)] {
        node.insist("PUT", &path, critical(json!({"v": v}), &id))
            .await;
    }
    let get = json!({"consistencyInfo": {"type": "critical", "lockId": id}});
    let path = format!("{ROWS}/criticalget?k=k");
    let read = other.insist("PUT", &path, get).await;
    assert_eq!(read["result"]["row 0"]["v"], 3, "{read}");
}

pub(crate) async fn composite_keys_orders_and_queues() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    let fields =
        json!({"site": "text", "n": "int", "v": "text", "w": "text", "PRIMARY KEY": "(site, n)"});
    node.ok("POST", "/keyspaces/ks", keyspace()).await;
    let table = json!({"fields": fields, "clusteringOrder": "n DESC"});
    node.ok(
        "POST",
        "/v2/priorityq/keyspaces/ks/t".trim_start_matches("/v2"),
        table,
    )
    .await;
    for (site, n) in [("a", 2), ("a", 10), ("a", 1), ("b", 7)] {
        let row = write(
            json!({"site": site, "n": n, "v": "x", "w": "y"}),
            "eventual",
        );
        node.ok("POST", ROWS, row).await;
    }
    let first = node
        .ok("GET", "/priorityq/keyspaces/ks/t/peek?site=a", Value::Null)
        .await;
    assert_eq!(first["result"]["row 0"]["n"], 10);
    let of = |rows: &Value| -> Vec<i64> {
        let rows = rows["result"].as_object().unwrap();
        (0..rows.len())
            .map(|at| rows[&format!("row {at}")]["n"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(
        of(&node.ok("GET", &format!("{ROWS}?site=a"), Value::Null).await),
        [10, 2, 1]
    );
    // Conditions on composite keys, which fail in the original, and the lock of the partition.
    let mut put = write(json!({"v": "z"}), "atomic");
    put["conditions"] = json!({"w": "y"});
    node.ok("PUT", &format!("{ROWS}?site=a&n=2"), put).await;
    let id = node.lock("ks.t.a").await;
    node.acquire(&id).await;
    node.ok(
        "PUT",
        &format!("{ROWS}?site=a&n=1"),
        critical(json!({"v": "q"}), &id),
    )
    .await;
    let delete = json!({"consistencyInfo": {"type": "critical", "lockId": id}});
    node.ok("DELETE", &format!("{ROWS}?site=a&n=10"), delete)
        .await;
    let rows = node.ok("GET", &format!("{ROWS}?site=a"), Value::Null).await;
    assert_eq!(
        (of(&rows), &rows["result"]["row 1"]["v"]),
        (vec![2, 1], &json!("q"))
    );
    let said = node
        .no(
            "PUT",
            &format!("{ROWS}?site=a"),
            write(json!({"v": "z"}), "atomic"),
        )
        .await;
    assert!(said.contains("key parts are missing: n"), "{said}");
    let said = node.no("GET", &format!("{ROWS}?v=z"), Value::Null).await;
    assert!(said.contains("data filtering"), "{said}");
    node.ok("POST", "/keyspaces/ks/tables/t/index/v", Value::Null)
        .await;
    assert_eq!(
        of(&node.ok("GET", &format!("{ROWS}?v=z"), Value::Null).await),
        [2]
    );
}

pub(crate) async fn a_lock_outlives_its_lease_while_its_home_lives() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    // The operator's own bounds.
    let own = json!({"name": "music", "purpose": "sections", "lease_ms": 3_000});
    let (status, said) = node.beside("POST", "/v1/keyspaces", own).await;
    assert_eq!(status, 201, "{said}");
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    let id = node.lock("ks.t.k").await;
    let next = node.lock("ks.t.k").await;
    node.acquire(&id).await;
    // Two leases without a word.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let path = format!("{ROWS}?k=k");
    node.ok("PUT", &path, critical(json!({"v": 1}), &id)).await;
    node.ok("DELETE", &format!("/locks/release/{id}"), Value::Null)
        .await;
    node.acquire(&next).await;
    node.ok("PUT", &path, critical(json!({"v": 2}), &next))
        .await;
}

pub(crate) async fn a_home_that_has_forgotten_goes_on() {
    let (mut cluster, nodes) = start(1).await;
    let node = &nodes[0];
    // Long enough for a restart on a slow machine.
    let own = json!({"name": "music", "purpose": "sections", "lease_ms": 10_000});
    let (status, said) = node.beside("POST", "/v1/keyspaces", own).await;
    assert_eq!(status, 201, "{said}");
    define(
        node,
        json!({"k": "text", "v": "int", "w": "int", "PRIMARY KEY": "(k)"}),
    )
    .await;
    let id = node.lock("ks.t.k").await;
    node.acquire(&id).await;
    let path = format!("{ROWS}?k=k");
    node.ok("PUT", &path, critical(json!({"v": 1}), &id)).await;
    cluster.restart(0).await;
    // The section is resumed; that waits until the lease of its former life is over.
    node.acquire(&id).await;
    node.ok("PUT", &path, critical(json!({"w": 2}), &id)).await;
    let read = node.ok("GET", &path, Value::Null).await;
    assert_eq!(read["result"]["row 0"], json!({"k": "k", "v": 1, "w": 2}));
}

pub(crate) async fn what_does_not_fit_is_refused_with_its_bound() {
    let (_cluster, nodes) = start_on(Stage::limited(64 << 10).await, 1);
    let node = &nodes[0];
    define(
        node,
        json!({"k": "text", "n": "int", "v": "text", "PRIMARY KEY": "(k, n)"}),
    )
    .await;
    let row = |n: usize| {
        write(
            json!({"k": "k", "n": n, "v": "v".repeat(20 << 10)}),
            "atomic",
        )
    };
    for n in 0..3 {
        node.ok("POST", ROWS, row(n)).await;
    }
    // All rows of a partition are one value.
    let said = node.no("POST", ROWS, row(3)).await;
    assert!(said.contains("value_bytes"), "{said}");
    let rows = node.ok("GET", ROWS, Value::Null).await;
    assert_eq!(rows["result"].as_object().unwrap().len(), 3);
    let long = write(json!({"k": "k".repeat(2_000), "n": 0}), "eventual");
    let said = node.no("POST", ROWS, long).await;
    assert!(said.contains("key_bytes"), "{said}");
}

/// Method, path, body, and what the failure says.
const WRONG: &str = r#"
POST|/keyspaces/x|{}|Incomplete Request body
POST|/keyspaces/a'b|{"replicationInfo":{"c":"x"},"consistencyInfo":{}}|keyspace name : a'b
DELETE|/keyspaces/x||Keyspace 'x' doesn't exist
POST|/keyspaces/x/tables/t|{"fields":{"k":"text","PRIMARY KEY":"k"}}|Keyspace 'x' doesn't exist
POST|/keyspaces/ks/tables/u|{}|No fields in request
POST|/keyspaces/ks/tables/u|{"fields":{"k":"text","PRIMARY KEY":"(k"}}|do not match
POST|/keyspaces/ks/tables/u|{"fields":{"k":"tex","PRIMARY KEY":"k"}}|Unknown type tex
DELETE|/keyspaces/ks/tables/u||Table 'ks.u' doesn't exist
POST|/keyspaces/ks/tables/t/index/z||Undefined column name z
POST|ROWS|{"consistencyInfo":{"type":"eventual"}}|Nothing to insert
POST|ROWS|{"values":{"k":"k"}}|consistencyInfo is missing
POST|ROWS|{"values":{"v":1},"consistencyInfo":{"type":"eventual"}}|key parts are missing: k
POST|ROWS|{"values":{"k":"k","z":1},"consistencyInfo":{"type":"eventual"}}|Invalid column name : z
POST|ROWS|{"values":{"k":"k"},"consistencyInfo":{"type":"casual"}}|consistencyInfo type casual
POST|ROWS|{"values":{"k":"k"},"consistencyInfo":{"type":"critical"}}|LockId cannot be null
POST|ROWS|{"values":{"k":""},"consistencyInfo":{"type":"eventual"}}|Key may not be empty
PUT|ROWS|{"values":{"v":1},"consistencyInfo":{"type":"eventual"}}|Mandatory WHERE clause is missing
PUT|ROWS?k=k|{"values":{"k":"x"},"consistencyInfo":{"type":"eventual"}}|PRIMARY KEY part k found
PUT|ROWS?v=1|{"values":{"v":2},"consistencyInfo":{"type":"eventual"}}|v is no column of
DELETE|ROWS?k=k||consistencyInfo is missing
GET|/keyspaces/ks/tables/u/rows||Table information not found
PUT|ROWS/criticalget?k=k|{}|Missing Body or Consistency type
PUT|ROWS/criticalget|{"consistencyInfo":{"type":"atomic"}}|Missing Row Identifier
POST|/locks/create/ks||Please make sure lock is of the type
POST|/locks/create/no.t.k||Keyspace 'no' doesn't exist
GET|/locks/acquire/junk||'junk' is no lock id
POST|/locks/acquire-with-lease/$ks.t.k$1|{}|leasePeriod is missing
"#;

pub(crate) async fn wrong_inputs_have_one_clear_line_each() {
    let (_cluster, nodes) = start(1).await;
    let node = &nodes[0];
    let said = node
        .no("POST", ROWS, write(json!({"k": "k"}), "eventual"))
        .await;
    assert_eq!(
        said,
        "Table name doesn't exists. Please check the table name."
    );
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    for line in WRONG.trim().lines() {
        let parts: Vec<&str> = line.split('|').collect();
        let path = parts[1].replace("ROWS", ROWS);
        let body = serde_json::from_str(parts[2]).unwrap_or(Value::Null);
        let said = node.no(parts[0], &path, body).await;
        assert!(said.contains(parts[3]), "{line}: {said}");
    }
    for body in ["{", "[]", "{\"values\": []}"] {
        let (status, kind, said) = node.raw("POST", ROWS, body).await;
        assert_eq!(
            (status, kind.as_str()),
            (400, "text/plain"),
            "{body}: {said}"
        );
    }
    // A page in a browser cannot lock anything.
    let page = Music::page(node);
    let said = page.no("POST", "/locks/create/ks.t.k", Value::Null).await;
    assert_eq!(said, "HTTP 415 Unsupported Media Type");
}
