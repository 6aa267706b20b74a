//! The kernel in safe code, for every processor, and the reference for the others.
//!
//! Blocks of eight words of eight bytes. A source's block is doubled step by step, and added to
//! each sum in whose weight the power of two at hand occurs: at most seven doublings serve all sums
//! at once. Doubling a word doubles its eight bytes, with shifts and masks; the block has the size
//! of the widest vectors, so that compilers turn its loops into whole instructions.

use super::Job;
use crate::field::{N_MAX, POLYNOMIAL};
use alloc::vec;
use alloc::vec::Vec;

const WORDS: usize = 8;
const BLOCK: usize = 8 * WORDS;

type Block = [u64; WORDS];

/// [`super::Kernel::assemble`].
pub(super) fn assemble(total: usize, job: &Job<'_>) -> Vec<u8> {
    let mut result = vec![0; total];
    let mut rest: &mut [u8] = &mut result;
    let mut at = 0;
    let mut sums: [&mut [u8]; N_MAX] = core::array::from_fn(|_| &mut [][..]);
    let mut count = 0;
    for row in job.rows {
        let (_, from_row) = core::mem::take(&mut rest).split_at_mut(row.start - at);
        let (bytes, after) = from_row.split_at_mut(row.length);
        (rest, at) = (after, row.end());
        match row.given {
            Some(given) => bytes.copy_from_slice(given),
            None => {
                sums[count] = bytes;
                count += 1;
            }
        }
    }
    let sums = &mut sums[..count];
    let width = sums.iter().map(|sum| sum.len()).max().unwrap_or(0);
    for at in (0..width).step_by(BLOCK) {
        add_blocks(job, at, sums);
    }
    result
}

/// The block of all sums that begins at `at`.
fn add_blocks(job: &Job<'_>, at: usize, sums: &mut [&mut [u8]]) {
    let mut blocks = [[0u64; WORDS]; N_MAX];
    let blocks = &mut blocks[..sums.len()];
    let stride = job.sources.len();
    for (j, source) in job.sources.iter().enumerate() {
        let mut power = load(source, at);
        let weight = |i: usize| job.coefficients[i * stride + j];
        let mut bits = (0..blocks.len()).fold(0, |bits, i| bits | weight(i));
        let mut bit = 1;
        loop {
            for (i, sum) in blocks.iter_mut().enumerate() {
                if weight(i) & bit != 0 {
                    add(sum, &power);
                }
            }
            bits >>= 1;
            if bits == 0 {
                break;
            }
            bit <<= 1;
            double(&mut power);
        }
    }
    for (block, sum) in blocks.iter().zip(sums) {
        store(block, sum, at);
    }
}

#[inline]
fn add(sum: &mut Block, block: &Block) {
    for (sum, word) in sum.iter_mut().zip(block) {
        *sum ^= word;
    }
}

/// All bytes of a block, doubled in the field.
#[inline]
fn double(block: &mut Block) {
    const LOW: u64 = 0x0101_0101_0101_0101;
    for word in block {
        let high = (*word >> 7) & LOW;
        // Each byte of `high` is 0 or 1, so no product leaves its byte.
        *word = ((*word & (0x7f * LOW)) << 1) ^ (high * POLYNOMIAL as u64);
    }
}

/// The block at `at`, with zeros after the row's end.
#[inline]
fn load(row: &[u8], at: usize) -> Block {
    let mut bytes = [0; BLOCK];
    match row.get(at..at + BLOCK) {
        Some(whole) => bytes.copy_from_slice(whole),
        None => {
            let part = row.get(at..).unwrap_or(&[]);
            bytes[..part.len()].copy_from_slice(part);
        }
    }
    let mut block = [0; WORDS];
    for (word, bytes) in block.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    block
}

/// Writes the block at `at`, as far as the row goes.
#[inline]
fn store(block: &Block, row: &mut [u8], at: usize) {
    let mut bytes = [0; BLOCK];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(block) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let end = row.len().min(at + BLOCK);
    if let Some(row) = row.get_mut(at..end) {
        row.copy_from_slice(&bytes[..end - at]);
    }
}
