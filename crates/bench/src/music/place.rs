//! Three sites on one machine, and the delays between them.
//!
//! A site is a network namespace with an address, and two runtimes whose threads live in it: one
//! for its servers, one for its clients. Without delays it is only the two runtimes, and everybody
//! is on the loopback.
//!
//! Delays come from `tc netem` where the kernel has it; else from the emulator that the variable
//! [`EMULATOR`] names, which takes `up FILE`, `set A B --rtt MS` and `down`, and makes namespaces
//! `site1` to `site3` with the addresses 10.77.0.1 to 10.77.0.3.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// The variable that names the program that emulates a wide-area network.
pub(crate) const EMULATOR: &str = "FERMATA_WAN";

/// Sites of all profiles.
pub(crate) const SITES: usize = 3;

/// Namespaces are called so, with the site's number behind it.
const PREFIX: &str = "site";

/// The namespace of the bridge between the sites, where netem does the work.
const HUB: &str = "sitehub";

/// A row of MUSIC's Table II: round trips in ms between the sites 1 and 2, 1 and 3, 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) sites: [&'static str; SITES],
    pub(crate) rtt: [f64; 3],
}

/// Two servers in one region, and one in the next.
pub(crate) const L1: Profile = Profile {
    name: "l1",
    sites: ["Ohio", "Ohio (2)", "N. Virginia"],
    rtt: [0.2, 15.14, 15.14],
};
/// Across the United States: what the paper shows most of its figures for.
pub(crate) const LUS: Profile = Profile {
    name: "lUs",
    sites: ["Ohio", "N. California", "Oregon"],
    rtt: [53.79, 72.14, 24.2],
};
/// And Europe.
pub(crate) const LUSEU: Profile = Profile {
    name: "lUsEu",
    sites: ["Ohio", "N. California", "Frankfurt"],
    rtt: [53.79, 100.56, 150.74],
};
/// Table II.
pub(crate) const PROFILES: [Profile; 3] = [L1, LUS, LUSEU];
/// No delays.
pub(crate) const LOOPBACK: Profile = Profile {
    name: "loopback",
    sites: ["site 1", "site 2", "site 3"],
    rtt: [0.0; 3],
};

/// The pairs of sites that a profile's round trips are of.
const PAIRS: [(usize, usize); 3] = [(1, 2), (1, 3), (2, 3)];

/// Who delays.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delays {
    /// Nobody.
    None,
    /// The kernel.
    Netem,
    /// This program.
    Emulator(PathBuf),
}

impl Delays {
    /// What this machine has.
    pub(crate) fn found() -> Result<Delays> {
        if netem_works() {
            return Ok(Delays::Netem);
        }
        match std::env::var_os(EMULATOR) {
            Some(path) => {
                let path = PathBuf::from(path);
                if !path.is_file() {
                    bail!("{EMULATOR} names {}, which is no file", path.display());
                }
                Ok(Delays::Emulator(path))
            }
            None => Ok(Delays::None),
        }
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Delays::None => format!(
                "none: this kernel has no netem, and {EMULATOR} names no emulator; all sites are \
                 on the loopback"
            ),
            Delays::Netem => "tc netem between network namespaces".to_owned(),
            Delays::Emulator(_) => {
                format!("emulated in user space ({EMULATOR}) between network namespaces")
            }
        }
    }
}

/// One site.
pub(crate) struct Site {
    pub(crate) ip: Ipv4Addr,
    servers: Runtime,
    clients: Runtime,
}

