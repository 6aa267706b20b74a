//! The options of the commands that talk to a cluster, and what they come to.
//!
//! **Problem.** Where a cluster is, is asked by many commands; the others (`check`, `dev`, `demo`,
//! ...) must neither show such options nor take them as if they meant something.
//!
//! **Idea.** A command that talks to a cluster has them as its own, by [`ClusterOptions`] or
//! [`KeyOptions`]. The same may stand before the command, for aliases; [`Global::new`] puts the two
//! together, refuses what the command has no use for, and asks the environment for the rest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fermata_client::{Credentials, Files};

use crate::duration;

/// How long a client command waits for an answer unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where the cluster is, and how long to wait for it.
///
/// The environment variables are read by [`Global::new`], not by the parser: what the parser takes
/// from the environment it shows in every message about wrong usage as if the command needed it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterOptions {
    /// A node's gRPC address; give it several times or separate by commas. Default: the ports of
    /// `fermata dev` on loopback. [env: FERMATA_ENDPOINTS]
    #[arg(long = "endpoint", value_name = "HOST:PORT", value_delimiter = ',')]
    endpoints: Vec<String>,
    /// The client's own site: its nodes are asked first. [env: FERMATA_SITE]
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// How long to wait for an answer; what a command waits for besides (`--wait`) is added.
    /// Default: 10s. [env: FERMATA_TIMEOUT]
    #[arg(long, value_parser = duration::patience, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// The file with the token, or the JWT, that says who asks; read again for each connection.
    /// [env: FERMATA_TOKEN_FILE, or the token itself in FERMATA_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
}

/// Whom a client trusts, and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TlsOptions {
    /// Speak TLS alone, and trust the authorities in this file. [env: FERMATA_TLS_CA]
    #[arg(id = "tls-ca", long = "tls-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The client's certificate, for nodes that ask for one. [env: FERMATA_TLS_CERTIFICATE]
    #[arg(id = "tls-certificate", long = "tls-certificate", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its key. [env: FERMATA_TLS_KEY]
    #[arg(id = "tls-key", long = "tls-key", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl TlsOptions {
    /// These, and each that is not given from the others.
    fn or(self, others: TlsOptions) -> TlsOptions {
        TlsOptions {
            ca: self.ca.or(others.ca),
            certificate: self.certificate.or(others.certificate),
            key: self.key.or(others.key),
        }
    }

    /// Where the files are; none: in clear.
    fn files(self) -> Result<Option<Files>, String> {
        match (self.ca, self.certificate, self.key) {
            (None, None, None) => Ok(None),
            (Some(ca), None, None) => Ok(Some(Files { ca, own: None })),
            (Some(ca), Some(certificate), Some(key)) => Ok(Some(Files {
                ca,
                own: Some((certificate, key)),
            })),
            (None, ..) => {
                Err("--tls-ca (FERMATA_TLS_CA) is missing: name the authority's file".into())
            }
            _ => Err("--tls-certificate and --tls-key go together: give both, or neither".into()),
        }
    }
}

/// Where keys are: the cluster, and the keyspace in it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct KeyOptions {
    #[command(flatten)]
    cluster: ClusterOptions,
    /// The keyspace of the keys. Default: `default`. [env: FERMATA_KEYSPACE]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
}

/// A command on keys: what it takes itself, and where the keys are.
#[derive(Debug, Args)]
pub(crate) struct OnKeys<A: Args> {
    #[command(flatten)]
    pub(crate) args: A,
    #[command(flatten)]
    pub(super) options: KeyOptions,
}

