//! Clients that are driven step by step, and note all that they see.
//!
//! A [`Client`] is MUSIC's: it repeats an enter at another node after silence, keeps its section
//! alive, counts its puts, and says how it leaves. A schedule drives each step by hand; the random
//! runs compose them.

use super::history::History;
use super::{Heard, What};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Keyspace, Label, LockRef, SessionId, SiteId, Tag};
use fermata_protocol::request::{Critical, Held, Leaving, Mode, Operation, RefState};
use fermata_protocol::{Code, Reply, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Sites, each with a node.
pub const SITES: usize = 3;

/// What clients and nodes have between them.
pub trait Network: Send + Sync + 'static {
    /// One transmission of client `who` at `site` to a node: the answers, as they arrive. The node
    /// gives the request up when the receiver is dropped.
    fn transmit(
        self: Arc<Self>,
        who: usize,
        site: usize,
        node: usize,
        request: Request,
    ) -> mpsc::UnboundedReceiver<Reply>;

    /// Something below `bound`.
    fn below(&self, bound: u64) -> u64;
}

/// How clients wait.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The lease that their sections have.
    pub lease: Duration,
    /// How long they wait for an answer before they ask elsewhere.
    pub patience: Duration,
}

/// One client.
pub struct Client {
    network: Arc<dyn Network>,
    history: Arc<History>,
    terms: Terms,
    who: usize,
    /// Where it is.
    pub site: usize,
    /// Its session.
    pub session: SessionId,
    number: u64,
    values: u64,
    renews: bool,
}

/// An enter that may be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Enter {
    number: u64,
    mode: Mode,
    first_sent: Instant,
    attempt: u32,
}

