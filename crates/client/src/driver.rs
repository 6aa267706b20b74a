//! The background task of a client: it owns the session machine, feeds it with calls, replies and
//! time, and carries out what it asks for.

use crate::account::{self, SharedAccount};
use crate::clock;
use crate::dial::Dial;
use crate::discovery::{self, SharedNodes};
use crate::link::{self, LinkId, News, Why};
use fermata_api::v1;
use fermata_api::{Names, Secret, convert};
use fermata_protocol::base::{Micros, Now, SessionId};
use fermata_protocol::client::{
    Call, Endpoint, Event, Failure, LostReason, SectionId, Session, Success, Ticket,
};
use fermata_protocol::request::{Held, Operation, Request};
use fermata_protocol::{Code, Refusal, Reply};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

/// Every node reads messages of this many bytes: what ends a connection is longer.
const ALWAYS_READ: usize = 1 << 20;
/// How often a client asks who is in the cluster, and how often where nobody is in reach.
const LOOK: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So many nodes are asked at a time.
const LOOKED_AT: usize = 3;
/// Commands taken at once, so that replies and timers have their turn.
const BATCH: usize = 128;

/// How an operation ended; with a section, where its loss will be told.
pub(crate) type Ended = (Result<Success, Refusal>, Option<watch::Receiver<Fate>>);

/// What became of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Held, as far as this client knows, or left.
    Held,
    /// Over, and not by a leave.
    Lost(LostReason),
}

/// What users ask of the task.
#[derive(Debug)]
pub(crate) enum Command {
    /// An operation.
    Call(Ticket, Call, oneshot::Sender<Ended>),
    /// Go on in a section, of the session with this secret.
    Resume(Ticket, Vec<Held>, Secret, oneshot::Sender<Ended>),
    /// Nobody waits for it any more.
    Cancel(Ticket),
    /// Leave a section; nobody waits for it.
    Leave(SectionId),
    /// Until when a section's leases last, by the boot-time clock; 0: not known.
    Lease(SectionId, oneshot::Sender<Micros>),
}

/// The dictionary, shared with those who make calls.
pub(crate) type SharedNames = Arc<Mutex<Names>>;

/// The dictionary itself. A thread that panicked with it in hand leaves it whole.
pub(crate) fn names(shared: &SharedNames) -> MutexGuard<'_, Names> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A connection in use.
struct Link {
    id: LinkId,
    requests: UnboundedSender<v1::SessionRequest>,
}

/// One transmission on a stream.
struct Transmission {
    link: LinkId,
    number: u64,
    /// It goes on after `Entered`.
    follows: bool,
    /// Bytes.
    size: usize,
    since: Instant,
    /// Some reply has come.
    heard: bool,
}

/// When an operation that nobody answers ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GiveUp {
    /// After this in any case: an older answer is not about it.
    pub(crate) request: Duration,
    /// After this where no node can be connected to.
    pub(crate) unreachable: Option<Duration>,
}

/// What is known of the cluster's nodes, and how it is asked for anew.
pub(crate) struct Nodes {
    pub(crate) known: SharedNodes,
    /// How they are connected to.
    pub(crate) dial: Dial,
    /// The client's own site, whose nodes come first.
    pub(crate) site: Option<String>,
    /// How long a node may take to tell.
    pub(crate) patience: Duration,
}

