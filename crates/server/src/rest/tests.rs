//! The description against the routes, without a cluster behind them.

use super::{OPENAPI, json, routes};
use serde_json::Value;
use std::collections::BTreeSet;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn the_description_has_every_route() {
    let document = document();
    let described = document["paths"].as_object().unwrap();
    assert_eq!(described.len(), routes().len());
    for (path, methods, _) in routes() {
        let keys: Vec<&str> = described[path]
            .as_object()
            .unwrap()
            .keys()
            .map(|k| &**k)
            .collect();
        assert_eq!(
            keys.into_iter().collect::<BTreeSet<_>>(),
            methods.into_iter().collect(),
            "{path}"
        );
    }
}

#[test]
fn every_operation_has_a_name_of_its_own_and_a_server() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, methods, _) in routes() {
        for method in methods {
            let name = document["paths"][path][method]["operationId"].as_str();
            let name = name.unwrap_or_else(|| panic!("{method} {path} has no operationId"));
            assert!(name.chars().all(|c| c.is_ascii_alphabetic()), "{name}");
            assert!(names.insert(name.to_owned()), "{name} twice");
        }
    }
    assert_eq!(document["servers"][0]["url"], "/");
}

/// A generated client takes no code that is not described.
#[test]
fn the_description_has_every_code() {
    let document = document();
    let described = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let described = described.as_array().unwrap().iter();
    let described: BTreeSet<&str> = described.map(|code| code.as_str().unwrap()).collect();
    let of_rest = [
        "no_value",
        "no_such_path",
        "no_such_method",
        "body_timeout",
        "unsupported_media_type",
        "condition_failed",
    ];
    let codes = fermata_api::errors::CODES.map(fermata_protocol::Code::name);
    let codes = codes.into_iter().chain(of_rest);
    assert_eq!(described, codes.collect());
}

#[test]
fn every_reference_in_the_description_leads_somewhere() {
    fn walk(root: &Value, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    let pointer = to.trim_start_matches('#');
                    assert!(root.pointer(pointer).is_some(), "{to} leads nowhere");
                }
                fields.values().for_each(|v| walk(root, v));
            }
            Value::Array(all) => all.iter().for_each(|v| walk(root, v)),
            _ => {}
        }
    }
    walk(&document(), &document());
}

/// The fields of the schema `name`.
fn fields(name: &str) -> BTreeSet<String> {
    let document = document();
    let schema = &document["components"]["schemas"][name]["properties"];
    schema
        .as_object()
        .unwrap_or_else(|| panic!("no schema {name}"))
        .keys()
        .cloned()
        .collect()
}

/// A body with a field of the description is taken by the type, one with another field is not.
fn takes<T: for<'a> serde::Deserialize<'a>>(name: &str, body: Value) {
    assert_eq!(
        body.as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>(),
        fields(name)
    );
    serde_json::from_value::<T>(body.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut more = body;
    more["surprise"] = 1.into();
    assert!(
        serde_json::from_value::<T>(more).is_err(),
        "{name} takes unknown fields"
    );
}

#[test]
fn the_description_has_every_field_of_requests() {
    use serde_json::json;
    let key = json!({"keyspace": "default", "key": "k", "key_base64": "aw==", "sequence": 1});
    takes::<json::KeyIn>("Key", key.clone());
    takes::<json::NewValue>("NewValue", json!({"value": "v", "value_base64": "dg=="}));
    takes::<json::Release>("Release", json!({"lock_ref": 1}));
    takes::<json::Leave>("Leave", json!({"acknowledged": [key.clone()]}));
    takes::<json::NewSection>(
        "NewSection",
        json!({
            "keys": [key], "mode": "shared", "wait_ms": 1, "lease_ms": 1, "label": "l",
            "counting": "client"
        }),
    );
    takes::<json::KeyspaceJson>(
        "Keyspace",
        json!({
            "name": "n", "purpose": "sections", "storage": "replicated", "tag_before": 47,
            "lease_ms": 1, "section_max_ms": 1, "id": 0,
            "faults": 1, "delta": 3, "whole_below": 1024, "lead_ms": 1
        }),
    );
}
