//! What an observer saw of the run, and what follows from it.
//!
//! **Problem.** "It worked" is no proof. A lost or repeated step, or two workers in one section,
//! may leave a final state that looks right.
//!
//! **Idea.** The observer notes, in the order of real time, every entry with its lock ref and the
//! state found, every critical put before it is sent, and every acknowledgement after it came.
//! [`judge`] is a pure function of that. Per job, in the order of lock refs (MUSIC's order of
//! sections):
//!
//! * **Latest state.** An entry finds the last acknowledged state, or one that was in flight after
//!   it (its worker died or was preempted before it heard). Nothing older: that would lose a step.
//!   Nothing else: that would invent one.
//! * **Steps.** Each put's state follows from the one before ([`job::follows`]), so that no step is
//!   lost or repeated.
//! * **Exclusivity**, as ECF promises it: once a worker has entered under a lock ref, no put issued
//!   later under a smaller ref is acknowledged. (A worker that was wrongly suspected may *believe*
//!   to hold the section for a moment. It cannot do anything in it.) The same once somebody was
//!   told that the ref was released by force; and a run shows something about that only if a worker
//!   had a put refused after it.
//! * **End.** The job is DONE, its state is the last one of the history, and its trail replays.

use std::collections::{BTreeMap, BTreeSet};

use fermata_client::Code;

use super::data::{Regions, Request};
use super::job::{self, Job, JobState, Phase};
use crate::stage::Check;

/// One observation. A job is an index into the requests.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A worker was told that it is in the section.
    Entered {
        job: usize,
        lock_ref: u64,
        worker: String,
        state: JobState,
    },
    /// A worker is about to put a state. `put` is unique.
    Issued {
        put: u64,
        job: usize,
        lock_ref: u64,
        state: JobState,
    },
    /// The put was acknowledged.
    Acknowledged { put: u64 },
    /// The put failed, and why. Anything but `NoLongerHolder` proves nothing.
    Refused { put: u64, code: Code },
    /// Who asked for the release of this ref was told that its section is over.
    Released { job: usize, lock_ref: u64 },
}

/// One section of a job, from what was observed.
struct Attempt<'a> {
    entered: usize,
    worker: &'a str,
    found: &'a JobState,
    puts: Vec<Put<'a>>,
    /// When who asked for its release was told that it is over.
    released: Option<usize>,
}

struct Put<'a> {
    issued: usize,
    acknowledged: bool,
    /// Refused, since its ref is past.
    past: bool,
    state: &'a JobState,
}

/// What [`judge`] found.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Jobs that are not DONE, or whose final state is not what their history leads to.
    pub(crate) unfinished: Vec<String>,
    /// Puts of a past holder that succeeded, and lock refs given twice.
    pub(crate) exclusivity: Vec<String>,
    /// Entries that did not find the latest state.
    pub(crate) latest_state: Vec<String>,
    /// Steps that do not follow from the one before.
    pub(crate) steps: Vec<String>,
    /// Sections entered.
    pub(crate) sections: u64,
    /// Acknowledged steps.
    pub(crate) acknowledged: u64,
    /// Sections in which a job was taken over from another worker in the middle.
    pub(crate) takeovers: u64,
    /// Of these, the ones that found a state whose worker never heard of its success.
    pub(crate) adopted: u64,
    /// Sections that ended by force while their worker lived, and it learned so from a refused put.
    pub(crate) refused_late: u64,
}

impl Judgement {
    /// The checks, for the report.
    pub(crate) fn checks(self) -> Vec<Check> {
        let check = |claim: &str, violations| Check {
            claim: claim.to_owned(),
            violations,
        };
        // A run in which nobody was wrongly taken for dead shows nothing about that.
        let not_shown = match self.refused_late {
            0 => vec![
                "no late put of a worker whose section was ended by force was refused".to_owned(),
            ],
            _ => Vec::new(),
        };
        vec![
            check(
                "every job is DONE, and its trail replays to its final state",
                self.unfinished,
            ),
            check(
                "no two workers acted in one job's section at a time",
                self.exclusivity,
            ),
            check(
                "every takeover began from the last acknowledged state",
                self.latest_state,
            ),
            check(
                "no acknowledged step was lost, repeated or altered",
                self.steps,
            ),
            check(
                "living workers lost their section by force, and their late puts were refused",
                not_shown,
            ),
        ]
    }
}

