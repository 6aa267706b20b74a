//! The clock that leases are measured with (F10): it must count the time that the machine
//! was suspended, which `std::time::Instant` does not on Linux.

use fermata_protocol::base::{Micros, Now};
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

/// The present time.
pub(crate) fn now() -> Now {
    let time = clock_gettime(BOOT_TIME);
    let seconds = Micros::try_from(time.tv_sec).unwrap_or(0);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        monotonic: seconds * 1_000_000 + time.tv_nsec as Micros / 1_000,
        wall: wall.map_or(0, |d| d.as_micros() as u64),
        interval: None,
    }
}
