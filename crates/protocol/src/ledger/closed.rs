//! Up to which time a replica may answer.

use super::Closing;
use crate::base::{Bug, Planted, Timestamp};
use alloc::collections::VecDeque;

/// What was said and does not hold here yet, at most.
const AHEAD: usize = 16;

/// What primaries have closed of a segment, as one replica knows it (L3).
#[derive(Debug, Default)]
pub struct Closed {
    at: Timestamp,
    /// What holds once more is applied, in the order of positions.
    ahead: VecDeque<Closing>,
}

impl Closed {
    /// A primary, present or deposed, says what it has closed. So many commands are applied here.
    pub fn note(&mut self, closing: Closing, commands: u64, planted: Planted) {
        if closing.position <= commands || planted.has(Bug::ClosedWithoutPosition) {
            self.at = self.at.max(closing.at);
            return;
        }
        let later = |known: &Closing| known.position > closing.position;
        let place = self.ahead.iter().position(later);
        self.ahead
            .insert(place.unwrap_or(self.ahead.len()), closing);
        if self.ahead.len() > AHEAD {
            // The first ones hold soonest, the last one longest.
            self.ahead.remove(AHEAD - 1);
        }
    }

    /// The time up to which all is known, where so many commands are applied.
    pub fn at(&mut self, commands: u64) -> Timestamp {
        while let Some(next) = self.ahead.front()
            && next.position <= commands
        {
            self.at = self.at.max(next.at);
            self.ahead.pop_front();
        }
        self.at
    }

    /// The same without noting it.
    pub fn peek(&self, commands: u64) -> Timestamp {
        let ahead = self
            .ahead
            .iter()
            .take_while(|next| next.position <= commands);
        ahead.map(|next| next.at).fold(self.at, Timestamp::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_closed_once_its_command_is_applied() {
        let mut closed = Closed::default();
        let note = |closed: &mut Closed, at, position, commands| {
            let at = Timestamp::of(at);
            closed.note(Closing { at, position }, commands, Planted::NONE);
        };
        note(&mut closed, 100, 5, 7);
        note(&mut closed, 300, 9, 7);
        note(&mut closed, 200, 8, 7);
        assert_eq!(closed.at(7), Timestamp::of(100));
        assert_eq!(closed.peek(8), Timestamp::of(200));
        assert_eq!(closed.at(8), Timestamp::of(200));
        assert_eq!(closed.at(9), Timestamp::of(300));
        for n in 0..100 {
            note(&mut closed, 1_000 + n, 100 + n, 9);
        }
        assert!(closed.ahead.len() <= AHEAD);
        assert_eq!(
            closed.peek(100),
            Timestamp::of(1_000),
            "the next one is kept"
        );
        assert_eq!(closed.at(199), Timestamp::of(1_099), "and the last one");
    }
}
