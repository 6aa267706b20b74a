//! Who may do what, and what becomes of streams when that changes. Which route wants what is in
//! [`routes`].

mod changes;
mod music;
mod routes;

use crate::common::{Choice, Session, TestCluster, eventually, key};
use crate::http::Rest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fermata_access::{ADMIN, Policy, Principal, Quota, Right, Rule, Token, TokenEntry};
use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_tls::{Admits, Keeper, Own};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request};

/// A cluster whose access is controlled: by an administrator, a principal that may only lock
/// `jobs/` and read `config/`, and one that may do nothing.
struct Stage {
    cluster: TestCluster,
    rest: Rest,
    admin: Token,
    app: Token,
    nothing: Token,
}

fn rule(keyspace: &str, prefix: &str, rights: &[Right]) -> Rule {
    Rule {
        keyspace: keyspace.into(),
        prefix: Some(prefix.into()),
        prefix_base64: None,
        tag: None,
        rights: rights.iter().copied().collect(),
    }
}

fn entry(principal: &str, token: &Token) -> TokenEntry {
    TokenEntry {
        principal: principal.into(),
        sha256: token.hash(),
        created: 1,
        expires: u64::from(u32::MAX),
        note: String::new(),
    }
}

fn principal(role: Option<&str>) -> Principal {
    Principal {
        roles: role.map(str::to_owned).into_iter().collect(),
        quota: Quota::default(),
    }
}

/// Nodes with an audit log.
fn audited(file: &Path) -> Choice {
    let file = file.to_owned();
    Choice {
        change: Some(Box::new(move |config| {
            config.audit.file = Some(file.clone());
        })),
        ..Choice::default()
    }
}

impl Stage {
    async fn start(nodes: u32, choice: Choice) -> Stage {
        let cluster = TestCluster::start_with(nodes, choice).await;
        for at in 0..nodes as usize {
            cluster.client(at).await;
        }
        let rest = Rest(cluster.node(0).rest.clone());
        let [admin, app, nothing] = [1, 2, 3].map(|id| Token::new(id, 0xabc0 + u128::from(id)));
        let stage = Stage {
            cluster,
            rest,
            admin,
            app,
            nothing,
        };
        let rules = vec![
            rule("default", "jobs/", &[Right::Lock]),
            rule("default", "config/", &[Right::Read]),
            rule("music", "shop.carts.", &[Right::Lock]),
        ];
        let policy = Policy {
            enabled: false,
            roles: [("app".to_owned(), rules)].into(),
            principals: [
                ("root".to_owned(), principal(Some(ADMIN))),
                ("app".to_owned(), principal(Some("app"))),
                ("nothing".to_owned(), principal(None)),
            ]
            .into(),
            tokens: [
                ("root", &stage.admin),
                ("app", &stage.app),
                ("nothing", &stage.nothing),
            ]
            .map(|(who, token)| (token.id(), entry(who, token)))
            .into(),
        };
        // The keyspace that a rule names.
        let music = json!({ "name": "music", "purpose": "sections" });
        let (status, made) = stage.rest.json("POST", "/v1/keyspaces", music).await;
        assert_eq!(status, 201, "{made}");
        // Whoever turns it on has to be known by then.
        stage.change(|known| *known = policy.clone()).await;
        stage.change(|known| known.enabled = true).await;
        for at in 0..nodes as usize {
            let rest = Rest(stage.cluster.node(at).rest.clone());
            eventually!(rest.send("GET", "/v1/status", &[], b"").await.0 == 401);
        }
        stage
    }

    /// What REST answers to whoever shows this.
    async fn ask(&self, token: Option<&Token>, method: &str, path: &str, body: &Value) -> u16 {
        self.asked(token, method, path, body).await.0
    }

    async fn asked(
        &self,
        token: Option<&Token>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        self.asked_at(0, token, (method, path), body).await
    }

    async fn asked_at(
        &self,
        at: usize,
        token: Option<&Token>,
        (method, path): (&str, &str),
        body: &Value,
    ) -> (u16, Value) {
        let rest = Rest(self.cluster.node(at).rest.clone());
        let shown = token.map(|token| format!("Bearer {}", token.reveal()));
        let shown: Vec<(&str, &str)> = shown.iter().map(|s| ("authorization", &**s)).collect();
        let bytes = match body {
            Value::Null => vec![],
            body => body.to_string().into_bytes(),
        };
        let (status, _, answer) = rest.send(method, path, &shown, &bytes).await;
        (
            status,
            serde_json::from_slice(&answer).unwrap_or(Value::Null),
        )
    }

