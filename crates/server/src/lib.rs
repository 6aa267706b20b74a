//! The shell of one Fermata node: tokio, TCP, timers, the real clock and the real disk.
