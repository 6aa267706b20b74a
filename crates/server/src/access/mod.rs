//! Who may do what at this node: the one place where a request is judged, whichever face it came
//! through.
//!
//! **Problem.** There are four ways in (gRPC, hosted sessions, REST, MUSIC's REST), streams that
//! stay open for days, and a policy that changes meanwhile. A check in each handler is one that the
//! next handler forgets.
//!
//! **Idea.** A [`Caller`] is made where a request arrives, once for all faces ([`Access::who`]),
//! and travels with it. Nothing reaches the driver or an engine but through the porter, which takes
//! a caller and asks [`Access::judge`] what may be done of the request, and what of its answer may
//! be shown ([`View`]). What the node does of itself it does as [`Caller::NODE`]; a face that does
//! something for a caller in the node's name has it judged first.
//!
//! The policy comes with the catalogue, as the driver or the engine knows it. Until it is known
//! nobody is let in, and neither where it cannot be read: a policy of a later version may say no.
//!
//! **Streams.** Who waits for a lock, or follows a section, is judged again when the policy
//! changes, or what was shown is over: see [`lasting`]. A stream of many requests ends as soon as
//! its caller counts for nothing ([`Access::over`]).
//!
//! **What a refusal says.** The same sentence, whether a key, or a keyspace, is there or not.

mod audit;
mod caller;
mod jwt;
pub(crate) mod lasting;
mod recovery;
mod rights;
mod usage;
mod view;

use crate::clock;
use crate::config::JwtConfig;
pub(crate) use audit::{Audit, Entry};
use axum::http::{HeaderMap, HeaderValue, header};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use caller::fuzz;
pub(crate) use caller::{Caller, Certificate, Who};
use caller::{Identity, Proof, Shown};
use fermata_access::{Grants, Judge, Policy, Right};
use fermata_api::Names;
use fermata_protocol::catalogue::Access as Document;
use fermata_protocol::request::Operation;
use fermata_protocol::{Code, Refusal};
use jwt::Issuer;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use recovery::Recovery;
pub use recovery::{RECOVERY_LASTS, recover};
use rights::Verdict;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use usage::Accounts;
pub(crate) use usage::Used;
pub(crate) use view::View;

/// By it one node tells another for whom it sends a call on.
pub(crate) const ON_BEHALF: &str = "fermata-on-behalf-of";

/// The value of [`ON_BEHALF`] for a principal: names may have letters that headers have not.
pub(crate) fn behalf_of(principal: &str) -> Option<HeaderValue> {
    let escaped = utf8_percent_encode(principal, NON_ALPHANUMERIC);
    HeaderValue::from_str(&escaped.to_string()).ok()
}

fn on_behalf(headers: &HeaderMap) -> Option<String> {
    let name = percent_decode(headers.get(ON_BEHALF)?.as_bytes()).decode_utf8();
    name.ok().map(Cow::into_owned)
}

/// A reason for which credentials are refused is logged once in this time.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How long a stream's caller is believed without being looked at.
const LOOK: Duration = Duration::from_secs(30);

/// The policy as it was last seen.
struct Judged {
    /// Which; none: it is not known yet.
    version: Option<u64>,
    policy: Policy,
    judge: Judge,
    /// Why nobody is let in, whatever it says.
    closed: Option<Refusal>,
}

impl Judged {
    fn of(document: Option<&Document>) -> Judged {
        let (policy, closed) = match document.map(|document| Policy::parse(&document.policy)) {
            Some(Ok(policy)) => (policy, None),
            Some(Err(why)) => {
                tracing::error!("nobody is let in: {why}");
                let why = format!("nobody is let in here: {why}; nothing was done");
                let why = Refusal::definite(Code::Unauthenticated, why);
                (Policy::default(), Some(why))
            }
            None => {
                let why = "this node does not know yet who may do what, and nothing was done: ask \
                           again, or another node";
                let why = Refusal::definite(Code::Unavailable, why);
                (Policy::default(), Some(why))
            }
        };
        Judged {
            version: document.map(|document| document.version),
            judge: Judge::of(&policy),
            policy,
            closed,
        }
    }

