//! Transactions on the keys of one segment.
//!
//! The coordinator says from when on the transaction may be ordered, its primary when it is, and
//! the answer waits here until that has passed on the cluster's timeline (ledger L15): only then
//! does whatever begins after the answer come after the transaction.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::{Client, Cx, Event, Job, STEPS, Step, Target, command_number};
use crate::base::{Bug, KeyId, Keyspace, Micros, SegmentId, TagRule, Timestamp};
use crate::command::{Body, Command, LedgerCommand};
use crate::ledger::{Act, Condition, Item, RANGE_MAX, Span, Transaction, Verdict};
use crate::lock::Outcome;
use crate::request::{Code, Refusal, Reply};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The job of `Transact`.
pub(super) fn transact(transaction: Transaction, cx: &Cx<'_>) -> Result<Box<dyn Job>, Refusal> {
    let segment = check(&transaction, cx)?;
    Ok(Box::new(Transact {
        what: "the transaction",
        segment,
        order: Order::Transact(transaction),
        step: 0,
        state: State::Begins,
    }))
}

/// The job of `Resolve`.
pub(super) fn resolve(key: KeyId, number: u64, cx: &Cx<'_>) -> Result<Box<dyn Job>, Refusal> {
    let segment = segment_of(&key, cx)?;
    Ok(Box::new(Transact {
        what: "resolving the transaction",
        segment,
        order: Order::Resolve(number),
        step: 0,
        state: State::Begins,
    }))
}

/// What is ordered.
#[derive(Debug)]
enum Order {
    Transact(Transaction),
    /// What came of the session's request of this number.
    Resolve(u64),
}

#[derive(Debug)]
enum State {
    /// It was not submitted, or the cluster's time was not known.
    Begins,
    Submitted,
    /// It is submitted again when this time has come.
    Pauses(Micros),
    /// Its answer leaves when its timestamp has passed.
    Passes(Timestamp, Reply),
}

#[derive(Debug)]
struct Transact {
    what: &'static str,
    segment: SegmentId,
    order: Order,
    /// Which of the request's commands it is: another one after a timestamp that was overtaken.
    step: u64,
    state: State,
}

impl Transact {
    fn submit(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let (number, body) = match &self.order {
            Order::Transact(transaction) => {
                let Some(time) = cx.env.time else {
                    self.state = State::Begins;
                    return Step::Open;
                };
                let body = LedgerCommand::Transact {
                    at: Timestamp::of(time.latest),
                    most: u32::try_from(cx.env.limits.transaction).unwrap_or(u32::MAX),
                    transaction: transaction.clone(),
                };
                (client.number, body)
            }
            Order::Resolve(number) => (*number, LedgerCommand::Never),
        };
        let command = Command::new(
            client.session,
            command_number(number, self.step),
            command_number(client.answered_through, STEPS - 1),
            Desk::epoch(cx.topology, self.segment),
            Body::Ledger(body),
        );
        let target = Target::Segment(self.segment);
        let question = Question::Command(command);
        self.state = State::Submitted;
        desk.submit
            .ask(client.task, target, question, client.deadline, true, cx);
        Step::Open
    }

    fn executed(
        &mut self,
        verdict: Verdict,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        let resolves = matches!(self.order, Order::Resolve(_));
        match verdict {
            Verdict::Void if self.step + 1 < STEPS => {
                self.step += 1;
                self.submit(client, desk, cx)
            }
            Verdict::Done { at, .. } => {
                let reply = match resolves {
                    true => Reply::Resolved(verdict),
                    false => Reply::Transacted(verdict),
                };
                self.pass(at, reply, cx)
            }
            verdict if resolves => Step::reply(Reply::Resolved(verdict)),
            Verdict::Refused(refusal) => Step::refuse(refusal),
            Verdict::Void => {
                let text = "the transaction was not done: others have overtaken it each time; \
                            make it anew";
                Step::refuse(Refusal::definite(Code::Conflict, text))
            }
            Verdict::Never => {
                let text = "the transaction was not done, and never will be: somebody has asked \
                            what came of it before it was; make it anew";
                Step::refuse(Refusal::definite(Code::Conflict, text))
            }
        }
    }

    /// Answers when a time has certainly passed.
    fn pass(&mut self, at: Timestamp, reply: Reply, cx: &Cx<'_>) -> Step {
        let passed = cx.env.time.is_some_and(|time| at.has_passed(time));
        if passed || cx.env.planted.has(Bug::NoCommitWait) {
            return Step::reply(reply);
        }
        self.state = State::Passes(at, reply);
        Step::Open
    }

