//! `fermata auth`, `token`, `role` and `principal`: who may do what in a cluster.
//!
//! All of them read the cluster's access policy, change it, and have it replaced, if it is still
//! the one that was read; else they begin again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use fermata_access::{
    ADMIN, Policy, Principal, Quota, Right, Rule, Token, TokenEntry, TokenId, is_principal,
};
use fermata_client::{Client, Code};
use serde_json::json;

use crate::args::Global;
use crate::connect::connect;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// So often a change is made anew that others were before.
const TRIES: usize = 8;
/// And after so long each.
const AGAIN: Duration = Duration::from_millis(250);
/// How long a token counts unless told otherwise, days.
const TOKEN_DAYS: u64 = 90;
/// The longest time for which one may, days.
const TOKEN_DAYS_MAX: u64 = 3_650;
const DAY: u64 = 86_400;

/// See `fermata auth --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Let nobody do anything but what a role gives. Come with an administrator's token or
    /// certificate: you would be shut out otherwise, and it is refused.
    Enable,
    /// Let everybody do everything again.
    Disable,
    /// Show whether access is controlled, and how many roles, principals and tokens there are.
    Status,
    /// Print the whole policy as JSON.
    Policy,
    /// Replace the whole policy by the one in a file, as `policy` prints it.
    Apply {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Open a way back in at the node of this machine, for an hour: prints a token that counts at
    /// that node alone, for everything.
    Recover {
        /// The node's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// See `fermata token --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token by which a principal is known, and print it, this once.
    Create {
        /// The principal; made, if there is none of that name.
        #[arg(value_name = "PRINCIPAL")]
        principal: String,
        /// A role that the principal is given beside those that it has.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// For how long it counts, as 30d or 12h: at most ten years.
        #[arg(long, value_name = "DURATION", value_parser = duration::positive)]
        expires: Option<Duration>,
        /// What it is for.
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// List tokens; their secrets nobody knows.
    List {
        /// Of this principal alone.
        #[arg(value_name = "PRINCIPAL")]
        principal: Option<String>,
    },
    /// Let a token count no more. Streams that were opened with it end within a second.
    Revoke {
        /// Its name, as `list` shows it: the part between the underscores.
        #[arg(value_name = "TOKEN")]
        id: String,
    },
}

/// See `fermata role --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List roles with their rules.
    List,
    /// Make a role, or give it other rules.
    Set {
        /// What it is called.
        #[arg(value_name = "ROLE")]
        role: String,
        #[command(flatten)]
        rules: RuleArgs,
    },
    /// Remove a role, which nobody may have.
    Delete {
        /// What it is called.
        #[arg(value_name = "ROLE")]
        role: String,
    },
}

/// The rules of a role.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct RuleArgs {
    /// Give these of read, write, lock, release, list and admin, separated by commas, over the keys
    /// of a keyspace (* for all) that begin with PREFIX.
    #[arg(long = "allow", value_name = "RIGHTS:KEYSPACE[:PREFIX]")]
    allow: Vec<String>,
    /// The same over the keys with a tag.
    #[arg(long = "allow-tag", value_name = "RIGHTS:KEYSPACE:TAG")]
    allow_tag: Vec<String>,
}

/// See `fermata principal --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum PrincipalCommand {
    /// List principals with their roles.
    List,
    /// Make a principal, or give it other roles or another quota: what is not said it has not.
    Set {
        /// What it is called: by tokens, certificates (`fermata cert client --name`) and issuers.
        #[arg(value_name = "PRINCIPAL")]
        principal: String,
        /// A role; give it several times.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// How many requests each node takes of it in a second.
        #[arg(long, value_name = "N")]
        requests_per_second: Option<u32>,
        /// How many sessions, and streams of sessions, each node keeps for it.
        #[arg(long, value_name = "N")]
        sessions: Option<u32>,
        /// How many bytes of keys and values may be in its open requests at each node.
        #[arg(long, value_name = "BYTES")]
        bytes_in_flight: Option<u64>,
    },
    /// Remove a principal and its tokens.
    Delete {
        /// What it is called.
        #[arg(value_name = "PRINCIPAL")]
        principal: String,
    },
}

