//! What must hold, one file per property.
//!
//! | property | from | file | looks at |
//! | --- | --- | --- | --- |
//! | linearizability of registers | Wing and Gong; Lowe | `linearizable` | history |
//! | what sections are promised, see there | MUSIC §III, §V; F1 to F7, F10, F17, F19, F20 | `fermata_check::sections` | history |
//! | leases of clients exclude each other | F10 | `leases` | clients, every step |
//! | a leased section ends by its own word only | F10, G6, G13 | `leases` | replicas, every step |
//! | one primary at most believes in the read lease of a log | F10, R9 | `read_lease` | nodes, every step |
//! | who takes part reads what the cluster writes | R10 | `formats` | nodes, every step |
//! | sections end in time | MUSIC's T; G31 | `longest` | history, where primaries hand over |
//! | lock queues as seen by clients | the lease of the primary | `queues` | history |
//! | the access policy is replaced by who has read it, and read as it is | compare-and-set; G75 | `access` | history |
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
//! | nothing of a deleted keyspace is stored by who knows, nor anywhere after healing | G59 | `gone` | disks, queues |
//! | records are what the log has left, wherever a member says so; at rest each has them | position with the data | `records` | replicas, every step; at rest |
//! | transactions and snapshots of ledgers are strictly serializable; sums are kept | ledger, its rules | `ledger` | history |
//! | messages fit frames | G34, G35 | `frames` | messages |
//! | a node rests when it has done what was due | G41 | `rests` | nodes, every tick |
//! | what needs the disk leaves when it is there, in order, soon; full is told once | the contract with a shell | `driver` | drivers, every turn |
//! | everybody can go on once all is healed | two phases | `crate::random` | end of the run |

pub mod access;
pub mod agreement;
pub mod at_rest;
pub mod begin;
pub mod data_store;
pub mod driver;
pub mod durability;
pub mod eventual;
pub mod formats;
pub mod frames;
pub mod gone;
pub mod leases;
pub mod ledger;
pub mod linearizable;
pub mod longest;
pub mod names;
pub mod places;
pub mod queues;
pub mod read_lease;
pub mod records;
pub mod rests;
pub mod stuck;
pub mod tags;

use crate::history::History;
pub use fermata_check::sections::show;
use fermata_check::sections::{self, Promise};
use fermata_protocol::base::KeyId;

/// The name of the checker of liveness: see [`crate::random`].
pub const PROGRESS: &str = "progress";

/// All checkers, as they call themselves in a violation. Each has caught a planted bug before any
/// other did: the test `planted` proves it and prints which. Beside them stands [`stuck::NAME`],
/// which the policies that may be stuck are held to.
pub const NAMES: &[&str] = &[
    linearizable::NAME,
    Promise::LatestState.name(),
    Promise::Outcomes.name(),
    Promise::Acknowledged.name(),
    Promise::Exclusivity.name(),
    Promise::OneEnd.name(),
    Promise::Refs.name(),
    longest::NAME,
    queues::NAME,
    access::NAME,
    leases::NAME,
    leases::KEPT,
    read_lease::NAME,
    formats::NAME,
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
    gone::NAME,
    names::NAME,
    records::NAME,
    ledger::NAME,
    frames::NAME,
    rests::NAME,
    driver::NAME,
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
    let catalogue = &history.catalogue;
    let counts = |key: &KeyId| catalogue.has_sections(key) && !catalogue.is_deleted(key);
    let judged = sections::check(history, &counts);
    found.extend(
        judged
            .into_iter()
            .map(|v| Violation::new(v.promise.name(), v.sentence)),
    );
    longest::check(history, &mut found);
    queues::check(history, &mut found);
    access::check(history, &mut found);
    // That a refused write was found says why it is not the latest state.
    found.sort_by_key(|violation| violation.property != Promise::Outcomes.name());
    found
}
