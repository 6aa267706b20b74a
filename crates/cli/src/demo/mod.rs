//! The worked examples behind `fermata demo`.

pub(crate) mod homing;
