//! Durable ordered bytes for one Fermata node.
