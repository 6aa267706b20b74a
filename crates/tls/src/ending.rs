//! When certificates are over.

use crate::files::{Chain, not_after};
use rustls::pki_types::CertificateDer;
use std::time::{SystemTime, UNIX_EPOCH};

/// A certificate that is used ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Which one.
    pub what: &'static str,
    /// When, in seconds since 1970.
    pub at: i64,
}

impl Ending {
    /// Seconds that are left; below zero it is over.
    pub fn left(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.at - now.map_or(0, |now| now.as_secs() as i64)
    }
}

/// The first to end of what is shown, and of whom it trusts, under these names.
pub(crate) fn endings(
    own: Option<&Chain>,
    authorities: &[CertificateDer<'static>],
    [certificate, authority]: [&'static str; 2],
) -> Vec<Ending> {
    let first = |all: &[CertificateDer<'static>]| all.iter().filter_map(not_after).min();
    let shown = own.and_then(|chain| first(&chain.certificates));
    let both = [(certificate, shown), (authority, first(authorities))];
    let ending = |(what, at): (_, Option<i64>)| Some(Ending { what, at: at? });
    both.into_iter().filter_map(ending).collect()
}
