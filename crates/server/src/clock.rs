//! The real clocks. The protocol gets them as arguments.
//!
//! **The interval clock.** True time lies within a *bound* of the wall clock, where somebody can
//! name one ([`BoundSource`]): the kernel, which a daemon of NTP or PTP tells how far off its clock
//! may be, or the operator. The bound is read a few times per second; in between it grows by what
//! the kernel itself allows for (500 parts per million), and by as much as the wall clock has moved
//! against the boot-time clock, which only a step does. The protocol decides what becomes of an
//! interval that is too wide, or contradicts another one.

use crate::config::ClockConfig;
use fermata_protocol::base::{Interval, Micros, Now};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A bound is read again after this long.
const REFRESH: Micros = 250_000;
/// By how much a clock may go wrong while nobody corrects it: what Linux itself reckons with.
const DRIFT_PPM: u64 = 500;

/// Microseconds since boot, counting suspension: a lease must not outlive a laptop's sleep.
pub(crate) fn monotonic() -> Micros {
    let t = clock_gettime(ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000
}

/// Microseconds since 1970, without any promise.
pub(crate) fn wall() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_micros() as u64
}

/// 128 bits from the operating system.
///
/// # Errors
/// What the system said.
pub fn random() -> std::io::Result<u128> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_be_bytes(bytes))
}

/// Whoever can say how far the wall clock may be from true time.
pub(crate) trait BoundSource: Send + Sync {
    /// The bound now, microseconds; none: nobody knows.
    fn bound(&self) -> Option<Micros>;
    /// Who says so, for the log.
    fn who(&self) -> &'static str;
}

/// The kernel's `maxerror`.
struct Kernel;

impl BoundSource for Kernel {
    fn bound(&self) -> Option<Micros> {
        kernel::bound()
    }

    fn who(&self) -> &'static str {
        "the kernel"
    }
}

/// What the operator promises.
struct Promised(Micros);

impl BoundSource for Promised {
    fn bound(&self) -> Option<Micros> {
        Some(self.0)
    }

    fn who(&self) -> &'static str {
        "clock.bound_us"
    }
}

/// The interval clock is switched off.
struct Off;

impl BoundSource for Off {
    fn bound(&self) -> Option<Micros> {
        None
    }

    fn who(&self) -> &'static str {
        "clock.bound_us = 0"
    }
}

/// The source that a configuration asks for.
fn source_of(config: &ClockConfig) -> Box<dyn BoundSource> {
    match config.bound_us {
        None => Box::new(Kernel),
        Some(0) => Box::new(Off),
        Some(bound) => Box::new(Promised(bound)),
    }
}

/// The clocks of one node, for the threads that need the time.
pub(crate) struct Clock {
    source: Box<dyn BoundSource>,
    /// Added to the wall clock: for tests alone.
    offset: i64,
    latest: Mutex<Option<Reading>>,
}

/// The source's answer, and when it gave it.
#[derive(Clone, Copy)]
struct Reading {
    at: Micros,
    /// Wall clock minus boot-time clock.
    ahead: i64,
    bound: Option<Micros>,
}

impl Clock {
    pub(crate) fn new(config: &ClockConfig) -> Clock {
        Clock {
            source: source_of(config),
            offset: config.test_offset_us,
            latest: Mutex::default(),
        }
    }

    /// Who is asked for the bound.
    pub(crate) fn source(&self) -> &'static str {
        self.source.who()
    }

    /// The time of one event.
    pub(crate) fn now(&self) -> Now {
        let monotonic = monotonic();
        let wall = wall().saturating_add_signed(self.offset);
        let interval = self.bound_at(monotonic, wall).map(|bound| Interval {
            earliest: wall.saturating_sub(bound),
            latest: wall.saturating_add(bound),
        });
        Now {
            monotonic,
            wall,
            interval,
        }
    }

    fn bound_at(&self, monotonic: Micros, wall: u64) -> Option<Micros> {
        let ahead = wall.wrapping_sub(monotonic) as i64;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read its time before, and asked after.
        let fresh = latest.filter(|r| monotonic.saturating_sub(r.at) < REFRESH);
        let reading = fresh.unwrap_or_else(|| Reading {
            at: monotonic,
            ahead,
            bound: self.source.bound(),
        });
        *latest = Some(reading);
        drop(latest);
        grown(reading, monotonic, ahead)
    }
}

