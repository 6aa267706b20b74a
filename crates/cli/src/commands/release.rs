//! `fermata release`: an operator ends somebody's section, or wait, by its lock ref.
//!
//! The request is that the ref be out of the key's queue, so a ref that is past already is done,
//! too: the command may be repeated. The primary takes no release before the lease that the holder
//! has, which may last longer than a request: the release is then asked for again, for as long as
//! [`ReleaseArgs::wait`] and the queue say.

use std::os::unix::ffi::OsStrExt;

use fermata_client::{Client, Code, LockRef};
use serde_json::json;
use tokio::time::Instant;

use crate::args::{Global, ReleaseArgs};
use crate::connect::connect;
use crate::exit::{Exit, Failure};
use crate::output;

/// Ends what has the ref. Exit status 0 once it is out of the queue, by this release or before.
pub(crate) async fn run(global: &Global, args: ReleaseArgs) -> Result<u8, Failure> {
    let (space, key) = (global.keyspace(), args.key.as_bytes());
    let lock_ref = LockRef(args.lock_ref);
    let client = connect(global).await?;
    let give_up = Instant::now() + args.wait;
    let mut was_queued = false;
    let released = loop {
        match client.release(space, key, lock_ref).await {
            Ok(()) => break true,
            Err(error) if error.code() == Code::NoLongerHolder => break was_queued,
            // To its holder this means that a section is lost; here only that the number is wrong.
            Err(error) if error.code() == Code::NotHolder => {
                return Err(Failure {
                    exit: Exit::Refused,
                    ..error.into()
                });
            }
            Err(error) if error.may_have_taken_effect() && Instant::now() < give_up => {
                was_queued |= is_queued(&client, space, key, lock_ref).await?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    if global.json {
        output::json(&json!({
            "keyspace": space,
            "key": output::bytes_as_json(key),
            "lock_ref": lock_ref.0,
            "done": true,
            "released": released,
        }))?;
        return Ok(0);
    }
    let (number, key) = (lock_ref.0, String::from_utf8_lossy(key));
    output::text(match released {
        true => format!("released: lock ref {number} of `{key}` is out of the queue"),
        false => format!(
            "nothing to release: lock ref {number} of `{key}` is past (left, expired or released \
             before), or was never given"
        ),
    })?;
    Ok(0)
}

/// Whether the ref holds the key or waits for it.
async fn is_queued(
    client: &Client,
    keyspace: &str,
    key: &[u8],
    lock_ref: LockRef,
) -> Result<bool, Failure> {
    let (entries, _) = client.queue(keyspace, key).await.map_err(|error| {
        // The release before it may have been heard.
        Failure {
            exit: Exit::OutcomeUnknown,
            may_have_taken_effect: true,
            ..error.into()
        }
    })?;
    Ok(entries.iter().any(|entry| entry.lock_ref == lock_ref))
}
