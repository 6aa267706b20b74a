//! How much of this node each principal uses, against its quota.

use fermata_access::Quota;
use fermata_protocol::{Code, Refusal};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Requests that may come at once beyond the average, in seconds of it.
const BURST: f64 = 1.0;

/// What one principal uses here.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Requests that it may still send at once, and as of when.
    left: Mutex<(f64, Instant)>,
    sessions: AtomicU64,
    bytes: AtomicU64,
}

/// Something that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Used {
    usage: Arc<Usage>,
    what: What,
    amount: u64,
}

/// What counts.
#[derive(Clone, Copy, Debug)]
enum What {
    Sessions,
    Bytes,
}

impl Usage {
    fn new() -> Usage {
        Usage {
            left: Mutex::new((BURST, Instant::now())),
            sessions: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn of(&self, what: What) -> &AtomicU64 {
        match what {
            What::Sessions => &self.sessions,
            What::Bytes => &self.bytes,
        }
    }

    /// Counts a request.
    fn request(&self, per_second: u32, now: Instant) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (seconds, before) = *left;
        // In seconds, so that another quota counts at once.
        let earned = now.saturating_duration_since(before).as_secs_f64();
        let seconds = (seconds + earned).min(BURST);
        let cost = 1.0 / f64::from(per_second);
        let may = per_second > 0 && seconds + 1e-9 >= cost.min(BURST);
        *left = (if may { seconds - cost } else { seconds }, now);
        may
    }

    fn take(self: &Arc<Usage>, what: What, amount: u64, most: u64) -> Option<Used> {
        let fits = |used: u64| used.checked_add(amount).filter(|all| *all <= most);
        let order = Ordering::Relaxed;
        self.of(what).fetch_update(order, order, fits).ok()?;
        let usage = self.clone();
        Some(Used {
            usage,
            what,
            amount,
        })
    }
}

impl Used {
    /// Counts so much more.
    fn grow(&mut self, amount: u64, most: u64) -> bool {
        let Some(mut more) = self.usage.take(self.what, amount, most) else {
            return false;
        };
        self.amount += std::mem::take(&mut more.amount);
        true
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let of = self.usage.of(self.what);
        of.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// What all principals use.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<HashMap<String, Arc<Usage>>>);

impl Accounts {
    fn of(&self, principal: &str) -> Arc<Usage> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(principal) {
            return known.clone();
        }
        let new = Arc::new(Usage::new());
        all.insert(principal.to_owned(), new.clone());
        new
    }

    /// Forgets those whom the policy does not know any more.
    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|principal, _| known(principal));
    }

    /// Counts a request with so many bytes.
    ///
    /// # Errors
    /// [`Code::Busy`]: beyond the quota; nothing was done.
    pub(super) fn request(
        &self,
        principal: &str,
        quota: Quota,
        bytes: usize,
    ) -> Result<Option<Used>, Refusal> {
        if quota.requests_per_second.is_none() && quota.bytes_in_flight.is_none() {
            return Ok(None);
        }
        let usage = self.of(principal);
        if let Some(most) = quota.requests_per_second
            && !usage.request(most, Instant::now())
        {
            return Err(beyond(principal, &format!("{most} requests in a second")));
        }
        let Some(most) = quota.bytes_in_flight else {
            return Ok(None);
        };
        let used = usage.take(What::Bytes, bytes as u64, most);
        let refused = || beyond(principal, &format!("{most} bytes in open requests"));
        used.map(Some).ok_or_else(refused)
    }

    /// Counts bytes of a request that arrives.
    ///
    /// # Errors
    /// [`Code::Busy`]: beyond the quota.
    pub(super) fn arriving(
        &self,
        principal: &str,
        quota: Quota,
        used: &mut Option<Used>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let Some(most) = quota.bytes_in_flight else {
            return Ok(());
        };
        let bytes = bytes as u64;
        let fits = match used {
            Some(used) => used.grow(bytes, most),
            None => {
                *used = self.of(principal).take(What::Bytes, bytes, most);
                used.is_some()
            }
        };
        let refused = || beyond(principal, &format!("{most} bytes in open requests"));
        fits.then_some(()).ok_or_else(refused)
    }

    /// Counts a session.
    ///
    /// # Errors
    /// [`Code::Busy`]: beyond the quota; nothing was done.
    pub(super) fn session(&self, principal: &str, quota: Quota) -> Result<Option<Used>, Refusal> {
        let Some(most) = quota.sessions else {
            return Ok(None);
        };
        let used = self.of(principal).take(What::Sessions, 1, most.into());
        let refused = || beyond(principal, &format!("{most} sessions"));
        used.map(Some).ok_or_else(refused)
    }
}

fn beyond(principal: &str, what: &str) -> Refusal {
    let detail = format!(
        "{principal} has its quota at this node, {what}: try again later, or at another node"
    );
    Refusal::definite(Code::Busy, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn requests_are_counted_by_the_second() {
        let usage = Usage::new();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let taken = |ms| (0..20).filter(|_| usage.request(10, at(ms))).count();
        assert_eq!(taken(0), 10, "a second of them at once");
        assert_eq!(taken(500), 5);
        assert_eq!(taken(10_000), 10, "no more for having waited");
        assert!(!usage.request(0, at(20_000)), "none");
        assert!(usage.request(1, at(21_000)));
    }

    #[test]
    fn what_is_given_back_may_be_used_again() {
        let accounts = Accounts::default();
        let quota = Quota {
            sessions: Some(1),
            bytes_in_flight: Some(10),
            ..Quota::default()
        };
        let first = accounts.session("a", quota).unwrap();
        assert!(accounts.session("a", quota).is_err());
        assert!(accounts.session("b", quota).is_ok(), "each has its own");
        drop(first);
        assert!(accounts.session("a", quota).is_ok());
        let bytes = accounts.request("a", quota, 10).unwrap();
        let refused = accounts.request("a", quota, 1).expect_err("beyond it");
        assert!(refused.detail.contains("10 bytes"), "{}", refused.detail);
        drop(bytes);
        assert!(accounts.request("a", quota, 1).is_ok());
        let none = accounts.request("a", Quota::default(), usize::MAX);
        assert!(none.unwrap().is_none());
    }
}
