//! The REST face of a whole node: sections, keys, events, and everything that is malformed.

use crate::common::TestCluster;
use crate::http::Rest;
use serde_json::{Value, json};

async fn start() -> (TestCluster, Rest) {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    (cluster, rest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_from_entry_to_leave() {
    let (_cluster, rest) = start().await;
    let body = json!({"keys": [{"key": "a"}, {"key": "b"}], "wait_ms": 20_000});
    let (status, section) = rest.json("POST", "/v1/sections", body.clone()).await;
    assert_eq!(
        (status, section["state"].as_str()),
        (201, Some("entered")),
        "{section}"
    );
    let id = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    let (status, done) = rest
        .json("PUT", &format!("{id}/keys/a"), json!({"value": "1"}))
        .await;
    assert_eq!(
        (status, done["sequence"].as_u64()),
        (200, Some(1)),
        "{done}"
    );
    let (status, value) = rest.json("GET", &format!("{id}/keys/a"), Value::Null).await;
    assert_eq!(
        (status, value["value"].as_str()),
        (200, Some("1")),
        "{value}"
    );
    let (status, state) = rest.json("POST", &format!("{id}/renew"), Value::Null).await;
    assert_eq!(
        (status, state["state"].as_str()),
        (200, Some("entered")),
        "{state}"
    );
    // Another one waits: at once told so, and then granted.
    let other = json!({"keys": [{"key": "a"}], "label": "ann@site2:17"});
    let (status, waiting) = rest.json("POST", "/v1/sections", other).await;
    assert_eq!(
        (status, waiting["state"].as_str()),
        (202, Some("queued")),
        "{waiting}"
    );
    let queue = "/v1/keyspaces/default/keys/a/queue";
    let (_, queue) = rest.json("GET", queue, Value::Null).await;
    assert_eq!(queue["entries"].as_array().unwrap().len(), 2, "{queue}");
    assert_eq!(queue["entries"][1]["label"], "ann@site2:17", "{queue}");
    let (status, left) = rest.json("DELETE", &id, Value::Null).await;
    assert_eq!(status, 200, "{left}");
    let wait = format!(
        "/v1/sections/{}?wait_ms=20000",
        waiting["id"].as_str().unwrap()
    );
    let (status, granted) = rest.json("GET", &wait, Value::Null).await;
    assert_eq!(
        (status, granted["state"].as_str()),
        (200, Some("entered")),
        "{granted}"
    );
    assert_eq!(granted["keys"][0]["value"], "1");
    let id = format!("/v1/sections/{}", granted["id"].as_str().unwrap());
    let last = format!("{id}/keys/a?leave=true");
    let (status, done) = rest
        .json("PUT", &last, json!({"value_base64": "Mg=="}))
        .await;
    assert_eq!(status, 200, "{done}");
    let (status, refused) = rest.json("PUT", &last, json!({"value": "3"})).await;
    assert_eq!(
        (status, refused["code"].as_str()),
        (409, Some("no_longer_holder")),
        "{refused}"
    );
    let (_, state) = rest.json("GET", &id, Value::Null).await;
    assert_eq!(state["state"], "left", "{state}");
    let read = "/v1/keyspaces/default/keys/a?consistency=linearizable";
    let (_, value) = rest.json("GET", read, Value::Null).await;
    assert_eq!(value["value"], "2", "{value}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_knows_who_left_and_who_lost() {
    let cluster = TestCluster::start(3).await;
    cluster.client(0).await;
    let [rest, other] = [0, 1].map(|at| Rest(cluster.node(at).rest.clone()));
    let enter = |(key, lease): (&str, u32), more: &[(&str, Value)]| {
        let mut body = json!({"keys": [{"key": key}], "wait_ms": 20_000, "lease_ms": lease});
        for (name, value) in more {
            body[*name] = value.clone();
        }
        body
    };
    for more in [&[][..], &[("counting", json!("client"))]] {
        let (_, section) = rest
            .json("POST", "/v1/sections", enter(("l", 60_000), more))
            .await;
        let id = format!("/v1/sections/{}", section["id"].as_str().unwrap());
        assert_eq!(rest.json("DELETE", &id, Value::Null).await.0, 200);
        let (_, state) = other.json("GET", &id, Value::Null).await;
        assert_eq!(state["state"], "left", "{more:?}: {state}");
        let (status, again) = other.json("DELETE", &id, Value::Null).await;
        assert_eq!(status, 200, "{again}");
    }
    // The release waits for the lease.
    let section = enter(("g", 5_000), &[]);
    let (_, section) = rest.json("POST", "/v1/sections", section).await;
    let lock_ref = section["keys"][0]["lock_ref"].as_u64().unwrap();
    let release = "/v1/keyspaces/default/keys/g/release";
    let body = json!({"lock_ref": lock_ref});
    let who = [
        ("fermata-secret", "000000000000000000000000000000aa"),
        ("fermata-number", "1"),
    ];
    let text = body.to_string();
    let (status, ..) = rest.send("POST", release, &who, text.as_bytes()).await;
    assert_eq!(status, 200);
    let id = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    for node in [&rest, &other] {
        let (_, state) = node.json("GET", &id, Value::Null).await;
        assert_eq!(state["state"], "lost", "{state}");
    }
    let put = format!("{id}/keys/g");
    let (status, refused) = other.json("PUT", &put, json!({"value": "v"})).await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("no_longer_holder")),
        "{refused}"
    );
    // The same release again has the same answer; another one has nothing to release.
    let (status, ..) = other.send("POST", release, &who, text.as_bytes()).await;
    assert_eq!(status, 200);
    let (status, past) = other.json("POST", release, body).await;
    assert_eq!(
        (status, &past["code"]),
        (409, &json!("no_longer_holder")),
        "{past}"
    );
    let never = json!({"lock_ref": 1_000_000});
    let (status, never) = other.json("POST", release, never).await;
    assert_eq!(
        (status, &never["code"]),
        (409, &json!("not_holder")),
        "{never}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_a_bound_names_it() {
    let (_cluster, rest) = start().await;
    let long = "k".repeat(1_025);
    let many: Vec<Value> = (0..65).map(|n| json!({"key": format!("k{n}")})).collect();
    let key = json!([{"key": "k"}]);
    for (body, status, name) in [
        (json!({"keys": [{"key": long}]}), 413, "key_bytes"),
        (json!({"keys": many}), 413, "limits.section_keys"),
        (json!({"keys": key, "lease_ms": 99}), 400, "at least 100 ms"),
        (
            json!({"keys": key, "label": "l".repeat(65)}),
            400,
            "at most 64 bytes",
        ),
        (
            json!({"keys": key, "lease_ms": 86_400_001}),
            400,
            "at most 86400000 ms",
        ),
    ] {
        let (answered, problem) = rest.json("POST", "/v1/sections", body).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(answered, status, "{problem}");
        assert!(detail.contains(name), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_is_done_when_the_holder_leaves() {
    let (_cluster, rest) = start().await;
    // A lease that no request outlasts: it is not sat out.
    let keys = json!({"keys": [{"key": "r"}], "wait_ms": 20_000, "lease_ms": 600_000});
    let (_, section) = rest.json("POST", "/v1/sections", keys).await;
    let lock_ref = section["keys"][0]["lock_ref"].as_u64().unwrap();
    let id = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    let body = json!({"lock_ref": lock_ref});
    let release = rest.json("POST", "/v1/keyspaces/default/keys/r/release", body);
    let leave = async {
        // Once the release has come, the section is not renewed any more.
        loop {
            let (_, state) = rest.json("GET", &id, Value::Null).await;
            assert_eq!(state["state"], "entered", "{state}");
            if state["lease_ms"] == 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        rest.json("DELETE", &id, Value::Null).await
    };
    let ((status, released), (left, _)) = tokio::join!(release, leave);
    assert_eq!((status, left), (200, 200), "{released}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_entry_and_loss() {
    let (_cluster, rest) = start().await;
    let keys = json!({"keys": [{"key": "e"}], "wait_ms": 20_000, "lease_ms": 5_000});
    let (_, section) = rest.json("POST", "/v1/sections", keys).await;
    let lock_ref = section["keys"][0]["lock_ref"].as_u64().unwrap();
    let path = format!("/v1/sections/{}/events", section["id"].as_str().unwrap());
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let body = json!({"lock_ref": lock_ref});
        rest.json("POST", "/v1/keyspaces/default/keys/e/release", body)
            .await
    };
    let ((status, kind, events), (released, _)) =
        tokio::join!(rest.send("GET", &path, &[], b""), release);
    assert_eq!(
        (status, released, kind.as_str()),
        (200, 200, "text/event-stream")
    );
    let events = String::from_utf8(events).unwrap();
    let at = |name: &str| events.find(&format!("event: {name}"));
    assert!(
        at("entered") < at("lost") && at("entered").is_some(),
        "{events}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_counts_and_a_section_that_is_resumed() {
    let (_cluster, rest) = start().await;
    let keys = json!({
        "keys": [{"key": "c"}], "wait_ms": 20_000, "lease_ms": 6_000, "counting": "client"
    });
    let (_, section) = rest.json("POST", "/v1/sections", keys).await;
    let id = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    let path = format!("{id}/keys/c");
    let raw = [
        ("content-type", "application/octet-stream"),
        ("fermata-sequence", "1"),
    ];
    let (status, _, body) = rest.send("PUT", &path, &raw, b"\xff\x00").await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let (status, _) = rest.json("PUT", &path, json!({"value": "x"})).await;
    assert_eq!(status, 400);
    let (status, resumed) = rest
        .json("POST", &format!("{id}/resume"), Value::Null)
        .await;
    assert_eq!(
        (status, resumed["keys"][0]["generation"].as_u64()),
        (200, Some(1)),
        "{resumed}"
    );
    assert_eq!(resumed["keys"][0]["value_base64"], "/wA=");
    let (status, refused) = rest.json("DELETE", &id, Value::Null).await;
    assert!(
        status == 200 || refused["code"] == "no_longer_holder",
        "{refused}"
    );
    let id = format!("/v1/sections/{}", resumed["id"].as_str().unwrap());
    let told = json!({"acknowledged": [{"key": "c", "sequence": 0}]});
    let (status, left) = rest.json("DELETE", &id, told).await;
    assert_eq!(status, 200, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_any_bytes_and_faces_for_people_answer() {
    let (_cluster, rest) = start().await;
    let path = "/v1/keyspaces/registers/keys/a%2Fb%00%ff?consistency=linearizable";
    assert_eq!(rest.json("GET", path, Value::Null).await.0, 404);
    assert_eq!(rest.json("PUT", path, json!({"value": "v"})).await.0, 200);
    assert_eq!(rest.json("GET", path, Value::Null).await.1["value"], "v");
    let (_, keys) = rest
        .json("GET", "/v1/keyspaces/registers/keys", Value::Null)
        .await;
    assert_eq!(keys["keys"][0]["key_base64"], "YS9iAP8=", "{keys}");
    assert_eq!(rest.json("DELETE", path, Value::Null).await.0, 200);
    assert_eq!(rest.json("GET", path, Value::Null).await.0, 404);
    let (status, _, metrics) = rest.send("GET", "/metrics", &[], b"").await;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(
        status == 200 && metrics.contains("fermata_requests_total"),
        "{metrics}"
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(rest.send("GET", path, &[], b"").await.0, 200, "{path}");
    }
    let (status, index) = rest.json("GET", "/", Value::Null).await;
    assert_eq!((status, &index["node"]), (200, &json!(1)), "{index}");
    let paths = index["paths"].as_array().unwrap();
    assert!(paths.contains(&json!("/v1/sections")), "{index}");
    let (status, node) = rest.json("GET", "/v1/status", Value::Null).await;
    assert_eq!((status, node["label"].as_str()), (200, Some("n1")));
    // What a status says is described.
    let (_, document) = rest.json("GET", "/openapi.json", Value::Null).await;
    let described = document["components"]["schemas"]["Status"]["properties"]
        .as_object()
        .unwrap();
    for field in node.as_object().unwrap().keys() {
        assert!(described.contains_key(field), "{field} is not described");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_any_page_could_send_is_refused() {
    let (_cluster, rest) = start().await;
    let body = br#"{"keys": [{"key": "a"}]}"#;
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", kind)];
        let (status, ..) = rest.send("POST", "/v1/sections", &headers, body).await;
        assert_eq!(status, 415, "{kind}");
    }
    let path = "/v1/keyspaces/default/keys/a/queue";
    let (_, queue) = rest.json("GET", path, Value::Null).await;
    assert_eq!(queue["entries"], json!([]), "nobody waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_a_number_or_the_reverse_is_refused() {
    let (_cluster, rest) = start().await;
    let key = "/v1/keyspaces/default/keys/k";
    // One without the other would not make a repetition known.
    for half in [
        ("fermata-secret", "000000000000000000000000000000ab"),
        ("fermata-number", "1"),
    ] {
        let (status, _, said) = rest.send("PUT", key, &[half], br#"{"value":"v"}"#).await;
        assert_eq!(status, 400, "{half:?}");
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("belong together"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_is_not_understood_is_refused_and_nothing_happens() {
    let (_cluster, rest) = start().await;
    let key = "/v1/keyspaces/default/keys/k";
    let held = json!({"keys": [{"key": "h"}], "wait_ms": 20_000, "counting": "client"});
    let (_, section) = rest.json("POST", "/v1/sections", held).await;
    let section = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    let (register, in_section) = (
        "/v1/keyspaces/registers/keys/k?consistency=linearizable",
        format!("{section}/keys/h"),
    );
    let of_keys = [
        ("PUT", key, r#"{"value": "v"}"#),
        ("PUT", register, r#"{"value": "v"}"#),
        ("DELETE", key, ""),
        ("GET", key, ""),
    ];
    let of_others = [
        (
            "POST",
            "/v1/keyspaces",
            r#"{"name": "new", "purpose": "sections"}"#,
        ),
        ("PATCH", "/v1/keyspaces/new", r#"{"lease_ms": 200}"#),
        ("DELETE", "/v1/keyspaces/new", ""),
        ("POST", "/v1/sections", r#"{"keys": [{"key": "k"}]}"#),
        ("PUT", &in_section, r#"{"value": "v"}"#),
        ("DELETE", &section, ""),
    ];
    for name in [
        "If-Match",
        "If-None-Match",
        "If-Modified-Since",
        "If-Unmodified-Since",
        "If-Range",
        "If",
    ] {
        // With it, a write in the section would be taken.
        let headers = [(name, "*"), ("fermata-sequence", "1")];
        let understood = name.ends_with("Match");
        let of_keys = of_keys.into_iter().filter(|_| !understood);
        for (method, path, body) in of_keys.chain(of_others) {
            let (status, kind, said) = rest.send(method, path, &headers, body.as_bytes()).await;
            let said = String::from_utf8(said).unwrap();
            let told = (status, kind.as_str());
            assert_eq!(told, (400, "application/problem+json"), "{method} {path}");
            assert!(said.contains(&name.to_lowercase()), "{said}");
            assert!(said.contains("\"may_have_taken_effect\":false"), "{said}");
        }
    }
    for path in [key, register, &in_section] {
        assert_eq!(rest.json("GET", path, Value::Null).await.0, 404, "{path}");
    }
    let (_, queue) = rest.json("GET", &format!("{key}/queue"), Value::Null).await;
    assert_eq!(queue["entries"], json!([]), "nobody waits");
    let (_, all) = rest.json("GET", "/v1/keyspaces", Value::Null).await;
    let names = all["keyspaces"].as_array().unwrap().iter();
    assert!(names.clone().all(|k| k["name"] != "new"), "{all}");
    assert_eq!(rest.json("DELETE", &section, Value::Null).await.0, 200);
    // What tells of the node changes nothing, and has nothing that a condition could be about.
    let asked = [("If-None-Match", "*")];
    assert_eq!(rest.send("GET", "/healthz", &asked, b"").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_key_is_called_one() {
    let (_cluster, rest) = start().await;
    for (method, path) in [
        ("PUT", "/v1/keyspaces/default/keys/"),
        ("GET", "/v1/keyspaces/default/keys//queue"),
        ("GET", "/v1/sections/zzz/keys/"),
    ] {
        let (status, refused) = rest.json(method, path, json!({"value": "v"})).await;
        assert_eq!((status, &refused["code"]), (400, &json!("bad_request")));
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("is empty"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_malformed_is_refused_and_changes_nothing() {
    let (_cluster, rest) = start().await;
    let key = "/v1/keyspaces/default/keys/k";
    let cases: [(&str, &str, &str, u16); 20] = [
        ("PUT", key, "", 400),
        ("PUT", key, "{", 400),
        ("PUT", key, "[]", 400),
        ("PUT", key, "{}", 400),
        ("PUT", key, r#"{"value": 1}"#, 400),
        ("PUT", key, r#"{"value": "v", "surprise": 1}"#, 400),
        ("PUT", key, r#"{"value": "v", "value_base64": "dg=="}"#, 400),
        ("PUT", key, r#"{"value_base64": "!"}"#, 400),
        (
            "GET",
            "/v1/keyspaces/default/keys/k?consistency=perfect",
            "",
            400,
        ),
        ("GET", "/v1/keyspaces/default/keys/k?surprise=1", "", 400),
        ("GET", "/v1/keyspaces/nowhere/keys/k", "", 404),
        ("GET", "/v1/keyspaces/%ff/keys/k", "", 400),
        ("GET", "/v1/nothing", "", 404),
        ("POST", key, "", 405),
        ("POST", "/v1/sections", r#"{"keys": []}"#, 400),
        (
            "POST",
            "/v1/sections",
            r#"{"keys": [{"key": "k"}, {"key": "k"}]}"#,
            400,
        ),
        ("GET", "/v1/sections/zzz", "", 400),
        ("PUT", "/v1/sections/zzz/keys/k", r#"{"value": "v"}"#, 400),
        (
            "POST",
            "/v1/keyspaces",
            r#"{"name": "A", "purpose": "sections"}"#,
            400,
        ),
        (
            "POST",
            "/v1/keyspaces/default/keys/k/release",
            r#"{"lock_ref": 0}"#,
            400,
        ),
    ];
    for (method, path, body, expected) in cases {
        let (status, kind, answer) = rest.send(method, path, &[], body.as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        assert_eq!(kind, "application/problem+json", "{method} {path} {body}");
        assert!(
            answer.contains("\"may_have_taken_effect\":false"),
            "{answer}"
        );
    }
    for (name, value) in [
        ("fermata-secret", "xyz"),
        ("fermata-number", "one"),
        ("fermata-number", "0"),
        ("fermata-site", "atlantis"),
    ] {
        let (status, ..) = rest
            .send("PUT", key, &[(name, value)], br#"{"value":"v"}"#)
            .await;
        assert_eq!(status, 400, "{name}: {value}");
    }
    let long = format!("/v1/keyspaces/default/keys/{}", "k".repeat(2_000));
    assert_eq!(rest.json("PUT", &long, json!({"value": "v"})).await.0, 413);
    let (status, _, _) = rest.send("PUT", key, &[], &vec![b' '; 34 << 20]).await;
    assert_eq!(status, 413);
    assert_eq!(rest.json("GET", key, Value::Null).await.0, 404);
}
