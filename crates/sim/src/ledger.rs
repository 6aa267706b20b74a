//! What clients do with a ledger: lists that are appended to, registers, a bank, ranges, snapshots
//! of the present and of the past.
//!
//! Keys lie in a few tags, hence in as many segments at most. Lists and registers get numbers that
//! are written once in a history, so that a read names the write that it saw, and the order of a
//! list's versions shows by itself. The accounts of a tag have a sum that never changes.

use crate::dice::Dice;
use crate::history::{Heard, OpId};
use crate::network::ClientId;
use crate::world::World;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId, Timestamp};
use fermata_protocol::client::Call;
use fermata_protocol::ledger::{
    Act, Compare, Condition, Done, Found, Part, Relation, Span, Transaction, Verdict, Versioned,
    When,
};
use std::collections::BTreeMap;

/// What is in an account at first.
pub const FUNDS: i64 = 100;
/// Accounts of a tag.
pub const ACCOUNTS: usize = 3;

/// The keys of a ledger that clients use.
#[derive(Clone, Debug)]
pub struct Books {
    /// Their keyspace.
    pub keyspace: KeyspaceId,
    /// Tags, with their marks.
    pub tags: Vec<String>,
    /// Bytes of the names of keys, at least.
    names: usize,
}

impl Books {
    /// So many tags.
    pub fn new(keyspace: KeyspaceId, tags: u64, names: usize) -> Books {
        Books {
            keyspace,
            tags: (0..tags).map(|n| format!("t{n}/")).collect(),
            names,
        }
    }

    fn key(&self, name: String) -> KeyId {
        let width = self.names;
        KeyId {
            keyspace: self.keyspace,
            key: Bytes::from(format!("{name:~<width$}")),
        }
    }

    /// A list of a tag.
    pub fn list(&self, tag: &str, n: u64) -> KeyId {
        self.key(format!("{tag}l{n}"))
    }

    /// A register of a tag.
    pub fn register(&self, tag: &str, n: u64) -> KeyId {
        self.key(format!("{tag}r{n}"))
    }

    /// An account of a tag.
    pub fn account(&self, tag: &str, n: usize) -> KeyId {
        self.key(format!("{tag}a{n}"))
    }

    /// All lists, or all registers, or all accounts, of a tag.
    pub fn range(&self, tag: &str, letter: char) -> Span {
        Span::prefix(self.keyspace, &Bytes::from(format!("{tag}{letter}")))
    }
}

/// Whether a key is of a list.
pub fn is_list(key: &KeyId) -> bool {
    letter(key) == Some(b'l')
}

/// Whether a key is of an account.
pub fn is_account(key: &KeyId) -> bool {
    letter(key) == Some(b'a')
}

fn letter(key: &KeyId) -> Option<u8> {
    let mark = key.key.iter().position(|byte| *byte == b'/')?;
    key.key.get(mark + 1).copied()
}

/// The numbers in a list or a register.
pub fn numbers(value: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(value);
    text.split('.').filter_map(|n| n.parse().ok()).collect()
}

/// One client's loop.
#[derive(Debug)]
pub struct Teller {
    client: ClientId,
    rounds: u64,
    written: u64,
    life: u32,
    open: Option<OpId>,
    rest_until: u64,
    dice: Dice,
    books: Books,
    /// The versions and lists that it saw last.
    seen: BTreeMap<KeyId, Versioned>,
    /// The latest time that it was told.
    token: Timestamp,
}

impl Teller {
    /// A loop for a client.
    pub fn new(client: ClientId, rounds: u64, books: Books, mut dice: Dice) -> Teller {
        Teller {
            client,
            rounds,
            written: 0,
            life: 0,
            open: None,
            rest_until: dice.between(1_500_000, 4_000_000),
            dice,
            books,
            seen: BTreeMap::new(),
            token: Timestamp::default(),
        }
    }

    /// All rounds are over.
    pub fn is_done(&self) -> bool {
        self.rounds == 0 && self.open.is_none()
    }

    /// When it wants to act although nothing ended.
    pub fn rests_until(&self) -> u64 {
        self.rest_until
    }

    /// What it waits for, for people.
    pub fn state(&self) -> String {
        format!("client {}: waits for {:?}", self.client.0, self.open)
    }

    /// Goes on as far as it can.
    pub fn act(&mut self, world: &mut World) {
        let client = &world.clients[self.client.0 as usize];
        if client.life != self.life {
            self.life = client.life;
            self.open = None;
        }
        if !client.alive {
            return;
        }
        if let Some(op) = self.open {
            if *world.outcome(op) == Heard::Open {
                return;
            }
            self.open = None;
            self.learn(world, op);
            self.rounds = self.rounds.saturating_sub(1);
            let longest = [1_000, 100_000, 1_500_000][self.dice.below(3) as usize];
            self.rest_until = world.now + 1 + self.dice.below(longest);
        }
        if self.rounds == 0 || world.now < self.rest_until {
            return;
        }
        let call = self.next();
        self.open = Some(world.call(self.client, call));
        self.act(world);
    }

    /// What it was told of keys.
    fn learn(&mut self, world: &World, op: OpId) {
        let op = &world.history.ops[op.0];
        match (&op.what, &op.outcome) {
            (crate::history::What::Transact(asked), Heard::Transacted(verdict)) => {
                let Verdict::Done { at, then, done } = verdict else {
                    return;
                };
                self.token = self.token.max(*at);
                let branch = asked.branch(*then);
                for (act, done) in branch.iter().zip(done.iter().flatten()) {
                    self.learn_act(act, done, *at);
                }
            }
            (crate::history::What::Snapshot(parts, _), Heard::Snapshot(at, found)) => {
                self.token = self.token.max(*at);
                for (part, found) in parts.iter().zip(found) {
                    self.learn_part(part, found);
                }
            }
            _ => {}
        }
    }

