//! `fermata lock`: what runs, what it sees, and how it ends.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};
use rustix::process::{Pid, Signal, kill_process};

const FERMATA: &str = env!("CARGO_BIN_EXE_fermata");

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a process id is not 0")
}

/// Runs `script` in a section over `keys`.
fn locked(dev: &Dev, keys: &[&str], script: &str) -> (i32, String, String) {
    let mut args = vec!["lock"];
    args.extend(keys);
    args.extend(["--", "sh", "-c", script]);
    let output = dev.run(&args);
    (status(&output), text(&output.stdout), text(&output.stderr))
}

/// A section on `key` in the background that says so and waits for the end of its input.
fn holding(dev: &Dev, key: &str, options: &[&str]) -> Child {
    running(dev, key, options, "echo in; exec cat")
}

/// A section on `key` in the background whose `script` has said that it is in.
fn running(dev: &Dev, key: &str, options: &[&str], script: &str) -> Child {
    let mut child = dev
        .client()
        .args(["lock", key])
        .args(options)
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let out = child.stdout.as_mut().expect("stdout is piped");
    let mut said = [0; 3];
    std::io::Read::read_exact(out, &mut said).expect("it is in");
    assert_eq!(&said, b"in\n");
    child
}

#[test]
fn the_status_is_the_commands() {
    let dev = Dev::start(&["--sites", "1"]);
    assert_eq!(locked(&dev, &["a"], "exit 0").0, 0);
    assert_eq!(locked(&dev, &["a"], "exit 3").0, 3);
    assert_eq!(locked(&dev, &["a"], "kill -9 $$").0, 128 + 9);
    assert_eq!(
        status(&dev.run(&["lock", "a", "--", "/no/such/command"])),
        127
    );
    assert_eq!(status(&dev.run(&["lock", "a", "--", "/"])), 126);
    // The section of a command that did not start was left.
    assert!(text(&dev.run(&["locks", "a"]).stdout).contains("nobody"));
}

#[test]
fn children_act_in_the_section() {
    let dev = Dev::start(&["--sites", "1"]);
    assert_eq!(status(&dev.run(&["put", "a", "old"])), 0);
    let script = format!(
        "{FERMATA} get a; {FERMATA} put a new; {FERMATA} get a; {FERMATA} get b || echo =$?; \
         {FERMATA} put b ''; {FERMATA} get b && echo empty; {FERMATA} del a; \
         {FERMATA} get a || echo gone; test $FERMATA_LOCK_REF -gt 0 && echo ref"
    );
    let (code, out, err) = locked(&dev, &["a", "b"], &script);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "oldnew=1\nempty\ngone\nref\n");
    assert_eq!(status(&dev.run(&["get", "a"])), 1);
    assert_eq!(status(&dev.run(&["get", "b"])), 0);
}

#[test]
fn a_key_outside_of_the_section_is_a_clear_error() {
    let dev = Dev::start(&["--sites", "1"]);
    for (script, word) in [
        ("get b", "does not hold"),
        ("put b 1", "does not hold"),
        ("--site x get a --keyspace other", "does not hold"),
        ("get --wait a", "`fermata get` without --wait"),
        ("put --wait a 1", "`fermata put` without --wait"),
        ("lock a -- true", "for ever"),
    ] {
        let (code, _, err) = locked(&dev, &["a"], &format!("{FERMATA} {script}"));
        assert_eq!(code, 65, "{script}: {err}");
        assert!(err.contains(word), "{script}: {err}");
    }
    // Another key can be locked inside.
    assert_eq!(
        locked(&dev, &["a"], &format!("{FERMATA} lock b -- true")).0,
        0
    );
}

#[test]
fn shared_sections_are_together_and_only_read() {
    let dev = Dev::start(&["--sites", "1"]);
    assert_eq!(status(&dev.run(&["put", "a", "1"])), 0);
    let reader = holding(&dev, "a", &["--shared"]);
    let read = dev.run(&["lock", "a", "--shared", "--", FERMATA, "get", "a"]);
    assert_eq!((status(&read), text(&read.stdout)), (0, "1".to_owned()));
    let write = dev.run(&["lock", "a", "--shared", "--", FERMATA, "put", "a", "2"]);
    assert_eq!(status(&write), 65, "{}", text(&write.stderr));
    assert_eq!(
        status(&dev.run(&["lock", "a", "--wait", "300ms", "--", "true"])),
        73
    );
    assert!(reader.wait_with_output().expect("it ends").status.success());
}

