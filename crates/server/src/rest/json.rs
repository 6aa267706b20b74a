//! What REST takes and gives, as JSON. Bytes that are text travel as text; all bytes travel as
//! base64 under a name of their own.

use super::micros;
use super::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use fermata_api::condition::Version;
use fermata_api::v1::change_settings_request::Setting as WireSetting;
use fermata_api::{Names, v1};
use fermata_protocol::base::{GroupId, Keyspace, NodeName, SessionId, SiteId, Tag};
use fermata_protocol::base::{Purpose, TagRule};
use fermata_protocol::request::{
    ClosedStatus, Entered, Inspection, Mode, MovingStatus, NodeStatus, QueueEntry, StorageStatus,
    UpkeepStatus,
};
use fermata_protocol::settings::{Join, Settings};
use serde::{Deserialize, Serialize};

/// Bytes given as text or as base64, one of them.
pub(super) fn bytes_of(
    text: Option<String>,
    base64: Option<String>,
    what: &str,
) -> Result<Option<Bytes>, Problem> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(coded)) => match STANDARD.decode(coded) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(_) => Err(Problem::bad(format!(
                "{what}_base64 is not base64 (with padding)"
            ))),
        },
        (Some(_), Some(_)) => Err(Problem::bad(format!(
            "give {what} or {what}_base64, one of them"
        ))),
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn hex(id: u128) -> String {
    format!("{id:032x}")
}

/// A value to write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewValue {
    #[serde(default)]
    pub(super) value: Option<String>,
    #[serde(default)]
    pub(super) value_base64: Option<String>,
}

/// A value read.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    /// Absent where the bytes are no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    value_base64: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<TagOut>,
}

impl Value {
    pub(super) fn new(value: &[u8], tag: Tag) -> Value {
        Value {
            value: text(value),
            value_base64: STANDARD.encode(value),
            tag: (tag != Tag::ZERO).then(|| tag.into()),
        }
    }
}

/// A tag.
#[derive(Debug, Serialize)]
pub(super) struct TagOut {
    lock_ref: u64,
    sequence: u64,
    writer: String,
}

impl From<Tag> for TagOut {
    fn from(tag: Tag) -> TagOut {
        TagOut {
            lock_ref: tag.lock_ref.0,
            sequence: tag.sequence,
            writer: hex(tag.writer),
        }
    }
}

/// What was done.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    pub(super) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<TagOut>,
    /// The number that the write took in its section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<u64>,
    /// The version that the key has by a change under a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Done {
    /// Of a change under a condition.
    pub(super) fn under(version: Option<Version>) -> Done {
        Done {
            version: version.map(|version| version.to_string()),
            ..Done::new(None, None)
        }
    }

    pub(super) fn new(tag: Option<Tag>, sequence: Option<u64>) -> Done {
        Done {
            done: true,
            tag: tag.map(TagOut::from),
            sequence,
            version: None,
        }
    }
}

/// A key to lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyIn {
    #[serde(default = "default_keyspace")]
    pub(super) keyspace: String,
    #[serde(default)]
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) key_base64: Option<String>,
    /// In a list of acknowledged writes: the number of the key's last write, 0 for none.
    #[serde(default)]
    pub(super) sequence: Option<u64>,
}

pub(super) fn default_keyspace() -> String {
    "default".into()
}

impl KeyIn {
    pub(super) fn parse(self) -> Result<v1::Key, Problem> {
        let key = bytes_of(self.key, self.key_base64, "key")?;
        let key =
            key.ok_or_else(|| Problem::bad("a key of the list has neither key nor key_base64"))?;
        Ok(v1::Key {
            keyspace: self.keyspace,
            key,
        })
    }
}

/// Who counts the writes of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Counting {
    #[default]
    Server,
    Client,
}

/// Exclusive or shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeIn {
    #[default]
    Exclusive,
    Shared,
}

