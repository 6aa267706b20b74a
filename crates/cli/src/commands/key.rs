//! `fermata get`, `put` and `del`: one operation on one key.
//!
//! | verb | as it is | `--wait` | `--eventual` |
//! | --- | --- | --- | --- |
//! | `get` | the library's `read_beside` | `read` | `get` |
//! | `put`, `del` | a section of its own; refused where somebody holds the key | `write` | `put` |
//!
//! Under `fermata lock` the verbs as they are are operations of the section around them. A change
//! under a condition (`--if-…`) is always a section of its own.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Change, Client, Code, Condition, Enter, Error, Section, Version};
use indicatif::HumanBytes;
use serde_json::json;

use super::lock::socket::{self, Action};
use super::lock::{GIVE_UP, not_entered};
use super::{is_held_around, refuse_if_held_around, surrounding_section};
use crate::args::{DelArgs, Global, How, KeyArgs, ValueArgs};
use crate::connect::connect;
use crate::exit::{Exit, Failure};
use crate::output;

/// How long somebody else may hold a key before a `put` of it is refused: the sections of a `get`
/// or `put` that has just ended are over by then. Whoever really holds the key holds it longer.
const HELD_FOR: Duration = Duration::from_secs(2);

/// `fermata get`.
pub(crate) async fn get(global: &Global, args: KeyArgs) -> Result<u8, Failure> {
    let (key, how) = (args.key.as_bytes(), args.how.how());
    let value = output::while_it_lasts("getting", value(global, key, how)).await?;
    show(global, key, value, args.only_version)
}

async fn value(global: &Global, key: &[u8], how: How) -> Result<Option<Bytes>, Failure> {
    let space = global.keyspace();
    match (surrounding_section(), how) {
        (Some(path), How::Plain) => in_section(global, &path, Action::Get, key, &[]).await,
        (None, How::Plain) => Ok(connect(global).await?.read_beside(space, key).await?),
        (_, How::Wait) => {
            refuse_if_held_around(global, key, "get").await?;
            Ok(connect(global).await?.read(space, key).await?)
        }
        (_, How::Eventual) => {
            let value = connect(global).await?.get(space, key).await;
            value.map_err(eventual)
        }
    }
}

/// Prints what is told of a key as JSON, with its name.
fn tell(global: &Global, key: &[u8], mut told: serde_json::Value) -> Result<(), Failure> {
    told["keyspace"] = global.keyspace().into();
    told["key"] = output::bytes_as_json(key);
    output::json(&told)
}

/// A value and its version as JSON; both are null where there is none.
fn value_as_json(value: Option<&Bytes>) -> serde_json::Value {
    let version = value.map(|value| Version::of(value).to_string());
    json!({ "value": value.map(|value| output::bytes_as_json(value)), "version": version })
}

/// Prints a value. A missing one prints nothing, and the exit status says so.
fn show(
    global: &Global,
    key: &[u8],
    value: Option<Bytes>,
    only_version: bool,
) -> Result<u8, Failure> {
    if global.json {
        tell(global, key, value_as_json(value.as_ref()))?;
    }
    match value {
        Some(_) if global.json => Ok(0),
        Some(value) if only_version => output::text(Version::of(&value)).map(|()| 0),
        Some(value) => output::value(&value).map(|()| 0),
        None => Err(Failure::silent_no()),
    }
}

