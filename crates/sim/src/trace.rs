//! What happened, in order, for people and for the proof that a seed repeats itself.
//!
//! A run is executed without a text first, since formatting costs more than simulating; a seed that
//! fails is executed again with one. Both runs are the same, byte for byte: that is tested.

use std::cell::RefCell;
use std::fmt::Write;

thread_local! {
    /// The text of a run that panicked.
    static STASHED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The text of the last run of this thread that panicked, if it was kept.
pub fn take_stashed() -> Option<String> {
    STASHED.with_borrow_mut(Option::take)
}

/// The trace of one run.
#[derive(Debug, Default)]
pub struct Trace {
    text: Option<String>,
    events: u64,
}

impl Trace {
    /// A trace that keeps its text, or only counts.
    pub fn new(keep: bool) -> Trace {
        Trace {
            text: keep.then(String::new),
            events: 0,
        }
    }

    /// Adds a line; `what` is only called if the text is kept.
    pub fn line(&mut self, now: u64, what: impl FnOnce() -> String) {
        self.events += 1;
        if let Some(text) = &mut self.text {
            let (s, us) = (now / 1_000_000, now % 1_000_000);
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{s:5}.{us:06}  {}", what());
        }
    }

    /// Lines so far, kept or not.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The text, if it was kept.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Takes the text out.
    pub fn into_text(mut self) -> Option<String> {
        self.text.take()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.text.take();
            STASHED.with_borrow_mut(|stashed| *stashed = text);
        }
    }
}
