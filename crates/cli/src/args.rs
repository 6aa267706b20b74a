//! Every command and option, as `--help` shows them.

mod options;
mod ring;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fermata_client::ledger::Timestamp;
use fermata_client::{Condition, Version};
use fermata_protocol::settings::Setting;

use crate::commands::access::{AuthCommand, PrincipalCommand, RoleCommand, TokenCommand};
use crate::commands::cert::CertCommand;
use crate::commands::server::EngineArgs;
use crate::duration;
use crate::exit::{EXIT_STATUSES, Failure};
use options::{ClusterOptions, KeyOptions, OnKeys, Uses};
pub(crate) use options::{Global, credentials};
pub(crate) use ring::{
    JoinChoice, LeaderChoice, NodeCommand, PolicyCommand, RingArgs, RingCommand, Wait, WaitArgs,
};

/// Critical sections over keys in several sites: exclusive, from the latest state, durable.
#[derive(Debug, Parser)]
#[command(name = "fermata", version, after_help = EXIT_STATUSES, propagate_version = true)]
pub(crate) struct Cli {
    /// Print JSON; a failure is an object on standard error.
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    #[command(flatten)]
    before: KeyOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What the options before the command and after it and the environment come to.
    ///
    /// # Errors
    /// [`Exit::Usage`](crate::exit::Exit::Usage), where one is of no use to the command or makes no
    /// sense.
    pub(crate) fn global(&self) -> Result<Global, Failure> {
        let variable = |name: &str| std::env::var_os(name);
        let global = Global::new(self.json, &self.before, self.command.uses(), variable);
        global.map_err(Failure::usage)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one node.
    Server(Box<crate::commands::server::ServerArgs>),
    /// Run a cluster on this machine, one real process per node; Ctrl-C stops all.
    Dev(DevArgs),
    /// Run a worked example with its faults on a fresh cluster, and judge it.
    Demo(DemoArgs),
    /// Print a key's latest value (linearizable); inside `fermata lock`, its section's.
    #[command(after_help = GET_HELP)]
    Get(OnKeys<KeyArgs>),
    /// Put a value that every later `get` sees (linearizable); inside `fermata lock`, in its
    /// section.
    #[command(after_help = PUT_HELP)]
    Put(OnKeys<ValueArgs>),
    /// Delete a value, as `put` puts one.
    #[command(after_help = PUT_HELP)]
    Del(OnKeys<DelArgs>),
    /// List the keys of a keyspace, in order: as the nearest nodes know them.
    Keys(OnKeys<KeysArgs>),
    /// Change several keys of a ledger keyspace at one moment, or none.
    #[command(after_help = TXN_HELP)]
    Txn(OnKeys<TxnArgs>),
    /// Print keys of a ledger keyspace as they were at one moment.
    Snapshot(OnKeys<SnapshotArgs>),
    /// Run COMMAND while holding the keys.
    Lock(OnKeys<LockArgs>),
    /// Ends the command of a `fermata lock` that was killed.
    #[command(name = crate::commands::lock::guard::GUARD, hide = true)]
    GuardLock,
    /// Waits for the word of a `fermata lock`, and turns into its command.
    #[command(name = crate::commands::lock::child::BEGIN, hide = true)]
    BeginLocked {
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Show a key's lock queue, head first.
    Locks(OnKeys<LocksArgs>),
    /// End a section or a wait by force, by its lock ref; `fermata locks` shows them.
    Release(OnKeys<ReleaseArgs>),
    /// Show sites, nodes, segments and primaries.
    Status(StatusArgs),
    /// Create, list, describe, change or delete keyspaces.
    #[command(mut_args(|option| option.global(true)))]
    Keyspace {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: KeyspaceCommand,
    },
    /// Show what all nodes count alike, or give the cluster another read lease or format.
    #[command(after_help = SETTINGS_HELP)]
    #[command(mut_args(|option| anywhere(option, &["lease", "format"])))]
    Settings(SettingsArgs),
    /// Show which nodes have which segments, and what is still to move.
    #[command(mut_args(|option| anywhere(option, &["watch"])))]
    Ring(RingArgs),
    /// List nodes, give them seats, drain, remove or replace them.
    #[command(mut_args(|option| option.global(true)))]
    Node {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: NodeCommand,
    },
    /// Control access to the cluster: who may do what.
    #[command(mut_args(|option| option.global(true)))]
    Auth {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: AuthCommand,
    },
    /// Make, list or revoke tokens, by which principals are known.
    #[command(mut_args(|option| option.global(true)))]
    Token {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: TokenCommand,
    },
    /// Say what one may do in a role.
    #[command(mut_args(|option| option.global(true)))]
    Role {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: RoleCommand,
    },
    /// Say who has which roles, and how much of a node each may use.
    #[command(mut_args(|option| option.global(true)))]
    Principal {
        #[command(flatten)]
        cluster: ClusterOptions,
        #[command(subcommand)]
        action: PrincipalCommand,
    },
    /// Make an authority of one's own, and sign certificates for nodes and clients.
    Cert {
        #[command(subcommand)]
        what: CertCommand,
    },
    /// Decide whether a recorded history of registers is linearizable, or one of transactions
    /// strictly serializable, and show the part that is not.
    Check(CheckArgs),
    /// Print what a shell needs to complete this program's commands and options.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    Man {
        /// The directory, which is created where there is none.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Measure.
    Bench {
        #[command(subcommand)]
        what: BenchCommand,
    },
}

/// An option that may stand before a verb and behind it, but for those that are another verb's.
fn anywhere(option: clap::Arg, but: &[&str]) -> clap::Arg {
    let own = but.contains(&option.get_id().as_str());
    option.global(!own)
}

impl Command {
    /// Which of the options about clusters it has a use for.
    fn uses(&self) -> Uses<'_> {
        match self {
            Command::Server(_)
            | Command::Dev(_)
            | Command::Demo(_)
            | Command::GuardLock
            | Command::BeginLocked { .. }
            | Command::Cert { .. }
            | Command::Check(_)
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::Bench {
                what: BenchCommand::Crowd(_),
            } => Uses::Nothing,
            Command::Status(StatusArgs { cluster: own, .. })
            | Command::Settings(SettingsArgs { cluster: own, .. })
            | Command::Ring(RingArgs { cluster: own, .. })
            | Command::Node { cluster: own, .. }
            | Command::Auth { cluster: own, .. }
            | Command::Token { cluster: own, .. }
            | Command::Role { cluster: own, .. }
            | Command::Principal { cluster: own, .. }
            | Command::Keyspace { cluster: own, .. } => Uses::Cluster(own),
            Command::Get(on) => Uses::Keys(&on.options),
            Command::Del(on) => Uses::Keys(&on.options),
            Command::Keys(on) => Uses::Keys(&on.options),
            Command::Put(on) => Uses::Keys(&on.options),
            Command::Txn(on) => Uses::Keys(&on.options),
            Command::Snapshot(on) => Uses::Keys(&on.options),
            Command::Lock(on) => Uses::Keys(&on.options),
            Command::Locks(on) => Uses::Keys(&on.options),
            Command::Release(on) => Uses::Keys(&on.options),
            Command::Bench {
                what: BenchCommand::Load(on),
            } => Uses::Keys(&on.options),
        }
    }
}

/// A key, and how it is got.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The key.
    pub(crate) key: OsString,
    /// Print the version of the value instead, for `--if-version`.
    #[arg(long)]
    pub(crate) only_version: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What must be so of the key for a change; nothing, unless one is given.
#[derive(Debug, Args)]
#[group(multiple = false, conflicts_with = "eventual")]
pub(crate) struct IfArgs {
    /// Only if the key has this value.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    if_value: Option<OsString>,
    /// Only if the key has a value of this version, as `get --only-version` prints it.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    if_version: Option<Version>,
    /// Only if the key has no value.
    #[arg(long)]
    if_absent: bool,
    /// Only if the key has a value.
    #[arg(long)]
    if_present: bool,
}

impl IfArgs {
    /// The one that is given.
    pub(crate) fn condition(self) -> Option<Condition> {
        let value = |value: OsString| Condition::Value(value.into_vec().into());
        let flag = |given: bool, condition| given.then_some(condition);
        (self.if_value.map(value))
            .or(self.if_version.map(Condition::Version))
            .or(flag(self.if_absent, Condition::Absent))
            .or(flag(self.if_present, Condition::Present))
    }
}

fn version(text: &str) -> Result<Version, String> {
    let wrong = "a version is 32 hexadecimal digits, as `fermata get --only-version` prints it";
    Version::from_hex(text).ok_or_else(|| wrong.to_owned())
}

/// See `fermata del --help`.
#[derive(Debug, Args)]
pub(crate) struct DelArgs {
    /// The key.
    #[arg(required_unless_present = "prefix", conflicts_with = "prefix")]
    pub(crate) key: Option<OsString>,
    /// Delete all keys that start so, one after the other: whoever looks meanwhile finds some of
    /// them, and a failure in the middle leaves the rest.
    #[arg(long, value_name = "PREFIX", conflicts_with = "IfArgs")]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) only: IfArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// See `fermata keys --help`.
#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Only keys that start so.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,
    /// Print each key's value, too, behind a tab: what the nearest node has (registers: the
    /// latest).
    #[arg(long)]
    pub(crate) values: bool,
    /// Only keys above this one.
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<OsString>,
    /// At most so many, and a warning where there are more. Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

const TXN_HELP: &str = "\
A condition is one of
    KEY exists               KEY absent
    KEY = VALUE              KEY != VALUE
    KEY < NUMBER             and <=, >, >=: the value as a decimal number, 0 where it is absent
    KEY version = MOMENT     and !=, <, <=, >, >=: when it was written; 0 where it is absent
An act is one of
    get KEY                  range PREFIX [LIMIT]
    put KEY VALUE            add KEY NUMBER [min NUMBER] [max NUMBER]
    del KEY                  del-prefix PREFIX
A key with spaces stands in quotes. All keys have one tag, the part before the keyspace's tag
character.
A script has lines `if CONDITION`, `then ACT`, `else ACT` and `# …`.
Reads see what was there just before. Exit status: 0 `then` was done, 1 `else` was.";

/// See `fermata txn --help`.
#[derive(Debug, Args)]
pub(crate) struct TxnArgs {
    /// What has to hold, all of it, for `--then`; else `--else` is done.
    #[arg(long = "if", value_name = "CONDITION", num_args = 1..)]
    pub(crate) compare: Vec<OsString>,
    /// What is done if it holds.
    #[arg(long, value_name = "ACT", num_args = 1..)]
    pub(crate) then: Vec<OsString>,
    /// What is done if not.
    #[arg(long = "else", value_name = "ACT", num_args = 1..)]
    pub(crate) or_else: Vec<OsString>,
    /// Read all that, or more of it, from a script; `-` reads standard input.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) file: Option<OsString>,
}

/// See `fermata snapshot --help`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Keys.
    pub(crate) keys: Vec<OsString>,
    /// All keys that start so, of any tag; all there are where it is empty.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<OsString>,
    /// As it was at this moment, as `txn --json` and `snapshot` show moments. Default: now.
    #[arg(long, value_name = "MOMENT", value_parser = crate::commands::txn::timestamp,
          conflicts_with_all = ["max_staleness", "after"])]
    pub(crate) at: Option<Timestamp>,
    /// The latest that the nearest nodes can show, not older than this: fast, everywhere.
    #[arg(long, value_parser = duration::positive, value_name = "DURATION")]
    pub(crate) max_staleness: Option<Duration>,
    /// The latest that the nearest nodes can show, not before this moment.
    #[arg(long, value_name = "MOMENT", value_parser = crate::commands::txn::timestamp)]
    pub(crate) after: Option<Timestamp>,
    /// At most so many keys with the prefix. Default: 10,000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
}

