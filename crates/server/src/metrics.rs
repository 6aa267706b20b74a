//! What a node counts, in its own Prometheus registry: several nodes may live in one process.

use crate::closings::{Cause, Closings, PEER};
use fermata_protocol::base::SiteId;
use fermata_protocol::register::message::Ask;
use fermata_protocol::request::{
    ClockState, ClockStatus, ClosedStatus, Critical, HeldStatus, NodeStatus, Operation,
    SecurityStatus,
};
use fermata_protocol::{Code, Reply, wire};
use fermata_tls::Ending;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// An operation as metrics and logs spell it.
pub(crate) type OperationName = &'static str;

/// The name of an operation.
pub(crate) fn operation_name(operation: &Operation) -> OperationName {
    match operation {
        Operation::Enter { .. } => "enter",
        Operation::Critical {
            operation: Critical::Get,
            ..
        } => "critical_get",
        Operation::Critical {
            operation: Critical::Put { .. },
            leave,
            ..
        } => {
            if leave.is_empty() {
                "critical_put"
            } else {
                "put_and_leave"
            }
        }
        Operation::Leave { .. } => "leave",
        Operation::Renew { .. } => "renew",
        Operation::Relinquish { .. } => "relinquish",
        Operation::Resume { .. } => "resume",
        Operation::Release { .. } => "release",
        Operation::Get { .. } => "get",
        Operation::Put { .. } => "put",
        Operation::Read { .. } => "read",
        Operation::Write { .. } => "write",
        Operation::Keys { .. } => "keys",
        Operation::Queue { .. } => "queue",
        Operation::Transact(_) => "transact",
        Operation::Resolve { .. } => "resolve",
        Operation::Snapshot { .. } => "snapshot",
        Operation::Inspect { .. } => "inspect",
        Operation::CreateKeyspace(_) => "create_keyspace",
        Operation::ChangeKeyspace { .. } => "change_keyspace",
        Operation::DeleteKeyspace { .. } => "delete_keyspace",
        Operation::ChangeSettings(_) => "change_settings",
        Operation::Admit { .. } => "admit",
        Operation::ChangeRing(_) => "change_ring",
        Operation::Ring => "ring",
        Operation::Keyspaces => "list_keyspaces",
        Operation::Catalogue => "catalogue",
        Operation::Access => "access",
        Operation::ChangeAccess { .. } => "change_access",
        Operation::Status => "status",
    }
}

pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    closings: Closings,
    /// The series of who holds what: as text, since the registry forgets no series.
    held: RwLock<String>,
    pub(crate) steps: Counter,
    pub(crate) flushes: Counter,
    pub(crate) records: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) open_requests: Gauge,
    sessions_kept: Gauge,
    sessions: AtomicU64,
    security: Mutex<SecurityStatus>,
    pub(crate) held_outputs: Gauge,
    pub(crate) lost: Counter,
    pub(crate) wal_bytes: Gauge,
    pub(crate) unsaved_bytes: Gauge,
    pub(crate) void_records: Gauge,
    pub(crate) table_bytes: Gauge,
    pub(crate) writable: Gauge,
    pub(crate) logs_led: Gauge,
    pub(crate) peers_alive: Gauge,
    pub(crate) frames_refused: Counter,
    clock_bound: Gauge,
    clock_interval: Gauge,
    clock_violations: Counter,
    asks_read: Counter,
    asks_store: Counter,
}

/// The connections of one face.
pub(crate) struct Connections {
    pub(crate) open: Gauge,
    pub(crate) refused: Counter,
    /// Those that were closed since they had no request open.
    pub(crate) ended: Counter,
}

