//! The job: one homing request and how far it has come.
//!
//! **Problem.** A worker may stop at any instant, and another must go on without doing a step twice
//! or leaving one out (MUSIC §VII(a)).
//!
//! **Idea.** The value under the job's key is the pair of the paper, execution state and job
//! description ([`Job`]). [`step`] is a pure function from one state to the next: a worker applies
//! it to the state that it read in its critical section and puts the result. The states, adapted
//! from figure 3(b):
//!
//! | from | the step's work | to |
//! |---|---|---|
//! | `PENDING` | put the request into the solver's units | `TRANSLATING` |
//! | `TRANSLATING` | find the regions that can host each function by itself | `CANDIDATES` |
//! | `CANDIDATES` | keep those on a path within the limits; lower bound of the cost | `SOLVING` |
//! | `SOLVING` | search the cheapest placement among them | `PLACED` |
//! | `PLACED` | check it independently, count what it takes from each region | `RESERVED` |
//! | `RESERVED` | give the verdict `placed` | `DONE` |
//!
//! A step that finds that no placement exists goes to `DONE` at once, with the verdict
//! `infeasible`.
//!
//! **Invariants.**
//! * J1 `step` is the number of entries in `trail`, and grows by one with every acknowledged put.
//! * J2 `worker` and `phase` are those of the trail's last entry; `takeovers` counts the entries
//!   whose worker is not that of the entry before. A worker that lost its section and came back to
//!   its own job took nothing over.
//! * J3 Each step reads only the request, the regions and what the steps before recorded.
//! * J4 An encoded job is below [`JOB_BYTES_MAX`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::data::{DataError, Flavour, Regions, Request, is_name};
use super::solver::{self, Infeasible, Problem, Violation};

/// Bound of an encoded job in bytes (exclusive).
pub(crate) const JOB_BYTES_MAX: usize = 8 * 1024;

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Phase {
    /// Submitted; no worker has touched it.
    Pending,
    /// Checked and put into the solver's units.
    Translating,
    /// Regions that can host each function are known.
    Candidates,
    /// Only regions on a path within the limits are left.
    Solving,
    /// The cheapest placement is known.
    Placed,
    /// The placement is checked and what it takes is counted.
    Reserved,
    /// Finished; the verdict is there. The front end may delete the job.
    Done,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Pending => "PENDING",
            Phase::Translating => "TRANSLATING",
            Phase::Candidates => "CANDIDATES",
            Phase::Solving => "SOLVING",
            Phase::Placed => "PLACED",
            Phase::Reserved => "RESERVED",
            Phase::Done => "DONE",
        })
    }
}

/// Who did one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Footprint {
    /// The phase that the step led to.
    pub(crate) phase: Phase,
    /// The worker that did it.
    pub(crate) worker: String,
}

/// The placement that the search chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placement {
    /// A region (`provider/code`) per function.
    pub(crate) regions: Vec<String>,
    /// Customer to first function and along the chain, in metres.
    pub(crate) cost_m: u64,
    /// Partial placements that the search looked at.
    pub(crate) explored: u64,
}

/// What the placement takes from one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reservation {
    /// The region (`provider/code`).
    pub(crate) region: String,
    /// The hardware.
    pub(crate) flavour: Flavour,
    /// vCPUs taken by all functions of the chain there.
    pub(crate) vcpu: u32,
    /// vCPUs that one request could take there beyond these.
    pub(crate) left: u32,
}

/// How a finished job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Verdict {
    /// The chain is placed.
    Placed,
    /// No placement meets the request.
    Infeasible {
        /// What stands in the way.
        reason: Infeasible,
    },
}

/// The job's dynamic part: its execution state in the terms of MUSIC §VII(a).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobState {
    /// How far the job has come.
    pub(crate) phase: Phase,
    /// How many steps have been done.
    pub(crate) step: u32,
    /// The worker that did the last step; `None` in `PENDING`.
    pub(crate) worker: Option<String>,
    /// How often a step was done by another worker than the step before.
    pub(crate) takeovers: u32,
    /// Every step so far, in order.
    pub(crate) trail: Vec<Footprint>,
    /// From `TRANSLATING` on: the request in the solver's units.
    pub(crate) problem: Option<Problem>,
    /// From `CANDIDATES` on: how many regions could host each function by itself.
    pub(crate) considered: Vec<u32>,
    /// From `CANDIDATES` on: the regions per function (`provider/code`); fewer from `SOLVING` on.
    pub(crate) candidates: Vec<Vec<String>>,
    /// From `SOLVING` on: lower bound of the cost in metres.
    pub(crate) bound_m: Option<u64>,
    /// From `PLACED` on: the cheapest placement.
    pub(crate) placement: Option<Placement>,
    /// From `RESERVED` on: what the placement takes.
    pub(crate) reservations: Vec<Reservation>,
    /// In `DONE`: how it ended.
    pub(crate) verdict: Option<Verdict>,
}

