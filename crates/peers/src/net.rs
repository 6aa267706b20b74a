//! Ports, namespaces, and the two questions that need no client: a four-letter word, and one GET.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::spec::refused;

/// What a question to a node on the same machine may take: a cold JVM on a busy machine is slow.
const LIMIT: Duration = Duration::from_secs(5);

/// What an answer may hold; a server that says more is not the one that was asked for.
const ANSWER_MAX: u64 = 1 << 20;

/// Runs `work` in a network namespace, on a thread of its own, or here if none is named.
pub(crate) fn within<T: Send>(
    namespace: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let Some(name) = namespace else {
        return Ok(work());
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(name)?;
            Ok(work())
        });
        thread
            .join()
            .expect("what is asked of a node does not panic")
    })
}

/// Moves this thread, and all that it starts from now on, into a network namespace, as the nodes
/// of a [`Spec`](crate::Spec) that names some are: for clients of theirs.
///
/// # Errors
///
/// There is no such namespace, or it may not be entered.
pub fn enter(namespace: &str) -> io::Result<()> {
    let link = File::open(format!("/var/run/netns/{namespace}")).map_err(|error| {
        refused(format!(
            "no network namespace `{namespace}` ({error}); create it first"
        ))
    })?;
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(link.as_fd(), kind).map_err(|error| {
        refused(format!(
            "namespace `{namespace}` cannot be entered: {error}; be root"
        ))
    })
}

/// An error that says which of these is in use, or not to be had at all.
pub(crate) fn free(namespace: Option<&str>, ip: Ipv4Addr, ports: &[u16]) -> io::Result<()> {
    within(namespace, || {
        for &port in ports {
            let address = SocketAddrV4::new(ip, port);
            if let Err(error) = TcpListener::bind(address) {
                return Err(not_free(address, namespace, &error));
            }
        }
        Ok(())
    })?
}

fn not_free(address: SocketAddrV4, namespace: Option<&str>, error: &io::Error) -> io::Error {
    let place = namespace.map_or(String::new(), |name| format!(" in namespace {name}"));
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "is in use by somebody else; stop that, or choose another base address".to_owned()
        }
        io::ErrorKind::AddrNotAvailable if address.ip().is_loopback() => {
            "cannot be had: the loopback is down (ip link set lo up)".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "is no address of this machine".to_owned(),
        _ => format!("cannot be listened at: {error}"),
    };
    io::Error::new(error.kind(), format!("{address}{place} {advice}"))
}

/// A connection with time limits.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends something and returns all that comes back until the other side closes.
fn ask(address: SocketAddr, question: &str) -> io::Result<String> {
    let mut stream = connect(address)?;
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Asks ZooKeeper one of its four-letter words.
pub(crate) fn four_letters(address: SocketAddr, word: &str) -> io::Result<String> {
    ask(address, word)
}

/// The body of what a server says to a GET, if it says 200.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let question = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let answer = ask(address, &question)?;
    let status = answer.lines().next().unwrap_or_default();
    match answer.split_once("\r\n\r\n") {
        Some((_, body)) if status.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("{path} says `{status}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_named() {
        let ip = Ipv4Addr::new(127, 0, 0, 1);
        let taken = TcpListener::bind(SocketAddrV4::new(ip, 0)).expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let error = free(None, ip, &[port]).expect_err("it is in use");
        let sentence = error.to_string();
        assert!(
            sentence.starts_with(&format!("127.0.0.1:{port} is in use")),
            "{sentence}"
        );
        drop(taken);
        free(None, ip, &[port]).expect("nobody listens");
        let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
        let error = free(None, elsewhere, &[port]).expect_err("a documentation address");
        assert!(error.to_string().contains("no address of this machine"));
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = within(Some("no-such-site1"), || ()).expect_err("there is none");
        assert!(
            error
                .to_string()
                .contains("no network namespace `no-such-site1`")
        );
    }

    #[test]
    fn a_body_is_read_and_a_refusal_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 503 No\r\n\r\nok"] {
                let (mut stream, _) = listener.accept().expect("asked twice");
                let mut question = [0; 512];
                let _ = stream.read(&mut question).expect("a question");
                stream.write_all(answer.as_bytes()).expect("open");
            }
        });
        assert_eq!(get(address, "/health").expect("200"), "ok");
        let error = get(address, "/health").expect_err("503");
        assert_eq!(error.to_string(), "/health says `HTTP/1.1 503 No`");
        server.join().expect("served");
    }
}