/// A section to enter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSection {
    pub(super) keys: Vec<KeyIn>,
    #[serde(default)]
    pub(super) mode: ModeIn,
    /// 0: answer at once, with a place in the queue if need be.
    #[serde(default)]
    pub(super) wait_ms: u64,
    #[serde(default)]
    pub(super) lease_ms: Option<u64>,
    /// What people see in the queue.
    #[serde(default)]
    pub(super) label: String,
    #[serde(default)]
    pub(super) counting: Counting,
}

/// How a client that counts leaves.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leave {
    #[serde(default)]
    pub(super) acknowledged: Vec<KeyIn>,
}

/// A section as its client sees it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    /// The section's name in paths; entering and resuming give it another.
    pub(super) id: String,
    /// `queued`, `entered`, `left`, `lost`, or `unknown` where its primary cannot be reached.
    pub(super) state: &'static str,
    /// Refs ahead, while queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ahead: Option<u32>,
    /// While queued: why the lock cannot be granted as things are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// How long the client may be silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_ms: Option<u64>,
    /// At entry: every key with its latest value, as far as they fit the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<SectionKey>,
}

/// One key at entry.
#[derive(Debug, Serialize)]
pub(super) struct SectionKey {
    keyspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    key_base64: String,
    lock_ref: u64,
    generation: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    /// The value did not fit the answer: the key's own path has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    omitted: bool,
}

impl SectionKey {
    pub(super) fn new(entered: &Entered, names: &Names) -> SectionKey {
        let held = &entered.held;
        let value = entered.value.known().flatten();
        SectionKey {
            keyspace: names.keyspace_name(held.key.keyspace),
            key: text(&held.key.key),
            key_base64: STANDARD.encode(&held.key.key),
            lock_ref: held.lock_ref.0,
            generation: held.generation,
            value: value.and_then(|v| text(v)),
            value_base64: value.map(|v| STANDARD.encode(v)),
            omitted: entered.value.is_omitted(),
        }
    }
}

/// A ref to end by force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    pub(super) lock_ref: u64,
}

/// One key of a listing.
#[derive(Debug, Serialize)]
pub(super) struct KeyOut {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    key_base64: String,
}

/// A listing.
#[derive(Debug, Serialize)]
pub(super) struct Keys {
    pub(super) keys: Vec<KeyOut>,
    /// There are more, or may be.
    pub(super) more: bool,
    /// Where the next page begins, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
}

/// What a cursor begins with: which list it is of, 32 digits. Of another it would leave keys out.
pub(super) fn list_of(keyspace: &str, prefix: &[u8]) -> String {
    Version::of(&[keyspace.as_bytes(), b"/", prefix].concat()).to_string()
}

/// The key after which the page of a cursor of `list` begins.
pub(super) fn key_of_cursor(cursor: &str, list: &str) -> Result<Bytes, Problem> {
    let key = cursor.strip_prefix(list);
    let key = key.and_then(|key| URL_SAFE_NO_PAD.decode(key).ok());
    let wrong = "the cursor is not one that the page before has told, of the same keyspace and \
                 prefix: send it with these, or begin without it";
    key.map(Bytes::from).ok_or_else(|| Problem::bad(wrong))
}

impl Keys {
    pub(super) fn new(keys: Vec<Bytes>, more: bool, list: &str) -> Keys {
        let one = |k: Bytes| KeyOut {
            key: text(&k),
            key_base64: STANDARD.encode(&k),
        };
        let last = keys.last().filter(|_| more);
        Keys {
            more,
            cursor: last.map(|last| format!("{list}{}", URL_SAFE_NO_PAD.encode(last))),
            keys: keys.into_iter().map(one).collect(),
        }
    }
}

/// A lock queue, head first.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    /// Present when the next holder must synchronize.
    #[serde(skip_serializing_if = "Option::is_none")]
    flag: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Entry {
    lock_ref: u64,
    generation: u32,
    session: String,
    mode: &'static str,
    site: String,
    since_us: u64,
    holds: bool,
    /// What its client calls itself.
    #[serde(skip_serializing_if = "str::is_empty")]
    label: String,
}

