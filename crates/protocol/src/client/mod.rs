//! The session of a client.
