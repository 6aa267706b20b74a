//! How much has moved, and about how much has yet to, as the nodes that move it tell.
//!
//! Nothing is guessed that no node can tell: then it is said what has moved, and time left comes
//! from the segments that were seen to be done.

use std::collections::BTreeMap;
use std::time::Duration;

use fermata_client::Client;
use fermata_protocol::base::NodeName;
use fermata_protocol::request::{MovingStatus, RingStatus};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{plan, segments_left, show};

/// How long a node may take to tell what it moves: it is told beside something else.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is under way is told so often, whether or not a segment is done.
const TOLD: Duration = Duration::from_secs(5);

/// Segments that were done tell a pace only after so many.
const DONE_MIN: u64 = 2;

/// What all nodes together move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// How long that takes or took, of the node that took longest.
    pub(super) took: Duration,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// About; none: that cannot be told.
    pub(super) left: Option<Left>,
}

/// About what has yet to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) keys: u64,
    /// None: no value has moved yet that would tell the size of others.
    pub(super) bytes: Option<u64>,
    /// At the pace so far of the node that takes longest.
    pub(super) time: Option<Duration>,
}

/// Asks every node that is heard what it moves; nobody, where nothing is to move.
pub(super) async fn ask(client: &Client, ring: &RingStatus) -> Moves {
    if segments_left(ring) == 0 {
        return Moves::default();
    }
    let nodes = client.nodes();
    let heard = |name| {
        ring.nodes
            .iter()
            .any(|node| node.name == name && node.heard)
    };
    let asked = (0..nodes.len()).filter(|at| nodes[*at].name.is_some_and(heard));
    let told = futures_util::future::join_all(asked.map(async |at| {
        let status = tokio::time::timeout(PATIENCE, client.status(Some(at))).await;
        let status = status.ok()?.ok()?;
        Some((status.node, status.moving))
    }));
    // A node that is known by two addresses tells the same twice.
    let told: BTreeMap<NodeName, MovingStatus> = told.await.into_iter().flatten().collect();
    sum(&told.into_values().collect::<Vec<_>>(), open(ring))
}

/// Earlier stores whose keys have not all moved.
fn open(ring: &RingStatus) -> u32 {
    let sources = ring.groups.iter().flat_map(|group| &group.sources);
    sources.map(|source| source.open).sum()
}

/// Segments that have something to move, once all have started.
fn moving(ring: &RingStatus) -> Option<u64> {
    let started = ring.groups.iter().all(|group| plan::left(group).0 == 0);
    started.then(|| segments_left(ring))
}

/// All together. Where fewer stores are told of than there are, somebody was not heard, or nobody
/// moves them at present.
fn sum(told: &[MovingStatus], open: u32) -> Moves {
    let mut moves = Moves::default();
    for node in told {
        moves.took = moves.took.max(took(node));
        moves.keys += node.keys;
        moves.bytes += node.bytes;
    }
    let stores: u32 = told.iter().map(|node| node.stores).sum();
    let at_work = told.iter().filter(|node| node.stores > 0);
    let left = all_left(at_work.map(left));
    moves.left = left.filter(|_| !told.is_empty() && stores >= open);
    moves
}

fn took(node: &MovingStatus) -> Duration {
    Duration::from_micros(node.took)
}

/// About what one node has yet to move, as far as what it has moved tells that.
fn left(node: &MovingStatus) -> Option<Left> {
    let keys = node.keys_left?;
    if keys == 0 {
        let (bytes, time) = (Some(0), Some(Duration::ZERO));
        return Some(Left { keys, bytes, time });
    }
    let part = (node.keys > 0).then(|| keys as f64 / node.keys as f64);
    Some(Left {
        keys,
        bytes: part.map(|part| (node.bytes as f64 * part) as u64),
        time: part.map(|part| duration_of(took(node).as_secs_f64() * part)),
    })
}

