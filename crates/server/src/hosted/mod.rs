//! Sessions that the node keeps for clients that keep none themselves.
//!
//! **Problem.** A client has to number its requests and its writes, to repeat what has no answer,
//! to renew its leases, and to know when it may leave clean. Where nobody has written that for a
//! language, programs would do it by hand, each a little wrong (M2: numbers; F5: clean leaves; F16:
//! restarts).
//!
//! **Idea.** The node that is asked does it, by the same machine as the client library and the
//! simulator: a [`Session`], whose only endpoint is the node's own [`Porter`]. It is in memory
//! alone, so that its client needs two things after the death of its node: the session's secret,
//! and the refs that the entry told. With them it resumes its sections in a session at another
//! node. The former one can do no harm, if it still lives: its writes are of an older generation
//! (F16).
//!
//! **Users.** The gRPC [`service`], whose clients name a session by its secret; and MUSIC's face
//! ([`crate::music`]), whose locks and calls have a session for one section each, which they hold
//! in a [`Kept`]. So has a change under a condition, over gRPC and REST ([`own`]).
//!
//! **Life.** A session lives while a stream of it is open, or a call, and for its idle time
//! afterwards; then its sections are left, as cleanly as its account allows. One that is kept for
//! one section ends with that, or when nobody holds its [`Kept`] any more. A node that stops leaves
//! sections to whoever resumes them. So does one that drains while another does not, as soon as the
//! session's calls are answered: whoever has a stream is told, and nobody opens a session there.
//! One who waits is told so once entered, for a place in a queue cannot be resumed by a client that
//! was not told its ref.
//!
//! **Bounds.** So many sessions per node (`clients.sessions`), which is looked at before anything
//! is made; so many operations open in each; their values count among the node's bytes of requests.
//! Sessions that last as long as a call are bounded by the calls.

mod keeper;
pub(crate) mod own;
pub(crate) mod service;

use crate::access::{Caller, Used, Who};
use crate::metrics::Metrics;
use crate::porter::Porter;
use bytes::Bytes;
use fermata_protocol::base::{Micros, SessionId};
use fermata_protocol::client::{Call, Options, SectionId, Session, Success, Ticket};
use fermata_protocol::request::Entered;
use fermata_protocol::{Code, Refusal};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// A session's place among those that a node may keep: given back when it is dropped.
pub(crate) struct Place {
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
    /// Against the caller's quota.
    _used: Option<Used>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.session(false);
    }
}

/// The answer to a call.
type Answered = Result<Success, Refusal>;

/// Where the answer to a call comes. Nothing comes once the session has ended.
pub(crate) type Awaited = oneshot::Receiver<Answered>;

/// What a session is asked for.
#[derive(Debug)]
enum Command {
    /// One answer. The permit is for the call's bytes.
    Call(
        Call,
        oneshot::Sender<Answered>,
        Option<OwnedSemaphorePermit>,
    ),
    /// To enter or to resume, with a stream of what happens.
    Follow(Ticket, Call, mpsc::Sender<Result<Told, Refusal>>),
    /// Nobody reads that stream any more.
    Gone(Ticket),
    /// Somebody is here.
    Touch,
    /// End, and leave everything to whoever resumes it; what comes of it is dropped by then.
    Quit(oneshot::Sender<Answered>),
    /// Leave everything and end.
    Close(oneshot::Sender<Answered>),
}

/// What a stream is told.
#[derive(Debug)]
enum Told {
    Queued(u32),
    Entered(SectionId, Vec<Entered>),
    Lost,
}

/// How a session ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// After so long without a word.
    pub(crate) idle: Micros,
    /// With its one section.
    pub(crate) one: bool,
}

/// A session, for whoever it is kept for. When the last copy is gone it ends, and leaves what it
/// holds.
#[derive(Clone)]
pub(crate) struct Kept {
    id: SessionId,
    /// Whose it is; none: nobody's that has a name.
    owner: Option<Arc<str>>,
    /// In whose name it asks: what that one has shown last.
    caller: Arc<Mutex<Caller>>,
    porter: Arc<Porter>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Kept {
    /// Its name.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// The node, for whoever it is kept for.
    pub(crate) fn owner(&self) -> Caller {
        let who = self.owner.clone().map_or(Who::Node, Who::For);
        Caller {
            who,
            ..Caller::NODE
        }
    }

    /// Whether it is a caller's own, where that matters.
    pub(crate) fn is_of(&self, caller: &Caller) -> bool {
        self.owner.as_deref() == caller.principal() || !self.porter.access.is_enabled()
    }

    /// Whether it has ended, or leaves what it holds to end.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed()
    }

