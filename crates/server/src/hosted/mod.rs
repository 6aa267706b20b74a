//! Sessions that the node keeps for clients which keep none themselves.
//!
//! **Problem.** A client has to number its requests and its writes, to repeat what has no answer,
//! to renew its leases, and to know when it may leave clean. Where nobody has written that for a
//! language, programs would do it by hand, each a little wrong (M2: numbers; F5: clean leaves; F16:
//! restarts).
//!
//! **Idea.** The node that is asked does it, by the same machine as the client library and the
//! simulator: a [`Session`](fermata_protocol::client::Session), whose only endpoint is the node's
//! own [`Gate`]. It is in memory alone, so that its client needs two things after the death of its
//! node: the session's secret, and the refs that the entry told. With them it resumes its sections
//! in a session at another node. The former one can do no harm, if it still lives: what it sends
//! is of an older generation (F16).
//!
//! **Life.** A session lives while a stream of it is open, or a call, and for its idle time
//! afterwards; then its sections are left, as cleanly as its account allows. A node that stops
//! leaves them to whoever resumes them.
//!
//! **Bounds.** So many sessions per node (`clients.sessions`), which is looked at before anything
//! is made; so many operations open in each; their values count among the node's bytes of requests.

mod keeper;
pub(crate) mod service;

use crate::gate::Gate;
use fermata_api::Secret;
use fermata_protocol::base::{Micros, SessionId};
use fermata_protocol::client::{Call, SectionId, Success, Ticket};
use fermata_protocol::request::Entered;
use fermata_protocol::{Code, Refusal};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// The shortest, the usual and the longest idle time.
const IDLE: [Micros; 3] = [1_000_000, 10_000_000, 3_600_000_000];

/// What a session is asked for.
enum Command {
    /// One answer. The permit is for the call's bytes.
    Call(
        Call,
        oneshot::Sender<Result<Success, Refusal>>,
        Option<OwnedSemaphorePermit>,
    ),
    /// To enter or to resume, with a stream of what happens.
    Follow(Ticket, Call, mpsc::Sender<Result<Told, Refusal>>),
    /// Nobody reads that stream any more.
    Gone(Ticket),
    /// Leave everything and end.
    Close(oneshot::Sender<Result<Success, Refusal>>),
}

/// What a stream is told.
#[derive(Debug)]
enum Told {
    Queued(u32),
    Entered(SectionId, Vec<Entered>),
    Lost,
}

/// Who keeps a session.
type Keeper = mpsc::UnboundedSender<Command>;

/// The sessions of one node.
pub(crate) struct Hosted {
    gate: Arc<Gate>,
    most: usize,
    kept: Mutex<HashMap<SessionId, Keeper>>,
    /// Of streams: users of one session do not share them.
    tickets: AtomicU64,
}

impl Hosted {
    /// At most so many sessions.
    pub(crate) fn new(gate: Arc<Gate>, most: usize) -> Hosted {
        Hosted {
            gate,
            most,
            kept: Mutex::default(),
            tickets: AtomicU64::new(1),
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<SessionId, Keeper>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// A new session, with its secret and idle time.
    ///
    /// # Errors
    /// [`Code::Busy`] where the node keeps as many as it may.
    fn open(self: &Arc<Self>, idle: Micros) -> Result<(Secret, Micros), Refusal> {
        let idle = match idle {
            0 => IDLE[1],
            given if (IDLE[0]..=IDLE[2]).contains(&given) => given,
            _ => {
                let detail = "idle_us is 1 s to 1 h, or 0 for 10 s; no session was opened";
                return Err(Refusal::definite(Code::BadRequest, detail));
            }
        };
        let mut kept = self.kept();
        if kept.len() >= self.most {
            let detail = "this node keeps as many sessions as it may (clients.sessions): open one \
                          at another node, or later";
            return Err(Refusal::definite(Code::Busy, detail));
        }
        let secret = self.gate.draw_secret();
        let (keeper, commands) = mpsc::unbounded_channel();
        kept.insert(secret.session(), keeper);
        drop(kept);
        tokio::spawn(keeper::keep(self.clone(), secret.session(), idle, commands));
        Ok((secret, idle))
    }

    /// The session that a secret proves.
    ///
    /// # Errors
    /// It is not kept here.
    fn find(&self, session: SessionId) -> Result<Keeper, Refusal> {
        self.kept().get(&session).cloned().ok_or_else(|| {
            Refusal::definite(
                Code::NotHolder,
                "this node keeps no session of that secret, since it has ended or the node was \
                 started again: open one, and resume the sections of the former in it",
            )
        })
    }

    /// Forgets a session: nobody finds it any more.
    fn forget(&self, session: SessionId) {
        self.kept().remove(&session);
    }

    /// Asks a session for one answer.
    async fn ask(
        &self,
        session: SessionId,
        command: impl FnOnce(oneshot::Sender<Result<Success, Refusal>>) -> Command,
    ) -> Result<Success, Refusal> {
        let (tell, told) = oneshot::channel();
        let keeper = self.find(session)?;
        // Whoever keeps it and ends drops what it was asked, which tells.
        let _ = keeper.send(command(tell));
        told.await.unwrap_or_else(|_| Err(crate::gate::stopping()))
    }
}
