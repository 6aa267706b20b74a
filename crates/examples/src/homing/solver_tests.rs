//! The solver against brute force, against its checker, and against the atlas.

use super::data::{
    self, Apart, Flavour, Function, Link, Position, Regions, Request, Scope, shipped_requests,
};
use super::solver::{self, Infeasible, Solution, Violation};

/// Makes another request of a good one.
type Mutation = fn(&mut Request);

fn regions() -> Regions {
    Regions::shipped().expect("the shipped regions are valid")
}

/// All phases of the search in a row.
fn home(request: &Request, regions: &Regions) -> Result<Solution, Infeasible> {
    let problem = solver::translate(request);
    let candidates = solver::candidates(&problem, regions)?;
    let narrowed = solver::narrow(&problem, regions, &candidates)?;
    let solution = solver::solve(&problem, regions, &narrowed.candidates)?;
    assert!(
        narrowed.bound_m <= solution.cost_m,
        "S2: the bound is a lower bound"
    );
    Ok(solution)
}

/// The least verified placement by cost and indices, found by trying all of them.
fn brute_force(request: &Request, regions: &Regions) -> Option<(u64, Vec<usize>)> {
    let total = regions
        .len()
        .pow(u32::try_from(request.chain.len()).expect("a short chain"));
    (0..total)
        .filter_map(|mut number| {
            let placement: Vec<usize> = (request.chain.iter())
                .map(|_| {
                    let digit = number % regions.len();
                    number /= regions.len();
                    digit
                })
                .collect();
            Some((
                solver::verify(request, regions, &placement).ok()?,
                placement,
            ))
        })
        .min()
}

/// A table of the shipped regions with these names.
fn some_regions(ids: &[&str]) -> Regions {
    let all = regions();
    let picked: Vec<_> = all
        .iter()
        .filter(|r| ids.contains(&r.id().as_str()))
        .collect();
    assert_eq!(picked.len(), ids.len());
    Regions::parse(&serde_json::to_string(&picked).expect("plain data")).expect("a valid table")
}

/// A request for two general functions near Columbus, Ohio, with wide limits.
fn plain_request() -> Request {
    let function = |name: &str| Function {
        name: name.into(),
        flavour: Flavour::General,
        vcpu: 8,
    };
    Request {
        job: "plain".into(),
        customer: "Columbus".into(),
        position: Position::from_e4(399_612, -829_988),
        max_customer_km: 1_000,
        chain: vec![function("vFW"), function("vDNS")],
        links: vec![Link {
            max_km: 2_000,
            min_gbit: 1,
        }],
        apart: vec![],
    }
}

fn apart(first: usize, second: usize, scope: Scope) -> Apart {
    Apart {
        first,
        second,
        scope,
    }
}

#[test]
fn distances_are_those_of_the_atlas() {
    let regions = regions();
    let km = |a: &str, b: &str| {
        let index = |id| regions.find(id).expect("a shipped region");
        regions.metres(index(a), index(b)) / 1_000
    };
    // Published city distances, to within 2 %: the sphere against the ellipsoid, and which point of
    // a large city is meant.
    for (a, b, atlas) in [
        ("aws/eu-west-2", "azure/francecentral", 344),
        ("aws/ap-northeast-1", "gcp/asia-northeast2", 397),
        ("aws/eu-central-1", "aws/ap-southeast-1", 10_266),
        ("aws/ap-southeast-2", "gcp/southamerica-west1", 11_340),
        ("aws/eu-central-1", "gcp/europe-west3", 0),
    ] {
        let found = km(a, b);
        assert!(
            found.abs_diff(atlas) <= atlas / 50,
            "{a} to {b}: {found} km, not {atlas}"
        );
    }
}