impl Queue {
    pub(super) fn new(entries: Vec<QueueEntry>, flag: Option<u64>, names: &Names) -> Queue {
        let one = |e: QueueEntry| Entry {
            lock_ref: e.lock_ref.0,
            generation: e.generation,
            session: session_out(e.session),
            mode: match e.mode {
                Mode::Exclusive => "exclusive",
                Mode::Shared => "shared",
            },
            site: names.site_name(e.site),
            since_us: e.since,
            holds: e.holds,
            label: e.label.as_str().into(),
        };
        Queue {
            entries: entries.into_iter().map(one).collect(),
            flag,
        }
    }
}

fn session_out(session: SessionId) -> String {
    hex(session.0)
}

/// One replica's cells of a key.
#[derive(Debug, Serialize)]
pub(super) struct Cells {
    node: u32,
    segment: u32,
    epoch: u64,
    tag: TagOut,
    fence: TagOut,
    value_bytes: Option<u64>,
    /// Of these, what the replica keeps.
    kept_bytes: Option<u64>,
    eventual_clock_us: Option<u64>,
    applied: u64,
}

impl Cells {
    /// `kept`: bytes that the replica keeps of the value.
    pub(super) fn new(i: Inspection, kept: Option<u64>) -> Cells {
        Cells {
            node: i.node.0,
            segment: i.segment.0,
            epoch: i.epoch.0,
            tag: i.tag.into(),
            fence: i.fence.into(),
            value_bytes: i.bytes,
            kept_bytes: kept,
            eventual_clock_us: i.eventual.map(|e| e.clock),
            applied: i.applied,
        }
    }
}

/// A keyspace, listed or to be created.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyspaceJson {
    name: String,
    /// `sections`, `registers` or `ledger`.
    purpose: String,
    /// Of a ledger: how far ahead it closes times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lead_ms: Option<u64>,
    /// `replicated`, `coded`, `treas-opt`, `oreas` or `ares`.
    #[serde(default = "replicated")]
    storage: String,
    /// f of a coded storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    faults: Option<u32>,
    /// delta of a coded storage; 3 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delta: Option<u32>,
    /// Shorter values are kept whole; 2048 bytes unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole_below: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag_before: Option<u8>,
    #[serde(default)]
    lease_ms: u64,
    #[serde(default)]
    section_max_ms: u64,
    #[serde(default)]
    id: u32,
}

/// Other times of a keyspace; what is not given stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimesJson {
    pub(super) lease_ms: Option<u64>,
    pub(super) section_max_ms: Option<u64>,
}

/// Another setting: one of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsJson {
    lease_ms: Option<u64>,
    format: Option<u32>,
    dead_after_ms: Option<u64>,
    join: Option<JoinJson>,
    nearest_leads: Option<bool>,
    key_bytes: Option<u64>,
    value_bytes: Option<u64>,
    move_rate: Option<u64>,
}

/// Which group gives a node a seat unasked.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum JoinJson {
    Off,
    Load,
    Latency,
    Resilient,
}

impl SettingsJson {
    /// The one change that is asked for.
    pub(super) fn change(self) -> Result<WireSetting, Problem> {
        let join = |policy| match policy {
            JoinJson::Off => v1::JoinPolicy::Unspecified,
            JoinJson::Load => v1::JoinPolicy::Load,
            JoinJson::Latency => v1::JoinPolicy::Latency,
            JoinJson::Resilient => v1::JoinPolicy::Resilient,
        };
        let join = |policy| WireSetting::Join(join(policy).into());
        let given = [
            self.lease_ms
                .map(micros)
                .transpose()?
                .map(WireSetting::LeaseUs),
            self.format.map(WireSetting::Format),
            self.dead_after_ms
                .map(micros)
                .transpose()?
                .map(WireSetting::DeadAfterUs),
            self.join.map(join),
            self.nearest_leads.map(WireSetting::NearestLeads),
            self.key_bytes.map(WireSetting::KeyBytes),
            self.value_bytes.map(WireSetting::ValueBytes),
            self.move_rate.map(WireSetting::MoveRate),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(change), None) => Ok(change),
            _ => Err(Problem::bad(
                "one setting is changed at a time: give lease_ms, format, dead_after_ms, join, \
                 nearest_leads, key_bytes, value_bytes or move_rate",
            )),
        }
    }
}

