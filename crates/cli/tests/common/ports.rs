//! Ports for clusters on the loopback, so that tests and whole gates run at once.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Room for eight nodes where nobody listens, and which nobody else takes while this lives. Below
/// the range from which the system takes ports of outgoing connections.
pub(crate) struct Ports {
    /// The first.
    pub(crate) base: u16,
    /// Listens on the last, which no node uses: two processes that look at the same ports, one
    /// before the other's nodes listen there, would both find them free.
    _claim: TcpListener,
}

impl Ports {
    pub(crate) fn free() -> Ports {
        const FIRST: u16 = 10_000;
        const BLOCK: u16 = 80;
        const BLOCKS: u16 = 250;
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = (std::process::id() % u32::from(BLOCKS)) as u16;
        let listen = |port| TcpListener::bind(("127.0.0.1", port));
        for _ in 0..BLOCKS {
            let block = (start + NEXT.fetch_add(1, Ordering::Relaxed) % BLOCKS) % BLOCKS;
            let base = FIRST + block * BLOCK;
            let last = base + BLOCK - 1;
            if let Ok(claim) = listen(last)
                && (base..last).all(|port| listen(port).is_ok())
            {
                return Ports {
                    base,
                    _claim: claim,
                };
            }
        }
        panic!("no free ports");
    }
}