    fn learn_act(&mut self, act: &Act, done: &Done, at: Timestamp) {
        match (act, done) {
            (Act::Get(key), Done::Value(value)) => {
                // A put behind it in the branch is newer.
                match value {
                    Some(value) => self.seen.insert(key.clone(), value.clone()),
                    None => self.seen.remove(key),
                };
            }
            (Act::Put { key, value }, _) => {
                let (value, version) = (value.clone(), at);
                self.seen.insert(key.clone(), Versioned { value, version });
            }
            _ => {}
        }
    }

    fn learn_part(&mut self, part: &Part, found: &Found) {
        if let Part::Key(key) = part {
            match found.keys.first() {
                Some((_, value)) => self.seen.insert(key.clone(), value.clone()),
                None => self.seen.remove(key),
            };
        }
    }

    fn tag(&mut self) -> String {
        self.dice
            .pick(&self.books.tags)
            .cloned()
            .unwrap_or_default()
    }

    fn next(&mut self) -> Call {
        match self.dice.below(20) {
            0..=6 => Call::Transact(self.append()),
            7..=9 => Call::Transact(self.set()),
            10..=12 => Call::Transact(self.transfer()),
            13 => Call::Transact(self.look()),
            _ => self.snapshot(),
        }
    }

    fn number(&mut self) -> u64 {
        self.written += 1;
        u64::from(self.client.0) * 1_000_000 + u64::from(self.life) * 10_000 + self.written
    }

    /// Appends to one list, or to two at once, if nobody has since it saw them.
    fn append(&mut self) -> Transaction {
        let tag = self.tag();
        let mut transaction = Transaction::default();
        let lists = self.dice.between(1, 2);
        let first = self.dice.below(3);
        for n in 0..lists {
            let key = self.books.list(&tag, (first + n) % 3);
            let known = self.seen.get(&key).cloned();
            let version = known.as_ref().map_or(Timestamp::default(), |k| k.version);
            let mut all = known.map_or(Vec::new(), |known| numbers(&known.value));
            all.push(self.number());
            let all: Vec<String> = all.iter().map(u64::to_string).collect();
            transaction.compare.push(Compare {
                key: key.clone(),
                condition: Condition::Version(Relation::Equal, version),
            });
            transaction.then.push(Act::Get(key.clone()));
            transaction.then.push(Act::Put {
                key: key.clone(),
                value: Bytes::from(all.join(".")),
            });
            transaction.or_else.push(Act::Get(key));
        }
        transaction
    }

    /// Writes registers, whatever is there, and reads others.
    fn set(&mut self) -> Transaction {
        let tag = self.tag();
        let mut transaction = Transaction::default();
        let first = self.dice.below(3);
        for n in 0..self.dice.between(1, 2) {
            let value = Bytes::from(self.number().to_string());
            let key = self.books.register(&tag, (first + n) % 3);
            transaction.then.push(Act::Put { key, value });
        }
        let read = self.books.register(&tag, (first + 2) % 3);
        transaction.then.push(Act::Get(read));
        transaction
    }

    /// Opens the bank of a tag if it is closed, and moves money if it is open.
    fn transfer(&mut self) -> Transaction {
        let tag = self.tag();
        let mut transaction = Transaction::default();
        let first = self.books.account(&tag, 0);
        transaction.compare.push(Compare {
            key: first,
            condition: Condition::Exists(true),
        });
        let from = self.dice.below(ACCOUNTS as u64) as usize;
        let by = self.dice.between(1, 60) as i64;
        let add = |n: usize, by: i64, least: Option<i64>| Act::Add {
            key: self.books.account(&tag, n % ACCOUNTS),
            by,
            least,
            most: None,
        };
        transaction.then = vec![add(from, -by, Some(0)), add(from + 1, by, None)];
        for n in 0..ACCOUNTS {
            let key = self.books.account(&tag, n);
            let value = Bytes::from(FUNDS.to_string());
            transaction.or_else.push(Act::Put { key, value });
        }
        transaction
    }

    /// Reads ranges in a transaction.
    fn look(&mut self) -> Transaction {
        let tag = self.tag();
        let range = |letter| Act::Range {
            span: self.books.range(&tag, letter),
            limit: 10,
        };
        Transaction {
            then: vec![range('l'), range('r'), range('a')],
            ..Transaction::default()
        }
    }

    fn snapshot(&mut self) -> Call {
        let mut parts = Vec::new();
        for _ in 0..self.dice.between(1, 2) {
            let tag = self.tag();
            match self.dice.below(3) {
                0 => {
                    for n in 0..3 {
                        parts.push(Part::Key(self.books.list(&tag, n)));
                    }
                }
                1 => parts.push(Part::Range {
                    span: self.books.range(&tag, 'a'),
                    limit: 10,
                }),
                _ => {
                    let span = Span::prefix(self.books.keyspace, &Bytes::new());
                    parts.push(Part::Range { span, limit: 100 });
                }
            }
        }
        let staleness = self.dice.below(3_000_000);
        let when = match self.dice.below(10) {
            0..=4 => When::Now,
            5..=6 => When::Recent {
                staleness,
                after: Timestamp::default(),
            },
            7..=8 => When::Recent {
                staleness,
                after: self.token,
            },
            _ if self.token > Timestamp::default() => When::At(self.token),
            _ => When::Now,
        };
        Call::Snapshot { parts, when }
    }
}
