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
    let wrong = dev.run(&["settings", "set", "value_bytes", "16MB"]);
    assert_eq!(status(&wrong), 2);
    let said = text(&wrong.stderr);
    assert!(said.contains("like 65536, 64KiB or 16MiB"), "{said}");
    for (name, value, bytes) in [
        ("value_bytes", "1KiB", 1 << 10),
        ("key_bytes", "20", 20),
        ("move_rate", "4MiB", 4 << 20),
        ("move_rate", "off", 0),
    ] {
        let set = dev.run(&["settings", "set", name, value]);
        assert_eq!(status(&set), 0, "{}", text(&set.stderr));
        assert_eq!(dev.json(&["settings"])[name], bytes);
    }
    let shown = text(&dev.run(&["settings"]).stdout);
    for line in [
        "longest value       1024 bytes",
        "nodes move          as fast",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    eventually("every node knows how long values may be", || {
        let nodes = [0, 1, 2].map(|at| dev.json(&["status"])["nodes"][at]["settings"].clone());
        nodes.iter().all(|known| known["value_bytes"] == 1_024)
    });
    let long = dev.run(&["put", "k", &"v".repeat(1_025)]);
    let said = text(&long.stderr);
    assert!(
        status(&long) == 65 && said.contains("at most 1024 bytes"),
        "{said}"
    );
    let long = dev.run(&["put", &"k".repeat(21), "v"]);
    let said = text(&long.stderr);
    assert!(
        status(&long) == 65 && said.contains("1 to 20 bytes"),
        "{said}"
    );
    let fits = dev.run(&["put", &"k".repeat(20), "v"]);
    assert_eq!(status(&fits), 0, "{}", text(&fits.stderr));
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
