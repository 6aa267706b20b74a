//! What nodes tell each other of where groups are, and of logs that have gone on elsewhere.
//!
//! None of these messages decides anything: who has which segment is decided in the groups' logs.
//! Each may be lost, repeated or late, and is said again while it matters.

use crate::base::{Epoch, GroupId, Location, LogId, Seat, SegmentId};
use crate::lock::LastWords;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Between any two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A group is here, as far as the sender has applied the group's log. Sent to whoever asked
    /// for something in an older place.
    Location(Location),
    /// The sender keeps these logs for others, since it has no seat in what follows them: may they
    /// go? Their successors of these epochs can be had from it until then, if it knows their
    /// initial states.
    Ended {
        /// Each with the log that follows, as far as the sender knows.
        logs: Vec<(LogId, LogId)>,
    },
    /// Nobody needs these logs any more: in later ones, of these epochs, entries are chosen, and
    /// the receiver has no seat in them.
    Retire {
        /// Each with the epoch of the later log.
        logs: Vec<(LogId, Epoch)>,
    },
    /// To a group's leader: entries are chosen in the logs of this epoch of these segments.
    Started {
        /// The group.
        group: GroupId,
        /// The epoch.
        epoch: Epoch,
        /// The segments, which the sender leads.
        segments: Vec<SegmentId>,
    },
    /// To a group's leader: every key of the segment has moved from an earlier store.
    Moved {
        /// The group.
        group: GroupId,
        /// The segment.
        segment: SegmentId,
        /// The epoch of the earlier store.
        source: Epoch,
    },
    /// To a group's leader: what this member of an earlier store had of eventual values was given
    /// on.
    Harvested {
        /// The group.
        group: GroupId,
        /// The segment.
        segment: SegmentId,
        /// The epoch of the earlier store.
        source: Epoch,
        /// The member's seat there.
        seat: Seat,
    },
    /// To whoever leads a log first: what the last primary of the log before knows of its holders.
    /// Of use to the primary of ballot 0 alone, when it begins.
    LastWords {
        /// The log that begins.
        log: LogId,
        /// Of those that hold.
        words: LastWords,
    },
    /// Where is the group, or that which owns the segment now? The sender keeps something for it,
    /// and has no seat there.
    Where {
        /// The group, as far as the sender knows.
        group: GroupId,
        /// A segment that it had.
        segment: Option<SegmentId>,
    },
    /// The group, which is here, is about to give the receiver a seat: it may follow the logs.
    Invite(Location),
    /// The sender, which was invited, follows the group's logs of this epoch, and knows all that
    /// was chosen in them lately.
    Warm {
        /// The group.
        group: GroupId,
        /// The epoch.
        epoch: Epoch,
    },
    /// To the members of the meta-group, while the settings change: the sender has this registry,
    /// durably, and reads the format that is to be the cluster's.
    Knows {
        /// The registry's version.
        version: u64,
        /// The meta-group's epoch, as far as the sender knows: it may have other members by now.
        epoch: Epoch,
    },
}
