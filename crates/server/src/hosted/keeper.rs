//! The task of one session: it drives the machine with calls, answers and time, as the client
//! library's driver does, but without a network.

use super::{Answered, Command, Hosted, Life, Place, Told};
use crate::access::Caller;
use crate::clock;
use crate::porter::{Open, is_last, kind, stopping};
use fermata_protocol::base::{Micros, Now};
use fermata_protocol::client::{Call, Endpoint, Event, SectionId, Session, Success, Ticket};
use fermata_protocol::{Refusal, Reply, Request};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// The node itself.
pub(super) const HERE: Endpoint = Endpoint(0);

/// Places of a stream that are kept for its entry and its end, however slowly it is read.
const LAST: usize = 2;

/// Who waits for an operation.
enum Waiter {
    Call {
        tell: oneshot::Sender<Answered>,
        /// For the call's bytes, as long as the session may send them.
        _permit: Option<OwnedSemaphorePermit>,
    },
    Stream(mpsc::Sender<Result<Told, Refusal>>),
    /// Whoever reads of a section that goes on elsewhere: told so once its lease was given back.
    Moves(Option<mpsc::Sender<Result<Told, Refusal>>>),
}

/// One session.
struct Keeper {
    hosted: Arc<Hosted>,
    session: Session,
    /// In whose name it asks: whose session it is.
    caller: Arc<Mutex<Caller>>,
    /// Requests at the node, by transmission: a number may be sent twice.
    sent: HashMap<u64, (u64, (bool, bool), Open)>,
    next_sent: u64,
    answers: mpsc::Sender<(u64, Reply)>,
    waiting: BTreeMap<Ticket, Waiter>,
    /// The streams of sections entered.
    streams: BTreeMap<SectionId, mpsc::Sender<Result<Told, Refusal>>>,
    events: Vec<Event>,
    life: Life,
    /// Given back when it ends.
    place: Option<Place>,
    /// When somebody was here last.
    touched: Micros,
    /// It was asked for something.
    begun: bool,
    ending: bool,
    /// Its client is to go on elsewhere.
    moving: bool,
    /// Who waits for that.
    quits: Vec<oneshot::Sender<Answered>>,
}

/// Answers that may come at once: entered sections are told of their loss.
const ANSWERS: usize = 1_024;

/// Keeps a session until it has ended, or the node stops.
pub(super) async fn keep(
    hosted: Arc<Hosted>,
    (session, caller): (Session, Arc<Mutex<Caller>>),
    life: Life,
    mut commands: mpsc::UnboundedReceiver<Command>,
    place: Option<Place>,
) {
    let (answers, mut answered) = mpsc::channel(ANSWERS);
    let porter = hosted.porter.clone();
    let mut keeper = Keeper {
        session,
        caller,
        hosted,
        sent: HashMap::new(),
        next_sent: 1,
        answers,
        waiting: BTreeMap::new(),
        streams: BTreeMap::new(),
        events: Vec::new(),
        life,
        place,
        touched: clock::monotonic(),
        begun: false,
        ending: false,
        moving: false,
        quits: Vec::new(),
    };
    let (closed, drains) = (porter.closed(), porter.handing_over());
    tokio::pin!(closed, drains);
    // Nobody has a word for it any more.
    let mut alone = false;
    while !keeper.is_over() {
        let sleep = keeper.until_wake();
        tokio::select! {
            biased;
            // Before the commands: when a node stops, those who keep its sessions go at once, and
            // their going is no leave.
            () = &mut closed => break,
            Some((sent, reply)) = answered.recv() => keeper.hear(sent, reply),
            // One that is kept for one section moves with that, or ends with a call.
            () = &mut drains, if !life.one && !keeper.moving => keeper.give_up(),
            command = commands.recv(), if !keeper.ending && !alone => match command {
                // They may be told of the stop before this task is.
                _ if porter.is_closing() => break,
                Some(command) => keeper.obey(command),
                None if keeper.moving => alone = true,
                None => keeper.end(),
            },
            () = tokio::time::sleep(sleep) => {}
        }
        keeper.upkeep();
        keeper.carry_out();
        keeper.send_on();
        if keeper.ending {
            commands.close();
        }
    }
    keeper.hosted.forget(keeper.session.id());
    let entering = keeper.waiting.values().filter_map(|waiter| match waiter {
        Waiter::Stream(stream) | Waiter::Moves(Some(stream)) => Some(stream),
        Waiter::Call { .. } | Waiter::Moves(None) => None,
    });
    for stream in keeper.streams.values().chain(entering) {
        // A client that does not read is not told.
        let _ = stream.try_send(Err(stopping()));
    }
}

