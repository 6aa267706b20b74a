//! The order of critical writes, for stores that know one number per write.
//!
//! MUSIC maps (lock ref, time within the section) to one scalar (§VI, `v2s`). Here the second part
//! is no time: it is a *number* that names the write for ever, so that a repeated write is the same
//! write (M2) and two writes are never equal (F11).
//!
//! ```text
//! scalar = lock ref · 2^20 + generation · 2^15 + number
//! number = 1 .. 1,023 attempts of synchs, in the order in which the lock row has allotted them
//!          1,024 ..   the section's puts, numbered by the client
//! ```

use std::fmt;
use std::time::Duration;

use fermata_protocol::base::LockRef;
use fermata_protocol::request::{Code, Refusal};

/// Numbers of one generation.
const GENERATION: u64 = 1 << 15;
/// Scalars of one lock ref.
const SPAN: u64 = 1 << 20;
/// Lock refs are below this: their scalars have 63 bits.
const REFS: u64 = 1 << 43;
/// The number of a section's first put.
const FIRST_PUT: u64 = 1_024;

/// Generations of a section: it can be resumed so often, less one.
pub const GENERATIONS: u32 = (SPAN / GENERATION) as u32;
/// Puts of one generation of a section, over all its keys.
pub const PUTS: u64 = GENERATION - FIRST_PUT;
/// Synchs of one generation of a section.
pub const ATTEMPTS: u32 = FIRST_PUT as u32 - 1;

/// Where a critical write of one key stands among all others of it. Stores take it for the time of
/// the write, in microseconds since 1970; it has nothing to do with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scalar(i64);

impl Scalar {
    /// The scalar of a put: `number` is the client's, from 1.
    ///
    /// # Errors
    /// [`Code::TooLarge`] if the section has no room for it, [`Code::NotHolder`] if there is no
    /// such ref; nothing was written.
    pub fn of_put(lock_ref: LockRef, generation: u32, number: u64) -> Result<Scalar, Refusal> {
        if number == 0 {
            let text = "the put was refused: puts of a section are numbered from 1";
            return Err(Refusal::definite(Code::BadRequest, text));
        }
        if lock_ref.0 >= REFS {
            let text = "the put was refused: no queue has given this lock ref";
            return Err(Refusal::definite(Code::NotHolder, text));
        }
        if number > PUTS || generation >= GENERATIONS {
            let text = format!(
                "the put was refused: on this engine a section has room for {PUTS} puts, and can \
                 be resumed {} times; leave it and enter again",
                GENERATIONS - 1
            );
            return Err(Refusal::definite(Code::TooLarge, text));
        }
        Ok(Scalar::of(lock_ref, generation, FIRST_PUT + number - 1))
    }

    /// The scalar of a synch: `attempt` is what the lock row has allotted, from 1.
    ///
    /// # Panics
    /// If the attempt is none that a lock row allots.
    pub(crate) fn of_attempt(lock_ref: LockRef, generation: u32, attempt: u32) -> Scalar {
        assert!(
            (1..=ATTEMPTS).contains(&attempt) && generation < GENERATIONS,
            "lock rows allot 1,023 attempts to each of 32 generations"
        );
        Scalar::of(lock_ref, generation, u64::from(attempt))
    }

    fn of(lock_ref: LockRef, generation: u32, number: u64) -> Scalar {
        let within = u64::from(generation) * GENERATION + number;
        // The first is made from the clock, and each command takes one.
        assert!(lock_ref.0 < REFS, "no row gets there");
        Scalar((lock_ref.0 * SPAN + within) as i64)
    }

    /// The lock ref before the first of a key that is used for the first time at this time since
    /// 1970: its scalars are above the wall clock, so that what a table held before is outranked.
    pub(crate) fn before_first_ref(now: Duration) -> u64 {
        now.as_micros().div_ceil(u128::from(SPAN)) as u64
    }

    /// As a store's number.
    pub fn get(self) -> i64 {
        self.0
    }

    /// From a store's number.
    pub fn from_raw(raw: i64) -> Scalar {
        Scalar(raw)
    }

    /// The section that wrote.
    pub fn lock_ref(self) -> LockRef {
        LockRef(self.0.max(0) as u64 / SPAN)
    }

    /// The generation and the number within it, as [`fermata_protocol::base::Tag`] has them.
    pub fn within(self) -> (u32, u64) {
        let within = self.0.max(0) as u64 % SPAN;
        ((within / GENERATION) as u32, within % GENERATION)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generation, number) = self.within();
        write!(f, "({}, {generation}, {number})", self.lock_ref().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_lie_above_attempts_and_generations_above_puts_and_refs_above_all() {
        let last_attempt = Scalar::of_attempt(LockRef(7), 0, ATTEMPTS);
        let first_put = Scalar::of_put(LockRef(7), 0, 1).unwrap();
        let last_put = Scalar::of_put(LockRef(7), 0, PUTS).unwrap();
        let resumed = Scalar::of_attempt(LockRef(7), 1, 1);
        let last = Scalar::of_put(LockRef(7), GENERATIONS - 1, PUTS).unwrap();
        let next = Scalar::of_attempt(LockRef(8), 0, 1);
        let all = [last_attempt, first_put, last_put, resumed, last, next];
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!(all.map(|s| s.lock_ref().0), [7, 7, 7, 7, 7, 8]);
        assert_eq!(last_put.within(), (0, GENERATION - 1));
        assert_eq!(resumed.within(), (1, 1));
    }

    #[test]
    fn what_has_no_room_is_refused() {
        assert!(Scalar::of_put(LockRef(7), 0, 0).is_err());
        assert!(Scalar::of_put(LockRef(7), 0, PUTS + 1).is_err());
        assert!(Scalar::of_put(LockRef(7), GENERATIONS, 1).is_err());
        assert!(Scalar::of_put(LockRef(REFS), 0, 1).is_err());
        let last = Scalar::of_put(LockRef(REFS - 1), GENERATIONS - 1, PUTS);
        assert!(last.unwrap().get() > 0);
    }

    #[test]
    fn the_first_ref_outranks_the_clock() {
        let now = Duration::from_micros(1_790_000_000_123_456);
        let first = LockRef(Scalar::before_first_ref(now) + 1);
        let scalar = Scalar::of_attempt(first, 0, 1);
        assert!(scalar.get() > now.as_micros() as i64);
    }
}
