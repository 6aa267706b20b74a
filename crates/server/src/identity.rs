//! Whose data directory this is.
//!
//! **Problem.** A node counts in quorums as a durable memory, not as a name: a directory that is
//! empty, older or foreign must never answer for one that promised something (F8c).
//!
//! **Idea.** The first start draws 128 bits, the incarnation, and keeps the identity twice: as a
//! record in the store, durable before anything else, and in the file `identity.toml` for people.
//! Both must be there and agree. A store that lost its contents lacks the record; a directory of
//! another node, cluster or version shows in the file; either way the node does not start.
//!
//! ```text
//! data_dir/identity.toml     format version, cluster, node, incarnation
//! data_dir/store/            the write-ahead log and the table
//! ```

use crate::clock;
use crate::serve::Medium;
use fermata_driver::ballast::Ballast;
use fermata_driver::{Recall, batch};
use fermata_protocol::base::{ClusterId, Config, Incarnation, NodeId, NodeName};
use fermata_protocol::convert;
use fermata_protocol::request::Admitted;
use fermata_protocol::wire::{self, record};
use fermata_storage::{Batch, FileDisk, Options, Persisted, Store};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

/// The store's key of the identity. The protocol's records begin with `l`, `n` and `r`.
const RECORD: &[u8] = b"shell/identity";
const FILE: &str = "identity.toml";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    version: u16,
    cluster: String,
    node: u32,
    incarnation: String,
}

impl Identity {
    pub(crate) fn new(cluster: ClusterId, name: NodeName, incarnation: Incarnation) -> Identity {
        Identity {
            version: wire::VERSION,
            cluster: format!("{:032x}", cluster.0),
            node: name.0,
            incarnation: format!("{:032x}", incarnation.0),
        }
    }

    pub(crate) fn node(&self) -> NodeName {
        NodeName(self.node)
    }

    /// The cluster, where the file of that directory says one.
    pub(crate) fn cluster(&self, dir: &Path) -> Result<ClusterId, String> {
        let cluster = u128::from_str_radix(&self.cluster, 16);
        let wrong = |_| format!("the cluster in {} is no number", dir.display());
        cluster.map(ClusterId).map_err(wrong)
    }
}

/// The disk of a data directory's store, under the lock that keeps other processes away. Blocks.
fn medium(dir: &Path) -> Result<Medium, String> {
    let place = dir.join("store");
    let disk = FileDisk::open(&place);
    let disk = disk.map_err(|e| format!("cannot open {}: {e}", place.display()))?;
    Ok(Medium {
        disk: Arc::new(disk),
        options: Options::default(),
    })
}

/// Opens the data directory of a node, which is created if absent, with the store on `medium`, or
/// else in the directory. One of the version before is converted. Blocks.
///
/// # Errors
/// One sentence for the operator; nothing was changed in a directory that is not ours.
pub(crate) fn open(dir: &Path, config: &Config, given: Option<Medium>) -> Result<Opened, String> {
    let (cluster, name) = (config.cluster.id, config.name);
    let file = read(dir)?;
    if let Some(found) = &file {
        check(dir, found, cluster, name)?;
    } else {
        refuse_foreign(dir)?;
    }
    let place = dir.join("store");
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    let medium = given.map_or_else(|| medium(dir), Ok)?;
    let (mut store, _) = Store::open(medium.disk.clone(), medium.options)
        .map_err(|e| format!("cannot open {}: {e}", place.display()))?;
    let record = match store.get(RECORD) {
        Ok(record) => record,
        Err(_) => {
            return Err(format!(
                "the identity in {} is corrupt: {REPLACE}",
                place.display()
            ));
        }
    };
    let identity = match (file, record) {
        (file, Some(record)) => {
            let mut stored: Identity = wire::decode(&record)
                .map_err(|_| format!("the identity in {} is unreadable", place.display()))?;
            check(dir, &stored, cluster, name)?;
            if convert::FROM.contains(&stored.version) {
                stored = converted(dir, &mut store, config, stored)?;
            }
            let before = |file: &Identity| Identity {
                version: wire::VERSION,
                ..file.clone()
            };
            match file {
                // The first start was interrupted between record and file.
                None => write(dir, &stored)?,
                // Or a conversion was.
                Some(file) if convert::FROM.contains(&file.version) && before(&file) == stored => {
                    write(dir, &stored)?;
                }
                Some(file) if file != stored => {
                    return Err(format!(
                        "{} has {FILE} of another store than it holds: {REPLACE}",
                        dir.display()
                    ));
                }
                Some(_) => {}
            }
            stored
        }
        (Some(_), None) => {
            return Err(format!(
                "the store in {} has lost its contents: {REPLACE}",
                dir.display()
            ));
        }
        (None, None) => create(dir, &mut store, cluster, name)?,
    };
    let id = NodeId {
        name,
        incarnation: incarnation_of(dir, &identity.incarnation)?,
    };
    Ok(Opened {
        store,
        ballast: Ballast::new(medium.disk, medium.options.segment_bytes),
        id,
    })
}

