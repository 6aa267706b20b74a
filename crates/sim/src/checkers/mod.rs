//! What must hold, one file per property.
//!
//! | property | from | file | looks at |
//! | --- | --- | --- | --- |
//! | linearizability of registers | Wing and Gong; Lowe | `linearizable` | history |
//! | Latest-State | MUSIC §V; F3 to F7, F17 | `latest_state` | history |
//! | Exclusivity; one section, one end | MUSIC §V; F1, F10, F19, F20 | `exclusivity` | history |
//! | no acknowledged put lost | F1, F2, F5 | `acknowledged` | history |
//! | lock refs unique and increasing | MUSIC §III-B; F2 | `lock_refs` | history |
//! | leases of clients exclude each other | F10 | `leases` | clients, every step |
//! | a leased section ends by its own word only | F10, G6, G13 | `leases` | replicas, every step |
//! | sections end in time | MUSIC's T; G31 | `longest` | history, where primaries hand over |
//! | lock queues as seen by clients | the lease of the primary | `queues` | history |
//! | Critical-Section and SynchFlag invariants | MUSIC §V | `data_store` | replicas, every step |
//! | replicas agree on every log | Multi-Paxos; F13 | `agreement` | replicas, every step |
//! | a leader's commands come above its `Begin` | F3f | `begin` | messages |
//! | tags, fences and marks never go backwards; versions go below a mark only | F1, F8 | `tags` | replicas, every step |
//! | nothing is stored below a fence; what is removed stays away | F1, F8f | `tags` | replicas, every step |
//! | an eventual put goes, or is hidden, only where a section has written after it | F6, G24, G26 | `eventual` | replicas, every step; at rest |
//! | a read finds a value: always, or with at most δ writes unfinished | F8; CassandrEAS §III | `stuck` | messages, disks, history |
//! | what was flushed is there after a restart | F8c | `durability` | disks |
//! | what is acknowledged is on a quorum of disks | ABD; F8c | `durability` | disks, history |
//! | at rest each member holds what the policy says, and nothing else | F8 | `at_rest` | disks, after healing |
//! | messages fit frames | G34, G35 | `frames` | messages |
//! | a node rests when it has done what was due | G41 | `rests` | nodes, every tick |
//! | everybody can go on once all is healed | two phases | `crate::random` | end of the run |

pub mod acknowledged;
pub mod agreement;
pub mod at_rest;
pub mod begin;
pub mod data_store;
pub mod durability;
pub mod eventual;
pub mod exclusivity;
pub mod frames;
pub mod latest_state;
pub mod leases;
pub mod linearizable;
pub mod lock_refs;
pub mod longest;
pub mod queues;
pub mod rests;
pub mod sections;
pub mod stuck;
pub mod tags;

use crate::history::History;

/// The name of the checker of liveness: see [`crate::random`].
pub const PROGRESS: &str = "progress";

/// All checkers, as they call themselves in a violation. Each has caught a planted bug before any
/// other did: the test `planted` proves it and prints which. Beside them stands [`stuck::NAME`],
/// which the policies that may be stuck are held to.
pub const NAMES: &[&str] = &[
    linearizable::NAME,
    "latest-state",
    "outcomes",
    acknowledged::NAME,
    exclusivity::NAME,
    exclusivity::ENDS,
    lock_refs::NAME,
    longest::NAME,
    queues::NAME,
    leases::NAME,
    leases::KEPT,
    data_store::FLAG,
    data_store::SECTION,
    agreement::NAME,
    begin::NAME,
    tags::NAME,
    eventual::NAME,
    durability::NAME,
    durability::ACKNOWLEDGED,
    stuck::LOST,
    at_rest::NAME,
    frames::NAME,
    rests::NAME,
    PROGRESS,
];

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A promise was broken: exit status 1 of the command.
    Correctness,
    /// Nobody can go on although everything is healed.
    Liveness,
    /// The code under test panicked.
    Crash,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind.
    pub kind: Kind,
    /// The checker's name.
    pub property: &'static str,
    /// One sentence with the evidence.
    pub detail: String,
}

impl Violation {
    /// A broken promise.
    pub fn new(property: &'static str, detail: impl Into<String>) -> Violation {
        Violation {
            kind: Kind::Correctness,
            property,
            detail: detail.into(),
        }
    }
}

/// All properties of a history.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    linearizable::check(history, &mut found);
    let chains = sections::chains(history);
    // The worst first: what else is wrong with a lost put follows from it.
    acknowledged::check(&chains, &mut found);
    latest_state::check(&chains, &mut found);
    exclusivity::check(&chains, &mut found);
    exclusivity::check_ends(history, &mut found);
    lock_refs::check(history, &mut found);
    longest::check(history, &mut found);
    queues::check(history, &mut found);
    // That a refused write was found says why it is not the latest state.
    found.sort_by_key(|violation| violation.property != "outcomes");
    found
}

/// A value for people.
pub fn show(value: &crate::history::Value) -> String {
    match value {
        None => "nothing".to_owned(),
        // What is put behind a value to make it long says nothing.
        Some(bytes) => String::from_utf8_lossy(bytes)
            .trim_end_matches('~')
            .to_owned(),
    }
}
