//! The policy: a document that people can read, whole and with bounds.

use crate::token::{Hash, TokenId};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// The role that every policy has: every right, everywhere.
pub const ADMIN: &str = "admin";

/// Bytes of the longest policy, as JSON.
const BYTES_MAX: usize = 512 << 10;
/// Most roles, those who have them, and tokens.
const ROLES_MAX: usize = 256;
const PRINCIPALS_MAX: usize = 1_024;
const TOKENS_MAX: usize = 1_024;
/// Most rules of one role.
const RULES_MAX: usize = 64;
/// Most roles of one principal.
const ROLES_EACH_MAX: usize = 32;
/// Bytes of the longest name of a role or principal.
const NAME_MAX: usize = 128;
/// Bytes of the longest note.
const NOTE_MAX: usize = 128;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To see a value: outside of sections and in them.
    Read,
    /// To change or delete one.
    Write,
    /// To enter sections, to stay in them, and to see who is in them or waits.
    Lock,
    /// To end another's section.
    Release,
    /// To list keys; over all keyspaces (`*`), to see the cluster's state, too.
    List,
    /// To change and delete a keyspace; over all keyspaces, to administer the cluster.
    Admin,
}

impl Right {
    /// All there are.
    pub const ALL: [Right; 6] = [
        Right::Read,
        Right::Write,
        Right::Lock,
        Right::Release,
        Right::List,
        Right::Admin,
    ];

    /// Its name, as in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Lock => "lock",
            Right::Release => "release",
            Right::List => "list",
            Right::Admin => "admin",
        }
    }
}

/// Rights over a keyspace, or some of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, or `*` for all.
    pub keyspace: String,
    /// Only keys that begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The same, for what is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_base64: Option<String>,
    /// Only keys with this tag, by the keyspace's tag rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// What may be done.
    pub rights: BTreeSet<Right>,
}

/// A role: what one needs for one thing that one does.
pub type Role = Vec<Rule>;

/// Who is known, and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// Its roles.
    #[serde(default)]
    pub roles: BTreeSet<String>,
    /// How much of a node it may use.
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
}

/// How much of one node a principal may use at once, over all its connections there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Requests in a second, on average over a second or so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Sessions that the node keeps for it, and streams of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Bytes of keys and values of its open requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in_flight: Option<u64>,
}

impl Quota {
    /// Whether nothing is bounded.
    pub fn is_none(&self) -> bool {
        *self == Quota::default()
    }
}

/// A token as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// Who is known by it.
    pub principal: String,
    /// The hash of its secret.
    pub sha256: Hash,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// From when on it counts no more, seconds since 1970.
    pub expires: u64,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Whether it counts. While it does not, everybody may do everything.
    pub enabled: bool,
    /// Beside [`ADMIN`].
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// Who is known, whatever proves it: a token, a certificate or an issuer's word.
    #[serde(default)]
    pub principals: BTreeMap<String, Principal>,
    /// By their names.
    #[serde(default)]
    pub tokens: BTreeMap<TokenId, TokenEntry>,
}

impl Rule {
    /// Every right everywhere.
    pub(crate) fn everything() -> Rule {
        Rule {
            keyspace: "*".into(),
            prefix: None,
            prefix_base64: None,
            tag: None,
            rights: Right::ALL.into(),
        }
    }

    /// Whether it is over whole keyspaces.
    fn is_whole(&self) -> bool {
        self.prefix.is_none() && self.prefix_base64.is_none() && self.tag.is_none()
    }