fn now() -> Now {
    Now {
        monotonic: clock::monotonic(),
        wall: clock::wall(),
        interval: None,
    }
}

impl Keeper {
    fn is_over(&self) -> bool {
        let spent = self.life.one && self.begun && self.session.sections().is_empty();
        let moved = self.moving && self.waiting.is_empty();
        (self.ending || spent || moved) && self.session.open() == 0
    }

    /// Whether somebody listens.
    fn is_attended(&self) -> bool {
        !self.waiting.is_empty() || !self.streams.is_empty()
    }

    fn until_wake(&self) -> Duration {
        let idle = (!self.ending && !self.is_attended()).then(|| self.touched + self.life.idle);
        let at = [self.session.wake(), idle].into_iter().flatten().min();
        let at = at.map_or(60_000_000, |at| at.saturating_sub(clock::monotonic()));
        Duration::from_micros(at.min(60_000_000))
    }

    fn obey(&mut self, command: Command) {
        self.touched = clock::monotonic();
        match command {
            // Its sections are given up already: who asks hears that it is kept here no more.
            Command::Call(..) if self.parts() => {}
            Command::Call(call, tell, _permit) => {
                let ticket = self.hosted.ticket();
                self.begun = true;
                self.waiting.insert(ticket, Waiter::Call { tell, _permit });
                if let Call::Leave { section, .. } | Call::PutAndLeave { section, .. } = &call {
                    self.streams.remove(section);
                }
                self.session.call(now(), ticket, call, &mut self.events);
            }
            Command::Follow(ticket, call, stream) => {
                self.waiting.insert(ticket, Waiter::Stream(stream));
                self.session.call(now(), ticket, call, &mut self.events);
            }
            Command::Gone(ticket) => {
                self.session.cancel(now(), ticket, &mut self.events);
                self.streams.retain(|_, stream| !stream.is_closed());
            }
            Command::Touch => {}
            Command::Quit(tell) => {
                self.give_up();
                // Dropped with everything else.
                self.quits.push(tell);
            }
            Command::Close(tell) => {
                self.end();
                // The leaves go on; the leases do the rest.
                let _ = tell.send(Ok(Success::Left));
            }
        }
    }

    /// The node drains: nobody finds the session any more, and its sections are left to whoever
    /// resumes them.
    fn give_up(&mut self) {
        self.hosted.forget(self.session.id());
        self.moving = true;
    }

