//! Nouns with no behaviour of their own: identities, ballots, tags, time, views, configuration.

pub mod ballot;
pub mod config;
pub mod directory;
pub mod ids;
pub mod key;
pub mod label;
pub mod limits;
pub mod location;
pub mod planted;
pub mod rng;
pub mod storage;
pub mod tag;
pub mod time;
pub mod view;

pub use ballot::{Ballot, Slot};
pub use config::{Addresses, Cluster, Config, Group, Keyspace, NodeInfo, Purpose, Timing};
pub use directory::Directory;
pub use ids::*;
pub use key::{Address, KeyId, TagRule};
pub use label::Label;
pub use limits::Limits;
pub use location::{Location, Past, Split};
pub use planted::{Bug, Planted};
pub use rng::Rng;
pub use storage::{Kept, Price, Reach, Shape, StoragePolicy, Terms};
pub use tag::{EventualTag, LockRef, Tag};
pub use time::{BOUND_MAX, Interval, Micros, Now, PROMISE_MAX, Timestamp, WALL_BOUND};
pub use view::{Member, View};
