//! What the system says of this process, by the names that Prometheus gives it in every program.
//!
//! It is asked when somebody looks. What the system does not say, since it has no `/proc`, is left
//! out. A process that has several nodes shows the same at each.

use crate::clock;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::sync::LazyLock;

/// When it was asked first, which a node does when it starts: seconds since 1970.
static STARTED: LazyLock<f64> = LazyLock::new(|| clock::wall() as f64 / 1e6);

/// The process begins now, unless it has before.
pub(crate) fn begin() {
    LazyLock::force(&STARTED);
}

/// All of them, as text for Prometheus.
pub(crate) fn metrics() -> String {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name| in_status(&status, name).map(|kib| kib * 1024.0);
    // One of them is that of the folder.
    let open = std::fs::read_dir("/proc/self/fd").map(|all| all.count().saturating_sub(1) as f64);
    let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
    let mut text = String::new();
    for (name, kind, value) in [
        ("process_cpu_seconds_total", "counter", Some(cpu)),
        ("process_resident_memory_bytes", "gauge", kib("VmRSS")),
        ("process_virtual_memory_bytes", "gauge", kib("VmSize")),
        ("process_threads", "gauge", in_status(&status, "Threads")),
        ("process_open_fds", "gauge", open.ok()),
        ("process_max_fds", "gauge", most),
        ("process_start_time_seconds", "gauge", Some(*STARTED)),
    ] {
        if let Some(value) = value {
            // Text grows without an error.
            let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
        }
    }
    text
}

/// The number that the system's status of a process has under a name.
fn in_status(status: &str, name: &str) -> Option<f64> {
    let mut lines = status.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_its_names() {
        let status = "VmSize:\t  2048 kB\nVmRSSmore:\t1 kB\nVmRSS:\t  1024 kB\nThreads:\t3\n";
        assert_eq!(in_status(status, "VmRSS"), Some(1024.0));
        assert_eq!(in_status(status, "Threads"), Some(3.0));
        assert_eq!(in_status(status, "Nothing"), None);
    }
}
