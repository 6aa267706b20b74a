//! Which node to ask: the preferred one, unless it has failed lately.

use super::call::Endpoint;
use crate::base::Micros;
use alloc::vec::Vec;

/// The endpoints in order of preference, each with the end of the suspicion against it.
#[derive(Debug)]
pub(super) struct Endpoints {
    all: Vec<(Endpoint, Micros)>,
}

impl Endpoints {
    /// In order of preference: the client's own site first.
    pub(super) fn new(preferred: &[Endpoint]) -> Endpoints {
        Endpoints {
            all: preferred.iter().map(|e| (*e, 0)).collect(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The first one that is not suspected; if all are, the one whose suspicion ends first. `avoid`
    /// is chosen only where there is no other.
    pub(super) fn choose(&self, now: Micros, avoid: Option<Endpoint>) -> Option<Endpoint> {
        let rank = |(place, (endpoint, until)): (usize, &(Endpoint, Micros))| {
            let suspected = if *until > now { *until } else { 0 };
            ((avoid == Some(*endpoint), suspected, place), *endpoint)
        };
        let best = self.all.iter().enumerate().map(rank).min();
        best.map(|(_, endpoint)| endpoint)
    }

    /// It failed, or was silent for too long.
    pub(super) fn suspect(&mut self, endpoint: Endpoint, until: Micros) {
        for (e, suspected) in &mut self.all {
            if *e == endpoint {
                *suspected = until;
            }
        }
    }

    /// It answered.
    pub(super) fn trust(&mut self, endpoint: Endpoint) {
        self.suspect(endpoint, 0);
    }

    /// A new order of preference; suspicions of those that stay are kept.
    pub(super) fn prefer(&mut self, preferred: &[Endpoint]) {
        let old = core::mem::take(&mut self.all);
        let suspected = |e: &Endpoint| {
            old.iter()
                .find(|(o, _)| o == e)
                .map_or(0, |(_, until)| *until)
        };
        self.all = preferred.iter().map(|e| (*e, suspected(e))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_endpoint_is_asked_last_until_its_suspicion_ends() {
        let mut endpoints = Endpoints::new(&[Endpoint(4), Endpoint(7)]);
        assert_eq!(endpoints.choose(10, None), Some(Endpoint(4)));
        endpoints.suspect(Endpoint(4), 20);
        assert_eq!(endpoints.choose(10, None), Some(Endpoint(7)));
        assert_eq!(endpoints.choose(20, None), Some(Endpoint(4)));
        endpoints.suspect(Endpoint(7), 15);
        assert_eq!(endpoints.choose(10, None), Some(Endpoint(7)));
        assert_eq!(endpoints.choose(10, Some(Endpoint(7))), Some(Endpoint(4)));
        endpoints.trust(Endpoint(4));
        assert_eq!(endpoints.choose(10, None), Some(Endpoint(4)));
    }
}
