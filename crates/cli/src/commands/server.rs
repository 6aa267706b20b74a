//! `fermata server`: one node. Every field of the configuration file is a flag and an environment
//! variable, too; a flag wins over the environment, and that over the file.

use std::path::{Path, PathBuf};

use clap::Args;
use fermata_server::{ServerConfig, StartError};
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;

use crate::exit::{Exit, Failure};
use crate::signals::Stop;

/// See `fermata server --help`.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The node's TOML file.
    #[arg(long, env = "FERMATA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which node of the cluster this is: its label, or its number.
    #[arg(long, env = "FERMATA_NODE")]
    node: Option<String>,
    /// Where it keeps its data.
    #[arg(long, env = "FERMATA_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The cluster's TOML file.
    #[arg(long, env = "FERMATA_CLUSTER_FILE", value_name = "FILE")]
    cluster_file: Option<PathBuf>,
    /// Where to listen for peers, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_PEER", value_name = "HOST:PORT")]
    listen_peer: Option<String>,
    /// Where to listen for gRPC, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_GRPC", value_name = "HOST:PORT")]
    listen_grpc: Option<String>,
    /// Where to listen for REST, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_REST", value_name = "HOST:PORT")]
    listen_rest: Option<String>,
    /// Listen beyond loopback although nothing is encrypted or authenticated.
    #[arg(long, env = "FERMATA_INSECURE", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_name = "BOOL")]
    insecure: Option<bool>,
    /// Delay messages between sites: none, l1, lUs, lUsEu, or a file.
    #[arg(long, env = "FERMATA_RTT", value_name = "PROFILE")]
    rtt: Option<String>,
    /// How logs are written: text or json.
    #[arg(long, env = "FERMATA_LOG_FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    clock: ClockArgs,
    /// Stop when standard input closes: for a parent that must leave no node behind.
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// `[timing]`, in milliseconds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Durations, in milliseconds")]
struct TimingArgs {
    /// Peers exchange a beat this often.
    #[arg(long, env = "FERMATA_BEAT_MS", value_name = "MS")]
    beat_ms: Option<u64>,
    /// How long a read lease binds.
    #[arg(long, env = "FERMATA_LEASE_MS", value_name = "MS")]
    lease_ms: Option<u64>,
    /// How long after the lease a silent primary is replaced.
    #[arg(long, env = "FERMATA_ELECTION_MS", value_name = "MS")]
    election_ms: Option<u64>,
    /// What each seat adds to that.
    #[arg(long, env = "FERMATA_STAGGER_MS", value_name = "MS")]
    stagger_ms: Option<u64>,
    /// When an unanswered call to a peer is repeated.
    #[arg(long, env = "FERMATA_RETRY_MS", value_name = "MS")]
    retry_ms: Option<u64>,
    /// When a request without a quorum is answered `unavailable`.
    #[arg(long, env = "FERMATA_REQUEST_MS", value_name = "MS")]
    request_ms: Option<u64>,
    /// How often, at most, a node walks over its keys to mend what members lack.
    #[arg(long, env = "FERMATA_UPKEEP_MS", value_name = "MS")]
    upkeep_ms: Option<u64>,
}

/// `[limits]`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Bytes of a key.
    #[arg(long, env = "FERMATA_KEY_BYTES", value_name = "N")]
    key_bytes: Option<u64>,
    /// Bytes of a value.
    #[arg(long, env = "FERMATA_VALUE_BYTES", value_name = "N")]
    value_bytes: Option<u64>,
    /// Keys of one section.
    #[arg(long, env = "FERMATA_SECTION_KEYS", value_name = "N")]
    section_keys: Option<u64>,
    /// Bytes of the values that come with an entry.
    #[arg(long, env = "FERMATA_GRANT_BYTES", value_name = "N")]
    grant_bytes: Option<u64>,
    /// Requests open at once.
    #[arg(long, env = "FERMATA_REQUESTS", value_name = "N")]
    requests: Option<u64>,
}

/// `[clock]`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Interval clock")]
struct ClockArgs {
    /// Promise that this machine's clock is never further off than this, microseconds, at most
    /// 990000; 0: no interval clock [default: what the kernel says].
    #[arg(long, env = "FERMATA_CLOCK_BOUND_US", value_name = "US")]
    clock_bound_us: Option<u64>,
}