#[test]
fn the_wait_ends_and_the_queue_is_shown() {
    let dev = Dev::start(&["--sites", "1"]);
    let holder = holding(&dev, "a", &[]);
    let late = dev.run(&["lock", "a", "--wait", "300ms", "--", "echo", "never"]);
    assert_eq!((status(&late), late.stdout.len()), (73, 0));
    let queue = dev.json(&["locks", "a"]);
    assert_eq!(queue["entries"][0]["holds"], true);
    let label = queue["entries"][0]["label"].as_str().expect("a label");
    let who = format!(":{}", holder.id());
    assert!(label.contains('@') && label.ends_with(&who), "{label}");
    for how in [&[][..], &["--eventual"]] {
        let put = dev.run(&[&["put", "a", "1"], how].concat());
        assert_eq!(status(&put), 65, "a put on a locked key is refused");
    }
    assert!(holder.wait_with_output().expect("it ends").status.success());
    eventually("the one that gave up has left", || {
        text(&dev.run(&["locks", "a"]).stdout).contains("nobody")
    });
}

#[test]
fn signals_are_passed_on() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut child = holding(&dev, "a", &[]);
    // Kept open: its end would end the command by itself.
    let _stdin = child.stdin.take();
    kill_process(pid(&child), Signal::TERM).expect("it runs");
    let ended = child.wait_with_output().expect("it ends").status;
    assert_eq!(ended.code(), Some(128 + 15));
    assert_eq!(ended.signal(), None);
    assert!(text(&dev.run(&["locks", "a"]).stdout).contains("nobody"));
}

#[test]
fn an_interrupted_wait_gives_its_place_up() {
    let dev = Dev::start(&["--sites", "1"]);
    let holder = holding(&dev, "a", &[]);
    let waiter = dev
        .client()
        .args(["lock", "a", "--", "true"])
        .spawn()
        .expect("it starts");
    let waits = || text(&dev.run(&["locks", "a"]).stdout).contains("waits");
    eventually("it waits", waits);
    kill_process(pid(&waiter), Signal::INT).expect("it runs");
    let ended = waiter.wait_with_output().expect("it ends").status;
    assert_eq!(ended.code(), Some(128 + 2));
    eventually("its place is given up", || !waits());
    assert!(holder.wait_with_output().expect("it ends").status.success());
}

#[test]
fn a_lost_section_ends_its_command() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut holder = holding(&dev, "a", &["--ttl", "2s"]);
    // Kept open: its end would end the command by itself.
    let _stdin = holder.stdin.take();
    // Paused, it cannot renew its lease, and the next one is let in.
    kill_process(pid(&holder), Signal::STOP).expect("it runs");
    let next = dev.run(&["lock", "a", "--", FERMATA, "put", "a", "next"]);
    assert_eq!(status(&next), 0, "{}", text(&next.stderr));
    kill_process(pid(&holder), Signal::CONT).expect("it runs");
    let ended = holder.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
    assert!(
        text(&ended.stderr).contains("lost"),
        "{}",
        text(&ended.stderr)
    );
    assert_eq!(text(&dev.run(&["get", "a"]).stdout), "next");
}