const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// A registry that knows what it will hold, and which program this is.
fn recorder() -> PrometheusRecorder {
    crate::process::begin();
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS);
    let recorder = builder
        .expect("the list of buckets is not empty")
        .build_recorder();
    with_local_recorder(&recorder, || {
        describe();
        let (version, wire) = (env!("CARGO_PKG_VERSION"), wire::VERSION.to_string());
        gauge!("fermata_build_info", "version" => version, "wire" => wire).set(1.0);
    });
    recorder
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let recorder = recorder();
        let made = with_local_recorder(&recorder, || Metrics {
            recorder: PrometheusBuilder::new().build_recorder(),
            closings: Closings::default(),
            held: RwLock::default(),
            steps: counter!("fermata_steps_total"),
            flushes: counter!("fermata_flushes_total"),
            records: counter!("fermata_flushed_records_total"),
            flush_seconds: histogram!("fermata_flush_seconds"),
            open_requests: gauge!("fermata_open_requests"),
            sessions_kept: gauge!("fermata_sessions"),
            sessions: AtomicU64::new(0),
            security: Mutex::default(),
            held_outputs: gauge!("fermata_outputs_awaiting_flush"),
            lost: counter!("fermata_outputs_lost_total"),
            wal_bytes: gauge!("fermata_wal_bytes"),
            unsaved_bytes: gauge!("fermata_unsaved_bytes"),
            void_records: gauge!("fermata_void_records"),
            table_bytes: gauge!("fermata_table_bytes"),
            writable: gauge!("fermata_disk_writable"),
            logs_led: gauge!("fermata_logs_led"),
            peers_alive: gauge!("fermata_peers_alive"),
            frames_refused: counter!("fermata_frames_refused_total"),
            clock_bound: gauge!("fermata_clock_bound_seconds"),
            clock_interval: gauge!("fermata_clock_interval"),
            clock_violations: counter!("fermata_clock_violations_total"),
            asks_read: counter!("fermata_register_asks_total", "ask" => "read"),
            asks_store: counter!("fermata_register_asks_total", "ask" => "store"),
        });
        made.writable.set(1.0);
        Metrics { recorder, ..made }
    }

    /// Those of a node on another engine than the native one: without what only a node of its own
    /// logs, disk, peers and clock has, which would stay at zero and mean nothing.
    pub(crate) fn of_engine() -> Metrics {
        let recorder = recorder();
        let (open_requests, sessions_kept) = with_local_recorder(&recorder, || {
            (gauge!("fermata_open_requests"), gauge!("fermata_sessions"))
        });
        Metrics {
            recorder,
            closings: Closings::default(),
            held: RwLock::default(),
            open_requests,
            sessions_kept,
            sessions: AtomicU64::new(0),
            security: Mutex::default(),
            steps: Counter::noop(),
            flushes: Counter::noop(),
            records: Counter::noop(),
            flush_seconds: Histogram::noop(),
            held_outputs: Gauge::noop(),
            lost: Counter::noop(),
            wal_bytes: Gauge::noop(),
            unsaved_bytes: Gauge::noop(),
            void_records: Gauge::noop(),
            table_bytes: Gauge::noop(),
            writable: Gauge::noop(),
            logs_led: Gauge::noop(),
            peers_alive: Gauge::noop(),
            frames_refused: Counter::noop(),
            clock_bound: Gauge::noop(),
            clock_interval: Gauge::noop(),
            clock_violations: Counter::noop(),
            asks_read: Counter::noop(),
            asks_store: Counter::noop(),
        }
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn render(&self) -> String {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        self.handle().render() + &held + &crate::process::metrics()
    }

    /// Folds samples into buckets; to be called now and then, scraped or not.
    pub(crate) fn upkeep(&self) {
        self.handle().run_upkeep();
    }

    fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }

    /// A request has its last answer.
    pub(crate) fn answered(&self, operation: OperationName, reply: &Reply, took: Duration) {
        let code = match reply {
            Reply::Refused(refusal) => refusal.code.name(),
            _ => "ok",
        };
        self.request(operation, code);
        // The node asks itself for these all the time.
        if !matches!(operation, "status" | "list_keyspaces") {
            tracing::debug!(operation, code, ?took, "answered");
        }
        with_local_recorder(&self.recorder, || {
            histogram!("fermata_request_seconds", "operation" => operation)
                .record(took.as_secs_f64());
        });
    }

    /// A request was refused before it became one.
    pub(crate) fn refused(&self, operation: OperationName, code: Code) {
        self.request(operation, code.name());
    }

    fn request(&self, operation: OperationName, code: &'static str) {
        with_local_recorder(&self.recorder, || {
            let labels = [("operation", operation), ("code", code)];
            counter!("fermata_requests_total", &labels).increment(1);
        });
    }

    /// What the node makes of its interval clock.
    pub(crate) fn clock(&self, status: &ClockStatus) {
        let bound = status.bound.map_or(f64::NAN, |micros| micros as f64 / 1e6);
        self.clock_bound.set(bound);
        let trusted = status.state == ClockState::Trusted;
        self.clock_interval.set(f64::from(u8::from(trusted)));
        self.clock_violations.absolute(status.violations);
    }

    /// Messages about registers that ask a member for something, its own included.
    pub(crate) fn asked(&self, ask: &Ask) {
        match ask {
            Ask::Read { .. } => self.asks_read.increment(1),
            Ask::Store { .. } => self.asks_store.increment(1),
            _ => {}
        }
    }

    /// What the node stores, and what its upkeep has counted.
    pub(crate) fn stores(&self, status: &NodeStatus) {
        with_local_recorder(&self.recorder, || {
            for said in &status.storage {
                let set = |name: &'static str, value: u64| {
                    gauge!(name, "keyspace" => said.keyspace.clone()).set(value as f64);
                };
                set("fermata_keys", said.at_rest.keys);
                set("fermata_deleted_keys", said.at_rest.dead);
                set("fermata_damaged_keys", said.at_rest.damaged);
                set("fermata_versions", said.at_rest.versions);
                set("fermata_value_bytes", said.at_rest.bytes);
                set("fermata_value_bytes_expected", said.at_rest.expected);
                if let Some(reach) = said.reach {
                    let set = |name: &'static str, value: f64| {
                        gauge!(name, "keyspace" => said.keyspace.clone()).set(value);
                    };
                    let available = u8::from(reach.suffices());
                    set("fermata_keyspace_available", available.into());
                    set("fermata_keyspace_spare_members", reach.spare().into());
                }
            }
            let counts = status.upkeep.upkeep;
            let set = |name: &'static str, value: u64| counter!(name).absolute(value);
            set("fermata_upkeep_rounds_total", counts.rounds);
            set("fermata_upkeep_looks_total", counts.looks);
            set("fermata_upkeep_uneven_total", counts.uneven);
            set("fermata_repairs_given_total", counts.given);
            set("fermata_repairs_taken_total", counts.taken);
            set("fermata_repairs_refused_total", counts.refused);
            set("fermata_registers_settled_total", counts.settled);
            set("fermata_deleted_keys_removed_total", counts.buried);
            set("fermata_records_rebuilt_total", status.upkeep.rebuilt);
            set("fermata_void_answers_total", status.upkeep.voids);
        });
    }

    /// Who is long in the queues that the node leads, and holds.
    pub(crate) fn holders(&self, held: &[HeldStatus], site: impl Fn(SiteId) -> String) {
        let name = "fermata_section_start_time_seconds";
        let mut text = format!(
            "# HELP {name} When a section that has its keys for long was enqueued; by its first \
             key, at most {} sections.\n# TYPE {name} gauge\n",
            HeldStatus::MOST
        );
        for one in held {
            let (keyspace, key, at) = (&one.keyspace, spelled(&one.key), one.lock_ref.0);
            let (site, label) = (site(one.site), quoted(one.label.as_str()));
            text += &format!(
                "{name}{{keyspace=\"{keyspace}\",key=\"{}\",lock_ref=\"{at}\",site=\"{}\",\
                 label=\"{label}\"}} {}\n",
                quoted(&key),
                quoted(&site),
                one.since as f64 / 1e6,
            );
        }
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// What a face counts of its clients' connections.
    pub(crate) fn connections(&self, face: &'static str) -> Connections {
        with_local_recorder(&self.recorder, || Connections {
            open: gauge!("fermata_connections", "face" => face),
            refused: counter!("fermata_connections_refused_total", "face" => face),
            ended: counter!("fermata_connections_ended_total", "face" => face),
        })
    }

    /// This node gave up a connection to or from another, for that reason.
    pub(crate) fn connection_ended(&self, cause: Cause, who: String) {
        let reason = cause.name();
        with_local_recorder(&self.recorder, || {
            counter!("fermata_peer_connections_ended_total", "reason" => reason).increment(1);
        });
        self.closings.count(PEER, cause, who);
    }

    /// This face has refused or ended a connection of a client.
    pub(crate) fn closed(&self, face: &'static str, cause: Cause, who: String) {
        self.closings.count(face, cause, who);
    }

    /// What was refused or ended so far, for the status.
    pub(crate) fn closings(&self) -> Box<[ClosedStatus]> {
        self.closings.told()
    }

    /// How connections are secured, and until when the certificates count.
    pub(crate) fn secured(&self, tls: bool, exposed: bool, endings: &[Ending]) {
        for ending in endings {
            let of = ending.what;
            let gauge = || gauge!("fermata_certificate_not_after_seconds", "of" => of);
            with_local_recorder(&self.recorder, gauge).set(ending.at as f64);
        }
        *self.locked_security() = SecurityStatus {
            tls,
            exposed,
            ends_in: endings.iter().map(Ending::left).min(),
        };
    }

    /// The same, for the status.
    pub(crate) fn security(&self) -> SecurityStatus {
        *self.locked_security()
    }

    fn locked_security(&self) -> MutexGuard<'_, SecurityStatus> {
        self.security.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session is kept for a client from now on, or is so no more.
    pub(crate) fn session(&self, kept: bool) {
        match kept {
            true => self.sessions.fetch_add(1, Ordering::Relaxed),
            false => self.sessions.fetch_sub(1, Ordering::Relaxed),
        };
        self.sessions_kept.set(self.sessions() as f64);
    }

    /// Sessions that are kept for clients now.
    pub(crate) fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// The gauges of one peer's outgoing queue: messages waiting, and messages dropped so far.
    pub(crate) fn peer(&self, label: &str) -> (Gauge, Counter) {
        with_local_recorder(&self.recorder, || {
            (
                gauge!("fermata_peer_queue_messages", "peer" => label.to_owned()),
                counter!("fermata_peer_dropped_messages_total", "peer" => label.to_owned()),
            )
        })
    }
}

