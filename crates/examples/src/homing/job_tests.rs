//! The job's states, its value, and the checks of its history.

use super::data::{CHAIN_MAX, NAME_BYTES_MAX, Regions, shipped_requests};
use super::job::{JOB_BYTES_MAX, Job, JobError, JobState, Phase, Verdict, follows, replay, step};

/// Makes a damaged state of a good one.
type Mutation = fn(&mut JobState);

fn regions() -> Regions {
    Regions::shipped().expect("the shipped regions are valid")
}

/// The shipped jobs, untouched.
fn jobs() -> Vec<Job> {
    let requests = shipped_requests().expect("the shipped requests are valid");
    requests
        .into_iter()
        .map(|request| Job::submitted(request).expect("valid"))
        .collect()
}

/// All states of a job, `PENDING` first; step `n` is done by `workers[n % workers.len()]`.
fn states(job: &Job, regions: &Regions, workers: &[&str]) -> Vec<JobState> {
    let mut states = vec![job.state.clone()];
    while states.last().expect("never empty").phase != Phase::Done {
        let last = states.last().expect("never empty");
        let worker = workers[last.step as usize % workers.len()];
        states.push(step(last, &job.request, regions, worker).expect("a legal step"));
    }
    states
}

/// The first shipped job that ends with a placement, and its states.
fn placed_job(regions: &Regions) -> (Job, Vec<JobState>) {
    jobs()
        .into_iter()
        .map(|job| {
            let states = states(&job, regions, &["a", "a", "b"]);
            (job, states)
        })
        .find(|(_, states)| states.last().expect("done").verdict == Some(Verdict::Placed))
        .expect("most requests can be met")
}

#[test]
fn a_placed_job_goes_through_all_states_and_counts_takeovers() {
    let regions = regions();
    let (_, states) = placed_job(&regions);
    let shown: Vec<String> = states.iter().map(|state| state.phase.to_string()).collect();
    let all = [
        "PENDING",
        "TRANSLATING",
        "CANDIDATES",
        "SOLVING",
        "PLACED",
        "RESERVED",
        "DONE",
    ];
    assert_eq!(shown, all);
    for (number, state) in states.iter().enumerate() {
        assert_eq!(state.step as usize, number);
        assert_eq!(
            serde_json::to_value(state.phase).expect("plain"),
            all[number]
        );
    }
    // a a b a a b: three changes of hands.
    assert_eq!(
        states.iter().map(|s| s.takeovers).collect::<Vec<_>>(),
        [0, 0, 0, 1, 2, 2, 3]
    );
}

#[test]
fn every_value_of_every_job_is_small_and_reads_back() {
    let regions = regions();
    let worker = "w".repeat(NAME_BYTES_MAX);
    let mut largest = 0;
    for mut job in jobs() {
        for state in states(&job, &regions, &[&worker]) {
            job.state = state;
            let bytes = job.encode().expect("below the bound");
            largest = largest.max(bytes.len());
            assert_eq!(Job::decode(&bytes).as_ref(), Ok(&job));
        }
    }
    assert!(largest < JOB_BYTES_MAX, "{largest} bytes");
}

#[test]
fn an_infeasible_job_is_done_early_and_says_why() {
    let regions = regions();
    let mut ends = std::collections::BTreeSet::new();
    for job in jobs() {
        let states = states(&job, &regions, &["a"]);
        let last = states.last().expect("done");
        let Some(Verdict::Infeasible { reason }) = last.verdict else {
            continue;
        };
        assert!(
            last.placement.is_none() && last.reservations.is_empty(),
            "{reason}"
        );
        ends.insert(states[states.len() - 2].phase);
    }
    let ends: Vec<Phase> = ends.into_iter().collect();
    assert_eq!(
        ends,
        [Phase::Translating, Phase::Candidates, Phase::Solving]
    );
}

#[test]
fn reservations_are_the_demands_of_the_chain() {
    let regions = regions();
    let (job, states) = placed_job(&regions);
    let done = states.last().expect("done");
    let reserved: u32 = done.reservations.iter().map(|r| r.vcpu).sum();
    assert_eq!(
        reserved,
        job.request.chain.iter().map(|f| f.vcpu).sum::<u32>()
    );
    for reservation in &done.reservations {
        let region = regions.get(regions.find(&reservation.region).expect("a known region"));
        let offered = region.capacity_of(reservation.flavour);
        assert_eq!(reservation.vcpu + reservation.left, offered);
    }
    assert!(job.request.chain.len() <= CHAIN_MAX);
}