/// How strong an operation on one key is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HowArgs {
    /// Wait for whoever holds the key, as long as --timeout says.
    #[arg(long)]
    wait: bool,
    /// Act at the nearest node alone: fast, always there, and neither the latest value nor kept
    /// where a section writes beside it.
    #[arg(long, conflicts_with = "wait")]
    eventual: bool,
}

/// The same, as one of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Linearizable, and nobody is waited for.
    Plain,
    /// Linearizable, after whoever holds the key.
    Wait,
    /// At the nearest replica.
    Eventual,
}

impl HowArgs {
    /// Which of the three.
    pub(crate) fn how(self) -> How {
        match (self.wait, self.eventual) {
            (true, _) => How::Wait,
            (_, true) => How::Eventual,
            _ => How::Plain,
        }
    }
}

const GET_HELP: &str = "\
`get` sees every `put` that was acknowledged before it, from wherever. While somebody holds the key
in a `fermata lock` it shows what is acknowledged so far, and asks a majority of the key's nodes
itself; with --wait it waits until the holder has left. In a keyspace with coded storage, and on
another engine than the native one, it always waits.";

const PUT_HELP: &str = "\
On disk at a majority when the command ends with 0. Where somebody else holds the key for two
seconds it is refused (65); with --wait it waits for the holder, as long as --timeout says.