/// Bytes as text from which no others could be meant: two series must never look alike.
fn spelled(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\\\");
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

/// Text within the quotes of a label.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    text.replace('"', "\\\"").replace('\n', "\\n")
}

fn describe() {
    use metrics::{describe_counter as c, describe_gauge as g, describe_histogram as h};
    g!(
        "fermata_build_info",
        "1, with the versions of the program and of what it says to other nodes."
    );
    c!("fermata_steps_total", "Inputs handled by the node.");
    c!("fermata_flushes_total", "Flushes of the write-ahead log.");
    c!(
        "fermata_flushed_records_total",
        "Batches of writes made durable by them."
    );
    h!("fermata_flush_seconds", "Duration of one flush.");
    g!(
        "fermata_open_requests",
        "Client requests without their last answer."
    );
    g!(
        "fermata_sessions",
        "Sessions kept for clients, MUSIC's locks included."
    );
    g!(
        "fermata_certificate_not_after_seconds",
        "When the node's certificate, or the first of its authorities', is over, since 1970."
    );
    g!("fermata_connections", "Connections of clients, by face.");
    c!(
        "fermata_connections_refused_total",
        "Connections of clients for which there was no place."
    );
    c!(
        "fermata_connections_ended_total",
        "Connections closed since they asked for nothing, for too long or beside others."
    );
    g!(
        "fermata_outputs_awaiting_flush",
        "Messages and answers that wait for a flush."
    );
    c!(
        "fermata_outputs_lost_total",
        "Messages to peers given up while the log was stuck."
    );
    g!("fermata_wal_bytes", "Bytes in the write-ahead log.");
    g!(
        "fermata_unsaved_bytes",
        "Bytes of records that the table does not hold yet."
    );
    g!(
        "fermata_void_records",
        "Corrupt records found by reading all since the start, left to the replicas."
    );
    g!("fermata_table_bytes", "Bytes of the table's files.");
    g!("fermata_disk_writable", "1 while the disk takes writes.");
    g!("fermata_logs_led", "Logs whose primary this node is.");
    c!(
        "fermata_register_asks_total",
        "Questions to members about registers: rounds of reading, rounds of storing."
    );
    c!(
        "fermata_requests_total",
        "Requests by operation and outcome."
    );
    h!(
        "fermata_request_seconds",
        "From a request's arrival to its last answer."
    );
    describe_clock();
    describe_peers();
    describe_stores();
}

