//! The audit log: who administered the cluster through this node, ended sections by force, or was
//! refused; one JSON object per line, and never a value or a secret.
//!
//! Lines are written by a thread of their own, so that a slow disk holds nobody up; those that find
//! no room are counted, and the number is written as soon as there is some. Refused requests are
//! many where somebody tries: beyond some in a second they are counted, too, and they have files of
//! their own, so that nobody who may do nothing can have the others rotate away.

use super::caller::Proof;
use super::{Caller, Who};
use crate::clock;
use crate::config::AuditConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fermata_api::Names;
use fermata_protocol::base::KeyId;
use fermata_protocol::request::{Operation, RingChange};
use fermata_protocol::{Refusal, Reply};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Lines that wait for the disk.
const WAITING_MAX: usize = 4_096;
/// Refused requests that are told in a second, on average, and at once.
const REFUSED_RATE: f64 = 20.0;
const REFUSED_BURST: f64 = 100.0;

/// Where lines go.
#[derive(Debug)]
pub(crate) struct Audit {
    node: String,
    keys: bool,
    /// None: nothing is written.
    lines: Option<SyncSender<Line>>,
    /// Lines that found no room.
    lost: Arc<AtomicU64>,
    /// How many more refused requests may be told, as of when, and how many were not.
    refused: Mutex<(f64, Instant, u64)>,
}

/// A line, and whether it is of a refused request.
type Line = (bool, String);

/// One act, until it is known how it ends.
#[derive(Debug)]
pub(crate) struct Entry {
    audit: Arc<Audit>,
    fields: Map<String, Value>,
    told: bool,
}