    fn is_enabled(&self) -> bool {
        self.judge.is_enabled() || self.closed.is_some()
    }
}

/// What may be done of a request.
#[derive(Default)]
pub(crate) struct Judgement {
    /// What is left out of the answer; none: nothing.
    pub(crate) view: Option<View>,
    /// Of a heartbeat: the places that are not asked for.
    pub(crate) denied: Vec<usize>,
    /// Counts against a quota, while the request is open.
    pub(crate) used: Option<Used>,
}

/// Who may do what here.
pub(crate) struct Access {
    newest: watch::Receiver<Option<Document>>,
    judged: RwLock<Arc<Judged>>,
    accounts: Accounts,
    everything: Arc<Grants>,
    recovery: Recovery,
    /// Why credentials were refused, and when the log was told of it last.
    told: Mutex<HashMap<&'static str, Instant>>,
    pub(crate) issuer: Option<Arc<Issuer>>,
    pub(crate) audit: Arc<Audit>,
}

impl Access {
    /// By the policy that comes there; `dir`: where the way back in would be.
    pub(crate) fn new(
        newest: watch::Receiver<Option<Document>>,
        dir: Option<PathBuf>,
        (issuer, audit): (Option<JwtConfig>, Audit),
    ) -> Arc<Access> {
        Arc::new(Access {
            issuer: issuer.map(|config| Arc::new(Issuer::new(config))),
            audit: Arc::new(audit),
            newest,
            judged: RwLock::new(Arc::new(Judged::of(None))),
            accounts: Accounts::default(),
            everything: Arc::new(Grants::all()),
            recovery: Recovery::new(dir),
            told: Mutex::default(),
        })
    }

    /// The policy as the node knows it now.
    fn judged(&self) -> Arc<Judged> {
        let known = Arc::clone(&self.judged.read().unwrap_or_else(PoisonError::into_inner));
        let newest = {
            let newest = self.newest.borrow();
            if newest.as_ref().map(|document| document.version) == known.version {
                return known;
            }
            // Whoever tells of another one does not wait until this is read.
            newest.clone()
        };
        let judged = Arc::new(Judged::of(newest.as_ref()));
        self.accounts
            .retain(|principal| judged.judge.grants(principal).is_some());
        *self.judged.write().unwrap_or_else(PoisonError::into_inner) = judged.clone();
        judged
    }

    /// Tells the log why credentials are refused, not of each.
    fn tell(&self, from: IpAddr, why: &'static str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let before = told.get(why);
        if before.is_none_or(|before| now.duration_since(*before) >= TELL_EVERY) {
            told.insert(why, now);
            tracing::warn!(%from, "credentials are refused: {why}");
        }
    }

    /// Whether anybody is judged.
    pub(crate) fn is_enabled(&self) -> bool {
        self.judged().is_enabled()
    }

    /// Whether nobody is let in, whatever the policy says.
    pub(crate) fn is_closed(&self) -> bool {
        self.judged().closed.is_some()
    }

    /// Tells of each policy that comes.
    pub(crate) fn news(&self) -> watch::Receiver<Option<Document>> {
        self.newest.clone()
    }

