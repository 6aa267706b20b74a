//! What is seen of a running cluster: `fermata status`, once and again, and a node's log.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Dev, eventually, json, status, text};

#[test]
fn versions_are_told_and_colours_are_for_who_wants_them() {
    let dev = Dev::start(&["--sites", "1"]);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(dev.json(&["status"])["nodes"][0]["version"], version);
    let shown = |variables: &[&str]| {
        let mut status = dev.client();
        status
            .arg("status")
            .envs(variables.iter().map(|name| (name, "1")));
        text(&status.output().expect("it runs").stdout)
    };
    // Standard output is no terminal here.
    let plain = shown(&[]);
    assert!(
        plain.contains(version) && !plain.contains('\x1b'),
        "{plain}"
    );
    let coloured = shown(&["CLICOLOR_FORCE"]);
    assert!(coloured.contains("\x1b[32mwell"), "{coloured}");
    let unwanted = shown(&["CLICOLOR_FORCE", "NO_COLOR"]);
    assert!(!unwanted.contains('\x1b'), "{unwanted}");
}

#[test]
fn a_cluster_is_watched_as_long_as_somebody_reads() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut watch = dev.client();
    watch.args(["status", "--watch", "50ms", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("another").expect("text");
        assert_eq!(json(line.as_bytes())["nodes"][0]["label"], "site1-1");
    }
    drop(lines);
    assert_eq!(watch.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_takes_long_says_so_on_a_terminal() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut holder = dev.client();
    holder
        .args(["lock", "k", "--", "cat"])
        .stdin(Stdio::piped());
    let mut holder = holder.spawn().expect("it starts");
    eventually("the key is held", || dev.lock_refs("k").len() == 1);
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&screen)
        .and_then(|()| unlockpt(&screen))
        .expect("a terminal");
    let name = ptsname(&screen, Vec::new()).expect("a terminal");
    let name = name.to_str().expect("a path");
    let terminal = File::options()
        .read(true)
        .write(true)
        .open(name)
        .expect("a terminal");
    let mut put = {
        let mut put = dev.client();
        put.args(["put", "k", "value", "--wait", "--timeout", "1m"]);
        put.env("TERM", "xterm")
            .stderr(terminal)
            .spawn()
            .expect("it starts")
    };
    let (mut screen, mut shown) = (File::from(screen), String::new());
    while !shown.contains("putting 5 B, ") {
        let mut some = [0; 256];
        let read = screen.read(&mut some).expect("the put is not over");
        shown += &text(&some[..read]);
    }
    drop(holder.stdin.take());
    assert_eq!(holder.wait().expect("it ends").code(), Some(0));
    assert_eq!(put.wait().expect("it ends").code(), Some(0));
    // Elsewhere nothing is said.
    assert!(dev.run(&["put", "k", "value"]).stderr.is_empty());
}

#[test]
fn what_a_log_shows_is_changed_while_the_node_runs() {
    let dev = Dev::start(&["--sites", "1"]);
    let log = PathBuf::from(dev.nodes[0]["log"].as_str().expect("announced"));
    let log = || std::fs::read_to_string(&log).expect("it is written");
    let put = || assert_eq!(status(&dev.run(&["put", "k", "v"])), 0);
    let set = |level: &str| {
        let config = std::fs::read_to_string(dev.config(0)).expect("it is there");
        let lines = config
            .lines()
            .map(|line| match line.starts_with("log_level") {
                true => format!("log_level = \"{level}\"\n"),
                false => format!("{line}\n"),
            });
        std::fs::write(dev.config(0), lines.collect::<String>()).expect("it is written");
        dev.signal(0, Signal::HUP);
    };
    put();
    assert!(!log().contains("DEBUG"), "{}", log());
    set("fermata_server=debug");
    eventually("it is read", || log().contains("was read again"));
    put();
    let answered = "answered operation=\"enter\" code=\"ok\"";
    eventually("a request is told of", || log().contains(answered));
    assert!(!log().contains("operation=\"status\""));
    set("loud");
    eventually("why nothing changed is told", || {
        log().contains("log_level is `loud`")
    });
    assert_eq!(dev.stop(), Some(0));
}
