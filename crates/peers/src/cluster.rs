//! A cluster: started, waited for, disturbed, and ended.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cassandra::{self, Cassandra};
use crate::cql::Cql;
use crate::etcd::Etcd;
use crate::guard::Guard;
use crate::install::{folder_of, home, install, only};
use crate::net;
use crate::process::{Launch, Process, State, end_of};
use crate::spec::{Spec, System, refused};
use crate::zookeeper::Zookeeper;

/// What a node that is asked to end may take before it is killed.
const ENDING: Duration = Duration::from_secs(30);

/// What one may take that writes an archive of its classes before it ends.
const ARCHIVING: Duration = Duration::from_secs(300);

/// Between two looks at a cluster that is starting.
const LOOK: Duration = Duration::from_millis(200);

/// Addresses looked at for a cluster that does not care.
const BASES_TRIED: u32 = 100;

/// Lines of a dead node's log that are shown.
const LOG_LINES: usize = 25;

/// Logs of the systems in Java go where everything else goes that they say.
pub(crate) const LOGBACK: &str = r#"<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%-5level %date{ISO8601} [%thread] %logger{0} - %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>
"#;

/// Where a cluster is, and what it was told.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) spec: Spec,
    /// Holds `cluster` and a folder per node.
    pub(crate) folder: PathBuf,
    /// Where the system is installed.
    pub(crate) installed: PathBuf,
}

impl Place {
    /// The folder of node `i`.
    pub(crate) fn node(&self, i: u8) -> PathBuf {
        self.folder.join(format!("node{i}"))
    }

    /// A port of node `i`.
    pub(crate) fn address(&self, i: u8, port: u16) -> SocketAddr {
        SocketAddr::from((self.spec.ip(i), self.spec.port(i, port)))
    }

    /// The process of node `i`, if it ever had one.
    fn process(&self, i: u8) -> Option<Process> {
        Process::read(&self.node(i).join("pid"))
    }

    fn state(&self, i: u8) -> State {
        self.process(i).map_or(State::Down, Process::state)
    }
}

/// What differs between the systems.
pub(crate) trait Server: Sync {
    /// The ports of a node; the first is its clients'.
    fn ports(&self) -> &'static [u16];

    /// Its configuration, for when it joins these members, of which it is one: paths below its
    /// folder, and what is in them.
    fn files(&self, place: &Place, i: u8, members: &[u8]) -> Vec<(&'static str, String)>;

    /// Program and arguments, to join these members.
    fn command(&self, place: &Place, i: u8, members: &[u8]) -> io::Result<Vec<String>>;

    /// How a list of members names it.
    fn member(&self, place: &Place, i: u8) -> String {
        place.spec.ip(i).to_string()
    }

    /// What the node says of itself, if it serves; else why it does not.
    fn serves(&self, place: &Place, i: u8) -> io::Result<String>;

    /// Whether all nodes serve and count each other in; an error says what is missing.
    fn together(&self, place: &Place) -> io::Result<()>;

    /// When a write is on disk.
    fn durability(&self, spec: &Spec) -> String;

    /// Whether a node serves whoever else is up.
    fn quorumless(&self) -> bool {
        false
    }
}

fn server(system: System) -> &'static dyn Server {
    match system {
        System::Cassandra => &Cassandra,
        System::Zookeeper => &Zookeeper,
        System::Etcd => &Etcd,
    }
}

/// How one node is doing.
#[derive(Clone, Debug)]
pub struct Node {
    /// From 1 on.
    pub number: u8,
    /// Where clients reach it.
    pub address: SocketAddr,
    /// Its process.
    pub state: State,
    /// The number of its process, unless it is down.
    pub pid: Option<i32>,
    /// What it occupies, in MiB.
    pub resident_mib: Option<u64>,
    /// What it says of itself: Cassandra its data centre, ZooKeeper its part, etcd its health; or
    /// why it does not serve.
    pub says: Result<String, String>,
}

/// A cluster of real servers. An owned one ends with this handle, or with the process.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    /// Of nodes that this process started, so that what is left of them can be collected.
    children: Mutex<Vec<Child>>,
    /// Only of an owned cluster.
    guard: Option<Guard>,
}

