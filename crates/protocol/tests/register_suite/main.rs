//! Quorum registers under an adversary.
//!
//! `rules` names each rule and shows it, `coded` those of coded values, `clocks` those of tags that
//! are times, `once` those of eventual puts, `epochs` those of stores that end, `two_stores` those
//! of operations over several stores, `upkeep` what members do while nobody asks; `atomicity`,
//! `sections`, `epochs` and `moving` run thousands of seeded schedules of macro-steps (an operation
//! touches a chosen subset of replicas, the rest comes late or never; replicas crash and keep only
//! what was flushed) and check what clients saw. `explore` visits every state of tiny worlds. With
//! the feature `planted-bugs` the same schedules must catch each wrong rule.

mod atomicity;
mod clocks;
mod coded;
mod disk;
mod epochs;
mod eventual;
mod explore;
mod moving;
mod once;
mod rules;
mod sections;
mod two_stores;
mod upkeep;
mod world;
