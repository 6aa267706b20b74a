//! One file per command. Each has a `run` that returns the exit status or a [`Failure`].

pub(crate) mod access;
pub(crate) mod bench;
pub(crate) mod cert;
pub(crate) mod check;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod keyspace;
pub(crate) mod lock;
pub(crate) mod locks;
pub(crate) mod release;
mod ring;
pub(crate) mod server;
mod settable;
mod settings;
mod shell;
pub(crate) mod status;
pub(crate) mod txn;

use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};

use crate::args::{BenchCommand, Command, Global};
use crate::exit::{Exit, Failure};
use lock::socket::{self, Action};

/// Runs the command. The result is the exit status.
pub(crate) fn run(global: &Global, command: Command) -> Result<u8, Failure> {
    let done = |()| 0;
    match command {
        Command::Server(args) => server::run(*args).map(done),
        Command::Dev(args) => on_threads(crate::dev::run(global, args)),
        Command::Demo(args) => on_threads(crate::demo::run(global, args)),
        Command::Get(on) => on_this_thread(key::get(global, on.args)),
        Command::Put(on) => on_this_thread(key::put(global, on.args)),
        Command::Del(on) => on_this_thread(key::del(global, on.args)),
        Command::Keys(on) => on_this_thread(keys::list(global, on.args)),
        Command::Txn(on) => on_this_thread(txn::run(global, on.args)),
        Command::Snapshot(on) => on_this_thread(txn::snapshot(global, on.args)),
        Command::Lock(on) => on_this_thread(lock::run(global, on.args)),
        Command::GuardLock => on_this_thread(lock::guard::run()),
        Command::BeginLocked { command } => on_this_thread(lock::child::begin(&command)),
        Command::Locks(on) => on_this_thread(locks::run(global, on.args)),
        Command::Release(on) => on_this_thread(release::run(global, on.args)),
        Command::Status(args) => on_this_thread(status::run(global, args.watch)),
        Command::Settings(args) => on_this_thread(settings::command(global, args)),
        Command::Keyspace { action, .. } => on_this_thread(keyspace::run(global, action)),
        Command::Ring(args) => on_this_thread(ring::run(global, args)),
        Command::Node { action, .. } => on_this_thread(ring::nodes(global, action)),
        Command::Auth { action, .. } => on_this_thread(access::auth(global, action)),
        Command::Token { action, .. } => on_this_thread(access::token(global, action)),
        Command::Role { action, .. } => on_this_thread(access::role(global, action)),
        Command::Principal { action, .. } => on_this_thread(access::principal(global, action)),
        Command::Cert { what } => cert::run(what),
        Command::Check(args) => check::run(global, args),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { folder } => shell::man(&folder),
        Command::Bench { what } => match what {
            BenchCommand::Crowd(args) => on_threads(bench::crowd::run(global, args)),
            BenchCommand::Load(on) => on_threads(bench::load::run(global, on.args)),
        },
    }
}

/// Runs a short client command: one thread starts faster than several.
fn on_this_thread(command: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    runtime(Builder::new_current_thread())?.block_on(command)
}

/// Runs a command that does much at a time.
fn on_threads(command: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    runtime(Builder::new_multi_thread())?.block_on(command)
}

fn runtime(mut builder: Builder) -> Result<Runtime, Failure> {
    let built = builder.enable_all().build();
    built.map_err(|error| Failure::local("starting the runtime", error))
}

/// The socket of the `fermata lock` around this process.
fn surrounding_section() -> Option<PathBuf> {
    let path = std::env::var_os(socket::SECTION_ENV)?;
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// Whether the surrounding section holds a key.
async fn is_held_around(path: &Path, global: &Global, key: &[u8]) -> bool {
    let named = (global.keyspace(), key);
    let held = socket::ask(path, Action::Holds, named, &[], global.timeout()).await;
    held.is_ok()
}

/// Refuses a linearizable operation on a key that the surrounding section holds: it would be a
/// section of its own, and wait for the one around it for ever. `instead` sees the same in it.
async fn refuse_if_held_around(global: &Global, key: &[u8], instead: &str) -> Result<(), Failure> {
    let Some(path) = surrounding_section() else {
        return Ok(());
    };
    if !is_held_around(&path, global, key).await {
        return Ok(());
    }
    let key = String::from_utf8_lossy(key);
    let sentence = format!(
        "the section around this command holds `{key}`: use `fermata {instead}` without --wait, \
         which is an operation of that section"
    );
    Err(Failure::new(Exit::Refused, sentence))
}
