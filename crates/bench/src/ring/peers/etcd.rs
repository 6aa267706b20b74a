//! etcd while its members change.
//!
//! **Changes**, as its *Runtime reconfiguration* has them. A new member is added as a learner,
//! started, and promoted when it has what the leader has. One that is removed ends by itself. The
//! leader is moved by `MoveLeader`, sent to the one that leads.
//!
//! **Clients** do what its own client does: what only reads is asked again of another member when
//! one is not available; a write is, only if it was not sent. Lock and unlock are asked again, too:
//! a lock belongs to its client's lease, so the second time finds what the first has done.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fermata_peers::System;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::super::subject::Subject;
use super::{Ensemble, Peer};
use crate::music::etcd::{
    Anything, LEASE, LeaseGrantRequest, LeaseGrantResponse, LockRequest, LockResponse, PutRequest,
    RangeRequest, UnlockRequest, call, connect, endpoint, value_key,
};
use crate::music::place::Place;
use crate::music::system::Boxed;

/// How often etcd's own client tries, and what it waits between two rounds of the members.
const TRIES: usize = 100;
const BACKOFF: Duration = Duration::from_millis(25);

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, Message)]
struct MemberAddRequest {
    #[prost(string, repeated, tag = "1")]
    peer_urls: Vec<String>,
    #[prost(bool, tag = "2")]
    is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
struct MemberAddResponse {
    #[prost(message, optional, tag = "2")]
    member: Option<MemberId>,
}

/// A member, or the request to promote it, to remove it, or to let it lead.
#[derive(Clone, PartialEq, Message)]
struct MemberId {
    #[prost(uint64, tag = "1")]
    id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

/// Three members, and a spare.
pub(crate) struct Etcd {
    ensemble: Ensemble,
}

impl Etcd {
    /// Starts three members, one a site.
    pub(crate) fn start(place: &Place) -> Result<Etcd> {
        let ensemble = Ensemble::start(System::Etcd, place)?;
        Ok(Etcd { ensemble })
    }

    /// Asks a member for a change, again and again while it says that it is too early for it.
    fn ask<Q, A>(&self, member: u8, path: &'static str, question: &Q) -> Result<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let address = self.ensemble.cluster.endpoint(member).to_string();
        let asked = || {
            let (address, question) = (address.clone(), question.clone());
            async move {
                let channel = connect(&address).await?;
                match call::<Q, A>(&channel, path, question).await {
                    Err(why) if is_early(&why) => Err(why),
                    done => Ok(done),
                }
            }
        };
        self.ensemble.until(path, asked)?
    }

    /// What the members are called, and the number of the one that leads.
    fn named(&self) -> Result<(BTreeMap<u8, u64>, u8)> {
        let endpoints = self.ensemble.endpoints();
        self.ensemble.until("the search for the leader", || {
            let endpoints = endpoints.clone();
            async move {
                let mut names = BTreeMap::new();
                let mut leader = 0;
                for (i, address) in endpoints {
                    let channel = connect(&address.to_string()).await?;
                    let path = "/etcdserverpb.Maintenance/Status";
                    let said: StatusResponse = call(&channel, path, Anything {}).await?;
                    let header = said.header.context("it does not say who it is")?;
                    names.insert(i, header.member_id);
                    leader = said.leader;
                }
                let leads = names.iter().find(|(_, id)| **id == leader);
                let leads = *leads.context("nobody leads")?.0;
                Ok((names, leads))
            }
        })
    }

    /// Removes a member through another one.
    fn remove_one(&mut self, removed: u8, names: &BTreeMap<u8, u64>) -> Result<()> {
        let mut others = names.keys().filter(|i| **i != removed);
        let asked = *others.next().context("nobody else is a member")?;
        let id = names[&removed];
        let path = "/etcdserverpb.Cluster/MemberRemove";
        self.ask::<_, Anything>(asked, path, &MemberId { id })?;
        self.ensemble.end(removed, true)
    }
}

/// Whether a member refuses a change because others are not ready for it, and nothing was done.
fn is_early(why: &anyhow::Error) -> bool {
    let status = why.downcast_ref::<Status>();
    status.is_some_and(|status| {
        let early = ["unhealthy cluster", "in sync with leader", "no leader"];
        early.iter().any(|word| status.message().contains(word))
    })
}

impl Peer for Etcd {
    fn durability(&self) -> String {
        self.ensemble.cluster.durability()
    }

    fn leader(&self) -> Result<u8> {
        Ok(self.named()?.1)
    }

    fn add(&mut self) -> Result<()> {
        let spare = self.ensemble.spare()?;
        let member = self.ensemble.cluster.member(spare);
        let (_, url) = member.split_once('=').context("it has no URL")?;
        let request = MemberAddRequest {
            peer_urls: vec![url.to_owned()],
            is_learner: true,
        };
        let leader = self.leader()?;
        let path = "/etcdserverpb.Cluster/MemberAdd";
        let added: MemberAddResponse = self.ask(leader, path, &request)?;
        let learner = added.member.context("etcd does not say whom it added")?;
        self.ensemble.start_spare(spare)?;
        let path = "/etcdserverpb.Cluster/MemberPromote";
        self.ask::<_, Anything>(leader, path, &learner)?;
        self.ensemble.members.insert(spare);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let (names, leader) = self.named()?;
        let removed = self.ensemble.other_first(leader)?;
        self.remove_one(removed, &names)
    }

    fn remove_leader(&mut self) -> Result<()> {
        let (names, leader) = self.named()?;
        self.remove_one(leader, &names)
    }

