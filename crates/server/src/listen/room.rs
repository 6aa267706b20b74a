//! The places of one face: who is connected, who has asked for what, who goes when all are taken.

use crate::clock;
use crate::closings::Cause;
use crate::config::Clients;
use crate::descriptors::Descriptors;
use fermata_protocol::base::Micros;
use metrics::Gauge;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A connection that has asked for nothing for so long may have to go.
const QUIET: Micros = 1_000_000;

/// The places of one face.
pub(super) struct Room {
    clients: Clients,
    descriptors: Descriptors,
    guests: Mutex<Guests>,
    /// How many are here.
    taken: Gauge,
}

#[derive(Default)]
struct Guests {
    drawn: u64,
    here: HashMap<u64, Arc<Guest>>,
}

/// One connection.
struct Guest {
    address: IpAddr,
    /// How many of its requests are open.
    open: AtomicUsize,
    /// Whether it has asked for anything.
    asked: AtomicBool,
    /// When it came, or its last request ended.
    since: AtomicU64,
    /// It is to go, for another.
    leaving: AtomicBool,
    leave: Notify,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// All places are taken, and everybody has asked for something.
    Full,
    /// Its address has as many as it may.
    Address,
    /// Its descriptor is of those that the node keeps for itself.
    Descriptors,
}

impl Refused {
    /// For the node's status, logs, and the refusal itself.
    pub(super) fn cause(self) -> Cause {
        match self {
            Refused::Full => Cause::Full,
            Refused::Address => Cause::Address,
            Refused::Descriptors => Cause::Descriptors,
        }
    }
}

