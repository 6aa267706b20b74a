//! The points: loads, and the systems that get them.

use std::time::Duration;

use super::names::{
    CRITICAL, DISTINCT, HOT, HOT_NATIVE, LAYERS, MEDIUM, NINE, PIPED, PLAIN_GETS, PLAIN_PUTS,
    QUEUE, QUEUE_ALONE, SEVEN, SIX, SMALL, YCSB, batch_name, hundred_name, many_name,
    many_puts_name, piped_name, shapes, shared_name, steps_name, ycsb_name,
};
use crate::music::load::{Keys, Load, Sites, Work};
use crate::music::place::{LOOPBACK, LUS, Profile};
use crate::music::system::Kind;
use crate::music::{Effort, Point};

pub(super) fn point(
    name: impl Into<String>,
    profile: Profile,
    kinds: &[Kind],
    (work, keys, size, clients): (Work, Keys, usize, [usize; 3]),
    (time, rounds): ((Duration, Duration), u32),
) -> Point {
    Point {
        name: name.into(),
        profile,
        kinds: kinds.to_vec(),
        load: Load {
            work,
            keys,
            size,
            clients,
            time,
            rounds,
            first: false,
            sites: Sites::Together,
        },
    }
}

/// How long all systems are used from a site before it is measured alone. A segment of the native
/// engine moves after its primary has led for a few seconds here, and has seen enough of its user.
fn lead(profile: Profile, effort: Effort) -> Duration {
    Duration::from_secs(match effort.quick {
        true if profile == LUS => 10,
        true => 5,
        false => 60,
    })
}

/// A client a site, one section at a time, and one site after the other.
pub(crate) fn steps(profile: Profile, effort: Effort, all: bool) -> Point {
    let mut kinds = LAYERS.to_vec();
    if all {
        kinds.extend([Kind::Unverified, Kind::Split, Kind::Zookeeper, Kind::Etcd]);
    }
    let time = effort.of((1.5, 1), (20.0, 5));
    let load = (Work::Steps, Keys::Own, SMALL, [1, 1, 1]);
    let mut point = point(steps_name(profile), profile, &kinds, load, time);
    // The lead that all have is enough.
    point.load.time.0 = Duration::ZERO;
    point.load.sites = Sites::Apart(lead(profile, effort));
    point
}

/// The same clients, all sites at once.
pub(crate) fn shared(profile: Profile, effort: Effort) -> Point {
    let kinds = [Kind::Native, Kind::Engine, Kind::Zookeeper, Kind::Etcd];
    let time = effort.of((2.0, 1), (20.0, 5));
    let load = (Work::Steps, Keys::Own, SMALL, [1, 1, 1]);
    point(shared_name(profile), profile, &kinds, load, time)
}

/// As many as keep the servers busy.
pub(super) fn many(profile: Profile, effort: Effort) -> Point {
    let clients = if effort.quick { [16; 3] } else { [64; 3] };
    let time = effort.of((2.0, 1), (15.0, 5));
    let load = (Work::Section, Keys::Own, SMALL, clients);
    point(many_name(profile), profile, &LAYERS, load, time)
}

/// 32 clients without delays.
pub(super) const CROWD: [usize; 3] = [11, 11, 10];

pub(crate) fn distinct(effort: Effort) -> Point {
    let kinds = [
        Kind::Native,
        Kind::Engine,
        Kind::Paper,
        Kind::Zookeeper,
        Kind::Etcd,
    ];
    let load = (Work::Section, Keys::Own, SMALL, CROWD);
    point(
        DISTINCT,
        LOOPBACK,
        &kinds,
        load,
        effort.of((1.5, 1), (15.0, 5)),
    )
}

pub(crate) fn hot(effort: Effort) -> Point {
    let kinds = [Kind::Engine, Kind::Paper];
    let load = (Work::Section, Keys::One, SMALL, CROWD);
    // In MUSIC's layout so many in one queue get a section through in several seconds.
    point(HOT, LOOPBACK, &kinds, load, effort.of((7.0, 1), (30.0, 5)))
}

/// The same key beside systems that have locks of their own.
pub(crate) fn hot_native(effort: Effort) -> Point {
    let kinds = [Kind::Native, Kind::Zookeeper, Kind::Etcd];
    let load = (Work::Section, Keys::One, SMALL, CROWD);
    let time = effort.of((1.0, 1), (15.0, 5));
    point(HOT_NATIVE, LOOPBACK, &kinds, load, time)
}

/// The same clients and key, but nobody waits for the lock: what the queue itself can take.
pub(crate) fn queue(effort: Effort) -> Point {
    let kinds = [Kind::Engine, Kind::Paper];
    let load = (Work::Queue, Keys::One, SMALL, CROWD);
    let time = effort.of((2.0, 1), (20.0, 5));
    point(QUEUE, LOOPBACK, &kinds, load, time)
}