/// Why a job could not be read, moved on, or believed. None of them changes anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobError {
    /// The job is `DONE`; there is no next step.
    Done,
    /// The worker's name is empty, too long or not visible ASCII.
    WorkerName,
    /// The request breaks its own rules.
    Request(DataError),
    /// The state lacks, or contradicts, what its phase promises.
    Damaged(&'static str),
    /// The placement in the state breaks the request.
    Placement(Violation),
    /// The bytes are not a job.
    Malformed(String),
    /// The encoded job has this many bytes, [`JOB_BYTES_MAX`] or more.
    TooLarge(usize),
    /// The state is not what the steps in its trail lead to; the first that differs.
    Diverged {
        /// Number of the step, from 1.
        step: u32,
    },
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Done => write!(f, "the job is DONE and has no next step"),
            JobError::WorkerName => write!(f, "a worker's name is short, visible ASCII"),
            JobError::Request(error) => write!(f, "the request is refused: {error}"),
            JobError::Damaged(what) => write!(f, "the job's state is damaged: {what}"),
            JobError::Placement(rule) => write!(f, "the placement breaks the request: {rule}"),
            JobError::Malformed(why) => write!(f, "these bytes are not a job: {why}"),
            JobError::TooLarge(bytes) => {
                write!(
                    f,
                    "the job has {bytes} bytes; it must stay below {JOB_BYTES_MAX}"
                )
            }
            JobError::Diverged { step } => {
                write!(
                    f,
                    "step {step} of the job is not what the step before it leads to"
                )
            }
        }
    }
}

impl std::error::Error for JobError {}

impl From<DataError> for JobError {
    fn from(error: DataError) -> Self {
        JobError::Request(error)
    }
}

/// The value under a job's key: `{jobState, jobDesc}` of MUSIC §VII(a).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// How far it has come.
    pub(crate) state: JobState,
    /// What the customer asks for; it never changes.
    pub(crate) request: Request,
}

impl Job {
    /// The job as the front end submits it.
    ///
    /// # Errors
    /// [`JobError::Request`] if the request breaks its own rules.
    pub(crate) fn submitted(request: Request) -> Result<Job, JobError> {
        request.validate()?;
        Ok(Job {
            state: JobState::pending(),
            request,
        })
    }

    /// The job as JSON, the value to put.
    ///
    /// # Errors
    /// [`JobError::TooLarge`] at [`JOB_BYTES_MAX`] bytes or more.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, JobError> {
        let bytes =
            serde_json::to_vec(self).map_err(|error| JobError::Malformed(error.to_string()))?;
        if bytes.len() < JOB_BYTES_MAX {
            Ok(bytes)
        } else {
            Err(JobError::TooLarge(bytes.len()))
        }
    }

    /// Reads a value, and checks J1, J2, J4 and the request. What the steps recorded is checked by
    /// the steps that use it, and all of it by [`replay`].
    ///
    /// # Errors
    /// [`JobError::TooLarge`], [`JobError::Malformed`], [`JobError::Request`],
    /// [`JobError::Damaged`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Job, JobError> {
        if bytes.len() >= JOB_BYTES_MAX {
            return Err(JobError::TooLarge(bytes.len()));
        }
        let job: Job = serde_json::from_slice(bytes)
            .map_err(|error| JobError::Malformed(error.to_string()))?;
        job.request.validate()?;
        job.state.check_trail()?;
        Ok(job)
    }
}

impl JobState {
    /// The state of a job that nobody has touched.
    pub(crate) fn pending() -> JobState {
        JobState {
            phase: Phase::Pending,
            step: 0,
            worker: None,
            takeovers: 0,
            trail: Vec::new(),
            problem: None,
            considered: Vec::new(),
            candidates: Vec::new(),
            bound_m: None,
            placement: None,
            reservations: Vec::new(),
            verdict: None,
        }
    }

