//! The nemesis wants the system to fail.
//!
//! Two hands. [`Fates`] takes adversarial macro-steps: it picks one logical operation in flight
//! (all messages of one put, one synch, one accept), lets it touch a subset of the replicas and
//! makes the rest late, or lost; sometimes the answers too. A uniform random walk over messages has
//! almost no power against quorum protocols; operations that touch chosen subsets find in hundreds
//! of runs what the walk does not find in millions. [`faults`] draws a schedule of crashes, cuts,
//! pauses, clocks and disks that go wrong, and clients that die, are suspected, and come back;
//! [`crossings`] makes two of the protocol's rules meet, and [`coming`] brings nodes, and takes
//! them away.

mod coming;
mod crossings;
mod fates;
mod faults;

pub use coming::{change_members, give_up, join, leave, newest};
pub use crossings::Crossing;
pub use fates::Fates;
pub use faults::{
    Fault, Plan, cut, heal, next_members, next_members_pressing, next_view, present_view, propose,
    put_records, schedule, split_at, watch_calm,
};
