//! The placement of a chain: exact branch and bound, and a checker that shares none of it.
//!
//! **Problem.** Choose a region for each function so that the hardware is there, the limits on
//! distance and bandwidth hold, functions that must be apart are, and the total distance (customer
//! to first function, then along the chain) is as small as possible.
//!
//! **Idea.** Without separation rules and shared capacities the problem is a shortest path through
//! layers of candidates, solved exactly from the back in `O(functions × regions²)`. Its length from
//! any point is a lower bound of the true rest, and mostly *is* the true rest. So a depth-first
//! search that tries the nearest completion first and cuts by that bound finds the optimum almost
//! without branching. It goes in phases, one per state of the job (see `job.rs`): [`translate`],
//! [`candidates`], [`narrow`], [`solve`].
//!
//! **Invariants.**
//! * S1 [`solve`] returns the cheapest placement; of equally cheap ones, the least by the list of
//!   region indices. The result depends on nothing else, not even on the order of the search.
//! * S2 The bound never exceeds the true cost, because the relaxed problem only drops rules.
//! * S3 [`verify`] reads the request itself, not the translated problem, and none of the search, so
//!   that a mistake in either shows.
//!
//! **Bound on the work.** At worst the search is exponential (regions to the power of functions),
//! when many cheap paths all break a rule. A test pins how little the shipped requests need.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::data::{Apart, Flavour, Position, Regions, Request, Scope};

/// The request in the solver's units: metres and Mbit/s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Problem {
    /// Where the customer is.
    pub(crate) customer: Position,
    /// Longest distance from the customer to the first function, in metres.
    pub(crate) first_max_m: u64,
    /// What each function takes.
    pub(crate) demands: Vec<Demand>,
    /// `limits[i]` lies between functions `i` and `i + 1`.
    pub(crate) limits: Vec<Limit>,
    /// Functions to keep apart.
    pub(crate) apart: Vec<Apart>,
}

/// What one function takes from its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Demand {
    /// The hardware.
    pub(crate) flavour: Flavour,
    /// The vCPUs of that hardware.
    pub(crate) vcpu: u32,
}

/// What the path between two consecutive functions must offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    /// Longest distance in metres.
    pub(crate) max_m: u64,
    /// Least bandwidth in Mbit/s.
    pub(crate) min_mbit: u64,
}

impl Limit {
    fn allows(self, regions: &Regions, from: usize, to: usize) -> bool {
        regions.metres(from, to) <= self.max_m && regions.mbit(from, to) >= self.min_mbit
    }
}

/// Why no placement exists. Functions are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Infeasible {
    /// No region has what this function needs (or, for function 0, none of those is near enough).
    NoRegion {
        /// The first such function.
        function: usize,
    },
    /// Each function has regions, but no path leads to this function within the limits.
    NoPath {
        /// The first function that cannot be reached.
        function: usize,
    },
    /// Paths exist, but each breaks a separation rule or a region's capacity.
    Conflict,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Infeasible::NoRegion { function } => {
                write!(f, "no region can host function {function}")
            }
            Infeasible::NoPath { function } => {
                write!(f, "no path within the limits leads to function {function}")
            }
            Infeasible::Conflict => {
                write!(
                    f,
                    "every path breaks a separation rule or a region's capacity"
                )
            }
        }
    }
}

/// Candidates that lie on a complete path, and the length of the shortest such path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Narrowed {
    /// Region indices per function, ascending, never empty.
    pub(crate) candidates: Vec<Vec<usize>>,
    /// Lower bound of the cost in metres.
    pub(crate) bound_m: u64,
}

/// The cheapest placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Solution {
    /// A region index per function.
    pub(crate) placement: Vec<usize>,
    /// Customer to first function and along the chain, in metres.
    pub(crate) cost_m: u64,
    /// Partial placements that the search looked at; a measure of its work.
    pub(crate) explored: u64,
}

/// Puts a valid request into the solver's units.
pub(crate) fn translate(request: &Request) -> Problem {
    let metres = |km: u32| u64::from(km) * 1_000;
    Problem {
        customer: request.position,
        first_max_m: metres(request.max_customer_km),
        demands: (request.chain.iter())
            .map(|function| Demand {
                flavour: function.flavour,
                vcpu: function.vcpu,
            })
            .collect(),
        limits: (request.links.iter())
            .map(|link| Limit {
                max_m: metres(link.max_km),
                min_mbit: u64::from(link.min_gbit) * 1_000,
            })
            .collect(),
        apart: request.apart.clone(),
    }
}

/// The regions that can host each function by itself: hardware, capacity, and for the first one the
/// distance to the customer. Ascending indices.
///
/// # Errors
/// [`Infeasible::NoRegion`] for the first function that has none.
pub(crate) fn candidates(
    problem: &Problem,
    regions: &Regions,
) -> Result<Vec<Vec<usize>>, Infeasible> {
    let fits = |function: usize, region: usize| {
        let demand = problem.demands[function];
        let near = function > 0 || first_leg_m(problem, regions, region) <= problem.first_max_m;
        near && regions.get(region).capacity_of(demand.flavour) >= demand.vcpu
    };
    (0..problem.demands.len())
        .map(|function| {
            let fitting: Vec<usize> = (0..regions.len()).filter(|&r| fits(function, r)).collect();
            if fitting.is_empty() {
                Err(Infeasible::NoRegion { function })
            } else {
                Ok(fitting)
            }
        })
        .collect()
}

