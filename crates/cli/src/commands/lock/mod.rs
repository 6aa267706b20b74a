//! `fermata lock`: runs a command while it holds keys.
//!
//! **Problem.** Shell scripts want what the client library offers: be alone, go on from the latest
//! state, stop when the section is lost. But a script is many processes, and a section is one
//! client's.
//!
//! **Idea.** This process enters the section and keeps it; its command's `fermata get`, `put` and
//! `del` come to it over a [`socket`]. When the command has ended, the section is left, and the
//! leave is waited for: whoever runs next sees the keys free.
//!
//! **Invariants.**
//! * L1 The command runs only while this process believes to hold the section. When it learns of
//!   the loss, the command is ended: SIGTERM, then SIGKILL after [`GRACE`].
//! * L2 An answered `put` of a child was acknowledged by a quorum under the section's lock ref.
//! * L3 The exit status is the command's, unless the section was lost (75), the command could not
//!   be started (126, 127) or the section was never entered (any other of `docs/cli.md`).

mod child;
pub(crate) mod socket;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fermata_client::{Enter, LostReason, Mode, Section, SectionHandle};
use rustix::process::Signal;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use self::child::{Running, Signals};
use self::socket::{Action, Answer, Ask};
use crate::args::{Global, LockArgs};
use crate::exit::{Exit, Failure};

/// Between SIGTERM and SIGKILL, once the section is lost.
const GRACE: Duration = Duration::from_secs(5);

/// How long an interrupted wait may take to give its place up. If that fails, its lease ends it.
const GIVE_UP: Duration = Duration::from_millis(500);

/// Runs the command. The result is the exit status.
pub(crate) async fn run(global: &Global, args: LockArgs) -> Result<u8, Failure> {
    let mut keys: Vec<&[u8]> = args.keys.iter().map(|key| key.as_bytes()).collect();
    keys.sort_unstable();
    keys.dedup();
    refuse_inside(&args.space.keyspace, &keys).await?;
    let mut signals = Signals::catch()?;
    let client = crate::connect::connect(global).await?;
    let enter = Enter {
        mode: if args.shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        },
        wait: Some(args.wait),
        lease: args.ttl,
    };
    let section = tokio::select! {
        section = client.enter(&args.space.keyspace, &keys, enter) => section?,
        signal = wait_for_stop(&mut signals) => {
            // Dropping the attempt gives its place in the queue up, in the background.
            drop(client);
            tokio::time::sleep(GIVE_UP).await;
            return Ok(128 + signal.as_raw() as u8);
        }
    };
    hold(&args, keys[0], section, &mut signals).await
}

/// A second section on a held key would wait for the first, which waits for its command: for ever.
async fn refuse_inside(keyspace: &str, keys: &[&[u8]]) -> Result<(), Failure> {
    let Some(path) = super::surrounding_section() else {
        return Ok(());
    };
    for key in keys {
        if super::is_held_around(&path, keyspace, key).await {
            let key = String::from_utf8_lossy(key);
            let sentence = format!(
                "the surrounding section holds `{key}` already; use `fermata get` and `put` on it"
            );
            return Err(Failure::new(Exit::Refused, sentence));
        }
    }
    Ok(())
}

/// Signals that end this process while it waits for the section.
async fn wait_for_stop(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if signal != Signal::USR1 && signal != Signal::USR2 {
            return signal;
        }
    }
}

/// Runs the command inside the section, then leaves it.
async fn hold(
    args: &LockArgs,
    first: &[u8],
    section: Section,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock_ref = section.lock_ref(first).map_or(0, |lock_ref| lock_ref.0);
    let outcome = run_command(args, lock_ref, &section, signals).await;
    let left = section.leave_and_wait().await;
    let status = match outcome? {
        Ended::ByItself(status) => status,
        Ended::SectionLost(reason) => return Err(lost(why(reason))),
    };
    match left.map_err(Failure::from) {
        Ok(()) => {}
        Err(failure) if failure.exit == Exit::SectionLost => {
            return Err(lost("it had ended before"));
        }
        // What the command did is acknowledged; the next holder waits for the lease at worst.
        Err(failure) => eprintln!("fermata: the section was not left for certain: {failure}"),
    }
    Ok(status)
}