    /// Whether it has begun to give its sections' leases back.
    fn parts(&self) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|waiter| matches!(waiter, Waiter::Moves(_)))
    }

    /// Of a session that goes on elsewhere: once what was asked here is answered, gives the leases
    /// of its sections back, so that nobody who resumes them waits, and tells their readers. One
    /// that waits for a client is told once it has entered.
    fn send_on(&mut self) {
        let asks = |waiter: &Waiter| matches!(waiter, Waiter::Call { .. });
        if !self.moving || self.waiting.values().any(asks) {
            return;
        }
        for section in self.session.sections() {
            if section.holds || self.life.one {
                let (ticket, section) = (self.hosted.ticket(), section.id);
                let stream = self.streams.remove(&section);
                self.waiting.insert(ticket, Waiter::Moves(stream));
                let call = Call::Relinquish { section };
                self.session.call(now(), ticket, call, &mut self.events);
            }
        }
        self.carry_out();
    }

    /// Leaves every section; then the session is over.
    fn end(&mut self) {
        self.hosted.forget(self.session.id());
        self.ending = true;
        self.place = None;
        let entering: Vec<Ticket> = self.waiting.keys().copied().collect();
        for ticket in entering {
            self.session.cancel(now(), ticket, &mut self.events);
        }
        for section in self.session.sections() {
            let ticket = self.hosted.ticket();
            let leave = Call::Leave {
                section: section.id,
                wait: false,
            };
            self.session.call(now(), ticket, leave, &mut self.events);
        }
        self.streams.clear();
    }

    fn upkeep(&mut self) {
        let now = now();
        if self.session.wake().is_some_and(|at| at <= now.monotonic) {
            self.session.tick(now, &mut self.events);
        }
        let idle = now.monotonic.saturating_sub(self.touched) >= self.life.idle;
        if self.is_attended() {
            self.touched = now.monotonic;
        } else if idle && !self.ending {
            self.end();
        }
    }

    fn hear(&mut self, sent: u64, reply: Reply) {
        let Some((number, (follow, poll), _)) = self.sent.get(&sent) else {
            return;
        };
        let number = *number;
        if is_last(&reply, *follow, *poll)
            && let Some((_, _, mut open)) = self.sent.remove(&sent)
        {
            open.finish();
        }
        self.session
            .on_reply(now(), HERE, number, reply, &mut self.events);
    }

    fn carry_out(&mut self) {
        while !self.events.is_empty() {
            for event in std::mem::take(&mut self.events) {
                match event {
                    Event::Send { request, .. } => self.send(request),
                    // Dropped, it is cancelled.
                    Event::Close { number, .. } => self.sent.retain(|_, (of, ..)| *of != number),
                    Event::Done { ticket, result } => self.done(ticket, result),
                    Event::Queued { ticket, ahead } => {
                        if let Some(Waiter::Stream(stream)) = self.waiting.get(&ticket)
                            && stream.capacity() > LAST
                        {
                            // A slow reader's place is told again when it changes.
                            let _ = stream.try_send(Ok(Told::Queued(ahead)));
                        }
                    }
                    Event::SectionLost { section, .. } => {
                        if let Some(stream) = self.streams.remove(&section) {
                            let _ = stream.try_send(Ok(Told::Lost));
                        }
                    }
                    Event::LeaseExpired { .. } => {}
                }
            }
        }
    }

    fn send(&mut self, request: Request) {
        let number = request.number;
        let kind = kind(&request.operation);
        let sent = self.next_sent;
        self.next_sent += 1;
        let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = Caller::clone(&caller);
        match self
            .hosted
            .porter
            .submit(&caller, request, sent, self.answers.clone())
        {
            Ok(open) => {
                self.sent.insert(sent, (number, kind, open));
            }
            Err(refusal) => {
                let reply = Reply::Refused(refusal);
                self.session
                    .on_reply(now(), HERE, number, reply, &mut self.events);
            }
        }
    }

    fn done(&mut self, ticket: Ticket, result: Result<Success, Refusal>) {
        self.touched = clock::monotonic();
        match self.waiting.remove(&ticket) {
            // A client that has gone is not told.
            Some(Waiter::Call { tell, .. }) => drop(tell.send(result)),
            Some(Waiter::Stream(stream)) => match result {
                Ok(Success::Entered { section, keys }) => {
                    match stream.try_send(Ok(Told::Entered(section, keys))) {
                        Ok(()) => drop(self.streams.insert(section, stream)),
                        // Entered for somebody who has gone.
                        Err(_) => self.leave(section),
                    }
                }
                Ok(_) => drop(stream.try_send(Err(crate::porter::unexpected(&Reply::Left)))),
                Err(refusal) => drop(stream.try_send(Err(refusal))),
            },
            // A client that does not read finds out when it asks.
            Some(Waiter::Moves(Some(stream))) => {
                drop(stream.try_send(Err(self.hosted.porter.draining())));
            }
            Some(Waiter::Moves(None)) => {}
            None => {}
        }
    }

    fn leave(&mut self, section: SectionId) {
        let (ticket, wait) = (self.hosted.ticket(), false);
        let leave = Call::Leave { section, wait };
        self.session.call(now(), ticket, leave, &mut self.events);
    }
}