    /// Somebody speaks of it: its idle time begins anew.
    pub(crate) fn touch(&self) {
        // One that has ended has no idle time.
        let _ = self.commands.send(Command::Touch);
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// [`Code::Busy`]: the node has no room for the call's value; nothing was done.
    pub(crate) fn begin(&self, call: Call) -> Result<Awaited, Refusal> {
        let value = match &call {
            Call::CriticalPut { value, .. } | Call::PutAndLeave { value, .. } => value.as_ref(),
            _ => None,
        };
        let permit = match value.map_or(0, Bytes::len) {
            0 => None,
            bytes => Some(self.porter.admit_bytes(bytes)?),
        };
        Ok(self.command(|tell| Command::Call(call, tell, permit)))
    }

    /// Asks for one answer.
    pub(crate) async fn ask(&self, call: Call) -> Answered {
        self.told(self.begin(call)?.await)
    }

    /// What came, or why nothing came.
    pub(crate) fn told(&self, came: Result<Answered, oneshot::error::RecvError>) -> Answered {
        came.unwrap_or_else(|_| {
            Err(match self.porter.is_closing() {
                true => crate::porter::stopping(),
                false => not_kept(&self.porter),
            })
        })
    }

    /// Ends it, once what it was asked is answered, and leaves what it holds to whoever resumes it,
    /// with the lease given back.
    /// Returns when it can do nothing any more.
    pub(crate) async fn quit(&self) {
        // Whatever it says, it has ended.
        let _ = self.command(Command::Quit).await;
    }

    fn command(&self, command: impl FnOnce(oneshot::Sender<Answered>) -> Command) -> Awaited {
        let (tell, told) = oneshot::channel();
        // One that has ended drops what it is asked, which tells.
        let _ = self.commands.send(command(tell));
        told
    }
}

/// The sessions of one node.
pub(crate) struct Hosted {
    pub(crate) porter: Arc<Porter>,
    /// How many more may be kept.
    places: Arc<Semaphore>,
    /// Those that are found by their secrets.
    open: Mutex<HashMap<SessionId, Kept>>,
    /// Of streams: users of one session do not share them.
    tickets: AtomicU64,
}

impl Hosted {
    /// At most so many sessions.
    pub(crate) fn new(porter: Arc<Porter>, most: usize) -> Hosted {
        Hosted {
            porter,
            places: Arc::new(Semaphore::new(most)),
            open: Mutex::default(),
            tickets: AtomicU64::new(1),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Kept>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// A place for one more session.
    ///
    /// # Errors
    /// [`Code::Busy`] where the node keeps as many as it may, or the caller has.
    pub(crate) fn place(&self, caller: &Caller) -> Result<Place, Refusal> {
        let used = self.porter.access.session(caller)?;
        let permit = self.places.clone().try_acquire_owned().map_err(|_| {
            let detail = "this node keeps as many sessions as it may (clients.sessions): ask \
                          another node, or later";
            Refusal::definite(Code::Busy, detail)
        })?;
        let metrics = self.porter.metrics.clone();
        metrics.session(true);
        Ok(Place {
            metrics,
            _permit: permit,
            _used: used,
        })
    }

    /// Keeps a session for a caller from now on; its place is given back once it has nothing to do
    /// but to leave.
    pub(crate) fn keep(
        self: &Arc<Self>,
        caller: &Caller,
        (id, options): (SessionId, Options),
        life: Life,
        place: Option<Place>,
    ) -> Kept {
        let session = Session::new(id, self.porter.home, &[keeper::HERE], options.hosted());
        let owner = caller.principal().map(Into::into);
        let (commands, asked) = mpsc::unbounded_channel();
        let caller = Arc::new(Mutex::new(caller.clone()));
        let asks = (session, caller.clone());
        tokio::spawn(keeper::keep(self.clone(), asks, life, asked, place));
        let porter = self.porter.clone();
        Kept {
            id,
            owner,
            caller,
            porter,
            commands,
        }
    }

    /// The session that a secret proves, of the caller's own principal.
    ///
    /// # Errors
    /// It is not kept here, for that principal.
    fn find(&self, caller: &Caller, session: SessionId) -> Result<Kept, Refusal> {
        self.porter.access.admit(caller)?;
        let found = self.open().get(&session).cloned();
        let found = found.filter(|kept| kept.is_of(caller));
        if let Some(kept) = &found {
            let mut last = kept.caller.lock().unwrap_or_else(PoisonError::into_inner);
            *last = caller.clone();
        }
        found.ok_or_else(|| not_kept(&self.porter))
    }

    /// Forgets a session: nobody finds it any more.
    fn forget(&self, session: SessionId) {
        self.open().remove(&session);
    }
}

fn not_kept(porter: &Porter) -> Refusal {
    if porter.hands_over() {
        return porter.draining();
    }
    Refusal::definite(
        Code::NotHolder,
        "this node keeps no session of that secret, since it has ended or the node was started \
         again: open one, and resume the sections of the former in it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Audit;
    use crate::mailbox::{Event, Mailbox};
    use crate::metrics::Metrics;
    use crate::porter::Backend;
    use fermata_api::Secret;
    use fermata_protocol::Reply;
    use fermata_protocol::base::{KeyId, KeyspaceId, LockRef};
    use fermata_protocol::request::{Held, Mode, Operation};
    use std::time::Duration;

    #[tokio::test]
    async fn a_stop_leaves_sections_to_whoever_resumes_them() {
        check_stop(Porter::close).await;
    }

    /// Those who are to be told of a stop are told one after the other.
    #[tokio::test]
    async fn a_stop_of_which_the_faces_hear_first_leaves_sections_too() {
        check_stop(Porter::close_untold).await;
    }

    async fn check_stop(close: impl Fn(&Porter)) {
        const SECTIONS: usize = 32;
        let mailbox = Arc::new(Mailbox::default());
        let backend = Backend::Driver(mailbox.clone());
        let resolved = crate::config::tests::config().resolve().unwrap();
        let metrics = Arc::new(Metrics::new());
        let audit = Audit::start(&resolved.audit, "n").unwrap();
        let porter = Porter::new(
            backend,
            metrics.clone(),
            &resolved,
            Secret::new(1),
            (None, audit),
        );
        let hosted = Arc::new(Hosted::new(Arc::new(porter), SECTIONS));
        let key = KeyId {
            keyspace: KeyspaceId(1),
            key: Bytes::from_static(b"k"),
        };
        let life = Life {
            idle: 3_600_000_000,
            one: true,
        };
        let mut sections = Vec::new();
        for number in 1..=SECTIONS {
            let id = SessionId(number as u128);
            let kept = hosted.keep(&Caller::NODE, (id, Options::default()), life, None);
            let enter = Call::Enter {
                keys: vec![key.clone()],
                mode: Mode::Exclusive,
                wait: 0,
                lease: None,
            };
            sections.push((kept.begin(enter).unwrap(), kept));
        }
        tokio::task::yield_now().await;
        let mut events = Vec::new();
        mailbox.take(&mut events, Duration::ZERO);
        assert_eq!(events.len(), SECTIONS);
        for event in events.drain(..) {
            let Event::Request(_, request, call) = event else {
                panic!("an enter");
            };
            let held = vec![Held {
                key: key.clone(),
                lock_ref: LockRef(request.session.0 as u64),
                generation: 0,
            }];
            assert!(call.tell(Reply::Queued { held, ahead: 1 }, &metrics));
        }
        let mut kept = Vec::new();
        for (waits, section) in sections {
            assert!(matches!(waits.await, Ok(Ok(Success::Waiting { .. }))));
            kept.push(section);
        }
        // The faces end as soon as they are told, and with them whoever kept the sections.
        close(&hosted.porter);
        drop(kept);
        while Arc::strong_count(&hosted) > 1 {
            tokio::task::yield_now().await;
        }
        mailbox.take(&mut events, Duration::ZERO);
        let leaves = events.iter().filter(|event| {
            matches!(event, Event::Request(_, request, _)
                if matches!(request.operation, Operation::Leave { .. }))
        });
        assert_eq!(leaves.count(), 0);
    }
}
