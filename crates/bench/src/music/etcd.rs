//! etcd with its own lock service: `Lock`, writes, `Unlock`.
//!
//! The few messages of its interface that are needed are written down here, with the numbers of its
//! `rpc.proto` and `v3lock.proto`: a client crate would want a compiler of protocol files on the
//! machine.
//!
//! **What the lock does not do.** A holder whose lease has run out is not kept from writing.
//!
//! [`Transactions`] is the other thing that is compared, with the structure that the paper gives to
//! CockroachDB (§X-B3): each update takes and gives back the lock in transactions of its own.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::system::{Boxed, Section, System};

/// How long a lock outlives its client, in seconds: longer than any run.
pub(crate) const LEASE: i64 = 3_600;

/// Before a lock that was taken is tried again.
const RETRY: Duration = Duration::from_millis(5);

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    /// Read from this member, which may be behind.
    #[prost(bool, tag = "7")]
    pub(crate) serializable: bool,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

/// One of the operations of a transaction: one of the two.
#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    delete: Option<DeleteRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    result: i32,
    /// 1: the revision that made the key, 0 for none; 3: the value.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LockRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) name: Bytes,
    #[prost(int64, tag = "2")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LockResponse {
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnlockRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
}

/// An answer of which nothing is looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Anything {}

/// A client: one connection to one member, and one lease.
pub(crate) struct Etcd {
    channel: Channel,
    lease: i64,
}

/// A connection to a member.
pub(crate) async fn connect(address: &str) -> Result<Channel> {
    Ok(endpoint(address)?.connect().await?)
}

/// How a member is reached.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint> {
    Ok(Endpoint::from_str(&format!("http://{address}"))?
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_secs(60)))
}

impl Etcd {
    /// Connects to a member.
    pub(crate) async fn connect(address: &str) -> Result<Etcd> {
        let channel = connect(address).await?;
        let grant = LeaseGrantRequest { ttl: LEASE };
        let grant: LeaseGrantResponse =
            call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await?;
        Ok(Etcd {
            channel,
            lease: grant.id,
        })
    }
}

/// One request and its answer.
pub(crate) async fn call<Q, A>(channel: &Channel, path: &'static str, question: Q) -> Result<A>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(question), path, codec).await?;
    Ok(answer.into_inner())
}

/// Where the value of a key is; its lock is elsewhere.
pub(crate) fn value_key(key: &str) -> Bytes {
    format!("data/{key}").into()
}

async fn put(channel: &Channel, key: Bytes, value: Bytes) -> Result<()> {
    let put = PutRequest { key, value };
    call::<_, Anything>(channel, "/etcdserverpb.KV/Put", put).await?;
    Ok(())
}

async fn get(channel: &Channel, key: Bytes, serializable: bool) -> Result<()> {
    let range = RangeRequest { key, serializable };
    call::<_, Anything>(channel, "/etcdserverpb.KV/Range", range).await?;
    Ok(())
}

impl System for Etcd {
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let request = LockRequest {
                name: format!("lock/{key}").into(),
                lease: self.lease,
            };
            let lock: LockResponse = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
            let section: Box<dyn Section> = Box::new(Locked {
                channel: self.channel.clone(),
                lock: lock.key,
                key: value_key(key),
            });
            Ok(section)
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(put(&self.channel, value_key(key), value))
    }

    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        // This member's word is as good as that of a replica of ZooKeeper or Cassandra.
        Box::pin(get(&self.channel, value_key(key), true))
    }
}

struct Locked {
    channel: Channel,
    lock: Bytes,
    key: Bytes,
}

impl Section for Locked {
    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        Box::pin(put(&self.channel, self.key.clone(), value))
    }

    fn get(&mut self) -> Boxed<'_, ()> {
        Box::pin(get(&self.channel, self.key.clone(), false))
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let unlock = UnlockRequest { key: self.lock };
            call::<_, Anything>(&self.channel, "/v3lockpb.Lock/Unlock", unlock).await?;
            Ok(())
        })
    }
}

/// A client whose updates are exclusive transactions: one takes the lock, one writes and gives it
/// back. Nothing is held between them.
pub(crate) struct Transactions {
    channel: Channel,
    /// What it writes into a lock that it takes.
    me: Bytes,
}

impl Transactions {
    /// Connects to a member.
    pub(crate) async fn connect(address: &str) -> Result<Transactions> {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Ok(Transactions {
            channel: connect(address).await?,
            me: format!("client {number}").into(),
        })
    }

    async fn transact(&self, compare: Compare, success: Vec<RequestOp>) -> Result<bool> {
        let compare = vec![compare];
        let txn = TxnRequest { compare, success };
        let done: TxnResponse = call(&self.channel, "/etcdserverpb.KV/Txn", txn).await?;
        Ok(done.succeeded)
    }

    async fn update(&self, key: &str, value: Bytes) -> Result<()> {
        let lock = Bytes::from(format!("mine/{key}"));
        let op = |key: &Bytes, value: &Bytes| RequestOp {
            put: Some(PutRequest {
                key: key.clone(),
                value: value.clone(),
            }),
            delete: None,
        };
        let free = Compare {
            target: 1,
            key: lock.clone(),
            create_revision: Some(0),
            ..Compare::default()
        };
        while !self
            .transact(free.clone(), vec![op(&lock, &self.me)])
            .await?
        {
            tokio::time::sleep(RETRY).await;
        }
        let mine = Compare {
            target: 3,
            key: lock.clone(),
            value: Some(self.me.clone()),
            ..Compare::default()
        };
        let back = RequestOp {
            put: None,
            delete: Some(DeleteRequest { key: lock }),
        };
        let write = op(&value_key(key), &value);
        if !self.transact(mine, vec![write, back]).await? {
            bail!("somebody else took the lock of etcd");
        }
        Ok(())
    }
}

impl System for Transactions {
    fn enter<'a>(&'a self, key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let section: Box<dyn Section + 'a> = Box::new(Series { all: self, key });
            Ok(section)
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(self.update(key, value))
    }

    fn get<'a>(&'a self, key: &'a str) -> Boxed<'a, ()> {
        Box::pin(get(&self.channel, value_key(key), false))
    }
}

/// Updates one after the other.
struct Series<'s> {
    all: &'s Transactions,
    key: &'s str,
}

impl Section for Series<'_> {
    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        Box::pin(self.all.update(self.key, value))
    }

    fn get(&mut self) -> Boxed<'_, ()> {
        self.all.get(self.key)
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async { Ok(()) })
    }
}