#[test]
fn a_get_beside_a_holder_shows_what_is_acknowledged_and_waits_only_where_it_is_told_to() {
    let dev = Dev::start(&[]);
    assert_eq!(status(&dev.run(&["put", "a", "old"])), 0);
    let script = format!("echo in; read go; {FERMATA} put a new; echo in; exec cat");
    let mut holder = running(&dev, "a", &[], &script);
    let get = |how: &[&str]| {
        let output = dev.run(&[&["get", "a"], how].concat());
        (status(&output), text(&output.stdout))
    };
    assert_eq!(get(&[]), (0, "old".to_owned()));
    let mut stdin = holder.stdin.take().expect("stdin is piped");
    std::io::Write::write_all(&mut stdin, b"go\n").expect("it reads");
    let mut said = [0; 3];
    let out = holder.stdout.as_mut().expect("stdout is piped");
    std::io::Read::read_exact(out, &mut said).expect("it has put");
    for site in ["site1", "site2", "site3"] {
        assert_eq!(get(&["--site", site]), (0, "new".to_owned()), "{site}");
    }
    assert_eq!(get(&["--wait", "--timeout", "2s"]).0, 69);
    let late = dev.run(&["put", "a", "late", "--wait", "--timeout", "2s"]);
    let said = text(&late.stderr);
    assert_eq!(status(&late), 76, "{said}");
    assert!(
        said.contains("may have taken effect") && !said.contains("ry again"),
        "{said}"
    );
    let holds = dev.lock_refs("a")[0];
    let put = dev.run(&["put", "a", "mine"]);
    let said = text(&put.stderr);
    assert_eq!(status(&put), 65, "{said}");
    assert!(said.contains(&format!("lock ref {holds} ")), "{said}");
    drop(stdin);
    assert!(holder.wait_with_output().expect("it ends").status.success());
    assert_eq!(get(&["--wait"]), (0, "new".to_owned()));
    assert_eq!(status(&dev.run(&["put", "a", "mine"])), 0);
    assert_eq!(get(&[]), (0, "mine".to_owned()));
}

#[test]
fn a_get_shows_no_put_that_has_not_reached_a_majority() {
    let dev = Dev::start(&[]);
    assert_eq!(status(&dev.run(&["put", "a", "old"])), 0);
    let script = format!("echo in; read go; {FERMATA} put a lost");
    let options = ["--site", "site1", "--ttl", "10m"];
    let mut holder = running(&dev, "a", &options, &script);
    for node in 1..3 {
        dev.signal(node, Signal::KILL);
    }
    let mut stdin = holder.stdin.take().expect("stdin is piped");
    std::io::Write::write_all(&mut stdin, b"go\n").expect("it reads");
    let bytes = || {
        let told = dev.run(&["locks", "a", "--replicas", "--timeout", "1s", "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
        [0, 1, 2].map(|at| told["replicas"][at]["value_bytes"].as_u64())
    };
    eventually("one member has it", || bytes()[0] == Some(4));
    // Nobody tells the others any more.
    dev.signal(0, Signal::KILL);
    kill_process(pid(&holder), Signal::KILL).expect("it runs");
    holder.wait().expect("it ends");
    let again = |node| {
        let mut server = fermata();
        server.arg("server").arg("--config").arg(dev.config(node));
        server.stdout(Stdio::null()).stderr(Stdio::null());
        ByHand(server.spawn().expect("it starts"))
    };
    let _nodes = [again(0), again(1), again(2)];
    eventually("all are back", || bytes() == [Some(4), Some(3), Some(3)]);
    // Held, and settled by nobody: of two members that answer first one may have it.
    let mut old = 0;
    eventually("what was acknowledged is shown", || {
        let said = text(&dev.run(&["get", "a", "--timeout", "2s"]).stdout);
        assert_ne!(said, "lost");
        old += u32::from(said == "old");
        old == 20
    });
}

/// Whether a process has ended, be it that nobody has asked for its status yet.
fn has_ended(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
    state.map_or(true, |state| {
        state
            .rsplit(')')
            .next()
            .is_some_and(|s| s.starts_with(" Z"))
    })
}

#[test]
fn a_command_ends_with_its_lease_although_its_lock_stands_still() {
    let dev = Dev::start(&["--sites", "1"]);
    let script = "trap '' TERM; echo in; echo $$; while :; do sleep 0.1; done";
    let mut holder = running(&dev, "a", &["--ttl", "3s"], script);
    let mut process = String::new();
    let mut out = BufReader::new(holder.stdout.take().expect("stdout is piped"));
    out.read_line(&mut process).expect("it says its number");
    kill_process(pid(&holder), Signal::STOP).expect("it runs");
    // Nobody is let in before the other's lease is over.
    let look = format!("cat /proc/{}/stat; echo in", process.trim());
    let next = dev.run(&["lock", "a", "--", "sh", "-c", &look]);
    assert_eq!(status(&next), 0, "{}", text(&next.stderr));
    assert!(has_ended(process.trim()), "{}", text(&next.stdout));
    let said = text(&next.stdout);
    assert!(
        said == "in\n" || said.contains(") Z"),
        "it acted beside the next: {said}"
    );
    kill_process(pid(&holder), Signal::CONT).expect("it runs");
    let ended = holder.wait_with_output().expect("it ends");
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(75), "{said}");
    assert!(said.contains("its lease ran out"), "{said}");
}

#[test]
fn a_command_ends_with_its_lease_where_no_node_can_be_reached() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut holder = holding(&dev, "a", &["--ttl", "2s", "--timeout", "1s"]);
    // Kept open: its end would end the command by itself.
    let _stdin = holder.stdin.take();
    dev.signal(0, Signal::STOP);
    let ended = holder.wait_with_output().expect("it ends");
    dev.signal(0, Signal::CONT);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(75), "{said}");
    assert!(said.contains("its lease ran out"), "{said}");
}

