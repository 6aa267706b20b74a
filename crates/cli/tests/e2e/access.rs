//! Who may do what, as people say it: tokens, roles, certificates, and commands that are refused.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use crate::newcomers::{Newcomers, ended, hears, run, well};
use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};

/// Every command that talks to a cluster, with arguments, and what its refusal is to say to a
/// principal without a role: nothing, where the command is of no such kind.
const COMMANDS: &[(&str, &[&str], &str)] = &[
    ("get", &["k"], REFUSED),
    ("put", &["k", "v"], REFUSED),
    ("del", &["k"], REFUSED),
    ("keys", &[], REFUSED),
    ("txn", &["--then", "put k v"], REFUSED),
    ("snapshot", &["k"], REFUSED),
    ("lock", &["k", "--", "true"], REFUSED),
    ("locks", &["k"], REFUSED),
    ("release", &["k", "1"], REFUSED),
    ("status", &[], REFUSED),
    ("keyspace create", &["made"], REFUSED),
    // One is shown what one may know of: nothing.
    ("keyspace list", &[], ""),
    ("keyspace describe", &["default"], ""),
    ("keyspace change", &["default", "--lease", "5s"], REFUSED),
    ("keyspace delete", &["default", "--yes"], REFUSED),
    ("settings", &[], ""),
    ("settings set", &["move_rate", "0"], ""),
    ("ring", &[], REFUSED),
    ("node list", &[], REFUSED),
    ("node add", &["x"], REFUSED),
    ("node drain", &["x"], REFUSED),
    ("node undrain", &["x"], REFUSED),
    ("node remove", &["x"], REFUSED),
    ("node replace", &["x", "y"], REFUSED),
    ("node restart-order", &[], REFUSED),
    ("ring policy show", &[], ""),
    ("ring policy set", &["--join", "load"], ""),
    ("ring policy off", &[], ""),
    ("auth enable", &[], REFUSED),
    ("auth disable", &[], REFUSED),
    ("auth status", &[], REFUSED),
    ("auth policy", &[], REFUSED),
    ("auth apply", &[POLICY], REFUSED),
    ("token create", &["x"], REFUSED),
    ("token list", &[], REFUSED),
    ("token revoke", &["0000000000000001"], REFUSED),
    ("role list", &[], REFUSED),
    ("role set", &["x", "--allow", "read:default"], REFUSED),
    ("role delete", &["x"], REFUSED),
    ("principal list", &[], REFUSED),
    ("principal set", &["x"], REFUSED),
    ("principal delete", &["x"], REFUSED),
    ("bench load", &["--clients", "1", "--seconds", "1"], REFUSED),
];

/// Those that talk to none, or have others below them.
const OTHERS: &[&str] = &[
    "auth",
    "auth recover",
    "bench",
    "bench crowd",
    "cert",
    "cert ca",
    "cert client",
    "cert node",
    "check",
    "completions",
    "demo",
    "dev",
    "keyspace",
    "man",
    "node",
    "principal",
    "ring policy",
    "role",
    "server",
    "server init",
    "token",
];

/// Stands for a file with a policy.
const POLICY: &str = "POLICY";
const REFUSED: &str = "may not do this";
const UNKNOWN: &str = "nobody is known to ask";

fn with(dev: &Dev, token: &str) -> Command {
    let mut command = dev.client();
    command.env("FERMATA_TOKEN", token);
    command
}

/// A token of this principal, with these roles.
fn token(dev: &Dev, admin: &str, principal: &str, roles: &[&str]) -> String {
    let mut args = vec!["token", "create", principal, "--json"];
    args.extend(roles.iter().flat_map(|role| ["--role", role]));
    let made = run(with(dev, admin), &args);
    well(&made);
    let made = json(&made.stdout);
    made["token"].as_str().expect("a token").to_owned()
}