#[test]
fn a_history_is_believed_only_step_by_step() {
    let regions = regions();
    let (job, states) = placed_job(&regions);
    for pair in states.windows(2) {
        assert_eq!(follows(&pair[0], &pair[1], &job.request, &regions), Ok(()));
        assert_eq!(replay(&pair[1], &job.request, &regions), Ok(()));
    }
    let lost = follows(&states[1], &states[3], &job.request, &regions);
    assert_eq!(
        lost,
        Err(JobError::Diverged { step: 2 }),
        "a lost step shows"
    );
    let repeated = follows(&states[2], &states[2], &job.request, &regions);
    assert_eq!(
        repeated,
        Err(JobError::Diverged { step: 3 }),
        "a repeated step shows"
    );
    let mut altered = states[4].clone();
    altered.bound_m = Some(1);
    assert_eq!(
        replay(&altered, &job.request, &regions),
        Err(JobError::Diverged { step: 4 }),
        "a record that no step made shows"
    );
}

#[test]
fn the_last_state_has_no_next_one_and_a_worker_needs_a_name() {
    let regions = regions();
    let (job, states) = placed_job(&regions);
    let done = states.last().expect("done");
    assert_eq!(step(done, &job.request, &regions, "a"), Err(JobError::Done));
    let long = "w".repeat(NAME_BYTES_MAX + 1);
    for worker in ["", "two words", &long] {
        let refused = step(&states[0], &job.request, &regions, worker);
        assert_eq!(refused, Err(JobError::WorkerName), "{worker:?}");
    }
}

#[test]
fn damaged_states_are_refused_and_nothing_panics() {
    let regions = regions();
    let (job, states) = placed_job(&regions);
    let mutations: [(usize, Mutation); 8] = [
        (1, |s| s.problem = None),
        (1, |s| s.problem.as_mut().expect("there").demands.clear()),
        (2, |s| s.candidates.clear()),
        (2, |s| s.candidates[0].clear()),
        (3, |s| s.candidates[0] = vec!["nowhere/at-all".into()]),
        (4, |s| s.placement = None),
        (4, |s| s.placement.as_mut().expect("there").cost_m += 1),
        (4, |s| s.placement.as_mut().expect("there").regions.clear()),
    ];
    for (number, (at, mutate)) in mutations.into_iter().enumerate() {
        let mut state = states[at].clone();
        mutate(&mut state);
        let refused = step(&state, &job.request, &regions, "a").expect_err("damaged");
        assert!(
            matches!(refused, JobError::Damaged(_) | JobError::Placement(_)),
            "mutation {number}: {refused}"
        );
    }
    let trails: [Mutation; 8] = [
        |s| s.step += 1,
        |s| s.takeovers += 1,
        |s| s.worker = None,
        |s| s.phase = Phase::Solving,
        |s| s.trail.swap(0, 1),
        |s| s.trail[0].worker.clear(),
        |s| s.trail[0].phase = Phase::Pending,
        |s| s.verdict = Some(Verdict::Placed),
    ];
    for (number, mutate) in trails.into_iter().enumerate() {
        let mut damaged = Job {
            state: states[4].clone(),
            request: job.request.clone(),
        };
        mutate(&mut damaged.state);
        let bytes = damaged.encode().expect("small");
        let refused = Job::decode(&bytes).expect_err("damaged");
        assert!(
            matches!(refused, JobError::Damaged(_)),
            "mutation {number}: {refused}"
        );
        assert!(replay(&damaged.state, &job.request, &regions).is_err());
    }
}

#[test]
fn foreign_bytes_are_not_a_job() {
    let regions = regions();
    let (mut job, states) = placed_job(&regions);
    job.state = states[3].clone();
    let bytes = job.encode().expect("small");
    for length in 0..bytes.len() {
        assert!(matches!(
            Job::decode(&bytes[..length]),
            Err(JobError::Malformed(_))
        ));
    }
    let long = vec![b' '; JOB_BYTES_MAX];
    assert_eq!(Job::decode(&long), Err(JobError::TooLarge(JOB_BYTES_MAX)));
    job.request.customer = "x".repeat(JOB_BYTES_MAX);
    assert!(matches!(job.encode(), Err(JobError::TooLarge(_))));
}
