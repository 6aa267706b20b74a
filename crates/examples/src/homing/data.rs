//! Regions, requests, and the geometry between them.
//!
//! **Problem.** The input is real (cities, providers) and read from JSON that a user may replace,
//! so nothing in it can be trusted; and the solver must find the same optimum on every machine.
//!
//! **Idea.** Parsing checks every bound once, and the types keep what was checked. Coordinates are
//! held as whole ten-thousandths of a degree (about 11 m), distances as whole metres, bandwidths as
//! whole Mbit/s: after the one rounding of the haversine, all comparisons are between integers.
//!
//! **The bandwidth formula** is made up for the example, in the shape of real backbones (a
//! provider's own network is wider than the exchange between two, and long paths are dearer):
//! `B / (1 + d / 1000 km)`, with `B` = 100 Gbit/s inside one provider and 40 Gbit/s between two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// The regions that the example ships with; `data/README.md` says what in it is public fact.
pub(crate) const REGIONS_JSON: &str = include_str!("../../data/regions.json");

/// The requests that the example ships with, as the seeded generator wrote them.
pub(crate) const REQUESTS_JSON: &str = include_str!("../../data/homing-requests.json");

/// Most functions in one chain. With [`REGIONS_MAX`] it bounds the search and the job's value.
pub(crate) const CHAIN_MAX: usize = 6;

/// Most regions in one table.
pub(crate) const REGIONS_MAX: usize = 48;

/// Most bytes in a name: job, worker, provider and region together, function.
pub(crate) const NAME_BYTES_MAX: usize = 48;

/// Most vCPUs that one function may ask for or one region may offer.
const VCPU_MAX: u32 = 4096;

/// No two places on Earth are farther apart than this, in km; a longer limit is a typing error.
const KM_MAX: u32 = 20_100;

/// Mean radius of the Earth in metres (IUGG), the sphere of the haversine.
const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// Bandwidth at distance 0 inside one provider and between two, in Mbit/s.
const PROVIDER_MBIT: u64 = 100_000;
const EXCHANGE_MBIT: u64 = 40_000;

/// The distance at which half of the bandwidth is left, in metres.
const HALF_BANDWIDTH_M: u64 = 1_000_000;

/// Why an input was refused: one sentence that names the place in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataError(String);

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DataError {}

/// Refuses with `message()` unless `holds`.
fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), DataError> {
    if holds {
        Ok(())
    } else {
        Err(DataError(message()))
    }
}

/// A name that people and logs can show: 1 to [`NAME_BYTES_MAX`] visible ASCII characters.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// A place on Earth, held in whole ten-thousandths of a degree and written in degrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Degrees", into = "Degrees")]
pub(crate) struct Position {
    /// Degrees north × 10,000; −900,000 to 900,000.
    latitude_e4: i32,
    /// Degrees east × 10,000; −1,800,000 to 1,800,000.
    longitude_e4: i32,
}

/// How a [`Position`] stands in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Degrees {
    latitude: f64,
    longitude: f64,
}

impl TryFrom<Degrees> for Position {
    type Error = DataError;

    fn try_from(degrees: Degrees) -> Result<Self, DataError> {
        // A range test also refuses NaN, so the casts below are exact.
        let known = (-90.0..=90.0).contains(&degrees.latitude)
            && (-180.0..=180.0).contains(&degrees.longitude);
        require(known, || {
            format!(
                "no place on Earth: {} north, {} east",
                degrees.latitude, degrees.longitude
            )
        })?;
        Ok(Position {
            latitude_e4: (degrees.latitude * 10_000.0).round() as i32,
            longitude_e4: (degrees.longitude * 10_000.0).round() as i32,
        })
    }
}

impl From<Position> for Degrees {
    fn from(position: Position) -> Self {
        Degrees {
            latitude: f64::from(position.latitude_e4) / 10_000.0,
            longitude: f64::from(position.longitude_e4) / 10_000.0,
        }
    }
}

impl Position {
    /// The place `latitude_e4`/10,000 degrees north and `longitude_e4`/10,000 degrees east.
    #[cfg(test)]
    pub(crate) fn from_e4(latitude_e4: i32, longitude_e4: i32) -> Self {
        assert!(latitude_e4.abs() <= 900_000 && longitude_e4.abs() <= 1_800_000);
        Position {
            latitude_e4,
            longitude_e4,
        }
    }

    /// Latitude and longitude in radians.
    pub(crate) fn radians(self) -> (f64, f64) {
        let degrees = Degrees::from(self);
        (
            degrees.latitude.to_radians(),
            degrees.longitude.to_radians(),
        )
    }