impl Cluster {
    /// Installs the system if it is not there, starts all nodes, and returns when they serve and
    /// see each other.
    ///
    /// # Errors
    ///
    /// One sentence: what the spec cannot be, what is missing on this machine, who has an address
    /// already, or which node died while starting, with the end of its log. Nothing is left
    /// running.
    pub fn start(spec: &Spec) -> io::Result<Cluster> {
        spec.check()?;
        let installed = install(spec.system, false)?;
        if spec.system == System::Cassandra && spec.quick && !cassandra::is_rehearsal(spec) {
            rehearse(&installed)?;
        }
        let mut spec = spec.clone();
        if !spec.detached && spec.base.is_none() && spec.netns.is_none() {
            spec.base = Some(free_base(&spec)?);
        }
        let detached = spec.detached;
        let place = Place {
            folder: run_folder(&spec)?,
            spec,
            installed,
        };
        // Two commands at once would take each other's files away.
        let lock = File::create(place.folder.join("lock"))?;
        if lock.try_lock().is_err() {
            let folder = place.folder.display();
            return Err(refused(format!(
                "another command starts a cluster in {folder}"
            )));
        }
        let prepared = prepare(&place);
        let guard = match (&prepared, detached) {
            (Ok(()), false) => Some(Guard::of(&place.folder)?),
            _ => None,
        };
        let cluster = Cluster {
            place,
            children: Mutex::default(),
            guard,
        };
        // Without a guard, nothing is the cluster's yet.
        prepared.inspect_err(|_| cluster.forget_folder())?;
        let started = cluster.start_all();
        if started.is_err() && detached {
            cluster.end(Signal::KILL, ENDING);
        }
        started.map(|()| cluster)
    }

    /// The cluster in a run folder, or the detached one in the system's usual folder. It does not
    /// end with this handle, whosever it is.
    ///
    /// # Errors
    ///
    /// `NotFound` if no cluster was started there; whatever reading its file meets.
    pub fn open(system: System, folder: Option<&Path>) -> io::Result<Cluster> {
        let folder = folder.map_or_else(|| usual(system), Path::to_owned);
        let folder = std::path::absolute(folder)?;
        let text = fs::read_to_string(folder.join("cluster")).map_err(|error| {
            let place = folder.display();
            io::Error::new(error.kind(), format!("no cluster was started in {place}"))
        })?;
        let spec = Spec::of_text(&text)?;
        if spec.system != system {
            let place = folder.display();
            return Err(refused(format!(
                "the cluster in {place} is of {}",
                spec.system
            )));
        }
        let place = Place {
            spec,
            folder,
            installed: folder_of(system),
        };
        Ok(Cluster {
            place,
            children: Mutex::default(),
            guard: None,
        })
    }

    /// What it was told.
    pub fn spec(&self) -> &Spec {
        &self.place.spec
    }

