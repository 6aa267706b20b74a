//! Requests.

use super::*;
use crate::v1::change_settings_request::Setting as WireSetting;
use crate::v1::session_request::Operation as Wire;
use fermata_protocol::base::{
    Keyspace, KeyspaceId, Label, Purpose, SiteId, StoragePolicy, TagRule, Terms,
};
use fermata_protocol::request::{Critical, Operation, Request};
use fermata_protocol::settings::Setting;

/// The request that a message asks for. `home` is the site of the node asked, which an empty site
/// name means.
///
/// # Errors
/// What is wrong with it; nothing was done. [`Wire::Cancel`] is no request and is refused here.
pub fn request_from_proto(wire: Wire, names: &Names, home: SiteId) -> Result<Request, Refusal> {
    let (header, operation) = operation_from(wire, names)?;
    let header = header.ok_or_else(|| bad("the request has no header"))?;
    if header.number == 0 {
        return Err(bad("number is 0: a session's requests are numbered from 1"));
    }
    if header.answered_through >= header.number {
        return Err(bad(
            "answered_through is not below number: this very request is open",
        ));
    }
    let site = match header.site.as_str() {
        "" => home,
        name => names.site(name).ok_or_else(|| unknown_site(names, name))?,
    };
    Ok(Request {
        session: proved(&header.secret)?,
        number: header.number,
        attempt: header.attempt,
        answered_through: header.answered_through,
        site,
        operation,
    })
}

fn setting(wire: Option<WireSetting>) -> Result<Setting, Refusal> {
    match wire {
        Some(WireSetting::LeaseUs(lease)) => Ok(Setting::Lease(lease)),
        Some(WireSetting::Format(number)) => format(number).map(Setting::Format),
        Some(WireSetting::DeadAfterUs(after)) => Ok(Setting::DeadAfter(after)),
        Some(WireSetting::Join(policy)) => join_from(policy).map(Setting::Join),
        Some(WireSetting::NearestLeads(so)) => Ok(Setting::NearestLeads(so)),
        Some(WireSetting::KeyBytes(bytes)) => Ok(Setting::KeyBytes(bytes)),
        Some(WireSetting::ValueBytes(bytes)) => Ok(Setting::ValueBytes(bytes)),
        Some(WireSetting::MoveRate(rate)) => Ok(Setting::MoveRate(rate)),
        None => Err(bad(
            "no setting is named: give lease_us, format, dead_after_us, join, nearest_leads, \
             key_bytes, value_bytes or move_rate",
        )),
    }
}

fn setting_to(setting: Setting) -> WireSetting {
    match setting {
        Setting::Lease(lease) => WireSetting::LeaseUs(lease),
        Setting::Format(format) => WireSetting::Format(format.into()),
        Setting::DeadAfter(after) => WireSetting::DeadAfterUs(after),
        Setting::Join(join) => WireSetting::Join(join_to(join)),
        Setting::NearestLeads(so) => WireSetting::NearestLeads(so),
        Setting::KeyBytes(bytes) => WireSetting::KeyBytes(bytes),
        Setting::ValueBytes(bytes) => WireSetting::ValueBytes(bytes),
        Setting::MoveRate(rate) => WireSetting::MoveRate(rate),
    }
}

fn unknown_site(names: &Names, name: &str) -> Refusal {
    let shown: String = name.chars().take(64).collect();
    bad(format!(
        "there is no site {shown:?}: the sites are {}",
        names.sites().join(", ")
    ))
}

type Parsed = (Option<v1::Header>, Operation);

