//! A group's membership at one epoch. Quorums are always those of a view, never of a global n.

use super::ids::{Epoch, GroupId, NodeName, Seat, SiteId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One member of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node that has the seat.
    pub name: NodeName,
    /// Where it is.
    pub site: SiteId,
    /// The key by which it signs; only Byzantine groups use it.
    pub public_key: Option<[u8; 32]>,
}

/// The members of a group at one epoch, by seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The group.
    pub group: GroupId,
    /// Its epoch.
    pub epoch: Epoch,
    /// 1 to 13 members; the index is the seat.
    pub seats: Vec<Member>,
}

impl View {
    /// Members, n.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// A view without members does not exist; this is here for completeness.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// A majority of the view: the quorum of its logs and of replicated registers.
    pub fn majority(&self) -> usize {
        self.seats.len() / 2 + 1
    }

    /// The seat of a node, if it has one.
    pub fn seat_of(&self, name: NodeName) -> Option<Seat> {
        self.seats
            .iter()
            .position(|m| m.name == name)
            .map(|i| Seat(i as u8))
    }

    /// The node in a seat, if the view has that seat.
    pub fn node_at(&self, seat: Seat) -> Option<NodeName> {
        self.seats.get(usize::from(seat.0)).map(|m| m.name)
    }

    /// All nodes, by seat.
    pub fn nodes(&self) -> impl Iterator<Item = NodeName> + '_ {
        self.seats.iter().map(|m| m.name)
    }
}
