//! Three whole nodes in one thread: memory that is always durable, a network that loses nothing and
//! takes no time. Virtual time goes on a little with every operation, so that beats are part of the
//! cost as they are in a cluster under load.

#[path = "../../tests/common/nodes.rs"]
mod nodes;

use super::counting::counted;
use fermata_protocol::base::SegmentId;
use fermata_protocol::{CallId, Effects, Input, Message, Node, Output, Reply, lock};
use nodes::{Ram, at, config, fresh};
use std::collections::VecDeque;

/// Nodes of the cluster.
pub(crate) const NODES: usize = 3;
/// Virtual time per operation, microseconds: a busy cluster's.
const PACE: u64 = 50;

/// What the nodes did, counted from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Inputs handled.
    pub(crate) steps: u64,
    /// Messages to another node.
    pub(crate) messages: u64,
    /// Durable writes.
    pub(crate) writes: u64,
    /// Allocations within `Node::step` and `Node::wake`.
    pub(crate) allocations: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// What comes back to a client of the benchmark.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A node's reply to a request.
    Reply(CallId, Reply),
    /// A primary's answer to a command that was submitted to it directly.
    Submitted(u64, lock::Outcome),
}

/// Three nodes and what is under way between them.
pub(crate) struct ThreeNodes {
    nodes: Vec<(Node, Ram)>,
    inputs: VecDeque<(usize, Input)>,
    answers: VecDeque<Answer>,
    now: u64,
    /// Whether allocations are counted, which costs time.
    pub(crate) counts: bool,
    /// The total so far.
    pub(crate) work: Work,
}

impl ThreeNodes {
    /// A cluster of 2^`bits` segments that has elected its primaries.
    pub(crate) fn new(bits: u8) -> ThreeNodes {
        let node = |i| fresh(config(i, NODES as u32, bits));
        let mut cluster = ThreeNodes {
            nodes: (0..NODES as u32).map(node).collect(),
            inputs: VecDeque::new(),
            answers: VecDeque::new(),
            now: 0,
            counts: false,
            work: Work::default(),
        };
        for _ in 0..200 {
            cluster.pass(10_000);
        }
        cluster
    }

    /// The node that leads a segment in an undisturbed cluster.
    pub(crate) fn primary(&self, segment: SegmentId) -> usize {
        let leads = |(node, _): &(Node, Ram)| {
            node.here()
                .segments
                .get(&segment)
                .is_some_and(|s| s.primary.is_some())
        };
        self.nodes
            .iter()
            .position(leads)
            .expect("every segment has a primary")
    }

    /// The queues of a segment, as its primary has them.
    pub(crate) fn queues_of(&self, segment: SegmentId) -> &lock::Queues {
        let (node, _) = &self.nodes[self.primary(segment)];
        node.here().segments[&segment].state.queues()
    }

    /// Hands an input to a node.
    pub(crate) fn give(&mut self, node: usize, input: Input) {
        self.inputs.push_back((node, input));
    }

    /// A message to a node that comes from the node itself.
    pub(crate) fn tell(&mut self, node: usize, message: Message) {
        let from = self.nodes[node].0.id();
        self.give(node, Input::Message { from, message });
    }

    /// Runs until there is an answer.
    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return answer;
            }
            match self.inputs.pop_front() {
                Some((i, input)) => self.step(i, input),
                None => self.pass(1_000),
            }
        }
    }

    /// One operation's worth of time goes by.
    pub(crate) fn pace(&mut self) {
        self.advance(PACE);
    }

    /// Time goes by until nothing is left to do.
    pub(crate) fn pass(&mut self, micros: u64) {
        self.advance(micros);
        while let Some((i, input)) = self.inputs.pop_front() {
            self.step(i, input);
        }
    }

    fn advance(&mut self, micros: u64) {
        self.now += micros;
        for i in 0..self.nodes.len() {
            if self.nodes[i].0.wake().is_some_and(|at| at <= self.now) {
                self.step(i, Input::Tick);
            }
        }
    }

    fn step(&mut self, i: usize, input: Input) {
        let (node, ram) = &mut self.nodes[i];
        let mut fx = Effects::new();
        let now = at(self.now);
        let run = || {
            node.step(now, input, ram, &mut fx);
            std::hint::black_box(node.wake());
        };
        self.work.steps += 1;
        if self.counts {
            let ((), allocations, bytes) = counted(run);
            self.work.allocations += allocations;
            self.work.bytes += bytes;
        } else {
            run();
        }
        assert_eq!(fx.halt, None);
        self.work.writes += fx.writes.len() as u64;
        ram.append(fx.writes);
        let from = node.id();
        for output in fx.outputs {
            match output {
                Output::Send {
                    message: Message::Lock(lock::Message::Submitted { call, result, .. }),
                    ..
                } if call >= super::DIRECT => {
                    let outcome = result.expect("the primary takes what it is asked");
                    self.answers.push_back(Answer::Submitted(call, outcome));
                }
                Output::Send { to, message, .. } => {
                    self.work.messages += u64::from(to != from.name);
                    self.inputs
                        .push_back(((to.0) as usize, Input::Message { from, message }));
                }
                Output::Reply { call, reply, .. } => {
                    self.answers.push_back(Answer::Reply(call, reply));
                }
            }
        }
    }
}