/// Runs the node until SIGTERM or SIGINT.
pub(crate) fn run(args: ServerArgs) -> Result<(), Failure> {
    let until_stdin_closes = args.until_stdin_closes;
    let config = config_of(args).map_err(Failure::usage)?;
    let runtime = super::runtime(Builder::new_multi_thread())?;
    let ran = runtime.block_on(async {
        let mut stop = Stop::catch()?;
        let shutdown = async move {
            tokio::select! {
                () = stop.asked() => {}
                () = parent_gone(), if until_stdin_closes => {}
            }
        };
        fermata_server::init_logs(config.log_format);
        let ran = fermata_server::run(config, shutdown).await;
        ran.map_err(|error| {
            let exit = match error {
                StartError::Config(_) => Exit::Usage,
                StartError::Data(_) => Exit::ServerData,
                StartError::Listen(_) => Exit::ServerListen,
                StartError::Halted(_) => Exit::ServerHalted,
            };
            Failure::new(exit, error.to_string())
        })
    });
    // A reader of standard input may still be blocked in its thread.
    runtime.shutdown_background();
    ran
}

/// Standard input closes when the parent ends, however it ends.
async fn parent_gone() {
    let mut nothing = [0; 64];
    let mut stdin = tokio::io::stdin();
    while stdin.read(&mut nothing).await.is_ok_and(|bytes| bytes > 0) {}
}

/// The file, and over it what was given besides.
fn config_of(args: ServerArgs) -> Result<ServerConfig, String> {
    let mut table = match &args.config {
        Some(path) => load(path)?,
        None => toml::Table::new(),
    };
    let text = |path: Option<PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
    if args.cluster_file.is_some() {
        table.remove("cluster");
    }
    let given: [(&str, Option<toml::Value>); 9] = [
        ("node", args.node.map(Into::into)),
        ("data_dir", text(args.data_dir).map(Into::into)),
        ("cluster_file", text(args.cluster_file).map(Into::into)),
        ("listen_peer", args.listen_peer.map(Into::into)),
        ("listen_grpc", args.listen_grpc.map(Into::into)),
        ("listen_rest", args.listen_rest.map(Into::into)),
        ("insecure", args.insecure.map(Into::into)),
        ("rtt", args.rtt.map(Into::into)),
        ("log_format", args.log_format.map(Into::into)),
    ];
    overlay(&mut table, given);
    let timing = [
        ("beat_ms", args.timing.beat_ms),
        ("lease_ms", args.timing.lease_ms),
        ("election_ms", args.timing.election_ms),
        ("stagger_ms", args.timing.stagger_ms),
        ("retry_ms", args.timing.retry_ms),
        ("request_ms", args.timing.request_ms),
        ("upkeep_ms", args.timing.upkeep_ms),
    ];
    overlay_section(&mut table, "timing", timing)?;
    let limits = [
        ("key_bytes", args.limits.key_bytes),
        ("value_bytes", args.limits.value_bytes),
        ("section_keys", args.limits.section_keys),
        ("grant_bytes", args.limits.grant_bytes),
        ("requests", args.limits.requests),
    ];
    overlay_section(&mut table, "limits", limits)?;
    let clock = [("bound_us", args.clock.clock_bound_us)];
    overlay_section(&mut table, "clock", clock)?;
    if table.is_empty() {
        return Err(
            "give the node's file with --config, or see `fermata server --help`".to_owned(),
        );
    }
    let source = args.config.map_or_else(
        || "the options".to_owned(),
        |path| path.display().to_string(),
    );
    let one_line = |error: toml::de::Error| format!("{source}: {}", error.message().trim());
    toml::Value::Table(table).try_into().map_err(one_line)
}

/// Reads the file; what is relative in it is relative to it.
fn load(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = before.matches('\n').count() + 1;
        format!(
            "{}, line {line}: {}",
            path.display(),
            error.message().trim()
        )
    })?;
    if let Some(toml::Value::String(cluster)) = table.get_mut("cluster_file")
        && let Some(parent) = path.parent()
    {
        *cluster = parent.join(&*cluster).to_string_lossy().into_owned();
    }
    Ok(table)
}

