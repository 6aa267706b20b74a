//! Critical sections as a layer on stores that others run.
//!
//! See [`store`] for what is asked of them.

pub mod cells;
pub mod scalar;
pub mod service;
pub mod store;

pub use service::{Answers, Boxed, Service};
pub use store::{Cells, DataStore, LockStore, Page, Row, StoreError, Swapped, Version};
