//! What all nodes count alike: shown, changed while a cluster works, kept by who starts again.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};

#[test]
fn a_setting_is_changed_by_its_name_and_the_rest_is_refused() {
    let dev = Dev::start(&[]);
    let first = dev.json(&["settings"]);
    for (name, why) in [
        ("segment_bits", "begin a new"),
        ("beat_ms", "in the node's file"),
    ] {
        let refused = dev.run(&["settings", "set", name, "7"]);
        assert_eq!(status(&refused), 65);
        let said = text(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(dev.json(&["settings"]), first);
    let named = dev.run(&["settings", "set", "dead_after", "5m"]);
    assert_eq!(status(&named), 0, "{}", text(&named.stderr));
    assert_eq!(dev.json(&["settings"])["dead_after_ms"], 300_000);
}

#[test]
fn another_lease_holds_once_every_node_knows() {
    let dev = Dev::start(&[]);
    let first = dev.json(&["settings"]);
    assert_eq!(first["changes"], 0);
    assert_eq!(first["before_ms"], serde_json::Value::Null);
    for (lease, why) in [("1ms", "twice a beat"), ("11m", "1 to 600000 ms")] {
        let refused = dev.run(&["settings", "--lease", lease]);
        assert_eq!(status(&refused), 65);
        let said = text(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
    let present = first["format"].as_u64().expect("a format");
    let wrong = [
        (present + 1, "does not read format"),
        (present, "choose"),
        (present - 1, "never lowered"),
    ];
    for (format, why) in wrong {
        let refused = dev.run(&["settings", "--format", &format.to_string()]);
        assert_eq!(status(&refused), 65);
        let said = text(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(dev.json(&["settings"]), first);
    let changed = dev.run(&["settings", "--lease", "2s"]);
    assert_eq!(status(&changed), 0, "{}", text(&changed.stderr));
    let shown = text(&changed.stdout);
    assert!(
        shown.contains("2.00 s") && !shown.contains("before"),
        "{shown}"
    );
    for node in dev.json(&["status"])["nodes"].as_array().expect("nodes") {
        assert_eq!(node["settings"]["lease_ms"], 2_000);
    }
    dev.signal(2, Signal::KILL);
    let ask = ["settings", "--lease", "3s", "--timeout", "8s"];
    let open = dev.run(&ask);
    assert_eq!(status(&open), 69, "{}", text(&open.stderr));
    let shown = text(&open.stdout);
    assert!(shown.contains("3.00 s, before 2.00 s: a node"), "{shown}");
    let refused = dev.run(&["settings", "--lease", "4s"]);
    assert_eq!(status(&refused), 65);
    let said = text(&refused.stderr);
    assert!(
        said.contains("is being changed, from 2000 ms to 3000 ms"),
        "{said}"
    );
    let put = dev.run(&["put", "k", "v", "--timeout", "30s"]);
    assert_eq!(status(&put), 0, "{}", text(&put.stderr));
    // Its file still has the first lease.
    let mut server = fermata();
    server.arg("server").arg("--config").arg(dev.config(2));
    server.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut node = ByHand(server.spawn().expect("it starts"));
    let log = node.0.stderr.take().expect("piped");
    eventually("the node that was down knows", || {
        let settings = json(&dev.run(&["settings", "--json"]).stdout);
        settings["lease_ms"] == 3_000 && settings["before_ms"].is_null()
    });
    drop(node);
    let log = std::io::read_to_string(log).expect("text");
    assert!(log.contains("timing.lease_ms is"), "{log}");
}
