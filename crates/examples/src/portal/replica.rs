//! A back-end replica: it owns users by holding a long-lived section on each, and makes their
//! updates in critical puts.
//!
//! Ownership is what the section is for: while a replica holds a user, it may answer from memory
//! and needs one round trip per update. When a front end takes it for dead, another replica ends
//! its sections by force and takes the users over; if it lives after all, its next put is refused,
//! and it forgets the user.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Client, Code, Enter, Mode, Options, Section};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::state::{Roles, Update};
use crate::latency::Latencies;
use crate::stage::connected;

/// The keyspace of the users.
pub(super) const KEYSPACE: &str = "portal";

/// A healthy owner is left its users.
const WAIT: Duration = Duration::from_millis(500);

/// A new owner waits so long for its section after it ended the old one.
const TAKE_OVER_WAIT: Duration = Duration::from_secs(6);

/// A request of a front end.
pub(super) struct Request {
    pub(super) user: String,
    pub(super) update: Update,
    /// The front end takes the present owner for dead: end its section by force.
    pub(super) take_over: bool,
    /// Answered once the update is acknowledged; dropped if it failed here.
    pub(super) done: oneshot::Sender<()>,
}

/// A user that this replica owns.
struct Owned {
    section: Section,
    roles: Roles,
}

/// Users by name; each is worked on by one request at a time.
type Users = Rc<RefCell<HashMap<String, Rc<Mutex<Option<Owned>>>>>>;

/// Serves requests until the front ends are gone.
pub(super) async fn serve(
    site: String,
    options: Options,
    mut requests: mpsc::Receiver<Request>,
    latencies: Arc<Latencies>,
) {
    let client = connected(options).await;
    let users = Users::default();
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => {
                    let user = users.borrow_mut().entry(request.user.clone()).or_default().clone();
                    open.push(handle(&site, &client, user, request, &latencies));
                }
                None => break,
            },
            Some(()) = open.next() => {}
        }
    }
    while open.next().await.is_some() {}
    drop(open);
    for user in users.take().into_values() {
        if let Some(owned) = user.lock().await.take() {
            // The lease ends it if this fails.
            let _left = owned.section.leave_and_wait().await;
        }
    }
}

/// One request; its failure is told by dropping `done`.
async fn handle(
    site: &str,
    client: &Client,
    user: Rc<Mutex<Option<Owned>>>,
    request: Request,
    latencies: &Latencies,
) {
    let mut user = user.lock().await;
    if request.done.is_closed() {
        return; // Given up: done now, it would come after what the front end did since.
    }
    if user.as_ref().is_some_and(|owned| owned.section.is_lost()) {
        *user = None;
    }
    if user.is_none() {
        let start = Instant::now();
        match own(client, &request, site, latencies).await {
            Ok(owned) => *user = Some(owned),
            Err(_) => {
                latencies.note(site, "ownership refused", start);
                return;
            }
        }
        let step = if request.take_over {
            "take a user over"
        } else {
            "own a user"
        };
        latencies.note(site, step, start);
    }
    let owned = user.as_mut().expect("it is owned by now");
    if let Some(next) = owned.roles.after(&request.update) {
        let Ok(value) = serde_json::to_vec(&next) else {
            return;
        };
        if request.done.is_closed() {
            return;
        }
        let start = Instant::now();
        let put = owned
            .section
            .put(request.user.as_bytes(), Bytes::from(value));
        if put.await.is_err() {
            // Lost, or unknown: the next owner finds out what took effect.
            *user = None;
            return;
        }
        latencies.note(site, "put (critical)", start);
        owned.roles = next;
    }
    // The front end may have given up.
    let _gone = request.done.send(());
}

/// Becomes the user's owner.
async fn own(
    client: &Client,
    request: &Request,
    site: &str,
    latencies: &Latencies,
) -> Result<Owned, fermata_client::Error> {
    let key = request.user.as_bytes();
    if request.take_over {
        let start = Instant::now();
        let (queue, _) = client.queue(KEYSPACE, key).await?;
        latencies.note(site, "look at the queue", start);
        for entry in queue.iter().filter(|entry| entry.holds) {
            let start = Instant::now();
            match client.release(KEYSPACE, key, entry.lock_ref).await {
                // It has left, or somebody else was faster.
                Err(error) if error.code() == Code::NoLongerHolder => {}
                released => released?,
            }
            latencies.note(site, "forced release", start);
        }
    }
    let enter = Enter {
        mode: Mode::Exclusive,
        wait: Some(if request.take_over {
            TAKE_OVER_WAIT
        } else {
            WAIT
        }),
        lease: None,
    };
    let section = client.enter(KEYSPACE, &[key], enter).await?;
    // From memory, unless it was too large to come with the entry.
    let found = section.get(key).await?;
    let roles = found.and_then(|value| serde_json::from_slice(&value).ok());
    Ok(Owned {
        section,
        roles: roles.unwrap_or_default(),
    })
}
