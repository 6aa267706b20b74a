//! Who may do what: every route of every face, for nobody, for a principal without a role, and for
//! an administrator; and what becomes of streams when that changes.

use crate::common::{Choice, Session, TestCluster, eventually, key};
use crate::http::Rest;
use bytes::{Buf, BufMut, Bytes};
use fermata_access::{ADMIN, Policy, Principal, Quota, Right, Rule, Token, TokenEntry};
use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

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
        let shown = token.map(|token| format!("Bearer {}", token.reveal()));
        let shown: Vec<(&str, &str)> = shown.iter().map(|s| ("authorization", &**s)).collect();
        let bytes = match body {
            Value::Null => vec![],
            body => body.to_string().into_bytes(),
        };
        let (status, _, answer) = self.rest.send(method, path, &shown, &bytes).await;
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

/// Messages as they are.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// What a method answers first, whatever it is.
async fn call(channel: &Channel, token: Option<&Token>, path: &str, message: Bytes) -> Code {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = path.parse().unwrap();
    // A stream of one, which every kind of method takes.
    let messages = tokio_stream::iter([message]);
    match grpc.streaming(shown(token, messages), path, Raw).await {
        Err(status) => status.code(),
        Ok(answer) => match answer.into_inner().next().await {
            Some(Err(status)) => status.code(),
            Some(Ok(_)) | None => Code::Ok,
        },
    }
}

/// How a route answers to nobody, to who has no role, and to an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Whoever asks is answered: it tells nothing.
    Open,
    /// Whoever is known.
    Known,
    /// Who has a role for it.
    Role,
    /// The session's secret is what counts: a stranger's is not found.
    Session,
}

fn header() -> Option<v1::Header> {
    Session::new(77).header()
}

fn held() -> Option<v1::Held> {
    Some(v1::Held {
        key: Some(key("k")),
        lock_ref: 1,
        generation: 0,
    })
}