fn overlay<'a>(
    table: &mut toml::Table,
    given: impl IntoIterator<Item = (&'a str, Option<toml::Value>)>,
) {
    for (name, value) in given {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    }
}

fn overlay_section<'a>(
    table: &mut toml::Table,
    section: &str,
    given: impl IntoIterator<Item = (&'a str, Option<u64>)>,
) -> Result<(), String> {
    let number = |(name, value): (&'a str, Option<u64>)| {
        let value = value.map(i64::try_from).transpose();
        let value = value.map_err(|_| format!("{name} is too large"))?;
        Ok((name, value.map(toml::Value::from)))
    };
    let given: Vec<_> = given
        .into_iter()
        .map(number)
        .collect::<Result<_, String>>()?;
    if given.iter().all(|(_, value)| value.is_none()) {
        return Ok(());
    }
    let empty = toml::Value::Table(toml::Table::new());
    let into = table.entry(section).or_insert(empty).as_table_mut();
    overlay(
        into.ok_or_else(|| format!("{section} is not a table"))?,
        given,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use fermata_server::config::{LimitsConfig, TimingConfig};

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn config(flags: &[&str]) -> Result<ServerConfig, String> {
        let args = ["server"].iter().chain(flags);
        config_of(
            Alone::try_parse_from(args)
                .map_err(|e| e.to_string())?
                .server,
        )
    }

    #[test]
    fn flags_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let file = "node = \"a\"\ndata_dir = \"d\"\ncluster_file = \"c.toml\"\n\
                    [timing]\nbeat_ms = 5\nlease_ms = 7\n";
        std::fs::write(&path, file).unwrap();
        let file = path.to_str().unwrap();
        let read = config(&["--config", file, "--node", "b", "--lease-ms", "9"]).unwrap();
        assert_eq!(read.node, "b");
        assert_eq!(
            (read.timing.beat_ms, read.timing.lease_ms),
            (Some(5), Some(9))
        );
        assert_eq!(read.cluster_file, Some(folder.path().join("c.toml")));
        assert_eq!((read.clock.bound_us, read.insecure), (None, false));
        let bound = ["--config", file, "--clock-bound-us", "700"];
        assert_eq!(config(&bound).unwrap().clock.bound_us, Some(700));
        assert!(config(&["--config", file, "--insecure"]).unwrap().insecure);
    }

    #[test]
    fn every_field_of_timing_and_limits_is_a_flag_and_a_variable() {
        // Literals: a new field does not compile here until it is named.
        let timing = TimingConfig {
            beat_ms: Some(1),
            lease_ms: Some(1),
            election_ms: Some(1),
            stagger_ms: Some(1),
            retry_ms: Some(1),
            request_ms: Some(1),
            upkeep_ms: Some(1),
        };
        let limits = LimitsConfig {
            key_bytes: Some(1),
            value_bytes: Some(1),
            section_keys: Some(1),
            grant_bytes: Some(1),
            requests: Some(1),
        };
        let fields = toml::Table::try_from(timing).unwrap().into_iter();
        let fields = fields.chain(toml::Table::try_from(limits).unwrap());
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        for (field, _) in fields {
            let flag = command.get_arguments().find(|a| a.get_id() == &field);
            let variable = flag.and_then(|a| a.get_env()).unwrap_or_default();
            let expected = format!("FERMATA_{}", field.to_uppercase());
            assert_eq!(variable, expected.as_str());
        }
    }

    #[test]
    fn flags_alone_are_enough() {
        let flags = ["--node", "a", "--data-dir", "d", "--cluster-file", "c"];
        assert_eq!(config(&flags).unwrap().data_dir, PathBuf::from("d"));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let file = path.to_str().unwrap();
        for (text, word) in [
            ("node = \"a\"\nnode = \"b\"", "line 2"),
            ("nodes = 1", "node"),
            ("", "--config"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = config(&["--config", file]).unwrap_err();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
        assert!(
            config(&["--config", "/does/not/exist"])
                .unwrap_err()
                .contains("cannot read")
        );
        assert!(config(&[]).unwrap_err().contains("--config"));
    }
}
