//! How much has moved out of earlier stores, and about how much has yet to.
//!
//! **Problem.** Nobody counts the keys of a store, and to count them would take as long as a good
//! part of their move.
//!
//! **Idea.** A mover lists keys in the order of their addresses, which are hashes and lie evenly in
//! the segment's arc. So the part of the arc that a list has covered tells how many keys the whole
//! has: 256 keys, one page, tell it to about 6 %. Keyspaces whose keys share addresses are less
//! even; where few addresses have been met nothing is said.
//!
//! All of it is for people, and volatile.

use crate::base::{Address, KeyId, Micros};
use crate::request::MovingStatus;

/// Fewer addresses tell nothing of those to come.
const ADDRESSES_MIN: u64 = 16;

/// What has come of a list of keys.
#[derive(Debug, Default)]
pub(super) struct Listed {
    keys: u64,
    addresses: u64,
    last: Option<Address>,
}

impl Listed {
    /// A page has come.
    pub(super) fn add(&mut self, page: &[(Address, KeyId)]) {
        self.keys += page.len() as u64;
        for (address, _) in page {
            self.addresses += u64::from(self.last != Some(*address));
            self.last = Some(*address);
        }
    }

    /// About how many keys of a segment of a ring of 2^`bits` segments are behind those that have
    /// come; none: that cannot be told yet.
    pub(super) fn to_come(&self, bits: u8) -> Option<u64> {
        let last = self.last.filter(|_| self.addresses >= ADDRESSES_MIN)?;
        let covered = last.0.checked_shl(bits.into()).unwrap_or(0);
        let (keys, covered) = (u128::from(self.keys), u128::from(covered) + 1);
        let all = (keys << 64) / covered;
        Some(u64::try_from(all - keys).unwrap_or(u64::MAX))
    }
}

/// What has been carried since there was something to move, as long as there is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    /// When it was looked at first and last while keys were to move.
    during: Option<(Micros, Micros)>,
    keys: u64,
    bytes: u64,
    stores: u32,
    left: Option<u64>,
}

impl Carried {
    /// There are so many stores whose keys are to move, about so many keys.
    pub(super) fn look(&mut self, stores: u32, left: Option<u64>, now: Micros) {
        if stores > 0 || self.stores > 0 {
            let since = self.during.map_or(now, |(since, _)| since);
            self.during = Some((since, now));
        }
        (self.stores, self.left) = (stores, left);
    }

    /// A key has moved, with a value of so many bytes.
    pub(super) fn add(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes += bytes;
    }

    /// As it is told.
    pub(super) fn status(&self) -> MovingStatus {
        MovingStatus {
            stores: self.stores,
            took: self.during.map_or(0, |(since, until)| until - since),
            keys: self.keys,
            bytes: self.bytes,
            keys_left: self.left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::KeyspaceId;
    use alloc::vec::Vec;

    fn page(addresses: impl Iterator<Item = u64>) -> Vec<(Address, KeyId)> {
        let key = |address| {
            let (keyspace, key) = (KeyspaceId(1), "k".into());
            (Address(address), KeyId { keyspace, key })
        };
        addresses.map(key).collect()
    }

    #[test]
    fn the_part_of_the_arc_that_is_listed_tells_how_many_keys_come() {
        // The third of four segments; a quarter of its arc has 100 keys.
        let step = (1 << 60) / 100;
        let (from, mut listed) = (2 << 62, Listed::default());
        assert_eq!(listed.to_come(2), None);
        listed.add(&page((1..=50).map(|n| from + n * step)));
        listed.add(&page((51..=100).map(|n| from + n * step)));
        let to_come = listed.to_come(2).expect("enough is known");
        assert!((299..=301).contains(&to_come), "{to_come}");
        // A ring of one segment has four such arcs, of which these addresses end the third.
        let whole = listed.to_come(0).expect("enough is known");
        assert!((77..=78).contains(&whole), "{whole}");
    }

    #[test]
    fn nothing_is_told_of_few_addresses() {
        let mut listed = Listed::default();
        listed.add(&page((0..256).map(|_| 1 << 63)));
        listed.add(&page((1..15).map(|n| (1 << 63) + n)));
        assert_eq!(listed.to_come(0), None);
        listed.add(&page([(1 << 63) + 15].into_iter()));
        let to_come = listed.to_come(0).expect("enough is known");
        assert!((270..=272).contains(&to_come), "{to_come}");
        // Even where nearly nothing of the arc is covered the number is one.
        let mut first = Listed::default();
        first.add(&page(0..256));
        assert!(first.to_come(0) > Some(1 << 60));
    }

    #[test]
    fn a_move_takes_as_long_as_stores_have_keys_to_move() {
        let mut carried = Carried::default();
        carried.look(0, Some(0), 5);
        assert_eq!(carried.status().took, 0);
        carried.look(2, None, 10);
        carried.add(100);
        carried.look(1, Some(7), 20);
        let moving = MovingStatus {
            stores: 1,
            took: 10,
            keys: 1,
            bytes: 100,
            keys_left: Some(7),
        };
        assert_eq!(carried.status(), moving);
        // What members owe besides may take longer, and counts no keys.
        carried.look(0, Some(0), 50);
        carried.look(0, Some(0), 90);
        assert_eq!((carried.status().took, carried.status().keys), (40, 1));
    }
}
