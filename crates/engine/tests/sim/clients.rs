//! Clients, and the engine nodes that they ask.
//!
//! A [`Client`] is MUSIC's: it repeats an enter at another node after silence, keeps its section
//! alive, counts its puts, and says how it leaves. A schedule drives each step by hand; the random
//! runs compose them.

use crate::history::{History, Op, Outcome};
use crate::world::{Call, Leg, SITES, Step, World};
use bytes::Bytes;
use fermata_engine::Service;
use fermata_protocol::base::{KeyId, Keyspace, LockRef, SessionId, SiteId, Tag};
use fermata_protocol::request::{Critical, Held, Leaving, Mode, Operation, RefState};
use fermata_protocol::{Code, Reply, Request};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What a section's lease is, unless a schedule says otherwise.
pub(crate) const LEASE: Duration = Duration::from_millis(4_000);
/// How long a client waits for an answer before it asks elsewhere.
pub(crate) const PATIENCE: Duration = Duration::from_millis(6_000);

type Build = Box<dyn Fn(usize, u64) -> Arc<dyn Service> + Send + Sync>;

/// Three engine nodes in a world, and what their clients saw.
pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) history: Arc<History>,
    nodes: Mutex<[Arc<dyn Service>; SITES]>,
    build: Build,
}

impl Cluster {
    /// `build` makes the node of a site in an incarnation.
    pub(crate) fn new(world: Arc<World>, build: Build) -> Arc<Cluster> {
        let nodes = [build(0, 0), build(1, 0), build(2, 0)];
        let history = Arc::new(History::new(Arc::clone(&world)));
        Arc::new(Cluster {
            world,
            history,
            nodes: Mutex::new(nodes),
            build,
        })
    }

    /// The node dies, and another process takes its place.
    pub(crate) fn restart(&self, node: usize) {
        let incarnation = self.world.kill_node(node);
        self.nodes.lock().expect("nobody panics with it")[node] = (self.build)(node, incarnation);
    }

    /// One transmission: the answers, as they arrive at the client. The node gives the request up
    /// when the receiver is dropped.
    fn transmit(
        self: &Arc<Cluster>,
        client: usize,
        site: usize,
        node: usize,
        request: Request,
    ) -> mpsc::UnboundedReceiver<Reply> {
        let (tell, told) = mpsc::unbounded_channel();
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let leg = |step| Leg {
                call: Call::Request,
                step,
                node,
                peer: client,
                key: None,
            };
            if !cluster.world.travel(leg(Step::To), site, node).await {
                // A connection that is cut says nothing.
                return tell.closed().await;
            }
            let incarnation = cluster.world.incarnation(node);
            let service = cluster.nodes.lock().expect("nobody panics with it")[node].clone();
            let (answers, mut answered) = mpsc::unbounded_channel();
            let serve = service.serve(request, answers);
            let relay = async {
                while let Some(reply) = answered.recv().await {
                    let gone = cluster.world.incarnation(node) != incarnation;
                    if gone || !cluster.world.travel(leg(Step::From), node, site).await {
                        return tell.closed().await;
                    }
                    // The client may have hung up.
                    let _ = tell.send(reply);
                }
            };
            tokio::select! {
                biased;
                () = tell.closed() => {}
                ((), ()) = async { tokio::join!(biased; serve, relay) } => {}
            }
        });
        told
    }

    /// A client at `site`.
    pub(crate) fn client(self: &Arc<Cluster>, who: usize, site: usize) -> Client {
        Client {
            cluster: Arc::clone(self),
            who,
            site,
            session: SessionId(who as u128),
            number: 0,
            renews: true,
        }
    }
}

/// One client.
pub(crate) struct Client {
    cluster: Arc<Cluster>,
    who: usize,
    site: usize,
    pub(crate) session: SessionId,
    number: u64,
    renews: bool,
}

/// An enter that may be sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enter {
    number: u64,
    mode: Mode,
    first_sent: Instant,
    attempt: u32,
}

impl Enter {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// A section as its holder has it.
pub(crate) struct Section {
    pub(crate) held: Held,
    pub(crate) entry: Option<Option<Bytes>>,
    number: u64,
    last: Option<Tag>,
    doubt: bool,
    live: Live,
}

/// A ref is renewed as long as this lives and says so.
pub(crate) struct Live(Arc<AtomicBool>);

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
    pub(crate) fn falls_silent(&self) {
        self.live.0.store(false, Relaxed);
    }
}

/// A key of the keyspace that every cluster has.
pub(crate) fn key(name: &str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::copy_from_slice(name.as_bytes()),
    }
}