/// A cluster whose access is controlled, and its administrator's token.
fn controlled(options: &[&str]) -> (Dev, String) {
    let dev = Dev::start(options);
    let admin = token(&dev, "", "root", &["admin"]);
    let enable = run(dev.client(), &["auth", "enable"]);
    assert_eq!(status(&enable), 65, "{}", text(&enable.stderr));
    well(&run(with(&dev, &admin), &["auth", "enable"]));
    (dev, admin)
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn every_command_is_refused_to_who_may_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = fermata().arg("man").arg(folder.path()).output();
    well(&pages.expect("fermata runs"));
    let pages = std::fs::read_dir(folder.path()).expect("it was made");
    let name = |page: std::io::Result<std::fs::DirEntry>| {
        let name = page.expect("a page").file_name();
        let name = name
            .to_str()
            .expect("text")
            .trim_end_matches(".1")
            .to_owned();
        let name = name.strip_prefix("fermata-")?.replace('-', " ");
        Some(name)
    };
    let offered: BTreeSet<String> = pages.filter_map(name).collect();
    let named = COMMANDS.iter().map(|(name, ..)| *name);
    let named = named.chain(OTHERS.iter().copied());
    let named: BTreeSet<String> = named.map(|name| name.replace('-', " ")).collect();
    assert_eq!(offered, named);

    let (dev, admin) = controlled(&[]);
    let nothing = token(&dev, &admin, "nothing", &[]);
    let policy = folder.path().join("policy.json");
    std::fs::write(&policy, "{\"enabled\": true}").expect("room for a file");
    let policy = policy.to_str().expect("text");
    let spelled = |word: &'static str| if word == POLICY { policy } else { word };
    for (name, more, refused) in COMMANDS {
        let args = name.split(' ').chain(more.iter().copied());
        let args: Vec<&str> = args.map(spelled).collect();
        let nobody = run(dev.client(), &args);
        assert_ne!(status(&nobody), 0, "{name}");
        assert!(said(&nobody).contains(UNKNOWN), "{name}: {}", said(&nobody));
        let without = run(with(&dev, &nothing), &args);
        assert!(
            said(&without).contains(refused),
            "{name}: {}",
            said(&without)
        );
        // A load counts what is refused, and goes on.
        if *refused == REFUSED && *name != "bench load" {
            assert_eq!(status(&without), 65, "{name}: {}", said(&without));
        }
        if name.starts_with("settings set") || name.ends_with("policy set") || name.ends_with("off")
        {
            assert_ne!(status(&without), 0, "{name}: {}", said(&without));
        }
        // The name of a keyspace is told to who has a right in it.
        let shown = text(&without.stdout);
        assert!(!shown.contains("default"), "{name}: {shown}");
    }
    // An administrator comes last: one of these turns access control off.
    for (name, more, _) in COMMANDS {
        if *name == "keyspace delete" || *name == "auth disable" || *name == "auth apply" {
            continue;
        }
        let args: Vec<&str> = name.split(' ').chain(more.iter().copied()).collect();
        let done = run(with(&dev, &admin), &args);
        for word in [REFUSED, UNKNOWN] {
            assert!(!said(&done).contains(word), "{name}: {}", said(&done));
        }
    }
    well(&run(with(&dev, &admin), &["auth", "disable"]));
    well(&run(dev.client(), &["keys"]));
}

/// What would open the cluster, or shut everybody out, is refused and changes nothing.
#[test]
fn nothing_is_opened_by_accident() {
    let (dev, admin) = controlled(&[]);
    let file = dev.folder().join("policy.json");
    let apply = |text: &str| {
        std::fs::write(&file, text).expect("room for a file");
        let mut command = with(&dev, &admin);
        command.args(["auth", "apply"]).arg(&file);
        command.output().expect("fermata runs")
    };
    let policy = text(&run(with(&dev, &admin), &["auth", "policy"]).stdout);
    for (wrong, exit, word) in [
        ("", 2, "is empty"),
        (" \n", 2, "is empty"),
        ("{}", 2, "missing field `enabled`"),
        ("{\"roles\": {}}", 2, "missing field `enabled`"),
        (&policy[..policy.len() / 2], 2, "cannot be read"),
        ("{\"enabled\": false}", 65, "`fermata auth disable` does"),
        (
            "{\"enabled\": true}",
            65,
            "no principal would be an administrator",
        ),
    ] {
        let refused = apply(wrong);
        assert_eq!(status(&refused), exit, "{wrong}: {}", said(&refused));
        assert!(said(&refused).contains(word), "{wrong}: {}", said(&refused));
    }
    well(&apply(&policy));
    let only = run(with(&dev, &admin), &["token", "revoke", &admin]);
    assert_eq!(status(&only), 65, "{}", said(&only));
    assert!(
        said(&only).contains("make another first"),
        "{}",
        said(&only)
    );
    let none = ["principal", "set", "x", "--requests-per-second", "0"];
    let none = run(with(&dev, &admin), &none);
    assert!(said(&none).contains("a quota of 0"), "{}", said(&none));
    assert_eq!(
        text(&run(with(&dev, &admin), &["auth", "policy"]).stdout),
        policy
    );
    let nobody = run(dev.client(), &["get", "k"]);
    assert_eq!(status(&nobody), 65, "{}", said(&nobody));
    // Another one may end it.
    let other = token(&dev, &admin, "root", &["admin"]);
    well(&run(with(&dev, &other), &["token", "revoke", &admin]));
}

