//! Erasure codes: a value of any length becomes n fragments, and any l of them give it again.
//!
//! **Problem.** A coded keyspace keeps 1/l of a value at each of n members instead of n copies.
//! Coding stands in the way of every write and read of such a keyspace, so it should cost no more
//! than copying the value does; and what lies on disks must mean the same on every processor and
//! for ever.
//!
//! **Idea.** A systematic Reed–Solomon code over bytes with a Cauchy matrix: fragments 0 to l − 1
//! are slices of the value itself and cost nothing; the others are sums of those, weighted in the
//! field of 256 elements. A sum of rows is the whole of the work, in coding and in decoding, and
//! the processors of today do it at the speed of memory. So there are several [`Kernel`]s for it,
//! chosen at run time, over one portable kernel without unsafe code.
//!
//! ```
//! use bytes::Bytes;
//! use fermata_codec::{Code, Mds};
//!
//! let code = Code::new(5, 3)?;
//! let value = Bytes::from_static(b"a value of any length");
//! let fragments = code.encode_all(&value);
//! let parts = [4, 0, 3].map(|index| (index, fragments[index].clone()));
//! assert_eq!(code.decode(value.len() as u64, &parts)?, value);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariants.**
//!
//! 1. *Equal bytes.* A fragment is a function of l, its index and the value: not of n, of the
//!    kernel, or of whether it was made alone or with the others.
//! 2. *No padding is kept.* A value is cut into l rows of ⌈length / l⌉ bytes, of which the last may
//!    be shorter or empty. Sums take what is missing for zeros. The length, which travels in the
//!    metadata, says which rows are short: [`Mds::fragment_length`].
//! 3. *Nothing is believed.* Decoding checks indices and lengths and fails with a sentence. It
//!    cannot see a changed byte: that is what [`checksum`] is for, fragment by fragment, before.
//!
//! **Departures.** The TREAS, OREAS and finalize protocols ask only for a code of which any l
//! fragments suffice; the choice of matrix is ours (`field.rs`).
//!
//! Unsafe code is in the room `kernel` alone. The crate is `no_std`; the feature
//! `std`, on by default, serves only to ask the processor what it can do. Why there is a kernel of
//! our own: `docs/decisions/2026-11-22-erasure-kernel.md`.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod cache;
mod checksum;
mod code;
mod field;
mod kernel;
mod mds;

pub use checksum::checksum;
pub use code::Code;
pub use kernel::Kernel;
pub use mds::{Impossible, Mds, Undecodable, check};
