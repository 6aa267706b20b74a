//! What a transaction does, where it is applied: a function of its timestamp and of the records
//! alone (L7).

use super::reader::Reader;
use super::versions::{self, Seen};
use super::{Act, Condition, Done, Item, RANGE_MAX, Span, Transaction, Verdict, Versioned};
use crate::base::{Bug, KeyId, Planted, Timestamp};
use crate::io::Void;
use crate::records::Change;
use crate::request::{Code, Refusal};
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;

/// What came of it, and what it changes.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) verdict: Verdict,
    pub(crate) changes: Vec<Change>,
}

/// Why nothing is done.
enum Stop {
    Void,
    Overtaken,
    Refused(Refusal),
}

impl From<Void> for Stop {
    fn from(_: Void) -> Stop {
        Stop::Void
    }
}

/// Carries a transaction out at `at`, which stands in its command, as `most` does: what it reads
/// may have so many bytes.
///
/// # Errors
/// A record is damaged: nothing is known of what it does.
pub(crate) fn execute(
    transaction: &Transaction,
    (at, most): (Timestamp, usize),
    reader: &Reader<'_>,
    planted: Planted,
) -> Result<Executed, Void> {
    let mut run = Run {
        at,
        most,
        room: most,
        lax: planted.has(Bug::OvertakenTakesEffect),
        reader,
        changes: Vec::new(),
    };
    let verdict = match carry_out(transaction, &mut run) {
        Ok((then, done)) => Verdict::Done {
            at,
            then,
            done: Some(done),
        },
        Err(stop) => {
            run.changes.clear();
            match stop {
                Stop::Void => return Err(Void),
                Stop::Overtaken => Verdict::Void,
                Stop::Refused(why) => Verdict::Refused(why),
            }
        }
    };
    let changes = run.changes;
    Ok(Executed { verdict, changes })
}

fn carry_out(transaction: &Transaction, run: &mut Run<'_>) -> Result<(bool, Vec<Done>), Stop> {
    for item in transaction.items() {
        if let Item::Key(key) = item
            && let Some((newest, _)) = versions::at(key, Timestamp::MAX, run.reader)?
            && newest >= run.at
            && !run.lax
        {
            return Err(Stop::Overtaken);
        }
    }
    let then = holds(transaction, run.at, run.reader)?;
    Ok((then, run.branch(transaction.branch(then))?))
}

/// What a transaction that was carried out at `at` is told, read anew.
///
/// # Errors
/// A record is damaged.
pub(crate) fn again(
    transaction: &Transaction,
    then: bool,
    (at, most): (Timestamp, usize),
    reader: &Reader<'_>,
) -> Result<Option<Vec<Done>>, Void> {
    let mut run = Run {
        at,
        most,
        room: most,
        // By now there may be newer versions of what it read.
        lax: true,
        reader,
        changes: Vec::new(),
    };
    match run.branch(transaction.branch(then)) {
        Ok(done) => Ok(Some(done)),
        Err(Stop::Void) => Err(Void),
        Err(Stop::Refused(_) | Stop::Overtaken) => Ok(None),
    }
}

/// The last moment before one.
fn before(at: Timestamp) -> Timestamp {
    match at.logical.checked_sub(1) {
        Some(logical) => Timestamp { logical, ..at },
        None => Timestamp {
            micros: at.micros.saturating_sub(1),
            logical: u16::MAX,
        },
    }
}

fn read(key: &KeyId, at: Timestamp, reader: &Reader<'_>) -> Result<Option<Versioned>, Void> {
    let found = versions::at(key, before(at), reader)?;
    Ok(found.and_then(|(version, value)| {
        Some(Versioned {
            value: value?,
            version,
        })
    }))
}