impl Audit {
    /// Begins to write where that is asked for.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn start(config: &AuditConfig, node: &str) -> Result<Audit, String> {
        let lost = Arc::<AtomicU64>::default();
        let lines = match &config.file {
            None => None,
            Some(path) => {
                let mut refused = path.clone().into_os_string();
                refused.push(".refused");
                let open = |path: &Path| Writer::open(path, config);
                let writers = [open(path)?, open(refused.as_ref())?];
                let (lines, waiting) = sync_channel(WAITING_MAX);
                let thread = std::thread::Builder::new().name("fermata-audit".into());
                let counts = lost.clone();
                let thread = thread.spawn(move || run(writers, &waiting, &counts));
                thread.map_err(|error| format!("cannot start a thread: {error}"))?;
                Some(lines)
            }
        };
        Ok(Audit {
            node: node.to_owned(),
            keys: config.keys,
            lines,
            lost,
            refused: Mutex::new((REFUSED_BURST, Instant::now(), 0)),
        })
    }

    fn write(&self, refused: bool, mut fields: Map<String, Value>) {
        let Some(lines) = &self.lines else {
            return;
        };
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            fields.insert("lost_before".into(), lost.into());
        }
        let line = Value::Object(fields).to_string();
        if lines.try_send((refused, line)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// What is told of every line.
    fn begin(&self, event: &str, caller: &Caller) -> Map<String, Value> {
        let wall = i128::from(clock::wall()) * 1_000;
        let time = OffsetDateTime::from_unix_timestamp_nanos(wall).ok();
        let time = time.and_then(|time| time.format(&Rfc3339).ok());
        let mut fields = Map::new();
        fields.insert("time".into(), time.into());
        fields.insert("node".into(), self.node.clone().into());
        fields.insert("event".into(), event.into());
        let (principal, by) = match &caller.who {
            Who::Node => (Value::Null, "the node".to_owned()),
            Who::For(principal) => ((**principal).into(), "the node".into()),
            Who::Nobody => (Value::Null, "nothing".into()),
            Who::Peer(label) => (Value::Null, format!("certificate of node {label}")),
            Who::Known(identity) => {
                let by = match identity.proof {
                    Proof::Token(id) => format!("token {id}"),
                    Proof::Certificate(_) => "certificate".into(),
                    Proof::Issuer(_) => "issuer".into(),
                    Proof::Peer => "another node".into(),
                    Proof::Recovery => "recovery".into(),
                };
                (identity.principal.clone().into(), by)
            }
        };
        fields.insert("principal".into(), principal);
        fields.insert("by".into(), by.into());
        if let Some(from) = caller.from {
            fields.insert("from".into(), from.to_string().into());
        }
        fields
    }

    fn key(&self, fields: &mut Map<String, Value>, names: &Names, id: &KeyId) {
        fields.insert("keyspace".into(), names.keyspace_name(id.keyspace).into());
        if self.keys {
            let (name, value) = match std::str::from_utf8(&id.key) {
                Ok(text) => ("key", text.to_owned()),
                Err(_) => ("key_base64", STANDARD.encode(&id.key)),
            };
            fields.insert(name.into(), value.into());
        }
    }

    /// An act of which whoever administers the cluster will want to know; none: it is no such one.
    pub(crate) fn act(
        self: &Arc<Audit>,
        caller: &Caller,
        names: &Names,
        (name, operation): (&str, &Operation),
        changes: &[String],
    ) -> Option<Entry> {
        self.lines.as_ref()?;
        let mut fields = self.begin(name, caller);
        match operation {
            Operation::Release { key, lock_ref } => {
                self.key(&mut fields, names, key);
                fields.insert("lock_ref".into(), lock_ref.0.into());
            }
            Operation::CreateKeyspace(keyspace) => {
                fields.insert("keyspace".into(), keyspace.name.clone().into());
            }
            Operation::ChangeKeyspace { keyspace, .. } | Operation::DeleteKeyspace { keyspace } => {
                fields.insert("keyspace".into(), names.keyspace_name(*keyspace).into());
            }
            Operation::ChangeSettings(setting) => {
                fields.insert("setting".into(), format!("{setting:?}").into());
            }
            Operation::Admit { newcomer, .. } => {
                fields.insert("label".into(), newcomer.label.clone().into());
            }
            // Nodes tell each other where they are.
            Operation::ChangeRing(RingChange::Readdress { .. }) => return None,
            Operation::ChangeRing(change) => {
                fields.insert("change".into(), format!("{change:?}").into());
            }
            Operation::ChangeAccess { .. } => {
                fields.insert("changes".into(), json!(changes));
            }
            _ => return None,
        }
        Some(Entry {
            audit: self.clone(),
            fields,
            told: false,
        })
    }

    /// A request that was refused since its caller may not make it, or is not known.
    pub(crate) fn refused(
        &self,
        caller: &Caller,
        what: &str,
        (refusal, why): (&Refusal, Option<&str>),
    ) {
        if self.lines.is_none() {
            return;
        }
        let suppressed = {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, before, suppressed) = *refused;
            let now = Instant::now();
            let earned = now.duration_since(before).as_secs_f64() * REFUSED_RATE;
            let left = (left + earned).min(REFUSED_BURST);
            if left < 1.0 {
                *refused = (left, now, suppressed + 1);
                return;
            }
            *refused = (left - 1.0, now, 0);
            suppressed
        };
        let mut fields = self.begin("refused", caller);
        fields.insert("operation".into(), what.into());
        fields.insert("outcome".into(), refusal.code.name().into());
        if let Some(why) = why {
            fields.insert("why".into(), why.into());
        }
        if suppressed > 0 {
            fields.insert("refused_before".into(), suppressed.into());
        }
        self.write(true, fields);
    }
}

impl Entry {
    /// It has ended so.
    pub(crate) fn end(&mut self, reply: &Reply) {
        let (outcome, unknown) = match reply {
            Reply::Refused(refusal) => (refusal.code.name(), refusal.may_have_taken_effect),
            _ => ("done", false),
        };
        self.tell(outcome, unknown);
    }

    fn tell(&mut self, outcome: &str, unknown: bool) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let mut fields = std::mem::take(&mut self.fields);
        fields.insert("outcome".into(), outcome.into());
        if unknown {
            fields.insert("may_have_taken_effect".into(), true.into());
        }
        self.audit.write(false, fields);
    }
}

/// Whoever asked has gone before the answer, or the node stops.
impl Drop for Entry {
    fn drop(&mut self) {
        self.tell("unknown", true);
    }
}

/// Writes until nobody has lines any more: acts with the first, refused requests with the second.
fn run(mut writers: [Writer; 2], waiting: &Receiver<Line>, lost: &AtomicU64) {
    while let Ok((refused, line)) = waiting.recv() {
        let writer = &mut writers[usize::from(refused)];
        let written = writer.write(&line);
        lost.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
        match written {
            Ok(()) => writer.complained = false,
            Err(error) if !writer.complained => {
                let path = writer.path.display();
                tracing::error!("the audit log {path} cannot be written: {error}");
                writer.complained = true;
            }
            Err(_) => {}
        }
    }
}

/// A file, and those before it.
struct Writer {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
    files: usize,
    complained: bool,
}

