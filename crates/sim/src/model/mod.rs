//! Traces for the formal model: what a run did, as events of `formal/critical`.
//!
//! **Problem.** The model proves things of its events, and the code is tested by its checkers.
//! Nothing says that the code's steps are the model's events: either may be changed alone, and
//! every proof and every test goes on to pass.
//!
//! **Idea.** [`observe`] writes down what happens in a run; [`map`] says, for each key of sections,
//! which event of the model each step is, or that it is none, and what the model's [`state`] is
//! after it. The judge is not here: `formal/trace` reads the model's own text, and evaluates for
//! every step that the event holds between the two states, and in every state the invariant.
//!
//! **Invariants.**
//! * Nothing is left out in silence: an event that is not in the model ends a key's trace, and is
//!   counted.
//! * The mapping interprets by matches without a wildcard. A new command, message or request does
//!   not compile before somebody has said what it is.
//! * The model's state and the run must agree: queues, flags, values.
//!
//! **Departures.** None of a paper's: MUSIC's model was related to its code by hand (§V).

pub mod atoms;
pub mod foresee;
pub mod map;
pub mod observe;
pub mod primary;
pub mod state;

mod client;

pub use map::{Traced, trace};
pub use observe::Observer;