fn holds(transaction: &Transaction, at: Timestamp, reader: &Reader<'_>) -> Result<bool, Stop> {
    for compare in &transaction.compare {
        let found = read(&compare.key, at, reader)?;
        let value = found.as_ref().map(|found| &found.value);
        let holds = match &compare.condition {
            Condition::Exists(wanted) => found.is_some() == *wanted,
            Condition::Version(relation, version) => {
                let here = found.as_ref().map_or(Timestamp::default(), |f| f.version);
                relation.holds(&here, version)
            }
            Condition::Value(relation, wanted) => relation.holds(&value, &Some(wanted)),
            Condition::Number(relation, wanted) => {
                relation.holds(&number(&compare.key, value)?, wanted)
            }
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The decimal number under a key; 0 where it is absent.
fn number(key: &KeyId, value: Option<&Bytes>) -> Result<i64, Stop> {
    let Some(value) = value else {
        return Ok(0);
    };
    let text = core::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let text = format!(
            "the transaction was not done: the value of `{}` is not a decimal number of 64 bits; \
             compare its value or put one first",
            shown(&key.key)
        );
        Stop::Refused(Refusal::definite(Code::BadRequest, text))
    })
}

/// A key for people.
fn shown(key: &[u8]) -> alloc::string::String {
    alloc::string::String::from_utf8_lossy(key).into_owned()
}

/// A branch that is being done.
struct Run<'a> {
    at: Timestamp,
    /// Bytes that the branch may read, and how many of them are left.
    most: usize,
    room: usize,
    /// Whether it goes on where what it names has a version above its timestamp.
    lax: bool,
    reader: &'a Reader<'a>,
    changes: Vec<Change>,
}

impl Run<'_> {
    fn branch(&mut self, acts: &[Act]) -> Result<Vec<Done>, Stop> {
        acts.iter().map(|act| self.act(act)).collect()
    }

    /// Does one act: what it is told, and what it changes.
    fn act(&mut self, act: &Act) -> Result<Done, Stop> {
        Ok(match act {
            Act::Get(key) => {
                let found = read(key, self.at, self.reader)?;
                let bytes = found.as_ref().map_or(0, |found| found.value.len());
                let left = self.room.checked_sub(bytes);
                self.room = left.ok_or_else(|| too_much(self.most))?;
                Done::Value(found)
            }
            Act::Range { span, limit } => {
                let at = before(self.at);
                let (found, above) =
                    versions::range(span, *limit, at, &mut self.room, self.reader)?;
                self.overtaken(above)?;
                if found.more && found.keys.len() < *limit as usize {
                    return Err(too_much(self.most));
                }
                Done::Range(found)
            }
            Act::Put { key, value } => {
                self.write(key, Some(value));
                Done::Put
            }
            Act::Delete(key) => {
                let there = read(key, self.at, self.reader)?.is_some();
                if there {
                    self.write(key, None);
                }
                Done::Deleted(u32::from(there))
            }
            Act::DeleteRange(span) => Done::Deleted(self.delete_range(span)?),
            Act::Add {
                key,
                by,
                least,
                most,
            } => {
                let found = read(key, self.at, self.reader)?;
                let here = number(key, found.as_ref().map(|found| &found.value))?;
                let sum = here.checked_add(*by);
                let within = |sum: &i64| {
                    least.is_none_or(|least| *sum >= least) && most.is_none_or(|most| *sum <= most)
                };
                let Some(sum) = sum.filter(within) else {
                    return Err(out_of_bounds(key, here, *by));
                };
                self.write(key, Some(&Bytes::from(format!("{sum}"))));
                Done::Added(sum)
            }
        })
    }

    fn delete_range(&mut self, span: &Span) -> Result<u32, Stop> {
        let (mut keys, mut above) = (Vec::new(), false);
        versions::walk(span, before(self.at), self.reader, |key, seen| {
            above |= matches!(seen, Seen::Above);
            if let Seen::Is((_, Some(_))) = seen {
                keys.push(key.clone());
            }
            keys.len() <= RANGE_MAX as usize
        })?;
        self.overtaken(above)?;
        if keys.len() > RANGE_MAX as usize {
            let text = format!(
                "the transaction was not done: a range that it deletes has more than {RANGE_MAX} \
                 keys; delete it in parts"
            );
            return Err(Stop::Refused(Refusal::definite(Code::TooLarge, text)));
        }
        let keyspace = span.keyspace;
        for key in &keys {
            let key = key.clone();
            self.write(&KeyId { keyspace, key }, None);
        }
        Ok(keys.len() as u32)
    }

    fn overtaken(&self, above: bool) -> Result<(), Stop> {
        match above && !self.lax {
            true => Err(Stop::Overtaken),
            false => Ok(()),
        }
    }

    fn write(&mut self, key: &KeyId, value: Option<&Bytes>) {
        self.changes.push(Change {
            name: versions::name(key, self.at),
            value: Some(versions::content(value)),
        });
    }
}

