//! Ledgers: keys that are changed several at once or not at all, and read at one moment.
//!
//! **Problem.** Users of one key at a time cannot say "take one from here and put it there", nor
//! read ten keys as they were together. What they do instead, a lock around each change, costs a
//! round trip more and keeps readers out. And an order of changes that is not the order of real
//! time surprises whoever has just been told that his own is done.
//!
//! **Idea.** After Tribune, in the logs that stand. A key of a ledger has *versions*, each named by
//! a timestamp; they are records of its segment ([`crate::records`]), so that a segment may be
//! larger than memory. A [`Transaction`] is one command of the segment's log: comparisons, and what
//! is done if they hold, and what else. Its timestamp is chosen by the segment's primary when it is
//! proposed, not below the latest that the true time could be at the coordinator; whether it takes
//! effect is decided where it is applied, from the log and the records alone, equally at each
//! member. The answer leaves the coordinator when the timestamp has certainly passed on the
//! cluster's timeline ([`ClusterTime`]): whatever begins after that gets a higher one. So the order
//! of timestamps is a serial order, and the order of real time (strict serializability).
//!
//! Reads need no log. At the primary: it promises that nothing at or below the time of the read
//! will be written to these keys any more. At any replica: the primary *closes* times, and says up
//! to which command that holds; who has applied that command may read at a closed time.
//!
//! **Rules.** All that decides an order in time rests on logs; clocks decide real time alone.
//! * L1, *limit*: a primary promises and closes nothing above the limit that the applied log
//!   states, and a write is not above the limit that stands before it in the log. Whoever leads
//!   next has applied every limit that was ever relied on. It begins above it.
//! * L2, *above*: a write is above the floor with which its primary began, above what that has
//!   closed, and per key above what was written or promised before ([`Marks`]), so that one far
//!   client does not slow the others down.
//! * L3, *closed with a position*: a replica that has applied less does not know all that was
//!   written up to the closed time.
//! * L5: all of this begins when the primary's `Begin` and everything below it are applied.
//! * L7, *decided where it is applied*: a transaction that meets a version at or above its own
//!   timestamp on any key that it names is void, and its coordinator proposes it again.
//! * L15, *what leaves has passed*: an answer waits until its timestamp has passed, a read until
//!   those of the versions that it returns have.
//! * L29: the outcome of a transaction depends on records, and the small state never does: what is
//!   remembered of a session there is the timestamp, and the outcome is a record beside the
//!   versions, which goes with the memory of the session.
//!
//! **Departures.** Tribune assigns timestamps where a lock is taken and does not wait for them to
//! pass; its first example of external consistency fails (an acknowledged write is ordered after a
//! later one). Its leader never changes. Here one-shot transactions take no locks, and lie in one
//! segment.

mod clerk;
mod closed;
mod execute;
mod marks;
pub mod message;
mod reader;
mod state;
mod time;
mod transaction;
mod versions;

pub use clerk::{Clerk, Closing, Hours, Reading};
pub use closed::Closed;
pub(crate) use execute::{Executed, again, execute};
pub use marks::Marks;
pub use message::Message;
pub(crate) use reader::{Fresh, Reader};
pub use state::LedgerState;
pub use time::ClusterTime;
pub use transaction::{
    Act, Compare, Condition, Done, Found, Item, Part, RANGE_MAX, Relation, Span, Transaction,
    Verdict, Versioned, When,
};
pub use versions::version_of;
pub(crate) use versions::{answer, outcome_name};

/// How far behind the latest possible time a primary closes, microseconds: what is under way from
/// coordinators seldom is older.
pub(crate) const CLOSED_LAG: crate::base::Micros = 200_000;

/// How far ahead of its own clock's latest a primary takes timestamps, microseconds: more can only
/// come from a clock that is wrong, and everybody who names the key would have to wait for it.
pub(crate) const AHEAD_MAX: crate::base::Micros = 2_000_000;

/// How long after its last use a ledger's primary goes on renewing its limit and closing times,
/// microseconds.
pub(crate) const USED_FOR: crate::base::Micros = 10_000_000;
