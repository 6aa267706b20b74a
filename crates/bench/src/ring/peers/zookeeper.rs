//! `ZooKeeper` while its members change.
//!
//! **Changes**, as its *Dynamic reconfiguration* has them. A new server is started with a list of
//! the members and itself, follows without a vote, and is added by `reconfig`. One that is removed
//! by `reconfig` goes on without a vote, and is then ended. There is no command that moves the
//! leader: a `reconfig` that leaves it out lets it name its successor and step down, and a second
//! one takes it in again. A restart, the other way, has to wait until the others miss it.
//!
//! **Clients** have one session, and find another server by themselves. The documentation leaves
//! to them what is to be done with `ConnectionLoss`: what may be done twice is asked again, and
//! that is all that there is here, for a write replaces the whole value. A lock is the usual recipe
//! with ephemeral sequential nodes, whose names begin with the session's, so that a client finds
//! its own again after such a loss. A session that has expired is replaced by a new one.
//!
//! **A linearizable read** is `sync` and then the read, as the documentation has it. A leader that
//! has just been replaced, and does not know it yet, may still answer the `sync`.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fermata_peers::System;
use tokio::sync::RwLock;
use zookeeper_client::{Acls, Client as Session, CreateMode, CreateOptions, EnsembleUpdate, Error};

use super::super::subject::Subject;
use super::{Ensemble, PATIENCE, PAUSE, Peer};
use crate::music::place::Place;
use crate::music::system::Boxed;

/// How long a lock outlives its client.
const SESSION: Duration = Duration::from_secs(20);

/// Sessions that a client opens until one is at the server that it prefers.
const OPENED_MAX: usize = 64;

const VALUES: &str = "/ring/values";
const LOCKS: &str = "/ring/locks";

/// What comes before the number in the names of those who wait for a lock, behind their session's.
const PREFIX: &str = "lock-";

/// Before something is asked again: a client says at once that it has no server.
const LOSS: Duration = Duration::from_millis(10);

const MEMBER: CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const NODE: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Three members, and a spare.
pub(crate) struct Zookeeper {
    ensemble: Ensemble,
}

impl Zookeeper {
    /// Starts three members, one a site.
    pub(crate) fn start(place: &Place) -> Result<Zookeeper> {
        let ensemble = Ensemble::start(System::Zookeeper, place)?;
        Ok(Zookeeper { ensemble })
    }

    /// Makes a server a member, or not, through the others.
    fn change(&self, server: u8, joins: bool) -> Result<()> {
        let others = self.ensemble.endpoints().into_iter();
        let others = others.filter(|(i, _)| *i != server);
        let addresses: Vec<String> = others.map(|(_, address)| address.to_string()).collect();
        let line = self.ensemble.cluster.member(server);
        let changed = async move { change(&addresses.join(","), server, &line, joins).await };
        self.ensemble.at(0, changed)
    }

    fn remove_one(&mut self, removed: u8) -> Result<()> {
        self.change(removed, false)?;
        self.ensemble.end(removed, false)
    }
}

impl Peer for Zookeeper {
    fn durability(&self) -> String {
        self.ensemble.cluster.durability()
    }