With --if-... the key is compared and changed in one section of its own (compare-and-set). Where
that is not so nothing is changed, and the exit status is 1.";

/// See `fermata status --help`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show it again and again, this far apart, until Ctrl-C. Default: 2s.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s",
          value_parser = duration::patience)]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// See `fermata settings --help`.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<SettingsCommand>,
    /// The read lease from now on: how long a member is bound to its primary.
    #[arg(long, value_name = "DURATION", value_parser = duration::positive)]
    pub(crate) lease: Option<Duration>,
    /// The format from now on in which nodes write for each other: the one after the present one.
    #[arg(long, value_name = "NUMBER", conflicts_with = "lease")]
    pub(crate) format: Option<u16>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// See `fermata settings --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    /// Change a setting by its name.
    Set {
        /// lease, format, dead_after, join, leader, key_bytes, value_bytes or move_rate.
        name: String,
        /// A duration, a number, bytes (65536, 16MiB), or one of what `fermata ring policy set
        /// --help` names; off for none.
        value: String,
    },
}

impl SettingsArgs {
    /// What is to be changed, if anything is.
    pub(crate) fn change(&self) -> Option<Setting> {
        let micros = |lease: Duration| u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let lease = self.lease.map(|lease| Setting::Lease(micros(lease)));
        lease.or(self.format.map(Setting::Format))
    }
}

