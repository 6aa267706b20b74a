//! The judgement: what a policy comes to for each principal, made once and asked for each request.

use crate::TokenEntry;
use crate::policy::{Policy, Quota, Right, Role};
use crate::token::{Token, TokenId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Over which keys one has a right.
#[derive(Clone, Debug, Default)]
struct Keys {
    all: bool,
    /// Sorted, and none of them begins with another: of those that are not above a key, the
    /// greatest alone may be one that the key begins with.
    prefixes: Vec<Box<[u8]>>,
    tags: HashSet<Box<[u8]>>,
}

impl Keys {
    fn add_prefix(&mut self, prefix: Vec<u8>) {
        self.prefixes.push(prefix.into());
    }

    /// Leaves out what is covered by another.
    fn finish(&mut self) {
        self.all |= self.prefixes.iter().any(|prefix| prefix.is_empty());
        self.prefixes.sort();
        let mut kept: Vec<Box<[u8]>> = Vec::new();
        for prefix in std::mem::take(&mut self.prefixes) {
            if kept.last().is_none_or(|last| !prefix.starts_with(last)) {
                kept.push(prefix);
            }
        }
        self.prefixes = kept;
    }

    /// Whether all keys that begin so are among them.
    fn has_prefix(&self, prefix: &[u8]) -> bool {
        if self.all {
            return true;
        }
        let above = self.prefixes.partition_point(|known| **known <= *prefix);
        let candidate = above.checked_sub(1).map(|at| &self.prefixes[at]);
        candidate.is_some_and(|known| prefix.starts_with(known))
    }

    fn has<'a>(&self, key: &[u8], tag: impl FnOnce() -> &'a [u8]) -> bool {
        self.has_prefix(key) || (!self.tags.is_empty() && self.tags.contains(tag()))
    }

    /// Whether any key that begins so may be among them.
    fn touches(&self, prefix: &[u8]) -> bool {
        let next = self.prefixes.partition_point(|known| **known < *prefix);
        let next = self.prefixes.get(next);
        let below = next.is_some_and(|known| known.starts_with(prefix));
        below || !self.tags.is_empty() || self.has_prefix(prefix)
    }

    fn is_empty(&self) -> bool {
        !self.all && self.prefixes.is_empty() && self.tags.is_empty()
    }
}

/// What one may do in a keyspace.
#[derive(Clone, Debug, Default)]
struct Rights([Keys; Right::ALL.len()]);

impl Rights {
    fn of(&self, right: Right) -> &Keys {
        &self.0[right as usize]
    }
}

/// What one principal may do.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// In every keyspace.
    everywhere: Rights,
    keyspaces: HashMap<Box<str>, Rights>,
    /// How much of a node it may use.
    pub quota: Quota,
}

impl Grants {
    /// Every right, everywhere, and no quota.
    pub fn all() -> Grants {
        Grants::of(&vec![crate::Rule::everything()], Quota::default())
    }

    fn of(rules: &Role, quota: Quota) -> Grants {
        let mut grants = Grants {
            quota,
            ..Grants::default()
        };
        for rule in rules {
            let rights = match rule.keyspace.as_str() {
                "*" => &mut grants.everywhere,
                name => grants.keyspaces.entry(name.into()).or_default(),
            };
            for right in &rule.rights {
                let keys = &mut rights.0[*right as usize];
                match (&rule.tag, rule.begins()) {
                    (Some(tag), _) => drop(keys.tags.insert(tag.as_bytes().into())),
                    (None, Some(prefix)) => keys.add_prefix(prefix),
                    (None, None) => keys.all = true,
                }
            }
        }
        let all = grants.keyspaces.values_mut();
        for rights in all.chain([&mut grants.everywhere]) {
            rights.0.iter_mut().for_each(Keys::finish);
        }
        grants
    }

    fn both(&self, keyspace: &str) -> impl Iterator<Item = &Rights> {
        [Some(&self.everywhere), self.keyspaces.get(keyspace)]
            .into_iter()
            .flatten()
    }

