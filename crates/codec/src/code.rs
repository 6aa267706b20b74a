//! The code itself: which rows are summed with which weights. The kernels do the sums.

use crate::cache::{Key, SHARED};
use crate::field::{COEFFICIENTS_MAX, N_MAX, PARITIES, inverse, product};
use crate::kernel::{Job, Kernel, Row};
use crate::mds::{Impossible, Mds, Undecodable, check};
use alloc::vec::Vec;
use bytes::Bytes;

/// Rows recovered by one decoding, at most: min(n − l, l) for n ≤ 16.
const LOST_MAX: usize = N_MAX / 2;

/// Parities at least this long, in bytes, are set apart in their common memory: a load just behind
/// a store whose address has the same low twelve bits has to wait, and rows that are multiples of
/// 4 KiB apart would meet so at every step. (A value of 64 KiB in a [5, 2] code took 1.8 times as
/// long to encode on one processor.)
const STAGGER_FROM: usize = 2_048;
/// Distance of two such rows modulo [`STAGGER_UNIT`], in bytes: 16 rows begin in 16 different
/// blocks of 64 bytes.
const STAGGER: usize = 9 * 64;
const STAGGER_UNIT: usize = 1_024;

/// An [n, l] code. It is three small numbers and is copied freely: its matrices are computed at
/// compile time, and those of recent decodings are kept in one cache of fixed size (18 KiB) for
/// the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    n: u8,
    l: u8,
    kernel: Kernel,
}

impl Code {
    /// The code of `n` fragments of which any `l` suffice, on the best kernel of this processor.
    ///
    /// # Errors
    /// Unless 1 ≤ l ≤ n ≤ 16.
    pub fn new(n: usize, l: usize) -> Result<Code, Impossible> {
        Code::on(Kernel::best(), n, l)
    }

    /// As [`Code::new`], on a kernel of choice; the bytes are the same on all.
    ///
    /// # Errors
    /// Unless 1 ≤ l ≤ n ≤ 16.
    pub fn on(kernel: Kernel, n: usize, l: usize) -> Result<Code, Impossible> {
        if l < 1 || l > n || n > N_MAX {
            return Err(Impossible { n, l });
        }
        Ok(Code {
            n: n as u8,
            l: l as u8,
            kernel,
        })
    }

    /// The value's rows: l slices of `width` bytes, the last ones shorter or empty.
    fn rows(self, value: &[u8], width: usize) -> [&[u8]; N_MAX] {
        let mut rows: [&[u8]; N_MAX] = [&[]; N_MAX];
        for (index, row) in rows[..self.l()].iter_mut().enumerate() {
            let end = value.len().min((index + 1) * width);
            *row = &value[end.min(index * width)..end];
        }
        rows
    }

    fn width(self, length: usize) -> usize {
        length.div_ceil(self.l())
    }

    /// The fragment `index` < l.
    fn cut(self, value: &Bytes, index: usize) -> Bytes {
        let width = self.width(value.len());
        let end = value.len().min((index + 1) * width);
        value.slice(end.min(index * width)..end)
    }
}

impl Mds for Code {
    fn n(&self) -> usize {
        usize::from(self.n)
    }

    fn l(&self) -> usize {
        usize::from(self.l)
    }

    fn encode_one(&self, value: &Bytes, index: usize) -> Bytes {
        let (n, l) = (self.n(), self.l());
        assert!(index < n, "fragment {index} of a code of {n}");
        if l == 1 {
            return value.clone();
        }
        if index < l {
            return self.cut(value, index);
        }
        let width = self.width(value.len());
        let coefficients = &PARITIES[l][(index - l) * l..][..l];
        let job = Job {
            sources: &self.rows(value, width)[..l],
            coefficients,
            rows: &[Row::sum(0, width)],
        };
        Bytes::from(self.kernel.assemble(width, &job))
    }

    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        let (n, l) = (self.n(), self.l());
        if l == 1 {
            return alloc::vec![value.clone(); n];
        }
        let mut fragments: Vec<Bytes> = Vec::with_capacity(n);
        fragments.extend((0..l).map(|index| self.cut(value, index)));
        if n == l {
            return fragments;
        }
        let width = self.width(value.len());
        let stride = stride(width);
        let mut rows = [Row::sum(0, 0); N_MAX];
        for (index, row) in rows[..n - l].iter_mut().enumerate() {
            *row = Row::sum(index * stride, width);
        }
        let job = Job {
            sources: &self.rows(value, width)[..l],
            coefficients: &PARITIES[l][..(n - l) * l],
            rows: &rows[..n - l],
        };
        let total = (n - l - 1) * stride + width;
        let parities = Bytes::from(self.kernel.assemble(total, &job));
        fragments.extend((0..n - l).map(|i| parities.slice(i * stride..i * stride + width)));
        fragments
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        let (n, l) = (self.n(), self.l());
        check(n, l, length, parts)?;
        if l == 1 {
            return Ok(parts[0].1.clone());
        }
        // Checked: the length can be addressed.
        let length = length as usize;
        let width = self.width(length);
        let chosen = Chosen::of(l, parts);
        let mut rows = [Row::sum(0, 0); N_MAX];
        for (index, row) in rows[..l].iter_mut().enumerate() {
            let start = length.min(index * width);
            let end = length.min((index + 1) * width);
            *row = match chosen.given[index] {
                Some(bytes) => Row::copy(start, bytes),
                None => Row::sum(start, end - start),
            };
        }
        let lost = chosen.lost.len();
        let coefficients = if lost == 0 {
            [0; COEFFICIENTS_MAX]
        } else {
            let key = Key::new(l, chosen.used);
            SHARED.get(key).unwrap_or_else(|| {
                let coefficients = chosen.solve(l);
                SHARED.put(key, &coefficients);
                coefficients
            })
        };
        let sources = chosen.sources(l);
        let job = Job {
            sources: &sources[..l],
            coefficients: &coefficients[..lost * l],
            rows: &rows[..l],
        };
        Ok(Bytes::from(self.kernel.assemble(length, &job)))
    }
}