#[test]
fn the_haversine_agrees_with_the_angle_between_vectors() {
    let regions = regions();
    let vector = |position: Position| {
        let (lat, lon) = position.radians();
        [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
    };
    for a in 0..regions.len() {
        for b in 0..regions.len() {
            let (u, v) = (
                vector(regions.get(a).position),
                vector(regions.get(b).position),
            );
            let chord: f64 = u
                .iter()
                .zip(v)
                .map(|(x, y)| (x - y).powi(2))
                .sum::<f64>()
                .sqrt();
            let metres = 2.0 * 6_371_008.8 * (chord / 2.0).min(1.0).asin();
            let gap = (metres - regions.metres(a, b) as f64).abs();
            assert!(
                gap < 1.0,
                "{a} to {b}: {metres} against {}",
                regions.metres(a, b)
            );
            assert_eq!(regions.metres(a, b), regions.metres(b, a));
        }
    }
}

#[test]
fn bandwidth_halves_at_a_thousand_kilometres_and_is_narrower_between_providers() {
    let regions = some_regions(&["aws/us-east-2", "aws/eu-central-1", "gcp/europe-west3"]);
    assert_eq!(regions.mbit(0, 0), 100_000);
    assert_eq!(regions.mbit(1, 2), 40_000, "one city, two providers");
    let km = regions.metres(0, 1) as f64 / 1e6;
    let expected = 100_000.0 / (1.0 + km);
    assert!((regions.mbit(0, 1) as f64 - expected).abs() < 1.0);
}

#[test]
fn small_instances_equal_brute_force() {
    // Nine regions with three shared cities, so that costs tie and S1's order matters.
    let regions = some_regions(&[
        "aws/us-east-1",
        "aws/eu-west-1",
        "aws/eu-west-2",
        "aws/eu-central-1",
        "gcp/europe-west3",
        "gcp/europe-west4",
        "azure/northeurope",
        "azure/westeurope",
        "azure/uksouth",
    ]);
    let variants: [Mutation; 3] = [
        |_| (),
        |request| request.links.iter_mut().for_each(|link| link.max_km /= 4),
        |request| {
            request
                .chain
                .iter_mut()
                .for_each(|function| function.vcpu *= 5)
        },
    ];
    let (mut placed, mut refused) = (0, 0);
    let mut requests = shipped_requests().expect("the shipped requests are valid");
    requests.retain(|request| request.chain.len() <= 4);
    for (number, shipped) in (0i32..).zip(&requests) {
        for vary in variants {
            let mut request = shipped.clone();
            vary(&mut request);
            // All customers move to Europe, where most of the nine are, each to another place.
            request.position = Position::from_e4(480_000 + number * 300, number * 500);
            match (home(&request, &regions), brute_force(&request, &regions)) {
                (Ok(solution), Some((cost, placement))) => {
                    assert_eq!((solution.cost_m, solution.placement), (cost, placement));
                    placed += 1;
                }
                (Err(_), None) => refused += 1,
                (found, brute) => panic!("{}: {found:?} against {brute:?}", request.job),
            }
        }
    }
    assert!(
        placed >= 200 && refused >= 50,
        "{placed} placed, {refused} refused"
    );
}

#[test]
fn every_shipped_request_is_verified_and_needs_little_search() {
    let regions = regions();
    let mut most = 0;
    for request in &shipped_requests().expect("valid") {
        let Ok(solution) = home(request, &regions) else {
            continue;
        };
        assert_eq!(
            solver::verify(request, &regions, &solution.placement),
            Ok(solution.cost_m)
        );
        most = most.max(solution.explored);
    }
    assert!(most <= 200, "a search looked at {most} partial placements");
}

#[test]
fn without_rules_everything_lands_in_the_nearest_region() {
    let regions = regions();
    let solution = home(&plain_request(), &regions).expect("solvable");
    let ohio = regions.find("aws/us-east-2").expect("shipped");
    assert_eq!((solution.placement, solution.cost_m), (vec![ohio, ohio], 0));
}

#[test]
fn separated_functions_go_to_the_next_region_or_provider() {
    let regions = some_regions(&["aws/us-east-1", "aws/us-east-2", "gcp/us-central1"]);
    let mut request = plain_request();
    request.apart = vec![apart(0, 1, Scope::Region)];
    assert_eq!(
        home(&request, &regions).expect("solvable").placement,
        [1, 0]
    );
    request.apart = vec![apart(0, 1, Scope::Provider)];
    assert_eq!(
        home(&request, &regions).expect("solvable").placement,
        [1, 2]
    );
}

#[test]
fn functions_share_the_capacity_of_a_region() {
    let regions = some_regions(&["aws/us-east-2", "aws/ca-central-1"]);
    let mut request = plain_request();
    request.chain[0].vcpu = 100;
    request.chain[1].vcpu = 93; // Ohio offers 192.
    let solution = home(&request, &regions).expect("solvable");
    assert_ne!(solution.placement[0], solution.placement[1]);
    request.chain[1].vcpu = 92;
    assert_eq!(
        home(&request, &regions).expect("solvable").placement,
        [0, 0]
    );
}

#[test]
fn each_reason_for_refusal_is_named() {
    let regions = regions();
    let mut request = plain_request();
    request.chain[1].vcpu = 300;
    assert_eq!(
        home(&request, &regions),
        Err(Infeasible::NoRegion { function: 1 })
    );
    let mut request = plain_request();
    request.links[0].min_gbit = 101;
    assert_eq!(
        home(&request, &regions),
        Err(Infeasible::NoPath { function: 1 })
    );
    let mut request = plain_request();
    request.links[0].min_gbit = 41;
    request.apart = vec![apart(0, 1, Scope::Provider)];
    assert_eq!(home(&request, &regions), Err(Infeasible::Conflict));
}

#[test]
fn the_checker_names_each_broken_rule() {
    let regions = some_regions(&[
        "aws/us-east-1",
        "aws/us-east-2",
        "aws/eu-central-1",
        "gcp/us-central1",
    ]);
    let request = plain_request();
    let verify = |request: &Request, placement: &[usize]| {
        solver::verify(request, &regions, placement).expect_err("a broken rule")
    };
    assert_eq!(verify(&request, &[1]), Violation::Length);
    assert_eq!(verify(&request, &[1, 4]), Violation::UnknownRegion(1));
    assert_eq!(verify(&request, &[2, 2]), Violation::CustomerTooFar);
    assert_eq!(verify(&request, &[1, 2]), Violation::TooFar(0));
    let mut narrow = request.clone();
    narrow.links[0].min_gbit = 90;
    assert_eq!(verify(&narrow, &[1, 0]), Violation::TooNarrow(0));
    let mut large = request.clone();
    large.chain[1].vcpu = 200;
    assert_eq!(verify(&large, &[0, 1]), Violation::Capacity(1));
    let mut rules = request.clone();
    rules.apart = vec![apart(0, 1, Scope::Region)];
    assert_eq!(verify(&rules, &[1, 1]), Violation::NotApart(0, 1));
    rules.apart = vec![apart(0, 1, Scope::Provider)];
    assert_eq!(verify(&rules, &[1, 0]), Violation::NotApart(0, 1));
    assert!(solver::verify(&rules, &regions, &[1, 3]).is_ok());
}

#[test]
fn bad_tables_and_requests_are_refused_in_one_sentence() {
    let refusal = |json: &str| Regions::parse(json).expect_err("refused").to_string();
    assert!(refusal("[]").contains("0 regions"));
    assert!(refusal("{").contains("cannot be read"));
    let line = data::REGIONS_JSON
        .lines()
        .nth(1)
        .expect("a region")
        .trim_end_matches(',');
    assert!(refusal(&format!("[{line},{line}]")).contains("twice"));
    assert!(refusal(&format!("[{}]", line.replace("39.0438", "139"))).contains("no place"));

    let mutations: [(&str, Mutation); 8] = [
        ("visible ASCII", |r| r.job = "a b".into()),
        ("0 functions", |r| r.chain.clear()),
        ("links", |r| r.links.clear()),
        ("vCPUs", |r| r.chain[0].vcpu = 0),
        ("km", |r| r.max_customer_km = 30_000),
        ("first < second", |r| {
            r.apart = vec![apart(1, 1, Scope::Region)]
        }),
        ("first < second", |r| {
            r.apart = vec![apart(0, 2, Scope::Region)]
        }),
        ("repeat", |r| r.apart = vec![apart(0, 1, Scope::Region); 3]),
    ];
    for (part, mutate) in mutations {
        let mut request = plain_request();
        mutate(&mut request);
        let refusal = request.validate().expect_err("refused").to_string();
        assert!(refusal.contains(part), "{refusal}");
    }
    let twice = serde_json::to_string(&[plain_request(), plain_request()]).expect("plain data");
    assert!(
        data::parse_requests(&twice)
            .expect_err("refused")
            .to_string()
            .contains("twice")
    );
}