/// Judges a whole run. `finals` are the states read after the run, by job.
pub(crate) fn judge(
    events: &[Event],
    requests: &[Request],
    finals: &[Option<Job>],
    regions: &Regions,
) -> Judgement {
    let mut judgement = Judgement::default();
    let attempts = attempts(events, requests, &mut judgement);
    for (index, request) in requests.iter().enumerate() {
        let none = BTreeMap::new();
        let of_job = attempts.get(&index).unwrap_or(&none);
        exclusivity(request, of_job, &mut judgement);
        forced(request, of_job, &mut judgement);
        let possible = succession(request, of_job, regions, &mut judgement);
        let end = end_of(
            finals.get(index).and_then(Option::as_ref),
            request,
            regions,
            &possible,
        );
        if let Err(why) = end {
            judgement.unfinished.push(format!("{}: {why}", request.job));
        }
    }
    judgement
}

/// The puts that were acknowledged, and those that were refused since their ref was past.
fn outcomes(events: &[Event]) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut acknowledged, mut past) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            Event::Acknowledged { put } => acknowledged.insert(*put),
            Event::Refused {
                put,
                code: Code::NoLongerHolder,
            } => past.insert(*put),
            _ => continue,
        };
    }
    (acknowledged, past)
}

/// Sections by job and lock ref.
type Attempts<'a> = BTreeMap<usize, BTreeMap<u64, Attempt<'a>>>;

fn attempts<'a>(
    events: &'a [Event],
    requests: &[Request],
    judgement: &mut Judgement,
) -> Attempts<'a> {
    let (acknowledged, past) = outcomes(events);
    let mut attempts: Attempts<'a> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Entered {
                job,
                lock_ref,
                worker,
                state,
            } => {
                judgement.sections += 1;
                let attempt = Attempt {
                    entered: at,
                    worker,
                    found: state,
                    puts: Vec::new(),
                    released: None,
                };
                let of_job = attempts.entry(*job).or_default();
                if let Some(before) = of_job.insert(*lock_ref, attempt) {
                    judgement.exclusivity.push(format!(
                        "{}: lock ref {lock_ref} was given to {} and to {worker}",
                        requests[*job].job, before.worker
                    ));
                }
            }
            Event::Issued {
                put,
                job,
                lock_ref,
                state,
            } => {
                let of_job = attempts.entry(*job).or_default();
                let attempt = of_job.get_mut(lock_ref);
                attempt
                    .expect("a worker enters before it puts")
                    .puts
                    .push(Put {
                        issued: at,
                        acknowledged: acknowledged.contains(put),
                        past: past.contains(put),
                        state,
                    });
            }
            Event::Acknowledged { .. } => judgement.acknowledged += 1,
            Event::Refused { .. } => {}
            Event::Released { job, lock_ref } => {
                let attempt = attempts.entry(*job).or_default().get_mut(lock_ref);
                attempt
                    .expect("a worker enters before it is suspected")
                    .released = Some(at);
            }
        }
    }
    attempts
}

/// No put issued after a later ref has entered is acknowledged.
fn exclusivity(request: &Request, of_job: &BTreeMap<u64, Attempt>, judgement: &mut Judgement) {
    for (lock_ref, attempt) in of_job {
        let mut later = of_job.range(lock_ref + 1..);
        let Some((next, entered)) = later
            .by_ref()
            .map(|(next, attempt)| (next, attempt.entered))
            .min_by_key(|(_, entered)| *entered)
        else {
            continue;
        };
        let late = (attempt.puts.iter()).filter(|put| put.acknowledged && put.issued > entered);
        for put in late {
            judgement.exclusivity.push(format!(
                "{}: step {} of {} under lock ref {lock_ref} succeeded after lock ref {next} had \
                 entered",
                request.job, put.state.step, attempt.worker
            ));
        }
    }
}

