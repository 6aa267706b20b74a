//! Requests that may be open for long, which are judged again while they are.

use super::{Access, Caller, Verdict, Who, forbidden, invalid, nobody, rights};
use crate::porter::At;
use fermata_api::Names;
use fermata_protocol::request::Operation;
use fermata_protocol::{Refusal, Reply};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::mpsc::WeakSender;

/// One that is open.
pub(crate) struct Lasting {
    pub(crate) caller: Caller,
    /// What it needs, without what does not matter for that.
    pub(crate) operation: Operation,
    pub(crate) id: u64,
    /// Its reader is told as well that nobody answers any more, if only the rest is gone.
    pub(crate) sink: WeakSender<(u64, Reply)>,
    pub(crate) at: At,
}

/// Those of one node.
#[derive(Default)]
pub(crate) struct AllLasting(Mutex<(u64, HashMap<u64, Lasting>)>);

/// Forgets one, once it is dropped.
pub(crate) struct Known {
    all: Weak<AllLasting>,
    number: u64,
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            all.lock().1.remove(&self.number);
        }
    }
}

impl AllLasting {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, Lasting>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one.
    pub(crate) fn add(self: &Arc<Self>, lasting: Lasting) -> Known {
        let mut all = self.lock();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, lasting);
        let all = Arc::downgrade(self);
        Known { all, number }
    }

    /// Ends those that may be no longer: their askers are told why.
    pub(crate) fn review(&self, access: &Access, names: &Names) {
        let mut ended = Vec::new();
        self.lock().1.retain(|_, open| {
            let why = access.ends(&open.caller, names, &open.operation);
            let stays = why.is_none();
            ended.extend(why.map(|why| (open.id, open.sink.clone(), open.at.clone(), why)));
            stays
        });
        for (id, sink, at, why) in ended {
            // Before it is cancelled, which ends its reader's stream. One whose reader is that slow
            // hears of it by its next request.
            if let Some(sink) = sink.upgrade() {
                let _ = sink.try_send((id, Reply::Refused(why)));
            }
            at.cancel();
        }
    }
}

impl Access {
    /// Why a request that is open is not to be open any more.
    fn ends(&self, caller: &Caller, names: &Names, operation: &Operation) -> Option<Refusal> {
        let judged = self.judged();
        if !self.holds(&caller.who, &judged) {
            return Some(match caller.who {
                Who::Nobody => nobody(&judged),
                _ => invalid(),
            });
        }
        match self.grants(&caller.who, &judged) {
            Err(why) => Some(why),
            Ok(None) => None,
            Ok(Some(_)) if !rights::are_named(names, operation) => None,
            Ok(Some(grants)) => match rights::verdict(&grants, names, operation) {
                Verdict::Whole => None,
                Verdict::Refused | Verdict::But(_) => Some(forbidden(&caller.who)),
            },
        }
    }
}