/// Drops the candidates that lie on no complete path within the limits, and gives the length of the
/// shortest path. `candidates` must have a list per function.
///
/// # Errors
/// [`Infeasible::NoPath`] for the first function that cannot be reached.
pub(crate) fn narrow(
    problem: &Problem,
    regions: &Regions,
    candidates: &[Vec<usize>],
) -> Result<Narrowed, Infeasible> {
    let mut reached = vec![candidates[0].clone()];
    for (function, limit) in (1..candidates.len()).zip(&problem.limits) {
        let from = &reached[function - 1];
        let here: Vec<usize> = (candidates[function].iter().copied())
            .filter(|&to| from.iter().any(|&region| limit.allows(regions, region, to)))
            .collect();
        if here.is_empty() {
            return Err(Infeasible::NoPath { function });
        }
        reached.push(here);
    }
    let rests = rests(problem, regions, &reached);
    let narrowed = (reached.iter().zip(&rests))
        .map(|(here, rest)| {
            here.iter()
                .copied()
                .filter(|&r| rest[r].is_some())
                .collect()
        })
        .collect();
    let bound_m = (reached[0].iter())
        .filter_map(|&region| Some(first_leg_m(problem, regions, region) + rests[0][region]?))
        .min()
        .expect("the last function is reached, so a complete path exists");
    Ok(Narrowed {
        candidates: narrowed,
        bound_m,
    })
}

/// The cheapest placement among `candidates` (a list per function, as [`narrow`] gives them).
///
/// # Errors
/// [`Infeasible::Conflict`] when every path breaks a separation rule or a capacity.
pub(crate) fn solve(
    problem: &Problem,
    regions: &Regions,
    candidates: &[Vec<usize>],
) -> Result<Solution, Infeasible> {
    let rests = rests(problem, regions, candidates);
    let mut search = Search {
        problem,
        regions,
        candidates,
        rests,
        partial: Vec::new(),
        best: None,
        explored: 0,
    };
    search.descend(0);
    let explored = search.explored;
    let (cost_m, placement) = search.best.ok_or(Infeasible::Conflict)?;
    Ok(Solution {
        placement,
        cost_m,
        explored,
    })
}

/// Distance from the customer to a region, in metres.
fn first_leg_m(problem: &Problem, regions: &Regions, region: usize) -> u64 {
    problem.customer.metres_to(regions.get(region).position)
}

/// `rests[function][region]`: the shortest way from there to the chain's end within the limits, in
/// metres, separation rules and shared capacities left aside; `None` where there is no way.
fn rests(problem: &Problem, regions: &Regions, candidates: &[Vec<usize>]) -> Vec<Vec<Option<u64>>> {
    let mut rests = vec![vec![None; regions.len()]; candidates.len()];
    for function in (0..candidates.len()).rev() {
        for &from in &candidates[function] {
            rests[function][from] = match problem.limits.get(function) {
                None => Some(0),
                Some(limit) => (candidates[function + 1].iter())
                    .filter(|&&to| limit.allows(regions, from, to))
                    .filter_map(|&to| Some(regions.metres(from, to) + rests[function + 1][to]?))
                    .min(),
            };
        }
    }
    rests
}

/// The depth-first search for one problem.
struct Search<'a> {
    problem: &'a Problem,
    regions: &'a Regions,
    candidates: &'a [Vec<usize>],
    rests: Vec<Vec<Option<u64>>>,
    /// Regions of the functions placed so far; it keeps every rule among them.
    partial: Vec<usize>,
    /// The least complete placement so far, by cost and then by region indices.
    best: Option<(u64, Vec<usize>)>,
    explored: u64,
}