pub(crate) struct Driver {
    nodes: Nodes,
    /// When they are asked for next; none while that is so.
    look: Option<Instant>,
    /// Who was asked first last.
    looked: usize,
    session: Session,
    /// The session's.
    secret: Secret,
    /// Those of the sessions whose sections are being resumed.
    resumed: HashMap<Ticket, (SessionId, Secret)>,
    names: SharedNames,
    site: String,
    uris: Vec<tonic::transport::Endpoint>,
    links: HashMap<Endpoint, Link>,
    /// By the id on the stream, which no two transmissions share.
    open: HashMap<u64, Transmission>,
    ids: HashMap<(Endpoint, u64), u64>,
    next_id: u64,
    waiting: HashMap<Ticket, oneshot::Sender<Ended>>,
    sections: HashMap<SectionId, watch::Sender<Fate>>,
    news_in: UnboundedSender<News>,
    next_ticket: u64,
    events: Vec<Event>,
    account: SharedAccount,
    give_up: GiveUp,
    /// By endpoint: the last attempt to connect failed, and nothing was heard since.
    unreachable: Vec<bool>,
    /// Since when that is so of all.
    all_unreachable: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(
        (session, secret): (Session, Secret),
        names: SharedNames,
        (site, nodes): (String, Nodes),
        uris: Vec<tonic::transport::Endpoint>,
        (account, give_up): (SharedAccount, GiveUp),
    ) -> (Driver, UnboundedReceiver<News>) {
        let (news_in, news) = unbounded_channel();
        let driver = Driver {
            nodes,
            look: Some(Instant::now() + LOOK),
            looked: 0,
            session,
            secret,
            resumed: HashMap::new(),
            names,
            site,
            unreachable: vec![false; uris.len()],
            all_unreachable: None,
            account,
            give_up,
            uris,
            links: HashMap::new(),
            open: HashMap::new(),
            ids: HashMap::new(),
            next_id: 1,
            waiting: HashMap::new(),
            sections: HashMap::new(),
            news_in,
            next_ticket: u64::MAX,
            events: Vec::new(),
        };
        (driver, news)
    }