    fn move_leader(&mut self) -> Result<()> {
        let (names, leader) = self.named()?;
        let mut others = names.iter().filter(|(i, _)| **i != leader);
        let (_, id) = others.next().context("nobody else is a member")?;
        let path = "/etcdserverpb.Maintenance/MoveLeader";
        self.ask::<_, Anything>(leader, path, &MemberId { id: *id })?;
        match self.leader()? == leader {
            true => bail!("member {leader} still leads"),
            false => Ok(()),
        }
    }

    fn client(&self, site: usize) -> Result<Arc<dyn Subject>> {
        let known = self.ensemble.known(site).into_iter();
        let known: Vec<String> = known.map(|(_, address)| address).collect();
        let client = async move { Client::connect(&known).await };
        Ok(Arc::new(self.ensemble.at(site, client)?))
    }
}

/// A client: a connection to each member, one of which it uses, and one lease.
struct Client {
    channels: Vec<Channel>,
    at: AtomicUsize,
    lease: i64,
}

impl Client {
    async fn connect(addresses: &[String]) -> Result<Client> {
        let channels = addresses
            .iter()
            .map(|address| Ok(endpoint(address)?.connect_lazy()));
        let mut client = Client {
            channels: channels.collect::<Result<_>>()?,
            at: AtomicUsize::new(0),
            lease: 0,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let grant = |channel: Channel| async move {
            call::<_, LeaseGrantResponse>(&channel, path, LeaseGrantRequest { ttl: LEASE }).await
        };
        client.lease = client.tried(is_unavailable, grant).await?.id;
        Ok(client)
    }

    /// Asks one member after the other, as long as what they say may be tried again.
    async fn tried<T, W>(
        &self,
        again: fn(&anyhow::Error) -> bool,
        ask: impl Fn(Channel) -> W,
    ) -> Result<T>
    where
        W: Future<Output = Result<T>>,
    {
        let members = self.channels.len();
        for tried in 1.. {
            let at = self.at.load(Ordering::Relaxed);
            let why = match ask(self.channels[at].clone()).await {
                Ok(done) => return Ok(done),
                Err(why) => why,
            };
            // Unless somebody else has turned away from it already.
            let next = (at + 1) % members;
            let order = Ordering::Relaxed;
            let _ = self.at.compare_exchange(at, next, order, order);
            if tried == TRIES || !again(&why) {
                return Err(why);
            }
            if tried % members == 0 {
                tokio::time::sleep(BACKOFF).await;
            }
        }
        unreachable!("the last try has returned")
    }
}

/// Whether a member was not available; whether it has done what it was asked for is not known.
fn is_unavailable(why: &anyhow::Error) -> bool {
    match why.downcast_ref::<Status>() {
        // A connection that breaks under a request is none of etcd's own errors.
        Some(status) => {
            // The lock service gives no code to what it is told by the others.
            matches!(status.code(), Code::Unavailable | Code::Unknown)
                || std::error::Error::source(status).is_some()
        }
        None => true,
    }
}

/// Whether a request has not been sent, since nobody was there.
fn is_unsent(why: &anyhow::Error) -> bool {
    let refused = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().map(io::Error::kind)
            == Some(io::ErrorKind::ConnectionRefused)
    };
    why.chain().any(refused)
}

impl Subject for Client {
    fn read<'a>(&'a self, key: &'a str) -> Boxed<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let read = |channel: Channel| async move {
                let range = RangeRequest {
                    key: value_key(key),
                    serializable: false,
                };
                call::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", range).await
            };
            let mut found = self.tried(is_unavailable, read).await?;
            Ok(found.kvs.pop().map(|pair| pair.value))
        })
    }

    fn write<'a>(&'a self, key: &'a str, value: Vec<u8>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let value = Bytes::from(value);
            let write = |channel: Channel| {
                let put = PutRequest {
                    key: value_key(key),
                    value: value.clone(),
                };
                async move { call::<_, Anything>(&channel, "/etcdserverpb.KV/Put", put).await }
            };
            self.tried(is_unsent, write).await.map(drop)
        })
    }

    fn section<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let lock = |channel: Channel| async move {
                let request = LockRequest {
                    name: format!("lock/{key}").into(),
                    lease: self.lease,
                };
                call::<_, LockResponse>(&channel, "/v3lockpb.Lock/Lock", request).await
            };
            let held = self.tried(is_unavailable, lock).await?.key;
            let unlock = |channel: Channel| {
                let request = UnlockRequest { key: held.clone() };
                async move { call::<_, Anything>(&channel, "/v3lockpb.Lock/Unlock", request).await }
            };
            self.tried(is_unavailable, unlock).await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_asked_again_only_if_it_was_not_sent() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(is_unsent(&anyhow::Error::new(refused)));
        let lost = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(!is_unsent(&anyhow::Error::new(lost)));
        let unavailable = anyhow::Error::new(Status::unavailable("etcdserver: request timed out"));
        assert!(!is_unsent(&unavailable));
        assert!(is_unavailable(&unavailable));
        let invalid = anyhow::Error::new(Status::invalid_argument("etcdserver: key is not given"));
        assert!(!is_unavailable(&invalid));
    }

    #[test]
    fn a_change_that_comes_too_early_is_asked_again() {
        let refused = |said| is_early(&anyhow::Error::new(Status::failed_precondition(said)));
        assert!(refused(
            "etcdserver: can only promote a learner member which is in sync with leader"
        ));
        assert!(!refused("etcdserver: member not found"));
    }
}
