//! A section's name in paths, and the writes that the server counts for its client.
//!
//! **Problem.** A section is named by a session, keys, lock refs and generations, and acted in with
//! its session's secret; REST clients want one opaque name that works at every node. A critical put
//! needs a number that is never used for two values (MUSIC §III-B), and a clean leave needs to know
//! that the highest number was acknowledged (F5); simple clients want neither.
//!
//! **Idea.** The name encodes all of it: no node keeps anything for it. Numbers are given by the
//! client (`Fermata-Sequence`), or by the node through which the section was entered, and then by
//! this node alone: the name says so, and nodes without the counter refuse to put, so nobody writes
//! behind the counter's back. A counter is an [`Account`], as the client library's session keeps
//! one; it begins before the section's entry is asked for, once. One that is lost (restart, too
//! many sections) is never made up: the client resumes the section, which fences what was in flight
//! and begins a new generation with a counter of its own (F16).

use super::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fermata_api::{Secret, v1};
use fermata_protocol::base::{LockRef, Planted, SessionId};
use fermata_protocol::client::writes::Account;
use fermata_protocol::request::Leaving;
use fermata_protocol::wire;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sections whose writes one node counts at a time; then the one touched longest ago is forgotten.
const COUNTED_MAX: usize = 16_384;
/// A name is at most this long, in characters.
const NAME_MAX: usize = 256 << 10;

/// What a section's name encodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// The secret of its session: its owner may act in the section.
    pub(super) secret: Secret,
    /// The number of the request that entered or resumed.
    pub(super) number: u64,
    pub(super) shared: bool,
    pub(super) lease_us: Option<u64>,
    pub(super) keys: Vec<(String, Bytes)>,
    /// Lock ref and generation of each key; empty before the entry.
    pub(super) held: Vec<(u64, u32)>,
    /// Whether a node counts the writes; else the client does.
    pub(super) counted: bool,
}

impl Token {
    pub(super) fn name(&self) -> String {
        URL_SAFE_NO_PAD.encode(wire::encode(self))
    }

    pub(super) fn parse(name: &str) -> Result<Token, Problem> {
        let wrong = || Problem::bad("the section's id is not one that a Fermata node gave");
        if name.len() > NAME_MAX {
            return Err(wrong());
        }
        let bytes = URL_SAFE_NO_PAD.decode(name).map_err(|_| wrong())?;
        let token: Token = wire::decode(&bytes).map_err(|_| wrong())?;
        let fits = token.held.is_empty() || token.held.len() == token.keys.len();
        if fits && !token.keys.is_empty() {
            Ok(token)
        } else {
            Err(wrong())
        }
    }

    fn held_at(&self, at: usize) -> v1::Held {
        let (keyspace, key) = self.keys[at].clone();
        let (lock_ref, generation) = self.held[at];
        v1::Held {
            key: Some(v1::Key { keyspace, key }),
            lock_ref,
            generation,
        }
    }

    /// All keys as the holder names them.
    ///
    /// # Errors
    /// Not entered yet.
    pub(super) fn all_held(&self) -> Result<Vec<v1::Held>, Problem> {
        if self.held.is_empty() {
            return Err(Problem::bad(
                "this id is of a section that waits: use the id that its entry gave",
            ));
        }
        Ok((0..self.keys.len()).map(|at| self.held_at(at)).collect())
    }

    /// One key of the section. Without a keyspace, the key must be in one of the section's only.
    pub(super) fn find(&self, keyspace: Option<&str>, key: &[u8]) -> Result<usize, Problem> {
        let fits = |(_, k): &(usize, &(String, Bytes))| {
            k.1 == key && keyspace.is_none_or(|keyspace| keyspace == k.0)
        };
        let mut found = self.keys.iter().enumerate().filter(fits);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err(Problem::bad("the section does not hold this key")),
            (Some(_), Some(_)) => Err(Problem::bad(
                "the section holds this key in two keyspaces: say ?keyspace=",
            )),
        }
    }

    fn counter(&self) -> Counted {
        (self.secret.session(), self.number)
    }

    /// Closes the account, and says how each key is left. One that waits is not left.
    fn closing(&self, account: &mut Account<usize>) -> Vec<Leaving> {
        account.close();
        let session = self.secret.session();
        let held = self.held.iter().enumerate();
        held.map(|(at, (lock_ref, generation))| {
            let own = (LockRef(*lock_ref), *generation);
            account.leaving(&at, own, session, Planted::NONE)
        })
        .collect()
    }
}

/// Which section is counted: the session, and the number of the request that entered or resumed.
type Counted = (SessionId, u64);

