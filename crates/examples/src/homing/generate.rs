//! The seeded generator of `data/homing-requests.json`.
//!
//! **Problem.** The example wants hundreds of requests that look like real ones, most of which can
//! be met, in a file that anybody can check. **Idea.** A small xorshift generator with a fixed seed
//! draws them; a test demands that the file is its output byte for byte, so that the file can be
//! neither edited by hand nor left behind by a change here. It lives in the tests because the
//! program reads the file. `FERMATA_REGENERATE=1 cargo test -p fermata the_file_of_requests`
//! writes it anew.

use super::data::{
    self, Apart, CHAIN_MAX, Flavour, Function, Link, Position, Regions, Request, Scope,
};
use super::job::{self, Job, Phase, Verdict};

/// How many requests the file has.
const REQUESTS: usize = 256;

/// Any odd number would do; changing it changes the file.
const SEED: u64 = 0x4d55_5349_4356_4e46;

/// Marsaglia's xorshift64 with a final multiplication (xorshift64*).
struct Xorshift(u64);

impl Xorshift {
    /// A number below `bound`, which must not be 0. The bias of the remainder does not matter here.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }

    /// `low`, `low + by`, … up to `high`.
    fn stepped(&mut self, low: u32, high: u32, by: u32) -> u32 {
        low + by * self.below(u64::from((high - low) / by + 1)) as u32
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Real cities with customers: name, latitude and longitude in ten-thousandths of a degree.
const CITIES: [(&str, i32, i32); 40] = [
    ("New York", 40_7128, -74_0060),
    ("Boston", 42_3601, -71_0589),
    ("Philadelphia", 39_9526, -75_1652),
    ("Atlanta", 33_7490, -84_3880),
    ("Miami", 25_7617, -80_1918),
    ("Pittsburgh", 40_4406, -79_9959),
    ("Detroit", 42_3314, -83_0458),
    ("Nashville", 36_1627, -86_7816),
    ("Kansas City", 39_0997, -94_5786),
    ("Minneapolis", 44_9778, -93_2650),
    ("Houston", 29_7604, -95_3698),
    ("Denver", 39_7392, -104_9903),
    ("San Diego", 32_7157, -117_1611),
    ("Seattle", 47_6062, -122_3321),
    ("San Francisco", 37_7749, -122_4194),
    ("Ottawa", 45_4215, -75_6972),
    ("Vancouver", 49_2827, -123_1207),
    ("Rio de Janeiro", -22_9068, -43_1729),
    ("Buenos Aires", -34_6037, -58_3816),
    ("Manchester", 53_4808, -2_2426),
    ("Edinburgh", 55_9533, -3_1883),
    ("Lisbon", 38_7223, -9_1393),
    ("Barcelona", 41_3851, 2_1734),
    ("Lyon", 45_7640, 4_8357),
    ("Brussels", 50_8503, 4_3517),
    ("Hamburg", 53_5511, 9_9937),
    ("Berlin", 52_5200, 13_4050),
    ("Munich", 48_1351, 11_5820),
    ("Vienna", 48_2082, 16_3738),
    ("Rome", 41_9028, 12_4964),
    ("Warsaw", 52_2297, 21_0122),
    ("Copenhagen", 55_6761, 12_5683),
    ("Oslo", 59_9139, 10_7522),
    ("Delhi", 28_7041, 77_1025),
    ("Bengaluru", 12_9716, 77_5946),
    ("Jakarta", -6_2088, 106_8456),
    ("Manila", 14_5995, 120_9842),
    ("Nagoya", 35_1815, 136_9066),
    ("Melbourne", -37_8136, 144_9631),
    ("Durban", -29_8587, 31_0218),
];

/// Cities so far from every region that a short limit cannot be met.
const REMOTE: [(&str, i32, i32); 4] = [
    ("Honolulu", 21_3069, -157_8583),
    ("Anchorage", 61_2181, -149_9003),
    ("Perth", -31_9505, 115_8605),
    ("Nairobi", -1_2921, 36_8219),
];

/// The functions and the hardware that such a function commonly asks for.
const FUNCTIONS: [(&str, &[Flavour]); 9] = [
    ("vFW", &[Flavour::Sriov, Flavour::Dpdk, Flavour::General]),
    ("vDNS", &[Flavour::General]),
    ("vCPE", &[Flavour::General, Flavour::Sriov]),
    ("vLB", &[Flavour::Dpdk, Flavour::Sriov]),
    ("vIMS", &[Flavour::General]),
    ("vEPC", &[Flavour::Dpdk, Flavour::Sriov]),
    ("vDPI", &[Flavour::Dpdk, Flavour::Gpu]),
    ("vCDN", &[Flavour::General, Flavour::Gpu]),
    ("vNAT", &[Flavour::General, Flavour::Sriov]),
];

/// Request number `number` of the file.
fn request(number: usize, rng: &mut Xorshift) -> Request {
    // One request in eighteen comes from a place that no region is near.
    let remote = rng.one_in(18);
    let &(city, latitude, longitude) = rng.pick(if remote { &REMOTE[..] } else { &CITIES[..] });
    let jitter = |rng: &mut Xorshift| rng.below(10_001) as i32 - 5_000;
    let position = Position::from_e4(latitude + jitter(rng), longitude + jitter(rng));
    let max_customer_km = rng.stepped(800, 2_400, 100);
    let functions = 2 + rng.below(CHAIN_MAX as u64 - 1) as usize;
    let chain: Vec<Function> = (0..functions)
        .map(|_| {
            let &(name, flavours) = rng.pick(&FUNCTIONS);
            let flavour = *rng.pick(flavours);
            // Accelerators are scarce, and asked for a few at a time.
            let vcpu = rng.stepped(2, if flavour == Flavour::Gpu { 8 } else { 24 }, 2);
            Function {
                name: name.to_owned(),
                flavour,
                vcpu,
            }
        })
        .collect();
    let mut links: Vec<Link> = (1..functions)
        .map(|_| Link {
            max_km: rng.stepped(600, 4_000, 100),
            min_gbit: rng.stepped(1, 15, 1),
        })
        .collect();
    let mut apart = Vec::new();
    for _ in 0..rng.below(4) {
        let first = rng.below(functions as u64 - 1) as usize;
        let second = first + 1 + rng.below((functions - first - 1) as u64) as usize;
        let scope = if rng.one_in(3) {
            Scope::Provider
        } else {
            Scope::Region
        };
        let rule = Apart {
            first,
            second,
            scope,
        };
        if !apart.contains(&rule) {
            apart.push(rule);
        }
    }
    if rng.one_in(18) {
        // Wider than any exchange between two providers, and yet with two providers.
        links[0].min_gbit = 60;
        apart = vec![Apart {
            first: 0,
            second: 1,
            scope: Scope::Provider,
        }];
    } else if rng.one_in(18) {
        // More bandwidth than one provider has from end to end.
        links[functions - 2].min_gbit = 120;
    }
    Request {
        job: format!("homing-{:04}", number + 1),
        customer: city.to_owned(),
        position,
        max_customer_km: if remote {
            max_customer_km / 4
        } else {
            max_customer_km
        },
        chain,
        links,
        apart,
    }
}

/// The whole file: a JSON array with one request per line.
fn file() -> String {
    let mut rng = Xorshift(SEED);
    let lines: Vec<String> = (0..REQUESTS)
        .map(|number| {
            serde_json::to_string(&request(number, &mut rng)).expect("plain data becomes JSON")
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[test]
fn the_file_of_requests_is_what_the_generator_writes() {
    let written = file();
    if std::env::var_os("FERMATA_REGENERATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/homing-requests.json");
        std::fs::write(path, &written).expect("the file of requests can be written");
        return;
    }
    assert!(
        written == data::REQUESTS_JSON,
        "data/homing-requests.json is not what the generator writes; run the test with \
         FERMATA_REGENERATE=1 to write it anew"
    );
}

#[test]
fn the_requests_are_many_valid_and_mostly_solvable() {
    let regions = Regions::shipped().expect("the shipped regions are valid");
    let requests = data::shipped_requests().expect("the shipped requests are valid");
    assert!(regions.len() >= 24, "{} regions", regions.len());
    assert!(requests.len() >= 240, "{} requests", requests.len());
    let mut reasons = std::collections::BTreeMap::new();
    for request in &requests {
        let mut job = Job::submitted(request.clone()).expect("a valid request");
        while job.state.phase != Phase::Done {
            job.state = job::step(&job.state, &job.request, &regions, "w").expect("a legal step");
        }
        let Some(verdict) = job.state.verdict else {
            panic!("{} has no verdict", request.job)
        };
        let name = match verdict {
            Verdict::Placed => "placed".to_owned(),
            Verdict::Infeasible { reason } => {
                let shown = format!("{reason:?}");
                shown
                    .split(' ')
                    .next()
                    .expect("split gives one part at least")
                    .to_owned()
            }
        };
        *reasons.entry(name).or_insert(0) += 1;
    }
    let placed = reasons["placed"];
    assert!(
        placed * 100 >= requests.len() * 70,
        "mostly solvable: {reasons:?}"
    );
    assert!(
        placed * 100 <= requests.len() * 95,
        "some unsolvable: {reasons:?}"
    );
    assert_eq!(reasons.len(), 4, "every reason occurs: {reasons:?}");
}
