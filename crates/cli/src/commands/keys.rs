//! `fermata keys` and `fermata del --prefix`: all keys of a keyspace, page by page.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use fermata_client::{Client, Code};
use futures_util::future::join_all;
use serde_json::json;

use super::{key, surrounding_section};
use crate::args::{Global, How, KeysArgs};
use crate::connect::connect;
use crate::exit::{Exit, Failure};
use crate::output;

/// Keys asked for at a time.
const PAGE: u32 = 1_000;

/// Keys got or deleted at a time.
const AT_ONCE: usize = 16;

/// `fermata keys`.
pub(crate) async fn list(global: &Global, args: KeysArgs) -> Result<u8, Failure> {
    let client = connect(global).await?;
    let after = args.after.as_ref().map(|after| after.as_bytes());
    let mut pages = client.pages(global.keyspace(), args.prefix.as_bytes(), after);
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut first = true;
    while left > 0 {
        let most = u32::try_from(left).map_or(PAGE, |left| left.min(PAGE));
        let page = pages.next(most).await?;
        if page.is_empty() {
            break;
        }
        left -= page.len() as u64;
        let values = match args.values {
            true => values(&client, global.keyspace(), &page).await?,
            false => vec![None; page.len()],
        };
        let mut text = Vec::new();
        for (key, value) in page.iter().zip(&values) {
            match global.json {
                true => as_json(&mut text, (key, value), args.values, first)?,
                false => as_line(&mut text, (key, value), args.values),
            }
            first = false;
        }
        output::bytes(&text)?;
    }
    if global.json {
        output::text(if first { "[]" } else { "\n]" })?;
    }
    // Nothing is cut without a word.
    if left == 0 && !pages.next(1).await?.is_empty() {
        let sentence = "there are more keys: go on with --after and the last of these";
        crate::exit::warn(&Failure::new(Exit::No, sentence), global.json);
    }
    Ok(0)
}

fn as_line(text: &mut Vec<u8>, (key, value): (&Bytes, &Option<Bytes>), values: bool) {
    text.extend_from_slice(key);
    if values {
        text.push(b'\t');
        text.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    text.push(b'\n');
}

/// One element of an array that is printed as it comes.
fn as_json(
    text: &mut Vec<u8>,
    (key, value): (&Bytes, &Option<Bytes>),
    values: bool,
    first: bool,
) -> Result<(), Failure> {
    let mut element = json!({ "key": output::bytes_as_json(key) });
    if values {
        element["value"] = json!(value.as_deref().map(output::bytes_as_json));
    }
    let before = if first { "[\n  " } else { ",\n  " };
    write!(text, "{before}{element}").map_err(Failure::internal)
}

/// The values of keys as the nearest node has them; registers are read.
async fn values(
    client: &Client,
    space: &str,
    keys: &[Bytes],
) -> Result<Vec<Option<Bytes>>, Failure> {
    let mut values = Vec::with_capacity(keys.len());
    for some in keys.chunks(AT_ONCE) {
        let got = join_all(
            some.iter()
                .map(async |key| match client.get(space, key).await {
                    Err(error) if error.code() == Code::WrongPurpose => {
                        client.read(space, key).await
                    }
                    got => got,
                }),
        );
        for value in got.await {
            values.push(value?);
        }
    }
    Ok(values)
}

/// `fermata del --prefix`: key by key.
pub(crate) async fn delete(global: &Global, prefix: &[u8], how: How) -> Result<u8, Failure> {
    if prefix.is_empty() {
        let sentence = "an empty prefix is every key of the keyspace: name at least one character";
        return Err(Failure::usage(sentence));
    }
    if surrounding_section().is_some() && how == How::Plain {
        let sentence = "--prefix deletes keys by sections of its own, not by the section around \
                        this command: delete its keys by name";
        return Err(Failure::new(Exit::Refused, sentence));
    }
    let client = connect(global).await?;
    let mut pages = client.pages(global.keyspace(), prefix, None);
    let mut deleted = 0_u64;
    loop {
        let page = pages.next(PAGE).await?;
        if page.is_empty() {
            break;
        }
        for some in page.chunks(AT_ONCE) {
            let ended = some
                .iter()
                .map(|key| key::delete(global, &client, key, how));
            let mut failed = None;
            for (key, ended) in some.iter().zip(join_all(ended).await) {
                match ended {
                    Ok(()) => deleted += 1,
                    Err(failure) => failed = failed.or(Some((key, failure))),
                }
            }
            if let Some((key, failure)) = failed {
                let (key, why) = (String::from_utf8_lossy(key), failure.sentence);
                let sentence = format!("`{key}` was not deleted, {deleted} others were: {why}");
                return Err(Failure {
                    sentence,
                    ..failure
                });
            }
        }
    }
    match global.json {
        true => output::json(&json!({ "keyspace": global.keyspace(), "deleted": deleted }))?,
        false => output::text(format!("deleted, key by key: {deleted}"))?,
    }
    Ok(0)
}