    /// Great-circle distance to `other` by the haversine, rounded to whole metres.
    pub(crate) fn metres_to(self, other: Position) -> u64 {
        let (lat_a, lon_a) = self.radians();
        let (lat_b, lon_b) = other.radians();
        let half = |angle: f64| (angle / 2.0).sin().powi(2);
        let h = half(lat_b - lat_a) + lat_a.cos() * lat_b.cos() * half(lon_b - lon_a);
        // Rounding can push h above 1 for opposite points, where asin would be NaN.
        (2.0 * EARTH_RADIUS_M * h.min(1.0).sqrt().asin()).round() as u64
    }
}

/// A kind of hardware that a network function needs and a region may offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Flavour {
    /// Plain virtual machines.
    General,
    /// Network cards shared in hardware (single-root I/O virtualisation).
    Sriov,
    /// Cores that poll the network card from user space.
    Dpdk,
    /// Accelerators.
    Gpu,
}

/// One public cloud region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Region {
    /// The provider's short name, such as `aws`.
    pub(crate) provider: String,
    /// The provider's code of the region, such as `us-east-1`.
    pub(crate) code: String,
    /// Where the provider says that the region is.
    pub(crate) documented: String,
    /// The city whose coordinates stand for the region.
    pub(crate) city: String,
    /// That city's coordinates.
    pub(crate) position: Position,
    /// The vCPUs that one request may take here, per flavour; an absent flavour is not offered.
    pub(crate) capacity: BTreeMap<Flavour, u32>,
}

impl Region {
    /// The region's name in jobs: `provider/code`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.provider, self.code)
    }

    /// The vCPUs of `flavour` that one request may take here; 0 where it is not offered.
    pub(crate) fn capacity_of(&self, flavour: Flavour) -> u32 {
        self.capacity.get(&flavour).copied().unwrap_or(0)
    }
}

/// The table of regions with the distances between them. A region's index in the table is its rank
/// when two placements cost the same.
#[derive(Clone, Debug)]
pub(crate) struct Regions {
    list: Vec<Region>,
    /// `metres[a * list.len() + b]`: symmetric, 0 on the diagonal.
    metres: Vec<u64>,
}

impl Regions {
    /// The regions that the example ships with.
    ///
    /// # Errors
    /// As [`Regions::parse`].
    pub(crate) fn shipped() -> Result<Regions, DataError> {
        Regions::parse(REGIONS_JSON)
    }

    /// Reads a table of 1 to [`REGIONS_MAX`] regions from a JSON array.
    ///
    /// # Errors
    /// Malformed JSON, a name or capacity out of bounds, two regions of one name.
    pub(crate) fn parse(json: &str) -> Result<Regions, DataError> {
        let list: Vec<Region> = serde_json::from_str(json)
            .map_err(|error| DataError(format!("the table of regions cannot be read: {error}")))?;
        require((1..=REGIONS_MAX).contains(&list.len()), || {
            format!(
                "the table has {} regions; it may have 1 to {REGIONS_MAX}",
                list.len()
            )
        })?;
        let mut seen = BTreeSet::new();
        for region in &list {
            let id = region.id();
            require(is_name(&id) && !region.provider.contains('/'), || {
                format!("region {id:?}: a name is 1 to {NAME_BYTES_MAX} visible ASCII characters")
            })?;
            require(
                region.capacity.values().all(|&vcpu| vcpu <= VCPU_MAX),
                || format!("region {id}: a capacity is above {VCPU_MAX} vCPUs"),
            )?;
            require(seen.insert(id.clone()), || {
                format!("region {id} stands twice in the table")
            })?;
        }
        let metres = list
            .iter()
            .flat_map(|a| list.iter().map(|b| a.position.metres_to(b.position)))
            .collect();
        Ok(Regions { list, metres })
    }

    /// Number of regions; at least 1.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// All regions, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.list.iter()
    }

    /// The region with this index, which must be below [`Regions::len`].
    pub(crate) fn get(&self, index: usize) -> &Region {
        &self.list[index]
    }

    /// The index of the region named `provider/code`.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        let (provider, code) = id.split_once('/')?;
        self.list
            .iter()
            .position(|region| region.provider == provider && region.code == code)
    }

    /// Great-circle distance between two regions in metres.
    pub(crate) fn metres(&self, a: usize, b: usize) -> u64 {
        self.metres[a * self.list.len() + b]
    }

    /// Bandwidth between two regions in Mbit/s, by the formula at the head of this file.
    pub(crate) fn mbit(&self, a: usize, b: usize) -> u64 {
        let own_network = self.list[a].provider == self.list[b].provider;
        let near = if own_network {
            PROVIDER_MBIT
        } else {
            EXCHANGE_MBIT
        };
        near * HALF_BANDWIDTH_M / (HALF_BANDWIDTH_M + self.metres(a, b))
    }
}

