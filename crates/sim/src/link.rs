//! The sending half of a node's connections, where frames take their time.
//!
//! **Problem.** A message that leaves at once never waits behind others, so a queue that is full,
//! or a frame that is, would be met by users first.
//!
//! **Idea.** In some kinds of seeds a connection takes one frame every so often, and none while the
//! process at its other end stands still. What waits meanwhile is in the server's own queue
//! ([`fermata_driver::outgoing`]): it goes in its frames, is read from their bytes, and is lost by
//! its rules when too much waits. On the way each message has its own fate, as everywhere here.

use crate::network::Parcel;
use crate::world::World;
use fermata_driver::outgoing::{Bounds, Queue, frames};
use fermata_protocol::base::NodeName;
use fermata_protocol::{Message, wire};

/// A connection to a process that stands still is looked at again after this long, microseconds.
const LOOK: u64 = 50_000;
/// Bytes of a frame beside one message of the longest.
const HEADER: usize = 128;

/// How slow connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How much waits for one peer at most.
    pub bounds: Bounds,
    /// How long a frame takes, microseconds, from and to.
    pub frame: (u64, u64),
}

/// One peer's queue.
pub struct Link {
    queue: Queue,
    /// When the connection takes the next frame.
    free_at: u64,
}

impl World {
    /// Messages of a round leave for a peer.
    pub(crate) fn leave(&mut self, name: NodeName, to: NodeName, messages: Vec<Message>) {
        let machine = self.machines.get_mut(&name);
        let machine = machine.expect("a machine of this world");
        let Some(pace) = self.setup.shell.pace else {
            return self.send_all(name, to, messages);
        };
        let link = machine.links.entry(to).or_insert_with(|| Link {
            queue: Queue::new(pace.bounds),
            free_at: 0,
        });
        let lost = link.queue.push(messages);
        let from = machine.id();
        for message in lost {
            self.crowded_out(&Parcel::Peer { from, to, message });
        }
        self.pump(name, to, pace);
    }

    fn send_all(&mut self, name: NodeName, to: NodeName, messages: Vec<Message>) {
        let from = self.machines[&name].id();
        for message in messages {
            self.send(Parcel::Peer { from, to, message });
        }
    }

    /// A connection may take a frame.
    pub(crate) fn link_is_free(&mut self, name: NodeName, to: NodeName, boot: u32) {
        if self.machines[&name].boot == boot
            && let Some(pace) = self.setup.shell.pace
        {
            self.pump(name, to, pace);
        }
    }

    fn pump(&mut self, name: NodeName, to: NodeName, pace: Pace) {
        let now = self.now;
        let reads = self.machines.get(&to).is_none_or(|peer| !peer.paused);
        let machine = self.machines.get_mut(&name);
        let machine = machine.expect("a machine of this world");
        let Some(link) = machine.links.get_mut(&to) else {
            return;
        };
        if now < link.free_at || link.queue.is_empty() {
            return;
        }
        let (messages, takes) = match reads {
            true => (
                link.queue.take(),
                self.dice.between(pace.frame.0, pace.frame.1),
            ),
            false => (Vec::new(), LOOK),
        };
        link.free_at = now + takes.max(1);
        let (free_at, boot) = (link.free_at, machine.boot);
        self.when_free(free_at, name, to, boot);
        let messages = self.through_frames(name, messages);
        self.send_all(name, to, messages);
    }

    /// What a reader makes of the frames. A message that no frame holds is the checker's.
    fn through_frames(&self, name: NodeName, messages: Vec<Message>) -> Vec<Message> {
        let longest = self.setup.limits.frame;
        if messages.iter().any(|m| wire::size(m) > longest) {
            return messages;
        }
        let machine = &self.machines[&name];
        let interval = machine.clock.read(self.now).interval;
        let frames = frames(machine.id(), interval, messages, longest + HEADER);
        let open = |frame: Vec<u8>| {
            let opened = wire::frame::open(&frame[wire::frame::LENGTH..]);
            opened
                .expect("frames are read as they are written")
                .messages
        };
        frames.into_iter().flat_map(open).collect()
    }

    /// From now on frames take no time, and nothing waits.
    pub(crate) fn free_links(&mut self) {
        self.setup.shell.pace = None;
        for name in self.machines.keys().copied().collect::<Vec<_>>() {
            let machine = self.machines.get_mut(&name);
            let machine = machine.expect("a machine of this world");
            for (to, mut link) in std::mem::take(&mut machine.links) {
                while !link.queue.is_empty() {
                    let messages = link.queue.take();
                    self.send_all(name, to, messages);
                }
            }
        }
    }
}
