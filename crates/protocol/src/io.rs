//! The whole vocabulary between a node and the world that drives it: what comes in, what goes out,
//! and what durable memory looks like. Two worlds drive the same node: the server's shell and the
//! simulator.

use crate::base::{Interval, Limits, NodeId, NodeName, Now, Planted, Timing};
#[cfg(feature = "planted-bugs")]
use crate::base::{KeyId, SegmentId};
#[cfg(feature = "planted-bugs")]
use crate::command::Command;
#[cfg(feature = "planted-bugs")]
use crate::lock::{Queue, Queues, Ref};
use crate::message::Message;
use crate::request::{Reply, Request};
#[cfg(feature = "planted-bugs")]
use crate::segment::Applied;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

/// The shell's name for one open client request at one node; never reused while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer's message. The shell has checked that the connection belongs to this incarnation.
    Message {
        /// Who sent it.
        from: NodeId,
        /// What it says.
        message: Message,
    },
    /// A frame has come: what its envelope says of its sender's interval clock. Its messages are
    /// the inputs that follow, until the next of these; a world that compares no clocks leaves it
    /// out.
    Heard {
        /// Who sent it.
        from: NodeId,
        /// Read when the frame was closed, whether or not the sender relies on it; none: the sender
        /// has no such clock.
        interval: Option<Interval>,
    },
    /// A client's request.
    Request {
        /// The name under which answers come back.
        call: CallId,
        /// What is asked.
        request: Request,
    },
    /// Nobody reads answers to this call any more. It is forgotten, not undone: the client may have
    /// sent the request to another node as well.
    Cancel(CallId),
    /// The time of [`crate::Node::wake`] has come, or nothing else happened for a while.
    Tick,
    /// The node is about to stop: it hands over what it leads, so that nobody waits for an
    /// election.
    Retire,
    /// The process of a peer has ended, as far as the shell can tell: its machine answers, and its
    /// port does not. A hint, for which nothing waits and on which no promise rests: it may be
    /// wrong, late, or never come.
    Gone(NodeName),
    /// Whether the disk takes writes. While it does not, reads go on and writes are refused.
    Writable(bool),
}

/// When an output may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// Once everything that this node has written up to and including this step is durable. A
    /// promise thus travels with the write that makes it true, and no shell can send it too early.
    Durable,
}

/// What to send, to whom, and when.
#[derive(Clone, Debug)]
pub enum Output {
    /// To a peer, or to this node itself (which is stepped with it once it may leave).
    Send {
        /// The peer.
        to: NodeName,
        /// The message.
        message: Message,
        /// When it may leave.
        when: When,
    },
    /// To a client.
    Reply {
        /// The open request.
        call: CallId,
        /// The answer.
        reply: Reply,
        /// When it may leave.
        when: When,
    },
}

/// One durable change. All writes of one step are one atomic batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Set a key.
    Put {
        /// See `wire::record` for the layout of keys.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Remove all keys in `from .. to`.
    DeleteRange {
        /// First key removed.
        from: Bytes,
        /// First key kept.
        to: Bytes,
    },
}

/// A durable record is corrupt: its content is unknown, which is not the same as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Void;

/// The durable memory of a node, as it reads it. Writes of earlier steps are visible at once,
/// before they are durable; [`When::Durable`] keeps what was read from leaving too early.
pub trait Memory {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void>;
    /// Up to `limit` keys of `from .. to` in order, each with its value unless that is void.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)>;
    /// Whether what [`Self::get`] says of a key now is durable; false where that is not known.
    fn is_durable(&self, key: &[u8]) -> bool;
}

/// What a step wants done.
#[derive(Debug, Default)]
pub struct Effects {
    /// One atomic batch; empty: nothing to write.
    pub writes: Vec<Write>,
    /// In order.
    pub outputs: Vec<Output>,
    /// The node must stop, and why, in one sentence for the operator.
    pub halt: Option<String>,
    /// The commands that segments have applied, in order: for the simulator, which watches.
    #[cfg(feature = "planted-bugs")]
    pub applied: Vec<Happened>,
}

/// A command that a segment has applied.
#[cfg(feature = "planted-bugs")]
#[derive(Clone, Debug)]
pub struct Happened {
    /// The segment.
    pub segment: SegmentId,
    /// How many outputs of the step came before.
    pub outputs: usize,
    /// What was applied.
    pub command: Command,
    /// What it did.
    pub applied: Applied,
    /// The queues of the keys that it touched, after it; none: idle.
    pub queues: Vec<(KeyId, Option<Queue>, Vec<Ref>)>,
}

impl Effects {
    /// Nothing to do.
    pub fn new() -> Effects {
        Effects::default()
    }

    /// Sends to a peer at once.
    pub fn send(&mut self, to: NodeName, message: impl Into<Message>) {
        self.outputs.push(Output::Send {
            to,
            message: message.into(),
            when: When::Now,
        });
    }

    /// Sends to a peer once this step is durable.
    pub fn promise(&mut self, to: NodeName, message: impl Into<Message>) {
        self.outputs.push(Output::Send {
            to,
            message: message.into(),
            when: When::Durable,
        });
    }

    /// Answers a client at once.
    pub fn reply(&mut self, call: CallId, reply: Reply) {
        self.outputs.push(Output::Reply {
            call,
            reply,
            when: When::Now,
        });
    }

    /// A segment has applied a command; `queues` is its state after that.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn note_applied(
        &mut self,
        segment: SegmentId,
        command: &Command,
        applied: &Applied,
        queues: &Queues,
    ) {
        let queue = |key: &KeyId| {
            let queue = queues.queue(key).cloned();
            let refs = queue.iter().flat_map(|q| &q.refs);
            let refs = refs.filter_map(|r| queues.get(*r).cloned()).collect();
            (key.clone(), queue, refs)
        };
        self.applied.push(Happened {
            segment,
            outputs: self.outputs.len(),
            command: command.clone(),
            applied: applied.clone(),
            queues: applied.touched.iter().map(queue).collect(),
        });
    }

    /// Sets a durable key.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.writes.push(Write::Put { key, value });
    }

    /// Removes a durable key.
    pub fn delete(&mut self, key: Bytes) {
        self.writes.push(Write::Delete { key });
    }

    /// Removes the durable keys `from .. to`.
    pub fn delete_range(&mut self, from: Bytes, to: Bytes) {
        self.writes.push(Write::DeleteRange { from, to });
    }
}

/// What a step gives to each machine of a node. A machine reads from `memory` what earlier steps
/// wrote, so that one step hands it one message at most.
pub struct Env<'a> {
    /// The time of the step.
    pub now: Now,
    /// The cluster's time ([`ClusterTime`](crate::ledger::ClusterTime)); none: it is not known here
    /// now.
    pub time: Option<Interval>,
    /// What the step wants done.
    pub fx: &'a mut Effects,
    /// Durable memory as the step began.
    pub memory: &'a dyn Memory,
    /// Durations.
    pub timing: &'a Timing,
    /// Bounds.
    pub limits: &'a Limits,
    /// What is wrong on purpose.
    pub planted: Planted,
}