    /// Its time is over.
    fn over(&mut self) -> Step {
        match self.state {
            State::Begins => Step::refuse(refuse::no_time(self.what)),
            State::Submitted | State::Pauses(_) => {
                Step::refuse(refuse::unavailable(self.what, true))
            }
            State::Passes(..) => Step::refuse(refuse::not_passed(self.what)),
        }
    }
}

impl Job for Transact {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.submit(client, desk, cx),
            Event::Asked { answer, .. } => match answer {
                PrimaryAnswer::Outcome { outcome, .. } => match outcome {
                    Outcome::Executed(verdict) => self.executed(*verdict, client, desk, cx),
                    // It was applied where records are lacking: soon another one can tell.
                    Outcome::Ledger => {
                        self.state = State::Pauses(Desk::shortly(cx));
                        Step::Open
                    }
                    Outcome::Refused(refusal) => Step::refuse(refusal),
                    _ => Step::refuse(refuse::nonsense(self.what)),
                },
                other => Step::refuse(refuse::unanswered(self.what, &other)),
            },
            Event::Timer if cx.env.now.monotonic >= client.deadline => self.over(),
            Event::Timer => match core::mem::replace(&mut self.state, State::Submitted) {
                State::Begins | State::Pauses(_) => self.submit(client, desk, cx),
                State::Passes(at, reply) => self.pass(at, reply, cx),
                State::Submitted => Step::Open,
            },
            // What is submitted takes effect, or not: somebody else may want to know.
            _ => Step::Open,
        }
    }

    fn wake_at(&self, client: &Client, cx: &Cx<'_>) -> Option<Micros> {
        let at = match &self.state {
            State::Begins => cx.after(TIME_AGAIN),
            State::Submitted => client.deadline,
            State::Pauses(until) => *until,
            State::Passes(at, _) => passes_at(*at, cx),
        };
        Some(at.min(client.deadline))
    }
}

/// How often the cluster's time is looked for that is not known, microseconds.
pub(super) const TIME_AGAIN: Micros = 20_000;

/// About when a time will have passed, on the boot-time clock.
pub(super) fn passes_at(at: Timestamp, cx: &Cx<'_>) -> Micros {
    match cx.env.time {
        Some(time) => cx.after((at.micros + 1).saturating_sub(time.earliest).max(1)),
        None => cx.after(TIME_AGAIN),
    }
}

/// The keyspace of a key of a ledger.
pub(super) fn ledger_of<'a>(key: &KeyId, cx: &'a Cx<'_>) -> Result<&'a Keyspace, Refusal> {
    let keyspace = refuse::checked(key, None, cx)?;
    if !keyspace.purpose.is_ledger() {
        let text = format!(
            "keyspace {} is for {}: transactions and snapshots are of ledger keyspaces",
            keyspace.name,
            keyspace.purpose.name()
        );
        return Err(Refusal::definite(Code::WrongPurpose, text));
    }
    Ok(keyspace)
}

/// The segment of a key of a ledger.
pub(super) fn segment_of(key: &KeyId, cx: &Cx<'_>) -> Result<SegmentId, Refusal> {
    ledger_of(key, cx)?;
    let segment = cx.topology.segment(key);
    segment.ok_or_else(|| crate::catalogue::unknown(key.keyspace))
}

/// The segment in which all keys of a transaction lie.
///
/// # Errors
/// A definite refusal: it is over a limit, makes no sense, or spans segments.
fn check(transaction: &Transaction, cx: &Cx<'_>) -> Result<SegmentId, Refusal> {
    let limits = cx.env.limits;
    let (named, bytes) = (transaction.items().count(), transaction.bytes());
    if named == 0 {
        return Err(refuse::bad("a transaction names at least one key"));
    }
    if named > limits.transaction_keys {
        return Err(too_large(format!(
            "a transaction names at most {} keys and ranges (limits.transaction_keys), this one \
             {named}",
            limits.transaction_keys
        )));
    }
    if bytes > limits.transaction {
        return Err(too_large(format!(
            "a transaction has at most {} bytes (limits.transaction_bytes), this one {bytes}",
            limits.transaction
        )));
    }
    for compare in &transaction.compare {
        if let Condition::Value(_, value) = &compare.condition {
            value_fits(value.len(), cx)?;
        }
    }
    for act in transaction.acts() {
        match act {
            Act::Put { value, .. } => value_fits(value.len(), cx)?,
            Act::Range { limit, .. } if !(1..=RANGE_MAX).contains(limit) => {
                return Err(refuse::bad(&format!(
                    "a range in a transaction has a limit of 1 to {RANGE_MAX} keys, not {limit}"
                )));
            }
            _ => {}
        }
    }
    for branch in [&transaction.then, &transaction.or_else] {
        check_branch(branch)?;
    }
    let mut first: Option<(String, SegmentId)> = None;
    for item in transaction.items() {
        let (shown, segment) = place(&item, cx)?;
        match &first {
            None => first = Some((shown, segment)),
            Some((_, known)) if *known == segment => {}
            Some((other, known)) => {
                return Err(refuse::bad(&format!(
                    "the keys of a transaction lie in one segment, and {other} lies in segment {}, \
                     {shown} in segment {}: name keys with the same tag, in a keyspace with a tag \
                     rule",
                    known.0, segment.0
                )));
            }
        }
    }
    let (_, segment) = first.expect("it names a key");
    Ok(segment)
}