#[test]
fn nothing_is_left_of_a_lock_that_is_killed() {
    let dev = Dev::start(&["--sites", "1"]);
    let folder = tempfile::tempdir().expect("a directory");
    let mut command = dev.client();
    command
        .env("TMPDIR", folder.path())
        .args(["lock", "a", "--"]);
    command.args(["sh", "-c", "echo in; exec sleep 600"]);
    let mut lock = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = [0; 3];
    let out = lock.stdout.as_mut().expect("stdout is piped");
    std::io::Read::read_exact(out, &mut said).expect("it is in");
    let files = || {
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count()
    };
    assert_eq!(files(), 1);
    lock.kill().expect("it runs");
    lock.wait().expect("it ends");
    eventually("its folder is removed", || files() == 0);
}

#[test]
fn a_loss_says_why_and_quiet_says_nothing_of_a_wait() {
    let dev = Dev::start(&["--sites", "1"]);
    let create = [
        "keyspace",
        "create",
        "brief",
        "--lease",
        "3s",
        "--section-max",
        "4s",
    ];
    assert_eq!(status(&dev.run(&create)), 0);
    let lock = ["lock", "--keyspace", "brief", "k", "--", "sleep", "600"];
    let longest = dev.run(&lock);
    let said = text(&longest.stderr);
    assert_eq!(status(&longest), 75, "{said}");
    assert!(said.contains("warning: the section ends in"), "{said}");
    assert!(
        said.contains("the longest that its keyspace allows"),
        "{said}"
    );
    let mut holder = holding(&dev, "a", &["--ttl", "6s"]);
    let stdin = holder.stdin.take();
    for (quiet, silent) in [(&["--quiet"][..], true), (&[], false)] {
        let args = [&["lock", "a", "--wait", "0s"], quiet, &["--", "true"]].concat();
        let waited = dev.run(&args);
        assert_eq!(status(&waited), 73);
        assert_eq!(waited.stderr.is_empty(), silent, "{}", text(&waited.stderr));
    }
    let held = dev.lock_refs("a")[0].to_string();
    assert_eq!(status(&dev.run(&["release", "a", &held])), 0);
    let ended = holder.wait_with_output().expect("it ends");
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(75), "{said}");
    assert!(said.contains("released by force"), "{said}");
    drop(stdin);
}