/// Says that a change is done: nothing to people, an object to programs.
fn done(global: &Global, key: &[u8], value: Option<&Bytes>) -> Result<u8, Failure> {
    if global.json {
        let version = value.map(|value| Version::of(value).to_string());
        tell(global, key, json!({ "done": true, "version": version }))?;
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
    let (key, how) = (args.key.as_bytes(), args.how.how());
    let what = format!("putting {}", HumanBytes(value.len() as u64));
    let put = async {
        match args.only.condition() {
            Some(only) => change_if(global, key, Some(value), (&only, how)).await,
            None => change(global, key, Some(value), how).await,
        }
    };
    match global.json {
        // Its object is not to be mixed with another line.
        true => put.await,
        false => output::while_it_lasts(&what, put).await,
    }
}

/// `fermata del`.
pub(crate) async fn del(global: &Global, args: DelArgs) -> Result<u8, Failure> {
    let how = args.how.how();
    match args.prefix {
        Some(prefix) => super::keys::delete(global, prefix.as_bytes(), how).await,
        None => {
            let key = args.key.expect("the parser requires one of the two");
            match args.only.condition() {
                Some(only) => change_if(global, key.as_bytes(), None, (&only, how)).await,
                None => change(global, key.as_bytes(), None, how).await,
            }
        }
    }
}

/// Puts a value, or deletes it.
async fn change(
    global: &Global,
    key: &[u8],
    value: Option<Bytes>,
    how: How,
) -> Result<u8, Failure> {
    match (surrounding_section(), how) {
        (Some(path), How::Plain) => {
            let action = match value {
                Some(_) => Action::Put,
                None => Action::Delete,
            };
            let bytes = value.as_deref().unwrap_or_default();
            in_section(global, &path, action, key, bytes).await?;
        }
        _ => {
            if how == How::Wait {
                refuse_if_held_around(global, key, "put").await?;
            }
            let client = connect(global).await?;
            let changed = store(global, &client, (key, value.clone()), how).await;
            if changed.is_err() {
                // A place in the queue is being given up: nobody shall find it there.
                client.close(GIVE_UP).await;
            }
            changed?;
        }
    }
    done(global, key, value.as_ref())
}

/// Puts a value, or deletes it, under a condition.
async fn change_if(
    global: &Global,
    key: &[u8],
    value: Option<Bytes>,
    (only, how): (&Condition, How),
) -> Result<u8, Failure> {
    if let Some(around) = surrounding_section()
        && is_held_around(&around, global, key).await
    {
        let sentence = "the section around this command holds the key, and nobody else changes it: \
                        look at it with `fermata get`, and put without a condition";
        return Err(Failure::new(Exit::Refused, sentence));
    }
    let client = connect(global).await?;
    let changed = match enter_free(global, &client, key, how).await {
        Ok(Some(section)) => {
            let changed = section.write_and_leave_if(key, value.clone(), only).await;
            changed.map_err(Failure::from)
        }
        Ok(None) => {
            let sentence = "keys of a register keyspace have no locks, and so no section in which \
                            to compare: use a section keyspace, or put without a condition";
            let code = Code::WrongPurpose.name().to_owned();
            Err(Failure {
                code,
                ..Failure::new(Exit::Refused, sentence)
            })
        }
        Err(failure) => Err(failure),
    };
    if !matches!(changed, Ok(Change::Done(_))) {
        // The section is being left: the next command shall find the key free.
        client.close(global.timeout()).await;
    }
    match changed? {
        Change::Done(_) => done(global, key, value.as_ref()),
        Change::Failed(found) => {
            if global.json {
                let mut told = value_as_json(found.as_ref());
                told["done"] = false.into();
                tell(global, key, told)?;
                return Err(Failure::silent_no());
            }
            let has = match found {
                Some(value) => format!("a value of version {}", Version::of(&value)),
                None => "no value".to_owned(),
            };
            let sentence = format!("nothing was changed: the key has {has}");
            Err(Failure::new(Exit::No, sentence))
        }
    }
}

/// Deletes a key's value, outside of sections.
pub(super) async fn delete(
    global: &Global,
    client: &Client,
    key: &[u8],
    how: How,
) -> Result<(), Failure> {
    store(global, client, (key, None), how).await
}

/// Puts a value, or deletes it, outside of sections.
async fn store(
    global: &Global,
    client: &Client,
    (key, value): (&[u8], Option<Bytes>),
    how: How,
) -> Result<(), Failure> {
    let space = global.keyspace();
    match how {
        How::Plain => put_alone(global, client, (key, value)).await,
        How::Wait => Ok(client.write(space, key, value).await?),
        How::Eventual => {
            let put = while_locked(async || match value.clone() {
                Some(value) => client.put(space, key, value).await,
                None => client.delete(space, key).await,
            });
            put.await.map_err(eventual)
        }
    }
}

/// Puts by a section of its own, which waits for nobody; registers are written.
async fn put_alone(
    global: &Global,
    client: &Client,
    (key, value): (&[u8], Option<Bytes>),
) -> Result<(), Failure> {
    let entered = enter_free(global, client, key, How::Plain).await?;
    let put = match (entered, value) {
        (Some(section), Some(value)) => section.put_and_leave(key, value).await,
        (Some(section), None) => section.delete_and_leave(key).await,
        (None, value) => client.write(global.keyspace(), key, value).await,
    };
    put.map_err(|error| {
        let failure = Failure::from(error);
        let exit = match failure.exit {
            // No section of the user's was lost.
            Exit::SectionLost if failure.may_have_taken_effect => Exit::OutcomeUnknown,
            Exit::SectionLost => Exit::Unavailable,
            exit => exit,
        };
        Failure { exit, ..failure }
    })
}

/// A section on a key that nobody else holds; none where keys have no locks.
async fn enter_free(
    global: &Global,
    client: &Client,
    key: &[u8],
    how: How,
) -> Result<Option<Section>, Failure> {
    let (space, began) = (global.keyspace(), Instant::now());
    let (wait, instead) = match how {
        How::Wait => (global.timeout(), "longer with --timeout"),
        _ => (HELD_FOR, "for the holder with --wait"),
    };
    loop {
        let enter = Enter {
            wait: Some(wait),
            ..Enter::default()
        };
        let error = match client.enter(space, &[key], enter).await {
            Ok(section) => return Ok(Some(section)),
            Err(error) if error.code() == Code::WrongPurpose => return Ok(None),
            Err(error) => error,
        };
        if error.code() == Code::WaitOver {
            let (entries, _) = client.queue(space, key).await?;
            let own = client.secret().session();
            if let Some(holder) = entries.iter().find(|entry| entry.session != own) {
                let who = match holder.label.as_str() {
                    "" => String::new(),
                    label => format!(" ({label})"),
                };
                let sentence = format!(
                    "the put was refused: the key is locked by lock ref {} of site {}{who}; put \
                     inside its `fermata lock`, or wait {instead}",
                    holder.lock_ref.0,
                    client.site_name(holder.site)
                );
                let code = Code::Locked.name().to_owned();
                return Err(Failure {
                    code,
                    ..Failure::new(Exit::Refused, sentence)
                });
            }
            // Nobody is there: only its value was not settled in time.
            if began.elapsed() < global.timeout() {
                continue;
            }
        }
        return Err(not_entered(error, "nothing was put"));
    }
}

/// Repeats an eventual put that is refused because the key is locked, for about a second: the
/// sections of a `get` or `put` that has just ended are over by then, and a script that puts after
/// it reads need not know of them.
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

/// The failure of an eventual operation.
fn eventual(error: Error) -> Failure {
    let wrong = error.code() == Code::WrongPurpose;
    let failure = Failure::from(error);
    if !wrong {
        return failure;
    }
    let sentence = "nothing is eventual in a register keyspace: leave --eventual away".to_owned();
    Failure {
        sentence,
        ..failure
    }
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