/// All methods of gRPC, each with a message that means something.
fn methods() -> Vec<(&'static str, Kind, Bytes)> {
    use Kind::{Known, Open, Role, Session};
    let bytes = |message: Vec<u8>| Bytes::from(message);
    let (h, k) = (header, || Some(key("k")));
    let leaving = v1::Leaving {
        held: held(),
        ..v1::Leaving::default()
    };
    macro_rules! m {
        ($path:literal, $kind:expr, $message:expr) => {
            ($path, $kind, bytes($message.encode_to_vec()))
        };
    }
    vec![
        m!(
            "Fermata/Enter",
            Role,
            v1::EnterRequest {
                header: h(),
                keys: vec![key("k")],
                ..Default::default()
            }
        ),
        m!(
            "Fermata/Resume",
            Role,
            v1::ResumeRequest {
                header: h(),
                held: vec![held().unwrap()],
                secret: vec![1; 16].into()
            }
        ),
        m!(
            "Fermata/CriticalGet",
            Role,
            v1::CriticalGetRequest {
                header: h(),
                held: held()
            }
        ),
        m!(
            "Fermata/CriticalPut",
            Role,
            v1::CriticalPutRequest {
                header: h(),
                held: held(),
                sequence: 1,
                ..Default::default()
            }
        ),
        // Who gives something up needs no right to it, and is refused for its secret.
        m!(
            "Fermata/Leave",
            Known,
            v1::LeaveRequest {
                header: h(),
                keys: vec![leaving]
            }
        ),
        // Of each ref the answer says whether it is there: for a stranger it is not.
        m!(
            "Fermata/Renew",
            Known,
            v1::RenewRequest {
                header: h(),
                held: vec![held().unwrap()],
                ..Default::default()
            }
        ),
        m!(
            "Fermata/Release",
            Role,
            v1::ReleaseRequest {
                header: h(),
                key: k(),
                lock_ref: 1
            }
        ),
        m!(
            "Fermata/Get",
            Role,
            v1::GetRequest {
                header: h(),
                key: k()
            }
        ),
        m!(
            "Fermata/Put",
            Role,
            v1::PutRequest {
                header: h(),
                key: k(),
                value: None
            }
        ),
        m!(
            "Fermata/Read",
            Role,
            v1::ReadRequest {
                header: h(),
                key: k()
            }
        ),
        m!(
            "Fermata/Write",
            Role,
            v1::WriteRequest {
                header: h(),
                key: k(),
                value: None
            }
        ),
        m!(
            "Fermata/Keys",
            Role,
            v1::KeysRequest {
                header: h(),
                keyspace: "default".into(),
                ..Default::default()
            }
        ),
        m!(
            "Fermata/Queue",
            Role,
            v1::QueueRequest {
                header: h(),
                key: k()
            }
        ),
        m!(
            "Fermata/Inspect",
            Role,
            v1::InspectRequest {
                header: h(),
                key: k()
            }
        ),
        m!(
            "Fermata/CreateKeyspace",
            Role,
            v1::CreateKeyspaceRequest {
                header: h(),
                keyspace: Some(v1::Keyspace {
                    name: "made".into(),
                    purpose: v1::Purpose::Sections.into(),
                    ..Default::default()
                })
            }
        ),
        m!(
            "Fermata/ChangeKeyspace",
            Role,
            v1::ChangeKeyspaceRequest {
                header: h(),
                keyspace: "default".into(),
                ..Default::default()
            }
        ),
        m!(
            "Fermata/DeleteKeyspace",
            Role,
            v1::DeleteKeyspaceRequest {
                header: h(),
                keyspace: "default".into()
            }
        ),
        m!(
            "Fermata/GetAccess",
            Role,
            v1::GetAccessRequest { header: h() }
        ),
        m!(
            "Fermata/ChangeAccess",
            Role,
            v1::ChangeAccessRequest {
                header: h(),
                after: 999,
                policy: "{}".into()
            }
        ),
        m!(
            "Fermata/ChangeSettings",
            Role,
            v1::ChangeSettingsRequest {
                header: h(),
                setting: Some(v1::change_settings_request::Setting::MoveRate(0))
            }
        ),
        // One is shown the keyspaces that one may know of.
        m!(
            "Fermata/ListKeyspaces",
            Known,
            v1::ListKeyspacesRequest { header: h() }
        ),
        m!("Fermata/Status", Role, v1::StatusRequest { header: h() }),
        m!("Fermata/Ring", Role, v1::RingRequest { header: h() }),
        m!(
            "Fermata/ChangeRing",
            Role,
            v1::ChangeRingRequest {
                header: h(),
                change: Some(v1::change_ring_request::Change::Drain(v1::Drain {
                    node: 1,
                    drains: false
                }))
            }
        ),
        m!(
            "Fermata/Admit",
            Role,
            v1::AdmitRequest {
                header: h(),
                incarnation: vec![1; 16].into(),
                label: "x".into(),
                site: "s".into(),
                ..Default::default()
            }
        ),
        m!("Fermata/Cluster", Known, v1::ClusterRequest {}),
        m!(
            "Fermata/Session",
            Known,
            v1::SessionRequest {
                id: 1,
                operation: Some(v1::session_request::Operation::ListKeyspaces(
                    v1::ListKeyspacesRequest { header: h() }
                ))
            }
        ),
        m!(
            "Sessions/Open",
            Known,
            v1::OpenSessionRequest {
                idle_us: 1_000_000,
                label: String::new()
            }
        ),
        m!(
            "Sessions/Enter",
            Role,
            v1::EnterSectionRequest {
                secret: vec![1; 16].into(),
                keys: vec![key("k")],
                ..Default::default()
            }
        ),
        m!(
            "Sessions/Resume",
            Role,
            v1::ResumeSectionRequest {
                secret: vec![1; 16].into(),
                former: vec![1; 16].into(),
                held: vec![held().unwrap()]
            }
        ),
        m!(
            "Sessions/Get",
            Role,
            v1::SectionKeyRequest {
                secret: vec![1; 16].into(),
                section: 1,
                key: k()
            }
        ),
        m!(
            "Sessions/Put",
            Role,
            v1::SectionPutRequest {
                secret: vec![1; 16].into(),
                section: 1,
                key: k(),
                ..Default::default()
            }
        ),
        m!(
            "Sessions/Delete",
            Role,
            v1::SectionKeyRequest {
                secret: vec![1; 16].into(),
                section: 1,
                key: k()
            }
        ),
        m!(
            "Sessions/Leave",
            Session,
            v1::SectionRequest {
                secret: vec![1; 16].into(),
                section: 1
            }
        ),
        m!(
            "Sessions/WriteIf",
            Role,
            v1::WriteIfRequest {
                key: k(),
                condition: Some(v1::write_if_request::Condition::Absent(v1::Nothing {})),
                ..Default::default()
            }
        ),
        m!(
            "Sessions/Close",
            Session,
            v1::CloseSessionRequest {
                secret: vec![1; 16].into()
            }
        ),
        ("grpc.health.v1.Health/Check", Open, Bytes::new()),
        ("grpc.health.v1.Health/Watch", Open, Bytes::new()),
        ("grpc.health.v1.Health/List", Open, Bytes::new()),
        (
            "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            Open,
            Bytes::new(),
        ),
        (
            "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            Open,
            Bytes::new(),
        ),
    ]
}

