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
//!   the loss, the command is ended: SIGTERM, then SIGKILL after [`GRACE`]; where its lease runs
//!   out unheard of, SIGTERM before that and SIGKILL with it: see [`lease`].
//! * L2 An answered `put` of a child was acknowledged by a quorum under the section's lock ref.
//! * L3 The exit status is the command's, unless the section was lost (75), the command could not
//!   be started (126, 127) or the section was never entered (any other of `docs/cli.md`). A leave
//!   that is not confirmed changes nothing of what the command did: it is a warning, and a status
//!   of its own (77) only for those who ask for it.
//! * L4 The command does not outlive this process for long, however this ends, nor the lease of
//!   one that stands still: see [`guard`].
//! * L5 Sections nest: a child acts in the innermost section around it that holds its key, and a
//!   key that any of them holds is not locked again, which would wait for ever.

pub(crate) mod child;
pub(crate) mod guard;
mod lease;
pub(crate) mod socket;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fermata_client::{Client, Code, Enter, Mode, Section, SectionHandle};
use rustix::process::Signal;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::child::{Running, Signals};
use self::lease::{Loss, Seen, Term, Times};
use self::socket::{Action, Ask, ChildAnswer};
use crate::args::{Global, LockArgs};
use crate::exit::{Exit, Failure};

/// Between SIGTERM and SIGKILL, once the section or this process is lost.
const GRACE: Duration = Duration::from_secs(5);

/// How long a wait that ended may take to give its place up. If that fails, its lease ends it.
pub(crate) const GIVE_UP: Duration = Duration::from_millis(500);

/// Runs the command. The result is the exit status.
pub(crate) async fn run(global: &Global, args: LockArgs) -> Result<u8, Failure> {
    let mut keys: Vec<&[u8]> = args.keys.iter().map(|key| key.as_bytes()).collect();
    keys.sort_unstable();
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let twice = String::from_utf8_lossy(pair[0]);
        return Err(Failure::usage(format!("the key `{twice}` is named twice")));
    }
    let outer = super::surrounding_section();
    if let Some(outer) = &outer {
        refuse_inside(outer, global, &keys).await?;
    }
    let mut signals = Signals::catch()?;
    let label = args.label.clone().unwrap_or_else(who);
    let client = crate::connect::connect_as(global, label).await?;
    let enter = Enter {
        mode: if args.shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        },
        wait: args.wait,
        lease: args.ttl,
    };
    let section = tokio::select! {
        section = entered(&client, global.keyspace(), &keys, enter) => match section {
            Ok(section) => section,
            Err(error) => {
                let waited = error.code() == Code::WaitOver;
                // The place in the queue is being given up: nobody shall find it there.
                client.close(GIVE_UP).await;
                let failure = not_entered(error, "COMMAND was not run");
                return Err(match args.quiet && waited {
                    true => Failure { sentence: String::new(), ..failure },
                    false => failure,
                });
            }
        },
        signal = wait_for_stop(&mut signals) => {
            // Dropping the attempt gives its place in the queue up, in the background.
            client.close(GIVE_UP).await;
            return Ok(128 + signal.as_raw() as u8);
        }
    };
    let held = Arc::new(HeldKeys {
        keyspace: global.keyspace().to_owned(),
        keys: args.keys.clone(),
        outer,
        patience: global.timeout(),
    });
    let first = section.lock_ref(keys[0]).map_or(0, |lock_ref| lock_ref.0);
    let of = (global.keyspace(), first);
    let start = |socket: &Path| Running::start(&args.command, socket, of, global.json);
    let times = Times::of(&client, global.keyspace()).await;
    let told = (global, &args, &client);
    let outcome = run_command(start, held, (&section, times), told, &mut signals).await;
    let left = section.leave_and_wait().await;
    ended(
        global,
        &args,
        outcome?,
        left.map_err(|e| (e, client.heard())),
    )
}

/// Who this process is, for people: `user@host:pid`.
fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = |text: &str, most: usize| {
        text.chars()
            .filter(char::is_ascii_graphic)
            .take(most)
            .collect::<String>()
    };
    let pid = std::process::id();
    format!("{}@{}:{pid}", first(&user, 20), first(host.trim(), 32))
}