impl Site {
    fn new(number: usize, namespace: Option<&str>) -> Result<Site> {
        let runtime = |threads| {
            let name = namespace.map(str::to_owned);
            let enter = move || {
                if let Some(name) = &name {
                    fermata_peers::enter(name).expect("the namespace was there a moment ago");
                }
            };
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads).enable_all();
            builder.on_thread_start(enter).build()
        };
        let ip = match namespace {
            Some(_) => Ipv4Addr::new(10, 77, 0, u8::try_from(number)?),
            None => Ipv4Addr::LOCALHOST,
        };
        Ok(Site {
            ip,
            servers: runtime(2)?,
            clients: runtime(2)?,
        })
    }

    /// Runs something of a server here to its end.
    pub(crate) fn serve<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let task = self.servers.spawn(work);
        Ok(self.servers.block_on(task)?)
    }

    /// Lets a server run here.
    pub(crate) fn serving(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.servers.spawn(work);
    }

    /// Lets a client run here.
    pub(crate) fn client<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.clients.spawn(work)
    }

    /// Waits for what runs elsewhere.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.clients.block_on(work)
    }

    /// The threads of clients here, for those who let some run later.
    pub(crate) fn clients(&self) -> Handle {
        self.clients.handle().clone()
    }

    /// The address, as text with a port of the system's choice.
    pub(crate) fn any_port(&self) -> (IpAddr, u16) {
        (IpAddr::V4(self.ip), 0)
    }
}

/// The sites, with whatever is between them. Dropped, it is taken down.
pub(crate) struct Place {
    pub(crate) sites: Vec<Site>,
    pub(crate) delays: Delays,
    pub(crate) profile: Profile,
    // Last, so that the threads in the namespaces end first.
    _network: Network,
}

/// What has to be taken down.
struct Network(Delays);

impl Place {
    /// Sets the sites up.
    pub(crate) fn new(delays: Delays, profile: Profile) -> Result<Place> {
        let network = Network::up(delays.clone(), profile)?;
        if delays != Delays::None {
            take_down_when_told(delays.clone())?;
        }
        let sites = (1..=SITES).map(|number| {
            let namespace = (delays != Delays::None).then(|| format!("{PREFIX}{number}"));
            Site::new(number, namespace.as_deref())
        });
        Ok(Place {
            sites: sites.collect::<Result<_>>()?,
            delays,
            profile,
            _network: network,
        })
    }

    /// What peers are told of namespaces.
    pub(crate) fn netns(&self) -> Option<String> {
        (self.delays != Delays::None).then(|| PREFIX.to_owned())
    }

    /// Other round trips between the same sites. Without delays nothing happens.
    pub(crate) fn become_profile(&mut self, profile: Profile) -> Result<()> {
        match &self.delays {
            Delays::None => {}
            Delays::Netem => netem(profile, "change")?,
            Delays::Emulator(path) => {
                for ((a, b), rtt) in PAIRS.into_iter().zip(profile.rtt) {
                    let (a, b, rtt) = (a.to_string(), b.to_string(), rtt.to_string());
                    ran(Command::new(path).args(["set", &a, &b, "--rtt", &rtt]))?;
                }
            }
        }
        self.profile = profile;
        Ok(())
    }

    /// Round trips that the network really has, as TCP sees them: for the report.
    pub(crate) fn measured(&self) -> Result<[f64; 3]> {
        let mut found = [0.0; 3];
        for (slot, (a, b)) in found.iter_mut().zip(PAIRS) {
            let to = &self.sites[b - 1];
            let at = to.any_port();
            let listener = to.serve(async move { tokio::net::TcpListener::bind(at).await })??;
            let address = listener.local_addr()?;
            to.serving(async move { while listener.accept().await.is_ok() {} });
            let from = &self.sites[a - 1];
            let connects = from.client(async move {
                let mut least = f64::MAX;
                for _ in 0..5 {
                    let begun = std::time::Instant::now();
                    tokio::net::TcpStream::connect(address).await?;
                    least = least.min(begun.elapsed().as_secs_f64() * 1e3);
                }
                Ok::<f64, std::io::Error>(least)
            });
            *slot = from.wait(connects)??;
        }
        Ok(found)
    }
}