    /// Whether it has a right over a key, whose tag is asked for only where some rule has one.
    pub fn may<'a>(
        &self,
        right: Right,
        keyspace: &str,
        key: &[u8],
        tag: impl Fn() -> &'a [u8],
    ) -> bool {
        let mut both = self.both(keyspace);
        both.any(|rights| rights.of(right).has(key, &tag))
    }

    /// Whether it has a right over all keys of a keyspace that begin so, those of no bytes all.
    pub fn may_prefix(&self, right: Right, keyspace: &str, prefix: &[u8]) -> bool {
        let mut both = self.both(keyspace);
        both.any(|rights| rights.of(right).has_prefix(prefix))
    }

    /// Whether it has any right over keys of a keyspace that begin so, and so may know what they
    /// are.
    pub fn touches(&self, keyspace: &str, prefix: &[u8]) -> bool {
        let mut both = self.both(keyspace);
        both.any(|rights| rights.0.iter().any(|keys| keys.touches(prefix)))
    }

    /// Whether it has a right over all keyspaces, and so over what is the cluster's.
    pub fn may_everywhere(&self, right: Right) -> bool {
        self.everywhere.of(right).all
    }

    /// Whether it has any right in a keyspace, and so may know that there is one, or none.
    pub fn knows(&self, keyspace: &str) -> bool {
        let mut both = self.both(keyspace);
        both.any(|rights| rights.0.iter().any(|keys| !keys.is_empty()))
    }
}

/// What a policy comes to.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    enabled: bool,
    principals: BTreeMap<String, Arc<Grants>>,
    tokens: BTreeMap<TokenId, TokenEntry>,
}

impl Judge {
    /// What this one comes to.
    pub fn of(policy: &Policy) -> Judge {
        let grants = |(name, principal): (&String, &crate::Principal)| {
            let rules = policy.rules_of(name).unwrap_or_default();
            (name.clone(), Arc::new(Grants::of(&rules, principal.quota)))
        };
        Judge {
            enabled: policy.enabled,
            principals: policy.principals.iter().map(grants).collect(),
            tokens: policy.tokens.clone(),
        }
    }

    /// Whether anybody is to be judged.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// What a principal may do; none: it is not known.
    pub fn grants(&self, principal: &str) -> Option<&Arc<Grants>> {
        self.principals.get(principal)
    }

    /// The token of a name, if it counts at `now`, seconds since 1970.
    pub fn token(&self, id: TokenId, now: u64) -> Option<&TokenEntry> {
        self.tokens.get(&id).filter(|token| now < token.expires)
    }