/// A duration of so many seconds; what is longer than a clock counts is the longest.
fn duration_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Of all nodes, if all can tell. They work side by side: who takes longest ends it.
fn all_left(mut nodes: impl Iterator<Item = Option<Left>>) -> Option<Left> {
    let none = Left {
        keys: 0,
        bytes: Some(0),
        time: Some(Duration::ZERO),
    };
    nodes.try_fold(none, |sum, of| {
        let of = of?;
        Some(Left {
            keys: sum.keys.saturating_add(of.keys),
            bytes: sum.bytes.zip(of.bytes).map(|(a, b)| a.saturating_add(b)),
            time: sum.time.zip(of.time).map(|(a, b)| a.max(b)),
        })
    })
}

/// What somebody sees who looks again and again.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pace: Pace,
    keys: u64,
    told: Option<Instant>,
}

/// What there is to see at one look.
pub(super) struct Look {
    pub(super) moves: Moves,
    /// About how long it takes as segments were done so far.
    pub(super) segments: Option<Duration>,
    /// More keys have moved since the last look.
    pub(super) gets_on: bool,
    /// It is time to tell it.
    pub(super) is_due: bool,
}

impl Watch {
    /// Looks once more.
    pub(super) async fn look(&mut self, client: &Client, ring: &RingStatus) -> Look {
        let moves = ask(client, ring).await;
        let now = Instant::now();
        let gets_on = moves.keys > self.keys;
        let is_due = gets_on && self.told.is_none_or(|at| now.duration_since(at) >= TOLD);
        if is_due {
            self.told = Some(now);
        }
        self.keys = moves.keys;
        Look {
            moves,
            segments: self.pace.see(moving(ring), now),
            gets_on,
            is_due,
        }
    }
}

impl Look {
    /// What is left to be done, in words.
    pub(super) fn told(&self, ring: &RingStatus) -> String {
        let (left, about) = (show::left(ring), to_move(&self.moves, self.segments));
        match about.is_empty() {
            true => left,
            false => format!("{left}, {about}"),
        }
    }
}

/// How fast segments are done, as somebody sees who looks again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When most were left, and how many.
    most: Option<(Instant, u64)>,
}

impl Pace {
    /// So many are left now, which is not known before all have started: in about which time none
    /// will be.
    pub(super) fn see(&mut self, left: Option<u64>, now: Instant) -> Option<Duration> {
        let Some(left) = left else {
            self.most = None;
            return None;
        };
        let (at, most) = *self.most.get_or_insert((now, left));
        if left >= most {
            self.most = Some((now, left));
            return None;
        }
        let done = most - left;
        let seconds = now.duration_since(at).as_secs_f64() * left as f64 / done as f64;
        (done >= DONE_MIN).then(|| duration_of(seconds))
    }
}

/// What has moved, in words; none, where nothing has.
pub(super) fn moved(moves: &Moves) -> Option<String> {
    if moves.keys == 0 {
        return None;
    }
    let (keys, rate) = (
        counted(moves.keys),
        moves.bytes as f64 / moves.took.as_secs_f64(),
    );
    let rate = match rate.is_finite() {
        true => format!(", {} per second", bytes(rate as u64)),
        false => String::new(),
    };
    let took = format!("{:.1} s", moves.took.as_secs_f64());
    Some(format!(
        "{keys}, {} moved in {took}{rate}",
        bytes(moves.bytes)
    ))
}

/// What has yet to move, in words: `about 40 MiB, about 8 s left`; empty where nothing can be told.
/// The time is that of keys as far as they are known, and else that of segments.
pub(super) fn to_move(moves: &Moves, segments: Option<Duration>) -> String {
    let known = moves.left.filter(|left| left.keys > 0);
    let size = known.map(|left| match left.bytes {
        Some(size) => format!("about {}", bytes(size)),
        None => format!("about {}", counted(left.keys)),
    });
    let time = known.map_or(segments, |left| left.time);
    let time = time.map(|time| format!("about {} left", rounded(time)));
    [size, time]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

fn counted(keys: u64) -> String {
    match keys {
        1 => "1 key".to_owned(),
        _ => format!("{keys} keys"),
    }
}

/// A time that is not known better than to a second.
fn rounded(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}

/// A size, to two or three digits.
pub(super) fn bytes(count: u64) -> String {
    let mut size = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        match (size < 1_024.0, unit == "B" || size >= 9.95) {
            (true, true) => return format!("{size:.0} {unit}"),
            (true, false) => return format!("{size:.1} {unit}"),
            _ => size /= 1_024.0,
        }
    }
    format!("{size:.1} TiB")
}

