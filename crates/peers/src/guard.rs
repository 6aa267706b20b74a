//! The process that ends an owned cluster when its owner cannot.
//!
//! A drop does not run in a process that is killed, aborts, or ends while a test waits. A guard is
//! a shell that reads, from a pipe that only the owner holds, which processes there are. The pipe
//! ends with the owner, whichever way that ends; then the guard kills what still runs and removes
//! the files. It is in a process group of its own, so what is sent to the owner's group (an
//! interrupt at the terminal, a time limit) passes it by.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::process::Process;

/// Lines are `NUMBER START`. A process that has the number but not the start is somebody else's.
/// The last lines wait for those killed to be gone, and take away what they have just written.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
folder=$1
known=
while read -r pid start; do known="$known $pid:$start"; done
for one in $known; do
    pid=${one%:*}
    stat=$(cat "/proc/$pid/stat" 2>&-) || continue
    set -- ${stat##*) }
    [ "${20}" = "${one#*:}" ] && kill -KILL "$pid"
done
[ -e "$folder/cluster" ] || exit 0
sleep 1
rm -rf "$folder"/node* "$folder/cluster" "$folder/lock"
rmdir "$folder"
"#;

/// The guard of one cluster.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    /// Its input; taken away when the guard is let go.
    input: Option<ChildStdin>,
}

impl Guard {
    /// A guard of the cluster in `folder`.
    pub(crate) fn of(folder: &Path) -> io::Result<Guard> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "guard"]).arg(folder);
        shell.process_group(0).current_dir("/");
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = shell.spawn()?;
        let input = child.stdin.take();
        Ok(Guard { child, input })
    }

    /// Tells it of a process.
    pub(crate) fn knows(&mut self, process: Process) -> io::Result<()> {
        let input = self.input.as_mut().expect("taken only by the drop");
        writeln!(input, "{} {}", process.pid, process.start)
    }
}

impl Drop for Guard {
    /// Whoever lets the guard go has killed and removed everything before, or lets it do so.
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process::{Launch, State};

    #[test]
    fn what_the_owner_leaves_is_killed_and_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("with blank");
        let node = folder.join("node1");
        fs::create_dir_all(&node).expect("a folder");
        fs::write(folder.join("cluster"), "").expect("a file");
        let mut guard = Guard::of(&folder).expect("a shell");
        let launch = Launch {
            command: ["sleep", "100"].map(str::to_owned).into(),
            namespace: None,
            folder: &node,
        };
        let started = launch.start(|process| {
            // Known with a wrong start first: that one is nobody's.
            let pid = i32::try_from(std::process::id()).expect("small");
            guard.knows(Process { pid, start: 0 })?;
            guard.knows(process)
        });
        let (mut child, process) = started.expect("a shell");
        assert_eq!(process.state(), State::Up);
        // As the end of the owner would: the pipe ends.
        drop(guard);
        assert_eq!(process.state(), State::Down);
        child.wait().expect("a child");
        assert!(!folder.exists());
    }
}