fn operation_from(wire: Wire, names: &Names) -> Result<Parsed, Refusal> {
    let lookup = &mut Strict(names);
    Ok(match wire {
        Wire::Get(m) => {
            let key = key_from(lookup, m.key)?;
            (m.header, Operation::Get { key })
        }
        Wire::Put(m) => {
            let (key, value) = (key_from(lookup, m.key)?, m.value);
            (m.header, Operation::Put { key, value })
        }
        Wire::Read(m) => {
            let key = key_from(lookup, m.key)?;
            (m.header, Operation::Read { key })
        }
        Wire::Write(m) => {
            let (key, value) = (key_from(lookup, m.key)?, m.value);
            (m.header, Operation::Write { key, value })
        }
        Wire::Keys(m) => keys_from(m, names)?,
        Wire::Queue(m) => {
            let key = key_from(lookup, m.key)?;
            (m.header, Operation::Queue { key })
        }
        Wire::Inspect(m) => {
            let key = key_from(lookup, m.key)?;
            (m.header, Operation::Inspect { key })
        }
        Wire::CreateKeyspace(m) => {
            let wire = m
                .keyspace
                .ok_or_else(|| bad("the request has no keyspace"))?;
            (m.header, Operation::CreateKeyspace(keyspace_from(wire)?))
        }
        Wire::ChangeKeyspace(m) => (
            m.header,
            Operation::ChangeKeyspace {
                keyspace: keyspace(names, &m.keyspace)?,
                lease: m.lease_us,
                section_max: m.section_max_us,
            },
        ),
        Wire::DeleteKeyspace(m) => {
            let keyspace = keyspace(names, &m.keyspace)?;
            (m.header, Operation::DeleteKeyspace { keyspace })
        }
        Wire::ChangeSettings(m) => {
            let setting = setting(m.setting)?;
            (m.header, Operation::ChangeSettings(setting))
        }
        Wire::GetAccess(m) => (m.header, Operation::Access),
        Wire::ChangeAccess(m) => change_access_from(m),
        Wire::Ring(m) => (m.header, Operation::Ring),
        Wire::ChangeRing(m) => (m.header, ring::change_from(m.change)?),
        Wire::Admit(m) => {
            let operation = ring::admit_from(&m)?;
            (m.header, operation)
        }
        Wire::ListKeyspaces(m) => (m.header, Operation::Keyspaces),
        Wire::Status(m) => (m.header, Operation::Status),
        ledger @ (Wire::Transact(_) | Wire::Resolve(_) | Wire::Snapshot(_)) => {
            ledger::operation_from(ledger, names)?
        }
        Wire::Cancel(_) => return Err(bad("a cancel is not a request")),
        section => section_from(section, lookup)?,
    })
}

fn change_access_from(m: v1::ChangeAccessRequest) -> Parsed {
    let (after, policy) = (m.after, m.policy);
    (m.header, Operation::ChangeAccess { after, policy })
}

/// The part of [`operation_from`] that is about sections.
fn section_from(wire: Wire, lookup: &mut impl Lookup) -> Result<Parsed, Refusal> {
    Ok(match wire {
        Wire::Enter(m) => enter_from(m, lookup)?,
        Wire::CriticalPut(m) => critical_put_from(m, lookup)?,
        Wire::Resume(m) => {
            let held = some(all_held(lookup, m.held)?, "held")?;
            let of = proved(&m.secret)?;
            (m.header, Operation::Resume { held, of })
        }
        Wire::CriticalGet(m) => {
            let (held, operation) = (held_from(lookup, m.held)?, Critical::Get);
            let leave = Vec::new();
            (
                m.header,
                Operation::Critical {
                    held,
                    operation,
                    leave,
                },
            )
        }
        Wire::Leave(m) => {
            let keys = some(leaving_from(lookup, m.keys)?, "keys")?;
            (m.header, Operation::Leave { keys })
        }
        Wire::Renew(m) => {
            let held = some(all_held(lookup, m.held)?, "held")?;
            let operation = match m.relinquish {
                true => Operation::Relinquish { held },
                false => Operation::Renew { held },
            };
            (m.header, operation)
        }
        Wire::Release(m) => {
            if m.lock_ref == 0 {
                return Err(bad("lock_ref is 0: lock refs begin at 1"));
            }
            let (key, lock_ref) = (key_from(lookup, m.key)?, LockRef(m.lock_ref));
            (m.header, Operation::Release { key, lock_ref })
        }
        _ => unreachable!("only operations on sections come here"),
    })
}