/// For programs: null where nothing is to move.
pub(super) fn as_json(ring: &RingStatus, moves: &Moves) -> Value {
    if ring.groups.iter().all(|group| plan::left(group) == (0, 0)) {
        return Value::Null;
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "took_us": micros(moves.took),
        "keys": moves.keys,
        "bytes": moves.bytes,
        "keys_left": moves.left.map(|left| left.keys),
        "bytes_left": moves.left.and_then(|left| left.bytes),
        "left_us": moves.left.and_then(|left| left.time).map(micros),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn node(stores: u32, (keys, bytes): (u64, u64), keys_left: Option<u64>) -> MovingStatus {
        MovingStatus {
            stores,
            took: 2_000_000,
            keys,
            bytes,
            keys_left,
        }
    }

    #[test]
    fn nodes_work_side_by_side_and_the_slowest_ends_it() {
        let fast = node(4, (100, 1_000), Some(50));
        let slow = node(4, (100, 9_000), Some(400));
        let over = node(0, (800, 0), Some(0));
        let moves = sum(&[fast, slow, over], 8);
        assert_eq!((moves.keys, moves.bytes), (1_000, 10_000));
        assert_eq!(moves.took, 2 * SECOND);
        let left = Left {
            keys: 450,
            bytes: Some(36_500),
            time: Some(8 * SECOND),
        };
        assert_eq!(moves.left, Some(left));
        assert_eq!(to_move(&moves, None), "about 36 KiB, about 8 s left");
        let said = "1000 keys, 9.8 KiB moved in 2.0 s, 4.9 KiB per second";
        assert_eq!(moved(&moves).as_deref(), Some(said));
    }

    #[test]
    fn what_nobody_can_tell_is_not_told() {
        let told = node(4, (100, 1_000), Some(50));
        // A store of which nobody tells, and one whose keys are not known.
        assert_eq!(sum(&[told], 5).left, None);
        assert_eq!(sum(&[told, node(1, (0, 0), None)], 5).left, None);
        assert_eq!(sum(&[], 0).left, None);
        // Nothing has moved that would tell how large and how fast.
        let first = sum(&[node(4, (0, 0), Some(50))], 4);
        assert_eq!(to_move(&first, None), "about 50 keys");
        assert_eq!(to_move(&first, Some(3 * SECOND)), "about 50 keys");
        assert_eq!(moved(&first), None);
        // All keys have moved, and what members have alone is looked for.
        let last = sum(&[node(4, (50, 500), Some(0))], 4);
        assert_eq!(to_move(&last, None), "");
        assert_eq!(to_move(&last, Some(SECOND)), "about 1 s left");
    }

    #[test]
    fn the_pace_of_segments_is_that_since_most_were_left() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        assert_eq!(pace.see(Some(70), begin), None);
        assert_eq!(pace.see(None, begin), None);
        assert_eq!(pace.see(Some(10), begin), None);
        assert_eq!(pace.see(Some(64), begin + SECOND), None);
        assert_eq!(pace.see(Some(63), begin + 2 * SECOND), None);
        assert_eq!(pace.see(Some(48), begin + 5 * SECOND), Some(12 * SECOND));
        assert_eq!(pace.see(Some(0), begin + 9 * SECOND), Some(Duration::ZERO));
    }

    #[test]
    fn sizes_and_times_are_as_rough_as_what_is_known() {
        for (count, said) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (40 << 20, "40 MiB"),
            (3 << 40, "3.0 TiB"),
        ] {
            assert_eq!(bytes(count), said);
        }
        for (seconds, said) in [
            (0.0, "0 s"),
            (7.2, "8 s"),
            (121.0, "3 min"),
            (9_000.0, "3 h"),
        ] {
            assert_eq!(rounded(Duration::from_secs_f64(seconds)), said);
        }
    }
}
