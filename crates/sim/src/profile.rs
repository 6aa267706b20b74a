//! Latency profiles: where sites are and how far apart (MUSIC Table II).

/// Sites and the round-trip times between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the command line calls it.
    pub name: &'static str,
    /// What people call the sites, by number from 0.
    pub sites: &'static [&'static str],
    /// Round trips of the pairs (1, 2), (1, 3), (2, 3), in microseconds.
    rtt: [u64; 3],
}

/// Round trip within one site, in microseconds, in the benchmarks; faults draw their own.
const SAME_SITE_RTT: u64 = 200;

/// All profiles, in the paper's order.
pub const ALL: [Profile; 3] = [
    Profile {
        name: "l1",
        sites: &["Ohio-1", "Ohio-2", "N. Virginia"],
        rtt: [200, 15_140, 15_140],
    },
    Profile {
        name: "lUs",
        sites: &["Ohio", "N. California", "Oregon"],
        rtt: [53_790, 72_140, 24_200],
    },
    Profile {
        name: "lUsEu",
        sites: &["Ohio", "N. California", "Frankfurt"],
        rtt: [53_790, 100_560, 150_740],
    },
];

impl Profile {
    /// A profile by its name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        ALL.iter().find(|p| p.name == name)
    }

    /// One way between two sites, in microseconds, without jitter.
    pub fn one_way(&self, a: u16, b: u16) -> u64 {
        self.rtt(a, b) / 2
    }

    /// There and back between two sites, in microseconds.
    pub fn rtt(&self, a: u16, b: u16) -> u64 {
        match (a.min(b), a.max(b)) {
            (a, b) if a == b => SAME_SITE_RTT,
            (0, 1) => self.rtt[0],
            (0, 2) => self.rtt[1],
            (1, 2) => self.rtt[2],
            (a, b) => panic!("the profile {} has no sites {a} and {b}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_those_of_the_table() {
        let us = Profile::named("lUs").unwrap();
        assert_eq!(
            (us.rtt(0, 1), us.rtt(2, 0), us.rtt(1, 2)),
            (53_790, 72_140, 24_200)
        );
        assert_eq!(us.one_way(1, 1), 100);
    }
}