fn replicated() -> String {
    "replicated".into()
}

impl From<&Keyspace> for KeyspaceJson {
    fn from(k: &Keyspace) -> KeyspaceJson {
        KeyspaceJson {
            name: k.name.clone(),
            purpose: match k.purpose {
                Purpose::Sections => "sections".into(),
                Purpose::Registers => "registers".into(),
                Purpose::Ledger { .. } => "ledger".into(),
            },
            storage: k.storage.name().into(),
            faults: k.storage.terms().map(|terms| terms.faults.into()),
            delta: k.storage.terms().map(|terms| terms.delta.into()),
            whole_below: k.storage.terms().map(|terms| terms.whole_below),
            tag_before: match k.tag_rule {
                TagRule::Whole => None,
                TagRule::Before(byte) => Some(byte),
            },
            lead_ms: match k.purpose {
                Purpose::Ledger { lead } => Some(lead / 1_000),
                Purpose::Sections | Purpose::Registers => None,
            },
            lease_ms: k.lease / 1_000,
            section_max_ms: k.section_max / 1_000,
            id: k.id.0,
        }
    }
}

impl KeyspaceJson {
    pub(super) fn parse(self) -> Result<v1::Keyspace, Problem> {
        let purpose = match self.purpose.as_str() {
            "sections" => v1::Purpose::Sections,
            "registers" => v1::Purpose::Registers,
            "ledger" => v1::Purpose::Ledger,
            _ => {
                let why = "purpose is \"sections\", \"registers\" or \"ledger\"";
                return Err(Problem::bad(why));
            }
        };
        let storage = match self.storage.as_str() {
            "replicated" => v1::StoragePolicy::Replicated,
            "coded" => v1::StoragePolicy::Coded,
            "treas-opt" => v1::StoragePolicy::TreasOpt,
            "oreas" => v1::StoragePolicy::Oreas,
            "ares" => v1::StoragePolicy::Ares,
            _ => {
                let why = "storage is one of replicated, coded, treas-opt, oreas, ares";
                return Err(Problem::bad(why));
            }
        };
        let terms = match (self.faults, self.delta, self.whole_below) {
            (None, None, None) => None,
            (None, ..) => return Err(Problem::bad("a coded storage needs faults, which is f")),
            (Some(faults), delta, whole_below) => Some(v1::StorageTerms {
                faults,
                delta,
                whole_below,
            }),
        };
        Ok(v1::Keyspace {
            name: self.name,
            purpose: purpose.into(),
            storage: storage.into(),
            terms,
            tag_before: self.tag_before.map(u32::from),
            lease_us: micros(self.lease_ms)?,
            section_max_us: micros(self.section_max_ms)?,
            lead_us: micros(self.lead_ms.unwrap_or(0))?,
            id: 0,
        })
    }
}

/// The access policy, and which it is, or which it is to replace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Access {
    pub(super) version: u64,
    pub(super) policy: serde_json::Value,
}

/// The catalogue.
#[derive(Debug, Serialize)]
pub(super) struct Keyspaces {
    pub(super) keyspaces: Vec<KeyspaceJson>,
}

/// One node's state and the cluster as it was told of it.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    node: u32,
    label: String,
    site: String,
    version: &'static str,
    /// Another engine than the native one.
    #[serde(skip_serializing_if = "String::is_empty")]
    engine: String,
    healthy: bool,
    writable: bool,
    clock: ClockOut,
    alive: Vec<u32>,
    requests: u64,
    /// Sessions that it keeps for clients, MUSIC's locks included.
    sessions: u64,
    security: SecurityOut,
    /// What all nodes count alike, as this one knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsOut>,
    cluster: String,
    sites: Vec<String>,
    segment_bits: u32,
    groups: Vec<GroupOut>,
    nodes: Vec<NodeOut>,
    /// What this node stores of each keyspace.
    storage: Vec<Storage>,
    /// What it has done for its registers since it started.
    upkeep: Upkeep,
    /// What it moves out of earlier stores.
    moving: Moving,
    /// Connections that it has refused or ended since it started.
    closed: Vec<Closed>,
    logs: Vec<Log>,
}