impl Room {
    /// A room whose places are bounded by `clients` and, among `faces`, by the descriptors.
    pub(super) fn new(
        clients: Clients,
        descriptors: Descriptors,
        faces: usize,
        taken: Gauge,
    ) -> Room {
        let connections = clients.connections.min(descriptors.per_face(faces));
        Room {
            clients: Clients {
                connections,
                ..clients
            },
            descriptors,
            guests: Mutex::default(),
            taken,
        }
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection with this descriptor. Where none is left, whoever has been quiet
    /// for longest goes: first those who never asked for anything.
    pub(super) fn enter(
        self: &Arc<Room>,
        address: IpAddr,
        descriptor: u64,
    ) -> Result<Place, Refused> {
        let mut guests = self.guests();
        if let Some(most) = self.clients.per_address
            && guests
                .here
                .values()
                .filter(|g| g.address == address)
                .count()
                >= most
        {
            return Err(Refused::Address);
        }
        if descriptor >= self.descriptors.kept_from {
            guests.make_room();
            return Err(Refused::Descriptors);
        }
        if guests.here.len() >= self.clients.connections && !guests.make_room() {
            return Err(Refused::Full);
        }
        let guest = Arc::new(Guest {
            address,
            open: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            since: AtomicU64::new(clock::monotonic()),
            leaving: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let number = guests.drawn;
        guests.drawn += 1;
        guests.here.insert(number, guest.clone());
        self.taken.set(guests.here.len() as f64);
        Ok(Place {
            room: self.clone(),
            number,
            guest,
        })
    }
}

impl Guests {
    /// Tells the one that has been quiet for longest to go; false if nobody has.
    fn make_room(&mut self) -> bool {
        let quiet_since = clock::monotonic().saturating_sub(QUIET);
        let quiet = self.here.values().filter(|guest| {
            let idle = guest.open.load(Ordering::Relaxed) == 0;
            idle && guest.since() <= quiet_since && !guest.leaving.load(Ordering::Relaxed)
        });
        let first = quiet.min_by_key(|g| (g.asked.load(Ordering::Relaxed), g.since()));
        let Some(guest) = first else {
            return false;
        };
        guest.leaving.store(true, Ordering::Relaxed);
        guest.leave.notify_one();
        true
    }
}

impl Guest {
    fn since(&self) -> Micros {
        self.since.load(Ordering::Relaxed)
    }
}

/// The place of one connection, which is free again when this is dropped.
pub(super) struct Place {
    room: Arc<Room>,
    number: u64,
    guest: Arc<Guest>,
}

impl Place {
    /// Where its client is.
    pub(super) fn address(&self) -> IpAddr {
        self.guest.address
    }

    /// A request has begun, which is open until what this gives is dropped.
    pub(super) fn ask(&self) -> Asking {
        self.guest.open.fetch_add(1, Ordering::Relaxed);
        self.guest.asked.store(true, Ordering::Relaxed);
        Asking(self.guest.clone())
    }

    /// A request has begun for which no place is held, however long it is open.
    pub(super) fn ask_in_passing(&self) {
        self.guest
            .since
            .store(clock::monotonic(), Ordering::Relaxed);
        self.guest.asked.store(true, Ordering::Relaxed);
    }

    /// Whether a request is open.
    pub(super) fn is_asking(&self) -> bool {
        self.guest.open.load(Ordering::Relaxed) > 0
    }

    /// Ready when the connection should be closed: nothing has been asked for too long, or another
    /// wants the place.
    pub(super) async fn over(&self) -> Cause {
        loop {
            let left = self.patience();
            if left.is_zero() {
                return match self.guest.asked.load(Ordering::Relaxed) {
                    true => Cause::Idle,
                    false => Cause::Mute,
                };
            }
            tokio::select! {
                () = self.guest.leave.notified() => {}
                () = tokio::time::sleep(left) => continue,
            }
            if !self.is_asking() {
                return Cause::Displaced;
            }
            // It has asked in the last moment.
            self.guest.leaving.store(false, Ordering::Relaxed);
        }
    }

    /// How long to wait before looking again; none is left for one that has to go.
    fn patience(&self) -> Duration {
        let clients = &self.room.clients;
        if self.is_asking() {
            return clients.idle;
        }
        let quiet = clock::monotonic().saturating_sub(self.guest.since());
        let most = match self.guest.asked.load(Ordering::Relaxed) {
            true => clients.idle,
            false => clients.head,
        };
        most.saturating_sub(Duration::from_micros(quiet))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.room.guests();
        guests.here.remove(&self.number);
        self.room.taken.set(guests.here.len() as f64);
    }
}

/// An open request of a connection.
pub(super) struct Asking(Arc<Guest>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.since.store(clock::monotonic(), Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientsConfig;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    fn room(connections: usize, per_address: Option<usize>) -> Arc<Room> {
        let config = ClientsConfig {
            connections: Some(connections),
            connections_per_address: per_address,
            ..ClientsConfig::default()
        };
        let descriptors = Descriptors { kept_from: 100 };
        Arc::new(Room::new(
            config.resolve().unwrap(),
            descriptors,
            1,
            Gauge::noop(),
        ))
    }

    /// Makes a guest look as if it had been quiet for so long.
    fn quiet(place: &Place, micros: Micros) {
        let since = clock::monotonic().saturating_sub(micros);
        place.guest.since.store(since, Ordering::Relaxed);
    }

    fn is_leaving(place: &Place) -> bool {
        place.guest.leaving.load(Ordering::Relaxed)
    }

    #[test]
    fn the_last_descriptors_and_those_of_an_address_are_not_given() {
        let room = room(10, Some(1));
        let place = room.enter(HERE, 99).ok().unwrap();
        assert_eq!(room.enter(HERE, 5).err(), Some(Refused::Address));
        assert_eq!(room.enter(THERE, 100).err(), Some(Refused::Descriptors));
        drop(place);
        assert!(room.enter(HERE, 5).is_ok());
        assert!(room.guests().here.is_empty());
    }

    #[test]
    fn who_never_asked_goes_before_who_did_and_nobody_who_asks() {
        let room = room(3, None);
        let enter = || room.enter(HERE, 5);
        let (asked, silent, asking) = (enter().ok(), enter().ok(), enter().ok());
        let (asked, silent, asking) = (asked.unwrap(), silent.unwrap(), asking.unwrap());
        assert_eq!(enter().err(), Some(Refused::Full), "nobody is quiet yet");
        drop(asked.ask());
        let _open = asking.ask();
        quiet(&asked, 60 * QUIET);
        quiet(&silent, 2 * QUIET);
        quiet(&asking, 90 * QUIET);
        let newer = enter().ok().unwrap();
        assert!(is_leaving(&silent) && !is_leaving(&asked));
        let newest = enter().ok().unwrap();
        assert!(is_leaving(&asked) && !is_leaving(&asking));
        assert_eq!(enter().err(), Some(Refused::Full));
        drop((newer, newest));
    }

    #[test]
    fn what_is_asked_in_passing_holds_no_place() {
        let room = room(1, None);
        let watching = room.enter(HERE, 5).ok().unwrap();
        watching.ask_in_passing();
        assert_eq!(room.enter(HERE, 5).err(), Some(Refused::Full));
        quiet(&watching, 2 * QUIET);
        assert!(room.enter(HERE, 5).is_ok());
        assert!(is_leaving(&watching));
    }
}
