//! Who may do what in a cluster: the access policy, the tokens in it, and the judgement of what a
//! request needs against it.
//!
//! **Problem.** Whoever reaches a node could release anybody's lock. A cluster that is used by
//! several has to know who asks, and what each may do; and whoever administers it has to be able to
//! change that without a moment in which the two halves of a change do not fit each other.
//!
//! **Idea.** All of it is one document, a [`Policy`] in JSON, which the cluster keeps beside its
//! keyspaces and replaces as a whole, by compare-and-set. *Principals* have *roles*; a role is a
//! list of [`Rule`]s, each of which gives [`Right`]s over a keyspace, or over those of its keys
//! that have a prefix or a tag. Nothing else is allowed. A [`Token`] proves who a principal is; the
//! policy has its hash alone. Every node makes a [`Judge`] of the policy, which looks each right up
//! in sorted prefixes, so that a decision takes no longer for many rules than for few.
//!
//! This crate knows no keyspace and no network: who asks it names both.

mod judge;
mod policy;
mod token;

pub use judge::{Grants, Judge};
pub use policy::{ADMIN, Policy, Principal, Quota, Right, Role, Rule, TokenEntry, is_principal};
pub use token::{Hash, Token, TokenId};