fn why(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Gone => "its lease ran out, it reached its longest time, or it was released",
        LostReason::Refused => "an operation was refused because another holder was let in",
    }
}

fn lost(why: &str) -> Failure {
    let sentence = format!(
        "the section was lost while the command ran ({why}): what it acknowledged is kept, and \
         another holder may have been let in since"
    );
    Failure::new(Exit::SectionLost, sentence)
}

/// How the command ended.
enum Ended {
    ByItself(u8),
    SectionLost(LostReason),
}

/// Starts the command and serves it until it ends.
async fn run_command(
    args: &LockArgs,
    lock_ref: u64,
    section: &Section,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    // Created so that only this user can enter it.
    let folder = tempfile::Builder::new().prefix("fermata-").tempdir();
    let folder = folder.map_err(|e| Failure::local("creating a temporary directory", e))?;
    let path = folder.path().join("section");
    let listener = UnixListener::bind(&path)
        .map_err(|error| Failure::local(format_args!("listening at {}", path.display()), error))?;
    let mut command = Running::start(&args.command, &path, lock_ref)?;
    let held = Arc::new(HeldKeys::of(args));
    let mut children = JoinSet::new();
    let status = loop {
        tokio::select! {
            status = command.wait() => break status,
            reason = section.lost() => {
                end(&mut command).await;
                children.shutdown().await;
                return Ok(Ended::SectionLost(reason));
            }
            signal = signals.next() => command.pass_on(signal),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    children.spawn(serve(stream, section.handle(), held.clone()));
                }
                // Out of descriptors, most likely: children that go away free some.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = children.join_next() => {}
        }
    };
    // What a background child of the command still asks for comes too late.
    children.shutdown().await;
    let status = status.map_err(|error| Failure::local("waiting for the command", error))?;
    Ok(Ended::ByItself(child::status_of(status)))
}

/// L1: ends the command of a lost section.
async fn end(command: &mut Running) {
    command.signal(Signal::TERM);
    if tokio::time::timeout(GRACE, command.wait()).await.is_err() {
        command.signal(Signal::KILL);
        let _status = command.wait().await;
    }
}

/// The keys of the section, as children may name them.
struct HeldKeys {
    keyspace: String,
    keys: Vec<OsString>,
}

impl HeldKeys {
    fn of(args: &LockArgs) -> HeldKeys {
        HeldKeys {
            keyspace: args.space.keyspace.clone(),
            keys: args.keys.clone(),
        }
    }

    fn has(&self, keyspace: &str, key: &[u8]) -> bool {
        self.keyspace == keyspace && self.keys.iter().any(|held| held.as_bytes() == key)
    }
}

/// Serves one request of a child. A child that went away or speaks nonsense is left alone.
async fn serve(mut stream: UnixStream, section: SectionHandle, held: Arc<HeldKeys>) {
    let Ok((ask, value)) = socket::receive::<_, Ask>(&mut stream).await else {
        return;
    };
    let (answer, value) = if ask.version != env!("CARGO_PKG_VERSION") {
        let sentence = format!(
            "the surrounding `fermata lock` is version {}, this is {}: use the same",
            env!("CARGO_PKG_VERSION"),
            ask.version
        );
        let exit = Exit::Refused as u8;
        (Answer::Failed { exit, sentence }, None)
    } else if !held.has(&ask.keyspace, &ask.key) {
        (Answer::NotHeld, None)
    } else {
        let result = match ask.action {
            Action::Get => section.get(&ask.key).await,
            Action::Put => section.put(&ask.key, value).await.map(|()| None),
            Action::Delete => section.delete(&ask.key).await.map(|()| None),
            Action::Holds => Ok(None),
        };
        match result.map_err(Failure::from) {
            Ok(value) => {
                let is_some = value.is_some();
                (Answer::Done { value: is_some }, value)
            }
            Err(failure) => {
                let (exit, sentence) = (failure.exit as u8, failure.sentence);
                (Answer::Failed { exit, sentence }, None)
            }
        }
    };
    let _gone = socket::send(&mut stream, &answer, &value.unwrap_or_default()).await;
}
