//! What waits for one peer: a bounded queue, and the frames that it becomes.
//!
//! A peer that does not read, or that nobody reaches, must not make memory grow: the oldest
//! messages go, and the protocol sends again. What is taken for a frame is gone from the queue,
//! whatever becomes of the frame: a peer gets a message once at most.

use fermata_protocol::base::{Interval, Limits, NodeId};
use fermata_protocol::message::Envelope;
use fermata_protocol::{Message, wire};
use std::collections::VecDeque;

/// A frame is at most this long, length field excluded: several of the largest values.
pub const FRAME_MAX: usize = Limits::FRAME_MAX;
/// Bytes of a frame beside what its messages weigh: its header, the registry's numbers.
const ROOM: usize = 1 << 10;

/// How much waits for one peer at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages; then the oldest go.
    pub messages: usize,
    /// Bytes of messages, by [`weight`]; then the oldest go.
    pub bytes: usize,
    /// A frame is closed when it has about this many bytes.
    pub frame: usize,
}

impl Bounds {
    /// Those of a server.
    pub const SERVER: Bounds = Bounds {
        messages: 65_536,
        bytes: 128 << 20,
        frame: 4 << 20,
    };
}

/// About how many bytes a message takes, in a frame and in memory.
pub fn weight(message: &Message) -> usize {
    size_of::<Message>() + wire::size(message)
}

/// Messages that wait for one peer, in order.
#[derive(Debug)]
pub struct Queue {
    bounds: Bounds,
    messages: VecDeque<Message>,
    bytes: usize,
}

impl Queue {
    /// Nothing waits.
    pub fn new(bounds: Bounds) -> Queue {
        Queue {
            bounds,
            messages: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds messages. Those that are lost for it, the oldest, are returned.
    pub fn push(&mut self, messages: Vec<Message>) -> Vec<Message> {
        for message in messages {
            self.bytes += weight(&message);
            self.messages.push_back(message);
        }
        let mut lost = Vec::new();
        while self.messages.len() > self.bounds.messages || self.bytes > self.bounds.bytes {
            let Some(oldest) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= weight(&oldest);
            lost.push(oldest);
        }
        lost
    }

    /// The next frame's messages, in order; empty if nothing waits.
    pub fn take(&mut self) -> Vec<Message> {
        let (mut count, mut bytes) = (0, 0);
        for message in self.messages.iter().take(wire::frame::MESSAGES_MAX) {
            if count > 0 && bytes + weight(message) > self.bounds.frame {
                break;
            }
            count += 1;
            bytes += weight(message);
        }
        self.bytes -= bytes;
        self.messages.drain(..count).collect()
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes of messages that wait, by [`weight`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// The frames that carry the messages in order: one, unless the first message is so long that the
/// others do not fit beside it.
///
/// # Panics
/// If a message is longer than a frame: `Limits::check` refuses limits that allow one.
pub fn frames(
    from: NodeId,
    interval: Option<Interval>,
    messages: Vec<Message>,
    longest: usize,
) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(1);
    let mut parts = VecDeque::from([messages]);
    while let Some(messages) = parts.pop_front() {
        let mut envelope = Envelope {
            from,
            interval,
            messages,
        };
        let weights = envelope.messages.iter().map(weight);
        let frame = wire::frame::seal(&envelope, weights.sum::<usize>() + ROOM);
        if frame.len() - wire::frame::LENGTH <= longest {
            frames.push(frame);
        } else if envelope.messages.len() > 1 {
            let second = envelope
                .messages
                .split_off(envelope.messages.len().div_ceil(2));
            parts.push_front(second);
            parts.push_front(envelope.messages);
        } else {
            panic!("the limits allow no message of {} bytes", frame.len());
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Cluster, ClusterId, Incarnation, LockRef, NodeName, Timing};
    use fermata_protocol::message::Hello;
    use fermata_protocol::registry::Registry;
    use fermata_protocol::settings::Settings;

    const ME: NodeId = NodeId {
        name: NodeName(1),
        incarnation: Incarnation(7),
    };

    fn sites(names: usize) -> Cluster {
        Cluster {
            id: ClusterId(7),
            lowest_ref: LockRef(1),
            sites: vec!["s".to_owned(); names],
            ..Cluster::default()
        }
    }

    fn hello(names: usize) -> Message {
        Message::Hello(Hello {
            cluster: ClusterId(7),
            registry: Registry::beginning(
                &sites(names),
                Settings::beginning(&Timing::default(), &Limits::default(), wire::VERSION),
            ),
            complete: false,
            answer: false,
        })
    }

    #[test]
    fn messages_that_are_longer_than_they_weigh_go_in_several_frames() {
        for longest in [200, 300, 1_000] {
            let messages: Vec<Message> = (0..40).map(|n| hello(n % 7 * 4)).collect();
            let frames = frames(ME, None, messages.clone(), longest);
            let open = |frame: &Vec<u8>| {
                assert!(frame.len() - wire::frame::LENGTH <= longest);
                wire::frame::open(&frame[wire::frame::LENGTH..])
                    .unwrap()
                    .messages
            };
            let arrived: Vec<Message> = frames.iter().flat_map(open).collect();
            assert_eq!(arrived, messages, "in order");
        }
    }

    #[test]
    #[should_panic(expected = "the limits allow no message")]
    fn a_message_that_fits_no_frame_is_a_fault_of_ours() {
        frames(ME, None, vec![hello(64)], 60);
    }

    #[test]
    fn a_frame_never_has_more_messages_than_a_peer_takes() {
        let mut queue = Queue::new(Bounds::SERVER);
        let all = wire::frame::MESSAGES_MAX + 10;
        assert!(queue.push((0..all).map(|_| hello(0)).collect()).is_empty());
        let mut arrived = 0;
        while !queue.is_empty() {
            let taken = queue.take();
            assert!(taken.len() <= wire::frame::MESSAGES_MAX);
            arrived += taken.len();
        }
        assert_eq!(arrived, all);
    }

    #[test]
    fn the_oldest_make_room() {
        let heavy = weight(&hello(400));
        let bounds = Bounds {
            messages: 3,
            bytes: 2 * heavy,
            frame: heavy,
        };
        let mut queue = Queue::new(bounds);
        let lost = queue.push([1, 2, 3, 4].map(hello).to_vec());
        assert_eq!(lost, [hello(1)], "by count");
        let lost = queue.push(vec![hello(400)]);
        assert_eq!(lost, [hello(2)]);
        assert_eq!(queue.push(vec![hello(400)]), [3, 4].map(hello), "by bytes");
        assert_eq!(queue.take(), [hello(400)], "a frame is full");
        assert_eq!(queue.len(), 1);
    }
}
