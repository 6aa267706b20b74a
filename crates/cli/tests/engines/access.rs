//! Who may do what, where the policy is a row of the stores.

use crate::nodes::{Nodes, json, on_cassandra, on_zookeeper};
use fermata_server::config::LimitsConfig;
use std::process::Output;
use std::time::Duration;

/// Runs a command at one node as the principal of a token.
fn with(nodes: &Nodes, at: usize, token: &str, args: &[&str]) -> (i32, String, String) {
    let mut command = nodes.client();
    command.env("FERMATA_ENDPOINTS", &nodes.node(at).grpc);
    command.env("FERMATA_TOKEN", token).args(args);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = status.code().expect("it was not killed");
    (code, text(stdout), text(stderr))
}

fn well(done: (i32, String, String)) -> String {
    assert_eq!(done.0, 0, "{}", done.2);
    done.1
}

fn token(nodes: &Nodes, admin: &str, principal: &str, role: &str) -> String {
    let args = ["token", "create", principal, "--role", role, "--json"];
    let made = well(with(nodes, 0, admin, &args));
    let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
    made["token"].as_str().expect("a token").to_owned()
}

/// The other node looks at the row in its own time.
async fn eventually(mut is: impl FnMut() -> bool) {
    while !is() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn a_policy_holds_at_every_node_and_after_a_restart() {
    let mut nodes = Nodes::start(2, LimitsConfig::default()).await;
    let admin = token(&nodes, "", "root", "admin");
    let nobody = with(&nodes, 0, "", &["auth", "enable"]);
    assert_eq!(nobody.0, 65, "who would be shut out: {}", nobody.2);
    well(with(&nodes, 0, &admin, &["auth", "enable"]));
    let allow = [
        "role",
        "set",
        "worker",
        "--allow",
        "lock,read,write:default:jobs/",
    ];
    well(with(&nodes, 0, &admin, &allow));
    let worker = token(&nodes, &admin, "worker", "worker");
    let get = ["get", "jobs/1"];
    let unknown = "nobody is known to ask";
    eventually(|| with(&nodes, 1, "", &get).2.contains(unknown)).await;
    let put = ["put", "jobs/1", "v"];
    eventually(|| with(&nodes, 1, &worker, &put).0 == 0).await;
    for at in [0, 1] {
        let nobody = with(&nodes, at, "", &get);
        assert!(nobody.2.contains(unknown), "{}", nobody.2);
        let other = with(&nodes, at, &worker, &["get", "config/1"]);
        assert!(
            other.0 == 65 && other.2.contains("may not do this"),
            "{}",
            other.2
        );
        let policy = with(&nodes, at, &worker, &["auth", "policy"]);
        assert!(policy.2.contains("may not do this"), "{}", policy.2);
        let lock = ["lock", "jobs/1", "--", "true"];
        well(with(&nodes, at, &worker, &lock));
    }
    nodes.stop(1);
    nodes.restart(1).await;
    let nobody = with(&nodes, 1, "", &get);
    assert!(nobody.2.contains(unknown), "{}", nobody.2);
    // Two administrators at once: each change is there, or refused.
    let roles: Vec<i32> = std::thread::scope(|scope| {
        let set = |at: usize| {
            let (nodes, admin) = (&nodes, &admin);
            let name = format!("both{at}");
            let set = move || {
                let args = ["role", "set", &name, "--allow", "read:default"];
                with(nodes, at, admin, &args).0
            };
            scope.spawn(set)
        };
        let asked = [set(0), set(1)];
        asked.map(|one| one.join().expect("it ends")).into()
    });
    let listed = well(with(&nodes, 0, &admin, &["role", "list"]));
    for (at, code) in roles.into_iter().enumerate() {
        let there = listed.contains(&format!("both{at}"));
        assert_eq!(code == 0, there, "{at} {code}: {listed}");
    }
    well(with(&nodes, 0, &admin, &["token", "revoke", &worker]));
    let over = "not valid, or not any more";
    eventually(|| with(&nodes, 1, &worker, &get).2.contains(over)).await;
    well(with(&nodes, 0, &admin, &["auth", "disable"]));
    eventually(|| with(&nodes, 1, "", &get).0 == 0).await;
    assert_eq!(json(&nodes, &["auth", "status"])["enabled"], false);
}

mod cassandra {
    #[test]
    fn a_policy_holds_at_every_node_and_after_a_restart() {
        super::on_cassandra(super::a_policy_holds_at_every_node_and_after_a_restart());
    }
}

mod zookeeper {
    #[test]
    fn a_policy_holds_at_every_node_and_after_a_restart() {
        super::on_zookeeper(super::a_policy_holds_at_every_node_and_after_a_restart());
    }
}
