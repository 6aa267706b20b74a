//! MUSIC's interface on real processes: a call that another node must answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::{Signal, kill_process};

use crate::support::{ByHand, Dev, eventually, fermata, json};

/// One call with these lines of headers: the answer's head and body. None if it is not answered.
pub(crate) fn call(
    address: &str,
    call: &str,
    headers: &str,
    body: &str,
) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let request = format!(
        "{call} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_ascii_lowercase(), body.to_owned()))
}

/// Sends what comes to `listener` on to `address`, and keeps the head of every request.
fn record(listener: TcpListener, address: String) -> Arc<Mutex<Vec<String>>> {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let (Ok(mut from), Ok(mut to)) = (from, TcpStream::connect(&address)) else {
                continue;
            };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && from.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
            kept.lock().expect("no panic").push(text);
            let (mut back, mut answers) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || {
                to.write_all(&head)
                    .map(|()| std::io::copy(&mut from, &mut to))
            });
        }
    });
    heads
}

#[test]
fn a_call_for_another_node_comes_there_with_its_headers_and_credentials() {
    let dev = Dev::start(&[]);
    let announced = |node: usize| {
        dev.nodes[node]["rest"]
            .as_str()
            .expect("announced")
            .to_owned()
    };
    // The second node listens elsewhere than where the others look for it, and between is a
    // recorder.
    kill_process(dev.pid(1), Signal::KILL).expect("the node runs");
    let (host, port) = announced(1)
        .rsplit_once(':')
        .map(|(h, p)| (h.to_owned(), p.to_owned()))
        .expect("an address");
    let port: u16 = port.parse().expect("a port");
    let home = format!("{host}:{}", port + 40);
    let config = dev.config(1);
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, format!("listen_rest = \"{home}\"\n{text}")).expect("it is written");
    let mut server = fermata();
    server.arg("server").arg("--config").arg(&config);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let mut listener = None;
    eventually("the killed node has let go of its port", || {
        listener = TcpListener::bind(announced(1)).ok();
        listener.is_some()
    });
    let heads = record(listener.expect("it is bound"), home.clone());
    let _node = ByHand(server.spawn().expect("it starts"));
    let at_home = |what: &str, body: &str| call(&home, what, "", body);
    eventually("the node serves", || {
        at_home("GET /healthz", "").is_some_and(|(head, _)| head.starts_with("http/1.1 200"))
    });
    let keyspace =
        r#"{"replicationInfo": {"class": "any"}, "consistencyInfo": {"type": "eventual"}}"#;
    let made = at_home("POST /MUSIC/rest/v2/keyspaces/ks", keyspace).expect("an answer");
    assert!(made.0.starts_with("http/1.1 200"), "{made:?}");
    let made = at_home("POST /MUSIC/rest/v2/locks/create/ks.t.k", "").expect("an answer");
    let id = json(made.1.as_bytes())["lock"]["lock"]
        .as_str()
        .expect("an id")
        .to_owned();
    let headers = "Authorization: Basic YTpi\r\nX-Custom: kept\r\n";
    let acquire = format!("GET /MUSIC/rest/v2/locks/acquire/{id}");
    let (head, body) = call(&announced(0), &acquire, headers, "").expect("an answer");
    assert!(head.starts_with("http/1.1 200"), "{head} {body}");
    assert!(body.contains("is the lock holder"), "{body}");
    assert_eq!(head.matches("x-latestversion: ").count(), 1, "{head}");
    let heads = heads.lock().expect("no panic");
    let sent = heads
        .iter()
        .find(|head| head.contains("/locks/acquire/"))
        .expect("it came by");
    for line in [
        "authorization: basic ytpi",
        "x-custom: kept",
        "fermata-forwarded: 1",
    ] {
        assert!(sent.contains(&format!("\r\n{line}\r\n")), "{line}: {sent}");
    }
    assert!(!sent.contains("x-hop"), "{sent}");
}