impl Search<'_> {
    /// Tries all regions for the next function; `cost` is that of `partial`, in metres.
    fn descend(&mut self, cost: u64) {
        let function = self.partial.len();
        if function == self.candidates.len() {
            self.best = Some((cost, self.partial.clone()));
            return;
        }
        // Nearest completion first, so that the first leaf is often the optimum.
        let mut choices: Vec<(u64, usize, u64)> = (self.candidates[function].iter())
            .filter_map(|&region| {
                let so_far = cost + self.leg_m(region)?;
                Some((so_far + self.rests[function][region]?, region, so_far))
            })
            .collect();
        choices.sort_unstable();
        for (bound, region, so_far) in choices {
            if self.best.as_ref().is_some_and(|(cost, _)| bound > *cost) {
                break; // and so are all later choices
            }
            self.explored += 1;
            self.partial.push(region);
            if self.may_improve(bound) && self.keeps_rules() {
                self.descend(so_far);
            }
            self.partial.pop();
        }
    }

    /// Length of the way to `region` from the last placed function, or from the customer, if the
    /// limits allow it.
    fn leg_m(&self, region: usize) -> Option<u64> {
        match self.partial.last() {
            None => Some(first_leg_m(self.problem, self.regions, region)),
            Some(&from) => self.problem.limits[self.partial.len() - 1]
                .allows(self.regions, from, region)
                .then(|| self.regions.metres(from, region)),
        }
    }

    /// Whether a completion of `partial` that costs at least `bound` can be less than the best in
    /// the order of S1. The search comes to each partial placement once, so `partial` is never the
    /// best's own beginning. A leaf that passes is less: its bound is its cost.
    fn may_improve(&self, bound: u64) -> bool {
        match &self.best {
            None => true,
            Some((cost, placement)) => {
                bound < *cost
                    || (bound == *cost && self.partial[..] < placement[..self.partial.len()])
            }
        }
    }

    /// Whether the last placed function keeps its separation rules and fits into its region beside
    /// the earlier ones.
    fn keeps_rules(&self) -> bool {
        let last = self.partial.len() - 1;
        let region = self.regions.get(self.partial[last]);
        let apart = (self.problem.apart.iter())
            .filter(|rule| rule.second == last)
            .all(|rule| {
                let other = self.partial[rule.first];
                match rule.scope {
                    Scope::Region => other != self.partial[last],
                    Scope::Provider => self.regions.get(other).provider != region.provider,
                }
            });
        let flavour = self.problem.demands[last].flavour;
        let taken: u64 = (self.partial.iter().zip(&self.problem.demands))
            .filter(|(at, demand)| **at == self.partial[last] && demand.flavour == flavour)
            .map(|(_, demand)| u64::from(demand.vcpu))
            .sum();
        apart && taken <= u64::from(region.capacity_of(flavour))
    }
}

/// The rule that a placement breaks. Functions are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Not one region per function.
    Length,
    /// A region index outside the table, at this function.
    UnknownRegion(usize),
    /// More vCPUs of one flavour than the region of this function offers to one request.
    Capacity(usize),
    /// The first function is too far from the customer.
    CustomerTooFar,
    /// The way from this function to the next is too long.
    TooFar(usize),
    /// The way from this function to the next is too narrow.
    TooNarrow(usize),
    /// These two functions share what they may not share.
    NotApart(usize, usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Length => write!(f, "there is not one region per function"),
            Violation::UnknownRegion(i) => write!(f, "function {i} is in no known region"),
            Violation::Capacity(i) => write!(f, "the region of function {i} offers too little"),
            Violation::CustomerTooFar => write!(f, "function 0 is too far from the customer"),
            Violation::TooFar(i) => write!(f, "functions {i} and {} are too far apart", i + 1),
            Violation::TooNarrow(i) => {
                write!(
                    f,
                    "the path between functions {i} and {} is too narrow",
                    i + 1
                )
            }
            Violation::NotApart(i, j) => write!(f, "functions {i} and {j} must be apart"),
        }
    }
}

/// Checks a placement against the request as the customer wrote it, and gives its cost in metres.
///
/// # Errors
/// The first rule that the placement breaks.
pub(crate) fn verify(
    request: &Request,
    regions: &Regions,
    placement: &[usize],
) -> Result<u64, Violation> {
    if placement.len() != request.chain.len() {
        return Err(Violation::Length);
    }
    if let Some(function) = placement.iter().position(|&region| region >= regions.len()) {
        return Err(Violation::UnknownRegion(function));
    }
    for (i, function) in request.chain.iter().enumerate() {
        let mut taken = 0;
        for (j, other) in request.chain.iter().enumerate() {
            if placement[j] == placement[i] && other.flavour == function.flavour {
                taken += u64::from(other.vcpu);
            }
        }
        if taken > u64::from(regions.get(placement[i]).capacity_of(function.flavour)) {
            return Err(Violation::Capacity(i));
        }
    }
    let mut cost_m = request
        .position
        .metres_to(regions.get(placement[0]).position);
    if cost_m > u64::from(request.max_customer_km) * 1_000 {
        return Err(Violation::CustomerTooFar);
    }
    for (i, link) in request.links.iter().enumerate() {
        let metres = regions.metres(placement[i], placement[i + 1]);
        if metres > u64::from(link.max_km) * 1_000 {
            return Err(Violation::TooFar(i));
        }
        if regions.mbit(placement[i], placement[i + 1]) < u64::from(link.min_gbit) * 1_000 {
            return Err(Violation::TooNarrow(i));
        }
        cost_m += metres;
    }
    for rule in &request.apart {
        let (a, b) = (placement[rule.first], placement[rule.second]);
        let one_provider = regions.get(a).provider == regions.get(b).provider;
        if a == b || (rule.scope == Scope::Provider && one_provider) {
            return Err(Violation::NotApart(rule.first, rule.second));
        }
    }
    Ok(cost_m)
}
