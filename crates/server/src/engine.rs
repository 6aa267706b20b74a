//! Requests on another engine than the native one: each is a task that runs it and passes its
//! answers on.
//!
//! **Problem.** The faces were made for the driver: an admitted request is put in, its answers come
//! to a sink, and a call that is dropped is cancelled. An engine over stores that others run has no
//! driver, no log and no disk here; it only waits for those stores, often for many requests at
//! once.
//!
//! **Idea.** One task per request. It owns the [`Call`] with its permits until the last answer, and
//! the engine's own future until that ends; to cancel is to abort it.
//!
//! **Invariants.** A request has one last answer: one that the engine ends without it is answered
//! here, as unknown. After the last answer the engine's future still runs to its end: only a call
//! that nobody waits for is given up. A stop waits for brief calls, at most [`GRACE`], and gives up
//! all others; their sinks go with them, which tells the askers that the node stops.

use crate::mailbox::Call;
use crate::metrics::Metrics;
use fermata_engine::Service;
use fermata_protocol::catalogue::Access;
use fermata_protocol::request::Operation;
use fermata_protocol::{Code, Refusal, Reply, Request};
use fermata_tls::Trust;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// How long a stop waits for requests that are open and brief.
const GRACE: Duration = Duration::from_secs(3);
/// How long the stores may take to say whether they have their quorums.
const HEALTH: Duration = Duration::from_secs(5);

/// An engine and the requests that are open on it.
pub(crate) struct Engine {
    service: Arc<dyn Service>,
    metrics: Arc<Metrics>,
    /// How many brief requests are open.
    brief: watch::Sender<usize>,
    /// True once nothing is served any more.
    ended: watch::Sender<bool>,
    /// The access policy as it was read last, or made here.
    access: watch::Sender<Option<Access>>,
    /// What the stores are shown; none: nodes speak to them in clear.
    pub(crate) stores: Option<Trust>,
}

/// Counts a request as open until it is dropped.
struct Counted {
    engine: Arc<Engine>,
    brief: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.engine.metrics.open_requests.decrement(1.0);
        self.engine.brief.send_modify(|open| *open -= self.brief);
    }
}

impl Engine {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        metrics: Arc<Metrics>,
        stores: Option<Trust>,
    ) -> Engine {
        Engine {
            service,
            metrics,
            brief: watch::Sender::new(0),
            ended: watch::Sender::new(false),
            access: watch::Sender::new(None),
            stores,
        }
    }

    /// Tells of each access policy that is learnt.
    pub(crate) fn access(&self) -> watch::Receiver<Option<Access>> {
        self.access.subscribe()
    }

    /// Learns of an access policy, which may be an old one.
    pub(crate) fn learn(&self, access: Access) {
        self.access.send_if_modified(|known| {
            let newer = (known.as_ref()).is_none_or(|known| known.version < access.version);
            if newer {
                *known = Some(access);
            }
            newer
        });
    }

    /// Begins a request; aborting it gives it up.
    pub(crate) fn start(self: &Arc<Engine>, request: Request, call: Call) -> AbortHandle {
        let brief = usize::from(!call.lasting);
        self.metrics.open_requests.increment(1.0);
        self.brief.send_modify(|open| *open += brief);
        let counted = Counted {
            engine: self.clone(),
            brief,
        };
        let task = async move {
            let engine = &counted.engine;
            let mut ended = engine.ended.subscribe();
            tokio::select! {
                biased;
                // The sender is here, so this is the end only.
                _ = ended.wait_for(|ended| *ended) => {}
                () = engine.answer(request, call) => {}
            }
        };
        tokio::spawn(task).abort_handle()
    }

    async fn answer(&self, request: Request, call: Call) {
        let (answers, mut told) = mpsc::unbounded_channel();
        let mut made = match &request.operation {
            Operation::ChangeAccess { after, policy } => Some(Access {
                version: after + 1,
                policy: policy.clone(),
            }),
            _ => None,
        };
        let mut serving = self.service.clone().serve(request, answers);
        let mut tell = Some(call);
        // Passes an answer on; after the last one the call is gone, and its permits with it.
        let mut pass = |reply: Reply| {
            // Whoever is told that a policy is changed finds it so here.
            if let (Reply::Done { .. }, Some(made)) = (&reply, made.take()) {
                self.learn(made);
            }
            tell = tell.take().filter(|call| !call.tell(reply, &self.metrics));
            tell.is_some()
        };
        loop {
            tokio::select! {
                biased;
                Some(reply) = told.recv() => {
                    if !pass(reply) {
                        return serving.await;
                    }
                }
                () = &mut serving => break,
            }
        }
        while let Ok(reply) = told.try_recv() {
            if !pass(reply) {
                return;
            }
        }
        tracing::error!("the engine ended a request without its last answer");
        pass(Reply::Refused(Refusal::unknown(
            Code::Unavailable,
            "the engine ended the request without an answer: it may have taken effect",
        )));
    }

    /// Whether the stores have their quorums; if not, one sentence.
    pub(crate) async fn health(&self) -> Result<(), String> {
        let asked = tokio::time::timeout(HEALTH, self.service.health()).await;
        asked.unwrap_or_else(|_| {
            let seconds = HEALTH.as_secs();
            Err(format!(
                "the stores of this node's engine have not answered for {seconds} s"
            ))
        })
    }

    /// A graceful end: brief requests may be answered, then nothing is served any more.
    pub(crate) async fn end(&self) {
        let mut brief = self.brief.subscribe();
        let answered = brief.wait_for(|open| *open == 0);
        if tokio::time::timeout(GRACE, answered).await.is_err() {
            tracing::info!("requests without an answer were given up");
        }
        self.abandon();
    }

    /// The end at once.
    pub(crate) fn abandon(&self) {
        self.ended.send_replace(true);
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        self.service.describe()
    }
}