fn describe_clock() {
    use metrics::{describe_counter as c, describe_gauge as g};
    g!(
        "fermata_clock_bound_seconds",
        "Bound on the clock's error, relied on or not; NaN: none is known."
    );
    g!(
        "fermata_clock_interval",
        "1 while the interval clock is relied on."
    );
    c!(
        "fermata_clock_violations_total",
        "Signs that a clock, this node's or a peer's, was beyond its bound."
    );
}

fn describe_peers() {
    use metrics::{describe_counter as c, describe_gauge as g};
    g!("fermata_peers_alive", "Peers heard within the last lease.");
    c!(
        "fermata_frames_refused_total",
        "Malformed or foreign frames from peers."
    );
    g!(
        "fermata_peer_queue_messages",
        "Messages waiting for a peer."
    );
    c!(
        "fermata_peer_dropped_messages_total",
        "Messages dropped since a peer was unreachable."
    );
    c!(
        "fermata_peer_connections_ended_total",
        "Connections between nodes that this one gave up, by reason."
    );
}

fn describe_stores() {
    use metrics::{describe_counter as c, describe_gauge as g};
    for (name, what) in [
        ("fermata_keys", "Keys with a value, by keyspace."),
        (
            "fermata_deleted_keys",
            "Deleted keys of which a trace is kept.",
        ),
        ("fermata_damaged_keys", "Keys whose record is damaged."),
        ("fermata_versions", "Versions stored; at rest one per key."),
        ("fermata_value_bytes", "Bytes of values or parts stored."),
        (
            "fermata_value_bytes_expected",
            "Bytes that the storage policy's formula gives.",
        ),
        (
            "fermata_keyspace_available",
            "1 while the members that a keyspace needs are in reach, in every group.",
        ),
        (
            "fermata_keyspace_spare_members",
            "Members that may still fall silent; below zero, as many are missing.",
        ),
    ] {
        g!(name, what);
    }
    for (name, what) in [
        (
            "fermata_upkeep_rounds_total",
            "Walks over all register stores.",
        ),
        ("fermata_upkeep_looks_total", "Keys compared among members."),
        ("fermata_upkeep_uneven_total", "Keys found uneven for long."),
        ("fermata_repairs_given_total", "Versions given to members."),
        (
            "fermata_repairs_taken_total",
            "Versions taken that were lacking.",
        ),
        (
            "fermata_repairs_refused_total",
            "Versions offered and refused.",
        ),
        (
            "fermata_registers_settled_total",
            "Reads and sweeps after writers that died.",
        ),
        (
            "fermata_deleted_keys_removed_total",
            "Traces of deleted keys removed.",
        ),
        (
            "fermata_records_rebuilt_total",
            "Damaged records rebuilt from the other members.",
        ),
        (
            "fermata_void_answers_total",
            "Answers withheld because a record was damaged.",
        ),
    ] {
        c!(name, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fermata_protocol::base::{Label, LockRef};

    #[test]
    fn who_holds_is_told_in_a_form_that_any_key_and_label_fit() {
        let metrics = Metrics::new();
        let held = |key: &'static [u8], lock_ref| HeldStatus {
            keyspace: "default".into(),
            key: Bytes::from_static(key),
            lock_ref: LockRef(lock_ref),
            site: SiteId(0),
            label: Label::new("a \"b\" \\").unwrap(),
            since: 1_500_000,
        };
        let all = [held(b"\xff\n", 1), held(b"\\xff\n", 1)];
        metrics.holders(&all, |_| "ohio".into());
        let text = metrics.render();
        for key in ["\\\\xff\\n", "\\\\\\\\xff\\n"] {
            let line = format!(
                "fermata_section_start_time_seconds{{keyspace=\"default\",key=\"{key}\",\
                 lock_ref=\"1\",site=\"ohio\",label=\"a \\\"b\\\" \\\\\"}} 1.5\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        }
        metrics.holders(&[], |_| String::new());
        assert!(!metrics.render().contains("lock_ref"));
    }
}