    /// J1 and J2, and that the phases only went forward from `PENDING`.
    fn check_trail(&self) -> Result<(), JobError> {
        let require = |holds, what| {
            if holds {
                Ok(())
            } else {
                Err(JobError::Damaged(what))
            }
        };
        require(
            usize::try_from(self.step) == Ok(self.trail.len()),
            "its steps and trail differ",
        )?;
        let (phase, worker) = match self.trail.last() {
            None => (Phase::Pending, None),
            Some(last) => (last.phase, Some(&last.worker)),
        };
        require(
            self.phase == phase,
            "its phase is not that of its last step",
        )?;
        require(
            self.worker.as_ref() == worker,
            "its worker did not do its last step",
        )?;
        require(
            self.trail.iter().all(|f| is_name(&f.worker)),
            "a worker in it has no name",
        )?;
        require(
            self.trail.is_sorted_by(|a, b| a.phase < b.phase),
            "its trail goes backward",
        )?;
        require(
            self.trail.iter().all(|f| f.phase > Phase::Pending),
            "a step leads to PENDING",
        )?;
        let changes = self
            .trail
            .windows(2)
            .filter(|pair| pair[0].worker != pair[1].worker);
        let counted = usize::try_from(self.takeovers) == Ok(changes.count());
        require(counted, "its takeovers are miscounted")?;
        require(
            (self.phase == Phase::Done) == self.verdict.is_some(),
            "its verdict is misplaced",
        )
    }

    /// The problem, if it belongs to `request`.
    fn problem_of(&self, request: &Request) -> Result<&Problem, JobError> {
        let problem = self
            .problem
            .as_ref()
            .ok_or(JobError::Damaged("its problem is missing"))?;
        // Both come from the same value; comparing costs little and guards every index below.
        if *problem == solver::translate(request) {
            Ok(problem)
        } else {
            Err(JobError::Damaged("its problem is not that of its request"))
        }
    }

    /// The candidates as region indices: one list per function, ascending, none empty.
    fn candidate_indices(
        &self,
        request: &Request,
        regions: &Regions,
    ) -> Result<Vec<Vec<usize>>, JobError> {
        let damaged = JobError::Damaged("its candidates do not fit its request and regions");
        let indices: Option<Vec<Vec<usize>>> = (self.candidates.iter())
            .map(|ids| ids.iter().map(|id| regions.find(id)).collect())
            .collect();
        let indices = indices.ok_or_else(|| damaged.clone())?;
        let sound = indices.len() == request.chain.len()
            && indices
                .iter()
                .all(|list| !list.is_empty() && list.is_sorted_by(|a, b| a < b));
        if sound { Ok(indices) } else { Err(damaged) }
    }
}

/// Names for region indices.
fn ids(regions: &Regions, indices: &[usize]) -> Vec<String> {
    indices
        .iter()
        .map(|&index| regions.get(index).id())
        .collect()
}

/// Does the next step of a job, as `worker`. The state is left as it was; the result is the value
/// to put. The request must be the one the job was submitted with.
///
/// # Errors
/// [`JobError::Done`] after the last step; [`JobError::WorkerName`]; [`JobError::Request`],
/// [`JobError::Damaged`] or [`JobError::Placement`] if the state or request was tampered with.
pub(crate) fn step(
    state: &JobState,
    request: &Request,
    regions: &Regions,
    worker: &str,
) -> Result<JobState, JobError> {
    if !is_name(worker) {
        return Err(JobError::WorkerName);
    }
    // The value came from the network: whatever the work below relies on is checked here.
    request.validate()?;
    state.check_trail()?;
    let mut next = state.clone();
    let advance = match state.phase {
        Phase::Pending => translate_step(&mut next, request),
        Phase::Translating => candidates_step(&mut next, request, regions)?,
        Phase::Candidates => narrow_step(&mut next, request, regions)?,
        Phase::Solving => solve_step(&mut next, request, regions)?,
        Phase::Placed => reserve_step(&mut next, request, regions)?,
        Phase::Reserved => Ok(Phase::Done),
        Phase::Done => return Err(JobError::Done),
    };
    next.phase = match advance {
        Ok(phase) => phase,
        Err(reason) => {
            next.verdict = Some(Verdict::Infeasible { reason });
            Phase::Done
        }
    };
    if state.phase == Phase::Reserved {
        next.verdict = Some(Verdict::Placed);
    }
    if state
        .worker
        .as_deref()
        .is_some_and(|previous| previous != worker)
    {
        next.takeovers += 1;
    }
    next.step += 1;
    next.worker = Some(worker.to_owned());
    next.trail.push(Footprint {
        phase: next.phase,
        worker: worker.to_owned(),
    });
    Ok(next)
}

