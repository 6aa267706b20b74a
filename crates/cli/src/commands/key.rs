//! `fermata get`, `put`, `del`, `read` and `write`: one operation on one key.
//!
//! Under `fermata lock` the first three are operations of the section around them.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fermata_client::{Code, Error};
use serde_json::json;

use super::lock::socket::{self, Action};
use super::{refuse_if_held_around, surrounding_section};
use crate::args::{Global, KeyArgs, ValueArgs, WriteArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::output;

/// `fermata get`.
pub(crate) async fn get(global: &Global, args: KeyArgs) -> Result<u8, Failure> {
    let (space, key) = (global.keyspace(), args.key.as_bytes());
    let value = match surrounding_section() {
        Some(path) => in_section(global, &path, Action::Get, key, &[]).await?,
        None => connect(global).await?.get(space, key).await?,
    };
    show(global, key, value)
}

/// `fermata read`.
pub(crate) async fn read(global: &Global, args: KeyArgs) -> Result<u8, Failure> {
    let (space, key) = (global.keyspace(), args.key.as_bytes());
    refuse_if_held_around(global, key, "get").await?;
    let value = connect(global).await?.read(space, key).await?;
    show(global, key, value)
}

/// Prints a value. A missing one prints nothing, and the exit status says so.
fn show(global: &Global, key: &[u8], value: Option<Bytes>) -> Result<u8, Failure> {
    if global.json {
        let found = value.is_some();
        let value = value.map(|value| output::bytes_as_json(&value));
        let key = output::bytes_as_json(key);
        output::json(&json!({ "keyspace": global.keyspace(), "key": key, "value": value }))?;
        return if found {
            Ok(0)
        } else {
            Err(Failure::silent_no())
        };
    }
    match value {
        Some(value) => output::value(&value).map(|()| 0),
        None => Err(Failure::silent_no()),
    }
}

/// Says that a change is done: nothing to people, an object to programs.
fn done(global: &Global, key: &[u8]) -> Result<u8, Failure> {
    if global.json {
        let key = output::bytes_as_json(key);
        output::json(&json!({ "keyspace": global.keyspace(), "key": key, "done": true }))?;
    }
    Ok(0)
}

/// An operation of the section around this process.
async fn in_section(
    global: &Global,
    path: &Path,
    action: Action,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Bytes>, Failure> {
    socket::ask(
        path,
        action,
        (global.keyspace(), key),
        value,
        global.timeout(),
    )
    .await
}

/// `fermata put`.
pub(crate) async fn put(global: &Global, args: ValueArgs) -> Result<u8, Failure> {
    let value = value_of(&args.value)?;
    change(global, args.key.as_bytes(), Some(value)).await
}

/// `fermata del`.
pub(crate) async fn del(global: &Global, args: KeyArgs) -> Result<u8, Failure> {
    change(global, args.key.as_bytes(), None).await
}

/// Puts a value, or deletes it.
async fn change(global: &Global, key: &[u8], value: Option<Bytes>) -> Result<u8, Failure> {
    let space = global.keyspace();
    match (surrounding_section(), value) {
        (Some(path), Some(value)) => {
            in_section(global, &path, Action::Put, key, &value).await?;
        }
        (Some(path), None) => {
            in_section(global, &path, Action::Delete, key, &[]).await?;
        }
        (None, value) => {
            let client = connect(global).await?;
            while_locked(async || match value.clone() {
                Some(value) => client.put(space, key, value).await,
                None => client.delete(space, key).await,
            })
            .await?;
        }
    }
    done(global, key)
}

/// `fermata write`.
pub(crate) async fn write(global: &Global, args: WriteArgs) -> Result<u8, Failure> {
    let (space, key) = (global.keyspace(), args.key.as_bytes());
    refuse_if_held_around(global, key, "put").await?;
    let value = args.value.as_ref().map(|value| value_of(value));
    connect(global)
        .await?
        .write(space, key, value.transpose()?)
        .await?;
    done(global, key)
}

/// Repeats an eventual put that is refused because the key is locked, for about a second: the
/// sections of a `read` or `write` that has just ended are over by then, and a script that puts
/// after it reads need not know of them. Whoever really holds the key holds it longer.
async fn while_locked(put: impl AsyncFn() -> Result<(), Error>) -> Result<(), Error> {
    const PAUSES: [u64; 5] = [20, 80, 150, 250, 500];
    for pause in PAUSES {
        match put().await {
            Err(error) if error.code() == Code::Locked => {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            done => return done,
        }
    }
    put().await
}

/// The value of an argument; `-` is standard input to its end.
fn value_of(argument: &OsStr) -> Result<Bytes, Failure> {
    if argument != "-" {
        return Ok(Bytes::copy_from_slice(argument.as_bytes()));
    }
    // One byte over the largest value that any server takes, so that the server names its limit.
    const VALUE_MAX: u64 = (64 << 20) + 1;
    let mut value = Vec::new();
    std::io::stdin()
        .lock()
        .take(VALUE_MAX)
        .read_to_end(&mut value)
        .map_err(|error| Failure::local("reading standard input", error))?;
    Ok(value.into())
}