    /// Its run folder; node `i` logs to `nodei/log` there.
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// Where clients reach the nodes, in order, without the spares.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        let numbers = self.place.spec.numbers();
        numbers.map(|i| self.endpoint(i)).collect()
    }

    /// Where clients reach node `i`, from 1 on, which may be a spare.
    pub fn endpoint(&self, i: u8) -> SocketAddr {
        self.place.address(i, self.server().ports()[0])
    }

    /// How the system's own list of members names node `i`: ZooKeeper `server.I=…`, etcd `nI=URL`,
    /// Cassandra its address.
    pub fn member(&self, i: u8) -> String {
        self.server().member(&self.place, i)
    }

    /// The address of node `i`, from 1 on.
    pub fn ip(&self, i: u8) -> Ipv4Addr {
        self.place.spec.ip(i)
    }

    /// When a write is on disk: one sentence, to be printed beside any figure.
    pub fn durability(&self) -> String {
        self.server().durability(&self.place.spec)
    }

    /// How all nodes are doing, spares last, each asked.
    pub fn nodes(&self) -> Vec<Node> {
        self.place.spec.all().map(|i| self.node(i)).collect()
    }

    fn node(&self, i: u8) -> Node {
        let state = self.place.state(i);
        let process = self.place.process(i).filter(|_| state != State::Down);
        let says = match state {
            State::Up => self
                .server()
                .serves(&self.place, i)
                .map_err(|e| e.to_string()),
            State::Stopped => Err("stands still".to_owned()),
            State::Down => Err("is down".to_owned()),
        };
        Node {
            number: i,
            address: self.endpoint(i),
            state,
            pid: process.map(|process| process.pid),
            resident_mib: process.and_then(Process::resident_mib),
            says,
        }
    }

    /// Kills a node (SIGKILL), standing still or not, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// There is no such node, or it is down.
    pub fn kill_node(&self, i: u8) -> io::Result<()> {
        let process = self.running(i)?;
        process.signal(Signal::KILL)?;
        if !process.gone_within(ENDING) {
            return Err(io::Error::other(format!(
                "node {i} was killed, and is still there"
            )));
        }
        self.collect();
        Ok(())
    }

    /// Starts a node that is down, on the data that it has, and waits until it serves; if with it
    /// all are up, until all see each other. Where too few are up for anybody to serve (ZooKeeper,
    /// etcd), until it listens. Where there are spares the members may be others by now, and it is
    /// waited for alone.
    ///
    /// # Errors
    ///
    /// There is no such node, it is up, or it died or did not serve in time; the latter leaves it
    /// running. It is a spare that was never started. Whose cluster this is has ended.
    pub fn start_node(&self, i: u8) -> io::Result<()> {
        self.check_down(i)?;
        if self.is_fresh(i) {
            return Err(refused(format!(
                "node {i} is a spare that was never started; start it as a new member"
            )));
        }
        let numbers = self.place.spec.numbers();
        // Of those who have data, that names the members.
        self.launch(i, &numbers.clone().collect::<Vec<_>>())?;
        if self.place.spec.spares > 0 {
            return self.wait(&[i], &|| self.server().serves(&self.place, i).map(drop));
        }
        let up = numbers
            .filter(|&i| self.place.state(i) == State::Up)
            .count();
        let nodes = usize::from(self.place.spec.nodes);
        let server = self.server();
        self.wait(&[i], &|| {
            if up == nodes {
                server.together(&self.place)
            } else if up * 2 > nodes || server.quorumless() {
                server.serves(&self.place, i).map(drop)
            } else {
                let address = self.place.address(i, server.ports()[0]);
                let namespace = self.place.spec.namespace(i);
                net::within(namespace.as_deref(), || net::connect(address))?.map(drop)
            }
        })
    }

    /// Starts a spare for the first time, to join `members`, and waits until it serves. The members
    /// are told by somebody else: those of etcd before, those of ZooKeeper after.
    ///
    /// # Errors
    ///
    /// It is no spare, was started before, or one of the members does not exist; it died or did not
    /// serve in time, which leaves it running. Whose cluster this is has ended.
    pub fn start_spare(&self, i: u8, members: &[u8]) -> io::Result<()> {
        self.check_down(i)?;
        if !self.is_fresh(i) {
            return Err(refused(format!("node {i} is no spare, or not any more")));
        }
        for member in members {
            self.check_number(*member)?;
        }
        let mut members = members.to_vec();
        members.push(i);
        self.launch(i, &members)?;
        self.wait(&[i], &|| self.server().serves(&self.place, i).map(drop))
    }

    /// Whether a node is a spare that was never started.
    fn is_fresh(&self, i: u8) -> bool {
        i > self.place.spec.nodes && self.place.process(i).is_none()
    }

    /// Lets a node stand still (SIGSTOP): its connections stay open, and it says nothing.
    ///
    /// # Errors
    ///
    /// There is no such node, or it is down.
    pub fn stop_node(&self, i: u8) -> io::Result<()> {
        let process = self.running(i)?;
        process.signal(Signal::STOP)?;
        // On a busy machine it runs on for a while after the signal.
        while process.state() == State::Up {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets a node go on that stood still (SIGCONT).
    ///
    /// # Errors
    ///
    /// There is no such node, or it is down.
    pub fn continue_node(&self, i: u8) -> io::Result<()> {
        self.running(i)?.signal(Signal::CONT).map(drop)
    }

    /// Ends all nodes in order (SIGTERM, and SIGKILL after 30 s). A detached cluster's files stay.
    pub fn stop(self) {
        self.end(Signal::TERM, ENDING);
    }

    /// A connection to node `i`, opened in its namespace.
    ///
    /// # Errors
    ///
    /// Only Cassandra has one; whatever the connection meets.
    pub fn cql(&self, i: u8) -> io::Result<Cql> {
        self.check_number(i)?;
        match self.place.spec.system {
            System::Cassandra => cassandra::connect(&self.place, i),
            _ => Err(only(System::Cassandra, "CQL")),
        }
    }

    /// Runs Cassandra's `nodetool` on node `i`, with this process's input and output.
    ///
    /// # Errors
    ///
    /// Only Cassandra has one; or Java could not be run.
    pub fn nodetool(&self, i: u8, arguments: &[String]) -> io::Result<ExitStatus> {
        self.check_number(i)?;
        if self.place.spec.system != System::Cassandra {
            return Err(only(System::Cassandra, "nodetool"));
        }
        let mut tool = cassandra::nodetool(&self.place, i, arguments)?;
        let namespace = self.place.spec.namespace(i);
        net::within(namespace.as_deref(), move || tool.status())?
    }

    fn server(&self) -> &'static dyn Server {
        server(self.place.spec.system)
    }

    fn check_number(&self, i: u8) -> io::Result<()> {
        let all = self.place.spec.all();
        match all.contains(&i) {
            true => Ok(()),
            false => Err(refused(format!(
                "there is no node {i}; they are 1 to {}",
                all.end()
            ))),
        }
    }

    /// An error unless a node may be started.
    fn check_down(&self, i: u8) -> io::Result<()> {
        self.check_number(i)?;
        if self.place.state(i) != State::Down {
            return Err(refused(format!("node {i} is not down")));
        }
        let folder = &self.place.folder;
        if !folder.join("cluster").exists() {
            let folder = folder.display();
            return Err(refused(format!("the cluster in {folder} has been ended")));
        }
        Ok(())
    }

    /// The process of a node that is not down.
    fn running(&self, i: u8) -> io::Result<Process> {
        self.check_number(i)?;
        let process = self
            .place
            .process(i)
            .filter(|process| process.state() != State::Down);
        process.ok_or_else(|| refused(format!("node {i} is down")))
    }

    fn start_all(&self) -> io::Result<()> {
        let numbers: Vec<u8> = self.place.spec.numbers().collect();
        for &i in &numbers {
            self.launch(i, &numbers)?;
        }
        self.wait(&numbers, &|| self.server().together(&self.place))
    }

    fn launch(&self, i: u8, members: &[u8]) -> io::Result<()> {
        let folder = self.place.node(i);
        for below in ["data", "tmp"] {
            fs::create_dir_all(folder.join(below))?;
        }
        for (path, text) in self.server().files(&self.place, i, members) {
            let path = folder.join(path);
            // ZooKeeper writes into its file where to find the members, once these may change.
            if self.place.spec.spares == 0 || !path.exists() {
                fs::write(path, text)?;
            }
        }
        let launch = Launch {
            command: self.server().command(&self.place, i, members)?,
            namespace: self.place.spec.namespace(i),
            folder: &folder,
        };
        let (child, _) = launch.start()?;
        self.children
            .lock()
            .expect("nobody panics with it")
            .push(child);
        Ok(())
    }

    /// Until `done`, unless one of these nodes dies or it takes too long.
    fn wait(&self, nodes: &[u8], done: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        let start = Instant::now();
        let patience = self.place.spec.patience();
        let system = self.place.spec.system;
        loop {
            let Err(why) = done() else { return Ok(()) };
            if let Some(&i) = nodes.iter().find(|&&i| self.place.state(i) == State::Down) {
                let log = self.place.node(i).join("log");
                return Err(io::Error::other(format!(
                    "node {i} of {system} died while starting; {} ends with:\n{}",
                    log.display(),
                    end_of(&log, LOG_LINES)
                )));
            }
            if start.elapsed() >= patience {
                let seconds = patience.as_secs();
                let mut error = format!("{system} does not serve after {seconds} s: {why}");
                // An owned cluster's files go with it.
                for i in nodes {
                    let end = end_of(&self.place.node(*i).join("log"), LOG_LINES);
                    error.push_str(&format!("; the log of node {i} ends with:\n{end}"));
                }
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends all nodes by a signal, and kills those that are still there after `limit`.
    fn end(&self, signal: Signal, limit: Duration) {
        let processes = self.place.spec.all().filter_map(|i| self.place.process(i));
        let processes: Vec<Process> = processes.collect();
        // One that cannot be signalled is somebody else's, or this is not root any more; then
        // nobody here can end it.
        for process in &processes {
            let _ = process.signal(signal);
            let _ = process.signal(Signal::CONT);
        }
        let start = Instant::now();
        for process in &processes {
            if !process.gone_within(limit.saturating_sub(start.elapsed())) {
                let _ = process.signal(Signal::KILL);
                process.gone_within(ENDING);
            }
        }
        self.collect();
    }

    /// Collects what is left of children that have ended.
    fn collect(&self) {
        let mut children = self.children.lock().expect("nobody panics with it");
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Removes what is the cluster's in its folder, and that, too, if nothing else is in it.
    fn remove(&self) {
        for i in self.place.spec.all() {
            let folder = self.place.node(i);
            if let Err(error) = fs::remove_dir_all(&folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                eprintln!("{} could not be removed: {error}", folder.display());
            }
        }
        let _ = fs::remove_file(self.place.folder.join("cluster"));
        self.forget_folder();
    }

    /// Removes an owned cluster's folder, if it is empty.
    fn forget_folder(&self) {
        if !self.place.spec.detached {
            let _ = fs::remove_file(self.place.folder.join("lock"));
            let _ = fs::remove_dir(&self.place.folder);
        }
    }
}

impl Drop for Cluster {
    /// Kills and removes an owned cluster. In a panic, the ends of the logs are printed before.
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        self.end(Signal::KILL, ENDING);
        if std::thread::panicking() {
            for i in self.place.spec.all() {
                let log = end_of(&self.place.node(i).join("log"), LOG_LINES);
                eprintln!("node {i} of {} said last:\n{log}", self.place.spec.system);
            }
        }
        self.remove();
        drop(guard);
    }
}

/// Makes the archive of Cassandra's classes, once: a node boots, and ends in order. Whoever comes
/// second waits. Without the archive everything works as well, so what goes wrong is said once, and
/// not tried again.
fn rehearse(installed: &Path) -> io::Result<()> {
    let archive = cassandra::archive(installed);
    let failed = archive.with_extension("failed");
    let settled = || archive.exists() || failed.exists();
    if settled() {
        return Ok(());
    }
    let lock = File::create(archive.with_extension("lock"))?;
    lock.lock()?;
    if settled() {
        return Ok(());
    }
    eprintln!("rehearsing a boot of cassandra, so that later ones are quick");
    let part = archive.with_extension("part");
    let made = Cluster::start(&cassandra::rehearsal(&part)).and_then(|cluster| {
        cluster.end(Signal::TERM, ARCHIVING);
        fs::rename(&part, &archive)
    });
    if let Err(error) = made {
        eprintln!("there is no archive of cassandra's classes, boots stay slow: {error}");
        File::create(failed)?;
    }
    Ok(())
}

/// Where clusters of the command line are.
fn usual(system: System) -> PathBuf {
    home().join("run").join(system.to_string())
}

/// The folder for a new cluster, created.
fn run_folder(spec: &Spec) -> io::Result<PathBuf> {
    let folder = match (&spec.folder, spec.detached) {
        (Some(folder), _) => std::path::absolute(folder)?,
        (None, true) => usual(spec.system),
        (None, false) => {
            let run = home().join("run");
            fs::create_dir_all(&run)?;
            let prefix = format!("{}-", spec.system);
            let fresh = tempfile::Builder::new().prefix(&prefix).tempdir_in(run)?;
            fresh.keep()
        }
    };
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// An error that says which address of the nodes is in use.
fn free(spec: &Spec) -> io::Result<()> {
    for i in spec.all() {
        let namespace = spec.namespace(i);
        let namespace = namespace.as_deref();
        let ports = server(spec.system).ports().iter();
        let ports: Vec<u16> = ports.map(|port| spec.port(i, *port)).collect();
        net::free(namespace, spec.ip(i), &ports)?;
        if spec.system == System::Cassandra {
            let port = cassandra::management_port(spec, i);
            net::free(namespace, Ipv4Addr::LOCALHOST, &[port])?;
        }
    }
    Ok(())
}

/// Addresses that nobody uses, for tests that run at once: other ones for each process and each
/// cluster of it, as long as there are enough.
fn free_base(spec: &Spec) -> io::Result<Ipv4Addr> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let mut spec = spec.clone();
    for _ in 0..BASES_TRIED {
        // A step of 7 keeps clusters of neighbouring processes apart for a while.
        let asked = ASKED.fetch_add(1, Ordering::Relaxed);
        let chosen = std::process::id().wrapping_mul(7).wrapping_add(asked);
        let [_, _, b, c] = chosen.to_be_bytes();
        // 127.0.x.y is left to those who choose for themselves.
        let base = Ipv4Addr::new(127, b.max(1), c, 1);
        spec.base = Some(base);
        if free(&spec).is_ok() {
            return Ok(base);
        }
    }
    Err(refused(
        "no free addresses were found; choose a base".to_owned(),
    ))
}

/// Refuses what is in use, and clears the folder.
fn prepare(place: &Place) -> io::Result<()> {
    let spec = &place.spec;
    let folder = place.folder.display();
    let before: Vec<u8> = match fs::read_to_string(place.folder.join("cluster")) {
        Ok(text) => Spec::of_text(&text)?.all().collect(),
        Err(_) => Vec::new(),
    };
    if before.iter().any(|&i| place.state(i) != State::Down) {
        return Err(refused(format!(
            "a cluster runs in {folder}; stop it first"
        )));
    }
    free(spec)?;
    if spec.keep && before != spec.all().collect::<Vec<_>>() {
        let error = format!("the data in {folder} is not that of {} nodes", spec.nodes);
        return Err(refused(error));
    }
    if !spec.keep {
        // A spare that was never started has no folder.
        for folder in before.into_iter().map(|i| place.node(i)) {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
    }
    fs::write(place.folder.join("cluster"), spec.to_text())
}
