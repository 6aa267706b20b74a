//! As much of Cassandra's native protocol (version 4) as it takes to ask a question: start up, one
//! query at a time, rows as text.
//!
//! It is for readiness, for the command line, and for tests that look at a table. It knows no
//! pages beyond the first, no authentication, no compression, and prepares nothing.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::net;

/// What a statement may take: a schema change on a busy machine takes seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest answer read; the protocol's own bound.
const FRAME_MAX: usize = 256 << 20;

/// How long a change of the schema is waited for.
const AGREEMENT: Duration = Duration::from_secs(10);

const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const AUTHENTICATE: u8 = 0x03;
const AUTH_RESPONSE: u8 = 0x0f;
const AUTH_SUCCESS: u8 = 0x10;
const READY: u8 = 0x02;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;

/// Kinds of results.
const ROWS: i32 = 2;
const SCHEMA_CHANGE: i32 = 5;

/// How many replicas a statement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// One replica.
    One = 1,
    /// A majority of all replicas.
    Quorum = 4,
    /// Every replica.
    All = 5,
    /// A majority of those in the coordinator's data centre.
    LocalQuorum = 6,
    /// A majority of all, by Paxos: reads what a light-weight transaction has decided.
    Serial = 8,
}

/// A connection to one node.
#[derive(Debug)]
pub struct Cql {
    stream: TcpStream,
}

/// The type of a column: its number in the protocol, and the types that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// As in the protocol's section 4.2.5.2.
    pub id: u16,
    /// Of a list, a set, a map, a tuple: what is in it.
    pub of: Vec<Kind>,
}