const SETTINGS_HELP: &str = "\
A changed lease holds once every node of the cluster knows of it; this waits for that, at most as
long as --timeout says. Until then nodes rely on the shorter of both leases, and are bound by the
longer one. A node that is down holds up the change, and nothing else.

A format is raised once every node runs a version of this program that reads it, and is never
lowered; until every node has said so, the present one given again takes that back.";

/// See `fermata locks --help`.
#[derive(Debug, Args)]
pub(crate) struct LocksArgs {
    /// The key.
    pub(crate) key: OsString,
    /// Show what each replica holds of the key, too: tags, fences, sizes.
    #[arg(long)]
    pub(crate) replicas: bool,
}

/// See `fermata release --help`.
#[derive(Debug, Args)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct ReleaseArgs {
    /// The key.
    pub(crate) key: OsString,
    /// The lock ref, as `fermata locks KEY` shows it.
    #[arg(value_name = "REF", value_parser = lock_ref)]
    pub(crate) lock_ref: u64,
    /// Wait so long, at most 24h, for the lease that the holder has (exit status 76).
    #[arg(long, value_parser = duration::wait, value_name = "DURATION", default_value = "60s")]
    pub(crate) wait: Duration,
}

fn lock_ref(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|lock_ref| *lock_ref > 0);
    number.ok_or_else(|| {
        "a lock ref is a whole number from 1, as `fermata locks KEY` shows it".to_owned()
    })
}