fn path_of(method: &str) -> String {
    match method.starts_with("grpc.") {
        true => format!("/{method}"),
        false => format!("/fermata.v1.{method}"),
    }
}

/// What a node's reflection says that it offers.
async fn offered(channel: &Channel) -> BTreeSet<String> {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let mut client = ServerReflectionClient::new(channel.clone());
    let mut ask = async |what: MessageRequest| {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(what),
        };
        let answers = client
            .server_reflection_info(tokio_stream::iter([request]))
            .await;
        let answer = answers.unwrap().into_inner().next().await.unwrap().unwrap();
        answer.message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(list) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("a list");
    };
    let mut methods = BTreeSet::new();
    for service in list.service {
        let symbol = MessageRequest::FileContainingSymbol(service.name.clone());
        let MessageResponse::FileDescriptorResponse(files) = ask(symbol).await else {
            panic!("{} is not described", service.name);
        };
        for file in files.file_descriptor_proto {
            let file = prost_types::FileDescriptorProto::decode(&file[..]).unwrap();
            let package = file.package.unwrap_or_default();
            for described in file.service {
                let name = format!("{package}.{}", described.name.unwrap());
                let all = described
                    .method
                    .into_iter()
                    .filter_map(|method| method.name);
                methods.extend(all.map(|method| format!("/{name}/{method}")));
            }
        }
    }
    methods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_asks_who_asks() {
    let stage = Stage::start(1, Choice::default()).await;
    let channel = stage.channel(0).await;
    let table: BTreeSet<String> = methods()
        .iter()
        .map(|(method, ..)| path_of(method))
        .collect();
    let offered = offered(&channel).await;
    assert_eq!(
        offered.difference(&table).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    let refused = |code| matches!(code, Code::Unauthenticated | Code::PermissionDenied);
    let unknown = Token::new(9, 9);
    for (method, kind, message) in methods() {
        let path = path_of(method);
        let ask = |token| call(&channel, token, &path, message.clone());
        let nobody = ask(None).await;
        let stranger = ask(Some(&unknown)).await;
        let nothing = ask(Some(&stage.nothing)).await;
        let admin = ask(Some(&stage.admin)).await;
        // A token that counts for nothing is never passed over.
        assert_eq!(stranger, Code::Unauthenticated, "{method}");
        assert!(!refused(admin), "{method}: {admin:?} for an administrator");
        match kind {
            Kind::Open => assert!(!refused(nobody) && !refused(nothing), "{method}"),
            Kind::Known | Kind::Session => {
                assert_eq!(nobody, Code::Unauthenticated, "{method}");
                assert!(!refused(nothing), "{method}: {nothing:?}");
            }
            Kind::Role => {
                assert_eq!(nobody, Code::Unauthenticated, "{method}");
                assert_eq!(nothing, Code::PermissionDenied, "{method}");
            }
        }
    }
}

/// All routes of REST, each with a path and a body that mean something.
fn routes() -> Vec<(&'static str, &'static str, Kind, String, Value)> {
    use Kind::{Known, Open, Role};
    let section = "/v1/sections/{id}";
    let none = || Value::Null;
    let key = "/v1/keyspaces/{keyspace}/keys/{key}";
    let at = |tail: &str| format!("/v1/keyspaces/default/keys/k{tail}");
    let is = |path: &str| path.to_owned();
    vec![
        ("get", "/v1/keyspaces", Known, is("/v1/keyspaces"), none()),
        (
            "post",
            "/v1/keyspaces",
            Role,
            is("/v1/keyspaces"),
            json!({"name": "m2", "purpose": "sections"}),
        ),
        (
            "patch",
            "/v1/keyspaces/{keyspace}",
            Role,
            is("/v1/keyspaces/default"),
            json!({"lease_ms": 1000}),
        ),
        (
            "delete",
            "/v1/keyspaces/{keyspace}",
            Role,
            is("/v1/keyspaces/default"),
            none(),
        ),
        (
            "get",
            "/v1/keyspaces/{keyspace}/keys",
            Role,
            is("/v1/keyspaces/default/keys"),
            none(),
        ),
        ("get", key, Role, at(""), none()),
        ("put", key, Role, at(""), json!({"value": "v"})),
        ("delete", key, Role, at(""), none()),
        (
            "get",
            "/v1/keyspaces/{keyspace}/keys/{key}/queue",
            Role,
            at("/queue"),
            none(),
        ),
        (
            "post",
            "/v1/keyspaces/{keyspace}/keys/{key}/release",
            Role,
            at("/release"),
            json!({"lock_ref": 1}),
        ),
        (
            "get",
            "/v1/keyspaces/{keyspace}/keys/{key}/inspect",
            Role,
            at("/inspect"),
            none(),
        ),
        (
            "post",
            "/v1/sections",
            Role,
            is("/v1/sections"),
            json!({"keys": [{"key": "k"}]}),
        ),
        // Its refs are gone, for who may not hold them.
        ("get", section, Known, is(section), none()),
        ("delete", section, Known, is(section), none()),
        (
            "get",
            "/v1/sections/{id}/events",
            Role,
            is("/v1/sections/{id}/events"),
            none(),
        ),
        (
            "post",
            "/v1/sections/{id}/renew",
            Known,
            is("/v1/sections/{id}/renew"),
            none(),
        ),
        (
            "post",
            "/v1/sections/{id}/resume",
            Role,
            is("/v1/sections/{id}/resume"),
            none(),
        ),
        (
            "get",
            "/v1/sections/{id}/keys/{key}",
            Role,
            is("/v1/sections/{id}/keys/k"),
            none(),
        ),
        (
            "put",
            "/v1/sections/{id}/keys/{key}",
            Role,
            is("/v1/sections/{id}/keys/k"),
            json!({"value": "v"}),
        ),
        (
            "delete",
            "/v1/sections/{id}/keys/{key}",
            Role,
            is("/v1/sections/{id}/keys/k"),
            none(),
        ),
        (
            "patch",
            "/v1/settings",
            Role,
            is("/v1/settings"),
            json!({"move_rate": 0}),
        ),
        ("get", "/v1/access", Role, is("/v1/access"), none()),
        (
            "put",
            "/v1/access",
            Role,
            is("/v1/access"),
            json!({"version": 999, "policy": {}}),
        ),
        ("get", "/v1/status", Role, is("/v1/status"), none()),
        ("get", "/", Open, is("/"), none()),
        ("get", "/healthz", Open, is("/healthz"), none()),
        ("get", "/livez", Open, is("/livez"), none()),
        ("get", "/readyz", Open, is("/readyz"), none()),
        ("get", "/metrics", Role, is("/metrics"), none()),
        ("get", "/openapi.json", Open, is("/openapi.json"), none()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_asks_who_asks() {
    let stage = Stage::start(1, Choice::default()).await;
    let (_, described) = stage
        .asked(None, "GET", "/openapi.json", &Value::Null)
        .await;
    let mut offered = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        offered.extend(
            methods
                .as_object()
                .unwrap()
                .keys()
                .map(|m| (m.clone(), path.clone())),
        );
    }
    let table: BTreeSet<_> = routes()
        .iter()
        .map(|r| (r.0.to_owned(), r.1.to_owned()))
        .collect();
    assert_eq!(offered, table);
    let enter = json!({"keys": [{"key": "k"}], "wait_ms": 20_000});
    let (status, section) = stage
        .asked(Some(&stage.admin), "POST", "/v1/sections", &enter)
        .await;
    assert_eq!(status, 201, "{section}");
    let id = section["id"].as_str().unwrap();
    // The section is left, and the keyspace is asked to go, when all else was tried.
    let mut routes = routes();
    routes.sort_by_key(|(method, path, ..)| (*method == "delete", path.len() < 25));
    let unknown = Token::new(9, 9);
    for (method, path, kind, target, body) in routes {
        let target = target.replace("{id}", id);
        let method = method.to_uppercase();
        let what = format!("{method} {path}");
        let ask = |token| stage.asked(token, &method, &target, &body);
        // Streams of events are not read to their end.
        let events = path.ends_with("/events");
        let (nobody, said) = ask(None).await;
        assert_eq!(ask(Some(&unknown)).await.0, 401, "{what}");
        let (nothing, _) = ask(Some(&stage.nothing)).await;
        match kind {
            Kind::Open => assert_eq!((nobody, nothing), (200, 200), "{what}"),
            Kind::Known | Kind::Session => {
                assert_eq!(nobody, 401, "{what}: {said}");
                assert!(nothing != 401 && nothing != 403, "{what}: {nothing}");
            }
            Kind::Role => assert_eq!((nobody, nothing), (401, 403), "{what}: {said}"),
        }
        if !events {
            let (admin, said) = ask(Some(&stage.admin)).await;
            assert!(admin != 401 && admin != 403, "{what}: {admin} {said}");
        }
    }
}

/// The calls of MUSIC's interface, by what they are about: a call that is known for nobody at all
/// says so before its path is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_music_asks_who_asks() {
    let stage = Stage::start(1, Choice::default()).await;
    let root = "/MUSIC/rest/v2";
    let atomic = json!({"consistencyInfo": {"type": "atomic"}});
    let keyspace = json!({"replicationInfo": {"class": "SimpleStrategy", "replication_factor": 1},
        "durabilityOfWrites": "true", "consistencyInfo": {"type": "eventual"}});
    let table = json!({"fields": {"id": "text", "n": "int", "PRIMARY KEY": "(id)"},
        "consistencyInfo": {"type": "eventual"}});
    let insert = json!({"values": {"id": "a", "n": 1}, "consistencyInfo": {"type": "atomic"}});
    let update = json!({"values": {"n": 1}, "consistencyInfo": {"type": "atomic"}});
    let condition = json!({"primaryKey": "id", "primaryKeyValue": "a", "cascadeColumnKey": "x",
        "tableValues": {"id": "a"}, "casscadeColumnData": {"key": "p", "value": {"a": "b"}},
        "conditions": {"exists": {"status": "x"}, "nonexists": {"status": "y"}}});
    let admin = Some(&stage.admin);
    for (method, path, body) in [
        ("POST", "/keyspaces/shop", &keyspace),
        ("POST", "/keyspaces/shop/tables/carts", &table),
    ] {
        let (status, said) = stage
            .asked(admin, method, &format!("{root}{path}"), body)
            .await;
        assert_eq!(status, 200, "{path}: {said}");
    }
    let none = Value::Null;
    let rows = "/keyspaces/shop/tables/carts/rows";
    let lock = "$shop.carts.a$1";
    let calls: Vec<(&str, String, &Value)> = vec![
        ("POST", "/keyspaces/shop".into(), &keyspace),
        ("DELETE", "/keyspaces/shop".into(), &none),
        ("POST", "/keyspaces/shop/tables/other".into(), &table),
        ("DELETE", "/keyspaces/shop/tables/carts".into(), &none),
        ("POST", "/keyspaces/shop/tables/carts/index/n".into(), &none),
        ("POST", rows.into(), &insert),
        ("PUT", format!("{rows}?id=a"), &update),
        ("DELETE", format!("{rows}?id=a"), &atomic),
        ("GET", format!("{rows}?id=a"), &none),
        ("GET", rows.into(), &none),
        ("PUT", format!("{rows}/criticalget?id=a"), &atomic),
        (
            "POST",
            "/conditional/insert/keyspaces/shop/tables/carts".into(),
            &condition,
        ),
        ("POST", "/locks/create/shop.carts.a".into(), &none),
        ("GET", format!("/locks/acquire/{lock}"), &none),
        ("GET", "/locks/enquire/shop.carts.a".into(), &none),
        ("GET", "/locks/holders/shop.carts.a".into(), &none),
        ("GET", "/locks/shop.carts.a".into(), &none),
        ("DELETE", format!("/locks/release/{lock}"), &none),
        ("DELETE", "/locks/delete/shop.carts.a".into(), &none),
        ("POST", format!("/locks/promote/{lock}"), &none),
        ("POST", "/priorityq/keyspaces/shop/q".into(), &table),
        (
            "GET",
            "/priorityq/keyspaces/shop/carts/peek?id=a".into(),
            &none,
        ),
    ];
    for (method, path, body) in &calls {
        let path = format!("{root}{path}");
        let (nobody, said) = stage.asked(None, method, &path, body).await;
        assert_eq!(nobody, 401, "{method} {path}: {said}");
        assert_eq!(said["status"], "FAILURE", "{said}");
    }
    // A body that is not looked at first is not needed to be refused.
    for (method, path, body) in calls {
        if path.starts_with("/conditional") || path.starts_with("/priorityq/keyspaces/shop/q") {
            continue;
        }
        let path = format!("{root}{path}");
        let (nothing, said) = stage.asked(Some(&stage.nothing), method, &path, body).await;
        assert_eq!(nothing, 403, "{method} {path}: {said}");
    }
    // By HTTP's Basic, as clients of MUSIC show who they are.
    let basic = |name: &str, token: &Token| {
        use base64::Engine as _;
        let text = format!("{name}:{}", token.reveal());
        let coded = base64::engine::general_purpose::STANDARD.encode(text);
        format!("Basic {coded}")
    };
    let create = format!("{root}/locks/create/shop.carts.a");
    for (shown, status) in [
        (basic("app", &stage.app), 200),
        (basic("root", &stage.app), 401),
        (basic("app", &Token::new(2, 2)), 401),
    ] {
        let shown = [("authorization", shown.as_str())];
        let (answered, _, body) = stage.rest.send("POST", &create, &shown, b"").await;
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(answered, status, "{body}");
    }
    // Another principal's lock is not acquired, nor released without the right to.
    let (_, made) = stage.asked(Some(&stage.app), "POST", &create, &none).await;
    let id = made["lock"]["lock"].as_str().unwrap();
    let acquire = format!("{root}/locks/acquire/{id}");
    let (status, said) = stage.asked(admin, "GET", &acquire, &none).await;
    assert_eq!(status, 400, "{said}");
    assert!(
        said["error"].as_str().unwrap().contains("another"),
        "{said}"
    );
    let release = format!("{root}/locks/release/{id}");
    assert_eq!(stage.ask(admin, "DELETE", &release, &none).await, 200);
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
    ] {
        let (code, said) = stage
            .asked(Some(&stage.admin), "PUT", "/v1/access", &change)
            .await;
        assert_eq!(code, 400, "{said}");
        assert!(said["detail"].as_str().unwrap().contains(word), "{said}");
    }
    let late = json!({ "version": 0, "policy": {} });
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
    let log = file.clone();
    let choice = Choice {
        change: Some(Box::new(move |config| {
            config.audit.file = Some(log.clone())
        })),
        ..Choice::default()
    };
    let stage = Stage::start(1, choice).await;
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
        let text = std::fs::read_to_string(&file).unwrap();
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

/// Whoever was known by a certificate or an issuer is known by the same name: here by an issuer's
/// word, whose keys are in a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuers_word_is_taken() {
    use base64::Engine as _;
    use jsonwebtoken::jwk::Jwk;
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    let private = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp-K06_nwoy_HU--CXqI9EdVhC";
    let coded = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let private = EncodingKey::from_ed_der(&coded.decode(private).unwrap());
    let public = Jwk::from_encoding_key(&private, Algorithm::EdDSA).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    std::fs::write(&file, json!({ "keys": [public] }).to_string()).unwrap();
    let choice = Choice {
        change: Some(Box::new(move |config| {
            config.jwt.issuer = "https://id".into();
            config.jwt.audience = "fermata".into();
            config.jwt.keys = file.display().to_string();
        })),
        ..Choice::default()
    };
    let stage = Stage::start(1, choice).await;
    let config = "/v1/keyspaces/default/keys/config%2Fa";
    let ask = async |claims: Value| {
        let token = encode(&Header::new(Algorithm::EdDSA), &claims, &private).unwrap();
        let shown = format!("Bearer {token}");
        let headers = [("authorization", shown.as_str())];
        stage.rest.send("GET", config, &headers, b"").await.0
    };
    let now = jsonwebtoken::get_current_timestamp();
    let claims = |sub: &str, aud: &str| json!({ "iss": "https://id", "aud": aud, "sub": sub, "exp": now + 600 });
    // Its keys are read once the node runs.
    eventually!(ask(claims("app", "fermata")).await == 404);
    assert_eq!(ask(claims("nothing", "fermata")).await, 403);
    assert_eq!(
        ask(claims("nobody", "fermata")).await,
        403,
        "no principal of the cluster"
    );
    assert_eq!(ask(claims("app", "other")).await, 401);
}