/// Which of these options a command has a use for, and what was given after it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Uses<'a> {
    /// It talks to no cluster.
    Nothing,
    /// It talks to a cluster, but of no key.
    Cluster(&'a ClusterOptions),
    /// It works on keys.
    Keys(&'a KeyOptions),
}

/// What the options and the environment come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Global {
    /// gRPC addresses; empty: not said.
    pub(crate) endpoints: Vec<String>,
    /// The client's own site.
    pub(crate) site: Option<String>,
    keyspace: Option<String>,
    timeout: Option<Duration>,
    /// Whom to trust over TLS, and what to show; none: in clear.
    pub(crate) tls: Option<Files>,
    /// What says who asks, beside a certificate.
    pub(crate) credentials: Option<Credentials>,
    /// Whether JSON is to be printed.
    pub(crate) json: bool,
}

impl Global {
    /// What was said before the command and after it (which wins), and by the environment where
    /// neither says anything.
    ///
    /// # Errors
    /// One sentence, where an option before the command is of no use to it, or a variable that it
    /// uses makes no sense.
    pub(super) fn new(
        json: bool,
        before: &KeyOptions,
        uses: Uses<'_>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Global, String> {
        let (own, keyspace) = match uses {
            Uses::Nothing => {
                refuse(before.given(), "commands that talk to a cluster")?;
                return Ok(Global {
                    json,
                    ..Global::default()
                });
            }
            Uses::Cluster(own) => {
                let given = before.keyspace.as_ref().map(|_| "--keyspace");
                refuse(given, "commands on keys")?;
                (own, None)
            }
            Uses::Keys(own) => (&own.cluster, own.keyspace.as_ref()),
        };
        let endpoints = match own.endpoints.is_empty() {
            true => &before.cluster.endpoints,
            false => &own.endpoints,
        };
        let given = Global {
            endpoints: endpoints.clone(),
            site: own.site.as_ref().or(before.cluster.site.as_ref()).cloned(),
            keyspace: keyspace.or(before.keyspace.as_ref()).cloned(),
            timeout: own.timeout.or(before.cluster.timeout),
            tls: None,
            credentials: None,
            json,
        };
        let file = |name: &str| {
            let named = variable(name).filter(|value| !value.is_empty());
            named.map(PathBuf::from)
        };
        let there = TlsOptions {
            ca: file("FERMATA_TLS_CA"),
            certificate: file("FERMATA_TLS_CERTIFICATE"),
            key: file("FERMATA_TLS_KEY"),
        };
        let tls = (own.tls.clone()).or(before.cluster.tls.clone()).or(there);
        let mut all = given.or_environment(&variable)?;
        all.tls = tls.files()?;
        let token = own
            .token_file
            .as_ref()
            .or(before.cluster.token_file.as_ref());
        all.credentials = match token {
            Some(path) => Some(Credentials::File(path.clone())),
            None => credentials(variable)?,
        };
        Ok(all)
    }

    fn or_environment(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Global, String> {
        // A variable that is set to nothing counts as one that is not set.
        let text = |name: &str| match variable(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(format!("{name} is not text")),
            },
        };
        if self.endpoints.is_empty()
            && let Some(all) = text("FERMATA_ENDPOINTS")?
        {
            self.endpoints = all.split(',').map(|one| one.trim().to_owned()).collect();
        }
        if self.site.is_none() {
            self.site = text("FERMATA_SITE")?;
        }
        if self.keyspace.is_none() {
            self.keyspace = text("FERMATA_KEYSPACE")?;
        }
        if self.timeout.is_none()
            && let Some(given) = text("FERMATA_TIMEOUT")?
        {
            let parsed = duration::patience(&given);
            let parsed = parsed.map_err(|why| format!("FERMATA_TIMEOUT is `{given}`: {why}"))?;
            self.timeout = Some(parsed);
        }
        Ok(self)
    }

    /// The keyspace of the keys.
    pub(crate) fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("default")
    }

    /// The keyspace of the keys of a command that works on registers.
    pub(crate) fn keyspace_of_registers(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("registers")
    }

    /// How long to wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }
}