    /// Who asks, by what the request and its connection show; `may_forward` says whether the node
    /// of a label is one that sends such a request on for others.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`]: what is shown counts for nothing, here where it has to.
    pub(crate) fn who(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Certificate>,
        from: IpAddr,
        may_forward: impl Fn(&str) -> bool,
    ) -> Result<Caller, Refusal> {
        let caller = |who| Caller {
            who,
            from: Some(from),
        };
        let known = |principal, proof| caller(Who::Known(Arc::new(Identity { principal, proof })));
        let judged = self.judged();
        if let Some(header) = headers.get(header::AUTHORIZATION) {
            let text = header.to_str().map_err(|_| "the credentials are no text");
            match text.and_then(|text| self.proved(text, &judged)) {
                Ok((principal, proof)) => return Ok(known(principal, proof)),
                // Clients that always sent some go on as they did.
                Err(_) if !judged.is_enabled() => {}
                Err(jwt::NOT_YET) => {
                    return Err(Refusal::definite(Code::Unavailable, jwt::NOT_YET));
                }
                Err(why) => {
                    self.tell(from, why);
                    let refusal = invalid();
                    let nobody = caller(Who::Nobody);
                    self.audit
                        .refused(&nobody, "authenticate", (&refusal, Some(why)));
                    return Err(refusal);
                }
            }
        }
        Ok(match certificate {
            None => caller(Who::Nobody),
            Some(Certificate::Client(name, until)) => {
                known(name.clone(), Proof::Certificate(*until))
            }
            Some(Certificate::Node(label)) => {
                match on_behalf(headers).filter(|_| may_forward(label)) {
                    Some(name) => known(name, Proof::Peer),
                    None => caller(Who::Peer(label.clone())),
                }
            }
        })
    }

