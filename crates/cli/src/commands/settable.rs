//! The settings by their names: what can be changed for all nodes at once, and for everything else
//! that a node is told why that cannot be.

use std::time::Duration;

use clap::ValueEnum;
use fermata_protocol::settings::Setting;

use super::ring::joins;
use crate::args::LeaderChoice;
use crate::duration;
use crate::exit::{Exit, Failure};

/// What can be changed, as its refusals say.
const NAMES: &str = "lease, format, dead_after, join, leader, key_bytes, value_bytes and move_rate";

/// What never changes in a cluster, and why.
const FIXED: &[(&str, &str)] = &[
    (
        "request",
        "whoever looks after keys takes an operation for ended once so much time has passed, be it \
         of a node that has not heard of a change",
    ),
    (
        "segment_bits",
        "each key has its segment by it, and each segment its logs and values",
    ),
    (
        "drift_ppm",
        "leases that were granted are counted by it, and how far clocks drift is no choice",
    ),
    ("lowest_ref", "refs below it may be another cluster's"),
    (
        "least",
        "keyspaces have a shape for each size of a group from it on",
    ),
];

/// What each node has of its own, in its file.
const OWN: &[&str] = &[
    "timing.beat_ms",
    "timing.election_ms",
    "timing.stagger_ms",
    "timing.retry_ms",
    "timing.upkeep_ms",
    "timing.usage_ms",
    "limits.requests",
    "limits.section_keys",
    "limits.grant_bytes",
    "limits.transaction_bytes",
    "limits.transaction_keys",
    "limits.ledger_value_bytes",
    "clock.bound_us",
];

/// Names in a file are as good with their table as without, and without their unit.
fn is(known: &str, name: &str) -> bool {
    let bare = known.split('.').next_back().unwrap_or(known);
    let unit = ["_ms", "_us", "_bytes"];
    let plain = unit.iter().find_map(|unit| bare.strip_suffix(unit));
    [Some(known), Some(bare), plain].contains(&Some(name))
}

/// The change of a setting to a value.
///
/// # Errors
/// One sentence, if there is no such setting, it cannot be changed so, or that is no value of it;
/// nothing was changed.
pub(super) fn setting(name: &str, value: &str) -> Result<Setting, Failure> {
    let micros = |after: Duration| u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    let time = |value| duration::positive(value).map(micros);
    let setting = match name {
        "lease" | "lease_ms" | "timing.lease_ms" => time(value).map(Setting::Lease),
        "format" => value
            .parse()
            .map(Setting::Format)
            .map_err(|_| "a format is a number".to_owned()),
        "dead_after" if value == "off" => Ok(Setting::DeadAfter(0)),
        "dead_after" => time(value).map(Setting::DeadAfter),
        "join" => choice(value).map(|join| Setting::Join(joins(join))),
        "leader" => choice(value)
            .map(|leader: LeaderChoice| Setting::NearestLeads(leader == LeaderChoice::Latency)),
        "key_bytes" | "limits.key_bytes" => bytes(value).map(Setting::KeyBytes),
        "value_bytes" | "limits.value_bytes" => bytes(value).map(Setting::ValueBytes),
        "move_rate" if value == "off" => Ok(Setting::MoveRate(0)),
        "move_rate" => bytes(value).map(Setting::MoveRate),
        _ => return Err(refused(name)),
    };
    setting.map_err(|why| Failure::usage(format!("{value:?} is no {name}: {why}")))
}

/// A number of bytes: `16777216`, `16MiB`.
fn bytes(value: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let unit = units
        .iter()
        .find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((value, 0));
    let number: Option<u64> = number.trim_end().parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "it is a number of bytes, like 65536, 64KiB or 16MiB".to_owned())
}

/// One of several words.
fn choice<T: ValueEnum>(value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let all = T::value_variants().iter();
        let all = all.filter_map(|one| Some(one.to_possible_value()?.get_name().to_owned()));
        format!("it is one of {}", all.collect::<Vec<_>>().join(", "))
    })
}

fn refused(name: &str) -> Failure {
    let no = |why| Failure::new(Exit::Refused, format!("{name} was not changed: {why}"));
    if let Some((_, why)) = FIXED.iter().find(|(known, _)| is(known, name)) {
        return no(format!(
            "a cluster keeps the one that it began with, since {why}; for another one begin a new \
             cluster"
        ));
    }
    if let Some(known) = OWN.iter().find(|known| is(known, name)) {
        return no(format!(
            "each node has its own, on which no other relies; change {known} in the node's file, \
             and start the node again"
        ));
    }
    Failure::usage(format!(
        "there is no setting {name:?}: those of a cluster are {NAMES}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::settings::Join;

    #[test]
    fn settings_are_changed_by_their_names() {
        let is = |name, value, wanted| match setting(name, value) {
            Ok(found) => assert_eq!(found, wanted, "{name}"),
            Err(failure) => panic!("{name}: {}", failure.sentence),
        };
        is("lease", "2s", Setting::Lease(2_000_000));
        is("format", "10", Setting::Format(10));
        is("dead_after", "5m", Setting::DeadAfter(300_000_000));
        is("dead_after", "off", Setting::DeadAfter(0));
        is("join", "load", Setting::Join(Some(Join::Load)));
        is("join", "off", Setting::Join(None));
        is("leader", "latency", Setting::NearestLeads(true));
        is("key_bytes", "2048", Setting::KeyBytes(2_048));
        is("limits.value_bytes", "32MiB", Setting::ValueBytes(32 << 20));
        is("move_rate", "512 KiB", Setting::MoveRate(512 << 10));
        is("move_rate", "off", Setting::MoveRate(0));
    }

    fn sentence(name: &str) -> (Exit, String) {
        let failure = setting(name, "1s").expect_err("refused");
        (failure.exit, failure.sentence)
    }

    #[test]
    fn what_never_changes_is_refused_by_name() {
        for (name, why) in FIXED {
            let (exit, sentence) = sentence(name);
            assert_eq!(exit, Exit::Refused, "{name}");
            assert!(
                sentence.starts_with(&format!("{name} was not changed")),
                "{sentence}"
            );
            assert!(
                sentence.contains(why) && sentence.contains("begin a new"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn what_is_a_nodes_own_is_refused_with_where_it_is() {
        for known in OWN {
            for name in [*known, known.split('.').next_back().expect("a name")] {
                let (exit, sentence) = sentence(name);
                assert_eq!(exit, Exit::Refused, "{name}");
                assert!(sentence.contains(&format!(" {known} in")), "{sentence}");
            }
        }
        assert!(sentence("beat").1.contains("timing.beat_ms"));
    }

    #[test]
    fn what_nobody_knows_is_wrong_usage() {
        let (exit, said) = sentence("leases");
        assert_eq!(exit, Exit::Usage);
        assert!(said.contains(NAMES), "{said}");
        for (name, value) in [
            ("join", "everywhere"),
            ("value_bytes", "16MB"),
            ("value_bytes", "99999999999GiB"),
            ("move_rate", "fast"),
        ] {
            let no_value = setting(name, value).expect_err("no value");
            assert_eq!(no_value.exit, Exit::Usage);
        }
    }
}
