//! The session of a client: what stands between one user and a cluster of nodes that may each fail.
//!
//! **Problem.** MUSIC leaves half of its protocol to the client (§III-A, "Failure Semantics"): a
//! call that was not answered is repeated, "usually at a different replica", until it succeeds or
//! the client is told that it is no longer the lockholder; a holder whose put is unacknowledged
//! must not leave as if nothing had happened. A client that gets this wrong loses data although
//! every node is right (M2: a retry under an older tag; M5, F5: a clean leave after an unanswered
//! put; F16: a number used twice). So it is not left to the users: this machine
//! does it, the client library drives it with real time, and the simulator runs exactly this code.
//!
//! **Idea.** [`Session`] is a pure struct. The driver hands in calls, replies and failures with the
//! present time, and carries out the [`Event`]s. One user operation is one request number; its
//! transmissions repeat that number at one endpoint after another until an answer is final.
//!
//! **Invariants.**
//! * *Numbers.* Request numbers grow and are never reused. Write numbers of a section grow over all
//!   its keys; a retry repeats both. A client without its counter takes a new generation
//!   ([`Call::Resume`]) and never guesses (F16).
//! * *Leaving.* A key is left clean only if its highest write that may have taken effect was
//!   acknowledged (F5). The account is kept in [`writes`].
//! * *Latest state.* A get of a key waits for the writes of that key issued before it, and a write
//!   for the gets issued before it; a get whose key's highest write has no known outcome is
//!   refused. Without this a get could return a value that the next holder never sees, or miss a
//!   put that was acknowledged a moment later. Writes do not wait for each other: they may be
//!   pipelined, and the numbers order them.
//! * *Leases.* They run from the time at which the renewal (for a grant: the first transmission of
//!   the enter) was sent, on the caller's boot-time clock, shortened by the drift bound
//!   (F10). Only the cached get relies on them; everything else is safe by fencing. A section whose
//!   lease was given back ([`Call::Relinquish`]) is forgotten before that is said (G14).
//! * *One section, one end.* The first key that is lost ends the section on all its keys
//!   (F19).
//! * *Outcomes.* A failure is definite only if every transmission is known to have changed nothing.
//!   A definite refusal of a second attempt says nothing of the first.
//!
//! **Departures.** A linearizable `write` is not repeated after a transmission that may have
//! reached a node: at another coordinator it would take a new tag, and could take effect again over
//! a write that came in between. It fails with an unknown outcome instead. An eventual `put` is
//! repeated, and may thus be ordered after a put that another client made meanwhile: it promises no
//! more.

mod call;
mod endpoints;
mod operation;
mod section;
mod session;
mod steps;
mod upkeep;
pub mod writes;

pub use call::{Call, Endpoint, Event, Failure, LostReason, Options, SectionId, Success, Ticket};
pub use section::SectionInfo;
pub use session::Session;
