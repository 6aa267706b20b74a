//! One replicated log against an adversarial world: random schedules, named schedules, and planted
//! bugs that both must catch.

mod bounds;
mod outsider;
#[cfg(feature = "planted-bugs")]
mod planted;
mod random;
mod rules;
mod scenarios;
mod transfer;
mod world;