/// What one node counts.
#[derive(Debug, Default)]
struct Table {
    /// Grows with each touch.
    clock: u64,
    /// With the time of the last touch.
    accounts: HashMap<Counted, (u64, Account<usize>)>,
    /// The sections by that time.
    touched: BTreeMap<u64, Counted>,
}

impl Table {
    /// The account of a section that is asked for now.
    fn touch(&mut self, counted: Counted) -> Option<&mut Account<usize>> {
        let (touched, account) = self.accounts.get_mut(&counted)?;
        self.clock += 1;
        self.touched.remove(touched);
        self.touched.insert(self.clock, counted);
        *touched = self.clock;
        Some(account)
    }

    fn forget(&mut self, counted: Counted) {
        if let Some((touched, _)) = self.accounts.remove(&counted) {
            self.touched.remove(&touched);
        }
    }
}

/// The accounts of the sections whose writes one node counts.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Table>);

impl Counters {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A section is about to be entered or resumed here by a request that is new.
    pub(super) fn begin(&self, token: &Token) {
        let (mut table, counted) = (self.table(), token.counter());
        if table.touch(counted).is_none() {
            table.accounts.insert(counted, Default::default());
            table.touch(counted);
        }
        if table.accounts.len() > COUNTED_MAX
            && let Some(oldest) = table.touched.first_key_value().map(|(_, oldest)| *oldest)
        {
            table.forget(oldest);
        }
    }

    /// The number of the next write, which is of key `at`; with `leave`, it is the last, and how
    /// each key is left comes with it (the entry of `at` means nothing). None where the account is
    /// lost or closed.
    pub(super) fn next(
        &self,
        token: &Token,
        at: usize,
        leave: bool,
    ) -> Option<(u64, Vec<Leaving>)> {
        let mut table = self.table();
        let account = table.touch(token.counter())?;
        let number = account.issue(at)?;
        let left = match leave {
            true => token.closing(account),
            false => vec![],
        };
        Some((number, left))
    }

    /// Write `number` of key `at` was acknowledged.
    pub(super) fn acknowledged(&self, token: &Token, at: usize, number: u64) {
        let mut table = self.table();
        let account = table.touch(token.counter());
        if let Some(writes) = account.and_then(|account| account.of_mut(&at)) {
            writes.acknowledge(number);
        }
    }

    /// How each key may be left; nothing is written after it.
    pub(super) fn leaving(&self, token: &Token) -> Vec<Leaving> {
        match self.table().touch(token.counter()) {
            Some(account) => token.closing(account),
            None => vec![Leaving::Dirty; token.keys.len()],
        }
    }

    /// The section was left.
    pub(super) fn end(&self, token: &Token) {
        self.table().forget(token.counter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::Tag;

    fn token() -> Token {
        Token {
            secret: Secret::new(7),
            number: 1,
            shared: false,
            lease_us: None,
            keys: vec![
                ("default".into(), "a".into()),
                ("default".into(), "b".into()),
            ],
            held: vec![(1, 0), (2, 0)],
            counted: true,
        }
    }

    #[test]
    fn a_name_is_its_section() {
        assert_eq!(Token::parse(&token().name()).unwrap(), token());
        for name in ["", "x", "!!", &"A".repeat(NAME_MAX + 1)] {
            assert!(Token::parse(name).is_err());
        }
    }

    #[test]
    fn a_key_is_left_clean_only_if_its_last_write_was_acknowledged() {
        let (counters, token) = (Counters::default(), token());
        assert_eq!(
            counters.leaving(&token),
            [Leaving::Dirty, Leaving::Dirty],
            "not counted here"
        );
        counters.begin(&token);
        assert_eq!(counters.next(&token, 0, false), Some((1, vec![])));
        assert_eq!(counters.next(&token, 0, false), Some((2, vec![])));
        counters.acknowledged(&token, 0, 1);
        let (number, left) = counters.next(&token, 1, true).unwrap();
        assert_eq!(
            (number, left[0]),
            (3, Leaving::Dirty),
            "the write acknowledged was not the last"
        );
        counters.acknowledged(&token, 0, 2);
        let second = Tag::critical(LockRef(1), 0, 2, token.secret.session());
        assert_eq!(
            counters.leaving(&token),
            [Leaving::Clean(Some(second)), Leaving::Dirty]
        );
        assert_eq!(
            counters.next(&token, 0, false),
            None,
            "nothing is written after a leave"
        );
    }

    #[test]
    fn counters_are_bounded_and_not_made_up() {
        let counters = Counters::default();
        let of = |session| Token {
            secret: Secret::new(session as u128),
            ..token()
        };
        for session in 0..=COUNTED_MAX {
            counters.begin(&of(session));
        }
        assert_eq!(counters.next(&of(0), 0, false), None);
        assert_eq!(counters.next(&of(1), 0, false), Some((1, vec![])));
    }
}
