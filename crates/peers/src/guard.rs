//! The process that ends an owned cluster when its owner cannot.
//!
//! A drop does not run in a process that is killed, aborts, or ends while a test waits. A guard is
//! a shell that reads from a pipe that only the owner holds. The pipe ends with the owner,
//! whichever way that ends; then the guard kills the processes that are written down in the
//! cluster's folder, whoever started them, and removes the files. It is in a process group of its
//! own, so what is sent to the owner's group (an interrupt at the terminal, a time limit) passes it
//! by.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A node's file `pid` is `NUMBER START`. A process that has the number but not the start is
/// somebody else's. The file `cluster` goes first, so that nobody starts a node any more. The last
/// lines wait for those killed to be gone, and take away what they have just written.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
folder=$1
while read -r _; do :; done
[ -e "$folder/cluster" ] || exit 0
rm -f "$folder/cluster"
for file in "$folder"/node*/pid; do
    read -r pid start 2>&- <"$file" || continue
    stat=$(cat "/proc/$pid/stat" 2>&-) || continue
    set -- ${stat##*) }
    [ "${20}" = "$start" ] && kill -KILL "$pid"
done
sleep 1
rm -rf "$folder"/node* "$folder/lock"
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
}

impl Drop for Guard {
    /// Ends the guard, which kills and removes whatever is still there.
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
        let guard = Guard::of(&folder).expect("a shell");
        let launch = Launch {
            command: ["sleep", "100"].map(str::to_owned).into(),
            namespace: None,
            folder: &node,
        };
        let started = launch.start();
        // One with a wrong start is nobody's: this process goes on.
        let other = folder.join("node2");
        fs::create_dir_all(&other).expect("a folder");
        let own = format!("{} 0\n", std::process::id());
        fs::write(other.join("pid"), own).expect("a file");
        let (mut child, process) = started.expect("a shell");
        assert_eq!(process.state(), State::Up);
        // As the end of the owner would: the pipe ends.
        drop(guard);
        assert_eq!(process.state(), State::Down);
        child.wait().expect("a child");
        assert!(!folder.exists());
    }
}
