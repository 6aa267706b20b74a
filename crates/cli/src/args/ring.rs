//! The commands about who is in a cluster, and where its groups are.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::ClusterOptions;
use crate::duration;

/// See `fermata ring --help`.
#[derive(Debug, Args)]
pub(crate) struct RingArgs {
    #[command(subcommand)]
    pub(crate) action: Option<RingCommand>,
    /// Show it again every so often, until interrupted.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s",
          require_equals = true, value_parser = duration::positive)]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

/// See `fermata ring --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum RingCommand {
    /// Show or change what the groups do unasked.
    Policy {
        #[command(subcommand)]
        action: PolicyCommand,
    },
}

/// What groups do unasked.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show it.
    Show,
    /// Change what is named, and leave the rest as it is.
    Set {
        /// Give the seats of a node that is silent for so long to another, of its site if there is
        /// one without a seat: 10s to 720h.
        #[arg(long, value_name = "DURATION", value_parser = duration::positive,
              required_unless_present_any = ["join", "leader"])]
        dead_after: Option<Duration>,
        /// Give nodes without a seat one, in a group of those that one node leads.
        #[arg(long, value_enum, value_name = "GROUP")]
        join: Option<JoinChoice>,
        /// Who leads groups' own logs.
        #[arg(long, value_enum, value_name = "MEMBER")]
        leader: Option<LeaderChoice>,
    },
    /// Do nothing unasked.
    Off,
}

/// Which group gives a node a seat that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JoinChoice {
    /// None does unasked.
    Off,
    /// The one with the most operations per seat lately.
    Load,
    /// The one whose primary is the nearest to a quorum, with that node in it.
    Latency,
    /// The one that is the likeliest to lose its quorum.
    Resilient,
}

/// Who leads groups' own logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeaderChoice {
    /// The first seat.
    Off,
    /// The member that is the nearest to a quorum.
    Latency,
}

/// See `fermata node --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes: labels, sites, standing, seats, and what others still need of them.
    List,
    /// Give a node that has joined a seat in the group that owns the keys.
    Add {
        /// The node: its label, or its number.
        node: String,
        /// The group, by a segment that it has [default: that of the fewest members].
        #[arg(long, value_name = "SEGMENT")]
        segment: Option<u32>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Have a node hand over all that it leads, and lead nothing: before it is stopped.
    Drain {
        /// The node: its label, or its number.
        node: String,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Let a node lead again.
    Undrain {
        /// The node: its label, or its number.
        node: String,
    },
    /// Take a node out for good: it hands over what it leads, its seats go, and its values move to
    /// the others. Returns when the node can be stopped.
    Remove {
        /// The node: its label, or its number.
        node: String,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Give all seats of a node to another, and take the first out for good.
    Replace {
        /// The node that goes: its label, or its number.
        old: String,
        /// The node that comes, which has joined.
        new: String,
        /// The disk of the first is lost for good: nobody waits for what was there alone. Without
        /// --yes it is told what that may be, and nothing is done.
        #[arg(long)]
        lost: bool,
        /// With --lost: do it, whatever may go with the disk.
        #[arg(long, requires = "lost")]
        yes: bool,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Show in which order to restart all nodes so that clients wait the least.
    RestartOrder,
}

/// How long a command about nodes waits.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Until what is so. Interrupted, the change goes on.
    #[arg(long, value_enum, default_value_t = Wait::Moved)]
    pub(crate) wait: Wait,
    /// Give up where for so long nothing gets on; what was begun goes on.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::positive)]
    pub(crate) patience: Duration,
}

/// Until what is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// The group has its new members.
    Started,
    /// All values have moved to them.
    Moved,
}
