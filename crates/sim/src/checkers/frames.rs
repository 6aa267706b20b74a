//! No message between nodes is longer than a frame (G34, G35): no real network carries it, however
//! often it is sent. So this one does not, either, and says so.

use super::Violation;
use crate::network::{End, Parcel};
use fermata_protocol::wire;

/// What the checker calls itself in a violation.
pub const NAME: &str = "messages fit frames";

/// Whether a frame of so many bytes holds the parcel; a message that it does not hold is reported.
pub fn holds(parcel: &Parcel, frame: usize, found: &mut Vec<Violation>) -> bool {
    let (Parcel::Peer { from, message, .. }, (_, End::Node(to))) = (parcel, parcel.ends()) else {
        return true;
    };
    // What a node says to itself is memory.
    let bytes = wire::size(message);
    if from.name == to || bytes <= frame {
        return true;
    }
    let mut said = format!("{message:?}");
    said.truncate(said.floor_char_boundary(200));
    let detail = format!(
        "node {} sends {bytes} bytes to node {}, and a frame holds {frame}: {said}",
        from.name.0, to.0
    );
    found.push(Violation::new(NAME, detail));
    false
}