/// As many clients, all at one site: nobody else updates the row.
pub(crate) fn queue_alone(effort: Effort) -> Point {
    let crowd = [CROWD.iter().sum(), 0, 0];
    let load = (Work::Queue, Keys::One, SMALL, crowd);
    let time = effort.of((1.0, 1), (20.0, 5));
    point(QUEUE_ALONE, LOOPBACK, &[Kind::Engine], load, time)
}

/// Who has plain writes and reads.
const PLAIN: [Kind; 5] = [
    Kind::Native,
    Kind::Engine,
    Kind::CassaEv,
    Kind::Zookeeper,
    Kind::Etcd,
];

pub(crate) fn plain_puts(effort: Effort) -> Point {
    let load = (Work::Put, Keys::Own, SMALL, CROWD);
    point(
        PLAIN_PUTS,
        LOOPBACK,
        &PLAIN,
        load,
        effort.of((1.0, 1), (15.0, 5)),
    )
}

pub(super) fn plain_gets(effort: Effort) -> Point {
    let load = (Work::Get, Keys::Own, SMALL, CROWD);
    point(
        PLAIN_GETS,
        LOOPBACK,
        &PLAIN,
        load,
        effort.of((1.0, 1), (15.0, 5)),
    )
}

/// Puts of holders, so many in a section that the section costs nothing.
pub(crate) fn critical_puts(effort: Effort) -> Point {
    let load = (Work::Batch(200), Keys::Own, SMALL, CROWD);
    point(
        CRITICAL,
        LOOPBACK,
        &[Kind::Native],
        load,
        effort.of((1.5, 1), (15.0, 5)),
    )
}

/// Puts of twice as many holders, of two sizes.
pub(crate) fn many_puts(effort: Effort) -> Vec<Point> {
    let of_size = |size| {
        let kinds = [Kind::Native, Kind::Zookeeper, Kind::Bare];
        let load = (Work::Batch(200), Keys::Own, size, [22, 21, 21]);
        let time = effort.of((1.0, 1), (15.0, 5));
        point(many_puts_name(size), LOOPBACK, &kinds, load, time)
    };
    [SMALL, MEDIUM].map(of_size).into()
}

/// Sections of a hundred puts, small and large, one after the other and in flight together.
pub(crate) fn hundred(effort: Effort) -> Vec<Point> {
    let mut points = Vec::new();
    for (small, piped) in [(true, false), (true, true), (false, false), (false, true)] {
        let size = if small { SMALL } else { 256 << 10 };
        let clients = if small { [3, 3, 2] } else { [1, 1, 1] };
        let mut kinds = vec![Kind::Native, Kind::Zookeeper];
        let work = match piped {
            true => Work::Pipelined(100),
            false => Work::Batch(100),
        };
        if !piped {
            kinds.push(Kind::Etcd);
        }
        if !small {
            kinds.push(Kind::Bare);
        }
        let load = (work, Keys::Own, size, clients);
        let time = effort.of((1.5, 1), (15.0, 5));
        points.push(point(
            hundred_name(small, piped),
            LOOPBACK,
            &kinds,
            load,
            time,
        ));
    }
    points
}

pub(super) fn six(effort: Effort) -> Vec<Point> {
    let clients = if effort.quick { [4; 3] } else { [16; 3] };
    let time = effort.of((1.0, 1), (20.0, 3));
    let mut points = Vec::new();
    for (puts, size) in shapes(effort.quick) {
        let load = (Work::Batch(puts), Keys::Own, size, clients);
        points.push(point(batch_name(6, puts, size), LUS, &SIX, load, time));
        if puts > 1 {
            let load = (Work::Pipelined(puts), Keys::Own, size, clients);
            points.push(point(piped_name(puts, size), LUS, &PIPED, load, time));
        }
    }
    points
}

pub(super) fn seven(effort: Effort) -> Vec<Point> {
    let time = effort.of((1.0, 1), (20.0, 3));
    let points = shapes(effort.quick).into_iter().map(|(puts, size)| {
        let load = (Work::Batch(puts), Keys::Own, size, [1, 0, 0]);
        point(batch_name(7, puts, size), LUS, &SEVEN, load, time)
    });
    points.collect()
}

pub(super) fn nine(effort: Effort) -> Vec<Point> {
    let time = effort.of((1.0, 1), (30.0, 3));
    let points = YCSB.map(|(letter, updates)| {
        let load = (Work::Mix(updates), Keys::Zipf(1_000), SMALL, [4; 3]);
        point(ycsb_name(letter), LUS, &NINE, load, time)
    });
    points.into()
}