/// One virtual network function of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Function {
    /// What it does: vFW, vDNS, vCPE, vLB, vIMS, vEPC …
    pub(crate) name: String,
    /// The hardware it needs.
    pub(crate) flavour: Flavour,
    /// The vCPUs it needs of that hardware; at least 1.
    pub(crate) vcpu: u32,
}

/// What the path between two consecutive functions must offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    /// Longest distance in km.
    pub(crate) max_km: u32,
    /// Least bandwidth in Gbit/s.
    pub(crate) min_gbit: u32,
}

/// What two functions may not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Not in one region.
    Region,
    /// Not with one provider.
    Provider,
}

/// An anti-affinity rule: functions `first` and `second` of the chain are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Apart {
    /// Index of the earlier function in the chain.
    pub(crate) first: usize,
    /// Index of the later function; above `first`.
    pub(crate) second: usize,
    /// What they may not share.
    pub(crate) scope: Scope,
}

/// One homing request: the job description of MUSIC §VII(a).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The job's identifier, which is also (part of) its key.
    pub(crate) job: String,
    /// The city the customer is near.
    pub(crate) customer: String,
    /// Where the customer is.
    pub(crate) position: Position,
    /// Longest distance from the customer to the first function, in km.
    pub(crate) max_customer_km: u32,
    /// The functions, in the order in which traffic passes them; 1 to [`CHAIN_MAX`].
    pub(crate) chain: Vec<Function>,
    /// `links[i]` joins functions `i` and `i + 1`.
    pub(crate) links: Vec<Link>,
    /// Functions to keep apart.
    pub(crate) apart: Vec<Apart>,
}

impl Request {
    /// Checks what JSON cannot say: lengths, ranges and references inside the request.
    ///
    /// # Errors
    /// The first rule that the request breaks.
    pub(crate) fn validate(&self) -> Result<(), DataError> {
        require(is_name(&self.job), || {
            format!(
                "job {:?}: a name is 1 to {NAME_BYTES_MAX} visible ASCII characters",
                self.job
            )
        })?;
        let job = &self.job;
        require(self.customer.len() <= NAME_BYTES_MAX, || {
            format!("job {job}: the customer's city has more than {NAME_BYTES_MAX} bytes")
        })?;
        let functions = self.chain.len();
        require((1..=CHAIN_MAX).contains(&functions), || {
            format!("job {job}: the chain has {functions} functions; it may have 1 to {CHAIN_MAX}")
        })?;
        require(self.links.len() + 1 == functions, || {
            format!(
                "job {job}: {functions} functions need {} links",
                functions - 1
            )
        })?;
        let named = |f: &Function| is_name(&f.name) && (1..=VCPU_MAX).contains(&f.vcpu);
        require(self.chain.iter().all(named), || {
            format!("job {job}: a function needs a name and 1 to {VCPU_MAX} vCPUs")
        })?;
        let short = |km: u32| km <= KM_MAX;
        require(
            short(self.max_customer_km) && self.links.iter().all(|l| short(l.max_km)),
            || format!("job {job}: a distance is above {KM_MAX} km, half the Earth's girth"),
        )?;
        // Every pair in both scopes is the most that can be said without repetition.
        require(self.apart.len() <= functions * (functions - 1), || {
            format!("job {job}: rules to keep functions apart repeat themselves")
        })?;
        require(
            self.apart
                .iter()
                .all(|a| a.first < a.second && a.second < functions),
            || {
                format!(
                    "job {job}: a rule keeps apart functions that are not first < second in chain"
                )
            },
        )
    }
}

/// The requests that the example ships with, in the order of submission.
///
/// # Errors
/// As [`parse_requests`].
pub(crate) fn shipped_requests() -> Result<Vec<Request>, DataError> {
    parse_requests(REQUESTS_JSON)
}

/// Reads requests from a JSON array, in the order of submission.
///
/// # Errors
/// Malformed JSON, a request that [`Request::validate`] refuses, two requests of one job name.
pub(crate) fn parse_requests(json: &str) -> Result<Vec<Request>, DataError> {
    let requests: Vec<Request> = serde_json::from_str(json)
        .map_err(|error| DataError(format!("the requests cannot be read: {error}")))?;
    let mut seen = BTreeSet::new();
    for request in &requests {
        request.validate()?;
        require(seen.insert(request.job.as_str()), || {
            format!("job {} stands twice among the requests", request.job)
        })?;
    }
    Ok(requests)
}