/// How connections are secured.
#[derive(Debug, Serialize)]
struct SecurityOut {
    tls: bool,
    /// In clear, beyond loopback.
    exposed: bool,
    /// Until a certificate is over.
    ends_in_s: Option<i64>,
}

#[derive(Debug, Serialize)]
struct SettingsOut {
    /// How often it has changed.
    changes: u64,
    lease_ms: u64,
    /// While a node may not know of the change.
    before_ms: Option<u64>,
    request_ms: u64,
    /// What nodes write for each other.
    format: u16,
    /// While a node may not read it: the next one.
    raising: Option<u16>,
    /// 0: nobody is replaced unasked.
    dead_after_ms: u64,
    join: JoinJson,
    nearest_leads: bool,
    key_bytes: u64,
    value_bytes: u64,
    /// Bytes per second; 0: as fast as they can.
    move_rate: u64,
}

impl SettingsOut {
    fn new(settings: Settings) -> SettingsOut {
        SettingsOut {
            changes: settings.version,
            lease_ms: settings.lease / 1_000,
            before_ms: settings.before.map(|before| before / 1_000),
            request_ms: settings.request / 1_000,
            format: settings.format,
            raising: settings.raising,
            dead_after_ms: settings.dead_after / 1_000,
            join: match settings.join {
                None => JoinJson::Off,
                Some(Join::Load) => JoinJson::Load,
                Some(Join::Latency) => JoinJson::Latency,
                Some(Join::Resilient) => JoinJson::Resilient,
            },
            nearest_leads: settings.nearest_leads,
            key_bytes: settings.key_bytes,
            value_bytes: settings.value_bytes,
            move_rate: settings.move_rate,
        }
    }
}

#[derive(Debug, Serialize)]
struct ClockOut {
    state: &'static str,
    /// What that means.
    detail: &'static str,
    bound_us: Option<u64>,
    violations: u64,
    against: Option<u32>,
}