/// Enters; without a bound the wait begins anew after each day, the longest that there is.
async fn entered(
    client: &Client,
    keyspace: &str,
    keys: &[&[u8]],
    enter: Enter,
) -> Result<Section, fermata_client::Error> {
    loop {
        match client.enter(keyspace, keys, enter.clone()).await {
            Err(error) if error.code() == Code::WaitOver && enter.wait.is_none() => {}
            ended => return ended,
        }
    }
}

/// A section that was not entered, so that its outcome is known, which `so` says. What may have
/// taken effect is a place in the queue, which is given up, and else ends with its lease.
pub(crate) fn not_entered(error: fermata_client::Error, so: &str) -> Failure {
    let fermata_client::Error::Refused(refusal) = &error else {
        return error.into();
    };
    let exit = match Failure::from(error.clone()).exit {
        Exit::OutcomeUnknown => Exit::Unavailable,
        exit => exit,
    };
    let sentence = crate::exit::in_style(&refusal.detail);
    Failure {
        code: refusal.code.name().to_owned(),
        ..Failure::new(exit, format!("{sentence}; {so}"))
    }
}

/// A second section on a held key would wait for the first, which waits for its command: for ever.
async fn refuse_inside(outer: &Path, global: &Global, keys: &[&[u8]]) -> Result<(), Failure> {
    for key in keys {
        if super::is_held_around(outer, global, key).await {
            let key = String::from_utf8_lossy(key);
            let sentence = format!(
                "a section around this command holds `{key}` already, and a second one would wait \
                 for it for ever: use `fermata get`, `put` and `del` on it as it is, and lock only \
                 keys that are not held here"
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

/// The exit status, once the command has ended and the leave was tried.
fn ended(
    global: &Global,
    args: &LockArgs,
    outcome: Ended,
    left: Result<(), (fermata_client::Error, String)>,
) -> Result<u8, Failure> {
    let status = match outcome {
        Ended::ByItself(status) => status,
        Ended::SectionLost(loss) => return Err(lost(&why(loss))),
    };
    let heard = match left {
        Ok(()) => return Ok(status),
        Err((error, _)) if Failure::from(error.clone()).exit == Exit::SectionLost => {
            return Err(lost("it had ended before"));
        }
        Err((_, heard)) => heard,
    };
    // What the command did is acknowledged; the next holder waits for the lease at worst.
    let sentence = format!(
        "COMMAND ended with {status} and what it was acknowledged is kept, but leaving the section \
         was not confirmed: the keys may stay held until its lease has run out (asked {heard})"
    );
    let not_left = Failure::new(Exit::NotLeft, sentence);
    if args.confirm_leave && status == 0 {
        return Err(not_left);
    }
    if !args.quiet {
        crate::exit::warn(&not_left, global.json);
    }
    Ok(status)
}

fn why(loss: Loss) -> String {
    match loss {
        Loss::Lease => {
            "its lease ran out: no node could be reached to renew it, or `fermata lock` \
                        stood still"
                .to_owned()
        }
        Loss::Longest(longest) => format!(
            "it has lasted {}, the longest that its keyspace allows (`fermata keyspace describe`)",
            crate::duration::show(longest)
        ),
        Loss::Deleted => "its keyspace was deleted".to_owned(),
        Loss::Denied => "whoever asks may not hold it any more".to_owned(),
        Loss::Released => "it was released by force, or taken over by another".to_owned(),
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
    SectionLost(Loss),
}

/// Starts the command and serves it until it ends.
async fn run_command(
    start: impl FnOnce(&Path) -> Result<Running, Failure>,
    held: Arc<HeldKeys>,
    (section, mut times): (&Section, Times),
    (global, args, client): (&Global, &LockArgs, &Client),
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    // Created so that only this user can enter it.
    let folder = tempfile::Builder::new().prefix("fermata-").tempdir();
    let folder = folder.map_err(|e| Failure::local("creating a temporary directory", e))?;
    let path = folder.path().join("section");
    let listener = UnixListener::bind(&path)
        .map_err(|error| Failure::local(format_args!("listening at {}", path.display()), error))?;
    let mut command = start(&path)?;
    let mut children = JoinSet::new();
    let mut look_at = Instant::now();
    let mut reason = None;
    let by_itself = loop {
        tokio::select! {
            status = command.wait() => break Ok(status),
            lost = section.lost() => {
                reason = Some(lost);
                break Err(GRACE);
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
            () = tokio::time::sleep_until(look_at) => {
                match times.look(section).await {
                    Seen::Nothing => {}
                    Seen::Renewed(term) => command.lease(term),
                    Seen::EndsIn(left, longest) if !args.quiet => ends_soon(left, longest, global),
                    Seen::EndsIn(..) => {}
                    Seen::Over(Term { ends, .. }) => {
                        break Err(ends.saturating_sub(lease::boot_time()));
                    }
                }
                look_at = Instant::now() + times.pause();
            }
        }
    };
    // The guard may have ended it while this process stood still.
    let lost = match &by_itself {
        Ok(status) => {
            let signal = status.as_ref().ok().and_then(ExitStatusExt::signal);
            let ended = [Some(Signal::TERM), Some(Signal::KILL)];
            times.is_over() && ended.contains(&signal.and_then(Signal::from_named_raw))
        }
        Err(_) => true,
    };
    let loss = match lost {
        true => {
            let first = (global.keyspace(), args.keys[0].as_bytes());
            Some(times.loss(reason, client, first).await)
        }
        false => None,
    };
    if let Err(grace) = by_itself {
        end(&mut command, grace).await;
    }
    // What a background child of the command still asks for comes too late.
    children.shutdown().await;
    command.ended();
    match (loss, by_itself) {
        (Some(loss), _) => Ok(Ended::SectionLost(loss)),
        (None, Ok(Ok(status))) => Ok(Ended::ByItself(child::status_of(status))),
        (None, Ok(Err(error))) => Err(Failure::local("waiting for the command", error)),
        (None, Err(_)) => unreachable!("then it is lost"),
    }
}

/// Warns of the longest time of a section.
fn ends_soon(left: Duration, longest: Duration, global: &Global) {
    let sentence = format!(
        "the section ends in {}: its keyspace allows none of more than {}; COMMAND is ended then",
        crate::duration::show(left),
        crate::duration::show(longest)
    );
    crate::exit::warn(&Failure::new(Exit::SectionLost, sentence), global.json);
}

/// L1: ends the command of a lost section.
async fn end(command: &mut Running, grace: Duration) {
    command.signal(Signal::TERM);
    if tokio::time::timeout(grace, command.wait()).await.is_err() {
        command.signal(Signal::KILL);
        let _status = command.wait().await;
    }
}

/// The keys of the section, as children may name them, and where to ask for others.
struct HeldKeys {
    keyspace: String,
    keys: Vec<OsString>,
    /// The socket of the section around this one.
    outer: Option<PathBuf>,
    patience: Duration,
}

impl HeldKeys {
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
        answer(Err(Failure::new(Exit::Refused, sentence)))
    } else if ask.action == Action::Begin {
        answer(Ok(None))
    } else if held.has(&ask.keyspace, &ask.key) {
        let result = match ask.action {
            Action::Get => section.get(&ask.key).await,
            Action::Put => section.put(&ask.key, value).await.map(|()| None),
            Action::Delete => section.delete(&ask.key).await.map(|()| None),
            Action::Holds | Action::Begin => Ok(None),
        };
        answer(result.map_err(Failure::from))
    } else if let Some(outer) = &held.outer {
        let named = (ask.keyspace.as_str(), ask.key.as_ref());
        answer(socket::ask(outer, ask.action, named, &value, held.patience).await)
    } else {
        (ChildAnswer::NotHeld, None)
    };
    // A child that has gone needs no answer.
    let _gone = socket::send(&mut stream, &answer, &value.unwrap_or_default()).await;
}

/// A result as the child gets it, and the value that follows.
fn answer(result: Result<Option<Bytes>, Failure>) -> (ChildAnswer, Option<Bytes>) {
    match result {
        Ok(value) => {
            let is_some = value.is_some();
            (ChildAnswer::Done { value: is_some }, value)
        }
        Err(failure) => {
            let failed = ChildAnswer::Failed {
                exit: failure.exit as u8,
                code: failure.code,
                sentence: failure.sentence,
                may_have_taken_effect: failure.may_have_taken_effect,
            };
            (failed, None)
        }
    }
}
