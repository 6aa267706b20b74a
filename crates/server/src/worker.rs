//! Threads for work on the disk that may take long.
//!
//! **Invariant.** Where the disk answers, a worker's thread has ended when the worker is dropped:
//! it holds the disk, and the lock on the data directory with it, so that whoever is told that a
//! node has ended may start it again.

use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end waits for work that is under way; longer, the disk is stuck, and the thread
/// ends with the process.
const LAST_WORK: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(1);

/// A thread that handles what it is sent, in order.
pub(crate) struct Worker<T> {
    /// None at the end only.
    work: Option<mpsc::Sender<T>>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Worker<T> {
    /// # Errors
    /// What the system says to one more thread.
    pub(crate) fn start(
        name: &str,
        mut handle: impl FnMut(T) + Send + 'static,
    ) -> std::io::Result<Worker<T>> {
        let (work, works) = mpsc::channel();
        let thread = Builder::new().name(format!("fermata-{name}"));
        let thread = thread.spawn(move || works.iter().for_each(&mut handle))?;
        let work = Some(work);
        Ok(Worker { work, thread })
    }

    /// Sends work. A thread that has panicked takes none; the panic itself was told.
    pub(crate) fn send(&self, work: T) {
        if let Some(to) = &self.work {
            let _ = to.send(work);
        }
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.work = None;
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < LAST_WORK {
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_worker_that_is_dropped_has_done_its_work_and_holds_nothing() {
        let held = Arc::new(Mutex::new(vec![]));
        let own = held.clone();
        let worker = Worker::start("test", move |n: u8| own.lock().unwrap().push(n)).unwrap();
        for n in 0..3 {
            worker.send(n);
        }
        drop(worker);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(*held.lock().unwrap(), [0, 1, 2]);
    }
}