    /// Until all users are gone and everything that they left behind has ended.
    pub(crate) async fn run(
        mut self,
        mut commands: UnboundedReceiver<Command>,
        mut news: UnboundedReceiver<News>,
    ) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut arrived = Vec::with_capacity(BATCH);
        let mut users = true;
        while users || self.session.open() > 0 {
            let sleep = self.until_wake();
            tokio::select! {
                taken = commands.recv_many(&mut batch, BATCH), if users => users = taken > 0,
                _ = news.recv_many(&mut arrived, BATCH) => {}
                () = tokio::time::sleep(sleep) => {}
            }
            let now = clock::now();
            for command in batch.drain(..) {
                self.obey(now, command);
            }
            for item in arrived.drain(..) {
                self.hear(now, item);
            }
            if self.session.wake().is_some_and(|at| at <= now.monotonic) {
                self.session.tick(now, &mut self.events);
            }
            self.give_up(now);
            self.look();
            self.carry_out();
        }
    }

    fn until_wake(&self) -> Duration {
        let now = clock::now().monotonic;
        let wake = self.session.wake().map(|at| at.saturating_sub(now));
        let wake = Duration::from_micros(wake.unwrap_or(60_000_000).min(60_000_000));
        let look = self
            .look
            .map(|at| at.saturating_duration_since(Instant::now()));
        let wake = look.map_or(wake, |look| wake.min(look));
        match (self.all_unreachable, self.give_up.unreachable) {
            (Some(since), Some(patience)) if !self.waiting.is_empty() => {
                wake.min(patience.saturating_sub(since.elapsed()))
            }
            _ => wake,
        }
    }

    /// Ends every open operation once all nodes have refused connections for as long as the options
    /// allow (`unreachable_timeout`).
    fn give_up(&mut self, now: Now) {
        let (Some(since), Some(patience)) = (self.all_unreachable, self.give_up.unreachable) else {
            return;
        };
        if since.elapsed() >= patience && !self.waiting.is_empty() {
            let detail = "No node can be reached.";
            let refusal = Refusal::definite(Code::Unavailable, detail);
            self.session.give_up(now, &refusal, &mut self.events);
        }
    }

    /// Asks some nodes who is in the cluster now, once in a while.
    fn look(&mut self) {
        if self.look.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.look = None;
        let known = discovery::locked(&self.nodes.known);
        // Where all are gone that are known to be there, somebody who has left may know.
        let mut all: Vec<usize> = (0..known.len()).collect();
        all.rotate_left(self.looked % known.len().max(1));
        all.sort_by_key(|at| self.unreachable.get(*at) == Some(&true));
        all.truncate(LOOKED_AT);
        self.looked += all.len();
        let uris: Vec<String> = all.iter().map(|at| known[*at].endpoint.clone()).collect();
        drop(known);
        let (news, patience) = (self.news_in.clone(), self.nodes.patience);
        let dial = self.nodes.dial.clone();
        tokio::spawn(async move {
            let info = discovery::again(&dial, uris, patience).await;
            // Without a client nobody wants to know.
            let _gone = news.send(News::Cluster(info));
        });
    }

    /// Some node has said who is in the cluster, or none.
    fn learn(&mut self, info: Option<v1::ClusterInfo>) {
        let silent = info.is_none() || self.all_unreachable.is_some();
        self.look = Some(Instant::now() + if silent { LOOK_AGAIN } else { LOOK });
        let Some(mut info) = info else { return };
        // Nodes that others name badly are of no use.
        let dial = &self.nodes.dial;
        info.nodes
            .retain(|node| dial.endpoint(&dial.uri(&node.grpc)).is_ok());
        let mut nodes = discovery::locked(&self.nodes.known);
        let before = nodes.len();
        let order = discovery::learn(dial, &mut nodes, info, self.nodes.site.as_deref());
        for node in nodes.iter().skip(before) {
            if let Ok(uri) = dial.endpoint(&node.endpoint) {
                self.uris.push(uri);
                self.unreachable.push(false);
                account::locked(&self.account).add(account::who(node));
            }
        }
        for (unreachable, node) in self.unreachable.iter_mut().zip(nodes.iter()) {
            *unreachable |= node.left;
        }
        drop(nodes);
        self.prefer(order);
    }

    fn is_reachable(&mut self, endpoint: Endpoint, reachable: bool) {
        if let Some(known) = self.unreachable.get_mut(endpoint.0 as usize) {
            *known = !reachable;
        }
        let before = self.all_unreachable;
        self.all_unreachable = match self.unreachable.iter().all(|unreachable| *unreachable) {
            true => self.all_unreachable.or_else(|| Some(Instant::now())),
            false => None,
        };
        if before.is_none() && self.all_unreachable.is_some() && self.look.is_some() {
            self.look = Some(Instant::now());
        }
    }

    fn note(&self, endpoint: Endpoint, said: impl Into<String>) {
        account::locked(&self.account).note(endpoint.0 as usize, said);
    }

    fn obey(&mut self, now: Now, command: Command) {
        match command {
            Command::Call(ticket, call, ended) => {
                self.waiting.insert(ticket, ended);
                if let Call::Leave { section, .. } | Call::PutAndLeave { section, .. } = &call {
                    self.sections.remove(section);
                }
                self.session.call(now, ticket, call, &mut self.events);
            }
            Command::Resume(ticket, held, secret, ended) => {
                let of = secret.session();
                self.resumed.insert(ticket, (of, secret));
                self.obey(now, Command::Call(ticket, Call::Resume { held, of }, ended));
            }
            Command::Cancel(ticket) => self.session.cancel(now, ticket, &mut self.events),
            Command::Leave(section) => self.leave(now, section),
            Command::Lease(section, tell) => {
                let mut sections = self.session.sections().into_iter();
                let found = sections.find(|info| info.id == section);
                // Whoever has gone needs no answer.
                let _gone = tell.send(found.map_or(0, |info| info.lease_until));
            }
        }
    }

    /// A leave that nobody waits for. Its ticket counts down from the top, users' tickets up.
    fn leave(&mut self, now: Now, section: SectionId) {
        self.sections.remove(&section);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket -= 1;
        let wait = false;
        let call = Call::Leave { section, wait };
        self.session.call(now, ticket, call, &mut self.events);
    }

    fn hear(&mut self, now: Now, news: News) {
        match news {
            News::Reply(link, message) => self.reply(now, link, message),
            News::Cluster(info) => self.learn(info),
            News::Down { link, why } => {
                self.is_reachable(link.0, !matches!(why, Why::NotReached(_)));
                self.note(link.0, why.sentence());
                self.down(now, link, why);
            }
        }
    }

    fn reply(&mut self, now: Now, link: LinkId, message: v1::SessionReply) {
        match message.reply {
            Some(v1::session_reply::Reply::Leaving(_)) => return self.part(link),
            Some(v1::session_reply::Reply::Cluster(info)) => return self.learn(Some(info)),
            _ => {}
        }
        self.is_reachable(link.0, true);
        let Some(transmission) = self.open.get_mut(&message.id) else {
            return;
        };
        if transmission.link != link {
            return;
        }
        transmission.heard = true;
        let (number, follows) = (transmission.number, transmission.follows);
        let reply = match message.reply {
            Some(wire) => convert::reply_from_proto(wire, &mut names(&self.names)),
            // An answer of a later version, of which nothing is known but that it came.
            None => return,
        };
        let reply = reply.unwrap_or_else(Reply::Refused);
        self.note(link.0, in_words(&reply));
        let goes_on = match &reply {
            Reply::Queued { .. } | Reply::Stalled { .. } => true,
            Reply::Entered { .. } => follows,
            _ => false,
        };
        if !goes_on {
            self.forget(message.id);
        }
        self.session
            .on_reply(now, link.0, number, reply, &mut self.events);
    }

    /// A node stops, or hands over what it leads. What was sent there is answered on the connection
    /// that is left behind; what comes is sent elsewhere, to whoever the others say is there.
    fn part(&mut self, link: LinkId) {
        if self.links.get(&link.0).is_some_and(|l| l.id == link) {
            self.links.remove(&link.0);
        }
        let mut nodes = discovery::locked(&self.nodes.known);
        let order = discovery::part(&mut nodes, link.0.0 as usize, self.nodes.site.as_deref());
        drop(nodes);
        self.prefer(order);
        // Those who are asked at once may not have heard of it.
        if self.look.is_some() {
            self.look = Some(Instant::now() + LOOK_AGAIN);
        }
    }

    fn prefer(&mut self, order: Vec<usize>) {
        let order = order.into_iter().filter_map(|at| u32::try_from(at).ok());
        let order: Vec<Endpoint> = order.map(Endpoint).collect();
        self.session.prefer(&order);
    }

    fn down(&mut self, now: Now, link: LinkId, why: Why) {
        let current = self.links.get(&link.0).is_some_and(|l| l.id == link);
        if current {
            self.links.remove(&link.0);
        }
        let on_it = self.open.iter().filter(|(_, t)| t.link == link);
        let mut lost: Vec<(u64, u64)> = on_it.map(|(id, t)| (*id, t.number)).collect();
        lost.sort_unstable();
        if why == Why::TooLong {
            self.refuse_longest(now, link);
            lost.retain(|(id, _)| self.open.contains_key(id));
        }
        if let Why::Refused(refusal) = why {
            for (id, number) in lost {
                self.forget(id);
                let reply = Reply::Refused(refusal.clone());
                self.session
                    .on_reply(now, link.0, number, reply, &mut self.events);
            }
            self.session.deny(now, &mut self.events);
            return;
        }
        let failure = match why {
            Why::NotReached(_) => Failure::NotSent,
            Why::Broken(_) | Why::TooLong | Why::Refused(_) => Failure::Broken,
        };
        for (id, number) in lost {
            self.forget(id);
            self.session
                .on_failure(now, link.0, number, failure, &mut self.events);
        }
    }

    /// The node has stopped at a message that it does not read. Since it is open, and no open one
    /// is longer than the longest, that one will never be read either: it is refused, so that it is
    /// not repeated. The others are.
    fn refuse_longest(&mut self, now: Now, link: LinkId) {
        let on_it = self.open.iter().filter(|(_, t)| t.link == link);
        let longest = on_it.max_by_key(|(id, t)| (t.size, **id));
        let Some((id, transmission)) = longest.filter(|(_, t)| t.size > ALWAYS_READ) else {
            return;
        };
        let (id, number, size) = (*id, transmission.number, transmission.size);
        self.forget(id);
        let detail =
            format!("The node does not read a message of {size} bytes; write a smaller value.");
        let refusal = Reply::Refused(Refusal::definite(Code::TooLarge, detail));
        self.session
            .on_reply(now, link.0, number, refusal, &mut self.events);
    }

    fn forget(&mut self, id: u64) {
        if let Some(transmission) = self.open.remove(&id) {
            let key = (transmission.link.0, transmission.number);
            if self.ids.get(&key) == Some(&id) {
                self.ids.remove(&key);
            }
        }
    }

    fn carry_out(&mut self) {
        while !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                match event {
                    Event::Send { endpoint, request } => self.send(endpoint, &request),
                    Event::Close { endpoint, number } => self.close(endpoint, number),
                    Event::Done { ticket, result } => self.done(ticket, result),
                    // A lease that ran out makes gets dearer, and nothing else; the next heartbeat
                    // tells whether the section is lost.
                    Event::Queued { .. } | Event::LeaseExpired { .. } => {}
                    Event::SectionLost { section, reason } => {
                        if let Some(fate) = self.sections.remove(&section) {
                            fate.send_replace(Fate::Lost(reason));
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self, endpoint: Endpoint, request: &Request) {
        let id = self.next_id;
        self.next_id += 1;
        let link = self.link(endpoint);
        let follows = matches!(
            request.operation,
            Operation::Enter { follow: true, .. } | Operation::Resume { .. }
        );
        let secret = |session| self.secret_of(session);
        let wire = convert::operation_to_proto(request, &secret, &names(&self.names), &self.site);
        let number = request.number;
        let operation = Some(wire);
        let frame = v1::SessionRequest { id, operation };
        let transmission = Transmission {
            link: link.0,
            number,
            follows,
            size: fermata_api::encoded_len(&frame),
            since: Instant::now(),
            heard: false,
        };
        self.open.insert(id, transmission);
        self.ids.insert((endpoint, number), id);
        // A connection that has just ended reports it, and takes this transmission with it.
        let _ = link.1.send(frame);
    }

    /// The secret of a session: of one that is being resumed, or this client's.
    fn secret_of(&self, session: SessionId) -> Secret {
        let mut resumed = self.resumed.values();
        let found = resumed.find(|(of, _)| *of == session);
        found.map_or(self.secret, |(_, secret)| *secret)
    }

    /// The connection to an endpoint, begun if there is none.
    fn link(&mut self, endpoint: Endpoint) -> (LinkId, UnboundedSender<v1::SessionRequest>) {
        let (uris, news, next) = (&self.uris, &self.news_in, self.next_id);
        let dial = &self.nodes.dial;
        let link = self.links.entry(endpoint).or_insert_with(|| {
            let id = (endpoint, next);
            let (requests, outgoing) = unbounded_channel();
            let uri = uris[endpoint.0 as usize].clone();
            let to = (dial.clone(), uri);
            tokio::spawn(link::run(id, to, outgoing, news.clone()));
            Link { id, requests }
        });
        (link.id, link.requests.clone())
    }

    fn close(&mut self, endpoint: Endpoint, number: u64) {
        let Some(id) = self.ids.get(&(endpoint, number)).copied() else {
            return;
        };
        if let Some(unanswered) = self.open.get(&id).filter(|t| !t.heard) {
            let waited = unanswered.since.elapsed();
            self.note(endpoint, account::no_answer(waited));
        }
        self.forget(id);
        if let Some(link) = self.links.get(&endpoint) {
            // As above: a dead connection has nothing to cancel.
            let _ = link.requests.send(link::cancel(id));
        }
    }

    fn done(&mut self, ticket: Ticket, result: Result<Success, Refusal>) {
        self.resumed.remove(&ticket);
        let result = result.map_err(|refusal| self.with_account(refusal));
        let (section, fate) = match &result {
            Ok(Success::Entered { section, .. }) => {
                let (tell, fate) = watch::channel(Fate::Held);
                self.sections.insert(*section, tell);
                (Some(*section), Some(fate))
            }
            _ => (None, None),
        };
        let unheard = match self.waiting.remove(&ticket) {
            Some(ended) => ended.send((result, fate)).is_err(),
            None => true,
        };
        // Entered for somebody who has gone.
        if let (true, Some(section)) = (unheard, section) {
            self.leave(clock::now(), section);
        }
    }

    /// A refusal for want of an answer tells who was asked and what each said.
    fn with_account(&self, refusal: Refusal) -> Refusal {
        // A little longer than the operation lasted.
        let within = self.give_up.request + Duration::from_secs(1);
        let sentence = refusal.detail.trim_end_matches('.');
        let said = account::locked(&self.account).sentence(within, sentence);
        if refusal.code != Code::Unavailable || said.is_empty() {
            return refusal;
        }
        Refusal {
            detail: format!("{sentence} (asked {said})."),
            ..refusal
        }
    }
}

/// What a reply says of its node: that it is there, or why it could not do what was asked.
fn in_words(reply: &Reply) -> String {
    match reply {
        Reply::Refused(refusal)
            if matches!(
                refusal.code,
                Code::Unavailable | Code::Busy | Code::DiskFull
            ) =>
        {
            refusal.detail.trim_end_matches('.').to_owned()
        }
        Reply::Stalled { .. } => "no quorum so far".to_owned(),
        _ => "answered".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{KeyId, KeyspaceId, SiteId};
    use fermata_protocol::client::Options;

    const AT: Endpoint = Endpoint(0);

    #[tokio::test]
    async fn a_message_that_a_node_does_not_read_is_refused_and_what_can_be_is_repeated() {
        let mut dictionary = Names::default();
        let keyspace = dictionary.add_keyspace("default");
        // Nobody is there: the connection stays in its first attempt.
        let uri = tonic::transport::Endpoint::from_static("http://127.0.0.1:1");
        let secret = Secret::new(7);
        let session = Session::new(secret.session(), SiteId(0), &[AT], Options::default());
        let names = Arc::new(Mutex::new(dictionary));
        let account = Arc::new(Mutex::new(account::Account::new([String::from("a")])));
        let give_up = GiveUp {
            request: Duration::from_secs(10),
            unreachable: None,
        };
        let told = (account, give_up);
        let session = (session, secret);
        let nodes = Nodes {
            known: Arc::default(),
            dial: Dial::default(),
            site: None,
            patience: Duration::ZERO,
        };
        let own = (String::new(), nodes);
        let (mut driver, _news) = Driver::new(session, names, own, vec![uri], told);
        let mut ends = Vec::new();
        for (ticket, size) in [(1, 0), (2, 3 << 20), (3, 2 << 20), (4, 0)] {
            let call = match size {
                0 => Call::Keyspaces,
                size => put(keyspace, size),
            };
            let (tell, ended) = oneshot::channel();
            driver.obey(clock::now(), Command::Call(Ticket(ticket), call, tell));
            driver.carry_out();
            ends.push(ended);
        }
        let link = driver.links[&AT].id;
        driver.down(clock::now(), link, Why::TooLong);
        driver.carry_out();
        let (refused, _) = ends[1].try_recv().expect("it has ended");
        let refusal = refused.expect_err("it is too long");
        assert_eq!(refusal.code, Code::TooLarge);
        assert!(!refusal.may_have_taken_effect);
        // It may have been received: nobody sends it again.
        let (unknown, _) = ends[2].try_recv().expect("it has ended");
        assert!(unknown.expect_err("silence").may_have_taken_effect);
        for open in [0, 3] {
            assert!(ends[open].try_recv().is_err(), "{open} goes on");
        }
        assert_eq!(driver.session.open(), 2);
    }

    fn put(keyspace: KeyspaceId, size: usize) -> Call {
        let key = KeyId {
            keyspace,
            key: "k".into(),
        };
        let value = Some(vec![0; size].into());
        Call::Put { key, value }
    }
}