/// A value.
pub(crate) fn value(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn outcome_of(reply: Option<Reply>) -> Outcome {
    match reply {
        None => Outcome::Unknown,
        Some(Reply::Value { value, .. }) => Outcome::Value(value),
        Some(Reply::Done { .. } | Reply::Left) => Outcome::Done,
        Some(Reply::Lost { .. }) => Outcome::Past(false),
        Some(Reply::Refused(refusal)) => match refusal.code {
            Code::NoLongerHolder => Outcome::Past(refusal.may_have_taken_effect),
            _ if refusal.may_have_taken_effect => Outcome::Unknown,
            _ => Outcome::Refused,
        },
        Some(_) => Outcome::Unknown,
    }
}

impl Client {
    /// It renews nothing.
    pub(crate) fn quiet(self) -> Client {
        Client {
            renews: false,
            ..self
        }
    }

    fn history(&self) -> &History {
        &self.cluster.history
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
        self.cluster.transmit(self.who, self.site, node, request)
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
        tokio::time::timeout(PATIENCE, wait).await.ok().flatten()
    }

    // ---- sections -------------------------------------------------------------------------------

    /// Decides to enter; nothing is sent yet.
    pub(crate) fn wants(&mut self, mode: Mode) -> Enter {
        Enter {
            number: self.next(),
            mode,
            first_sent: Instant::now(),
            attempt: 0,
        }
    }

    /// The next exclusive enter of this client, for somebody who repeats it.
    pub(crate) fn repeats(&self) -> (Client, Enter) {
        let client = Client {
            cluster: Arc::clone(&self.cluster),
            ..*self
        };
        let enter = Enter {
            number: self.number + 1,
            mode: Mode::Exclusive,
            first_sent: Instant::now(),
            attempt: 1,
        };
        (client, enter)
    }

    /// Sends the enter to a node and waits there; none: silence, refusal, or the wait was over.
    pub(crate) async fn enter_at(
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
            lease: Some(LEASE.as_micros() as u64),
        };
        let request = self.request(enter.number, enter.attempt, operation);
        enter.attempt += 1;
        self.enters(
            node,
            key,
            request,
            Op::Enter(enter.mode),
            enter.first_sent,
            wait,
        )
        .await
    }

    async fn enters(
        &self,
        node: usize,
        key: &KeyId,
        request: Request,
        op: Op,
        first_sent: Instant,
        wait: Duration,
    ) -> Option<Section> {
        let record = self.history().begin(self.session, request.number, key, op);
        let polls = wait.is_zero();
        let mut replies = self.transmit(node, request);
        let mut waits = None;
        let live = Live::default();
        let answered = async {
            loop {
                match replies.recv().await {
                    Some(Reply::Queued { held, .. }) => {
                        if polls {
                            waits = held.first().map(|held| held.lock_ref);
                            return None;
                        }
                        if let (Some(held), None) = (held.first(), waits) {
                            waits = Some(held.lock_ref);
                            self.keeps(node, held, &live);
                        }
                    }
                    Some(Reply::Stalled { .. }) => {}
                    last => return last,
                }
            }
        };
        let patience = PATIENCE + wait;
        let reply = tokio::time::timeout(patience, answered)
            .await
            .ok()
            .flatten();
        if let Some(Reply::Entered { keys, lease }) = reply {
            let entered = keys.into_iter().next()?;
            let entry = entered.value.known().map(|value| value.cloned());
            let held = entered.held;
            let until = first_sent + Duration::from_micros(lease);
            self.history().lease(key, held.lock_ref, until);
            self.history()
                .end(record, Outcome::Entered(held.clone(), entry.clone()));
            drop(live);
            return Some(self.section(node, held, entry));
        }
        let outcome = match (waits, outcome_of(reply)) {
            (Some(lock_ref), Outcome::Unknown) => Outcome::Waits(lock_ref),
            (_, outcome) => outcome,
        };
        self.history().end(record, outcome);
        None
    }

    /// Renews a ref as long as somebody has its `live`.
    fn keeps(&self, node: usize, held: &Held, live: &Live) {
        if !self.renews {
            return;
        }
        let keeper = Client {
            cluster: Arc::clone(&self.cluster),
            who: self.who,
            site: self.site,
            session: self.session,
            number: self.number,
            renews: true,
        };
        tokio::spawn(keeper.keep(node, held.clone(), Arc::clone(&live.0)));
    }

    /// Renews the ref that waits since the last poll of this client, as long as the result lives.
    pub(crate) fn keeps_place(&self, node: usize, key: &KeyId) -> Option<Live> {
        let held = Held {
            key: key.clone(),
            lock_ref: self.history().place(self.session)?,
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
            tokio::time::sleep(LEASE / 4).await;
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
    pub(crate) async fn renew(&self, node: usize, held: &Held) -> Option<RefState> {
        let sent = Instant::now();
        let op = Op::Renew(held.clone());
        let record = self.history().begin(self.session, 0, &held.key, op);
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
                self.history().lease(&held.key, held.lock_ref, until);
                self.history().end(record, Outcome::Done);
            }
            Some(RefState::Gone) => self.history().end(record, Outcome::Past(false)),
            Some(RefState::Queued { .. }) => self.history().end(record, Outcome::Done),
            _ => self.history().end(record, Outcome::Unknown),
        }
        state
    }

    /// Enters, however long it takes, at one node after another; none after two minutes.
    pub(crate) async fn enter(&mut self, key: &KeyId, mode: Mode) -> Option<Section> {
        let mut enter = self.wants(mode);
        let mut node = self.site;
        while enter.first_sent.elapsed() < Duration::from_secs(120) {
            let wait = Duration::from_secs(10);
            let entered = self.enter_at(node, key, &mut enter, wait).await;
            if entered.is_some() {
                return entered;
            }
            if self.history().is_over(self.session, enter.number) {
                let number = self.next();
                enter = Enter { number, ..enter };
            }
            node = (node + 1) % SITES;
            let pause = 50 + self.cluster.world.below(200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        None
    }

    /// Goes on without the counter, or takes the section over.
    pub(crate) async fn resume_at(&mut self, node: usize, held: &Held) -> Option<Section> {
        let number = self.next();
        let operation = Operation::Resume {
            held: vec![held.clone()],
        };
        let request = self.request(number, 0, operation);
        let op = Op::Resume(held.clone());
        let wait = Duration::from_secs(10);
        self.enters(node, &held.key, request, op, Instant::now(), wait)
            .await
    }

    /// One put; true: acknowledged.
    pub(crate) async fn put_at(
        &mut self,
        node: usize,
        section: &mut Section,
        to: Option<Bytes>,
    ) -> bool {
        section.number += 1;
        let number = section.number;
        self.put_again_at(node, section, number, to).await
    }

    /// A transmission of a put with a given number.
    pub(crate) async fn put_again_at(
        &mut self,
        node: usize,
        section: &mut Section,
        number: u64,
        to: Option<Bytes>,
    ) -> bool {
        let held = section.held.clone();
        let op = Op::Put {
            held: held.clone(),
            number,
            value: to.clone(),
        };
        let request = self.next();
        let record = self.history().begin(self.session, request, &held.key, op);
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
            Outcome::Done => number != section.number && section.doubt,
            Outcome::Refused => section.doubt,
            _ => true,
        };
        self.history().end(record, outcome);
        done
    }

    /// One get.
    pub(crate) async fn get_at(&mut self, node: usize, section: &Section) -> Option<Option<Bytes>> {
        let held = section.held.clone();
        let number = self.next();
        let op = Op::Get(held.clone());
        let record = self.history().begin(self.session, number, &held.key, op);
        let operation = Operation::Critical {
            held,
            operation: Critical::Get,
            leave: Vec::new(),
        };
        let reply = self.last(node, self.request(number, 0, operation)).await;
        let outcome = outcome_of(reply);
        self.history().end(record, outcome.clone());
        match outcome {
            Outcome::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Leaves as the section was: true if a node has said that it is done.
    pub(crate) async fn leave_at(&mut self, node: usize, section: Section) -> bool {
        let how = match section.doubt {
            true => Leaving::Dirty,
            false => Leaving::Clean(section.last),
        };
        self.leave_as(node, section, how).await
    }

    pub(crate) async fn leave_as(&mut self, node: usize, section: Section, how: Leaving) -> bool {
        let held = section.held.clone();
        let number = self.next();
        let op = Op::Leave(held.clone());
        let record = self.history().begin(self.session, number, &held.key, op);
        let mut left = false;
        for attempt in 0..6 {
            let operation = Operation::Leave {
                keys: vec![(held.clone(), how)],
            };
            let request = self.request(number, attempt, operation);
            let node = (node + attempt as usize) % SITES;
            let outcome = outcome_of(self.last(node, request).await);
            left = matches!(outcome, Outcome::Done | Outcome::Past(_));
            if left {
                break;
            }
        }
        let outcome = if left {
            Outcome::Done
        } else {
            Outcome::Unknown
        };
        self.history().end(record, outcome);
        left
    }

    /// Ends somebody's section.
    pub(crate) async fn release_at(&mut self, node: usize, key: &KeyId, lock_ref: LockRef) -> bool {
        let number = self.next();
        let op = Op::Release(lock_ref);
        let record = self.history().begin(self.session, number, key, op);
        let operation = Operation::Release {
            key: key.clone(),
            lock_ref,
        };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        self.history().end(record, outcome.clone());
        outcome == Outcome::Done
    }

    // ---- eventual -------------------------------------------------------------------------------

    /// An eventual put; true: acknowledged.
    pub(crate) async fn offer_at(&mut self, node: usize, key: &KeyId, to: Option<Bytes>) -> bool {
        let number = self.next();
        let op = Op::EventualPut(to.clone());
        let record = self.history().begin(self.session, number, key, op);
        let operation = Operation::Put {
            key: key.clone(),
            value: to,
        };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        self.history().end(record, outcome.clone());
        outcome == Outcome::Done
    }

    /// An eventual get; none: no answer.
    pub(crate) async fn look_at(&mut self, node: usize, key: &KeyId) -> Option<Option<Bytes>> {
        let number = self.next();
        let record = self
            .history()
            .begin(self.session, number, key, Op::EventualGet);
        let operation = Operation::Get { key: key.clone() };
        let outcome = outcome_of(self.last(node, self.request(number, 0, operation)).await);
        self.history().end(record, outcome.clone());
        match outcome {
            Outcome::Value(value) => Some(value),
            _ => None,
        }
    }
}
