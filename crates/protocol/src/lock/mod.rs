//! Lock queues, grants and leases: MUSIC's lock store, natively.
//!
//! **Problem.** Clients on many sites want a key exclusively, one after the other, and whoever
//! comes next must go on from the latest state, although holders die or are wrongly taken for dead.
//!
//! **Idea.** The queue of a key is a state machine in the log of the key's segment ([`state`]); the
//! ref that it gives is the number of the command in the segment's history. A command that removes
//! a holder whose last write may be in flight sets a flag, too. The segment's primary ([`primary`])
//! prepares each next holder's grant (`grant`): it reads the key's latest value from a quorum, by a
//! fenced synch where the flag is set, and pushes it with the grant (`pushes`).
//!
//! **Messages.** `Submit`/`Submitted` (a command), `Granted` and `Lost` (pushed), `Renew`/`Renewed`
//! (leases), `Queue`/`QueueIs`.
//!
//! **Invariants.**
//! * L1. Refs of a segment strictly increase over all its logs, and a queue is in the order of its
//!   refs.
//! * L2. A key's flag is set from the removal of a holder that may have a write in flight until a
//!   synch of that very flag has completed (MUSIC's SynchFlag invariant, F18).
//! * L3. A grant carries a value read after everything that earlier sections could still complete
//!   was complete, refused for ever, or outranked (F1: by a fence; F3: reads ahead;
//!   F4: attempts of one synch).
//! * L4. No forced release before the lease that the primary last granted has run out (F10).
//! * L5. A command takes effect once (F2).
//!
//! **Departures.** MUSIC keeps the flag in the data store and clears it with the holder's clock; it
//! synchs at the client's coordinator, without a fence. A resumed section keeps its ref and gets a
//! new generation, since a new ref at the head would outrank those that wait behind it.

mod grant;
mod idle;
mod leases;
pub mod message;
pub mod primary;
mod pushes;
pub mod state;

pub use leases::LastWords;
pub use message::{Grant, Latest, Message, Outcome, Rejection};
pub use primary::{Primary, PrimaryEnv};
pub use state::{LastPut, Queue, Queues, Ref};