#[test]
fn a_released_holder_is_out_after_its_lease_and_a_waiter_at_once() {
    let dev = Dev::start(&["--sites", "1"]);
    let release = |lock_ref: u64| {
        let output = dev.run(&["release", "a", &lock_ref.to_string(), "--json"]);
        let told = [output.stdout.as_slice(), &output.stderr].concat();
        (status(&output), json(&told))
    };
    let mut holder = holding(&dev, "a", &["--ttl", "8s"]);
    // Kept open: its end would end the command by itself.
    let _stdin = holder.stdin.take();
    let waiter = dev.client().args(["lock", "a", "--", "true"]).spawn();
    let waiter = waiter.expect("it starts");
    eventually("it waits", || dev.lock_refs("a").len() == 2);
    let refs = dev.lock_refs("a");
    let (code, told) = release(refs[1]);
    assert_eq!((code, &told["released"]), (0, &true.into()), "{told}");
    let ended = waiter.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(75));
    // One call takes as long as --timeout at most, less than the lease.
    let output = dev.run(&["release", "a", &refs[0].to_string(), "--timeout", "4s"]);
    let said = text(&output.stdout);
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    assert!(said.starts_with("released: lock ref"), "{said}");
    assert_eq!(dev.lock_refs("a"), [0; 0]);
    let ended = holder.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
    for past in refs {
        let (code, told) = release(past);
        assert_eq!((code, &told["released"]), (0, &false.into()), "{told}");
        assert_eq!((&told["done"], &told["key"]), (&true.into(), &"a".into()));
    }
    let (code, told) = release(1 << 40);
    assert_eq!(code, 65, "{told}");
    assert_eq!(told["error"]["code"], "not_holder");
}

#[test]
fn a_release_that_is_not_waited_for_may_still_come() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut holder = holding(&dev, "a", &["--ttl", "30s"]);
    let lock_ref = dev.lock_refs("a")[0].to_string();
    let brief = ["--timeout", "4s", "--wait", "0s"];
    let output = dev.run(&[&["release", "a", &lock_ref][..], &brief].concat());
    let said = text(&output.stderr);
    assert_eq!(status(&output), 76, "{said}");
    assert!(said.contains("lease"), "{said}");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("it ends").success());
}

#[test]
fn no_command_outlives_a_lock_that_is_killed() {
    let dev = Dev::start(&["--sites", "1"]);
    let polite = "trap 'echo asked; exit' TERM; echo in; sleep 60 & wait; echo late";
    // What ignores SIGTERM passes that on to its children.
    let deaf = "trap '' TERM; echo in; sleep 60; echo late";
    for (script, said) in [(polite, "asked\n"), (deaf, "")] {
        let lock = running(&dev, "a", &["--ttl", "2s"], script);
        kill_process(pid(&lock), Signal::KILL).expect("it runs");
        // To the end of what they print: until the last of the command's group has ended.
        let output = lock.wait_with_output().expect("it ends");
        assert_eq!(output.status.signal(), Some(9));
        assert_eq!(text(&output.stdout), said, "{script}");
    }
    assert_eq!(locked(&dev, &["a"], "exit 0").0, 0);
}

#[test]
fn what_a_command_leaves_behind_lives_on_when_it_ends_by_itself() {
    let dev = Dev::start(&["--sites", "1"]);
    let script = "sleep 600 >/dev/null 2>&1 & echo $!";
    let (code, out, err) = locked(&dev, &["a"], script);
    assert_eq!(code, 0, "{err}");
    let left = out.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(left.expect("a process id"), Signal::KILL).expect("it lives");
}

#[test]
fn sections_nest_over_different_keys() {
    let dev = Dev::start(&["--sites", "1"]);
    let inner = format!(
        "{FERMATA} put a outer; {FERMATA} put b inner; {FERMATA} get a; {FERMATA} get b; \
         {FERMATA} lock a -- true"
    );
    let (code, out, err) = locked(
        &dev,
        &["a"],
        &format!("{FERMATA} lock b -- sh -c '{inner}'"),
    );
    assert_eq!((code, out.as_str()), (65, "outerinner"), "{err}");
    assert!(err.contains("`a`") && err.contains("for ever"), "{err}");
    assert_eq!(text(&dev.run(&["get", "a"]).stdout), "outer");
    assert_eq!(text(&dev.run(&["get", "b"]).stdout), "inner");
}

