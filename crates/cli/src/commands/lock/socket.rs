//! The socket between `fermata lock` and the `fermata get`, `put` and `del` inside its command.
//!
//! **Problem.** A section belongs to one client session: sequence numbers, lease and loss live in
//! the process of `fermata lock`. Its children must act in that section, not open one of their own.
//!
//! **Idea.** One request and one answer per connection over a Unix socket in a directory that only
//! the user can enter. A message is a length (4 bytes, big-endian) and that many bytes of JSON; a
//! value follows as raw bytes, `value_bytes` long. Both sides are this program, so the format may
//! change with it; a foreign version is refused.
//!
//! **Bound.** A header has at most [`HEADER_MAX`] bytes and a value [`VALUE_MAX`]; a longer one is
//! refused before it is read.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::exit::{Exit, Failure};

/// Names the socket, in the environment of a command under `fermata lock`.
pub(crate) const SECTION_ENV: &str = "FERMATA_SECTION";

/// The fencing token, in the environment of a command under `fermata lock`.
pub(crate) const LOCK_REF_ENV: &str = "FERMATA_LOCK_REF";

/// How much longer a child waits than a section with the same `--timeout` works on its request.
const MARGIN: Duration = Duration::from_secs(1);

const HEADER_MAX: u32 = 64 << 10;
const VALUE_MAX: u32 = 64 << 20;

/// What a child asks of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    /// The latest value.
    Get,
    /// A critical put of the value that follows.
    Put,
    /// A critical delete.
    Delete,
    /// Whether the key is one of the section's.
    Holds,
    /// Whether the command may begin; of no key.
    Begin,
}

/// A request of a child.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    /// Of this program; another is refused.
    pub(crate) version: String,
    /// What to do.
    pub(crate) action: Action,
    /// The key's keyspace.
    pub(crate) keyspace: String,
    /// The key.
    pub(crate) key: Vec<u8>,
}

/// The answer to a child.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChildAnswer {
    /// Done; the value, if there is one, follows.
    Done {
        /// Whether a value follows, which may be empty.
        value: bool,
    },
    /// The key is not one of the section's.
    NotHeld,
    /// Failed: the child ends with this.
    Failed {
        /// The exit status.
        exit: u8,
        /// The stable code.
        code: String,
        /// One sentence.
        sentence: String,
        /// Whether it may have been done.
        may_have_taken_effect: bool,
    },
}

/// Sends a header and a value.
pub(crate) async fn send<W, T>(to: &mut W, header: &T, value: &[u8]) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
    T: Serialize,
{
    let header = serde_json::to_vec(header)?;
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the message is too long");
    let header_bytes = u32::try_from(header.len()).map_err(|_| too_long())?;
    let value_bytes = u32::try_from(value.len()).map_err(|_| too_long())?;
    to.write_u32(header_bytes).await?;
    to.write_u32(value_bytes).await?;
    to.write_all(&header).await?;
    to.write_all(value).await?;
    to.flush().await
}

/// Receives a header and a value.
///
/// # Errors
/// Also for a message over the bounds, and for a header that is not a `T`.
pub(crate) async fn receive<R, T>(from: &mut R) -> io::Result<(T, Bytes)>
where
    R: AsyncRead + Unpin,
    T: for<'a> Deserialize<'a>,
{
    let header_bytes = from.read_u32().await?;
    let value_bytes = from.read_u32().await?;
    if header_bytes > HEADER_MAX || value_bytes > VALUE_MAX {
        let error = "the message on the section's socket is over its bound";
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut header = vec![0; header_bytes as usize];
    from.read_exact(&mut header).await?;
    let mut value = vec![0; value_bytes as usize];
    from.read_exact(&mut value).await?;
    Ok((serde_json::from_slice(&header)?, value.into()))
}

/// Asks the surrounding section, which answers within its own `--timeout`; the child's `patience`
/// is a bound for a `fermata lock` that does not even say that.
///
/// # Errors
/// What the section answered. `Unavailable` when it cannot be reached or does not answer: nothing
/// was changed; `OutcomeUnknown` when a change may have been on its way.
pub(crate) async fn ask(
    path: &Path,
    action: Action,
    (keyspace, key): (&str, &[u8]),
    value: &[u8],
    patience: Duration,
) -> Result<Option<Bytes>, Failure> {
    // From then on a put may be on its way.
    let connected = AtomicBool::new(false);
    let gone = |error: io::Error| {
        let sentence = format!(
            "the surrounding section does not answer at {} ({error}): it is over, its `fermata \
             lock` is stopped, or {SECTION_ENV} is set outside of one",
            path.display()
        );
        // Whether the section is lost is not known here; only that nobody answers for it.
        let changes = matches!(action, Action::Put | Action::Delete);
        let exit = if changes && connected.load(Ordering::Relaxed) {
            Exit::OutcomeUnknown
        } else {
            Exit::Unavailable
        };
        Failure::new(exit, sentence)
    };
    let ask = Ask {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        action,
        keyspace: keyspace.to_owned(),
        key: key.to_vec(),
    };
    let exchange = async {
        let mut stream = UnixStream::connect(path).await?;
        connected.store(true, Ordering::Relaxed);
        send(&mut stream, &ask, value).await?;
        receive(&mut stream).await
    };
    let exchanged = tokio::time::timeout(patience + MARGIN, exchange).await;
    let exchanged = exchanged.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let (answer, value) = exchanged.map_err(gone)?;
    match answer {
        ChildAnswer::Done { value: true } => Ok(Some(value)),
        ChildAnswer::Done { value: false } => Ok(None),
        ChildAnswer::NotHeld => Err(Failure::new(
            Exit::Refused,
            format!(
                "the surrounding section does not hold the key `{}` of keyspace `{keyspace}`: name \
                 it in `fermata lock`, or unset {SECTION_ENV} to work outside of the section",
                String::from_utf8_lossy(key)
            ),
        )),
        ChildAnswer::Failed {
            exit,
            code,
            sentence,
            may_have_taken_effect,
        } => Err(Failure {
            code,
            may_have_taken_effect,
            ..Failure::new(exit_of(exit), sentence)
        }),
    }
}

/// The exit status with this number.
fn exit_of(number: u8) -> Exit {
    let known = [
        Exit::Refused,
        Exit::Unavailable,
        Exit::Local,
        Exit::SectionLost,
        Exit::OutcomeUnknown,
    ];
    known
        .into_iter()
        .find(|exit| *exit as u8 == number)
        .unwrap_or(Exit::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_runtime<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        on_a_runtime(async {
            let ask = Ask {
                version: "1".into(),
                action: Action::Put,
                keyspace: "default".into(),
                key: vec![0, 255],
            };
            let mut wire = Vec::new();
            send(&mut wire, &ask, b"value").await.unwrap();
            let (again, value) = receive::<_, Ask>(&mut wire.as_slice()).await.unwrap();
            assert_eq!((again, &value[..]), (ask, &b"value"[..]));
        });
    }

    #[test]
    fn malformed_messages_are_refused() {
        on_a_runtime(async {
            let long = [0xff; 64];
            assert!(receive::<_, Ask>(&mut &long[..]).await.is_err());
            let short = [0, 0, 0, 9, 0, 0, 0, 0, b'{'];
            assert!(receive::<_, Ask>(&mut &short[..]).await.is_err());
            let not_json = [0, 0, 0, 1, 0, 0, 0, 0, b'{'];
            assert!(receive::<_, Ask>(&mut &not_json[..]).await.is_err());
        });
    }
}
