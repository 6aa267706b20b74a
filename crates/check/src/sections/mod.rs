//! Whether a history of critical sections keeps what clients were promised: Entry Consistency
//! under Failures (MUSIC §III, §V).
//!
//! **Problem.** Fermata's own nodes are run by a simulator, the engines on stores that others run
//! by simulated stores and by real ones, whose servers are stopped and killed. The promise to
//! clients is the same everywhere, and so has to be its judge.
//!
//! **Idea.** A [`History`] is all that clients asked and were told, on one true clock; it knows
//! nothing of nodes and stores. [`check`] sorts it into one chain of sections per key, by lock ref
//! and generation, and looks for what must not be:
//!
//! | promise | says | file |
//! | --- | --- | --- |
//! | [`Promise::Outcomes`] | what was refused as having changed nothing is never found | `latest_state` |
//! | [`Promise::Acknowledged`] | an acknowledged put is never lost: what is found later is that or a higher one | `acknowledged` |
//! | [`Promise::LatestState`] | what a section finds is the true value, and its reads agree (F3 to F7, F17) | `latest_state` |
//! | [`Promise::Refs`] | a ref is one section's, an enter has one, and refs grow with time (F2) | `refs` |
//! | [`Promise::Exclusivity`] | once a section is granted, no earlier one in conflict with it succeeds; none is granted beside a lease that runs (F1, F10, G14) | `exclusivity` |
//! | [`Promise::OneEnd`] | a section that was past for one of its keys does not succeed again (F19) | `exclusivity` |
//! | [`Promise::ToldPast`] | nobody is told that its ref is past who has not left, been released, expired or been resumed | `ends` |
//!
//! A history says more of some runs than of others, and the judge demands no less for that: where
//! no leases are recorded any section may have expired at any time, and where transmissions are
//! not told apart each operation is a request of its own. Values are unique but for deletes, so
//! that a value names its put.

mod acknowledged;
mod chains;
mod ends;
mod exclusivity;
mod history;
mod latest_state;
mod refs;

pub use history::{ClientId, Heard, History, Op, OpId, Section, SectionIx, Value, What};

use fermata_protocol::base::KeyId;

/// What clients are promised; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// What was refused changed nothing.
    Outcomes,
    /// What was acknowledged stays.
    Acknowledged,
    /// Reads show the true value.
    LatestState,
    /// Refs grow.
    Refs,
    /// One holder at a time.
    Exclusivity,
    /// One section, one end.
    OneEnd,
    /// Nobody is told past who is not.
    ToldPast,
    /// Eventual operations find what they must: told by schedules that know it, not by [`check`].
    Eventual,
}

impl Promise {
    /// What it is called in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::Outcomes => "outcomes",
            Promise::Acknowledged => "acknowledged put lost",
            Promise::LatestState => "latest-state",
            Promise::Refs => "lock refs",
            Promise::Exclusivity => "exclusivity",
            Promise::OneEnd => "one section, one end",
            Promise::ToldPast => "told past",
            Promise::Eventual => "eventual",
        }
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise it breaks.
    pub promise: Promise,
    /// One sentence with the evidence.
    pub sentence: String,
}

/// Everything that is wrong with a history, in the order of the promises: what else is wrong with
/// a value that was refused, or with a lost put, follows from it. `has_sections`: the key is one of
/// sections, so that its reads and writes go through them; no other key is judged.
pub fn check(history: &History, has_sections: &dyn Fn(&KeyId) -> bool) -> Vec<Violation> {
    let mut found = Found::default();
    let chains = chains::chains(history, has_sections).into_iter();
    for (key, chain) in chains.filter(|(key, _)| has_sections(key)) {
        found.key = show_key(key);
        let ends = ends::Ends::of(key, &chain, history);
        latest_state::check(&chain, &ends, &mut found);
        acknowledged::check(&chain, &mut found);
        exclusivity::check(&chain, &ends, &mut found);
        refs::check(&chain, &mut found);
        ends.check_told(key, history, &mut found);
    }
    exclusivity::check_ends(history, &mut found);
    found.all.sort_by_key(|violation| violation.promise);
    found.all
}

#[derive(Default)]
struct Found {
    key: String,
    all: Vec<Violation>,
}

impl Found {
    fn add(&mut self, promise: Promise, sentence: impl AsRef<str>) {
        let sentence = format!("key {}: {}", self.key, sentence.as_ref());
        self.all.push(Violation { promise, sentence });
    }
}

fn show_key(key: &KeyId) -> String {
    String::from_utf8_lossy(&key.key).into_owned()
}

/// A value for people.
pub fn show(value: &Value) -> String {
    match value {
        None => "nothing".to_owned(),
        // What is put behind a value to make it long says nothing.
        Some(bytes) => String::from_utf8_lossy(bytes)
            .trim_end_matches('~')
            .to_owned(),
    }
}