    fn leader(&self) -> Result<u8> {
        let begun = Instant::now();
        loop {
            let mut nodes = self.ensemble.cluster.nodes().into_iter();
            let leader = nodes.find(|node| node.says.as_deref() == Ok("leader"));
            match leader {
                Some(leader) => return Ok(leader.number),
                None if begun.elapsed() > PATIENCE => bail!("no server of ZooKeeper leads"),
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    fn add(&mut self) -> Result<()> {
        let spare = self.ensemble.spare()?;
        self.ensemble.start_spare(spare)?;
        self.change(spare, true)?;
        self.ensemble.members.insert(spare);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let removed = self.ensemble.other_first(self.leader()?)?;
        self.remove_one(removed)
    }

    fn remove_leader(&mut self) -> Result<()> {
        let leader = self.leader()?;
        self.remove_one(leader)
    }

    fn move_leader(&mut self) -> Result<()> {
        let leader = self.leader()?;
        self.change(leader, false)?;
        self.change(leader, true)?;
        match self.leader()? == leader {
            true => bail!("server {leader} still leads"),
            false => Ok(()),
        }
    }

    fn client(&self, site: usize) -> Result<Arc<dyn Subject>> {
        let known = self.ensemble.known(site);
        let client = async move {
            let preferred = known.first().context("it knows nobody")?.0;
            let servers = known.into_iter().map(|(_, address)| address);
            let servers = servers.collect::<Vec<_>>().join(",");
            Client::connect(servers, preferred).await
        };
        Ok(Arc::new(self.ensemble.at(site, client)?))
    }
}

/// Asks for a change of the members until they are so. What has an answer that was lost is not
/// asked for again where it has been done.
async fn change(servers: &str, server: u8, line: &str, joins: bool) -> Result<()> {
    let begun = Instant::now();
    let session = open(servers).await?;
    let wanted = format!("server.{server}=");
    let number = server.to_string();
    let mut refused = None;
    loop {
        let _ = session.sync("/zookeeper/config").await;
        match session.get_config().await {
            Ok((members, _)) => {
                let members = String::from_utf8_lossy(&members);
                if members.lines().any(|l| l.starts_with(&wanted)) == joins {
                    return Ok(());
                }
            }
            Err(why) => refused = Some(why),
        }
        let (joinings, leavings) = match joins {
            true => (line, ""),
            false => ("", number.as_str()),
        };
        let update = EnsembleUpdate::Incremental {
            joinings: std::iter::once(joinings),
            leavings: std::iter::once(leavings),
        };
        match session.update_ensemble(update, None).await {
            Ok(_) => return Ok(()),
            Err(why) => refused = Some(why).or(refused),
        }
        if begun.elapsed() > PATIENCE {
            let why = refused.map_or_else(String::new, |why| format!(": {why}"));
            bail!("the members of ZooKeeper do not change{why}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn open(servers: &str) -> Result<Session, Error> {
    let connector = Session::connector().with_session_timeout(SESSION);
    connector.connect(servers).await
}

/// A client: one session with one server, and after the loss of that with any.
struct Client {
    servers: String,
    session: RwLock<Session>,
    /// Locks in whose queues this client may have a node that it does not know of.
    doubts: Mutex<BTreeSet<String>>,
}

impl Client {
    /// Connects to the server that it prefers. The library takes any, as `ZooKeeper`'s own does, so
    /// it is let choose again until it has taken that.
    async fn connect(servers: String, preferred: u8) -> Result<Client> {
        let mut session = open(&servers).await?;
        for _ in 1..OPENED_MAX {
            // A session's number begins with that of the server which has opened it.
            if session.session_id().0.to_be_bytes()[0] == preferred {
                break;
            }
            session = open(&servers).await?;
        }
        session.mkdir(VALUES, &NODE).await?;
        session.mkdir(LOCKS, &NODE).await?;
        Ok(Client {
            servers,
            session: RwLock::new(session),
            doubts: Mutex::default(),
        })
    }

    /// The session, or a new one where it has ended.
    async fn session(&self) -> Result<Session, Error> {
        let session = self.session.read().await.clone();
        if !session.state().is_terminated() {
            return Ok(session);
        }
        let mut session = self.session.write().await;
        if session.state().is_terminated() {
            *session = open(&self.servers).await?;
        }
        Ok(session.clone())
    }

    /// Does something that may be done twice, until it is known to be done.
    async fn tried<T, W>(&self, ask: impl Fn(Session) -> W) -> Result<T>
    where
        W: Future<Output = Result<T, Error>>,
    {
        let begun = Instant::now();
        loop {
            let done = match self.session().await {
                Ok(session) => ask(session).await,
                Err(why) => Err(why),
            };
            match done {
                Err(why) if is_lost(&why) && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(LOSS).await;
                }
                done => return Ok(done?),
            }
        }
    }
}

/// Whether an answer was lost with its connection or session.
fn is_lost(why: &Error) -> bool {
    matches!(
        why,
        Error::ConnectionLoss
            | Error::SessionExpired
            | Error::SessionMoved
            | Error::ClientClosed
            | Error::Timeout
            | Error::NoHosts
            // What the socket said.
            | Error::Custom(_)
    )
}

impl Subject for Client {
    fn read<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Vec<u8>>> {
        let path = format!("{VALUES}/{key}");
        Box::pin(async move {
            self.tried(|session| {
                let path = &path;
                async move {
                    // Both are sent at once; a session's requests are answered in order.
                    let synced = session.sync(path);
                    let read = session.get_data(path);
                    synced.await?;
                    match read.await {
                        Ok((value, _)) => Ok(Some(value)),
                        Err(Error::NoNode) => Ok(None),
                        Err(why) => Err(why),
                    }
                }
            })
            .await
        })
    }

    fn write<'a>(&'a self, key: &'a str, value: Vec<u8>) -> Boxed<'a, ()> {
        let path = format!("{VALUES}/{key}");
        Box::pin(async move {
            self.tried(|session| {
                let (path, value) = (&path, &value);
                async move {
                    match session.set_data(path, value, None).await {
                        Err(Error::NoNode) => {}
                        done => return done.map(drop),
                    }
                    match session.create(path, value, &NODE).await {
                        Err(Error::NodeExists) => {
                            session.set_data(path, value, None).await.map(drop)
                        }
                        done => done.map(drop),
                    }
                }
            })
            .await
        })
    }

    fn section<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        let lock = format!("{LOCKS}/{key}");
        Box::pin(async move {
            self.tried(|session| {
                let lock = &lock;
                async move {
                    let member = self.enter(&session, lock).await?;
                    leave(&session, &member).await
                }
            })
            .await
        })
    }
}

impl Client {
    /// Waits for a lock, and returns this session's node in its queue. An earlier call that has
    /// failed may have left one; that is taken again.
    async fn enter(&self, session: &Session, lock: &str) -> Result<String, Error> {
        let prefix = format!("{:016x}-{PREFIX}", session.session_id().0);
        let mut member = None;
        if self.doubts().contains(lock) {
            // Without it, this server may not have what the one before has done.
            session.sync(lock).await?;
            let waiting = waiting(session, lock).await?;
            member = waiting.into_iter().find(|name| name.starts_with(&prefix));
        }
        self.doubts().insert(lock.to_owned());
        let member = match member {
            Some(member) => member,
            None => join(session, lock, &prefix).await?,
        };
        loop {
            let waiting = waiting(session, lock).await?;
            let turn = waiting.iter().position(|name| *name == member);
            match turn {
                None => return Err(Error::SessionExpired),
                Some(0) => break,
                Some(turn) => {
                    let before = format!("{lock}/{}", waiting[turn - 1]);
                    let (stat, gone) = session.check_and_watch_stat(&before).await?;
                    if stat.is_some() {
                        gone.changed().await;
                    }
                }
            }
        }
        self.doubts().remove(lock);
        Ok(format!("{lock}/{member}"))
    }

    fn doubts(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.doubts.lock().expect("nobody panics with it")
    }
}

/// Joins the queue of a lock, whose node is made by whoever first misses it.
async fn join(session: &Session, lock: &str, prefix: &str) -> Result<String, Error> {
    let path = format!("{lock}/{prefix}");
    loop {
        match session.create(&path, b"", &MEMBER).await {
            Ok((_, sequence)) => return Ok(format!("{prefix}{sequence}")),
            Err(Error::NoNode) => session.mkdir(lock, &NODE).await?,
            Err(why) => return Err(why),
        }
    }
}

/// Who waits for a lock, in turn.
async fn waiting(session: &Session, lock: &str) -> Result<Vec<String>, Error> {
    let mut names = match session.list_children(lock).await {
        Err(Error::NoNode) => Vec::new(),
        done => done?,
    };
    // Ten digits, or more than ten, which come later.
    names.sort_by_key(|name| {
        let number = name.rsplit('-').next().unwrap_or_default();
        (number.len(), number.to_owned())
    });
    Ok(names)
}

/// Deletes a node in the queue of a lock. With the session it is gone, too.
async fn leave(session: &Session, member: &str) -> Result<(), Error> {
    loop {
        match session.delete(member, None).await {
            Err(Error::NoNode | Error::SessionExpired) => return Ok(()),
            Err(why) if is_lost(&why) && !session.state().is_terminated() => {
                tokio::time::sleep(LOSS).await;
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_asked_again_and_what_was_refused_is_not() {
        assert!(is_lost(&Error::ConnectionLoss));
        assert!(is_lost(&Error::SessionExpired));
        assert!(!is_lost(&Error::NoNode));
        assert!(!is_lost(&Error::BadVersion));
    }
}
