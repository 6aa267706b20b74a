//! TLS as people use it: certificates are made, shown, renewed and refused.

use std::path::Path;
use std::process::Output;

use crate::newcomers::{Newcomers, ended, hears, run, well};
use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};

/// Runs `fermata` with nothing of a cluster.
fn alone(args: &[&str]) -> Output {
    fermata().args(args).output().expect("fermata runs")
}

fn refused(output: &Output, exit: i32, word: &str) {
    let said = text(&output.stderr);
    assert_eq!(status(output), exit, "{said}");
    assert!(said.contains(word), "{word}: {said}");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_cluster_that_speaks_tls_is_for_who_shows_a_certificate() {
    let dev = Dev::start(&["--tls"]);
    let tls = dev.folder().join("tls");
    let ca = dev.tls["ca"].as_str().expect("announced");
    well(&dev.run(&["put", "k", "v"]));
    assert_eq!(text(&dev.run(&["get", "k"]).stdout), "v");
    let state = dev.json(&["status"]);
    for node in state["nodes"].as_array().expect("nodes") {
        assert_eq!(node["security"]["tls"], true, "{node}");
        assert_eq!(node["security"]["exposed"], false, "{node}");
        let left = node["security"]["ends_in_s"].as_i64().expect("seconds");
        assert!(left > 300 * 86_400, "{left}");
    }
    // Whoever has nothing to show, or shows something else, is told.
    let get = ["get", "k"];
    refused(&run(dev.stranger(), &get), 69, "it may speak TLS");
    let shown = [&get[..], &["--tls-ca", ca]].concat();
    refused(&run(dev.stranger(), &shown), 69, "asks for a certificate");
    let other = tempfile::tempdir().expect("a folder");
    let other = path(other.path());
    well(&alone(&["cert", "ca", "--dir", other]));
    let id = format!("{:032x}", 7);
    let client = [
        "cert",
        "client",
        "--dir",
        other,
        "--cluster",
        &id,
        "--name",
        "me",
    ];
    well(&alone(&client));
    let (certificate, key) = (format!("{other}/me.pem"), format!("{other}/me.key"));
    let own = ["--tls-certificate", &certificate, "--tls-key", &key];
    let shown = [&get[..], &["--tls-ca", ca], &own].concat();
    refused(
        &run(dev.stranger(), &shown),
        69,
        "does not trust the authority",
    );
    let not_trusted = format!("{other}/ca.pem");
    let shown = [&get[..], &["--tls-ca", &not_trusted], &own].concat();
    refused(
        &run(dev.stranger(), &shown),
        69,
        "authority that is not trusted",
    );
    // A certificate is renewed while the node runs.
    let label = dev.nodes[0]["node"].as_str().expect("a label");
    let file = dev.folder().join("cluster.toml");
    let renew = [
        "cert",
        "node",
        "--dir",
        path(&tls),
        "--cluster-file",
        path(&file),
        "--label",
        label,
        "--days",
        "10",
    ];
    refused(&alone(&renew), 2, "--replace");
    well(&alone(&[&renew[..], &["--replace"]].concat()));
    eventually("the node shows the new one", || {
        let said = text(&dev.run(&["status"]).stdout);
        said.contains(&format!("{label}: a certificate is over in "))
    });
    assert_eq!(text(&dev.run(&["get", "k"]).stdout), "v");
}

#[test]
fn a_node_joins_with_its_own_certificate_and_with_no_other() {
    let dev = Dev::start(&["--tls"]);
    let new = Newcomers::of(&dev);
    let tls = dev.folder().join("tls");
    let file = dev.folder().join("cluster.toml");
    let sign = |label: &str, more: &[&str]| {
        let args = ["cert", "node", "--dir", path(&tls), "--label", label];
        let hosts = ["--host", "127.0.0.1"];
        well(&alone(&[&args[..], &hosts, more].concat()));
    };
    let own = ["--cluster-file", path(&file)];
    sign("new-0", &own);
    sign("somebody", &own);
    let id = format!("{:032x}", 7);
    sign("foreign", &["--cluster", &id]);
    let with = |label: &str| {
        let mut command = new.command(0, "site1");
        for (option, end) in [("--tls-certificate", "pem"), ("--tls-key", "key")] {
            command.arg(option).arg(tls.join(format!("{label}.{end}")));
        }
        command.arg("--tls-ca").arg(tls.join("ca.pem"));
        command
    };
    for (label, exit, why) in [
        ("somebody", 2, "and this node is fermata://"),
        ("foreign", 69, "it refuses this end's certificate"),
    ] {
        let (ended, said) = ended(with(label));
        assert_eq!(ended, exit, "{said}");
        assert!(said.contains(why), "{why}: {said}");
        assert!(said.contains("nothing was changed"), "{said}");
    }
    let _node = ByHand(with("new-0").spawn().expect("a node starts"));
    eventually("the node takes part", || hears(&dev, "new-0"));
    well(&dev.run(&["node", "add", "new-0"]));
}

#[test]
fn the_files_of_a_new_cluster_come_with_certificates() {
    let ports = crate::support::Ports::free();
    let folder = tempfile::tempdir().expect("a folder");
    let dir = path(folder.path());
    let node = |number: u16, label: &str| {
        format!(
            "{label}@site-{label}=127.0.0.1:{}",
            ports.base + 10 * number
        )
    };
    let nodes = [node(0, "a"), node(1, "b"), node(2, "c")];
    let mut init = vec!["server", "init", "--tls", "--dir", dir];
    for node in &nodes {
        init.extend(["--node", node]);
    }
    well(&alone(&init));
    let nodes: Vec<ByHand> = ["a", "b", "c"]
        .into_iter()
        .map(|label| {
            let config = folder.path().join(format!("{label}.toml"));
            let mut server = fermata();
            server.args(["server", "--config", path(&config)]);
            server.stderr(std::process::Stdio::null());
            ByHand(server.spawn().expect("a node starts"))
        })
        .collect();
    let tls = folder.path().join("tls");
    let client = || {
        let mut client = fermata();
        client
            .env("FERMATA_ENDPOINTS", format!("127.0.0.1:{}", ports.base))
            .env("FERMATA_TLS_CA", tls.join("ca.pem"))
            .env("FERMATA_TLS_CERTIFICATE", tls.join("admin.pem"))
            .env("FERMATA_TLS_KEY", tls.join("admin.key"));
        client
    };
    eventually("the cluster works", || {
        status(&run(client(), &["put", "k", "v"])) == 0
    });
    let state = json(&run(client(), &["status", "--json"]).stdout);
    assert_eq!(state["nodes"].as_array().expect("nodes").len(), 3);
    drop(nodes);
}