const RELEASE_HELP: &str = "\
A ref that waits is removed at once. A ref that holds the key is renewed no more, and is out when
the lease that it has is over; then the next one is let in. What that means for a holder who lives:
until then nothing; from then on its writes are refused (no_longer_holder), on all keys of its
section, and a `fermata lock` ends its COMMAND and has status 75. What was acknowledged to it is
kept. A ref never comes back.

Exit status: 0 the ref is out of the queue, by this release or before, so that it may be repeated;
65 no such ref was given yet; 69 unavailable, nothing was changed; 76 not out of the queue, or
unknown, within --wait: the lease may still run, and is renewed no more.";

/// A key and its new value.
#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// The key.
    pub(crate) key: OsString,
    /// The value; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: OsString,
    #[command(flatten)]
    pub(crate) only: IfArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// See `fermata lock --help`.
#[derive(Debug, Args)]
#[command(after_help = LOCK_HELP)]
pub(crate) struct LockArgs {
    /// The keys; all are held, or none.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    /// Hold the keys together with other readers; no puts.
    #[arg(long)]
    pub(crate) shared: bool,
    /// How long the keys stay held if this process dies or is cut off: 100ms to the keyspace's
    /// longest section. Default: the keyspace's lease.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// Give up waiting for the keys after this long, at most 24h (exit status 73); 0s: where
    /// somebody holds them or waits. Default: wait for ever.
    #[arg(long, value_parser = duration::wait, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// Say nothing where the wait was over (73), and warn of nothing: for cron jobs.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// What `fermata locks` shows of this section, at most 64 bytes. Default: user@host:pid.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Exit with 77 where COMMAND ended with 0 but the leave was not confirmed; without, that is a
    /// warning.
    #[arg(long)]
    pub(crate) confirm_leave: bool,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const LOCK_HELP: &str = "\
Inside COMMAND, `fermata get`, `put` and `del` of a held key are operations of this section: they
see and change the latest value, and fail once the section is lost. FERMATA_SECTION names the socket
they use, FERMATA_LOCK_REF is the lock ref of the first key: a fencing token. FERMATA_KEYSPACE is
the keyspace of the keys.

  fermata lock counter -- sh -c 'fermata put counter $(( $(fermata get counter) + 1 ))'

Signals are passed on to COMMAND. When the section is lost, COMMAND gets SIGTERM, five seconds later
SIGKILL, and the exit status is 75. Where the lease runs out although nobody says so, since no node
can be reached or `fermata lock` stands still, SIGTERM comes before that and SIGKILL with it.
Otherwise the exit status is COMMAND's.";

/// See `fermata dev --help`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Sites [default: 3, or as many as --rtt names].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=13))]
    pub(crate) sites: Option<u8>,
    /// Nodes per site [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=13))]
    pub(crate) nodes_per_site: Option<u8>,
    /// Delay messages between sites: none, l1, lUs, lUsEu, or a file [default: none].
    #[arg(long, value_name = "PROFILE")]
    pub(crate) rtt: Option<String>,
    /// Keep the cluster in this directory and resume it from there. Default: a temporary one.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Node i (from 0) listens on this port plus 10 i (gRPC), plus 1 (REST), plus 2 (peers).
    #[arg(long, default_value_t = crate::dev::BASE_PORT, value_name = "PORT")]
    pub(crate) base_port: u16,
    /// Segments of the ring, a power of two [default: 16].
    #[arg(long)]
    pub(crate) segments: Option<u32>,
    /// Promise that no node's clock is further off than this, at most 990ms (all share this
    /// machine's); 0s: no interval clock [default: what the kernel says].
    #[arg(long, value_parser = duration::clock_bound, value_name = "DURATION")]
    pub(crate) clock_bound: Option<Duration>,
    /// Speak TLS alone, by an authority of the cluster's own: clients are told what to show.
    #[arg(long)]
    pub(crate) tls: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// See `fermata demo --help`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Which example.
    #[arg(value_enum, default_value_t = Example::Homing)]
    pub(crate) example: Example,
    /// Leave the cluster up at the end, until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,
    /// As for `fermata dev` [default: the first free ports from 7400 on].
    #[arg(long, value_name = "PORT")]
    pub(crate) base_port: Option<u16>,
    // In a keyspace of Cassandra that is new unless one is named, and stays.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// The worked examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Example {
    /// A job scheduler on three sites: workers die and are suspected in the middle of their jobs.
    Homing,
    /// A role service: owners of users' roles fail over between sites.
    Portal,
}

