//! Sections of one's own: those in which a node does one thing for a caller that knows of no
//! section, a change under a condition or a call of MUSIC's face.

use super::{Hosted, Kept, Life};
use crate::access::Caller;
use crate::porter::unexpected;
use bytes::Bytes;
use fermata_api::condition::{Change, Version, not_changed};
use fermata_protocol::base::{KeyId, Micros};
use fermata_protocol::client::{Call, Options, SectionId, Success};
use fermata_protocol::request::{EntryValue, Mode, Operation};
use fermata_protocol::{Code, Refusal};
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for the answer of its session: less than a node waits for another's.
const PATIENCE: Duration = Duration::from_secs(8);
/// How much longer than it may wait for its key an enter is waited for.
const BESIDE_WAIT: Duration = Duration::from_secs(3);
/// How long others may hold a key before a change under a condition is refused, unless its client
/// says otherwise: as a `put` of the command line.
const WAIT: Micros = 2_000_000;
/// The longest wait.
const WAIT_MAX: Micros = 86_400_000_000;

/// Asks a session. It goes on with what it has not answered in time.
pub(crate) async fn ask(kept: &Kept, call: Call) -> Result<Success, Refusal> {
    let writes = matches!(
        call,
        Call::CriticalPut { .. } | Call::PutAndLeave { .. } | Call::Leave { .. }
    );
    let patience = match call {
        Call::Enter { wait, .. } => PATIENCE.max(Duration::from_micros(wait) + BESIDE_WAIT),
        _ => PATIENCE,
    };
    let asked = tokio::time::timeout(patience, kept.ask(call)).await;
    asked.unwrap_or_else(|_| {
        let detail = "too few nodes have answered in time; ask again";
        Err(match writes {
            true => Refusal::unknown(Code::Unavailable, detail),
            false => Refusal::definite(Code::Unavailable, detail),
        })
    })
}

/// What an entry told of its key's value.
pub(crate) fn known(value: &EntryValue) -> Option<Option<Bytes>> {
    value.known().map(|value| value.cloned())
}

/// The latest value of a section's key.
pub(crate) async fn get(
    kept: &Kept,
    section: SectionId,
    key: KeyId,
) -> Result<Option<Bytes>, Refusal> {
    match ask(kept, Call::CriticalGet { section, key }).await? {
        Success::Value { value, .. } => Ok(value),
        other => Err(unexpected(&other)),
    }
}

/// A section of one's own: one key, entered, to be ended by [`Own::end`]; dropped, its session
/// leaves it.
pub(crate) struct Own {
    kept: Kept,
    section: SectionId,
    key: KeyId,
    /// The key's latest value.
    pub(crate) value: Option<Bytes>,
}

impl Own {
    /// Enters with a session that is kept for it, after `wait` at most.
    ///
    /// # Errors
    /// [`Code::WaitOver`] where somebody else held the key all the time; nothing was done.
    pub(crate) async fn enter(kept: Kept, key: KeyId, wait: Micros) -> Result<Own, Refusal> {
        let enter = Call::Enter {
            keys: vec![key.clone()],
            mode: Mode::Exclusive,
            wait,
            lease: None,
        };
        let (section, value) = match ask(&kept, enter).await? {
            Success::Entered { section, mut keys } if keys.len() == 1 => {
                (section, keys.remove(0).value)
            }
            // Not to wait at all is the machine's word for polling.
            Success::Waiting { .. } => {
                let detail = "the lock is held or waited for by somebody else";
                return Err(Refusal::definite(Code::WaitOver, detail));
            }
            other => return Err(unexpected(&other)),
        };
        let value = match known(&value) {
            Some(value) => value,
            None => get(&kept, section, key.clone()).await?,
        };
        Ok(Own {
            kept,
            section,
            key,
            value,
        })
    }

    /// Ends it: with a new value, or, with none and on a failure, without a write.
    ///
    /// # Errors
    /// The failure; or the refusal, which says whether the put may have taken effect.
    pub(crate) async fn end<E: From<Refusal>>(
        self,
        to: Result<Option<Option<Bytes>>, E>,
    ) -> Result<(), E> {
        let (section, key) = (self.section, self.key);
        if let Ok(Some(value)) = to {
            let put = Call::PutAndLeave {
                section,
                key,
                value,
            };
            return Ok(ask(&self.kept, put).await.map(drop)?);
        }
        let wait = true;
        // A section that is not left now is left in the background.
        let _ = ask(&self.kept, Call::Leave { section, wait }).await;
        to.map(drop)
    }
}

impl Hosted {
    /// Changes a key as `write` says, if `holds` is so of its latest value (compare-and-set). It
    /// waits for its key as long as `wait` says, or two seconds. Whoever gives it up in the middle
    /// knows nothing of its outcome.
    ///
    /// # Errors
    /// [`Code::Busy`] where the node keeps as many sessions as it may; [`Code::WrongPurpose`] of a
    /// register; and as an enter or a put.
    pub(crate) async fn change_if(
        self: &Arc<Self>,
        caller: &Caller,
        write: Operation,
        wait: Option<Micros>,
        holds: impl FnOnce(Option<&Bytes>) -> bool,
    ) -> Result<Change, Refusal> {
        let Operation::Write { key, value } = write else {
            return Err(unexpected(&write));
        };
        // What the section does is the node's: it is judged here, and once more when it may be
        // long after.
        let judge = |bytes: usize| {
            let names = self.porter.names();
            let read = Operation::Read { key: key.clone() };
            let write = Operation::Write {
                key: key.clone(),
                value: None,
            };
            self.porter.access.judge(caller, &names, &write, 0)?;
            self.porter.access.judge(caller, &names, &read, bytes)
        };
        let _used = judge(value.as_ref().map_or(0, Bytes::len))?;
        let place = self.place(caller)?;
        let session = self.porter.draw_secret().session();
        let life = Life {
            idle: WAIT_MAX,
            one: true,
        };
        let asks = (session, Options::default());
        let kept = self.keep(&Caller::NODE, asks, life, Some(place));
        let wait = wait.unwrap_or(WAIT).min(WAIT_MAX);
        let entered = Own::enter(kept, key.clone(), wait).await;
        let own = entered.map_err(|refusal| not_changed(refusal, false))?;
        judge(0)?;
        if !holds(own.value.as_ref()) {
            // Dropped, it is left.
            return Ok(Change::Failed(own.value.clone()));
        }
        let version = value.as_deref().map(Version::of);
        let put = own.end::<Refusal>(Ok(Some(value))).await;
        put.map_err(|refusal| not_changed(refusal, true))?;
        Ok(Change::Done(version))
    }
}
