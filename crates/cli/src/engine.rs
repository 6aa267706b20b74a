//! The engines besides the native one, and where this program makes them.
//!
//! They and their clients of Cassandra and `ZooKeeper` come with the feature `engines`, which is not
//! on by default: whoever runs the native engine need not build them.

use std::sync::Arc;

use fermata_engine::Service;
use fermata_server::config::Resolved;

use crate::exit::Failure;

/// Connects to the stores that the configuration names; they are checked, and their tables made
/// where they are missing.
///
/// # Errors
/// One sentence: this build has no such engine.
pub(crate) async fn service(resolved: &Resolved) -> Result<Arc<dyn Service>, Failure> {
    let kind = resolved.engine.as_ref().map_or("native", |e| e.kind.name());
    Err(Failure::usage(format!(
        "this build has no engine {kind}: build it with `cargo build --release --features engines`"
    )))
}