/// What a step's work gives: the next phase, or that no placement exists; or that the state it
/// started from cannot be used.
type Work = Result<Result<Phase, Infeasible>, JobError>;

fn translate_step(next: &mut JobState, request: &Request) -> Result<Phase, Infeasible> {
    next.problem = Some(solver::translate(request));
    Ok(Phase::Translating)
}

fn candidates_step(next: &mut JobState, request: &Request, regions: &Regions) -> Work {
    let found = match solver::candidates(next.problem_of(request)?, regions) {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason)),
    };
    next.considered = found.iter().map(|list| list.len() as u32).collect();
    next.candidates = found.iter().map(|list| ids(regions, list)).collect();
    Ok(Ok(Phase::Candidates))
}

fn narrow_step(next: &mut JobState, request: &Request, regions: &Regions) -> Work {
    let candidates = next.candidate_indices(request, regions)?;
    let narrowed = match solver::narrow(next.problem_of(request)?, regions, &candidates) {
        Ok(narrowed) => narrowed,
        Err(reason) => return Ok(Err(reason)),
    };
    next.candidates = narrowed
        .candidates
        .iter()
        .map(|list| ids(regions, list))
        .collect();
    next.bound_m = Some(narrowed.bound_m);
    Ok(Ok(Phase::Solving))
}

fn solve_step(next: &mut JobState, request: &Request, regions: &Regions) -> Work {
    let candidates = next.candidate_indices(request, regions)?;
    let solution = match solver::solve(next.problem_of(request)?, regions, &candidates) {
        Ok(solution) => solution,
        Err(reason) => return Ok(Err(reason)),
    };
    next.placement = Some(Placement {
        regions: ids(regions, &solution.placement),
        cost_m: solution.cost_m,
        explored: solution.explored,
    });
    Ok(Ok(Phase::Placed))
}

fn reserve_step(next: &mut JobState, request: &Request, regions: &Regions) -> Work {
    let placement = next
        .placement
        .as_ref()
        .ok_or(JobError::Damaged("its placement is missing"))?;
    let indices: Option<Vec<usize>> = placement
        .regions
        .iter()
        .map(|id| regions.find(id))
        .collect();
    let indices = indices.ok_or(JobError::Damaged("its placement names an unknown region"))?;
    let cost_m = solver::verify(request, regions, &indices).map_err(JobError::Placement)?;
    if cost_m != placement.cost_m {
        return Err(JobError::Damaged(
            "its placement has another cost than it says",
        ));
    }
    let mut taken: BTreeMap<(usize, Flavour), u32> = BTreeMap::new();
    for (&region, function) in indices.iter().zip(&request.chain) {
        *taken.entry((region, function.flavour)).or_default() += function.vcpu;
    }
    next.reservations = (taken.into_iter())
        .map(|((index, flavour), vcpu)| {
            let region = regions.get(index);
            // verify has just shown that the sum fits.
            Reservation {
                region: region.id(),
                flavour,
                vcpu,
                left: region.capacity_of(flavour) - vcpu,
            }
        })
        .collect();
    Ok(Ok(Phase::Reserved))
}

/// Whether `next` is exactly what `next`'s worker makes of `previous`: for checking a history of
/// acknowledged puts pair by pair.
///
/// # Errors
/// [`JobError::Diverged`] if it is not; otherwise as [`step`].
pub(crate) fn follows(
    previous: &JobState,
    next: &JobState,
    request: &Request,
    regions: &Regions,
) -> Result<(), JobError> {
    let worker = next
        .worker
        .as_deref()
        .ok_or(JobError::Damaged("no worker did its last step"))?;
    let expected = step(previous, request, regions, worker)?;
    if expected == *next {
        Ok(())
    } else {
        Err(JobError::Diverged {
            step: expected.step,
        })
    }
}

/// Repeats the steps of the trail from `PENDING` and compares: no step was lost, repeated or done
/// from another state than the one before it (H2).
///
/// # Errors
/// [`JobError::Diverged`] or [`JobError::Damaged`] if the state is not what its trail leads to.
pub(crate) fn replay(
    state: &JobState,
    request: &Request,
    regions: &Regions,
) -> Result<(), JobError> {
    state.check_trail()?;
    let mut repeated = JobState::pending();
    for footprint in &state.trail {
        repeated = step(&repeated, request, regions, &footprint.worker)?;
        if repeated.phase != footprint.phase {
            return Err(JobError::Diverged {
                step: repeated.step,
            });
        }
    }
    if repeated == *state {
        Ok(())
    } else {
        Err(JobError::Diverged { step: state.step })
    }
}