#[test]
fn a_lock_ends_with_its_holders_token_or_role() {
    let (dev, admin) = controlled(&[]);
    let allow = |rights: &str| {
        let rule = format!("{rights}:default:jobs/");
        let set = ["role", "set", "worker", "--allow", &rule];
        well(&run(with(&dev, &admin), &set));
    };
    allow("lock,read,write");
    let worker = token(&dev, &admin, "worker", &["worker"]);
    let hold = |key: &str| {
        let mut command = with(&dev, &worker);
        let script = "exec sleep 1000";
        command.args(["lock", key, "--wait", "1m", "--", "sh", "-c", script]);
        command.stderr(Stdio::piped());
        command.spawn().expect("fermata runs")
    };
    let holds = |key: &str| {
        let queue = json(&run(with(&dev, &admin), &["locks", key, "--json"]).stdout);
        let entries = queue["entries"].as_array();
        entries.is_some_and(|all| all.iter().any(|entry| entry["holds"] == true))
    };
    for (key, take) in [("jobs/1", true), ("jobs/2", false)] {
        let holder = hold(key);
        eventually("the key is held", || holds(key));
        match take {
            true => allow("read"),
            false => well(&run(with(&dev, &admin), &["token", "revoke", &worker])),
        }
        let ended = holder.wait_with_output().expect("it ends");
        assert_eq!(status(&ended), 75, "{}", said(&ended));
        assert!(
            said(&ended).contains("may not hold it any more"),
            "{}",
            said(&ended)
        );
        if take {
            // Who has lost the right has left: nobody waits for its lease.
            eventually("the key is free", || !holds(key));
            allow("lock,read,write");
        }
    }
    let get = run(with(&dev, &worker), &["get", "jobs/1"]);
    assert!(
        said(&get).contains("not valid, or not any more"),
        "{}",
        said(&get)
    );
}

#[test]
fn a_node_joins_where_access_is_controlled_and_lets_nobody_in_either() {
    let (dev, admin) = controlled(&[]);
    let new = Newcomers::of(&dev);
    let (exit, why) = ended(new.command(0, "site1"));
    assert_eq!(exit, 69, "{why}");
    assert!(why.contains(UNKNOWN), "{why}");
    let nothing = token(&dev, &admin, "nothing", &[]);
    let mut command = new.command(0, "site1");
    command.env("FERMATA_TOKEN", nothing);
    let (exit, why) = ended(command);
    assert_eq!(exit, 65, "{why}");
    assert!(why.contains(REFUSED), "{why}");
    let mut command = new.command(0, "site1");
    command.env("FERMATA_TOKEN", &admin);
    let _node = ByHand(command.spawn().expect("a node starts"));
    // Whatever it answers first, it is no value.
    let mut refused = false;
    eventually("the node refuses who is nobody", || {
        let get = run(new.client(&[0]), &["get", "k"]);
        assert_ne!(status(&get), 0, "{}", text(&get.stdout));
        refused |= said(&get).contains(UNKNOWN);
        refused
    });
    eventually("the node takes part", || {
        let ring = json(&run(with(&dev, &admin), &["ring", "--json"]).stdout);
        let nodes = ring["nodes"].as_array().cloned().unwrap_or_default();
        nodes
            .iter()
            .any(|node| node["label"] == "new-0" && node["heard"] == true)
    });
}

#[test]
fn a_certificate_is_a_principals() {
    let dev = Dev::start(&["--tls"]);
    let admin = dev.tls["certificate"].as_str().expect("announced");
    let admin = admin
        .rsplit('/')
        .next()
        .expect("a file")
        .trim_end_matches(".pem");
    well(&dev.run(&["principal", "set", admin, "--role", "admin"]));
    well(&dev.run(&["role", "set", "reader", "--allow", "read:default"]));
    well(&dev.run(&["principal", "set", "app", "--role", "reader"]));
    well(&dev.run(&["auth", "enable"]));
    well(&dev.run(&["put", "k", "v"]));
    let tls = dev.folder().join("tls");
    let file = dev.folder().join("cluster.toml");
    let shows = |name: &str| {
        let sign = fermata()
            .args(["cert", "client", "--name", name, "--dir"])
            .arg(&tls)
            .arg("--cluster-file")
            .arg(&file)
            .output();
        well(&sign.expect("fermata runs"));
        let mut command = dev.client();
        command.env("FERMATA_TLS_CERTIFICATE", tls.join(format!("{name}.pem")));
        command.env("FERMATA_TLS_KEY", tls.join(format!("{name}.key")));
        command
    };
    let get = run(shows("app"), &["get", "k"]);
    assert_eq!(text(&get.stdout), "v", "{}", said(&get));
    let app = || {
        let mut command = dev.client();
        command.env("FERMATA_TLS_CERTIFICATE", tls.join("app.pem"));
        command.env("FERMATA_TLS_KEY", tls.join("app.key"));
        command
    };
    let put = run(app(), &["put", "k", "w"]);
    assert!(said(&put).contains("app may not do this"), "{}", said(&put));
    let get = run(shows("stranger"), &["get", "k"]);
    assert!(
        said(&get).contains("stranger may not do this"),
        "{}",
        said(&get)
    );
    // A token goes before the certificate, and one that is none is not passed over.
    let root = token(&dev, "", "root", &["admin"]);
    let mut command = app();
    command.env("FERMATA_TOKEN", root);
    well(&run(command, &["put", "k", "w"]));
    let mut command = dev.client();
    command.env("FERMATA_TOKEN", "fmt_none");
    let get = run(command, &["get", "k"]);
    assert!(
        said(&get).contains("not valid, or not any more"),
        "{}",
        said(&get)
    );
    assert!(hears(&dev, dev.nodes[1]["node"].as_str().expect("a label")));
}
