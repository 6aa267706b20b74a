//! Emulated wide-area delays: how long a message from one site to another is held before it is
//! sent.
//!
//! A profile is a text of lines; `#` begins a comment:
//!
//! ```text
//! sites 3 ohio california oregon     how many sites, and optionally what they are called
//! default rtt 0.2                    round trip in ms between sites without a line of their own
//! link 1 2 rtt 53.79                 round trip in ms between two sites, by number from 1 or name
//! ```
//!
//! Half of a round trip is the one-way delay. The n-th site of a profile is the n-th site of the
//! cluster, whatever it is called there. A pair of sites without `link` and without `default` has
//! no delay. The built-in profiles are those of MUSIC's Table II.

use fermata_protocol::base::SiteId;
use std::collections::HashMap;
use std::time::Duration;

/// MUSIC, Table II: Ohio, Ohio, N. Virginia.
const L1: &str = "sites 3\nlink 1 2 rtt 0.2\nlink 1 3 rtt 15.14\nlink 2 3 rtt 15.14\n";
/// MUSIC, Table II: Ohio, N. California, Oregon.
const L_US: &str = "sites 3\nlink 1 2 rtt 53.79\nlink 1 3 rtt 72.14\nlink 2 3 rtt 24.2\n";
/// MUSIC, Table II: Ohio, N. California, Frankfurt.
const L_US_EU: &str = "sites 3\nlink 1 2 rtt 53.79\nlink 1 3 rtt 100.56\nlink 2 3 rtt 150.74\n";

/// Most sites of a profile.
const SITES_MAX: usize = 1_000;
/// The longest round trip of a profile, ms.
const RTT_MAX: f64 = 60_000.0;

/// Round trips between sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    sites: Option<usize>,
    default: f64,
    links: HashMap<(usize, usize), f64>,
}

impl Profile {
    /// The profile of that name: `none`, `l1`, `lUs`, `lUsEu`, or else a file's path.
    ///
    /// # Errors
    /// One sentence that names the file and line.
    pub fn named(name: &str) -> Result<Profile, String> {
        match name {
            "" | "none" => Ok(Profile::default()),
            "l1" => Profile::parse(L1),
            "lUs" => Profile::parse(L_US),
            "lUsEu" => Profile::parse(L_US_EU),
            path => {
                let text = std::fs::read_to_string(path).map_err(|e| {
                    format!(
                        "rtt {path:?} is none of none, l1, lUs, lUsEu, nor a file that can be \
                         read: {e}"
                    )
                })?;
                Profile::parse(&text).map_err(|e| format!("rtt profile {path}: {e}"))
            }
        }
    }

    /// The profile of a text; see the top of this module.
    ///
    /// # Errors
    /// One sentence that names the line.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let mut profile = Profile::default();
        let mut names: Vec<String> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let wrong = |what: &str| format!("line {}: {what}", at + 1);
            match words[..] {
                [] => {}
                ["sites", count, ref called @ ..] => {
                    let count = count.parse().ok().filter(|n| (1..=SITES_MAX).contains(n));
                    let count = count.ok_or_else(|| wrong("how many sites, 1 to 1,000?"))?;
                    if !called.is_empty() && called.len() != count {
                        return Err(wrong("name all sites or none"));
                    }
                    profile.sites = Some(count);
                    names = called.iter().map(|name| (*name).to_owned()).collect();
                }
                ["default", "rtt", ms] => {
                    profile.default = rtt(ms).ok_or_else(|| wrong("the round trip is in ms"))?;
                }
                ["link", a, b, "rtt", ms] => {
                    let ms = rtt(ms).ok_or_else(|| wrong("the round trip is in ms"))?;
                    let site = |s| profile.site(&names, s).ok_or_else(|| wrong("no such site"));
                    let (a, b) = (site(a)?, site(b)?);
                    profile.links.insert((a.min(b), a.max(b)), ms);
                }
                _ => {
                    return Err(wrong(
                        "expected `sites N`, `default rtt MS` or `link A B rtt MS`",
                    ));
                }
            }
        }
        Ok(profile)
    }

    fn site(&self, names: &[String], word: &str) -> Option<usize> {
        if let Some(at) = names.iter().position(|name| name == word) {
            return Some(at);
        }
        let at = word.parse::<usize>().ok()?.checked_sub(1)?;
        (at < self.sites.unwrap_or(SITES_MAX)).then_some(at)
    }

    /// How many sites it describes, if it says so.
    pub fn sites(&self) -> Option<usize> {
        self.sites
    }

    /// Whether it delays nothing at all.
    pub fn is_none(&self) -> bool {
        self.default == 0.0 && self.links.values().all(|ms| *ms == 0.0)
    }

    /// How long a message from `a` to `b` is held: half of the round trip.
    pub fn one_way(&self, a: SiteId, b: SiteId) -> Duration {
        if a == b {
            return Duration::ZERO;
        }
        let (a, b) = (usize::from(a.0), usize::from(b.0));
        let ms = self
            .links
            .get(&(a.min(b), a.max(b)))
            .copied()
            .unwrap_or(self.default);
        Duration::from_nanos((ms * 500_000.0) as u64)
    }
}

fn rtt(word: &str) -> Option<f64> {
    word.parse().ok().filter(|ms| (0.0..=RTT_MAX).contains(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_those_of_the_paper() {
        let profile = Profile::named("lUsEu").unwrap();
        assert_eq!(
            profile.one_way(SiteId(2), SiteId(1)),
            Duration::from_micros(75_370)
        );
        assert_eq!(profile.one_way(SiteId(0), SiteId(0)), Duration::ZERO);
        assert_eq!(
            Profile::named("none")
                .unwrap()
                .one_way(SiteId(0), SiteId(1)),
            Duration::ZERO
        );
    }

    #[test]
    fn sites_go_by_name_or_number() {
        let text = "# c\nsites 2 east west\nlink east 2 rtt 10 # c\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(
            profile.one_way(SiteId(0), SiteId(1)),
            Duration::from_millis(5)
        );
    }

    #[test]
    fn a_malformed_line_is_named() {
        for text in [
            "sites 0",
            "link 1 2 rtt x",
            "link 1 2",
            "sites 2\nlink 1 3 rtt 5",
            "rtt 1",
            "link 1 2 rtt NaN",
            "link 1 2 rtt -1",
            "sites 2 a",
        ] {
            assert!(
                Profile::parse(text).unwrap_err().starts_with("line "),
                "{text}"
            );
        }
    }
}