/// No put is acknowledged that was issued after its section was known to be released. Counts the
/// sections in which such a put was refused as past.
fn forced(request: &Request, of_job: &BTreeMap<u64, Attempt>, judgement: &mut Judgement) {
    for (lock_ref, attempt) in of_job {
        let Some(released) = attempt.released else {
            continue;
        };
        let late = || attempt.puts.iter().filter(|put| put.issued > released);
        judgement.refused_late += u64::from(late().any(|put| put.past));
        for put in late().filter(|put| put.acknowledged) {
            judgement.exclusivity.push(format!(
                "{}: step {} of {} succeeded after lock ref {lock_ref} was known to be released",
                request.job, put.state.step, attempt.worker
            ));
        }
    }
}

/// Follows the states through the sections in the order of their refs. Gives the states that the
/// job may be in at the end.
fn succession(
    request: &Request,
    of_job: &BTreeMap<u64, Attempt>,
    regions: &Regions,
    judgement: &mut Judgement,
) -> Vec<JobState> {
    let pending = JobState::pending();
    // The last acknowledged state, then those in flight after it.
    let mut possible: Vec<&JobState> = vec![&pending];
    let mut before: Option<&str> = None;
    for (lock_ref, attempt) in of_job {
        let found = possible.iter().position(|state| *state == attempt.found);
        match found {
            Some(position) => {
                let in_the_middle = attempt.found.phase != Phase::Pending
                    && attempt.found.phase != Phase::Done
                    && before.is_some_and(|worker| worker != attempt.worker);
                judgement.takeovers += u64::from(in_the_middle);
                judgement.adopted += u64::from(in_the_middle && position > 0);
            }
            None => judgement.latest_state.push(format!(
                "{}: {} entered under lock ref {lock_ref} and found step {}, but step {} was \
                 acknowledged",
                request.job, attempt.worker, attempt.found.step, possible[0].step
            )),
        }
        // The entry fixed the value: what was in flight before can no longer take effect.
        possible = vec![attempt.found];
        let mut current = attempt.found;
        for put in &attempt.puts {
            if let Err(why) = job::follows(current, put.state, request, regions) {
                let step = put.state.step;
                judgement
                    .steps
                    .push(format!("{}: step {step}: {why}", request.job));
            }
            current = put.state;
            if put.acknowledged {
                possible.clear();
            }
            possible.push(put.state);
        }
        before = Some(attempt.worker);
    }
    possible.into_iter().cloned().collect()
}

