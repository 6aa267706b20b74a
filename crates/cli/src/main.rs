//! The `fermata` command line.

use std::process::ExitCode;

mod demo;

use demo::homing::data::{self, Regions};
use demo::homing::job::{self, Job, Phase, Verdict};

fn main() -> ExitCode {
    match rehearse() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Homes every shipped request in this process, without a cluster.
fn rehearse() -> Result<String, Box<dyn std::error::Error>> {
    let regions = Regions::shipped()?;
    let requests = data::shipped_requests()?;
    let jobs = requests.len();
    let mut placed = 0;
    for request in requests {
        let mut job = Job::submitted(request)?;
        while job.state.phase != Phase::Done {
            let next = job::step(&job.state, &job.request, &regions, "rehearsal")?;
            job::follows(&job.state, &next, &job.request, &regions)?;
            job.state = next;
            job = Job::decode(&job.encode()?)?;
        }
        job::replay(&job.state, &job.request, &regions)?;
        placed += usize::from(job.state.verdict == Some(Verdict::Placed));
    }
    let cities = regions
        .iter()
        .map(|region| &region.city)
        .collect::<std::collections::BTreeSet<_>>();
    let (all, cities) = (regions.len(), cities.len());
    Ok(format!(
        "{jobs} jobs done, {placed} placed, over {all} regions in {cities} cities"
    ))
}