/// What a statement returned; without columns where it returns nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Names and types.
    pub columns: Vec<(String, Kind)>,
    /// Values as they were sent, none for null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl Cql {
    /// Connects to a node, on its port for clients.
    ///
    /// # Errors
    ///
    /// Whatever the connection meets, and `PermissionDenied` where the node wants another password
    /// than that which every new cluster has.
    pub fn connect(address: SocketAddr) -> io::Result<Cql> {
        let stream = net::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut cql = Cql { stream };
        let mut body = Vec::new();
        body.extend(1_u16.to_be_bytes());
        put_string(&mut body, "CQL_VERSION");
        put_string(&mut body, "3.0.0");
        match cql.ask(STARTUP, &body)? {
            (READY, _) => Ok(cql),
            (AUTHENTICATE, _) => cql.log_in(address),
            (opcode, _) => {
                let error = format!("{address} wants more than a greeting (opcode {opcode})");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
            }
        }
    }

    /// Names the role that every new cluster has.
    fn log_in(mut self, address: SocketAddr) -> io::Result<Cql> {
        let role = b"\0cassandra\0cassandra";
        let mut body = Vec::new();
        body.extend((role.len() as u32).to_be_bytes());
        body.extend(role);
        match self.ask(AUTH_RESPONSE, &body)? {
            (AUTH_SUCCESS, _) => Ok(self),
            _ => {
                let error = format!("{address} wants another password than a new cluster's");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
            }
        }
    }

    /// Runs one statement; after a change of the schema, waits for up to ten seconds until the
    /// nodes agree on it.
    ///
    /// # Errors
    ///
    /// What the node said, with its code. As with any client, a write that ends in an error of the
    /// connection or of time may have taken effect.
    pub fn query(&mut self, statement: &str, consistency: Consistency) -> io::Result<Rows> {
        let mut body = Vec::new();
        let length = i32::try_from(statement.len()).map_err(io::Error::other)?;
        body.extend(length.to_be_bytes());
        body.extend(statement.as_bytes());
        body.extend((consistency as u16).to_be_bytes());
        body.push(0); // No values, no page.
        let (opcode, body) = self.ask(QUERY, &body)?;
        if opcode != RESULT {
            return Err(strange(&format!("opcode {opcode} for a query")));
        }
        let mut body = Bytes(&body);
        match body.int()? {
            ROWS => body.rows(),
            SCHEMA_CHANGE => {
                // As drivers do: a node that has not heard of a table yet refuses what is in it.
                // One that is down is never heard to agree.
                let start = Instant::now();
                while !self.agreed()? && start.elapsed() < AGREEMENT {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(Rows::default())
            }
            _ => Ok(Rows::default()),
        }
    }

    /// Whether all nodes have the same schema, as far as this one knows.
    pub(crate) fn agreed(&mut self) -> io::Result<bool> {
        let version = |table| format!("SELECT schema_version FROM system.{table}");
        let mine = self.query(&version("local"), Consistency::One)?;
        let others = self.query(&version("peers_v2"), Consistency::One)?;
        Ok(others.rows.iter().all(|row| Some(row) == mine.rows.first()))
    }

    /// Sends one frame and reads one: its opcode and body, or the error that it is.
    fn ask(&mut self, opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
        let mut frame = vec![4, 0, 0, 0, opcode];
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        frame.extend(length.to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)?;
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [version, flags, _, _, opcode, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if version != 0x84 || length > FRAME_MAX {
            return Err(strange("a frame of another protocol"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let mut rest = Bytes(&body);
        if flags & 0x02 != 0 {
            rest.take(16)?; // The number of a trace.
        }
        if flags & 0x08 != 0 {
            for _ in 0..rest.short()? {
                rest.string()?; // A warning.
            }
        }
        if opcode == ERROR {
            let code = rest.int()?;
            let error = format!("{} (code {code:#06x})", rest.string()?);
            return Err(io::Error::other(error));
        }
        Ok((opcode, rest.0.to_vec()))
    }
}

impl Rows {
    /// One value as text; `null` if there is none, or no such place.
    pub fn text(&self, row: usize, column: usize) -> String {
        let value = self.rows.get(row).and_then(|row| row.get(column)?.as_ref());
        match (self.columns.get(column), value) {
            (Some((_, kind)), Some(bytes)) => text(kind, bytes),
            _ => "null".to_owned(),
        }
    }
}

/// A table: names, and a line for each row.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.columns.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(f, "{}", names.join(" | "))?;
        for row in 0..self.rows.len() {
            let values = (0..self.columns.len()).map(|column| self.text(row, column));
            writeln!(f, "{}", values.collect::<Vec<_>>().join(" | "))?;
        }
        Ok(())
    }
}

/// A value as text; in hexadecimal where its type has none, or it is not of its type.
fn text(kind: &Kind, bytes: &[u8]) -> String {
    scalar(kind.id, bytes)
        .or_else(|| collection(kind, bytes).ok())
        .unwrap_or_else(|| {
            bytes
                .iter()
                .fold("0x".to_owned(), |hex, b| format!("{hex}{b:02x}"))
        })
}

fn scalar(id: u16, bytes: &[u8]) -> Option<String> {
    Some(match id {
        0x01 | 0x0a | 0x0d => std::str::from_utf8(bytes).ok()?.to_owned(),
        // Bigint, counter, timestamp, time.
        0x02 | 0x05 | 0x0b | 0x12 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x04 => (*bytes.first()? != 0).to_string(),
        0x07 => f64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x08 => f32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x09 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x13 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x14 => i8::from_be_bytes(bytes.try_into().ok()?).to_string(),
        0x0c | 0x0f => {
            let number = u128::from_be_bytes(bytes.try_into().ok()?);
            let hex = format!("{number:032x}");
            [
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            ]
            .join("-")
        }
        0x10 if bytes.len() == 4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
        0x10 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
        _ => return None,
    })
}

fn collection(kind: &Kind, bytes: &[u8]) -> io::Result<String> {
    let mut bytes = Bytes(bytes);
    let one = |bytes: &mut Bytes<'_>, kind: &Kind| -> io::Result<String> {
        Ok(bytes
            .value()?
            .map_or("null".to_owned(), |value| text(kind, value)))
    };
    let mut parts = Vec::new();
    match (kind.id, &kind.of[..]) {
        (0x20 | 0x22, [of]) => {
            for _ in 0..bytes.int()? {
                parts.push(one(&mut bytes, of)?);
            }
        }
        (0x21, [key, value]) => {
            for _ in 0..bytes.int()? {
                let key = one(&mut bytes, key)?;
                parts.push(format!("{key}: {}", one(&mut bytes, value)?));
            }
        }
        _ => return Err(strange("no collection")),
    }
    let parts = parts.join(", ");
    Ok(if kind.id == 0x20 {
        format!("[{parts}]")
    } else {
        format!("{{{parts}}}")
    })
}

/// What is still to be read of a frame.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| strange("a short frame"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> io::Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn int(&mut self) -> io::Result<i32> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn string(&mut self) -> io::Result<String> {
        let length = self.short()?;
        let bytes = self.take(length.into())?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A value with its length; none where that is negative.
    fn value(&mut self) -> io::Result<Option<&'a [u8]>> {
        match usize::try_from(self.int()?) {
            Ok(length) => self.take(length).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn kind(&mut self) -> io::Result<Kind> {
        let id = self.short()?;
        let mut of = Vec::new();
        match id {
            0x00 => drop(self.string()?), // A class of Java.
            0x20 | 0x22 => of.push(self.kind()?),
            0x21 => of.extend([self.kind()?, self.kind()?]),
            0x30 => {
                self.string()?;
                self.string()?;
                for _ in 0..self.short()? {
                    self.string()?;
                    of.push(self.kind()?);
                }
            }
            0x31 => {
                for _ in 0..self.short()? {
                    of.push(self.kind()?);
                }
            }
            _ => {}
        }
        Ok(Kind { id, of })
    }

    fn rows(&mut self) -> io::Result<Rows> {
        let flags = self.int()?;
        let count = self.int()?;
        if flags & 0x02 != 0 {
            self.value()?; // Where the next page begins.
        }
        let global = flags & 0x01 != 0;
        if global {
            self.string()?;
            self.string()?;
        }
        let mut rows = Rows::default();
        for _ in 0..count {
            if !global {
                self.string()?;
                self.string()?;
            }
            rows.columns.push((self.string()?, self.kind()?));
        }
        for _ in 0..self.int()? {
            let mut row = Vec::new();
            for _ in 0..count {
                row.push(self.value()?.map(<[u8]>::to_vec));
            }
            rows.rows.push(row);
        }
        Ok(rows)
    }
}

fn put_string(body: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("our own words are short");
    body.extend(length.to_be_bytes());
    body.extend(text.as_bytes());
}

fn strange(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the node answered with {what}"),
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TEXT: u16 = 0x0d;

    fn plain(id: u16) -> Kind {
        Kind { id, of: Vec::new() }
    }

    /// A node that reads as many frames as there are answers, and gives these.
    fn node(answers: Vec<(u8, u8, Vec<u8>)>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for (flags, opcode, body) in answers {
                let mut header = [0; 9];
                stream.read_exact(&mut header).expect("a frame");
                let [.., a, b, c, d] = header;
                let mut asked = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
                stream.read_exact(&mut asked).expect("a body");
                let mut frame = vec![0x84, flags, 0, 0, opcode];
                frame.extend(u32::try_from(body.len()).expect("short").to_be_bytes());
                frame.extend(body);
                stream.write_all(&frame).expect("open");
            }
        });
        address
    }

    /// One row: k int = 7, m map<text, bigint> = {a: 1}, n text = null.
    fn a_row() -> Vec<u8> {
        let mut body = Vec::new();
        body.extend([2_i32, 1, 3].map(i32::to_be_bytes).concat());
        for word in ["ks", "t", "k"] {
            put_string(&mut body, word);
        }
        body.extend([0, 0x09]);
        put_string(&mut body, "m");
        body.extend([0, 0x21, 0, 0x0d, 0, 0x02]);
        put_string(&mut body, "n");
        body.extend([0, 0x0d]);
        body.extend([1_i32, 4, 7].map(i32::to_be_bytes).concat());
        let mut map = [1_i32, 1].map(i32::to_be_bytes).concat();
        map.push(b'a');
        map.extend(8_i32.to_be_bytes());
        map.extend(1_i64.to_be_bytes());
        body.extend(i32::try_from(map.len()).expect("short").to_be_bytes());
        body.extend(map);
        body.extend((-1_i32).to_be_bytes());
        body
    }

    #[test]
    fn rows_are_read_behind_a_warning() {
        let mut warned = Vec::new();
        warned.extend(1_u16.to_be_bytes());
        put_string(&mut warned, "slow");
        warned.extend(a_row());
        let address = node(vec![(0, READY, Vec::new()), (0x08, RESULT, warned)]);
        let mut cql = Cql::connect(address).expect("ready");
        let rows = cql.query("SELECT", Consistency::One).expect("rows");
        assert_eq!(rows.to_string(), "k | m | n\n7 | {a: 1} | null\n");
        assert_eq!(rows.text(0, 0), "7");
        assert_eq!(rows.text(3, 0), "null");
    }

    #[test]
    fn an_error_is_what_the_node_said() {
        let mut error = Vec::new();
        error.extend(0x1000_i32.to_be_bytes());
        put_string(&mut error, "Cannot achieve consistency level ALL");
        let address = node(vec![(0, READY, Vec::new()), (0, ERROR, error)]);
        let mut cql = Cql::connect(address).expect("ready");
        let error = cql
            .query("SELECT", Consistency::All)
            .expect_err("unavailable");
        assert_eq!(
            error.to_string(),
            "Cannot achieve consistency level ALL (code 0x1000)"
        );
    }

    #[test]
    fn a_short_frame_is_refused_wherever_it_ends() {
        let whole = a_row();
        for end in 4..whole.len() {
            assert!(Bytes(&whole[4..end]).rows().is_err(), "{end}");
        }
        assert!(Bytes(&whole[4..]).rows().is_ok());
    }

    #[test]
    fn values_have_their_texts() {
        let list = Kind {
            id: 0x20,
            of: vec![plain(TEXT)],
        };
        assert_eq!(text(&list, &[0, 0, 0, 1, 0, 0, 0, 2, b'o', b'k']), "[ok]");
        assert_eq!(text(&plain(0x03), &[0xca, 0xfe]), "0xcafe");
        assert_eq!(text(&plain(0x04), &[1]), "true");
        assert_eq!(text(&plain(0x10), &[127, 0, 0, 2]), "127.0.0.2");
        let uuid = text(&plain(0x0c), &[0x11; 16]);
        assert_eq!(uuid, "11111111-1111-1111-1111-111111111111");
        // Not of its type.
        assert_eq!(text(&plain(0x09), &[1, 2]), "0x0102");
    }
}