#[derive(Debug, Serialize)]
struct GroupOut {
    id: String,
    from: u32,
    to: u32,
    epoch: u64,
    members: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct NodeOut {
    node: u32,
    label: String,
    site: String,
    grpc: String,
    rest: String,
}

#[derive(Debug, Serialize)]
struct Log {
    /// Absent for the group's own log.
    segment: Option<u32>,
    epoch: u64,
    primary: Option<u32>,
    applied: u64,
    commands: u64,
    busy_keys: u64,
}

#[derive(Debug, Serialize)]
struct Storage {
    keyspace: String,
    keys: u64,
    dead: u64,
    damaged: u64,
    versions: u64,
    bytes: u64,
    expected_bytes: u64,
    reach: Option<ReachOut>,
}

/// Members that the node is in touch with, in the group that is the nearest to losing the
/// keyspace's quorum.
#[derive(Debug, Serialize)]
struct ReachOut {
    heard: u8,
    members: u8,
    needed: u8,
}

impl Storage {
    fn new(said: StorageStatus) -> Storage {
        let at_rest = said.at_rest;
        Storage {
            keyspace: said.keyspace,
            keys: at_rest.keys,
            dead: at_rest.dead,
            damaged: at_rest.damaged,
            versions: at_rest.versions,
            bytes: at_rest.bytes,
            expected_bytes: at_rest.expected,
            reach: said.reach.map(|reach| ReachOut {
                heard: reach.heard,
                members: reach.members,
                needed: reach.needed,
            }),
        }
    }
}

#[derive(Debug, Serialize)]
struct Upkeep {
    rounds: u64,
    looks: u64,
    uneven: u64,
    given: u64,
    taken: u64,
    refused: u64,
    settled: u64,
    buried: u64,
    rebuilt: u64,
    voids: u64,
    /// How long ago the last walk was completed.
    walked_us: Option<u64>,
}

impl Upkeep {
    fn new(said: UpkeepStatus) -> Upkeep {
        let counts = said.upkeep;
        Upkeep {
            rounds: counts.rounds,
            looks: counts.looks,
            uneven: counts.uneven,
            given: counts.given,
            taken: counts.taken,
            refused: counts.refused,
            settled: counts.settled,
            buried: counts.buried,
            rebuilt: said.rebuilt,
            voids: said.voids,
            walked_us: said.walked,
        }
    }
}

#[derive(Debug, Serialize)]
struct Moving {
    stores: u32,
    /// How long keys have been moving, or did until all had.
    took_us: u64,
    keys: u64,
    bytes: u64,
    /// About.
    keys_left: Option<u64>,
}

impl Moving {
    fn new(said: MovingStatus) -> Moving {
        Moving {
            stores: said.stores,
            took_us: said.took,
            keys: said.keys,
            bytes: said.bytes,
            keys_left: said.keys_left,
        }
    }
}

/// Those of one face and cause.
#[derive(Debug, Serialize)]
struct Closed {
    face: String,
    cause: String,
    detail: String,
    count: u64,
    /// How long ago the last one was.
    last_us: u64,
    who: String,
}

impl Closed {
    fn new(said: ClosedStatus) -> Closed {
        Closed {
            face: said.face,
            cause: said.cause,
            detail: said.detail,
            count: said.count,
            last_us: said.last,
            who: said.who,
        }
    }
}

impl Status {
    pub(super) fn new(status: NodeStatus, porter: &crate::porter::Porter, healthy: bool) -> Status {
        let name = |n: NodeName| n.0;
        let site = |s: SiteId| porter.names().site_name(s);
        let group = |g: &fermata_protocol::base::Group| GroupOut {
            id: id_out(g.id),
            from: g.from.0,
            to: g.to.0,
            epoch: g.view.epoch.0,
            members: g.view.nodes().map(name).collect(),
        };
        let known = porter.roster.known();
        let node = |n: &fermata_protocol::base::NodeInfo| NodeOut {
            node: n.name.0,
            label: n.label.clone(),
            site: known.site(n.site).to_owned(),
            grpc: n.addresses.grpc.clone(),
            rest: n.addresses.rest.clone(),
        };
        let log = |l: &fermata_protocol::request::LogStatus| Log {
            segment: l.segment.map(|s| s.0),
            epoch: l.epoch.0,
            primary: l.primary.map(name),
            applied: l.applied,
            commands: l.commands,
            busy_keys: l.busy_keys,
        };
        Status {
            node: status.node.0,
            label: status.label,
            site: site(status.site),
            version: env!("CARGO_PKG_VERSION"),
            engine: porter.engine.clone(),
            healthy,
            writable: status.writable,
            clock: ClockOut {
                state: status.clock.state.name(),
                detail: status.clock.state.sentence(),
                bound_us: status.clock.bound,
                violations: status.clock.violations,
                against: status.clock.against.map(name),
            },
            // Peers: the node itself is no news.
            alive: (status.alive.iter().copied())
                .filter(|peer| *peer != status.node)
                .map(name)
                .collect(),
            requests: status.requests,
            sessions: status.sessions,
            security: SecurityOut {
                tls: status.security.tls,
                exposed: status.security.exposed,
                ends_in_s: status.security.ends_in,
            },
            settings: status.settings.map(SettingsOut::new),
            cluster: hex(porter.cluster.0),
            sites: known.sites.clone(),
            segment_bits: porter.segment_bits.into(),
            groups: known.groups.iter().map(group).collect(),
            nodes: known.nodes.iter().map(node).collect(),
            storage: status.storage.into_iter().map(Storage::new).collect(),
            upkeep: Upkeep::new(*status.upkeep),
            moving: Moving::new(status.moving),
            closed: status.closed.into_iter().map(Closed::new).collect(),
            logs: status.logs.iter().map(log).collect(),
        }
    }
}

fn id_out(id: GroupId) -> String {
    hex(id.0)
}
