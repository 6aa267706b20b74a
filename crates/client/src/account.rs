//! What each node said last: the part of an error that tells where to look.
//!
//! "Unavailable" alone helps nobody at three in the morning. Its reader wants to know which nodes
//! were asked, and whether they refused the connection, said nothing, or had no quorum themselves.
//! The account keeps one line per node, the latest; lines older than the operation's time say
//! nothing about it and are left out.

use crate::discovery::Node;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The latest word of each node, in the order of the client's nodes.
#[derive(Debug)]
pub(crate) struct Account {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    who: String,
    said: Option<(Instant, String)>,
}

/// The account, shared between the background task and the client's handles.
pub(crate) type SharedAccount = Arc<Mutex<Account>>;

/// The account itself. A thread that panicked with it in hand leaves it whole.
pub(crate) fn locked(shared: &SharedAccount) -> MutexGuard<'_, Account> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    /// Nothing was said yet.
    pub(crate) fn new(who: impl IntoIterator<Item = String>) -> Account {
        let line = |who| Line { who, said: None };
        Account {
            lines: who.into_iter().map(line).collect(),
        }
    }

    /// Another node is known.
    pub(crate) fn add(&mut self, who: String) {
        self.lines.push(Line { who, said: None });
    }

    /// A node said this, or this can be said of it.
    pub(crate) fn note(&mut self, node: usize, said: impl Into<String>) {
        if let Some(line) = self.lines.get_mut(node) {
            line.said = Some((Instant::now(), said.into()));
        }
    }

    /// A sentence with the last answer of each node that answered within this time; empty if none
    /// did. Equal answers are told once, and `told`, which the reader has already seen, not again.
    pub(crate) fn sentence(&self, within: Duration, told: &str) -> String {
        let now = Instant::now();
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in &self.lines {
            let Some((at, said)) = &line.said else {
                continue;
            };
            if now.duration_since(*at) > within {
                continue;
            }
            let said = if said == told { "the same" } else { said };
            match groups.iter_mut().find(|(known, _)| *known == said) {
                Some((_, who)) => who.push(&line.who),
                None => groups.push((said, vec![&line.who])),
            }
        }
        let group = |(said, who): &(&str, Vec<&str>)| format!("{}: {said}", who.join(", "));
        let groups: Vec<String> = groups.iter().map(group).collect();
        groups.join("; ")
    }
}

/// A node as the account names it.
pub(crate) fn who(node: &Node) -> String {
    let address = node.address();
    match node.name {
        Some(_) => format!("{} at {address}", node.label),
        None => address.to_owned(),
    }
}

/// That nothing was said for so long, in a unit that shows it.
pub(crate) fn no_answer(waited: Duration) -> String {
    if waited < Duration::from_millis(100) {
        return format!("no answer within {} ms", waited.as_millis());
    }
    format!("no answer within {:.1} s", waited.as_secs_f64())
}

/// Why a connection failed, in a few words: the innermost cause, since the outer ones only say that
/// it did.
pub(crate) fn why(error: &(dyn Error + 'static)) -> String {
    if let Some(said) = fermata_tls::why(error) {
        return said;
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = String::from("no connection");
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && let Some(known) = known(io.kind())
        {
            return known.to_owned();
        }
        last = error.to_string();
        cause = error.source();
    }
    last
}

fn known(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::ConnectionRefused => Some("connection refused"),
        io::ErrorKind::ConnectionReset => Some("connection reset"),
        io::ErrorKind::TimedOut => Some("no connection in time"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some("unreachable"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_of_each_node_is_told_and_old_ones_are_not() {
        let mut account = Account::new(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert_eq!(account.sentence(Duration::MAX, ""), "");
        account.note(0, "no answer");
        account.note(0, "connection refused");
        account.note(2, "no quorum");
        account.note(9, "nobody");
        let all = account.sentence(Duration::from_secs(3_600), "");
        assert_eq!(all, "a: connection refused; c: no quorum");
        account.lines[0].said = Some((Instant::now() - Duration::from_secs(2), "old".into()));
        let lately = Duration::from_secs(1);
        assert_eq!(account.sentence(lately, ""), "c: no quorum");
        account.note(1, "no quorum");
        assert_eq!(account.sentence(lately, ""), "b, c: no quorum");
        assert_eq!(account.sentence(lately, "no quorum"), "b, c: the same");
    }

    #[test]
    fn no_time_is_told_as_none() {
        assert_eq!(no_answer(Duration::from_millis(1)), "no answer within 1 ms");
        assert_eq!(no_answer(Duration::from_secs(2)), "no answer within 2.0 s");
    }

    #[test]
    fn the_innermost_cause_is_told() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(why(&io::Error::other(refused)), "connection refused");
        assert_eq!(why(&io::Error::other("odd")), "odd");
    }
}