impl KeyOptions {
    /// The first of them that was given.
    fn given(&self) -> Option<&'static str> {
        let all = [
            ("--endpoint", !self.cluster.endpoints.is_empty()),
            ("--site", self.cluster.site.is_some()),
            ("--timeout", self.cluster.timeout.is_some()),
            ("--token-file", self.cluster.token_file.is_some()),
            ("--tls-ca", self.cluster.tls.ca.is_some()),
            ("--tls-certificate", self.cluster.tls.certificate.is_some()),
            ("--tls-key", self.cluster.tls.key.is_some()),
            ("--keyspace", self.keyspace.is_some()),
        ];
        let given = all.into_iter().find(|(_, given)| *given);
        given.map(|(option, _)| option)
    }
}

/// What the environment has that says who asks.
///
/// # Errors
/// One sentence: it has two.
pub(crate) fn credentials(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Credentials>, String> {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    match (given("FERMATA_TOKEN"), given("FERMATA_TOKEN_FILE")) {
        (None, None) => Ok(None),
        (None, Some(path)) => Ok(Some(Credentials::File(path.into()))),
        (Some(token), None) => match token.into_string() {
            Ok(token) => Ok(Some(Credentials::Token(token))),
            Err(_) => Err("FERMATA_TOKEN is not text".into()),
        },
        (Some(_), Some(_)) => {
            Err("FERMATA_TOKEN and FERMATA_TOKEN_FILE are both set: which is meant?".into())
        }
    }
}

/// Refuses an option that was given although only `others` have a use for it.
fn refuse(given: Option<&'static str>, others: &str) -> Result<(), String> {
    match given {
        None => Ok(()),
        Some(option) => Err(format!(
            "{option} is for {others}, and this is none of them: leave it away"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn global(
        args: &[&str],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Global, String> {
        let all = std::iter::once("fermata").chain(args.iter().copied());
        let cli = Cli::try_parse_from(all).expect("it is well-formed");
        Global::new(cli.json, &cli.before, cli.command.uses(), variable)
    }

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn cluster_options_stand_before_or_after_the_command() {
        let options = [
            "--keyspace",
            "jobs",
            "--endpoint",
            "a:1,b:2",
            "--site",
            "ohio",
            "--timeout",
            "2s",
            "--json",
        ];
        for command in [&["get", "k"][..], &["put", "k", "v"], &["bench", "load"]] {
            let before = [&options[..], command].concat();
            let after = [command, &options[..]].concat();
            for args in [before, after] {
                let global = global(&args, nothing).unwrap();
                assert_eq!(global.keyspace(), "jobs", "{args:?}");
                assert_eq!(global.endpoints, ["a:1", "b:2"], "{args:?}");
                assert_eq!(global.site.as_deref(), Some("ohio"), "{args:?}");
                assert_eq!(global.timeout(), Duration::from_secs(2), "{args:?}");
                assert!(global.json, "{args:?}");
            }
        }
        for args in [
            ["--site", "ohio", "keyspace", "list"],
            ["keyspace", "--site", "ohio", "list"],
            ["keyspace", "list", "--site", "ohio"],
        ] {
            let global = global(&args, nothing).unwrap();
            assert_eq!(global.site.as_deref(), Some("ohio"), "{args:?}");
        }
        let both = ["--timeout", "1s", "status", "--timeout", "2s"];
        let both = global(&both, nothing).unwrap();
        assert_eq!(both.timeout(), Duration::from_secs(2));
    }

    #[test]
    fn what_a_command_has_no_use_for_is_refused() {
        let options = [
            ["--keyspace", "k"],
            ["--endpoint", "h:1"],
            ["--site", "s"],
            ["--timeout", "1s"],
            ["--tls-ca", "f"],
            ["--token-file", "f"],
        ];
        let no_cluster = [
            &["check", "file"][..],
            &["dev"],
            &["demo"],
            &["server"],
            &["bench", "crowd"],
        ];
        let no_keys = [&["status"][..], &["keyspace", "list"]];
        let refused = no_cluster
            .iter()
            .flat_map(|command| options.iter().map(|option| (*command, option)))
            .chain(no_keys.iter().map(|command| (*command, &options[0])));
        for (command, option) in refused {
            let args = [&option[..], command].concat();
            let said = global(&args, nothing).unwrap_err();
            assert!(said.contains(option[0]), "{args:?}: {said}");
            // A node that joins has a site, and one may have certificates.
            if command == ["server"] && ["--site", "--tls-ca"].contains(&option[0]) {
                continue;
            }
            let args = [&["fermata"], command, &option[..]].concat();
            let said = Cli::try_parse_from(&args).expect_err("unknown there");
            assert!(said.to_string().contains(option[0]), "{args:?}: {said}");
        }
    }

    #[test]
    fn an_option_wins_over_the_environment() {
        let variable = |name: &str| match name {
            "FERMATA_ENDPOINTS" => Some("x:1, y:2".into()),
            "FERMATA_KEYSPACE" => Some("env".into()),
            "FERMATA_TIMEOUT" => Some("3s".into()),
            "FERMATA_SITE" => Some("".into()),
            _ => None,
        };
        let from_there = global(&["get", "k"], variable).unwrap();
        assert_eq!(from_there.endpoints, ["x:1", "y:2"]);
        assert_eq!(from_there.keyspace(), "env");
        assert_eq!(from_there.site, None);
        assert_eq!(from_there.timeout(), Duration::from_secs(3));
        let given = [
            "get",
            "k",
            "--keyspace",
            "arg",
            "--timeout",
            "4s",
            "--endpoint",
            "z:3",
        ];
        let given = global(&given, variable).unwrap();
        assert_eq!(given.endpoints, ["z:3"]);
        assert_eq!(given.keyspace(), "arg");
        assert_eq!(given.timeout(), Duration::from_secs(4));
    }

    #[test]
    fn certificates_are_named_together_and_by_the_options_or_the_environment() {
        let all = |name: &str| name.starts_with("FERMATA_TLS_").then(|| name.into());
        let there = global(&["get", "k"], all).unwrap().tls.unwrap();
        assert_eq!(there.ca, PathBuf::from("FERMATA_TLS_CA"));
        assert!(there.own.is_some());
        let given = global(&["get", "k", "--tls-ca", "own"], all).unwrap();
        let own = Files {
            ca: "own".into(),
            ..there
        };
        assert_eq!(given.tls, Some(own));
        for (args, word) in [
            (&["get", "k", "--tls-key", "key"][..], "--tls-ca"),
            (&["get", "k", "--tls-ca", "a", "--tls-key", "k"], "together"),
        ] {
            let said = global(args, nothing).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(global(&["get", "k"], nothing).unwrap().tls, None);
    }

    #[test]
    fn a_token_is_in_a_file_or_in_the_environment() {
        let token = |name: &str| (name == "FERMATA_TOKEN").then(|| "t".into());
        let there = global(&["get", "k"], token).unwrap().credentials;
        assert_eq!(there, Some(Credentials::Token("t".into())));
        let file = |name: &str| (name == "FERMATA_TOKEN_FILE").then(|| "f".into());
        let there = global(&["get", "k"], file).unwrap().credentials;
        assert_eq!(there, Some(Credentials::File("f".into())));
        let given = global(&["get", "k", "--token-file", "own"], token).unwrap();
        assert_eq!(given.credentials, Some(Credentials::File("own".into())));
        let both = |name: &str| name.starts_with("FERMATA_TOKEN").then(|| "x".into());
        assert!(
            global(&["get", "k"], both)
                .unwrap_err()
                .contains("both set")
        );
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_named_where_it_is_used() {
        let wrong = |name: &str| (name == "FERMATA_TIMEOUT").then(|| "soon".into());
        let error = global(&["status"], wrong).unwrap_err();
        assert!(
            error.contains("FERMATA_TIMEOUT") && error.contains("soon"),
            "{error}"
        );
        assert!(global(&["dev"], wrong).is_ok());
    }
}