/// See `fermata keyspace --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyspaceCommand {
    /// Create a keyspace.
    Create(KeyspaceArgs),
    /// List all keyspaces.
    List,
    /// Show one keyspace.
    Describe {
        /// Its name.
        name: String,
    },
    /// Change a keyspace for whoever enters from now on; who holds or waits keeps its terms.
    Change(ChangeArgs),
    /// Delete a keyspace and all that is in it: nothing of it comes back.
    Delete {
        /// Its name.
        name: String,
        /// Do not ask for the name again.
        #[arg(long)]
        yes: bool,
    },
}

/// Other times of a keyspace.
#[derive(Debug, Args)]
#[group(id = "times", required = true, multiple = true, args = ["lease", "section_max"])]
pub(crate) struct ChangeArgs {
    /// Its name.
    pub(crate) name: String,
    /// How long a silent holder keeps its section.
    #[arg(long, value_parser = duration::positive, value_name = "DURATION")]
    pub(crate) lease: Option<Duration>,
    /// The longest section, however often it is renewed.
    #[arg(long, value_parser = duration::positive, value_name = "DURATION")]
    pub(crate) section_max: Option<Duration>,
}

/// A new keyspace.
#[derive(Debug, Args)]
pub(crate) struct KeyspaceArgs {
    /// Its name: 1 to 64 of a-z 0-9 - _
    pub(crate) name: String,
    /// What its keys are for.
    #[arg(long, value_enum, default_value_t = PurposeArg::Sections)]
    pub(crate) purpose: PurposeArg,
    /// Of a ledger: how far ahead times are closed, so that every node answers reads of the present
    /// at once; writers wait so much longer. Default: not at all.
    #[arg(long, value_parser = duration::positive, value_name = "DURATION")]
    pub(crate) lead: Option<Duration>,
    /// How values are stored: whole at every member, or coded.
    #[arg(long, value_enum, default_value_t = StorageArg::Replicated)]
    pub(crate) storage: StorageArg,
    /// f of a coded storage: members of a key's group that may fail.
    #[arg(long = "f", value_name = "F", allow_negative_numbers = true)]
    pub(crate) faults: Option<u8>,
    /// Of a coded storage: writes of one key under way at once, dead ones included, that members
    /// keep parts of; 0 to 32, `coded` from 1. Default: 3. Under `coded` further ones wait, up to a
    /// beat (100 ms) each time: raise it for keys that many write at once. Under the others reads
    /// of a key depend on it, and values become larger with it.
    #[arg(long, value_name = "DELTA", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=32))]
    pub(crate) delta: Option<u8>,
    /// Of a coded storage: values shorter than so many bytes are kept whole. Default: 2048.
    #[arg(long, value_name = "BYTES")]
    pub(crate) whole_below: Option<u32>,
    /// Only the part of a key before this byte decides where the key lives, so that related keys
    /// share a segment.
    #[arg(long, value_name = "CHARACTER")]
    pub(crate) tag_before: Option<char>,
    /// How long a silent holder keeps its section.
    #[arg(long, value_parser = duration::positive, default_value = "10s", value_name = "DURATION")]
    pub(crate) lease: Duration,
    /// The longest section, however often it is renewed. Default: ten years, the most.
    #[arg(long, value_parser = duration::positive, default_value = "3660d",
        hide_default_value = true, value_name = "DURATION")]
    pub(crate) section_max: Duration,
}

/// How a keyspace stores values; docs/protocols/register.md has the rules of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StorageArg {
    /// A whole copy at every member.
    Replicated,
    /// One part of a code per member. Any number of concurrent writes; above --delta of one key at
    /// once they wait for each other, up to a beat (100 ms).
    Coded,
    /// As published: TREAS-OPT. Reads get stuck beyond delta concurrent or dead writes.
    TreasOpt,
    /// As published: OREAS, one round trip per write with an interval clock.
    Oreas,
    /// As published: ARES, delta + 1 parts per member.
    Ares,
}

