//! The real clocks. The protocol gets them as arguments.

use fermata_protocol::base::{Micros, Now};
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// The time of one event. No interval clock is read yet.
pub(crate) fn now() -> Now {
    Now {
        monotonic: monotonic(),
        wall: wall(),
        interval: None,
    }
}

/// 128 bits from the operating system.
///
/// # Errors
/// What the system said.
pub(crate) fn random() -> std::io::Result<u128> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_be_bytes(bytes))
}