/// What a data directory holds.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) ballast: Ballast,
    pub(crate) id: NodeId,
}

/// Makes a directory of the version before one of this version, in one batch with its identity.
fn converted(
    dir: &Path,
    store: &mut Store,
    config: &Config,
    before: Identity,
) -> Result<Identity, String> {
    let place = dir.display();
    let (from, to) = (before.version, wire::VERSION);
    let refused =
        |why| format!("{place} is of version {from}, and cannot be converted to {to}: {why}");
    let writes = convert::directory(from, config, &Recall(store)).map_err(refused)?;
    let identity = Identity {
        version: to,
        ..before
    };
    append(
        dir,
        store,
        batch(writes).put(RECORD, wire::encode(&identity)),
    )?;
    tracing::info!("{place} was of version {from}, and is of version {to} now");
    Ok(identity)
}

fn append(dir: &Path, store: &mut Store, batch: Batch) -> Result<(), String> {
    store.append(batch);
    let flush = store.take_flush().expect("a batch was appended");
    let done = flush.run();
    match done.outcome() {
        Persisted::Done => {}
        Persisted::Full(lack) => return Err(format!("cannot write to {}: {lack}", dir.display())),
        Persisted::Fatal(e) => return Err(format!("cannot write to {}: {e}", dir.display())),
    }
    store.flushed(done);
    Ok(())
}

const REPLACE: &str = "refusing to start, since promises may be lost; leave this node down, \
                       the others go on while they are a majority";

fn create(
    dir: &Path,
    store: &mut Store,
    cluster: ClusterId,
    name: NodeName,
) -> Result<Identity, String> {
    if !store.is_new() {
        return Err(format!(
            "the store in {} is no Fermata node's: {REPLACE}",
            dir.display()
        ));
    }
    let incarnation = clock::random().map_err(|e| format!("cannot draw an incarnation: {e}"))?;
    let identity = Identity::new(cluster, name, Incarnation(incarnation));
    append(
        dir,
        store,
        Batch::new().put(RECORD, wire::encode(&identity)),
    )?;
    write(dir, &identity)?;
    Ok(identity)
}

/// The store of a directory that is to be a node's which the cluster has admitted: it has the
/// node's identity and the registry, so that the node knows whom to ask, whoever of the cluster
/// file is still there. Then the file of the identity. Blocks.
pub(crate) fn found(dir: &Path, identity: &Identity, admitted: &Admitted) -> Result<(), String> {
    let medium = medium(dir)?;
    let opened = Store::open(medium.disk.clone(), medium.options);
    let (mut store, _) = opened.map_err(|e| format!("cannot open {}: {e}", dir.display()))?;
    let kept = store.get(RECORD);
    let kept = kept.map_err(|_| format!("the identity in {} is corrupt", dir.display()))?;
    match kept {
        Some(kept) if wire::decode(&kept).as_ref() == Ok(identity) => {}
        None if store.is_new() => {
            let batch = Batch::new()
                .put(RECORD, wire::encode(identity))
                .put(record::node("registry"), wire::encode(&admitted.registry))
                .put(record::node("catalogue"), wire::encode(&admitted.catalogue));
            append(dir, &mut store, batch)?;
        }
        _ => {
            return Err(format!(
                "the store in {} is another node's: choose an empty directory",
                dir.display()
            ));
        }
    }
    write(dir, identity)
}

pub(crate) fn incarnation_of(dir: &Path, text: &str) -> Result<Incarnation, String> {
    let incarnation = u128::from_str_radix(text, 16);
    let wrong = |_| format!("the incarnation in {} is no number", dir.display());
    incarnation.map(Incarnation).map_err(wrong)
}

pub(crate) fn read(dir: &Path) -> Result<Option<Identity>, String> {
    read_file(dir, FILE)
}

/// What a file of a data directory says; none without the file.
pub(crate) fn read_file<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, String> {
    let path = dir.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text)
            .map(Some)
            .map_err(|e| format!("{} is unreadable: {}", path.display(), e.message())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    }
}

fn write(dir: &Path, identity: &Identity) -> Result<(), String> {
    write_file(dir, FILE, identity)
}

/// Writes a file of a data directory that is not there.
pub(crate) fn keep_file(dir: &Path, name: &str, what: &impl Serialize) -> Result<(), String> {
    match dir.join(name).exists() {
        true => Ok(()),
        false => write_file(dir, name, what),
    }
}

