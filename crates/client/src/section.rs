//! A critical section in its holder's hand.

use crate::client::{Client, Pending, value};
use crate::driver::{Command, Fate};
use crate::error::Error;
use bytes::Bytes;
use fermata_api::condition::{Change, Condition, Version};
use fermata_protocol::base::{KeyId, LockRef};
use fermata_protocol::client::{Call, LostReason, SectionId, Success};
use fermata_protocol::request::{Entered, EntryValue, Held};
use fermata_protocol::{Code, Refusal};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

struct Inner {
    client: Client,
    id: SectionId,
    keys: Vec<Entered>,
    fate: watch::Receiver<Fate>,
}

/// What can be done inside a section. Clones operate on the same section, from any task; when it is
/// left or lost they are refused.
#[derive(Clone)]
pub struct SectionHandle {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for SectionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl SectionHandle {
    /// The latest value of a key (MUSIC `criticalGet`, §III-A): from memory while the lease is
    /// valid and the value is there, else from a quorum. Sees every put of this section issued
    /// before it.
    ///
    /// # Errors
    /// `NoLongerHolder` when the section is over; `Unavailable` without a quorum, or while the
    /// key's last put has no known outcome; `BadRequest` for a key of another section.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let (section, key) = (self.inner.id, self.find(key.as_ref())?);
        let call = Call::CriticalGet { section, key };
        value(self.inner.client.shared.call(call).await?)
    }

    /// Writes a key (MUSIC `criticalPut`). The put is under way when this returns; the future is
    /// its acknowledgement, and may be dropped. Several may be in flight: the last one issued on a
    /// key is its value.
    ///
    /// # Errors
    /// `NoLongerHolder`, `ReadOnlySection`, `TooLarge`, `DiskFull`, and as [`SectionHandle::get`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Acknowledgement {
        self.write(key.as_ref(), Some(value.into()))
    }

    /// Deletes a key: a [`SectionHandle::put`] of nothing.
    ///
    /// # Errors
    /// As [`SectionHandle::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Acknowledgement {
        self.write(key.as_ref(), None)
    }

    fn write(&self, key: &[u8], value: Option<Bytes>) -> Acknowledgement {
        let begun = self.find(key).map(|key| {
            let section = self.inner.id;
            self.inner.client.shared.begin(Call::CriticalPut {
                section,
                key,
                value,
            })
        });
        Acknowledgement(begun.map_err(Some))
    }

    /// The value that came with the entry; none if the key is not ours. Where the section's values
    /// together are larger than an answer may be, some are [`EntryValue::Omitted`]:
    /// [`SectionHandle::get`] has every value, and costs nothing for those that came.
    pub fn entry_value(&self, key: impl AsRef<[u8]>) -> Option<EntryValue> {
        let key = key.as_ref();
        let entered = self.inner.keys.iter().find(|e| e.held.key.key == key);
        entered.map(|e| e.value.clone())
    }

    /// The lock ref of a key: unique and increasing per key, also a fencing token for other
    /// systems.
    pub fn lock_ref(&self, key: impl AsRef<[u8]>) -> Option<LockRef> {
        let key = key.as_ref();
        let entered = self.inner.keys.iter().find(|e| e.held.key.key == key);
        entered.map(|e| e.held.lock_ref)
    }

    /// All keys with their refs and generations: what [`Client::resume`] needs.
    pub fn held(&self) -> Vec<Held> {
        self.inner.keys.iter().map(|e| e.held.clone()).collect()
    }

    /// Whether the section is known to be lost.
    pub fn is_lost(&self) -> bool {
        matches!(*self.inner.fate.borrow(), Fate::Lost(_))
    }

    /// Waits until the section is lost, and tells why. Pending for ever if it is left.
    pub async fn lost(&self) -> LostReason {
        let mut fate = self.inner.fate.clone();
        match fate
            .wait_for(|fate| matches!(fate, Fate::Lost(_)))
            .await
            .map(|fate| *fate)
        {
            Ok(Fate::Lost(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Until when the section's lease lasts, unless it is renewed before: the time since the
    /// machine's start, suspension included (`CLOCK_BOOTTIME`), shortened by what clocks may drift.
    /// None where it is not known, as after the section's end.
    pub async fn lease_until(&self) -> Option<Duration> {
        let (tell, told) = oneshot::channel();
        let command = Command::Lease(self.inner.id, tell);
        // Without the task nobody answers.
        let _gone = self.inner.client.shared.commands.send(command);
        let until = told.await.unwrap_or(0);
        (until > 0).then(|| Duration::from_micros(until))
    }

    fn find(&self, key: &[u8]) -> Result<KeyId, Error> {
        let mut found = self.inner.keys.iter().filter(|e| e.held.key.key == key);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only.held.key.clone()),
            _ => Err(Error::Refused(Refusal::definite(
                Code::BadRequest,
                "The key does not belong to this section, or to two of its keyspaces.",
            ))),
        }
    }
}

/// The end of a put that is under way. Dropping it does not take the put back.
#[derive(Debug)]
#[must_use = "a put that is not awaited may still fail"]
pub struct Acknowledgement(Result<Pending, Option<Error>>);

impl Future for Acknowledgement {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.0 {
            Ok(pending) => pending.poll_end(cx).map(|end| end.map(drop)),
            // Polled again after its end, it has no more to say than this.
            Err(error) => Poll::Ready(Err(error.take().unwrap_or(Error::Closed))),
        }
    }
}

