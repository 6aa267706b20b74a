//! Conditions of requests on one key: `If-Match` and `If-None-Match` (RFC 9110, §13).
//!
//! The entity tag of a key is the [`Version`] of its value, in quotes, in whichever form the value
//! is sent. It is strong; a weak one, `W/"…"`, is never what `If-Match` names.

use super::Problem;
use axum::http::{HeaderMap, HeaderName, header};
use fermata_api::condition::Version;

/// The headers that are understood.
pub(super) const UNDERSTOOD: [HeaderName; 2] = [header::IF_MATCH, header::IF_NONE_MATCH];

/// The value of a header `ETag`.
pub(super) fn entity_tag(version: Version) -> String {
    format!("\"{version}\"")
}

/// What a header names.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: whatever value there is.
    Any,
    /// Entity tags, without their quotes, and whether each is weak.
    These(Vec<(bool, Vec<u8>)>),
}

impl Tags {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|v| v.as_bytes()).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let tags = match lines[..] {
            [b"*"] => Some(Tags::Any),
            _ => list(&lines.join(&b","[..])).map(Tags::These),
        };
        let wrong = || {
            Problem::bad(format!(
                "the header {name} is neither * nor a list of entity tags in double quotes, as \
                 ETag has them"
            ))
        };
        tags.map(Some).ok_or_else(wrong)
    }

    /// Whether one of them is the version's, or, if `weakly`, is its weak one.
    fn name(&self, version: Option<Version>, weakly: bool) -> bool {
        let Some(version) = version.map(|version| version.to_string()) else {
            return false;
        };
        match self {
            Tags::Any => true,
            Tags::These(tags) => {
                let is =
                    |(weak, tag): &(bool, Vec<u8>)| (weakly || !weak) && *tag == version.as_bytes();
                tags.iter().any(is)
            }
        }
    }
}

/// A list of entity tags; none of anything else, nor of an empty one.
fn list(mut rest: &[u8]) -> Option<Vec<(bool, Vec<u8>)>> {
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return (!tags.is_empty()).then_some(tags);
        }
        let (weak, quoted) = match rest.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let quoted = quoted.strip_prefix(b"\"")?;
        let end = quoted.iter().position(|byte| *byte == b'"')?;
        tags.push((weak, quoted[..end].to_vec()));
        rest = quoted[end + 1..].trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
}

/// Which header's condition is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    Match,
    NoneMatch,
}

/// What a request asks to be so of its key.
#[derive(Debug)]
pub(super) struct Conditions {
    matches: Option<Tags>,
    none: Option<Tags>,
}

impl Conditions {
    /// Those of a request; none, if it sets none.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Conditions>, Problem> {
        let conditions = Conditions {
            matches: Tags::of(headers, &header::IF_MATCH)?,
            none: Tags::of(headers, &header::IF_NONE_MATCH)?,
        };
        let some = conditions.matches.is_some() || conditions.none.is_some();
        Ok(some.then_some(conditions))
    }

    /// The first that is not so of the key's version.
    pub(super) fn unmet(&self, version: Option<Version>) -> Option<Unmet> {
        let differs = |tags: &Tags| !tags.name(version, false);
        let equals = |tags: &Tags| tags.name(version, true);
        if self.matches.as_ref().is_some_and(differs) {
            return Some(Unmet::Match);
        }
        let unmet = self.none.as_ref().is_some_and(equals);
        unmet.then_some(Unmet::NoneMatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(headers: &[(HeaderName, &str)]) -> Result<Option<Conditions>, Problem> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value.parse().unwrap());
        }
        Conditions::of(&map)
    }

    #[test]
    fn a_condition_is_met_as_the_standard_says() {
        let (some, other) = (Version::of(b"v"), Version::of(b"w"));
        let (strong, weak) = (entity_tag(some), format!("W/{}", entity_tag(some)));
        let list = format!(" , \"a,b\",\t{strong}, W/\"\"");
        use Unmet::{Match, NoneMatch};
        let cases = [
            (header::IF_MATCH, "*", [None, None, Some(Match)]),
            (header::IF_MATCH, &strong, [None, Some(Match), Some(Match)]),
            (header::IF_MATCH, &list, [None, Some(Match), Some(Match)]),
            (header::IF_MATCH, &weak, [Some(Match); 3]),
            (header::IF_MATCH, "\"*\"", [Some(Match); 3]),
            (
                header::IF_NONE_MATCH,
                "*",
                [Some(NoneMatch), Some(NoneMatch), None],
            ),
            (
                header::IF_NONE_MATCH,
                &strong,
                [Some(NoneMatch), None, None],
            ),
            (header::IF_NONE_MATCH, &weak, [Some(NoneMatch), None, None]),
            (header::IF_NONE_MATCH, &list, [Some(NoneMatch), None, None]),
        ];
        for (name, value, expected) in cases {
            let set = conditions(&[(name.clone(), value)]).unwrap().unwrap();
            let unmet = [Some(some), Some(other), None].map(|version| set.unmet(version));
            assert_eq!(unmet, expected, "{name}: {value}");
        }
        // Lines of one header are one list; both headers must be met.
        let lines = [(header::IF_MATCH, "\"a\""), (header::IF_MATCH, &strong)];
        let set = conditions(&lines).unwrap().unwrap();
        assert_eq!(set.unmet(Some(some)), None);
        let both = [(header::IF_MATCH, "*"), (header::IF_NONE_MATCH, &strong)];
        let set = conditions(&both).unwrap().unwrap();
        assert_eq!(set.unmet(Some(some)), Some(NoneMatch));
        assert_eq!(set.unmet(Some(other)), None);
        assert!(conditions(&[]).unwrap().is_none());
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for wrong in [
            "",
            ",",
            "a",
            "\"a",
            "a\"",
            "\"a\" \"b\"",
            "\"a\"b",
            "w/\"a\"",
            "*, \"a\"",
            "**",
        ] {
            for name in UNDERSTOOD {
                let refused = conditions(&[(name, wrong)]);
                assert!(refused.is_err(), "{wrong}");
            }
        }
    }
}
