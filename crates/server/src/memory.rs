//! Memory that is not used goes back to the system.
//!
//! **Problem.** What thousands of connections and bodies have taken is free when they are gone, but
//! not returned: the C library's allocator gives back what lies at the end of its heap alone, and
//! some small block that lives lies always behind the rest. A node stays as large as its largest
//! crowd was.
//!
//! **Idea.** Now and then the allocator is asked for whole pages that lie free between blocks. It
//! takes less than a millisecond of one thread, also where there is nothing to give. Allocators of
//! other systems are left alone.

use std::time::Duration;

/// How often.
const EVERY: Duration = Duration::from_secs(5);

/// Gives back what is free, again and again.
pub(crate) async fn returned() {
    loop {
        tokio::time::sleep(EVERY).await;
        // It may wait for the allocator's locks; should the runtime end, nothing is missed.
        let _ = tokio::task::spawn_blocking(allocator::give_back).await;
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    //! `malloc_trim`, which has no safe wrapper.
    #![allow(unsafe_code)]

    /// Returns free pages to the system.
    pub(super) fn give_back() {
        // SAFETY: it takes a number, may be called from any thread, and touches no block in use.
        // What it returns says whether anything was returned, which nobody needs to know.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    /// Nothing is known of this allocator.
    pub(super) fn give_back() {}
}