#[test]
fn bounds_are_told_and_nothing_is_clamped() {
    let dev = Dev::start(&["--sites", "1"]);
    for (option, value, code, bound) in [
        ("--ttl", "99ms", 65, "at least 100 ms"),
        ("--ttl", "25h", 65, "at most 86400000 ms"),
        ("--wait", "25h", 2, "at most 24h"),
        ("--timeout", "2h", 2, "at most 1h"),
    ] {
        let output = dev.run(&["lock", "a", option, value, "--", "echo", "in"]);
        let said = text(&output.stderr);
        assert_eq!((status(&output), output.stdout.len()), (code, 0), "{said}");
        assert!(said.contains(bound), "{option} {value}: {said}");
    }
}

#[test]
fn no_wait_enters_what_is_free_and_leaves_no_trace_elsewhere() {
    let dev = Dev::start(&["--sites", "1"]);
    let no_wait = || status(&dev.run(&["lock", "a", "--wait", "0s", "--", "true"]));
    assert_eq!(no_wait(), 0);
    let holder = holding(&dev, "a", &[]);
    assert_eq!(no_wait(), 73);
    let queue = text(&dev.run(&["locks", "a"]).stdout);
    assert!(!queue.contains("waits"), "{queue}");
    assert!(holder.wait_with_output().expect("it ends").status.success());
}

#[test]
fn a_leave_without_a_quorum_is_a_warning_or_a_status_of_its_own() {
    let dev = Dev::start(&[]);
    let pids: Vec<String> = (1..3)
        .map(|n| dev.pid(n).as_raw_nonzero().to_string())
        .collect();
    // On a busy machine threads run on for a while after the signal.
    let stopped = format!(
        "kill -STOP {0}; for p in {0}; do while grep -qv ') T ' /proc/$p/task/*/stat; \
         do sleep 0.01; done; done",
        pids.join(" ")
    );
    let paused = |options: &[&str], then: &str| {
        let script = format!("{stopped}; {then}");
        let output = dev
            .client()
            .args(["lock", "a", "--timeout", "4s"])
            .args(options)
            .args(["--", "sh", "-c", &script])
            .output()
            .expect("it runs");
        for node in 1..3 {
            dev.signal(node, Signal::CONT);
        }
        eventually("the cluster is back", || {
            status(&dev.run(&["lock", "a", "--timeout", "2s", "--", "true"])) == 0
        });
        (status(&output), text(&output.stderr))
    };
    let (code, said) = paused(&[], "exit 7");
    assert_eq!((code, said.lines().count()), (7, 1), "{said}");
    assert!(
        said.contains("warning") && said.contains("not confirmed"),
        "{said}"
    );
    let (code, said) = paused(&["--json"], "exit 0");
    let said = json(said.as_bytes());
    assert_eq!(
        (code, said["warning"]["code"].as_str()),
        (0, Some("not_left"))
    );
    assert_eq!(paused(&["--confirm-leave"], "exit 0").0, 77);
    assert_eq!(paused(&["--confirm-leave"], "exit 7").0, 7);
}

#[test]
fn the_command_of_a_lock_works_in_the_keyspace_of_its_keys() {
    let dev = Dev::start(&[]);
    let created = dev.run(&["keyspace", "create", "jobs"]);
    assert_eq!(status(&created), 0, "{}", text(&created.stderr));
    let script = format!("{FERMATA} put a 1 && {FERMATA} get a");
    let lock = ["lock", "--keyspace", "jobs", "a", "--", "sh", "-c", &script];
    let ran = dev.run(&lock);
    assert_eq!((status(&ran), &*text(&ran.stdout)), (0, "1"));
    let read = dev.run(&["get", "--keyspace", "jobs", "a"]);
    assert_eq!(text(&read.stdout), "1");
}

#[test]
fn a_register_is_written_and_deleted() {
    let dev = Dev::start(&[]);
    let key = ["--keyspace", "registers", "k"];
    let run = |command: &str, rest: &[&str]| {
        let output = dev.run(&[&[command], &key[..], rest].concat());
        (status(&output), text(&output.stdout))
    };
    assert_eq!(run("put", &["v"]).0, 0);
    assert_eq!(run("get", &[]), (0, "v".to_owned()));
    assert_eq!(run("del", &[]).0, 0);
    assert_eq!(run("get", &[]).0, 1);
    assert_eq!(run("get", &["--eventual"]).0, 65);
}
