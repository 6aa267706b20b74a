//! VNF homing: the multi-site job scheduler of MUSIC §VII(a).
//!
//! **Problem.** Customers ask for chains of virtual network functions: firewall, then load
//! balancer, then packet core. Somebody has to choose the cloud region of each function so that
//! hardware, distances, bandwidths and separation rules hold. Workers at all sites compete for the
//! requests; any of them may die in the middle or be thought dead while it still works.
//!
//! **Idea.** A request is a *job* under one key. A worker enters a critical section over the key,
//! reads the latest acknowledged state, and moves the job on by one [`job::step`] per critical put,
//! until it is `DONE`. The one that takes over goes on from the last acknowledged step.
//!
//! Everything that decides what is right needs no cluster:
//!
//! * [`data`]: regions and requests, the distance and bandwidth between regions;
//! * [`solver`]: the exact search for the cheapest placement and an independent check of it;
//! * [`job`]: the states of figure 3(b) and the pure function from one state to the next;
//! * [`history`]: what an observer saw of a run, and whether it was right.
//!
//! All use of the cluster is through the public client library: [`worker`] is the paper's loop, and
//! [`run`] is the front end, the faults and the observer.
//!
//! **Invariants.**
//! * H1 Everything in the first list is a function of its arguments: no clock, no randomness, no
//!   I/O. Two workers that do the same step from the same state write the same value, apart from
//!   their name.
//! * H2 The state after step *n* is computed from what step *n − 1* recorded. A final state shows a
//!   step that was left out or altered ([`job::replay`] repeats its trail and compares); a history
//!   of acknowledged puts also shows a lost or repeated one ([`job::follows`] on each pair).
//! * H3 No placement is reserved that [`solver::verify`] has not accepted.
//! * H4 Distances are whole metres and bandwidths whole Mbit/s, so that costs are compared exactly
//!   and ties are broken the same way everywhere.
//!
//! **Departures from the paper.** Figure 3(b) names the states of the production service; ours are
//! adapted to the steps that this solver has. The paper's job holds a list of chains, ours one.
//! Capacities bound what one request takes; a ledger over all requests would need sections over
//! regions as well as jobs, which the paper's service does not have either.

mod data;
#[cfg(test)]
mod generate;
mod history;
mod job;
#[cfg(test)]
mod job_tests;
mod run;
mod solver;
#[cfg(test)]
mod solver_tests;
mod worker;

pub use run::run;