impl Writer {
    fn open(path: &Path, config: &AuditConfig) -> Result<Writer, String> {
        let failed = |error| format!("cannot write {}: {error}", path.display());
        let file = append(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Writer {
            path: path.to_owned(),
            file,
            bytes,
            most: config.file_bytes,
            files: config.files,
            complained: false,
        })
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        if !self.is_in_place()? {
            self.begin()?;
        }
        if self.bytes > 0 && self.bytes + line.len() as u64 + 1 > self.most {
            for number in (1..self.files).rev() {
                let from = self.numbered(number);
                if from.exists() {
                    std::fs::rename(from, self.numbered(number + 1))?;
                }
            }
            std::fs::rename(&self.path, self.numbered(1))?;
            self.begin()?;
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes += line.len() as u64 + 1;
        Ok(())
    }

    /// Whether the file is where it was made, and nobody has moved it away.
    fn is_in_place(&self) -> std::io::Result<bool> {
        let own = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn begin(&mut self) -> std::io::Result<()> {
        self.file = append(&self.path)?;
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// A file that is its owner's alone.
fn append(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fermata_protocol::Code;
    use fermata_protocol::base::{Keyspace, KeyspaceId, LockRef};
    use std::time::Duration;

    fn config(file: PathBuf, keys: bool) -> AuditConfig {
        AuditConfig {
            file: Some(file),
            keys,
            ..AuditConfig::default()
        }
    }

    /// The lines, once there are so many.
    fn lines(path: &Path, count: usize) -> Vec<Value> {
        loop {
            let text = std::fs::read_to_string(path).unwrap();
            if text.lines().count() >= count {
                let parse = |line| serde_json::from_str(line).unwrap();
                return text.lines().map(parse).collect();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn release() -> Operation {
        let key = KeyId {
            keyspace: KeyspaceId(1),
            key: Bytes::from_static(b"secret-key"),
        };
        Operation::Release {
            key,
            lock_ref: LockRef(7),
        }
    }

    #[test]
    fn an_act_is_told_with_its_end_and_without_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let names = Names::new(&Keyspace::built_in(), vec![]);
        for (keys, file) in [(false, "without"), (true, "with")] {
            let path = dir.path().join(file);
            let audit = Arc::new(Audit::start(&config(path.clone(), keys), "n1").unwrap());
            let act = ("release", &release());
            let mut entry = audit.act(&Caller::NOBODY, &names, act, &[]).unwrap();
            entry.end(&Reply::Done { tag: None });
            drop(entry);
            drop(audit.act(&Caller::NOBODY, &names, act, &[]));
            let told = lines(&path, 2);
            assert_eq!(told[0]["event"], "release");
            assert_eq!(told[0]["outcome"], "done");
            assert_eq!(told[0]["keyspace"], "default");
            assert_eq!(told[0]["key"].is_string(), keys);
            assert_eq!(told[1]["outcome"], "unknown");
            let read = Operation::Status;
            assert!(
                audit
                    .act(&Caller::NOBODY, &names, ("status", &read), &[])
                    .is_none()
            );
        }
    }

    #[test]
    fn refusals_are_sampled_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let audit = Audit::start(&config(path, false), "n1").unwrap();
        let path = dir.path().join("audit.refused");
        let refusal = Refusal::definite(Code::Forbidden, "no");
        let refuse = || audit.refused(&Caller::NOBODY, "get", (&refusal, None));
        (0..5_000).for_each(|_| refuse());
        let told = lines(&path, 100).len();
        assert!((100..=200).contains(&told), "{told}");
        std::thread::sleep(Duration::from_millis(100));
        refuse();
        let told = lines(&path, told + 1);
        let before = |line: &Value| line["refused_before"].as_u64().unwrap_or(0);
        let before: u64 = told.iter().map(before).sum();
        assert_eq!(before + told.len() as u64, 5_001);
    }

    #[test]
    fn files_are_of_bounded_size_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let bounded = AuditConfig {
            file_bytes: 100,
            files: 2,
            ..config(path.clone(), false)
        };
        let mut writer = Writer::open(&path, &bounded).unwrap();
        for number in 0..10 {
            writer.write(&format!("{number:040}")).unwrap();
        }
        let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        let sizes = files.iter().map(|file| file.metadata().unwrap().len());
        assert_eq!(sizes.collect::<Vec<_>>(), [82, 82, 82]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().any(|line| line.ends_with('9')));
        // One that was moved away stays as it is.
        let away = dir.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        writer.write("next").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(std::fs::read_to_string(away).unwrap(), text);
    }
}