/// The bound of a reading, some time later.
fn grown(reading: Reading, monotonic: Micros, ahead: i64) -> Option<Micros> {
    let age = monotonic.abs_diff(reading.at);
    let drift = (age * DRIFT_PPM).div_ceil(1_000_000);
    let step = ahead.abs_diff(reading.ahead);
    let bound = reading.bound?;
    Some(bound.saturating_add(drift).saturating_add(step))
}

mod kernel {
    //! `adjtimex`, which has no safe wrapper.
    #![allow(unsafe_code)]

    use fermata_protocol::base::Micros;
    use libc::{STA_UNSYNC, TIME_ERROR, TIME_OK, adjtimex, c_int, c_long, timex};

    /// `maxerror` is that of the last full second: what it may have grown by since.
    const SECOND: Micros = super::DRIFT_PPM;
    /// From here on the kernel itself takes its clock to be unsynchronized.
    const ERROR_MAX: c_long = 16_000_000;

    /// What the kernel says about its clock.
    pub(super) fn bound() -> Option<Micros> {
        // SAFETY: `timex` is plain numbers, of which zeros are a valid value. With `modes` 0 the
        // call reads the clock's state into it and changes nothing.
        let (state, t) = unsafe {
            let mut t: timex = std::mem::zeroed();
            (adjtimex(&raw mut t), t)
        };
        bound_of(state, t.status, t.maxerror)
    }

    /// The bound of what `adjtimex` returned; none: the clock is not synchronized.
    pub(super) fn bound_of(state: c_int, status: c_int, maxerror: c_long) -> Option<Micros> {
        if state < 0 || state == TIME_ERROR || status & STA_UNSYNC != 0 || maxerror >= ERROR_MAX {
            return None;
        }
        // Around a leap second nobody knows on which side of it a clock is.
        let leap = if state == TIME_OK { 0 } else { 1_000_000 };
        let error = Micros::try_from(maxerror).ok()?;
        Some(error + SECOND + leap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{STA_PLL, STA_UNSYNC, TIME_ERROR, TIME_INS, TIME_OK};

    #[test]
    fn an_unsynchronized_clock_has_no_bound() {
        let of = kernel::bound_of;
        assert_eq!(of(TIME_OK, STA_PLL, 1_200), Some(1_700));
        assert_eq!(
            of(TIME_INS, STA_PLL, 1_200),
            Some(1_001_700),
            "a leap second"
        );
        let unknown = [
            (TIME_ERROR, STA_PLL, 1_200),
            (TIME_OK, STA_PLL | STA_UNSYNC, 1_200),
            (TIME_OK, STA_PLL, 16_000_000),
            (TIME_OK, STA_PLL, -1),
            (-1, STA_PLL, 1_200),
        ];
        for (state, status, error) in unknown {
            assert_eq!(of(state, status, error), None, "{state} {status} {error}");
        }
    }

    #[test]
    fn a_bound_grows_with_its_age_and_with_a_step() {
        let reading = Reading {
            at: 1_000_000,
            ahead: 50,
            bound: Some(700),
        };
        assert_eq!(grown(reading, 1_000_000, 50), Some(700));
        assert_eq!(grown(reading, 1_100_000, 50), Some(750));
        assert_eq!(grown(reading, 1_000_000, -9_950), Some(10_700));
        let nobody = Reading {
            bound: None,
            ..reading
        };
        assert_eq!(grown(nobody, 1_000_000, 50), None);
    }

    #[test]
    fn an_interval_holds_the_wall_clock_and_what_is_switched_off_has_none() {
        let config = |bound_us| ClockConfig {
            bound_us,
            test_offset_us: 0,
        };
        let now = Clock::new(&config(Some(5_000))).now();
        let interval = now.interval.expect("promised");
        assert!(interval.earliest <= now.wall - 5_000 && now.wall + 5_000 <= interval.latest);
        assert_eq!(Clock::new(&config(Some(0))).now().interval, None);
    }

    /// Whatever this machine says: it says it without failing, and a bound is one.
    #[test]
    fn the_kernel_is_asked() {
        let bound = kernel::bound();
        assert!(
            bound.is_none_or(|b| (500..17_000_500).contains(&b)),
            "{bound:?}"
        );
    }
}
