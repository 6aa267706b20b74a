//! A node without a seat that follows the log: what it knows is always a prefix of what the members
//! agree on, and in calm time all of it.

use crate::world::{ID, Packet, World, parse};
use fermata_protocol::base::{Micros, NodeName, Slot};
use fermata_protocol::paxos::{Entry, Learned, Learner};
use fermata_protocol::{Effects, Message, Output};

/// Its name; in the world its number is that of the members.
pub(crate) const NAME: NodeName = NodeName(99);

pub(crate) struct Outsider {
    learner: Learner,
    /// When it asks again.
    due: Micros,
    /// The slot after which its state was, and the commands that it has applied since.
    base: Option<Slot>,
    applied: Vec<u64>,
}

impl World {
    /// It begins to follow, or begins anew, having forgotten everything.
    pub(crate) fn follow(&mut self) {
        let (view, peer) = (self.view.clone(), self.view.seats[0].name);
        let mut fx = Effects::new();
        let learner = self.with_env(0, &mut fx, |env| Learner::new(ID, view, peer, env));
        self.outsider = Some(Outsider {
            learner,
            due: self.time + self.timing.retry,
            base: None,
            applied: Vec::new(),
        });
        self.asks(fx);
    }

    /// Its clock is that of the first member.
    pub(crate) fn follow_on(&mut self) {
        let Some(mut outsider) = self.outsider.take() else {
            return;
        };
        let mut fx = Effects::new();
        if outsider.due <= self.time {
            outsider.due = self.time + self.timing.retry;
            self.with_env(0, &mut fx, |env| outsider.learner.again(env));
        }
        self.outsider = Some(outsider);
        self.asks(fx);
    }

    fn asks(&mut self, fx: Effects) {
        assert!(fx.writes.is_empty(), "it promises nothing");
        for output in fx.outputs {
            let Output::Send {
                to,
                message: Message::Paxos { message, .. },
                ..
            } = output
            else {
                panic!("a log only sends log messages");
            };
            let seat = self.view.seat_of(to).expect("a seat of the view");
            let from = self.hosts.len();
            let packet = Packet::Paxos(message);
            self.net.push((from, usize::from(seat.0), packet));
        }
    }

    /// Something has come to it.
    pub(crate) fn is_told(&mut self, from: usize, packet: Packet) {
        let (Some(mut outsider), Packet::Paxos(message)) = (self.outsider.take(), packet) else {
            return;
        };
        let peer = self.view.seats[from].name;
        let mut fx = Effects::new();
        let learned = self.with_env(0, &mut fx, |env| {
            outsider.learner.on_message(peer, message, env)
        });
        match learned {
            Learned::Nothing => {}
            Learned::State(state) => {
                let ((slot, sum), _) = parse(&state);
                let truth = self.truth.get(&slot).map_or(0, |(_, sum)| *sum);
                self.check(truth == sum, || "an outsider has a wrong state".into());
                outsider.base = Some(slot);
                outsider.applied.clear();
            }
            Learned::Commands(commands) => {
                let numbers = commands.iter().map(|command| command.number);
                outsider.applied.extend(numbers);
                let agreed = self.agreed(outsider.base);
                let prefix = agreed.starts_with(&outsider.applied);
                self.check(prefix, || "an outsider has applied other commands".into());
            }
        }
        self.outsider = Some(outsider);
        self.asks(fx);
    }

    /// The commands above a slot on which the members agree.
    fn agreed(&self, base: Option<Slot>) -> Vec<u64> {
        let above = base.unwrap_or_default().next();
        let entries = self.truth.range(above..).map(|(_, (entry, _))| entry);
        let commands = entries.filter_map(|entry| match entry {
            Entry::Commands { commands, .. } => Some(commands),
            _ => None,
        });
        commands.flatten().map(|command| command.number).collect()
    }

    /// In calm time it knows everything, how the log has ended, too.
    pub(crate) fn check_outsider(&mut self) {
        let Some(outsider) = self.outsider.take() else {
            return;
        };
        let all = outsider.base.is_some() && self.agreed(outsider.base) == outsider.applied;
        self.check(all, || "an outsider stays behind".into());
        let ended = self.log(0).stopped();
        self.check(outsider.learner.stopped() == ended, || {
            "an outsider knows of another end".into()
        });
        self.outsider = Some(outsider);
    }
}
