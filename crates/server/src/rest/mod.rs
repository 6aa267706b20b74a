//! The REST face.
use crate::gate::Gate;
use std::sync::Arc;
pub(crate) fn router(_gate: Arc<Gate>) -> axum::Router {
    axum::Router::new()
}
