//! What waits at a primary to be proposed, with how many bytes that is.

use crate::base::{Bug, Limits, Planted};
use crate::command::Command;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Commands in the order in which they were taken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: VecDeque<Command>,
    bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, command: Command) {
        self.bytes += command.bytes();
        self.commands.push_back(command);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many commands go into the next slot, and their bytes: as many as the limits of a batch
    /// allow, but at least one.
    pub(super) fn batch(&self, limits: &Limits, planted: Planted) -> (usize, usize) {
        let by_count = planted.has(Bug::BatchByCount);
        let (mut count, mut bytes) = (0, 0);
        for command in self.commands.iter().take(limits.batch.max(1)) {
            let with = bytes + command.bytes();
            if count > 0 && with > limits.batch_bytes && !by_count {
                break;
            }
            (count, bytes) = (count + 1, with);
        }
        (count, bytes)
    }

    /// Takes the first `count`.
    pub(super) fn take(&mut self, count: usize) -> Vec<Command> {
        let taken: Vec<Command> = self.commands.drain(..count).collect();
        self.bytes -= taken.iter().map(Command::bytes).sum::<usize>();
        taken
    }

    /// What is left when nothing of it is proposed any more.
    pub(super) fn into_commands(self) -> VecDeque<Command> {
        self.commands
    }
}

impl From<VecDeque<Command>> for Queue {
    fn from(commands: VecDeque<Command>) -> Queue {
        let bytes = commands.iter().map(Command::bytes).sum();
        Queue { commands, bytes }
    }
}