fn some<T>(all: Vec<T>, field: &str) -> Result<Vec<T>, Refusal> {
    if all.is_empty() {
        return Err(bad(format!("{field} is empty: name at least one key")));
    }
    Ok(all)
}

/// The label in a text. Of a label that was taken once none of this is asked again.
///
/// # Errors
/// It is no label, or would show otherwise than it reads: it has another end of line, or changes
/// the direction of what follows.
pub fn label_from(text: &str) -> Result<Label, Refusal> {
    let misleads = |sign: char| matches!(sign, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let label = Label::new(text).filter(|_| !text.chars().any(misleads));
    label.ok_or_else(|| {
        let max = Label::MAX;
        bad(format!(
            "a label is one line of at most {max} bytes, without characters that change the \
             direction of text"
        ))
    })
}

fn enter_from(m: v1::EnterRequest, lookup: &mut impl Lookup) -> Result<Parsed, Refusal> {
    bounded(m.keys.len())?;
    let keys = m.keys.into_iter().map(|k| key_from(lookup, Some(k)));
    let mut keys = some(keys.collect::<Result<Vec<_>, _>>()?, "keys")?;
    let named = keys.len();
    keys.sort();
    keys.dedup();
    if keys.len() < named {
        return Err(bad(
            "a key is named twice: name every key of the section once",
        ));
    }
    let operation = Operation::Enter {
        keys,
        mode: mode_from(m.mode)?,
        wait: m.wait_us,
        follow: m.follow,
        lease: m.lease_us,
        may_return: m.may_return,
        label: label_from(&m.label)?,
    };
    Ok((m.header, operation))
}

fn critical_put_from(
    m: v1::CriticalPutRequest,
    lookup: &mut impl Lookup,
) -> Result<Parsed, Refusal> {
    let operation = Operation::Critical {
        held: held_from(lookup, m.held)?,
        operation: Critical::Put {
            number: sequence_from(m.sequence)?,
            value: m.value,
        },
        leave: leaving_from(lookup, m.leave)?,
    };
    Ok((m.header, operation))
}

fn keys_from(m: v1::KeysRequest, names: &Names) -> Result<Parsed, Refusal> {
    let limit = match m.limit {
        0 => KEYS_DEFAULT,
        limit if limit <= KEYS_MAX => limit,
        limit => {
            let detail = format!("limit {limit} is above {KEYS_MAX}: page with `after`");
            return Err(Refusal::definite(Code::TooLarge, detail));
        }
    };
    let operation = Operation::Keys {
        keyspace: keyspace(names, &m.keyspace)?,
        prefix: m.prefix,
        after: m.after,
        limit,
    };
    Ok((m.header, operation))
}

/// A keyspace to create, or one that a server lists.
pub(super) fn keyspace_from(m: v1::Keyspace) -> Result<Keyspace, Refusal> {
    let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
    if m.name.is_empty() || m.name.len() > 64 || !m.name.chars().all(fits) {
        return Err(bad("a keyspace's name is 1 to 64 of a-z 0-9 - _"));
    }
    let purpose = match v1::Purpose::try_from(m.purpose) {
        Ok(v1::Purpose::Sections) => Purpose::Sections,
        Ok(v1::Purpose::Registers) => Purpose::Registers,
        Ok(v1::Purpose::Ledger) => Purpose::Ledger { lead: m.lead_us },
        _ => {
            return Err(bad(
                "a keyspace's purpose is 1 (sections), 2 (registers) or 3 (ledger)",
            ));
        }
    };
    if m.lead_us != 0 && !purpose.is_ledger() {
        return Err(bad("lead_us is of ledgers: leave it out"));
    }
    let storage = storage_from(m.storage, m.terms)?;
    let tag_rule = match m.tag_before {
        None => TagRule::Whole,
        Some(byte) => TagRule::Before(
            u8::try_from(byte).map_err(|_| bad("tag_before is one byte, 0 to 255"))?,
        ),
    };
    let [built_in, _] = Keyspace::built_in();
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    Ok(Keyspace {
        id: KeyspaceId(m.id),
        name: m.name,
        purpose,
        storage,
        tag_rule,
        lease: or(m.lease_us, built_in.lease),
        section_max: or(m.section_max_us, built_in.section_max),
    })
}

/// A storage policy by its number and terms.
fn storage_from(number: i32, terms: Option<v1::StorageTerms>) -> Result<StoragePolicy, Refusal> {
    let policy = v1::StoragePolicy::try_from(number)
        .map_err(|_| bad("a keyspace's storage is 1 (replicated) to 5 (ares)"))?;
    let coded = match policy {
        v1::StoragePolicy::Unspecified | v1::StoragePolicy::Replicated => {
            return match terms {
                None => Ok(StoragePolicy::Replicated),
                Some(_) => Err(bad("replicated storage has no terms: leave them out")),
            };
        }
        v1::StoragePolicy::Coded => StoragePolicy::Coded,
        v1::StoragePolicy::TreasOpt => StoragePolicy::TreasOpt,
        v1::StoragePolicy::Oreas => StoragePolicy::Oreas,
        v1::StoragePolicy::Ares => StoragePolicy::Ares,
    };
    let terms = terms.ok_or_else(|| bad("a coded storage needs terms: at least f, `faults`"))?;
    let small = |n: u32, what: &str| u8::try_from(n).map_err(|_| bad(what));
    let given = Terms::new(small(terms.faults, "f is at most 255")?);
    Ok(coded(Terms {
        delta: match terms.delta {
            Some(delta) => small(delta, "delta is at most 255")?,
            None => given.delta,
        },
        whole_below: terms.whole_below.unwrap_or(given.whole_below),
        ..given
    }))
}

fn storage_to(storage: StoragePolicy) -> (v1::StoragePolicy, Option<v1::StorageTerms>) {
    let number = match storage {
        StoragePolicy::Replicated => v1::StoragePolicy::Replicated,
        StoragePolicy::Coded(_) => v1::StoragePolicy::Coded,
        StoragePolicy::TreasOpt(_) => v1::StoragePolicy::TreasOpt,
        StoragePolicy::Oreas(_) => v1::StoragePolicy::Oreas,
        StoragePolicy::Ares(_) => v1::StoragePolicy::Ares,
    };
    let terms = storage.terms().map(|terms| v1::StorageTerms {
        faults: terms.faults.into(),
        delta: Some(terms.delta.into()),
        whole_below: Some(terms.whole_below),
    });
    (number, terms)
}

pub(super) fn keyspace_to(keyspace: &Keyspace) -> v1::Keyspace {
    let purpose = match keyspace.purpose {
        Purpose::Sections => v1::Purpose::Sections,
        Purpose::Registers => v1::Purpose::Registers,
        Purpose::Ledger { .. } => v1::Purpose::Ledger,
    };
    let (storage, terms) = storage_to(keyspace.storage);
    v1::Keyspace {
        name: keyspace.name.clone(),
        purpose: purpose.into(),
        storage: storage.into(),
        tag_before: match keyspace.tag_rule {
            TagRule::Whole => None,
            TagRule::Before(byte) => Some(byte.into()),
        },
        lease_us: keyspace.lease,
        section_max_us: keyspace.section_max,
        id: keyspace.id.0,
        terms,
        lead_us: match keyspace.purpose {
            Purpose::Ledger { lead } => lead,
            Purpose::Sections | Purpose::Registers => 0,
        },
    }
}

/// The message of a request, for a client, which knows the `secret` of each session that it names.
/// The request's site number is ignored: `site` is the name to send, empty for the site of the node
/// asked.
pub fn operation_to_proto(
    request: &Request,
    secret: &dyn Fn(SessionId) -> Secret,
    names: &Names,
    site: &str,
) -> Wire {
    let header = Some(header_to(request, secret, site));
    let key = |key: &KeyId| Some(key_to(names, key));
    match &request.operation {
        Operation::Enter { .. }
        | Operation::Critical { .. }
        | Operation::Leave { .. }
        | Operation::Renew { .. }
        | Operation::Relinquish { .. }
        | Operation::Resume { .. }
        | Operation::Release { .. } => section_to_proto(&request.operation, secret, header, names),
        Operation::Get { key: k } => {
            let key = key(k);
            Wire::Get(v1::GetRequest { header, key })
        }
        Operation::Put { key: k, value } => Wire::Put(v1::PutRequest {
            header,
            key: key(k),
            value: value.clone(),
        }),
        Operation::Read { key: k } => {
            let key = key(k);
            Wire::Read(v1::ReadRequest { header, key })
        }
        Operation::Write { key: k, value } => Wire::Write(v1::WriteRequest {
            header,
            key: key(k),
            value: value.clone(),
        }),
        Operation::Keys {
            keyspace,
            prefix,
            after,
            limit,
        } => Wire::Keys(v1::KeysRequest {
            header,
            keyspace: names.keyspace_name(*keyspace),
            prefix: prefix.clone(),
            after: after.clone(),
            limit: *limit,
        }),
        Operation::Queue { key: k } => {
            let key = key(k);
            Wire::Queue(v1::QueueRequest { header, key })
        }
        Operation::Inspect { key: k } => {
            let key = key(k);
            Wire::Inspect(v1::InspectRequest { header, key })
        }
        Operation::Status => Wire::Status(v1::StatusRequest { header }),
        Operation::Transact(_) | Operation::Resolve { .. } | Operation::Snapshot { .. } => {
            ledger::operation_to(&request.operation, header, names)
        }
        Operation::ChangeSettings(to) => Wire::ChangeSettings(v1::ChangeSettingsRequest {
            header,
            setting: Some(setting_to(*to)),
        }),
        Operation::Ring | Operation::ChangeRing(_) | Operation::Admit { .. } => {
            ring::operation_to(&request.operation, header)
        }
        Operation::CreateKeyspace(_)
        | Operation::ChangeKeyspace { .. }
        | Operation::DeleteKeyspace { .. }
        | Operation::Keyspaces
        | Operation::Access
        | Operation::ChangeAccess { .. }
        | Operation::Catalogue => catalogue_to_proto(&request.operation, header, names),
    }
}

fn header_to(request: &Request, secret: &dyn Fn(SessionId) -> Secret, site: &str) -> v1::Header {
    v1::Header {
        secret: secret_to(secret(request.session)),
        number: request.number,
        attempt: request.attempt,
        answered_through: request.answered_through,
        site: site.to_owned(),
    }
}

/// The part of [`operation_to_proto`] that is about keyspaces, and who may do what in them.
fn catalogue_to_proto(operation: &Operation, header: Option<v1::Header>, names: &Names) -> Wire {
    match operation {
        Operation::CreateKeyspace(keyspace) => {
            let keyspace = Some(keyspace_to(keyspace));
            Wire::CreateKeyspace(v1::CreateKeyspaceRequest { header, keyspace })
        }
        Operation::ChangeKeyspace {
            keyspace,
            lease,
            section_max,
        } => Wire::ChangeKeyspace(v1::ChangeKeyspaceRequest {
            header,
            keyspace: names.keyspace_name(*keyspace),
            lease_us: *lease,
            section_max_us: *section_max,
        }),
        Operation::DeleteKeyspace { keyspace } => {
            let keyspace = names.keyspace_name(*keyspace);
            Wire::DeleteKeyspace(v1::DeleteKeyspaceRequest { header, keyspace })
        }
        // Only nodes ask for the latter, themselves.
        Operation::Keyspaces | Operation::Catalogue => {
            Wire::ListKeyspaces(v1::ListKeyspacesRequest { header })
        }
        Operation::Access => Wire::GetAccess(v1::GetAccessRequest { header }),
        Operation::ChangeAccess { after, policy } => {
            let (after, policy) = (*after, policy.clone());
            Wire::ChangeAccess(v1::ChangeAccessRequest {
                header,
                after,
                policy,
            })
        }
        _ => unreachable!("only operations on the catalogue come here"),
    }
}

/// The part of [`operation_to_proto`] that is about sections.
fn section_to_proto(
    operation: &Operation,
    secret: &dyn Fn(SessionId) -> Secret,
    header: Option<v1::Header>,
    names: &Names,
) -> Wire {
    let all = |held: &[Held]| held.iter().map(|h| held_to(names, h)).collect();
    match operation {
        Operation::Enter {
            keys,
            mode,
            wait,
            follow,
            lease,
            may_return,
            label,
        } => Wire::Enter(v1::EnterRequest {
            header,
            keys: keys.iter().map(|k| key_to(names, k)).collect(),
            mode: mode_to(*mode).into(),
            wait_us: *wait,
            follow: *follow,
            lease_us: *lease,
            may_return: *may_return,
            label: label.as_str().into(),
        }),
        Operation::Critical {
            held,
            operation: Critical::Get,
            ..
        } => {
            let held = Some(held_to(names, held));
            Wire::CriticalGet(v1::CriticalGetRequest { header, held })
        }
        Operation::Critical {
            held,
            operation: Critical::Put { number, value },
            leave,
        } => Wire::CriticalPut(v1::CriticalPutRequest {
            header,
            held: Some(held_to(names, held)),
            sequence: *number,
            value: value.clone(),
            leave: leaving_to(names, leave),
        }),
        Operation::Leave { keys } => Wire::Leave(v1::LeaveRequest {
            header,
            keys: leaving_to(names, keys),
        }),
        Operation::Renew { held } | Operation::Relinquish { held } => {
            Wire::Renew(v1::RenewRequest {
                header,
                held: all(held),
                relinquish: matches!(operation, Operation::Relinquish { .. }),
            })
        }
        Operation::Resume { held, of } => Wire::Resume(v1::ResumeRequest {
            header,
            held: all(held),
            secret: secret_to(secret(*of)),
        }),
        Operation::Release { key, lock_ref } => Wire::Release(v1::ReleaseRequest {
            header,
            key: Some(key_to(names, key)),
            lock_ref: lock_ref.0,
        }),
        _ => unreachable!("only operations on sections come here"),
    }
}

/// Whether a request names a keyspace of which that is so.
pub fn names_keyspace(wire: &Wire, is: impl Fn(&str) -> bool) -> bool {
    let of = |key: &Option<v1::Key>| key.as_ref().is_some_and(|key| is(&key.keyspace));
    let held = |held: &Option<v1::Held>| held.as_ref().is_some_and(|h| of(&h.key));
    match wire {
        Wire::Enter(m) => m.keys.iter().any(|k| is(&k.keyspace)),
        Wire::Resume(m) => m.held.iter().any(|h| of(&h.key)),
        Wire::Renew(m) => m.held.iter().any(|h| of(&h.key)),
        Wire::Leave(m) => m.keys.iter().any(|l| held(&l.held)),
        Wire::CriticalPut(m) => held(&m.held) || m.leave.iter().any(|l| held(&l.held)),
        Wire::CriticalGet(m) => held(&m.held),
        Wire::Release(m) => of(&m.key),
        Wire::Get(m) => of(&m.key),
        Wire::Put(m) => of(&m.key),
        Wire::Read(m) => of(&m.key),
        Wire::Write(m) => of(&m.key),
        Wire::Queue(m) => of(&m.key),
        Wire::Inspect(m) => of(&m.key),
        Wire::Keys(m) => is(&m.keyspace),
        Wire::ChangeKeyspace(m) => is(&m.keyspace),
        Wire::DeleteKeyspace(m) => is(&m.keyspace),
        Wire::Transact(_) | Wire::Resolve(_) | Wire::Snapshot(_) => ledger::names(wire, &is),
        Wire::CreateKeyspace(_)
        | Wire::GetAccess(_)
        | Wire::ChangeAccess(_)
        | Wire::ChangeSettings(_)
        | Wire::Ring(_)
        | Wire::ChangeRing(_)
        | Wire::Admit(_)
        | Wire::ListKeyspaces(_)
        | Wire::Status(_)
        | Wire::Cancel(_) => false,
    }
}