impl Enter {
    /// The request's number.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A section as its holder has it.
pub struct Section {
    /// Its name.
    pub held: Held,
    /// The value at its entry; none: not told.
    pub entry: Option<Option<Bytes>>,
    number: u64,
    last: Option<Tag>,
    doubt: bool,
    live: Live,
}

/// A ref is renewed as long as this lives and says so.
pub struct Live(Arc<AtomicBool>);

impl Default for Live {
    fn default() -> Live {
        Live(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

impl Section {
    /// The client does not renew: it is paused, or dead.
    pub fn falls_silent(&self) {
        self.live.0.store(false, Relaxed);
    }
}

/// A key of the keyspace that every cluster has.
pub fn key(name: &str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::copy_from_slice(name.as_bytes()),
    }
}

/// A value.
pub fn value(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn outcome_of(reply: Option<Reply>) -> Heard {
    match reply {
        Some(Reply::Value { value, .. }) => Heard::Value(value),
        Some(Reply::Done { tag }) => Heard::Done(tag),
        Some(Reply::Left) => Heard::Done(None),
        Some(Reply::Lost { .. }) => Heard::Failed(Code::NoLongerHolder),
        Some(Reply::Refused(refusal)) => match (refusal.code, refusal.may_have_taken_effect) {
            (Code::NoLongerHolder, true) => Heard::Unknown(Code::NoLongerHolder),
            (_, true) => Heard::GivenUp,
            (code, false) => Heard::Failed(code),
        },
        // A node that has answered, or whose client has hung up, does no more for it.
        _ => Heard::GivenUp,
    }
}

impl Client {
    /// It renews nothing.
    pub fn quiet(self) -> Client {
        Client {
            renews: false,
            ..self
        }
    }

    /// A client at `site`; its session is its number.
    pub fn new(
        network: Arc<dyn Network>,
        history: Arc<History>,
        terms: Terms,
        who: usize,
        site: usize,
    ) -> Client {
        Client {
            network,
            history,
            terms,
            who,
            site,
            session: SessionId(who as u128),
            number: 0,
            values: 0,
            renews: true,
        }
    }

    /// The same client once more: for somebody who sends in its name.
    pub fn twin(&self) -> Client {
        Client {
            network: Arc::clone(&self.network),
            history: Arc::clone(&self.history),
            ..*self
        }
    }

    fn request(&self, number: u64, attempt: u32, operation: Operation) -> Request {
        Request {
            session: self.session,
            number,
            attempt,
            answered_through: number.saturating_sub(1).min(self.number.saturating_sub(4)),
            site: SiteId(self.site as u16),
            operation,
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn transmit(&self, node: usize, request: Request) -> mpsc::UnboundedReceiver<Reply> {
        Arc::clone(&self.network).transmit(self.who, self.site, node, request)
    }

    /// The last answer of one transmission; none: silence.
    async fn last(&self, node: usize, request: Request) -> Option<Reply> {
        let mut replies = self.transmit(node, request);
        let wait = async {
            loop {
                match replies.recv().await {
                    Some(Reply::Queued { .. } | Reply::Stalled { .. }) => {}
                    last => return last,
                }
            }
        };
        tokio::time::timeout(self.terms.patience, wait)
            .await
            .ok()
            .flatten()
    }

    /// The answer to a request that is not noted in the history; none: silence.
    pub async fn ask(&mut self, node: usize, operation: Operation) -> Option<Reply> {
        let number = self.next();
        self.last(node, self.request(number, 0, operation)).await
    }

    /// The answer to a transmission of the request of that number; not noted either.
    pub async fn ask_as(
        &self,
        node: usize,
        (number, attempt): (u64, u32),
        operation: Operation,
    ) -> Option<Reply> {
        self.last(node, self.request(number, attempt, operation))
            .await
    }

    // ---- what random runs draw ------------------------------------------------------------------

    /// Something below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.network.below(bound)
    }

    /// A node: mostly the nearest.
    pub fn some_node(&self) -> usize {
        match self.below(4) {
            0 => self.below(SITES as u64) as usize,
            _ => self.site,
        }
    }

    /// A value that nobody has put.
    pub fn fresh(&mut self) -> Option<Bytes> {
        self.values += 1;
        value(&format!("{}.{}", self.who, self.values))
    }

    /// Waits for less than so many milliseconds.
    pub async fn nap(&self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(most))).await;
    }

    // ---- sections -------------------------------------------------------------------------------

    /// Decides to enter; nothing is sent yet.
    pub fn wants(&mut self, mode: Mode) -> Enter {
        Enter {
            number: self.next(),
            mode,
            first_sent: Instant::now(),
            attempt: 0,
        }
    }

    /// The next exclusive enter of this client, for somebody who repeats it.
    pub fn repeats(&self) -> (Client, Enter) {
        let client = self.twin();
        let enter = Enter {
            number: self.number + 1,
            mode: Mode::Exclusive,
            first_sent: Instant::now(),
            attempt: 1,
        };
        (client, enter)
    }

    /// Sends the enter to a node and waits there; none: silence, refusal, or the wait was over.
    pub async fn enter_at(
        &self,
        node: usize,
        key: &KeyId,
        enter: &mut Enter,
        wait: Duration,
    ) -> Option<Section> {
        let operation = Operation::Enter {
            keys: vec![key.clone()],
            mode: enter.mode,
            wait: wait.as_micros() as u64,
            follow: false,
            lease: Some(self.terms.lease.as_micros() as u64),
            may_return: true,
            label: Label::NONE,
        };
        let request = self.request(enter.number, enter.attempt, operation);
        enter.attempt += 1;
        let what = What::Enter {
            keys: vec![key.clone()],
            mode: enter.mode,
            resumes: Vec::new(),
        };
        self.enters(node, request, what, enter.first_sent, wait)
            .await
    }

    async fn enters(
        &self,
        node: usize,
        request: Request,
        what: What,
        first_sent: Instant,
        wait: Duration,
    ) -> Option<Section> {
        let record = self.history.begin(self.session, request.number, None, what);
        let polls = wait.is_zero();
        let mut replies = self.transmit(node, request);
        let mut waits = false;
        let live = Live::default();
        let answered = async {
            loop {
                match replies.recv().await {
                    Some(Reply::Queued { held, .. }) => {
                        if let (Some(held), false) = (held.first(), waits) {
                            waits = true;
                            self.history.waits(record, held);
                            if !polls {
                                self.keeps(node, held, &live);
                            }
                        }
                        if polls {
                            return None;
                        }
                    }
                    Some(Reply::Stalled { .. }) => {}
                    last => return last,
                }
            }
        };
        let patience = self.terms.patience + wait;
        let reply = tokio::time::timeout(patience, answered)
            .await
            .ok()
            .flatten();
        if let Some(Reply::Entered { keys, lease }) = reply {
            let entered = keys.into_iter().next()?;
            let entry = entered.value.known().map(|value| value.cloned());
            let held = entered.held;
            let until = first_sent + Duration::from_micros(lease);
            self.history.entered(record, &held, entry.clone(), until);
            drop(live);
            return Some(self.section(node, held, entry));
        }
        let outcome = match (waits, outcome_of(reply)) {
            (true, Heard::GivenUp) => Heard::Waits,
            (_, outcome) => outcome,
        };
        self.history.end(record, outcome);
        None
    }

    /// Renews a ref as long as somebody has its `live`.
    fn keeps(&self, node: usize, held: &Held, live: &Live) {
        if !self.renews {
            return;
        }
        let keeper = self.twin();
        tokio::spawn(keeper.keep(node, held.clone(), Arc::clone(&live.0)));
    }

    /// Renews the ref that waits since the last poll of this client, as long as the result lives.
    pub fn keeps_place(&self, node: usize, key: &KeyId) -> Option<Live> {
        let held = Held {
            key: key.clone(),
            lock_ref: self.history.place(self.session)?,
            generation: 0,
        };
        let live = Live::default();
        self.keeps(node, &held, &live);
        Some(live)
    }

    fn section(&self, node: usize, held: Held, entry: Option<Option<Bytes>>) -> Section {
        let live = Live::default();
        self.keeps(node, &held, &live);
        Section {
            held,
            entry,
            number: 0,
            last: None,
            doubt: false,
            live,
        }
    }

    /// Renews as long as the section lives.
    async fn keep(self, node: usize, held: Held, live: Arc<AtomicBool>) {
        let mut node = node;
        loop {
            tokio::time::sleep(self.terms.lease / 4).await;
            if !live.load(Relaxed) {
                return;
            }
            match self.renew(node, &held).await {
                Some(RefState::Gone) => return,
                None | Some(RefState::Unknown) => node = (node + 1) % SITES,
                Some(_) => {}
            }
        }
    }

    /// One renewal.
    pub async fn renew(&self, node: usize, held: &Held) -> Option<RefState> {
        let sent = Instant::now();
        let what = What::Renew(held.key.clone());
        let record = self.history.begin(self.session, 0, Some(held), what);
        let operation = Operation::Renew {
            held: vec![held.clone()],
        };
        // Renewals are numbered apart: nothing remembers them.
        let request = self.request(1 << 40, 0, operation);
        let reply = self.last(node, request).await;
        let state = match reply {
            Some(Reply::Renewed { states }) => states.first().copied(),
            _ => None,
        };
        match state {
            Some(RefState::Holding { lease }) => {
                let until = sent + Duration::from_micros(lease);
                self.history.lease(held, until);
                self.history.end(record, Heard::Done(None));
            }
            Some(RefState::Gone) => {
                let past = Heard::Failed(Code::NoLongerHolder);
                self.history.end(record, past);
            }
            Some(RefState::Queued { .. }) => self.history.end(record, Heard::Done(None)),
            _ => self.history.end(record, Heard::GivenUp),
        }
        state
    }

    /// Enters, however long it takes, at one node after another; none after two minutes.
    pub async fn enter(&mut self, key: &KeyId, mode: Mode) -> Option<Section> {
        let mut enter = self.wants(mode);
        let mut node = self.site;
        while enter.first_sent.elapsed() < Duration::from_secs(120) {
            let wait = Duration::from_secs(10);
            let entered = self.enter_at(node, key, &mut enter, wait).await;
            if entered.is_some() {
                return entered;
            }
            if self.history.is_over(self.session, enter.number) {
                let number = self.next();
                enter = Enter { number, ..enter };
            }
            node = (node + 1) % SITES;
            let pause = 50 + self.network.below(200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        None
    }

    /// Goes on without the counter, or takes the section over.
    pub async fn resume_at(&mut self, node: usize, held: &Held) -> Option<Section> {
        let of = self.history.session_of(held).unwrap_or(self.session);
        self.resume_of_at(node, held, of).await
    }

    /// The same, of a section of which only the queue says whose it is.
    pub async fn resume_of_at(
        &mut self,
        node: usize,
        held: &Held,
        of: SessionId,
    ) -> Option<Section> {
        let number = self.next();
        let operation = Operation::Resume {
            held: vec![held.clone()],
            of,
        };
        let request = self.request(number, 0, operation);
        let what = What::Enter {
            keys: vec![held.key.clone()],
            mode: Mode::Exclusive,
            resumes: vec![held.clone()],
        };
        let wait = Duration::from_secs(10);
        self.enters(node, request, what, Instant::now(), wait).await
    }

    /// One put; true: acknowledged.
    pub async fn put_at(&mut self, node: usize, section: &mut Section, to: Option<Bytes>) -> bool {
        section.number += 1;
        let number = section.number;
        self.put_again_at(node, section, number, to).await
    }

    /// A transmission of a put with a given number.
    pub async fn put_again_at(
        &mut self,
        node: usize,
        section: &mut Section,
        number: u64,
        to: Option<Bytes>,
    ) -> bool {
        let held = section.held.clone();
        let what = What::Put {
            key: held.key.clone(),
            number,
            value: to.clone(),
            leave: false,
        };
        let request = self.next();
        let history = &self.history;
        let record = history.begin(self.session, request, Some(&held), what);
        let operation = Operation::Critical {
            held: held.clone(),
            operation: Critical::Put { number, value: to },
            leave: Vec::new(),
        };
        let reply = self.last(node, self.request(request, 0, operation)).await;
        let done = match &reply {
            Some(Reply::Done { tag }) => {
                section.last = *tag;
                true
            }
            _ => false,
        };
        let outcome = outcome_of(reply);
        // A later put that is acknowledged outranks those in doubt.
        section.doubt = match outcome {
            Heard::Done(_) => number != section.number && section.doubt,
            Heard::Failed(code) if code != Code::NoLongerHolder => section.doubt,
            _ => true,
        };
        self.history.end(record, outcome);
        done
    }

    /// One get.
    pub async fn get_at(&mut self, node: usize, section: &Section) -> Option<Option<Bytes>> {
        let held = section.held.clone();
        let number = self.next();
        let what = What::Get(held.key.clone());
        let history = &self.history;
        let record = history.begin(self.session, number, Some(&held), what);
        let operation = Operation::Critical {
            held,
            operation: Critical::Get,
            leave: Vec::new(),
        };
        let reply = self.last(node, self.request(number, 0, operation)).await;
        let outcome = outcome_of(reply);
        self.history.end(record, outcome.clone());
        match outcome {
            Heard::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Leaves as the section was: true if a node has said that it is done.
    pub async fn leave_at(&mut self, node: usize, section: Section) -> bool {
        let how = match section.doubt {
            true => Leaving::Dirty,
            false => Leaving::Clean(section.last),
        };
        self.leave_as(node, section, how).await
    }

    /// Leaves, however the section was.
    pub async fn leave_as(&mut self, node: usize, section: Section, how: Leaving) -> bool {
        let held = section.held.clone();
        let number = self.next();
        let history = &self.history;
        let record = history.begin(self.session, number, Some(&held), What::Leave);
        let mut left = false;
        for attempt in 0..6 {
            let operation = Operation::Leave {
                keys: vec![(held.clone(), how)],
            };
            let request = self.request(number, attempt, operation);
            let node = (node + attempt as usize) % SITES;
            let outcome = outcome_of(self.last(node, request).await);
            left = matches!(
                outcome,
                Heard::Done(_)
                    | Heard::Failed(Code::NoLongerHolder)
                    | Heard::Unknown(Code::NoLongerHolder)
            );
            if left {
                break;
            }
        }
        let outcome = if left {
            Heard::Done(None)
        } else {
            Heard::GivenUp
        };
        self.history.end(record, outcome);
        left
    }

    /// Ends somebody's section.
    pub async fn release_at(&mut self, node: usize, key: &KeyId, lock_ref: LockRef) -> bool {
        let number = self.next();
        let what = What::Release(key.clone(), lock_ref);
        let record = self.history.begin(self.session, number, None, what);
        let operation = Operation::Release {
            key: key.clone(),
            lock_ref,
        };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        let done = matches!(outcome, Heard::Done(_));
        self.history.end(record, outcome);
        done
    }

    // ---- eventual -------------------------------------------------------------------------------

    /// An eventual put; true: acknowledged.
    pub async fn offer_at(&mut self, node: usize, key: &KeyId, to: Option<Bytes>) -> bool {
        let number = self.next();
        let what = What::EventualPut(key.clone(), to.clone());
        let record = self.history.begin(self.session, number, None, what);
        let operation = Operation::Put {
            key: key.clone(),
            value: to,
        };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        let done = matches!(outcome, Heard::Done(_));
        self.history.end(record, outcome);
        done
    }

    /// An eventual get; none: no answer.
    pub async fn look_at(&mut self, node: usize, key: &KeyId) -> Option<Option<Bytes>> {
        let number = self.next();
        let what = What::EventualGet(key.clone());
        let record = self.history.begin(self.session, number, None, what);
        let operation = Operation::Get { key: key.clone() };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        self.history.end(record, outcome.clone());
        match outcome {
            Heard::Value(value) => Some(value),
            _ => None,
        }
    }
}
