//! The peers while their members change: three of etcd or `ZooKeeper`, one a site, and a spare
//! beside the first.
//!
//! Each change is done as the system's own documentation has it, and has happened when its call
//! returns. What the documentation says stands in the essays of [`etcd`] and [`zookeeper`].

mod etcd;
mod zookeeper;

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fermata_peers::{Cluster, Spec, State, System};
use tokio::runtime::Handle;

use super::subject::Subject;
use crate::music::place::{Place, SITES};

pub(crate) use etcd::Etcd;
pub(crate) use zookeeper::Zookeeper;

/// What a change may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Before a change that was refused is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// What a member that was removed may take to end by itself.
const ENDING: Duration = Duration::from_secs(15);

/// A system whose members change. None of this may be called on a thread of a runtime.
pub(crate) trait Peer {
    /// When a write is on disk, in a sentence.
    fn durability(&self) -> String;

    /// The number of the member that leads.
    fn leader(&self) -> Result<u8>;

    /// Starts the spare, and makes it a member.
    fn add(&mut self) -> Result<()>;

    /// Removes the last of the first members that does not lead, and ends it.
    fn remove(&mut self) -> Result<()>;

    /// Removes the member that leads, and ends it.
    fn remove_leader(&mut self) -> Result<()>;

    /// Lets another member lead. The members stay.
    fn move_leader(&mut self) -> Result<()>;

    /// A new client at a site, from 0 on. It prefers the site's own member, and knows the others
    /// and the spare.
    fn client(&self, site: usize) -> Result<Arc<dyn Subject>>;
}

/// The servers of a system, and who of them is a member.
struct Ensemble {
    cluster: Cluster,
    members: BTreeSet<u8>,
    /// Those that were removed.
    left: BTreeSet<u8>,
    /// Where clients run, a site each.
    sites: Vec<Handle>,
}

impl Ensemble {
    /// Starts three members.
    fn start(system: System, place: &Place) -> Result<Ensemble> {
        let mut spec = Spec::new(system, u8::try_from(SITES)?);
        spec.spares = 1;
        spec.netns = place.netns();
        let members = (1..=spec.nodes).collect();
        let cluster =
            Cluster::start(&spec).with_context(|| format!("{system} cannot be started"))?;
        Ok(Ensemble {
            cluster,
            members,
            left: BTreeSet::new(),
            sites: place.sites.iter().map(|site| site.clients()).collect(),
        })
    }

    /// Runs something at a site to its end.
    fn at<T: Send + 'static>(
        &self,
        site: usize,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let site = self.sites.get(site).context("there is no such site")?;
        site.block_on(site.spawn(work))?
    }

    /// Tries something at the first site until it succeeds, or not in time.
    fn until<T, W>(&self, what: &str, tried: impl Fn() -> W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let begun = Instant::now();
        loop {
            match self.at(0, tried()) {
                Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                done => return done.with_context(|| format!("{what} was not done in time")),
            }
        }
    }

    /// The spare that is added next.
    fn spare(&self) -> Result<u8> {
        let last = self.cluster.spec().nodes + self.cluster.spec().spares;
        let fresh = |i: &u8| !self.members.contains(i) && !self.left.contains(i);
        (1..=last).find(fresh).context("there is no spare left")
    }

    /// Starts it, to join the members.
    fn start_spare(&self, spare: u8) -> Result<()> {
        let members: Vec<u8> = self.members.iter().copied().collect();
        Ok(self.cluster.start_spare(spare, &members)?)
    }

    /// The last of the first members that is not this one.
    fn other_first(&self, leader: u8) -> Result<u8> {
        let first = 1..=self.cluster.spec().nodes;
        let mut others = first.filter(|i| *i != leader && self.members.contains(i));
        others.next_back().context("no first member is left")
    }

    /// Where clients reach the members, and their numbers.
    fn endpoints(&self) -> Vec<(u8, SocketAddr)> {
        let members = self.members.iter();
        members.map(|i| (*i, self.cluster.endpoint(*i))).collect()
    }

    /// What a client at a site knows: the site's own server first, the spare last, and nobody who
    /// has left.
    fn known(&self, site: usize) -> Vec<(u8, String)> {
        let last = self.cluster.spec().nodes + self.cluster.spec().spares;
        let mut numbers: Vec<u8> = (1..=last).filter(|i| !self.left.contains(i)).collect();
        numbers.sort_by_key(|i| usize::from(*i) != site + 1);
        let named = numbers.into_iter();
        named
            .map(|i| (i, self.cluster.endpoint(i).to_string()))
            .collect()
    }

    /// Waits for the end of one that has been removed, or ends it where it does not end by itself.
    fn end(&mut self, removed: u8, by_itself: bool) -> Result<()> {
        self.members.remove(&removed);
        self.left.insert(removed);
        let state = || {
            let nodes = self.cluster.nodes().into_iter();
            let mut states = nodes.filter(|n| n.number == removed).map(|n| n.state);
            states
                .next()
                .ok_or_else(|| anyhow!("there is no node {removed}"))
        };
        let begun = Instant::now();
        while by_itself && begun.elapsed() < ENDING {
            if state()? == State::Down {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(self.cluster.kill_node(removed)?)
    }
}