/// Writes a file of a data directory, whole or not at all, and durably.
pub(crate) fn write_file(dir: &Path, name: &str, what: &impl Serialize) -> Result<(), String> {
    let path = dir.join(name);
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    let text = toml::to_string(what).expect("a table of plain values");
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&new, &path).map_err(failed)?;
    std::fs::File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(failed)
}

fn check(dir: &Path, found: &Identity, cluster: ClusterId, name: NodeName) -> Result<(), String> {
    let dir = dir.display();
    if !convert::FROM.contains(&found.version) && found.version != wire::VERSION {
        let (theirs, ours) = (found.version, wire::VERSION);
        return Err(format!(
            "{dir} has format version {theirs}, this build knows {ours}"
        ));
    }
    if found.cluster != format!("{:032x}", cluster.0) {
        return Err(format!(
            "{dir} belongs to cluster {}, this node to {:032x}: give it a directory of its own",
            found.cluster, cluster.0
        ));
    }
    if found.node != name.0 {
        return Err(format!(
            "{dir} belongs to node {}, this is node {}: give it a directory of its own",
            found.node, name.0
        ));
    }
    Ok(())
}

/// A directory without identity may hold nothing but what an interrupted first start left.
pub(crate) fn refuse_foreign(dir: &Path) -> Result<(), String> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("cannot read {}: {e}", dir.display())),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let begun = ["joining.toml", "cluster.toml", "node.toml"];
        let of_ours = name == "store" || begun.iter().any(|file| name == *file);
        let of_ours = of_ours || Path::new(&name).extension().is_some_and(|end| end == "new");
        if !of_ours {
            return Err(format!(
                "{} holds {} but no {FILE}: it is no data directory; choose an empty one",
                dir.display(),
                name.display()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Cluster, Limits, LockRef, Planted, Timing};

    const CLUSTER: ClusterId = ClusterId(7);
    const NODE: NodeName = NodeName(1);

    fn config(cluster: ClusterId, name: NodeName) -> Config {
        Config {
            name,
            cluster: Cluster {
                id: cluster,
                lowest_ref: LockRef(1),
                ..Cluster::default()
            },
            timing: Timing::default(),
            limits: Limits::default(),
            formats: wire::FORMATS,
            planted: Planted::NONE,
        }
    }

    fn opened(dir: &Path) -> Result<Opened, String> {
        open(dir, &config(CLUSTER, NODE), None)
    }

    #[test]
    fn a_directory_keeps_its_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new");
        let first = opened(&dir).unwrap().id;
        assert_eq!(opened(&dir).unwrap().id, first);
        std::fs::remove_file(dir.join(FILE)).unwrap();
        assert_eq!(opened(&dir).unwrap().id, first);
    }

    /// One that knew of no access policy would let everybody in until it heard of one.
    #[test]
    fn a_node_that_joins_begins_with_the_catalogue() {
        use fermata_protocol::catalogue::Catalogue;
        use fermata_protocol::registry::Registry;
        use fermata_protocol::settings::Settings;
        let temp = tempfile::tempdir().unwrap();
        let config = config(CLUSTER, NODE);
        let settings = Settings::beginning(&config.timing, &config.limits, wire::VERSION);
        let mut catalogue = Catalogue::default();
        let policy = bytes::Bytes::from_static(b"{}");
        catalogue.change_access(0, &policy, Planted::NONE).unwrap();
        let admitted = Admitted {
            name: NODE,
            cluster: config.cluster.clone(),
            registry: Registry::beginning(&config.cluster, settings),
            catalogue: catalogue.clone(),
        };
        let identity = Identity::new(CLUSTER, NODE, Incarnation(5));
        found(temp.path(), &identity, &admitted).unwrap();
        let medium = medium(temp.path()).unwrap();
        let (store, _) = Store::open(medium.disk.clone(), medium.options).unwrap();
        let kept = store.get(&record::node("catalogue")).unwrap();
        assert_eq!(kept, Some(wire::encode(&catalogue)));
    }

    #[test]
    fn a_foreign_or_emptied_directory_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("d");
        drop(opened(&dir).unwrap());
        let refused = |cluster, name| {
            open(&dir, &config(cluster, name), None)
                .map(|_| ())
                .unwrap_err()
        };
        assert!(refused(ClusterId(8), NODE).contains("belongs to cluster"));
        assert!(refused(CLUSTER, NodeName(2)).contains("belongs to node"));
        std::fs::remove_dir_all(dir.join("store")).unwrap();
        assert!(refused(CLUSTER, NODE).contains("lost its contents"));
        let other = temp.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("letters.txt"), "x").unwrap();
        let error = opened(&other).map(|_| ()).unwrap_err();
        assert!(error.contains("no data directory"), "{error}");
    }

    #[test]
    fn two_processes_do_not_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("d");
        let _held = opened(&dir).unwrap();
        assert!(opened(&dir).map(|_| ()).unwrap_err().contains("in use"));
    }
}