    fn proved(&self, header: &str, judged: &Judged) -> Result<(String, Proof), &'static str> {
        let (named, token) = match Shown::parse(header)? {
            Shown::Token(token) => (None, token),
            Shown::Basic(name, token) => (Some(name), token),
            Shown::Jwt(text) => {
                let issuer = self
                    .issuer
                    .as_ref()
                    .ok_or("no issuer of JWTs is known here")?;
                let (principal, until) = issuer.judge(&text, seconds())?;
                return Ok((principal, Proof::Issuer(until)));
            }
        };
        let now = seconds();
        let shown = judged.judge.shows(&token, now);
        match shown {
            Ok(entry) if named.is_none_or(|name| name == entry.principal) => {
                Ok((entry.principal.clone(), Proof::Token(token.id())))
            }
            Ok(_) => Err("the token is another principal's than the one that is named"),
            Err(_) if self.recovery.is_opened_by(&token, now) => {
                Ok(("recovery".into(), Proof::Recovery))
            }
            Err(why) => Err(why),
        }
    }

    /// Whether what somebody has shown still counts.
    fn holds(&self, who: &Who, judged: &Judged) -> bool {
        if !judged.is_enabled() {
            return true;
        }
        let Who::Known(identity) = who else {
            return !matches!(who, Who::Nobody);
        };
        let now = seconds();
        match identity.proof {
            Proof::Token(id) => {
                let token = judged.judge.token(id, now);
                token.is_some_and(|token| token.principal == identity.principal)
            }
            Proof::Certificate(until) | Proof::Issuer(until) => now < until,
            Proof::Peer => true,
            Proof::Recovery => self.recovery.is_open(now),
        }
    }

    /// When what somebody has shown is over, as far as that is known beforehand.
    fn until(who: &Who, judged: &Judged) -> Option<u64> {
        let Who::Known(identity) = who else {
            return None;
        };
        match identity.proof {
            Proof::Token(id) => Some(judged.judge.token(id, 0)?.expires),
            Proof::Certificate(until) | Proof::Issuer(until) => Some(until),
            Proof::Peer | Proof::Recovery => None,
        }
    }

    /// Ready once what a caller has shown does not count any more.
    pub(crate) async fn over(&self, caller: &Caller) -> Refusal {
        let mut newest = self.newest.clone();
        loop {
            newest.mark_unchanged();
            let judged = self.judged();
            if !self.holds(&caller.who, &judged) {
                return match caller.who {
                    Who::Nobody => nobody(&judged),
                    _ => invalid(),
                };
            }
            let until = Access::until(&caller.who, &judged);
            let left = until.map(|until| Duration::from_secs(until.saturating_sub(seconds())));
            // The wall clock may be set, and a way back in closed.
            let patience = left.map_or(LOOK, |left| left.min(LOOK));
            tokio::select! {
                _ = newest.changed() => {}
                () = tokio::time::sleep(patience.max(Duration::from_millis(100))) => {}
            }
        }
    }

    /// What a principal may do; none: nothing is judged.
    ///
    /// # Errors
    /// It counts for nothing, or nobody knows it.
    fn grants(&self, who: &Who, judged: &Judged) -> Result<Option<Arc<Grants>>, Refusal> {
        if matches!(who, Who::Node | Who::For(_)) || !judged.is_enabled() {
            return Ok(None);
        }
        match who {
            Who::Known(identity) if self.holds(who, judged) => match identity.proof {
                Proof::Recovery => Ok(Some(self.everything.clone())),
                _ if judged.closed.is_some() => Err(nobody(judged)),
                _ => {
                    let known = judged.judge.grants(&identity.principal);
                    known.cloned().map(Some).ok_or_else(|| forbidden(who))
                }
            },
            Who::Known(_) => Err(invalid()),
            _ => Err(nobody(judged)),
        }
    }

    /// Whether a caller is somebody at all: for what everybody may see that is known.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] or [`Code::Forbidden`].
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), Refusal> {
        let judged = self.judged();
        let admitted = match caller.who {
            Who::Peer(_) if judged.closed.is_none() => Ok(()),
            _ => self.grants(&caller.who, &judged).map(drop),
        };
        admitted.inspect_err(|refusal| self.audit.refused(caller, "any", (refusal, None)))
    }

    /// Whether a caller may know anything of every keyspace that `names_any` is asked of: before
    /// one that does not exist is looked for.
    ///
    /// # Errors
    /// As [`Access::judge`].
    pub(crate) fn admit_to(
        &self,
        caller: &Caller,
        names_any: impl FnOnce(&dyn Fn(&str) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        let admitted = self.admitted_to(caller, names_any);
        admitted.inspect_err(|refusal| self.audit.refused(caller, "any", (refusal, None)))
    }

    fn admitted_to(
        &self,
        caller: &Caller,
        names_any: impl FnOnce(&dyn Fn(&str) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        let judged = self.judged();
        if matches!(caller.who, Who::Peer(_)) && judged.closed.is_none() {
            return match names_any(&|_| true) {
                true => Err(forbidden(&caller.who)),
                false => Ok(()),
            };
        }
        match self.grants(&caller.who, &judged)? {
            Some(grants) if names_any(&|keyspace| !grants.knows(keyspace)) => {
                Err(forbidden(&caller.who))
            }
            _ => Ok(()),
        }
    }

    /// What may be done of a request, of so many bytes.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], [`Code::Forbidden`], or [`Code::Busy`] beyond a quota; nothing
    /// was done.
    pub(crate) fn judge(
        self: &Arc<Self>,
        caller: &Caller,
        names: &Arc<Names>,
        operation: &Operation,
        bytes: usize,
    ) -> Result<Judgement, Refusal> {
        let judged = self.judged();
        if matches!(caller.who, Who::Peer(_)) && judged.closed.is_none() {
            return match operation {
                _ if !judged.is_enabled() => Ok(Judgement::default()),
                Operation::Admit { .. } | Operation::Ring | Operation::Status => {
                    Ok(Judgement::default())
                }
                _ => Err(forbidden(&caller.who)),
            };
        }
        let Some(grants) = self.grants(&caller.who, &judged)? else {
            return Ok(Judgement::default());
        };
        let denied = match rights::verdict(&grants, names, operation) {
            Verdict::Whole => Vec::new(),
            Verdict::But(denied) => denied,
            Verdict::Refused => return Err(forbidden(&caller.who)),
        };
        let principal = caller.principal().unwrap_or_default();
        // What keeps or gives up what one has is not counted: a lock is not lost for being busy.
        let counted = !matches!(
            operation,
            Operation::Renew { .. } | Operation::Leave { .. } | Operation::Relinquish { .. }
        );
        let quota = Some(grants.quota).filter(|_| counted).unwrap_or_default();
        let used = self.accounts.request(principal, quota, bytes)?;
        let shown = matches!(
            operation,
            Operation::Enter { .. } | Operation::Resume { .. } | Operation::Keyspaces
        );
        let view = (shown || !denied.is_empty()).then(|| View {
            access: self.clone(),
            who: caller.who.clone(),
            names: names.clone(),
            denied: denied.clone(),
        });
        Ok(Judgement { view, denied, used })
    }

    /// Whether a caller has a right over a key, or over all keys with a prefix, of a keyspace that
    /// has names of its own for them.
    ///
    /// # Errors
    /// As [`Access::judge`].
    pub(crate) fn judge_named(
        &self,
        caller: &Caller,
        rights: &[Right],
        keyspace: &str,
        (name, is_prefix): (&[u8], bool),
    ) -> Result<(), Refusal> {
        let judged = self.judged();
        let Some(grants) = self.grants(&caller.who, &judged)? else {
            return Ok(());
        };
        let has = |right: &Right| match is_prefix {
            true => grants.may_prefix(*right, keyspace, name),
            false => grants.may(*right, keyspace, name, || name),
        };
        if rights.iter().all(has) {
            return Ok(());
        }
        let refusal = forbidden(&caller.who);
        self.audit.refused(caller, "music", (&refusal, None));
        Err(refusal)
    }

    /// Whether a caller has no right any more over a key of such a keyspace: by a policy that can
    /// be read, which may have come since. It has asked for nothing.
    pub(crate) fn has_lost(
        &self,
        caller: &Caller,
        right: Right,
        (keyspace, name): (&str, &[u8]),
    ) -> bool {
        let judged = self.judged();
        if judged.closed.is_some() {
            return false;
        }
        match self.grants(&caller.who, &judged) {
            Ok(Some(grants)) => !grants.may(right, keyspace, name, || name),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Whether a caller may know of keys of such a keyspace that begin so.
    ///
    /// # Errors
    /// As [`Access::judge`].
    pub(crate) fn judge_known(
        &self,
        caller: &Caller,
        keyspace: &str,
        prefix: &[u8],
    ) -> Result<(), Refusal> {
        match self.grants(&caller.who, &self.judged())? {
            Some(grants) if !grants.touches(keyspace, prefix) => {
                let refusal = forbidden(&caller.who);
                self.audit.refused(caller, "music", (&refusal, None));
                Err(refusal)
            }
            _ => Ok(()),
        }
    }

    /// Counts a call that is judged by the names of its face, of so many bytes.
    ///
    /// # Errors
    /// As [`Access::admit`], and [`Code::Busy`] beyond the quota.
    pub(crate) fn count(&self, caller: &Caller, bytes: usize) -> Result<Option<Used>, Refusal> {
        let judged = self.judged();
        let grants = self.grants(&caller.who, &judged)?;
        let quota = grants.map(|grants| grants.quota).unwrap_or_default();
        let principal = caller.principal().unwrap_or_default();
        self.accounts.request(principal, quota, bytes)
    }

    /// Counts bytes that arrive of a caller's, beside those before, against its quota.
    ///
    /// # Errors
    /// [`Code::Busy`] beyond it.
    pub(crate) fn arriving(
        &self,
        caller: &Caller,
        used: &mut Option<Used>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        // Who counts for nothing is told so by what it asks.
        let Ok(Some(grants)) = self.grants(&caller.who, &self.judged()) else {
            return Ok(());
        };
        let principal = caller.principal().unwrap_or_default();
        self.accounts.arriving(principal, grants.quota, used, bytes)
    }

    /// Whether a caller may know of a keyspace.
    pub(crate) fn knows(&self, caller: &Caller, keyspace: &str) -> bool {
        let judged = self.judged();
        match self.grants(&caller.who, &judged) {
            Ok(Some(grants)) => grants.knows(keyspace),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// A place for a session of a caller's, against its quota.
    ///
    /// # Errors
    /// As [`Access::admit`], and [`Code::Busy`] beyond the quota.
    pub(crate) fn session(&self, caller: &Caller) -> Result<Option<Used>, Refusal> {
        let judged = self.judged();
        let grants = self.grants(&caller.who, &judged)?;
        let quota = grants.map(|grants| grants.quota).unwrap_or_default();
        let principal = caller.principal().unwrap_or_default();
        self.accounts.session(principal, quota)
    }

    /// The bytes of the policy that is to replace the one of change `after`, as they are kept, and
    /// what they change, in a few words.
    ///
    /// # Errors
    /// [`Code::BadRequest`] for one that would not do; [`Code::Conflict`] where `after` is not what
    /// this node knows.
    pub(crate) fn prepared(
        &self,
        caller: &Caller,
        names: &Names,
        after: u64,
        policy: &[u8],
    ) -> Result<(Vec<u8>, Vec<String>), Refusal> {
        let bad = |why: String| Refusal::definite(Code::BadRequest, why + "; nothing was changed");
        let judged = self.judged();
        if policy.is_empty() {
            return Err(bad("the access policy is empty".into()));
        }
        let next = Policy::parse(policy).map_err(bad)?;
        if judged.version != Some(after) {
            let why = "the access policy has changed since it was read, and nothing was done: read \
                       it again, and repeat the change";
            return Err(Refusal::definite(Code::Conflict, why));
        }
        let before = &judged.policy;
        // Who owns the machine cannot be shut out, and may mend what cannot be read.
        let owner = matches!(&caller.who, Who::Known(of) if matches!(of.proof, Proof::Recovery));
        let follows = if owner { &next } else { before };
        next.check_after(follows, caller.principal()).map_err(bad)?;
        if let Who::Known(of) = &caller.who
            && let Proof::Token(_) = of.proof
            && next.enabled
            && !next.administers_by_token(seconds())
        {
            return Err(bad(
                "no administrator would have a token any more, and who asks is known by one: make \
                 another first"
                    .into(),
            ));
        }
        let had = before.keyspaces();
        let unknown = |name: &&str| !had.contains(name) && names.keyspace(name).is_none();
        if let Some(name) = next.keyspaces().into_iter().find(unknown) {
            return Err(bad(format!(
                "a role names the keyspace {name:?}, which does not exist"
            )));
        }
        let changes = next.changes_since(before);
        Ok((next.to_json().map_err(bad)?, changes))
    }
}

/// The time of the wall clock, seconds since 1970.
fn seconds() -> u64 {
    clock::wall() / 1_000_000
}

fn nobody(judged: &Judged) -> Refusal {
    if let Some(why) = &judged.closed {
        return why.clone();
    }
    Refusal::definite(
        Code::Unauthenticated,
        "nobody is known to ask, and this cluster controls access: show a token (FERMATA_TOKEN, \
         or the header Authorization: Bearer), or a client's certificate; nothing was done",
    )
}

fn invalid() -> Refusal {
    Refusal::definite(
        Code::Unauthenticated,
        "what was shown to say who asks is not valid, or not any more: ask whoever administers \
         the cluster for a token; nothing was done",
    )
}

fn forbidden(who: &Who) -> Refusal {
    let who = match who {
        Who::Known(identity) => &identity.principal,
        Who::Peer(name) | Who::For(name) => &**name,
        Who::Node | Who::Nobody => "nobody known",
    };
    let detail = format!(
        "{who} may not do this: no role of it gives the right; whoever administers the cluster \
         can change that; nothing was done"
    );
    Refusal::definite(Code::Forbidden, detail)
}
