//! The names of measured points, by which figures find them.

use crate::music::place::Profile;
use crate::music::system::Kind;

/// Bytes of a value where nothing else is said: the paper's.
pub(crate) const SMALL: usize = 10;

/// Bytes of one that is neither small nor large.
pub(crate) const MEDIUM: usize = 16 << 10;

/// What the paper calls MUSIC, and what stands beside it.
pub(super) const LAYERS: [Kind; 5] = [
    Kind::Native,
    Kind::Engine,
    Kind::Paper,
    Kind::Mscp,
    Kind::CassaEv,
];

pub(crate) const DISTINCT: &str = "distinct keys";
pub(crate) const PLAIN_PUTS: &str = "plain puts";
pub(crate) const CRITICAL: &str = "critical puts";
pub(crate) const HOT: &str = "one key";
pub(crate) const HOT_NATIVE: &str = "one key, native";
pub(crate) const QUEUE: &str = "one queue";
pub(crate) const QUEUE_ALONE: &str = "one queue, one site";
pub(super) const PLAIN_GETS: &str = "plain gets";

/// A client a site, sites one after the other.
pub(crate) fn steps_name(profile: Profile) -> String {
    format!("sites apart {}", profile.name)
}

/// A client a site, all sites at once.
pub(crate) fn shared_name(profile: Profile) -> String {
    format!("sites together {}", profile.name)
}

pub(super) fn many_name(profile: Profile) -> String {
    format!("many clients {}", profile.name)
}

pub(crate) fn hundred_name(small: bool, piped: bool) -> String {
    let size = if small { "small" } else { "large" };
    let how = if piped { " in flight" } else { "" };
    format!("100 {size} puts{how}")
}

/// Puts of 64 clients, by bytes of each.
pub(crate) fn many_puts_name(size: usize) -> String {
    format!("64 clients, puts of {size} B")
}

/// A point of Figure 6 or 7, by puts in a section and bytes of each.
pub(super) fn batch_name(figure: u8, puts: u32, size: usize) -> String {
    format!("figure {figure}: {puts} puts of {size} B")
}

pub(super) fn piped_name(puts: u32, size: usize) -> String {
    format!("figure 6: {puts} puts of {size} B in flight")
}

/// Puts in a section, at the small size; then sizes, at so many puts.
pub(super) fn batches(quick: bool) -> (&'static [u32], &'static [usize], u32) {
    match quick {
        true => (&[1, 5, 20], &[SMALL, 256 << 10], 5),
        false => (
            &[1, 10, 100, 1_000],
            &[SMALL, 1 << 10, 16 << 10, 256 << 10],
            100,
        ),
    }
}

/// All pairs of the two, once each.
pub(super) fn shapes(quick: bool) -> Vec<(u32, usize)> {
    let (puts, sizes, fixed) = batches(quick);
    let mut shapes: Vec<(u32, usize)> = puts.iter().map(|puts| (*puts, SMALL)).collect();
    shapes.extend(sizes.iter().map(|size| (fixed, *size)));
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

/// Letters of the paper, and how many of a hundred operations are updates.
pub(super) const YCSB: [(&str, u8); 3] = [("R", 0), ("UR", 50), ("U", 100)];
pub(super) const NINE: [Kind; 4] = [Kind::Native, Kind::Engine, Kind::Paper, Kind::Mscp];

pub(super) fn ycsb_name(letter: &str) -> String {
    format!("YCSB {letter}")
}

pub(super) const SIX: [Kind; 7] = [
    Kind::Native,
    Kind::Engine,
    Kind::Unverified,
    Kind::Paper,
    Kind::Mscp,
    Kind::Zookeeper,
    Kind::Etcd,
];
pub(super) const PIPED: [Kind; 2] = [Kind::Native, Kind::Zookeeper];
pub(super) const SEVEN: [Kind; 4] = [Kind::Native, Kind::Engine, Kind::Paper, Kind::EtcdTxn];