    /// Changes the policy, as an administrator.
    async fn change(&self, change: impl Fn(&mut Policy)) {
        loop {
            let (status, known) = self
                .asked(Some(&self.admin), "GET", "/v1/access", &Value::Null)
                .await;
            assert_eq!(status, 200, "{known}");
            let mut policy = Policy::parse(known["policy"].to_string().as_bytes()).unwrap();
            change(&mut policy);
            let bytes = policy.to_json().unwrap();
            let policy: Value = serde_json::from_slice(&bytes).unwrap();
            let wanted = json!({ "version": known["version"], "policy": policy });
            let (status, done) = self
                .asked(Some(&self.admin), "PUT", "/v1/access", &wanted)
                .await;
            match status {
                200 => return,
                // Another node has heard of the last change sooner.
                409 => {}
                _ => panic!("{status} {done}"),
            }
        }
    }

    async fn channel(&self, at: usize) -> Channel {
        let uri = format!("http://{}", self.cluster.node(at).grpc);
        Channel::from_shared(uri).unwrap().connect().await.unwrap()
    }
}

fn shown<T>(token: Option<&Token>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let text = format!("Bearer {}", token.reveal());
        let value: MetadataValue<_> = text.parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_say_what_there_is() {
    let stage = Stage::start(1, Choice::default()).await;
    let admin = Some(&stage.admin);
    let put = json!({"value": "v"});
    let there = "/v1/keyspaces/default/keys/there";
    assert_eq!(stage.ask(admin, "PUT", there, &put).await, 200);
    let none = Value::Null;
    let mut said = BTreeSet::new();
    for path in [
        there,
        "/v1/keyspaces/default/keys/absent",
        "/v1/keyspaces/nosuch/keys/k",
    ] {
        let (status, answer) = stage.asked(Some(&stage.app), "GET", path, &none).await;
        assert_eq!(status, 403, "{answer}");
        said.insert(answer.to_string());
    }
    assert_eq!(said.len(), 1, "{said:?}");
    // What one has a right to is there, or not.
    let config = "/v1/keyspaces/default/keys/config%2Fa";
    assert_eq!(stage.ask(Some(&stage.app), "GET", config, &none).await, 404);
    assert_eq!(stage.ask(Some(&stage.app), "PUT", config, &put).await, 403);
    // Of a lock that one may hold, and not read, the value is left out.
    assert_eq!(
        stage
            .ask(admin, "PUT", "/v1/keyspaces/default/keys/jobs%2F1", &put)
            .await,
        200
    );
    let enter = json!({"keys": [{"key": "jobs/1"}], "wait_ms": 20_000});
    let (status, section) = stage
        .asked(Some(&stage.app), "POST", "/v1/sections", &enter)
        .await;
    assert_eq!(status, 201, "{section}");
    assert_eq!(section["keys"][0]["value"], none, "{section}");
    let (_, keyspaces) = stage
        .asked(Some(&stage.app), "GET", "/v1/keyspaces", &none)
        .await;
    assert_eq!(
        keyspaces["keyspaces"].as_array().unwrap().len(),
        2,
        "{keyspaces}"
    );
    let (_, keyspaces) = stage
        .asked(Some(&stage.nothing), "GET", "/v1/keyspaces", &none)
        .await;
    assert_eq!(keyspaces["keyspaces"], json!([]));
}

/// Enters `jobs/1`, and follows what becomes of it.
async fn follow(
    channel: &Channel,
    token: &Token,
    number: u128,
) -> tonic::Streaming<v1::EnterEvent> {
    let enter = v1::EnterRequest {
        header: Session::new(number).header(),
        keys: vec![key("jobs/1")],
        wait_us: 600_000_000,
        follow: true,
        lease_us: Some(3_600_000_000),
        ..v1::EnterRequest::default()
    };
    let mut client = FermataClient::new(channel.clone());
    client
        .enter(shown(Some(token), enter))
        .await
        .unwrap()
        .into_inner()
}

/// How a stream ends.
async fn end(mut stream: tonic::Streaming<v1::EnterEvent>) -> Code {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => return status.code(),
            None => return Code::Ok,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_their_role_or_token_goes() {
    let stage = Stage::start(3, Choice::default()).await;
    // At another node than the one through which the policy changes.
    let channel = stage.channel(2).await;
    let mut holder = follow(&channel, &stage.app, 1).await;
    loop {
        let event = holder.next().await.unwrap().unwrap();
        if matches!(event.event, Some(v1::enter_event::Event::Entered(_))) {
            break;
        }
    }
    let waiter = follow(&channel, &stage.app, 2).await;
    let session = || async {
        let (requests, taken) = tokio::sync::mpsc::channel(1);
        let outgoing = tokio_stream::wrappers::ReceiverStream::new(taken);
        let mut client = FermataClient::new(channel.clone());
        let opened = client.session(shown(Some(&stage.app), outgoing)).await;
        (requests, opened.unwrap().into_inner())
    };
    let (_open, mut session) = session().await;
    let reads = vec![rule("default", "config/", &[Right::Read])];
    stage
        .change(|policy| drop(policy.roles.insert("app".into(), reads.clone())))
        .await;
    assert_eq!(end(holder).await, Code::PermissionDenied);
    assert_eq!(end(waiter).await, Code::PermissionDenied);
    // The stream of a session may go on with what its role still gives.
    stage
        .change(|policy| drop(policy.tokens.remove(&stage.app.id())))
        .await;
    let ended = session.next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Unauthenticated);
}

/// Tokens that are over, altered or another's are refused alike; what was enabled is not disabled
/// by whoever comes, and the last administrator stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn what_is_wrong_is_refused_and_changes_nothing() {
    let stage = Stage::start(1, Choice::default()).await;
    let over = Token::new(4, 4);
    stage
        .change(|policy| {
            let entry = TokenEntry {
                expires: 2,
                ..entry("app", &over)
            };
            policy.tokens.insert(over.id(), entry);
        })
        .await;
    let status = "/v1/status";
    let mut altered = stage.admin.reveal();
    altered.pop();
    altered.push('0');
    let whole = stage.admin.reveal();
    for shown in [
        format!("Bearer {}", over.reveal()),
        format!("Bearer {altered}"),
        format!("Bearer {}", &whole[..40]),
        format!("Digest {whole}"),
        "Bearer a.b.c".into(),
        "Bearer".into(),
    ] {
        let headers = [("authorization", shown.as_str())];
        let (code, headers, _) = stage
            .rest
            .whole("GET", status, &headers, b"")
            .await
            .unwrap();
        assert_eq!(code, 401, "{shown}");
        assert_eq!(headers["www-authenticate"], "Bearer");
    }
    let (_, known) = stage
        .asked(Some(&stage.admin), "GET", "/v1/access", &Value::Null)
        .await;
    let version = known["version"].clone();
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut policy = known["policy"].clone();
        change(&mut policy);
        json!({ "version": version, "policy": policy })
    };
    for (change, word) in [
        (
            wrong(&|p| p["principals"]["root"]["roles"] = json!([])),
            "no principal would be",
        ),
        (
            wrong(&|p| p["principals"]["app"]["roles"] = json!(["no"])),
            "there is no role",
        ),
        (
            wrong(&|p| p["roles"]["app"][0]["keyspace"] = json!("no")),
            "does not exist",
        ),
        (
            wrong(&|p| p["roles"]["app"][0]["rights"] = json!(["rule"])),
            "cannot be read",
        ),
        (wrong(&|p| *p = json!({})), "missing field `enabled`"),
        (
            wrong(&|p| {
                let tokens = p["tokens"].as_object_mut().unwrap();
                tokens.retain(|_, entry| entry["principal"] != "root");
            }),
            "no administrator would have a token",
        ),
    ] {
        let (code, said) = stage
            .asked(Some(&stage.admin), "PUT", "/v1/access", &change)
            .await;
        assert_eq!(code, 400, "{said}");
        assert!(said["detail"].as_str().unwrap().contains(word), "{said}");
    }
    let late = json!({ "version": 0, "policy": { "enabled": false } });
    assert_eq!(
        stage
            .ask(Some(&stage.admin), "PUT", "/v1/access", &late)
            .await,
        409
    );
    let (_, now) = stage
        .asked(Some(&stage.admin), "GET", "/v1/access", &Value::Null)
        .await;
    assert_eq!(now, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosted_session_is_its_principals_own() {
    use fermata_api::v1::sessions_client::SessionsClient;
    let stage = Stage::start(1, Choice::default()).await;
    let mut sessions = SessionsClient::new(stage.channel(0).await);
    let open = v1::OpenSessionRequest {
        idle_us: 60_000_000,
        label: String::new(),
    };
    let opened = sessions
        .open(shown(Some(&stage.app), open))
        .await
        .unwrap()
        .into_inner();
    let enter = v1::EnterSectionRequest {
        secret: opened.secret.clone(),
        keys: vec![key("jobs/1")],
        ..v1::EnterSectionRequest::default()
    };
    let entered = sessions
        .enter(shown(Some(&stage.app), enter.clone()))
        .await
        .unwrap();
    let mut events = entered.into_inner();
    let section = loop {
        let event = events.next().await.unwrap().unwrap();
        if let Some(v1::section_event::Event::Entered(entered)) = event.event {
            break entered.section;
        }
    };
    // Whoever has the secret, and is somebody else, does not find it.
    let put = v1::SectionPutRequest {
        secret: opened.secret.clone(),
        section,
        key: Some(key("jobs/1")),
        value: "v".into(),
        leave: false,
    };
    let refused = sessions
        .put(shown(Some(&stage.admin), put.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    // Its own principal may lock, and not write.
    let refused = sessions
        .put(shown(Some(&stage.app), put))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let close = v1::CloseSessionRequest {
        secret: opened.secret,
    };
    sessions
        .close(shown(Some(&stage.app), close))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_a_principals_own() {
    let stage = Stage::start(1, Choice::default()).await;
    stage
        .change(|policy| {
            let app = policy.principals.get_mut("app").unwrap();
            app.quota = Quota {
                requests_per_second: Some(2),
                sessions: Some(1),
                bytes_in_flight: Some(1 << 20),
            };
        })
        .await;
    let config = "/v1/keyspaces/default/keys/config%2Fa";
    let mut busy = 0;
    // More than it may have of any second: some are refused, however slow this machine is.
    while busy == 0 {
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let rest = Rest(stage.rest.0.clone());
            let shown = format!("Bearer {}", stage.app.reveal());
            asked.spawn(async move {
                let headers = [("authorization", shown.as_str())];
                rest.send("GET", config, &headers, b"").await.0
            });
        }
        while let Some(status) = asked.join_next().await {
            let status = status.unwrap();
            match status {
                429 => busy += 1,
                404 => {}
                _ => panic!("{status}"),
            }
        }
    }
    let admin = stage
        .ask(Some(&stage.admin), "GET", config, &Value::Null)
        .await;
    assert_eq!(admin, 404, "others are not held up");
    use fermata_api::v1::sessions_client::SessionsClient;
    let mut sessions = SessionsClient::new(stage.channel(0).await);
    let open = || v1::OpenSessionRequest {
        idle_us: 0,
        label: String::new(),
    };
    sessions
        .open(shown(Some(&stage.app), open()))
        .await
        .unwrap();
    let refused = sessions
        .open(shown(Some(&stage.app), open()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

/// Who owns a node's machine comes in; what was done is written down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_machines_owner_comes_in_and_the_log_says_who_did_what() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let stage = Stage::start(1, audited(&file)).await;
    let token = fermata_server::recover(&stage.cluster.configs[0].data_dir).unwrap();
    eventually!(
        stage
            .ask(Some(&token), "GET", "/v1/access", &Value::Null)
            .await
            == 200
    );
    let body = json!({ "name": "made", "purpose": "sections" });
    assert_eq!(
        stage
            .ask(Some(&token), "POST", "/v1/keyspaces", &body)
            .await,
        201
    );
    let config = "/v1/keyspaces/default/keys/secret-key";
    assert_eq!(
        stage
            .ask(Some(&stage.app), "GET", config, &Value::Null)
            .await,
        403
    );
    assert_eq!(
        stage
            .ask(Some(&Token::new(5, 5)), "GET", config, &Value::Null)
            .await,
        401
    );
    stage
        .change(|policy| drop(policy.tokens.remove(&stage.nothing.id())))
        .await;
    let wanted = |text: &str| {
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let has = |of: &dyn Fn(&Value) -> bool| lines.iter().any(of);
        has(&|l| l["event"] == "create_keyspace" && l["by"] == "recovery" && l["outcome"] == "done")
            && has(&|l| l["event"] == "refused" && l["principal"] == "app")
            && has(&|l| l["event"] == "refused" && l["operation"] == "authenticate")
            && has(&|l| {
                l["event"] == "change_access"
                    && l["principal"] == "root"
                    && l["changes"] == json!([format!("token {} removed", stage.nothing.id())])
            })
    };
    let text = loop {
        let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let text = read("audit.log") + &read("audit.log.refused");
        if text.ends_with('\n') && wanted(&text) {
            break text;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    for secret in [
        "secret-key",
        &token.reveal()[21..],
        &stage.admin.reveal()[21..],
    ] {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// An issuer, and what signs for it.
struct Issuer {
    private: EncodingKey,
    /// What it publishes.
    set: String,
}

impl Issuer {
    fn new() -> Issuer {
        let private = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp-K06_nwoy_HU--CXqI9EdVhC";
        let private = EncodingKey::from_ed_der(&URL_SAFE_NO_PAD.decode(private).unwrap());
        let public = Jwk::from_encoding_key(&private, Algorithm::EdDSA).unwrap();
        let set = json!({ "keys": [public] }).to_string();
        Issuer { private, set }
    }

    /// A node takes its word, with the keys found there, for a principal of the cluster.
    async fn is_believed(&self, keys: String, ca: Option<PathBuf>) {
        let choice = Choice {
            change: Some(Box::new(move |config| {
                config.jwt.issuer = "https://id".into();
                config.jwt.audience = "fermata".into();
                config.jwt.keys = keys.clone();
                config.jwt.ca = ca.clone();
            })),
            ..Choice::default()
        };
        let stage = Stage::start(1, choice).await;
        let config = "/v1/keyspaces/default/keys/config%2Fa";
        let ask = async |claims: Value| {
            let header = Header::new(Algorithm::EdDSA);
            let token = encode(&header, &claims, &self.private).unwrap();
            let shown = format!("Bearer {token}");
            let headers = [("authorization", shown.as_str())];
            stage.rest.send("GET", config, &headers, b"").await.0
        };
        let now = jsonwebtoken::get_current_timestamp();
        let claims = |sub: &str, aud: &str| json!({ "iss": "https://id", "aud": aud, "sub": sub, "exp": now + 600 });
        // Its keys are read once the node runs.
        eventually!(ask(claims("app", "fermata")).await == 404);
        assert_eq!(ask(claims("nothing", "fermata")).await, 403);
        let unknown = ask(claims("nobody", "fermata")).await;
        assert_eq!(unknown, 403, "no principal of the cluster");
        assert_eq!(ask(claims("app", "other")).await, 401);
    }
}

/// Whoever was known by a certificate or an issuer is known by the same name: here by an issuer's
/// word, whose keys are in a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuers_word_is_taken() {
    let issuer = Issuer::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    std::fs::write(&file, &issuer.set).unwrap();
    issuer.is_believed(file.display().to_string(), None).await;
}

/// The same, with keys that are fetched from a server of which an authority is trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuers_keys_are_fetched() {
    let issuer = Issuer::new();
    let dir = tempfile::tempdir().unwrap();
    crate::tls::certificates(dir.path());
    let own = Own {
        cluster: crate::tls::CLUSTER,
        label: "n1".into(),
    };
    let files = crate::tls::files(dir.path(), "n1");
    let keeper = Keeper::read(files, own, Admits::Anybody).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let length = issuer.set.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{}",
        issuer.set
    );
    let serves = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(keeper.faces());
            // One who does not trust it is gone.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    let keys = format!("https://{address}/keys");
    let ca = Some(dir.path().join("ca.pem"));
    issuer.is_believed(keys, ca).await;
    serves.abort();
}