/// What the keys of a keyspace are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurposeArg {
    /// Critical sections, eventual get and put.
    Sections,
    /// Linearizable read and write, no locks.
    Registers,
    /// Transactions and snapshots.
    Ledger,
}

/// See `fermata check --help`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArgs {
    /// The history: JSON lines as in docs/formats/history.md; `-` reads standard input.
    #[arg(value_name = "HISTORY")]
    pub(crate) history: PathBuf,
    /// States that the search for an order keeps in memory per key, about 100 bytes each.
    #[arg(long, default_value_t = fermata_check::Bound::default().states, value_name = "N")]
    pub(crate) states: u64,
}

const CHECK_HELP: &str = r#"The first line names the format; each other line is one operation:

  {"format":"fermata-history","version":1}
  {"key":"k","client":1,"op":"write","value":"a","call":0,"return":10,"outcome":"ok"}

or one transaction:

  {"format":"fermata-transactions","version":1}
  {"client":1,"call":0,"return":9,"outcome":"ok",
   "transaction":[{"list":["x",[]]},{"append":["x",1]}]}     (on one line)

Exit status: 0 linearizable, or strictly serializable; 1 not; 2 wrong usage, or a history that
cannot be read; 3 undecided: no key is known not to be linearizable, but some were not decided
within --states, or transactions lack what would decide them."#;

/// See `fermata bench --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Load a running cluster, each client in a closed loop.
    Load(Box<OnKeys<LoadArgs>>),
    /// What clients that only hold connections cost the others, on a cluster of its own.
    Crowd(CrowdArgs),
}

/// See `fermata bench crowd --help`.
#[derive(Debug, Args)]
pub(crate) struct CrowdArgs {
    /// Connections that say nothing.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    pub(crate) silent: u32,
    /// Connections that stop in the middle of a head.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) half_open: u32,
    /// Connections that send a body too slowly.
    #[arg(long, default_value_t = 700, value_name = "N")]
    pub(crate) slow: u32,
    /// Connections that send 2 MiB of a body at once, and then nothing.
    #[arg(long, default_value_t = 120, value_name = "N")]
    pub(crate) bodies: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
}

/// See `fermata bench load --help`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Numbers of clients to try.
    #[arg(long, value_delimiter = ',', default_value = "1,16,128")]
    pub(crate) clients: Vec<u16>,
    /// Sizes of values to try, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "10,1024,262144")]
    pub(crate) size: Vec<u32>,
    /// Seconds per combination, after a warm-up of a tenth of it.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// What a client does in its loop.
    #[arg(long, value_enum, default_value_t = LoadMode::Section, conflicts_with = "reads")]
    pub(crate) mode: LoadMode,
    /// Read and write registers instead, this share of the operations being reads: 0 to 1. Default
    /// keyspace: `registers`.
    #[arg(long, value_name = "SHARE")]
    pub(crate) reads: Option<f64>,
    /// Keys in all. Sections: default one per client; fewer make them compete. Registers: default
    /// 1000, and every client works on all of them.
    #[arg(long)]
    pub(crate) keys: Option<u32>,
    /// Which register an operation takes.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform, requires = "reads")]
    pub(crate) distribution: Distribution,
    /// Write what was done to the registers and seen of them to this file, for `fermata check`.
    /// Each run takes new keys then, since a history begins with empty registers.
    #[arg(long, value_name = "FILE", requires = "reads")]
    pub(crate) record: Option<PathBuf>,
}

/// Which keys a register workload prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// All alike.
    Uniform,
    /// The i-th key with weight i^-0.99, as YCSB does it.
    Zipfian,
}

/// What a client of `bench load` does in its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadMode {
    /// Whole sections with one put: enter, put and leave.
    Section,
    /// Critical puts inside one long section.
    Put,
    /// Critical gets inside one long section.
    Get,
}
