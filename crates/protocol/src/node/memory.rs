//! What the logs of a node keep together of their applied entries.
//!
//! A log is truncated when it has kept enough, and a node may keep a thousand logs. Their sum is
//! bounded, too: beyond it the log that keeps most is truncated, and keeps nothing for peers that
//! lag. These get its snapshot.

use super::agenda::Room;
use super::logs::env;
use super::{Here, Step};
use crate::wire;
use alloc::collections::BTreeMap;

/// Bytes kept, by log.
#[derive(Debug, Default)]
pub(super) struct Kept {
    logs: BTreeMap<Room, usize>,
    total: usize,
}

impl Kept {
    /// A log keeps so many bytes now.
    pub(super) fn note(&mut self, room: Room, bytes: usize) {
        let before = match bytes {
            0 => self.logs.remove(&room),
            _ => self.logs.insert(room, bytes),
        };
        self.total = self.total - before.unwrap_or(0) + bytes;
    }

    fn most(&self) -> Option<Room> {
        let most = self.logs.iter().max_by_key(|(_, bytes)| **bytes);
        most.map(|(room, _)| *room)
    }
}

impl Here {
    /// Truncates a log behind its present state.
    pub(super) fn truncate(&mut self, room: Room, step: &mut Step<'_>) {
        let mut cx = env(&self.config, step);
        match room {
            Room::Segment(id) => {
                if let Some(segment) = self.segments.get_mut(&id) {
                    let (slot, state) = (segment.log.delivered(), wire::encode(&segment.state));
                    segment.log.truncate(slot, state, &mut cx);
                    self.forget_changes(id, step);
                }
            }
            Room::Group(id) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    let (slot, state) = (group.log.delivered(), wire::encode(&group.state));
                    group.log.truncate(slot, state, &mut cx);
                }
            }
        }
    }

    /// Keeps the sum below its bound, once all that was delivered is applied.
    pub(super) fn bound_memory(&mut self, step: &mut Step<'_>) {
        while self.kept.total > self.config.limits.node_entries_bytes {
            let Some(room) = self.kept.most() else {
                return;
            };
            self.truncate(room, step);
            let before = self.kept.total;
            let bytes = self.log_in(room, step).map_or(0, |(log, _)| {
                log.shed();
                log.kept_bytes()
            });
            self.kept.note(room, bytes);
            if self.kept.total >= before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{GroupId, SegmentId};

    #[test]
    fn the_sum_follows_every_log_and_the_most_is_of_the_present() {
        let [a, b] = [0, 1].map(|i| Room::Segment(SegmentId(i)));
        let group = Room::Group(GroupId(1));
        let mut kept = Kept::default();
        for (room, bytes, total, most) in [
            (a, 10, 10, Some(a)),
            (b, 20, 30, Some(b)),
            (group, 15, 45, Some(b)),
            (b, 5, 30, Some(group)),
            (b, 5, 30, Some(group)),
            (group, 0, 15, Some(a)),
            (group, 0, 15, Some(a)),
            (a, 0, 5, Some(b)),
            (b, 0, 0, None),
        ] {
            kept.note(room, bytes);
            assert_eq!((kept.total, kept.most()), (total, most), "{room:?} {bytes}");
        }
    }
}