    /// Who shows this token at `now`, seconds since 1970.
    ///
    /// # Errors
    /// Why it counts for nothing, for whoever administers the node: who shows it learns no more
    /// than that it does not count.
    pub fn shows(&self, token: &Token, now: u64) -> Result<&TokenEntry, &'static str> {
        let known = self.tokens.get(&token.id());
        // What is compared are hashes: how long that takes says nothing of a secret.
        let known = known.filter(|known| known.sha256 == token.hash());
        let known = known.ok_or("the token is not known: revoked, or never made")?;
        match now < known.expires {
            true => Ok(known),
            false => Err("the token is over"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ADMIN, Principal, Rule};
    use proptest::prelude::*;

    fn rule(keyspace: &str, prefix: Option<&str>, tag: Option<&str>, rights: &[Right]) -> Rule {
        Rule {
            keyspace: keyspace.into(),
            prefix: prefix.map(Into::into),
            prefix_base64: None,
            tag: tag.map(Into::into),
            rights: rights.iter().copied().collect(),
        }
    }

    fn grants(rules: Vec<Rule>) -> Grants {
        Grants::of(&rules, Quota::default())
    }

    const NO_TAG: fn() -> &'static [u8] = || b"";

    #[test]
    fn one_may_do_what_a_rule_says_and_nothing_else() {
        let app = grants(vec![
            rule("k", Some("jobs/"), None, &[Right::Lock]),
            rule("k", Some("config/"), None, &[Right::Read]),
            rule("k", None, Some("t"), &[Right::Write]),
        ]);
        assert!(app.may(Right::Lock, "k", b"jobs/1", NO_TAG));
        assert!(!app.may(Right::Read, "k", b"jobs/1", NO_TAG));
        assert!(!app.may(Right::Lock, "k", b"jobs", NO_TAG));
        assert!(!app.may(Right::Lock, "other", b"jobs/1", NO_TAG));
        assert!(app.may(Right::Read, "k", b"config/", NO_TAG));
        assert!(app.may(Right::Write, "k", b"x", || b"t"));
        assert!(!app.may(Right::Write, "k", b"x", || b"u"));
        assert!(app.may_prefix(Right::Read, "k", b"config/a"));
        assert!(!app.may_prefix(Right::Read, "k", b"conf"));
        assert!(
            !app.may_prefix(Right::Write, "k", b"t"),
            "a tag is no prefix"
        );
        assert!(app.knows("k") && !app.knows("other"));
        assert!(Right::ALL.iter().all(|right| !app.may_everywhere(*right)));
    }

    #[test]
    fn what_holds_everywhere_holds_in_each_keyspace() {
        let reader = grants(vec![rule("*", Some("a"), None, &[Right::Read])]);
        assert!(reader.may(Right::Read, "k", b"ab", NO_TAG) && reader.knows("k"));
        assert!(!reader.may(Right::Read, "k", b"b", NO_TAG));
        assert!(!reader.may_everywhere(Right::Read), "some keys are not all");
        let lister = grants(vec![rule("*", None, None, &[Right::List])]);
        assert!(lister.may_everywhere(Right::List));
        assert!(lister.may_prefix(Right::List, "k", b""));
    }

    #[test]
    fn who_is_known_and_by_what() {
        let token = Token::new(3, 4);
        let entry = TokenEntry {
            principal: "root".into(),
            sha256: token.hash(),
            created: 1,
            expires: 5,
            note: String::new(),
        };
        let roles = [ADMIN.to_owned()].into();
        let principal = Principal {
            roles,
            quota: Quota::default(),
        };
        let policy = Policy {
            enabled: true,
            principals: [("root".into(), principal)].into(),
            tokens: [(token.id(), entry)].into(),
            ..Policy::default()
        };
        let judge = Judge::of(&policy);
        assert!(judge.is_enabled() && judge.grants("other").is_none());
        let root = judge.grants("root").unwrap();
        assert!(Right::ALL.iter().all(|right| root.may_everywhere(*right)));
        assert_eq!(judge.shows(&token, 4).unwrap().principal, "root");
        for (shown, now) in [(&token, 5), (&Token::new(3, 5), 4), (&Token::new(4, 4), 4)] {
            assert!(judge.shows(shown, now).is_err());
        }
        assert!(judge.token(token.id(), 4).is_some() && judge.token(token.id(), 5).is_none());
    }

    proptest! {
        /// Sorted prefixes say what a look at each would.
        #[test]
        fn the_short_way_finds_what_the_long_way_finds(
            prefixes in prop::collection::vec("[ab]{0,4}", 0..12),
            key in "[abc]{0,6}",
        ) {
            let rules = prefixes.iter().map(|p| rule("k", Some(p), None, &[Right::Read]));
            let found = grants(rules.collect()).may(Right::Read, "k", key.as_bytes(), NO_TAG);
            prop_assert_eq!(found, prefixes.iter().any(|p| key.starts_with(p.as_str())));
        }

        /// Whatever comes is refused, or read as it would be written.
        #[test]
        fn bytes_are_a_policy_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            if let Ok(policy) = Policy::parse(&bytes) {
                prop_assert!(policy.to_json().is_ok());
            }
        }
    }
}