fn too_much(most: usize) -> Stop {
    let text = format!(
        "the transaction was not done: what it reads has more than {most} bytes \
         (limits.transaction_bytes); read less, or in a snapshot"
    );
    Stop::Refused(Refusal::definite(Code::TooLarge, text))
}

fn out_of_bounds(key: &KeyId, here: i64, by: i64) -> Stop {
    let text = format!(
        "the transaction was not done: `{}` is {here}, and to add {by} would leave the bounds that \
         it states, or 64 bits",
        shown(&key.key)
    );
    Stop::Refused(Refusal::definite(Code::OutOfBounds, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyspaceId, SegmentId};
    use crate::io::Memory;
    use crate::ledger::{Compare, Found, Fresh, Relation, Span};
    use alloc::collections::BTreeMap;
    use alloc::vec;

    /// A store with nothing in it but what was put.
    #[derive(Default)]
    struct Store(BTreeMap<Bytes, Bytes>);

    impl Memory for Store {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
            Ok(self.0.get(key).cloned())
        }

        fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
            let from = Bytes::copy_from_slice(from);
            let all = self.0.range(from..).take_while(|(key, _)| &key[..] < to);
            all.take(limit)
                .map(|(k, v)| (k.clone(), Ok(v.clone())))
                .collect()
        }

        fn is_durable(&self, _key: &[u8]) -> bool {
            true
        }
    }

    /// A segment whose commands are in one step: nothing of them is in the store yet.
    #[derive(Default)]
    struct Ledger {
        store: Store,
        fresh: Fresh,
        planted: Planted,
    }

    impl Ledger {
        fn reader(&self) -> Reader<'_> {
            Reader {
                segment: SegmentId(1),
                memory: &self.store,
                fresh: Some(&self.fresh),
            }
        }

        fn run(&mut self, at: u64, transaction: &Transaction) -> Verdict {
            let at = (Timestamp::of(at), 10_000);
            let done = execute(transaction, at, &self.reader(), self.planted);
            let Executed { verdict, changes } = done.expect("nothing is damaged");
            self.fresh.note(&changes);
            verdict
        }

        /// What a transaction that reads alone is told.
        fn see(&mut self, at: u64, acts: Vec<Act>) -> Vec<Done> {
            let then = acts;
            let transaction = Transaction {
                then,
                ..Transaction::default()
            };
            match self.run(at, &transaction) {
                Verdict::Done { done, .. } => done.expect("it was just read"),
                other => panic!("{other:?}"),
            }
        }
    }

    fn key(name: &str) -> KeyId {
        KeyId {
            keyspace: KeyspaceId(3),
            key: Bytes::copy_from_slice(name.as_bytes()),
        }
    }

    fn put(name: &str, value: &str) -> Act {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Act::Put {
            key: key(name),
            value,
        }
    }

    fn add(name: &str, by: i64, least: Option<i64>) -> Act {
        Act::Add {
            key: key(name),
            by,
            least,
            most: Some(100),
        }
    }

    fn all(prefix: &'static str) -> Span {
        Span::prefix(KeyspaceId(3), &Bytes::from_static(prefix.as_bytes()))
    }

    fn then(acts: Vec<Act>) -> Transaction {
        Transaction {
            then: acts,
            ..Transaction::default()
        }
    }

    fn names(done: &Done) -> Vec<&[u8]> {
        let Done::Range(Found { keys, .. }) = done else {
            panic!("{done:?} is no range");
        };
        keys.iter().map(|(name, _)| &name[..]).collect()
    }

    #[test]
    fn a_transaction_reads_what_was_there_just_before_it() {
        let mut ledger = Ledger::default();
        ledger.run(10, &then(vec![put("t/a", "1")]));
        let both = then(vec![put("t/a", "2"), Act::Get(key("t/a"))]);
        let Verdict::Done { done, .. } = ledger.run(20, &both) else {
            panic!("it is done");
        };
        let one = Versioned {
            value: Bytes::from_static(b"1"),
            version: Timestamp::of(10),
        };
        assert_eq!(done, Some(vec![Done::Put, Done::Value(Some(one.clone()))]));
        // Read anew, later, it is told the same.
        ledger.run(30, &then(vec![put("t/a", "3")]));
        let told = again(&both, true, (Timestamp::of(20), 10_000), &ledger.reader());
        assert_eq!(told, Ok(Some(vec![Done::Put, Done::Value(Some(one))])));
    }

    #[test]
    fn either_all_of_a_branch_is_done_or_nothing() {
        let mut ledger = Ledger::default();
        ledger.run(10, &then(vec![put("t/n", "5")]));
        let too_much = then(vec![put("t/x", "1"), add("t/n", -6, Some(0))]);
        let refused = |verdict: &Verdict, code| match verdict {
            Verdict::Refused(refusal) => refusal.code == code,
            _ => false,
        };
        assert!(refused(&ledger.run(20, &too_much), Code::OutOfBounds));
        ledger.run(30, &then(vec![put("t/s", "five")]));
        let no_number = then(vec![put("t/x", "1"), add("t/s", 1, None)]);
        assert!(refused(&ledger.run(40, &no_number), Code::BadRequest));
        let beyond = then(vec![add("t/m", i64::MAX, None)]);
        assert!(refused(&ledger.run(50, &beyond), Code::OutOfBounds));
        assert_eq!(
            ledger.see(60, vec![Act::Get(key("t/x"))]),
            [Done::Value(None)]
        );
        let sums = vec![add("t/n", -5, Some(0)), add("t/new", 7, None)];
        assert_eq!(ledger.see(70, sums), [Done::Added(0), Done::Added(7)]);
    }

    #[test]
    fn what_does_not_hold_leads_to_the_other_branch() {
        let mut ledger = Ledger::default();
        ledger.run(10, &then(vec![put("t/a", "7")]));
        let holds = |ledger: &mut Ledger, at, name, condition| {
            let transaction = Transaction {
                compare: vec![Compare {
                    key: key(name),
                    condition,
                }],
                ..Transaction::default()
            };
            match ledger.run(at, &transaction) {
                Verdict::Done { then, .. } => then,
                other => panic!("{other:?}"),
            }
        };
        let seven = Bytes::from_static(b"7");
        let (equal, less) = (Relation::Equal, Relation::Less);
        let cases = [
            ("t/a", Condition::Exists(true), true),
            ("t/b", Condition::Exists(true), false),
            ("t/b", Condition::Exists(false), true),
            ("t/a", Condition::Version(equal, Timestamp::of(10)), true),
            ("t/b", Condition::Version(equal, Timestamp::default()), true),
            ("t/a", Condition::Value(equal, seven.clone()), true),
            ("t/b", Condition::Value(equal, Bytes::new()), false),
            ("t/b", Condition::Value(less, Bytes::new()), true),
            ("t/a", Condition::Number(Relation::AtLeast, 8), false),
            ("t/b", Condition::Number(Relation::AtMost, 0), true),
        ];
        for (n, (name, condition, right)) in (20..).zip(cases) {
            let told = format!("{name} {condition:?}");
            assert_eq!(holds(&mut ledger, n, name, condition), right, "{told}");
        }
    }

    #[test]
    fn ranges_see_what_was_put_and_deleted_in_the_same_step() {
        let mut ledger = Ledger::default();
        for (at, n) in [(10, 1), (20, 2), (30, 3), (40, 4)] {
            ledger.run(at, &then(vec![put(&format!("t/{n}"), "v")]));
        }
        ledger.run(50, &then(vec![Act::Delete(key("t/2")), put("t/3", "w")]));
        let range = |limit| Act::Range {
            span: all("t/"),
            limit,
        };
        let seen = ledger.see(60, vec![range(10), range(2)]);
        assert_eq!(names(&seen[0]), [b"t/1", b"t/3", b"t/4"]);
        assert_eq!(names(&seen[1]), [b"t/1", b"t/3"]);
        assert!(matches!(&seen[1], Done::Range(found) if found.more));
        let gone = ledger.see(70, vec![Act::DeleteRange(all("t/"))]);
        assert_eq!(gone, [Done::Deleted(3)]);
        assert_eq!(names(&ledger.see(80, vec![range(10)])[0]), [b""; 0]);
        // What was there is there still, at its time.
        let before = then(vec![range(10)]);
        let told = again(&before, true, (Timestamp::of(60), 10_000), &ledger.reader());
        let told = told.expect("nothing is damaged").expect("it is kept");
        assert_eq!(names(&told[0]), [b"t/1", b"t/3", b"t/4"]);
    }

    #[test]
    fn what_is_read_has_a_bound() {
        let mut ledger = Ledger::default();
        let long = "x".repeat(6_000);
        ledger.run(10, &then(vec![put("t/a", &long), put("t/b", &long)]));
        let both = then(vec![
            Act::Get(key("t/a")),
            Act::Get(key("t/b")),
            put("t/c", "v"),
        ]);
        assert!(
            matches!(ledger.run(20, &both), Verdict::Refused(why) if why.code == Code::TooLarge)
        );
        let parts = [Act::Get(key("t/c")), Act::Get(key("t/a"))].into();
        assert_eq!(ledger.see(30, parts)[0], Done::Value(None));
    }

    /// L7: a version, or one in a range that is read, is as new as the transaction.
    #[cfg(feature = "planted-bugs")]
    #[test]
    fn what_was_overtaken_has_no_effect() {
        let overtaken = |planted, acts: Vec<Act>| {
            let mut ledger = Ledger {
                planted,
                ..Ledger::default()
            };
            ledger.run(20, &then(vec![put("t/a", "1")]));
            let verdict = ledger.run(20, &then(acts));
            (
                verdict == Verdict::Void,
                ledger.see(90, vec![Act::Get(key("t/b"))]),
            )
        };
        let range = Act::Range {
            span: all("t/"),
            limit: 9,
        };
        for reads in [Act::Get(key("t/a")), range, Act::DeleteRange(all("t/a"))] {
            let acts = vec![reads, put("t/b", "2")];
            let right = overtaken(Planted::NONE, acts.clone());
            assert_eq!(right, (true, vec![Done::Value(None)]));
            let wrong = overtaken(Planted::only(Bug::OvertakenTakesEffect), acts);
            assert!(!wrong.0, "the bug is not caught");
        }
    }

    /// L1: the limit that was proposed before it is not in the log.
    #[cfg(feature = "planted-bugs")]
    #[test]
    fn what_is_above_the_limit_has_no_effect() {
        use crate::base::{Epoch, LockRef, SessionId};
        use crate::command::{Body, Command, LedgerCommand, SegmentCommand};
        use crate::segment::SegmentState;
        let effective = |planted: Planted, limit: Option<u64>| {
            let format = crate::wire::LEDGERS;
            let mut state = SegmentState::beginning(LockRef(1), Epoch::FIRST, format);
            let command =
                |session, body| Command::new(SessionId(session), 1, 0, Epoch::FIRST, body);
            if let Some(limit) = limit {
                let limit = SegmentCommand::Limit(Timestamp::of(limit));
                state.apply(&command(0, Body::Segment(limit)), planted);
            }
            let body = Body::Ledger(LedgerCommand::Transact {
                at: Timestamp::of(20),
                most: 1_000,
                transaction: then(vec![put("t/a", "1")]),
            });
            let work = state.apply(&command(7, body), planted).work;
            let ledger = Ledger::default();
            let done = work.perform(&ledger.reader(), planted);
            let (_, verdict) = done.expect("nothing is damaged");
            matches!(verdict, Some(Verdict::Done { .. }))
        };
        assert!(effective(Planted::NONE, Some(20)));
        assert!(!effective(Planted::NONE, Some(19)));
        assert!(!effective(Planted::NONE, None));
        let bug = Planted::only(Bug::AboveLimitTakesEffect);
        assert!(effective(bug, None), "the bug is not caught");
    }
}