/// A critical section that this client holds. Dropping it leaves it in the background.
#[derive(Debug)]
pub struct Section {
    handle: SectionHandle,
    left: bool,
}

impl Section {
    pub(crate) fn new(
        client: Client,
        id: SectionId,
        keys: Vec<Entered>,
        fate: watch::Receiver<Fate>,
    ) -> Section {
        let inner = Inner {
            client,
            id,
            keys,
            fate,
        };
        Section {
            handle: SectionHandle {
                inner: Arc::new(inner),
            },
            left: false,
        }
    }

    /// A handle to operate on the section from elsewhere.
    pub fn handle(&self) -> SectionHandle {
        self.handle.clone()
    }

    /// Leaves the section (MUSIC `releaseLock`, §III-A) once its puts are acknowledged, or after a
    /// short grace without them; retried in the background.
    pub fn leave(self) {}

    /// Leaves the section, and waits until that is agreed: the next holder may be in.
    ///
    /// # Errors
    /// `NoLongerHolder` if the section had ended before; `Unavailable` if it is not confirmed yet
    /// (it goes on in the background).
    pub async fn leave_and_wait(mut self) -> Result<(), Error> {
        self.left = true;
        let (section, wait) = (self.handle.inner.id, true);
        let call = Call::Leave { section, wait };
        self.handle.inner.client.shared.call(call).await.map(drop)
    }

    /// Writes a key and leaves with it: one message instead of two. Whatever the result, the
    /// section is over.
    ///
    /// # Errors
    /// As [`SectionHandle::put`].
    pub async fn put_and_leave(
        self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.write_and_leave(key.as_ref(), Some(value.into())).await
    }

    /// Deletes a key and leaves with it: a [`Section::put_and_leave`] of nothing.
    ///
    /// # Errors
    /// As [`SectionHandle::put`].
    pub async fn delete_and_leave(self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write_and_leave(key.as_ref(), None).await
    }

    /// Puts a value and leaves, or deletes with none, if `condition` is so of the key; else it
    /// leaves, in the background, and changes nothing.
    ///
    /// # Errors
    /// `Unavailable` where the section was lost, and as [`SectionHandle::put`].
    pub async fn write_and_leave_if(
        self,
        key: impl AsRef<[u8]>,
        value: Option<Bytes>,
        condition: &Condition,
    ) -> Result<Change, Error> {
        let found = self.get(key.as_ref()).await;
        let found = found.map_err(|error| error.of_change(false))?;
        self.decide(key.as_ref(), found, value, condition).await
    }

    /// The same in a section that was just entered, whose values need not be asked for again.
    pub(crate) async fn change_at_entry(
        self,
        key: &[u8],
        value: Option<Bytes>,
        condition: &Condition,
    ) -> Result<Change, Error> {
        let entered = self.entry_value(key);
        match entered.as_ref().and_then(EntryValue::known) {
            Some(found) => self.decide(key, found.cloned(), value, condition).await,
            None => self.write_and_leave_if(key, value, condition).await,
        }
    }

    async fn decide(
        self,
        key: &[u8],
        found: Option<Bytes>,
        value: Option<Bytes>,
        condition: &Condition,
    ) -> Result<Change, Error> {
        if !condition.holds(found.as_ref()) {
            return Ok(Change::Failed(found));
        }
        let version = value.as_deref().map(Version::of);
        let written = self.write_and_leave(key, value).await;
        written.map_err(|error| error.of_change(true))?;
        Ok(Change::Done(version))
    }

    async fn write_and_leave(mut self, key: &[u8], value: Option<Bytes>) -> Result<(), Error> {
        let call = Call::PutAndLeave {
            section: self.handle.inner.id,
            key: self.handle.find(key)?,
            value,
        };
        match self.handle.inner.client.shared.call(call).await? {
            Success::Left | Success::Done { .. } => {
                self.left = true;
                Ok(())
            }
            other => Err(crate::client::surprised(&other)),
        }
    }
}

impl Deref for Section {
    type Target = SectionHandle;

    fn deref(&self) -> &SectionHandle {
        &self.handle
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.left {
            let inner = &self.handle.inner;
            // Without the task there is nobody to leave; the lease ends the section.
            let _ = inner.client.shared.commands.send(Command::Leave(inner.id));
        }
    }
}