/// Bytes from one parity to the next in their common memory.
fn stride(width: usize) -> usize {
    if width < STAGGER_FROM {
        return width;
    }
    width + (STAGGER + STAGGER_UNIT - width % STAGGER_UNIT) % STAGGER_UNIT
}

/// The l parts that a decoding uses: all data rows that are there, then the lowest parities.
struct Chosen<'a> {
    given: [Option<&'a [u8]>; N_MAX],
    /// A bit for each fragment used.
    used: u16,
    /// Data rows that are not there, and as many parities that are.
    lost: Few,
    parities: Few,
}

/// At most [`LOST_MAX`] indices.
#[derive(Clone, Copy, Debug, Default)]
struct Few {
    indices: [u8; LOST_MAX],
    count: usize,
}

impl Few {
    fn push(&mut self, index: usize) {
        self.indices[self.count] = index as u8;
        self.count += 1;
    }

    fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.indices[..self.count].iter().map(|i| usize::from(*i))
    }
}

impl<'a> Chosen<'a> {
    /// `parts` are checked.
    fn of(l: usize, parts: &'a [(usize, Bytes)]) -> Chosen<'a> {
        let mut given: [Option<&[u8]>; N_MAX] = [None; N_MAX];
        for (index, bytes) in parts {
            given[*index] = Some(bytes);
        }
        let (mut lost, mut parities) = (Few::default(), Few::default());
        let mut used = 0;
        for (index, row) in given[..l].iter().enumerate() {
            match row {
                Some(_) => used |= 1 << index,
                None => lost.push(index),
            }
        }
        for (index, row) in given.iter().enumerate().skip(l) {
            if parities.len() < lost.len() && row.is_some() {
                parities.push(index);
                used |= 1 << index;
            }
        }
        assert_eq!(lost.len(), parities.len(), "the parts were checked");
        Chosen {
            given,
            used,
            lost,
            parities,
        }
    }

    /// The parts used, in the order of the coefficients: by index.
    fn sources(&self, l: usize) -> [&'a [u8]; N_MAX] {
        let mut sources: [&[u8]; N_MAX] = [&[]; N_MAX];
        let used = (0..N_MAX).filter(|index| self.used >> index & 1 == 1);
        for (source, index) in sources[..l].iter_mut().zip(used) {
            *source = self.given[index].unwrap_or(&[]);
        }
        sources
    }

    /// For each lost row the weights of the l parts used.
    ///
    /// A parity p is `Σ P[p][j]·data[j]`. With the given rows brought to the left, the lost ones
    /// are the unknowns of as many equations, whose matrix is a square part of a Cauchy matrix and
    /// hence regular: Gauss and Jordan.
    fn solve(&self, l: usize) -> [u8; COEFFICIENTS_MAX] {
        let lost = self.lost.len();
        let parity = |p: usize, j: usize| PARITIES[l][(p - l) * l + j];
        // Left the unknowns' coefficients; right the weights of the parts used, by position.
        let mut left = [[0u8; LOST_MAX]; LOST_MAX];
        let mut right = [[0u8; N_MAX]; LOST_MAX];
        for (row, p) in self.parities.iter().enumerate() {
            for (column, j) in self.lost.iter().enumerate() {
                left[row][column] = parity(p, j);
            }
            let given = (0..l).filter(|j| self.used >> j & 1 == 1);
            for (position, j) in given.enumerate() {
                right[row][position] = parity(p, j);
            }
            right[row][l - lost + row] = 1;
        }
        for pivot in 0..lost {
            let found = (pivot..lost).find(|row| left[*row][pivot] != 0);
            let found = found.expect("square parts of a Cauchy matrix are regular");
            left.swap(pivot, found);
            right.swap(pivot, found);
            let scale = inverse(left[pivot][pivot]);
            left[pivot] = left[pivot].map(|c| product(c, scale));
            right[pivot] = right[pivot].map(|c| product(c, scale));
            let (left_pivot, right_pivot) = (left[pivot], right[pivot]);
            for row in (0..lost).filter(|row| *row != pivot) {
                let factor = left[row][pivot];
                for (c, p) in left[row].iter_mut().zip(left_pivot) {
                    *c ^= product(factor, p);
                }
                for (c, p) in right[row].iter_mut().zip(right_pivot) {
                    *c ^= product(factor, p);
                }
            }
        }
        let mut coefficients = [0; COEFFICIENTS_MAX];
        for (row, weights) in right[..lost].iter().enumerate() {
            coefficients[row * l..][..l].copy_from_slice(&weights[..l]);
        }
        coefficients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn long_rows_begin_in_different_blocks() {
        for width in (STAGGER_FROM..9_000).chain([1 << 20, (1 << 20) + 1]) {
            let stride = stride(width);
            assert!((width..width + STAGGER_UNIT).contains(&stride));
            let blocks: BTreeSet<usize> = (0..N_MAX).map(|i| i * stride % 4_096 / 64).collect();
            assert_eq!(blocks.len(), N_MAX, "{width}");
        }
        assert_eq!(stride(100), 100);
    }
}
