//! Rows laid out in memory that nobody has written yet, for the kernels that work on pointers.
//!
//! Zeroing 16 MiB before writing them would cost as much as coding them, hence the unsafe code. Its
//! argument is in one place: [`assemble`] writes each byte of its result exactly once, in a gap, in
//! a copied row or in a sum.
#![allow(unsafe_code)] // The whole file is one argument; see above.

use super::{Job, Row};
use crate::field::{COEFFICIENTS_MAX, N_MAX};
use alloc::vec::Vec;

/// Columns done at once, in bytes: 16 rows of it stay in the second cache between being copied and
/// being summed, and between one group of sums and the next. A multiple of every kernel's block.
const CHUNK: usize = 16 << 10;

/// Where a sum goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// Its first byte. `length` bytes from here may be written, and belong to nobody else.
    pub(super) at: *mut u8,
    pub(super) length: usize,
}

/// One set of instructions.
pub(super) trait Instructions {
    /// What a weight is turned into.
    type Weight: Copy;

    fn weight(coefficient: u8) -> Self::Weight;

    /// Writes the columns `from..to` of all sums, as far as each goes.
    ///
    /// # Safety
    /// The processor has the instructions. The targets may be written as they say, and no source
    /// overlaps one. There are `targets.len() · sources.len()` weights. `from` is a multiple of
    /// [`CHUNK`], and so is `to`, unless no row is longer.
    unsafe fn sum(
        weights: &[Self::Weight],
        sources: &[&[u8]],
        targets: &[Target],
        from: usize,
        to: usize,
    );
}

/// [`super::Kernel::assemble`].
///
/// # Safety
/// The processor has the instructions `I`, and the job is well formed for `total`.
pub(super) unsafe fn assemble<I: Instructions>(total: usize, job: &Job<'_>) -> Vec<u8> {
    let mut result: Vec<u8> = Vec::with_capacity(total);
    let base = result.as_mut_ptr();
    let mut targets = [Target {
        at: base,
        length: 0,
    }; N_MAX];
    let (mut sums, mut end, mut width) = (0, 0, 0);
    for row in job.rows {
        if end < row.start {
            // SAFETY: the job is well formed, so that rows end within the capacity.
            unsafe { base.add(end).write_bytes(0, row.start - end) };
        }
        end = row.end();
        width = width.max(row.length);
        if row.given.is_none() {
            targets[sums] = Target {
                // SAFETY: within the capacity, as above.
                at: unsafe { base.add(row.start) },
                length: row.length,
            };
            sums += 1;
        }
    }
    // SAFETY: as above: `end <= total`, which is the capacity.
    unsafe { base.add(end).write_bytes(0, total - end) };
    let mut weights = [I::weight(0); COEFFICIENTS_MAX];
    for (weight, coefficient) in weights.iter_mut().zip(job.coefficients) {
        *weight = I::weight(*coefficient);
    }
    let weights = &weights[..job.coefficients.len()];
    let targets = &targets[..sums];
    for from in (0..width).step_by(CHUNK) {
        let to = width.min(from + CHUNK);
        // SAFETY: the caller promises the instructions; the rows are within the capacity and
        // disjoint, and the sources are borrowed, so that they cannot overlap memory just
        // allocated; the weights were counted by the checks; only the last `to` is not a multiple,
        // and no row is longer than that.
        unsafe {
            for row in job.rows {
                copy(base, row, from, to);
            }
            if sums > 0 {
                I::sum(weights, job.sources, targets, from, to);
            }
        }
    }
    // SAFETY: gaps are zeroed above; each row is either copied or a sum, chunk by chunk to its end.
    unsafe { result.set_len(total) };
    result
}

/// Copies the columns `from..to` of `row`, if it is a copy.
///
/// # Safety
/// The row lies within the memory that begins at `base`, which may be written.
unsafe fn copy(base: *mut u8, row: &Row<'_>, from: usize, to: usize) {
    let Some(given) = row.given else {
        return;
    };
    let to = to.min(given.len());
    if let Some(columns) = given.get(from..to) {
        // SAFETY: `from + columns.len() <= given.len()`, which is the row's length.
        unsafe {
            let at = base.add(row.start + from);
            at.copy_from_nonoverlapping(columns.as_ptr(), columns.len());
        }
    }
}