impl Network {
    fn up(delays: Delays, profile: Profile) -> Result<Network> {
        match &delays {
            Delays::None => {}
            Delays::Emulator(path) => {
                let mut text = format!("sites {SITES}\n");
                for ((a, b), rtt) in PAIRS.into_iter().zip(profile.rtt) {
                    text += &format!("link {a} {b} rtt {rtt}\n");
                }
                let file = tempfile::NamedTempFile::with_prefix("fermata-wan-")?;
                std::fs::write(file.path(), text)?;
                ran(Command::new(path).arg("up").arg(file.path()))?;
            }
            Delays::Netem => {
                // What an earlier run left behind.
                bridge_down();
                // From here on the drop takes down what is half up.
                let network = Network(delays);
                bridge_up()?;
                netem(profile, "add")?;
                return Ok(network);
            }
        }
        Ok(Network(delays))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        down(&self.0);
    }
}

fn down(delays: &Delays) {
    match delays {
        Delays::None => {}
        Delays::Netem => bridge_down(),
        Delays::Emulator(path) => {
            if let Err(error) = ran(Command::new(path).arg("down")) {
                eprintln!("the emulated network is still up: {error:#}");
            }
        }
    }
}

/// Whoever is interrupted leaves no network behind; servers end with their guards.
fn take_down_when_told(delays: Delays) -> Result<()> {
    let waits = Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        let told = waits.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            let mut int = signal(SignalKind::interrupt())?;
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            Ok::<(), std::io::Error>(())
        });
        if told.is_ok() {
            down(&delays);
            // As a shell has it for what was interrupted.
            std::process::exit(130);
        }
    });
    Ok(())
}

/// Runs a command that says nothing where all is well.
fn ran(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot be run"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("nothing");
        return Err(anyhow!("{command:?} failed and said: {said}"));
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    ran(Command::new("ip").args(arguments.split_whitespace()))
}

/// Whether the kernel has netem, and we may use it: tried in a namespace of its own.
fn netem_works() -> bool {
    let name = format!("fermata-try-{}", std::process::id());
    if ip(&format!("netns add {name}")).is_err() {
        return false;
    }
    let exec = format!("netns exec {name}");
    let works = ip(&format!("{exec} tc qdisc add dev lo root netem delay 1ms")).is_ok();
    // A name that stays does no harm but to the list of names.
    let _ = ip(&format!("netns del {name}"));
    works
}

/// Namespaces with an address each, and a bridge between them.
fn bridge_up() -> Result<()> {
    ip(&format!("netns add {HUB}"))?;
    ip(&format!("-n {HUB} link add hub type bridge"))?;
    ip(&format!("-n {HUB} link set hub up"))?;
    for number in 1..=SITES {
        let site = format!("{PREFIX}{number}");
        ip(&format!("netns add {site}"))?;
        ip(&format!("-n {site} link set lo up"))?;
        ip(&format!(
            "-n {site} link add eth0 type veth peer name port{number} netns {HUB}"
        ))?;
        ip(&format!("-n {site} addr add 10.77.0.{number}/24 dev eth0"))?;
        ip(&format!("-n {site} link set eth0 up"))?;
        ip(&format!("-n {HUB} link set port{number} master hub up"))?;
    }
    Ok(())
}

/// Takes down what there is of it.
fn bridge_down() {
    for number in 1..=SITES {
        let _ = ip(&format!("netns del {PREFIX}{number}"));
    }
    let _ = ip(&format!("netns del {HUB}"));
}

/// Each site delays what it sends by half of the round trip, in a band per receiver.
fn netem(profile: Profile, verb: &str) -> Result<()> {
    for from in 1..=SITES {
        let tc = format!("netns exec {PREFIX}{from} tc");
        if verb == "add" {
            ip(&format!(
                "{tc} qdisc add dev eth0 root handle 1: prio bands 4"
            ))?;
        }
        for to in (1..=SITES).filter(|to| *to != from) {
            let pair = (from.min(to), from.max(to));
            let at = PAIRS.iter().position(|p| *p == pair).expect("all pairs");
            let micros = profile.rtt[at] * 1e3 / 2.0;
            ip(&format!(
                "{tc} qdisc {verb} dev eth0 parent 1:{to} handle {to}0: netem delay {micros:.0}us \
                 limit 100000"
            ))?;
            if verb == "add" {
                ip(&format!(
                    "{tc} filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst \
                     10.77.0.{to}/32 flowid 1:{to}"
                ))?;
            }
        }
    }
    Ok(())
}
