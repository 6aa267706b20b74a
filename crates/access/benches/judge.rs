//! How long one judgement takes, by the number of rules.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fermata_access::{Judge, Policy, Principal, Quota, Right, Rule};
use std::hint::black_box;

fn policy(rules: usize) -> Policy {
    let rule = |number| Rule {
        keyspace: "jobs".into(),
        prefix: Some(format!("tenants/{number:05}/")),
        prefix_base64: None,
        tag: None,
        rights: [Right::Read, Right::Lock].into(),
    };
    let each = 64;
    let role = |number: usize| {
        let last = rules.min((number + 1) * each);
        (
            format!("role{number}"),
            (number * each..last).map(rule).collect(),
        )
    };
    let roles: std::collections::BTreeMap<String, _> =
        (0..rules.div_ceil(each)).map(role).collect();
    let principal = Principal {
        roles: roles.keys().cloned().collect(),
        quota: Quota::default(),
    };
    Policy {
        enabled: true,
        principals: [("app".into(), principal)].into(),
        roles,
        ..Policy::default()
    }
}

fn judgement(c: &mut Criterion) {
    let mut group = c.benchmark_group("judgement");
    for rules in [1, 64, 2_048] {
        let judge = Judge::of(&policy(rules));
        let key = format!("tenants/{:05}/queue/17", rules / 2);
        group.bench_function(BenchmarkId::from_parameter(rules), |b| {
            b.iter(|| {
                let grants = judge.grants(black_box("app")).expect("it is known");
                grants.may(
                    Right::Lock,
                    black_box("jobs"),
                    black_box(key.as_bytes()),
                    || b"",
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, judgement);
criterion_main!(benches);