/// Whether a job ended as its history says.
fn end_of(
    end: Option<&Job>,
    request: &Request,
    regions: &Regions,
    possible: &[JobState],
) -> Result<(), String> {
    let job = end.ok_or("it has no value")?;
    if job.request != *request {
        return Err("its request was altered".to_owned());
    }
    if job.state.phase != Phase::Done {
        return Err(format!("it is {}", job.state.phase));
    }
    if !possible.contains(&job.state) {
        return Err("its final state is not the last one of its history".to_owned());
    }
    job::replay(&job.state, request, regions).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homing::data;

    /// A scripted run of one job.
    struct Script {
        events: Vec<Event>,
        request: Request,
        regions: Regions,
        puts: u64,
    }

    impl Script {
        fn new() -> Script {
            let mut requests = data::shipped_requests().unwrap();
            Script {
                events: Vec::new(),
                request: requests.swap_remove(0),
                regions: Regions::shipped().unwrap(),
                puts: 0,
            }
        }

        fn enter(&mut self, lock_ref: u64, worker: &str, state: &JobState) {
            self.events.push(Event::Entered {
                job: 0,
                lock_ref,
                worker: worker.into(),
                state: state.clone(),
            });
        }

        fn put(&mut self, lock_ref: u64, state: &JobState, acknowledged: bool) {
            self.puts += 1;
            let put = self.puts;
            self.events.push(Event::Issued {
                put,
                job: 0,
                lock_ref,
                state: state.clone(),
            });
            if acknowledged {
                self.events.push(Event::Acknowledged { put });
            }
        }

        fn next(&self, state: &JobState, worker: &str) -> JobState {
            job::step(state, &self.request, &self.regions, worker).unwrap()
        }

        /// Goes on under `lock_ref` until DONE.
        fn finish(&mut self, lock_ref: u64, worker: &str, from: &JobState) -> JobState {
            let mut state = from.clone();
            while state.phase != Phase::Done {
                state = self.next(&state, worker);
                self.put(lock_ref, &state.clone(), true);
            }
            state
        }

        fn judge(self, end: JobState) -> Judgement {
            let end = Job {
                state: end,
                request: self.request.clone(),
            };
            judge(&self.events, &[self.request], &[Some(end)], &self.regions)
        }
    }

    fn broken(judgement: &Judgement) -> [usize; 4] {
        [
            judgement.unfinished.len(),
            judgement.exclusivity.len(),
            judgement.latest_state.len(),
            judgement.steps.len(),
        ]
    }

    #[test]
    fn a_takeover_from_the_last_acknowledged_state_is_right() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        let one = script.next(&JobState::pending(), "a");
        script.put(3, &one, true);
        let two = script.next(&one, "a");
        script.put(3, &two, false);
        script.enter(7, "b", &one);
        let end = script.finish(7, "b", &one);
        let judgement = script.judge(end);
        assert_eq!(broken(&judgement), [0; 4], "{judgement:?}");
        assert_eq!((judgement.takeovers, judgement.adopted), (1, 0));
    }

    #[test]
    fn a_takeover_from_a_state_in_flight_is_right() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        let one = script.next(&JobState::pending(), "a");
        script.put(3, &one, false);
        script.enter(4, "b", &one);
        let end = script.finish(4, "b", &one);
        let judgement = script.judge(end);
        assert_eq!(broken(&judgement), [0; 4], "{judgement:?}");
        assert_eq!((judgement.takeovers, judgement.adopted), (1, 1));
    }

    #[test]
    fn a_lost_acknowledged_step_is_found() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        let one = script.next(&JobState::pending(), "a");
        script.put(3, &one, true);
        script.enter(4, "b", &JobState::pending());
        let end = script.finish(4, "b", &JobState::pending());
        assert_eq!(broken(&script.judge(end)), [0, 0, 1, 0]);
    }

    #[test]
    fn a_put_of_a_past_holder_is_found() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        script.enter(4, "b", &JobState::pending());
        let one = script.next(&JobState::pending(), "a");
        script.put(3, &one, true);
        let end = script.finish(4, "b", &JobState::pending());
        let judgement = script.judge(end);
        assert_eq!(judgement.exclusivity.len(), 1);
        // That acknowledged step was lost, too.
        assert_eq!(judgement.latest_state.len(), 1);
    }

    #[test]
    fn a_late_put_after_a_forced_release_counts_where_it_is_refused() {
        for (code, shown) in [(Code::NoLongerHolder, 1), (Code::Unavailable, 0)] {
            let mut script = Script::new();
            let pending = JobState::pending();
            script.enter(3, "a", &pending);
            script.events.push(Event::Released {
                job: 0,
                lock_ref: 3,
            });
            let one = script.next(&pending, "a");
            script.put(3, &one, false);
            let put = script.puts;
            script.events.push(Event::Refused { put, code });
            script.enter(4, "b", &pending);
            let end = script.finish(4, "b", &pending);
            let judgement = script.judge(end);
            assert_eq!(broken(&judgement), [0; 4], "{judgement:?}");
            assert_eq!(judgement.refused_late, shown);
            let held = |check: &Check| check.violations.is_empty();
            assert_eq!(judgement.checks().iter().all(held), shown == 1);
        }
    }

    #[test]
    fn a_put_that_succeeds_after_a_forced_release_is_found() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        script.events.push(Event::Released {
            job: 0,
            lock_ref: 3,
        });
        let end = script.finish(3, "a", &JobState::pending());
        let puts = script.puts as usize;
        assert_eq!(script.judge(end).exclusivity.len(), puts);
    }

    #[test]
    fn a_lock_ref_given_twice_is_found() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        script.enter(3, "b", &JobState::pending());
        let end = script.finish(3, "b", &JobState::pending());
        assert_eq!(script.judge(end).exclusivity.len(), 1);
    }

    #[test]
    fn a_repeated_step_and_an_unfinished_job_are_found() {
        let mut script = Script::new();
        script.enter(3, "a", &JobState::pending());
        let one = script.next(&JobState::pending(), "a");
        script.put(3, &one, true);
        script.put(3, &one, true);
        assert_eq!(broken(&script.judge(one)), [1, 0, 0, 1]);
    }
}