/// The access policy, and which it is.
async fn read(client: &Client) -> Result<(u64, Policy), Failure> {
    let access = client.access().await?;
    let policy = Policy::parse(&access.policy).map_err(|why| {
        Failure::new(Exit::Refused, format!("{why}: use a version that knows it"))
    })?;
    Ok((access.version, policy))
}

/// Changes the policy: as `change` says, of whatever it is then.
async fn change<T>(
    global: &Global,
    mut change: impl FnMut(&mut Policy) -> Result<T, String>,
) -> Result<T, Failure> {
    let client = connect(global).await?;
    let mut tries = 0;
    loop {
        let (version, mut policy) = read(&client).await?;
        let before = policy.clone();
        let refused = |why| Failure::new(Exit::Refused, format!("{why}; nothing was changed"));
        let made = change(&mut policy).map_err(refused)?;
        if policy == before {
            return Ok(made);
        }
        let bytes = policy.to_json().map_err(refused)?;
        tries += 1;
        match client.change_access(version, bytes.into()).await {
            Ok(()) => return Ok(made),
            Err(error) if error.code() == Code::Conflict && tries < TRIES => {
                // A node on another engine hears of a change within a second.
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn done(global: &Global, what: &str, name: &str) -> Result<u8, Failure> {
    if global.json {
        output::json(&json!({ what: name, "done": true }))?;
    }
    Ok(0)
}

/// Runs `fermata auth`.
pub(crate) async fn auth(global: &Global, action: AuthCommand) -> Result<u8, Failure> {
    match action {
        AuthCommand::Enable => set_enabled(global, true).await,
        AuthCommand::Disable => set_enabled(global, false).await,
        AuthCommand::Status => status(global).await,
        AuthCommand::Policy => {
            let client = connect(global).await?;
            output::json(&read(&client).await?.1)?;
            Ok(0)
        }
        AuthCommand::Apply { file } => apply(global, &file).await,
        AuthCommand::Recover { data_dir } => recover(global, &data_dir),
    }
}

async fn set_enabled(global: &Global, enabled: bool) -> Result<u8, Failure> {
    change(global, |policy| {
        policy.enabled = enabled;
        Ok(())
    })
    .await?;
    if global.json {
        output::json(&json!({ "enabled": enabled, "done": true }))?;
    }
    Ok(0)
}

async fn status(global: &Global) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let (version, policy) = read(&client).await?;
    let administrators = policy.principals.keys();
    let administrators = administrators.filter(|name| policy.is_administrator(name));
    let administrators: Vec<&str> = administrators.map(String::as_str).collect();
    let counts = [
        policy.roles.len(),
        policy.principals.len(),
        policy.tokens.len(),
    ];
    let [roles, principals, tokens] = counts;
    if global.json {
        output::json(&json!({
            "enabled": policy.enabled, "version": version, "roles": roles,
            "principals": principals, "tokens": tokens, "administrators": administrators,
        }))?;
        return Ok(0);
    }
    output::text(match policy.enabled {
        true => "access is controlled: who may do nothing is refused",
        false => "access is not controlled: everybody may do everything",
    })?;
    output::text(format!(
        "{roles} roles beside {ADMIN}, {principals} principals, {tokens} tokens; administrators: \
         {}",
        match administrators[..] {
            [] => "none".to_owned(),
            _ => administrators.join(", "),
        }
    ))?;
    Ok(0)
}

async fn apply(global: &Global, file: &Path) -> Result<u8, Failure> {
    let bytes = std::fs::read(file);
    let bytes = bytes.map_err(|e| Failure::local(format!("reading {}", file.display()), e))?;
    if bytes.trim_ascii().is_empty() {
        let empty = format!("{} is empty, and no access policy", file.display());
        return Err(Failure::usage(empty));
    }
    let wanted = Policy::parse(&bytes).map_err(Failure::usage)?;
    change(global, |policy| {
        if policy.enabled && !wanted.enabled {
            return Err("it would let everybody do everything: `fermata auth disable` does".into());
        }
        *policy = wanted.clone();
        Ok(())
    })
    .await?;
    done(global, "applied", &file.display().to_string())
}

fn recover(global: &Global, dir: &Path) -> Result<u8, Failure> {
    let token = fermata_server::recover(dir);
    let token = token.map_err(|why| Failure::new(Exit::Refused, why))?;
    let minutes = fermata_server::RECOVERY_LASTS.as_secs() / 60;
    if global.json {
        output::json(&json!({ "token": token.reveal(), "minutes": minutes }))?;
        return Ok(0);
    }
    output::text(token.reveal())?;
    let sentence = format!(
        "for {minutes} minutes this token may do everything, at this node alone: name the node \
         with --endpoint, and give the token as FERMATA_TOKEN"
    );
    crate::exit::note(&sentence, false);
    Ok(0)
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Runs `fermata token`.
pub(crate) async fn token(global: &Global, action: TokenCommand) -> Result<u8, Failure> {
    match action {
        TokenCommand::Create {
            principal,
            roles,
            expires,
            note,
        } => {
            let lasts = expires.map_or(TOKEN_DAYS * DAY, |lasts| lasts.as_secs());
            create(global, principal, roles, (lasts, note)).await
        }
        TokenCommand::List { principal } => tokens(global, principal.as_deref()).await,
        TokenCommand::Revoke { id } => revoke(global, &id).await,
    }
}

async fn create(
    global: &Global,
    principal: String,
    roles: Vec<String>,
    (lasts, note): (u64, String),
) -> Result<u8, Failure> {
    if !is_principal(&principal) {
        let why = "a principal's name has 1 to 128 bytes on one line, without a colon";
        return Err(Failure::usage(why));
    }
    if !(1..=TOKEN_DAYS_MAX * DAY).contains(&lasts) {
        return Err(Failure::usage("--expires is a second to ten years"));
    }
    let random = || fermata_server::random().map_err(|e| Failure::local("drawing a token", e));
    let token = Token::new(random()? as u64, random()?);
    let created = now();
    let entry = TokenEntry {
        principal: principal.clone(),
        sha256: token.hash(),
        created,
        expires: created + lasts,
        note,
    };
    change(global, |policy| {
        let of = policy.principals.entry(principal.clone()).or_default();
        of.roles.extend(roles.iter().cloned());
        // Those that are over for a month are of no use to anybody.
        policy
            .tokens
            .retain(|_, known| known.expires.saturating_add(30 * DAY) > created);
        policy.tokens.insert(token.id(), entry.clone());
        Ok(())
    })
    .await?;
    if global.json {
        output::json(&json!({
            "token": token.reveal(), "id": token.id().to_string(), "principal": principal,
            "expires": entry.expires,
        }))?;
        return Ok(0);
    }
    output::text(token.reveal())?;
    let lasts = duration::show(Duration::from_secs(lasts));
    let sentence = format!(
        "shown this once: {principal} is known by it for {lasts}, as FERMATA_TOKEN or in a file \
         that FERMATA_TOKEN_FILE names"
    );
    crate::exit::note(&sentence, false);
    Ok(0)
}

async fn tokens(global: &Global, principal: Option<&str>) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let (_, policy) = read(&client).await?;
    let wanted = |of: &str| principal.is_none_or(|principal| principal == of);
    let all = policy
        .tokens
        .iter()
        .filter(|(_, entry)| wanted(&entry.principal));
    if global.json {
        let all: Vec<_> = all
            .map(|(id, entry)| {
                json!({
                    "id": id.to_string(), "principal": entry.principal, "created": entry.created,
                    "expires": entry.expires, "note": entry.note,
                })
            })
            .collect();
        output::json(&json!({ "tokens": all }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["token", "principal", "expires", "note"]);
    for (id, entry) in all {
        let expires = match entry.expires.checked_sub(now()) {
            Some(left) if left > 0 => format!("in {}", duration::show(Duration::from_secs(left))),
            _ => "over".to_owned(),
        };
        let (principal, note) = (entry.principal.clone(), entry.note.clone());
        table.row(vec![id.to_string(), principal, expires, note]);
    }
    output::text(table)?;
    Ok(0)
}

async fn revoke(global: &Global, id: &str) -> Result<u8, Failure> {
    // Whoever has the whole of it may show that.
    let whole = Token::parse(id).map(|token| token.id());
    let name = whole.or_else(|| TokenId::parse(id)).ok_or_else(|| {
        Failure::usage("a token's name is 16 hexadecimal digits: `fermata token list` shows it")
    })?;
    change(global, |policy| match policy.tokens.remove(&name) {
        Some(_) => Ok(()),
        None => Err(format!("there is no token {name}")),
    })
    .await?;
    done(global, "revoked", &name.to_string())
}

/// Runs `fermata role`.
pub(crate) async fn role(global: &Global, action: RoleCommand) -> Result<u8, Failure> {
    match action {
        RoleCommand::List => roles(global).await,
        RoleCommand::Set { role, rules } => {
            let parsed = rules.parse().map_err(Failure::usage)?;
            change(global, |policy| {
                policy.roles.insert(role.clone(), parsed.clone());
                Ok(())
            })
            .await?;
            done(global, "role", &role)
        }
        RoleCommand::Delete { role } => {
            change(global, |policy| {
                let mut all = policy.principals.iter();
                if let Some((who, _)) = all.find(|(_, of)| of.roles.contains(&role)) {
                    return Err(format!("{who} has the role {role:?}: take it away first"));
                }
                match policy.roles.remove(&role) {
                    Some(_) => Ok(()),
                    None => Err(format!("there is no role {role:?}")),
                }
            })
            .await?;
            done(global, "deleted", &role)
        }
    }
}

impl RuleArgs {
    fn parse(&self) -> Result<Vec<Rule>, String> {
        let plain = self.allow.iter().map(|text| rule_of(text, false));
        let tagged = self.allow_tag.iter().map(|text| rule_of(text, true));
        plain.chain(tagged).collect()
    }
}

/// The rule that `RIGHTS:KEYSPACE[:PREFIX]`, or the same with a tag, says.
fn rule_of(text: &str, tagged: bool) -> Result<Rule, String> {
    let mut parts = text.splitn(3, ':');
    let (rights, keyspace, rest) = (parts.next(), parts.next(), parts.next());
    let (Some(rights), Some(keyspace)) = (rights, keyspace) else {
        return Err(format!(
            "`{text}` is no rule: write RIGHTS:KEYSPACE or RIGHTS:KEYSPACE:PREFIX"
        ));
    };
    let right = |name: &str| {
        let mut all = Right::ALL.into_iter();
        all.find(|right| right.name() == name.trim())
            .ok_or_else(|| {
                let all = Right::ALL.map(Right::name).join(", ");
                format!("`{name}` is no right: there are {all}")
            })
    };
    let rights: Result<BTreeSet<Right>, String> = rights.split(',').map(right).collect();
    let rest = rest.map(str::to_owned);
    if tagged && rest.is_none() {
        return Err(format!("`{text}` has no tag: write RIGHTS:KEYSPACE:TAG"));
    }
    let (prefix, tag) = match tagged {
        true => (None, rest),
        false => (rest.filter(|prefix| !prefix.is_empty()), None),
    };
    Ok(Rule {
        keyspace: keyspace.to_owned(),
        prefix,
        prefix_base64: None,
        tag,
        rights: rights?,
    })
}

/// The keys of a rule, as people read them.
fn keys_of(rule: &Rule) -> String {
    match (&rule.prefix, &rule.prefix_base64, &rule.tag) {
        (Some(prefix), ..) => format!("{prefix}…"),
        (_, Some(prefix), _) => format!("base64 {prefix}…"),
        (.., Some(tag)) => format!("tag {tag}"),
        _ => "all".to_owned(),
    }
}

async fn roles(global: &Global) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let (_, policy) = read(&client).await?;
    if global.json {
        output::json(&json!({ "roles": policy.roles }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["role", "keyspace", "keys", "rights"]);
    let all = Right::ALL.map(Right::name).join(",");
    table.row([ADMIN, "*", "all", &all].map(str::to_owned).into());
    for (name, rules) in &policy.roles {
        for rule in rules {
            let rights: Vec<&str> = rule.rights.iter().map(|right| right.name()).collect();
            let (name, keyspace) = (name.clone(), rule.keyspace.clone());
            table.row(vec![name, keyspace, keys_of(rule), rights.join(",")]);
        }
    }
    output::text(table)?;
    Ok(0)
}

/// Runs `fermata principal`.
pub(crate) async fn principal(global: &Global, action: PrincipalCommand) -> Result<u8, Failure> {
    match action {
        PrincipalCommand::List => principals(global).await,
        PrincipalCommand::Set {
            principal,
            roles,
            requests_per_second,
            sessions,
            bytes_in_flight,
        } => {
            let wanted = Principal {
                roles: roles.into_iter().collect(),
                quota: Quota {
                    requests_per_second,
                    sessions,
                    bytes_in_flight,
                },
            };
            change(global, |policy| {
                policy.principals.insert(principal.clone(), wanted.clone());
                Ok(())
            })
            .await?;
            done(global, "principal", &principal)
        }
        PrincipalCommand::Delete { principal } => {
            change(global, |policy| {
                policy
                    .tokens
                    .retain(|_, entry| entry.principal != principal);
                match policy.principals.remove(&principal) {
                    Some(_) => Ok(()),
                    None => Err(format!("there is no principal {principal:?}")),
                }
            })
            .await?;
            done(global, "deleted", &principal)
        }
    }
}

async fn principals(global: &Global) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let (_, policy) = read(&client).await?;
    if global.json {
        output::json(&json!({ "principals": policy.principals }))?;
        return Ok(0);
    }
    let mut table = Table::new(&[
        "principal",
        "roles",
        "tokens",
        "requests/s",
        "sessions",
        "bytes",
    ]);
    let bound = |bound: Option<u64>| bound.map_or("-".to_owned(), |bound| bound.to_string());
    for (name, of) in &policy.principals {
        let roles: Vec<&str> = of.roles.iter().map(String::as_str).collect();
        let tokens = policy.tokens.values();
        let tokens = tokens.filter(|entry| entry.principal == *name).count();
        table.row(vec![
            name.clone(),
            roles.join(","),
            tokens.to_string(),
            bound(of.quota.requests_per_second.map(Into::into)),
            bound(of.quota.sessions.map(Into::into)),
            bound(of.quota.bytes_in_flight),
        ]);
    }
    output::text(table)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_rights_keyspace_and_prefix_or_tag() {
        let rule = rule_of("lock,read:jobs:a:b/", false).unwrap();
        assert_eq!(rule.prefix.as_deref(), Some("a:b/"));
        assert_eq!(rule.rights, [Right::Lock, Right::Read].into());
        let whole = rule_of("admin:*", false).unwrap();
        assert_eq!((whole.keyspace.as_str(), whole.prefix), ("*", None));
        let tagged = rule_of("write:jobs:t", true).unwrap();
        assert_eq!((tagged.prefix, tagged.tag.as_deref()), (None, Some("t")));
        for (wrong, tagged, word) in [
            ("lock", false, "no rule"),
            ("locks:jobs", false, "no right"),
            ("lock:jobs", true, "no tag"),
            (":jobs", false, "no right"),
        ] {
            let why = rule_of(wrong, tagged).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