fn too_large(text: String) -> Refusal {
    Refusal::definite(Code::TooLarge, text)
}

fn value_fits(bytes: usize, cx: &Cx<'_>) -> Result<(), Refusal> {
    let most = cx.env.limits.ledger_value;
    match bytes <= most {
        true => Ok(()),
        false => Err(too_large(format!(
            "a value of a ledger has at most {most} bytes (limits.ledger_value_bytes), this one \
             {bytes}: larger ones belong in registers"
        ))),
    }
}

/// Refuses a branch that writes a key twice: which of the two would count is not to be guessed.
fn check_branch(branch: &[Act]) -> Result<(), Refusal> {
    let mut keys: Vec<&KeyId> = Vec::new();
    let mut spans: Vec<&Span> = Vec::new();
    for act in branch.iter().filter(|act| act.writes()) {
        match act.item() {
            Item::Key(key) => keys.push(key),
            Item::Span(span) => spans.push(span),
        }
    }
    keys.sort_unstable();
    let twice = keys
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0]);
    let within = keys
        .iter()
        .find(|key| spans.iter().any(|span| span.has(key)));
    if let Some(key) = twice.or(within.copied()) {
        return Err(refuse::bad(&format!(
            "a branch of a transaction writes a key once, and this one writes {} twice",
            shown(&key.key)
        )));
    }
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[0].meets(pair[1])) {
        return Err(refuse::bad(
            "the ranges that a branch of a transaction deletes do not meet",
        ));
    }
    Ok(())
}

fn shown(key: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(key))
}

/// Where something lies, and what it is called.
fn place(item: &Item<'_>, cx: &Cx<'_>) -> Result<(String, SegmentId), Refusal> {
    match item {
        Item::Key(key) => {
            refuse::key_fits(key, cx)?;
            let segment = segment_of(key, cx)?;
            Ok((format!("key {}", shown(&key.key)), segment))
        }
        Item::Span(span) => {
            let named = format!("the range from {}", shown(&span.from));
            let Some(segment) = segment_of_span(span, cx)? else {
                return Err(refuse::bad(&format!(
                    "a range in a transaction lies in one tag, and {named} does not: begin it, and \
                     end it, with a tag and its mark, in a keyspace with a tag rule; snapshots \
                     read any range"
                )));
            };
            Ok((named, segment))
        }
    }
}

/// The segment of a range; none: it may lie in several.
pub(super) fn segment_of_span(span: &Span, cx: &Cx<'_>) -> Result<Option<SegmentId>, Refusal> {
    let key = KeyId {
        keyspace: span.keyspace,
        key: match span.from.is_empty() {
            true => bytes::Bytes::from_static(b"-"),
            false => span.from.clone(),
        },
    };
    let keyspace = ledger_of(&key, cx)?;
    if span.to.as_ref().is_some_and(|to| *to <= span.from) {
        return Err(refuse::bad("a range begins below its end"));
    }
    if cx.topology.ring().directory.segment_bits() == 0 {
        return Ok(Some(SegmentId(0)));
    }
    let TagRule::Before(mark) = keyspace.tag_rule else {
        return Ok(None);
    };
    let Some(end) = span.from.iter().position(|byte| *byte == mark) else {
        return Ok(None);
    };
    let tag = Span::prefix(span.keyspace, &span.from.slice(..=end));
    let within = match (&span.to, &tag.to) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(to), Some(most)) => to <= most,
    };
    Ok(within.then(|| cx.topology.segment(&key)).flatten())
}
