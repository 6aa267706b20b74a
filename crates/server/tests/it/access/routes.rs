//! Every route of every face, and how it answers: a table that has to have all that the servers
//! really offer.

use super::{Stage, shown};
use crate::common::{Choice, Session, key};
use bytes::{Buf, BufMut, Bytes};
use fermata_access::Token;
use fermata_api::v1;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Status};

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
#[expect(clippy::too_many_lines, reason = "a table")]
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
        // Who gives something up needs no right to it, but may know of its keyspace.
        m!(
            "Fermata/Leave",
            Role,
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
            "Fermata/Transact",
            Role,
            v1::TransactRequest {
                header: h(),
                compare: vec![],
                then: vec![v1::Act {
                    act: Some(v1::act::Act::Get(key("k")))
                }],
                or_else: vec![]
            }
        ),
        m!(
            "Fermata/Resolve",
            Role,
            v1::ResolveRequest {
                header: h(),
                key: k(),
                of: 1
            }
        ),
        m!(
            "Fermata/Snapshot",
            Role,
            v1::SnapshotRequest {
                header: h(),
                parts: vec![v1::Part {
                    part: Some(v1::part::Part::Key(key("k")))
                }],
                when: None
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
#[expect(clippy::too_many_lines, reason = "a table")]
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
        ("delete", section, Role, is(section), none()),
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
#[expect(clippy::too_many_lines, reason = "a table")]
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