    /// The prefix of the keys that it is over.
    pub(crate) fn begins(&self) -> Option<Vec<u8>> {
        match (&self.prefix, &self.prefix_base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(coded)) => STANDARD.decode(coded).ok(),
            (None, None) => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let scopes = [&self.prefix, &self.prefix_base64, &self.tag];
        if scopes.iter().filter(|scope| scope.is_some()).count() > 1 {
            return Err("a rule has a prefix or a tag, not both: make two of it".into());
        }
        let coded = self.prefix_base64.as_ref();
        if coded.is_some_and(|coded| STANDARD.decode(coded).is_err()) {
            return Err("prefix_base64 is not base64".into());
        }
        if self.rights.is_empty() || self.keyspace.is_empty() {
            return Err("a rule names a keyspace, or * for all, and at least one right".into());
        }
        if self.rights.contains(&Right::Admin) && !self.is_whole() {
            return Err(
                "the right admin is over whole keyspaces: give it in a rule without prefix and tag"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Whether a principal may have this name: 1 to 128 bytes on one line, without a colon, at which
/// HTTP's Basic ends it, and without spaces around it.
pub fn is_principal(name: &str) -> bool {
    is_name(name) && !name.contains(':')
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.trim() == name && !name.contains(char::is_control)
}

impl Policy {
    /// The policy that these bytes are; none are the one of a new cluster. Each says whether it
    /// counts: what is cut off lets nobody in by that.
    ///
    /// # Errors
    /// One sentence: they are none, or it breaks a bound, or a name in it stands for nothing.
    pub fn parse(bytes: &[u8]) -> Result<Policy, String> {
        if bytes.is_empty() {
            return Ok(Policy::default());
        }
        let policy = serde_json::from_slice(bytes).map_err(|error| error.to_string());
        // A list would be taken for the values of an object.
        let object = bytes.trim_ascii_start().starts_with(b"{");
        let policy: Policy = policy
            .and_then(|policy| object.then_some(policy).ok_or("it is no object".into()))
            .map_err(|why: String| format!("the access policy cannot be read: {why}"))?;
        policy.check()?;
        Ok(policy)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// One sentence, as [`Policy::parse`] would say.
    pub fn to_json(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        if bytes.len() > BYTES_MAX {
            return Err(format!(
                "the access policy is longer than {BYTES_MAX} bytes: remove tokens that are over, \
                 or roles that nobody has"
            ));
        }
        Ok(bytes)
    }

    fn check(&self) -> Result<(), String> {
        let bounds = [
            ("roles", self.roles.len(), ROLES_MAX),
            ("principals", self.principals.len(), PRINCIPALS_MAX),
            ("tokens", self.tokens.len(), TOKENS_MAX),
        ];
        if let Some((what, _, most)) = bounds.iter().find(|(_, n, most)| n > most) {
            return Err(format!("an access policy has at most {most} {what}"));
        }
        for (name, rules) in &self.roles {
            let wrong = |why: &str| format!("role {name:?}: {why}");
            if !is_name(name) {
                return Err(wrong("a name has 1 to 128 bytes on one line"));
            }
            if name == ADMIN {
                return Err(wrong("every policy has it: choose another name"));
            }
            if rules.is_empty() || rules.len() > RULES_MAX {
                return Err(wrong(&format!("it has 1 to {RULES_MAX} rules")));
            }
            rules
                .iter()
                .try_for_each(Rule::check)
                .map_err(|why| wrong(&why))?;
        }
        for (name, principal) in &self.principals {
            let wrong = |why: &str| format!("principal {name:?}: {why}");
            if !is_principal(name) {
                return Err(wrong(
                    "a name has 1 to 128 bytes on one line, without a colon",
                ));
            }
            if principal.roles.len() > ROLES_EACH_MAX {
                return Err(wrong(&format!("it has at most {ROLES_EACH_MAX} roles")));
            }
            let unknown = |role: &&String| *role != ADMIN && !self.roles.contains_key(*role);
            if let Some(role) = principal.roles.iter().find(unknown) {
                return Err(wrong(&format!("there is no role {role:?}: make it first")));
            }
        }
        for (id, token) in &self.tokens {
            let wrong = |why: &str| format!("token {id}: {why}");
            if !self.principals.contains_key(&token.principal) {
                let who = &token.principal;
                return Err(wrong(&format!(
                    "there is no principal {who:?}: make it first"
                )));
            }
            if token.note.len() > NOTE_MAX || token.note.contains(char::is_control) {
                return Err(wrong("a note has at most 128 bytes on one line"));
            }
            if token.expires <= token.created {
                return Err(wrong("it is over before it was made"));
            }
        }
        Ok(())
    }

    /// The rules of a role; none: there is no such role.
    fn rules(&self, role: &str) -> Option<Role> {
        match role {
            ADMIN => Some(vec![Rule::everything()]),
            _ => self.roles.get(role).cloned(),
        }
    }

    /// All rules of a principal; none: it is not known.
    pub fn rules_of(&self, principal: &str) -> Option<Role> {
        let roles = &self.principals.get(principal)?.roles;
        let rules = roles.iter().filter_map(|role| self.rules(role));
        Some(rules.flatten().collect())
    }

    /// Whether a principal may administer the cluster, and so change this.
    pub fn is_administrator(&self, principal: &str) -> bool {
        let rules = self.rules_of(principal).unwrap_or_default();
        let mut rules = rules.iter();
        rules.any(|rule| rule.keyspace == "*" && rule.rights.contains(&Right::Admin))
    }

    /// Whether an administrator can be known by a token.
    pub fn administers_by_token(&self, now: u64) -> bool {
        let mut tokens = self.tokens.values();
        tokens.any(|token| token.expires > now && self.is_administrator(&token.principal))
    }

    /// Whether it may follow `before` by the hand of `who`; none: of somebody that is not known, as
    /// nobody has to be while no policy counts.
    ///
    /// # Errors
    /// One sentence: it would leave nobody who could change it, shut out who puts it in force, or
    /// has a quota that lets nothing through.
    pub fn check_after(&self, before: &Policy, who: Option<&str>) -> Result<(), String> {
        for (name, principal) in &self.principals {
            let Quota {
                requests_per_second,
                sessions,
                bytes_in_flight,
            } = principal.quota;
            let counts = [requests_per_second, sessions].map(|most| most.map(u64::from));
            if [counts[0], counts[1], bytes_in_flight].contains(&Some(0)) {
                return Err(format!(
                    "principal {name:?}: a quota of 0 would let it do nothing: take its roles \
                     away, or leave the quota out"
                ));
            }
        }
        if !self.enabled {
            return Ok(());
        }
        let mut all = self.principals.keys();
        if !all.any(|name| self.is_administrator(name)) {
            return Err(format!(
                "no principal would be an administrator, so that nobody could change this again: \
                 give one the role {ADMIN} first"
            ));
        }
        if !before.enabled && !who.is_some_and(|who| self.is_administrator(who)) {
            return Err(format!(
                "who turns access control on has to come with the token or certificate of a \
                 principal that has the role {ADMIN}, or would be shut out by it: make one, and \
                 repeat this with it"
            ));
        }
        Ok(())
    }

    /// What is different from `before`, each in a few words, without a secret or a hash.
    pub fn changes_since(&self, before: &Policy) -> Vec<String> {
        let mut changes = Vec::new();
        if self.enabled != before.enabled {
            let word = if self.enabled { "enabled" } else { "disabled" };
            changes.push(word.to_owned());
        }
        compare("role", (&before.roles, &self.roles), &mut changes);
        let principals = (&before.principals, &self.principals);
        compare("principal", principals, &mut changes);
        compare("token", (&before.tokens, &self.tokens), &mut changes);
        changes
    }

    /// Keyspaces that its rules name, but for `*`.
    pub fn keyspaces(&self) -> BTreeSet<&str> {
        let rules = self.roles.values().flatten();
        let named = rules.map(|rule| rule.keyspace.as_str());
        named.filter(|keyspace| *keyspace != "*").collect()
    }
}

fn compare<K: Ord + Display, V: PartialEq>(
    what: &str,
    (before, after): (&BTreeMap<K, V>, &BTreeMap<K, V>),
    changes: &mut Vec<String>,
) {
    for (name, value) in after {
        match before.get(name) {
            None => changes.push(format!("{what} {name} made")),
            Some(known) if known != value => changes.push(format!("{what} {name} changed")),
            Some(_) => {}
        }
    }
    let removed = before.keys().filter(|name| !after.contains_key(name));
    changes.extend(removed.map(|name| format!("{what} {name} removed")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    fn rule(keyspace: &str, rights: &[Right]) -> Rule {
        Rule {
            keyspace: keyspace.into(),
            rights: rights.iter().copied().collect(),
            ..Rule::everything()
        }
    }

    fn principal(roles: &[&str]) -> Principal {
        Principal {
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            quota: Quota::default(),
        }
    }

    fn policy() -> Policy {
        let token = Token::new(1, 2);
        let entry = TokenEntry {
            principal: "root".into(),
            sha256: token.hash(),
            created: 10,
            expires: 20,
            note: String::new(),
        };
        Policy {
            enabled: true,
            roles: [("app".into(), vec![rule("jobs", &[Right::Lock])])].into(),
            principals: [
                ("root".into(), principal(&[ADMIN])),
                ("worker@site".into(), principal(&["app"])),
            ]
            .into(),
            tokens: [(token.id(), entry)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken() {
        let whole = policy();
        let bytes = whole.to_json().unwrap();
        assert_eq!(Policy::parse(&bytes), Ok(whole));
        assert_eq!(Policy::parse(b""), Ok(Policy::default()));
        let text = String::from_utf8(bytes).unwrap();
        let altered = [
            text.replace("\"enabled\"", "\"enable\""),
            text.replace("\"lock\"", "\"locks\""),
            text.replace("\"app\"]", "\"ape\"]"),
            text[1..].to_owned(),
            "[]".into(),
        ];
        for text in altered {
            assert!(Policy::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_stands_for_nothing_is_refused_in_a_sentence() {
        let refused = |change: &dyn Fn(&mut Policy), word: &str| {
            let mut wrong = policy();
            change(&mut wrong);
            let why = wrong.to_json().expect_err(word);
            assert!(why.contains(word), "{why}");
        };
        refused(
            &|p| drop(p.roles.insert("none".into(), vec![])),
            "1 to 64 rules",
        );
        refused(
            &|p| drop(p.roles.insert(ADMIN.into(), vec![Rule::everything()])),
            "every policy",
        );
        refused(&|p| drop(p.roles.remove("app")), "there is no role \"app\"");
        refused(
            &|p| drop(p.principals.remove("root")),
            "there is no principal \"root\"",
        );
        refused(
            &|p| drop(p.principals.insert("a:b".into(), principal(&[]))),
            "colon",
        );
        refused(
            &|p| drop(p.principals.insert(" a".into(), principal(&[]))),
            "on one line",
        );
        let role =
            |rule: Rule| move |p: &mut Policy| drop(p.roles.insert("r".into(), vec![rule.clone()]));
        let whole = rule("k", &[Right::Admin]);
        refused(
            &role(Rule {
                prefix: Some("a".into()),
                ..whole.clone()
            }),
            "whole keyspaces",
        );
        refused(&role(rule("k", &[])), "at least one right");
        refused(&role(rule("", &[Right::Read])), "names a keyspace");
        let both = Rule {
            prefix: Some("a".into()),
            tag: Some("b".into()),
            ..rule("k", &[Right::Read])
        };
        refused(&role(both), "not both");
        let coded = Rule {
            prefix_base64: Some("?".into()),
            ..rule("k", &[Right::Read])
        };
        refused(&role(coded), "base64");
        refused(
            &|p| p.tokens.values_mut().for_each(|t| t.expires = t.created),
            "over before",
        );
        refused(
            &|p| p.tokens.values_mut().for_each(|t| t.note = "a\nb".into()),
            "a note",
        );
        refused(
            &|p| {
                p.roles
                    .extend((0..ROLES_MAX).map(|n| (n.to_string(), vec![whole.clone()])))
            },
            "at most 256 roles",
        );
    }

    #[test]
    fn what_has_changed_is_told_without_secrets() {
        let before = policy();
        let mut after = before.clone();
        after.enabled = false;
        after.tokens.clear();
        after.roles.insert("ops".into(), vec![Rule::everything()]);
        after.principals.insert("root".into(), principal(&["ops"]));
        let told = after.changes_since(&before);
        let wanted = [
            "disabled",
            "role ops made",
            "principal root changed",
            "token 0000000000000001 removed",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn somebody_can_always_change_it() {
        let before = policy();
        let mut none = before.clone();
        none.principals.insert("root".into(), principal(&["app"]));
        let why = none
            .check_after(&before, Some("root"))
            .expect_err("none left");
        assert!(
            why.contains("no principal would be an administrator"),
            "{why}"
        );
        let off = Policy {
            enabled: false,
            ..before.clone()
        };
        assert_eq!(before.check_after(&off, Some("root")), Ok(()));
        for who in [None, Some("worker@site"), Some("nobody")] {
            let why = before.check_after(&off, who).expect_err("shut out");
            assert!(why.contains("would be shut out"), "{why}");
        }
        assert_eq!(before.check_after(&before, Some("worker@site")), Ok(()));
        assert_eq!(off.check_after(&before, None), Ok(()));
        let mut own = before.clone();
        let all = rule("*", &[Right::Admin]);
        own.roles.insert("keeper".into(), vec![all]);
        own.principals.insert("root".into(), principal(&["keeper"]));
        assert_eq!(
            own.check_after(&before, Some("root")),
            Ok(()),
            "a role of one's own"
        );
    }
}
