//! Libraries behind our own trait, so that they are asked for exactly what Fermata would ask.
//!
//! All want whole rows of equal length: a value whose length is not a multiple of l has its last
//! row copied and padded, as any user of them would have to do. Matrices and work space are kept
//! from call to call where the library can keep them.

use bytes::Bytes;
use fermata_codec::{Mds, Undecodable, check};
use reed_solomon_erasure::galois_8::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use rusty_erasure::{Coder, DecodePlan, Matrix};
use std::fmt;
use std::sync::Mutex;

/// The rows of `value`, `width` bytes each, of which those in `padding` are padded.
pub(crate) fn rows<'a>(
    value: &'a [u8],
    width: usize,
    l: usize,
    padding: &'a mut Vec<u8>,
) -> Vec<&'a [u8]> {
    let whole = value.len() / width;
    padding.extend_from_slice(&value[whole * width..]);
    padding.resize((l - whole) * width, 0);
    let given = value[..whole * width].chunks_exact(width);
    given.chain(padding.chunks_exact(width)).collect()
}

/// The value, cut into rows, and then its parities.
pub(crate) fn fragments(
    value: &Bytes,
    width: usize,
    l: usize,
    parities: Vec<Vec<u8>>,
) -> Vec<Bytes> {
    let cut = |i: usize| {
        let end = value.len().min((i + 1) * width);
        value.slice((i * width).min(end)..end)
    };
    let data = (0..l).map(cut);
    data.chain(parities.into_iter().map(Bytes::from)).collect()
}

/// The crate `reed-solomon-erasure`, without its C.
pub(crate) struct Erasure {
    n: usize,
    l: usize,
    library: ReedSolomon,
}

impl Erasure {
    pub(crate) fn new(n: usize, l: usize) -> Erasure {
        let library = ReedSolomon::new(l, n - l).expect("a possible code");
        Erasure { n, l, library }
    }
}

impl fmt::Debug for Erasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rs-erasure [{}, {}]", self.n, self.l)
    }
}

impl Mds for Erasure {
    fn n(&self) -> usize {
        self.n
    }

    fn l(&self) -> usize {
        self.l
    }

    fn encode_one(&self, value: &Bytes, index: usize) -> Bytes {
        self.encode_all(value).swap_remove(index)
    }

    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        let width = value.len().div_ceil(self.l);
        let mut padding = Vec::new();
        let data = rows(value, width, self.l, &mut padding);
        let mut parities = vec![vec![0; width]; self.n - self.l];
        let coded = self.library.encode_sep(&data, &mut parities);
        coded.expect("rows of one length");
        fragments(value, width, self.l, parities)
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        check(self.n, self.l, length, parts)?;
        let length = length as usize;
        let width = length.div_ceil(self.l);
        // The library repairs in place, so the parities are copied too.
        let mut all = vec![0; self.n * width];
        let rows = all.chunks_exact_mut(width);
        let mut rows: Vec<(&mut [u8], bool)> = rows.map(|row| (row, false)).collect();
        for (index, bytes) in parts {
            rows[*index].0[..bytes.len()].copy_from_slice(bytes);
            rows[*index].1 = true;
        }
        let repaired = self.library.reconstruct_data(&mut rows);
        repaired.expect("enough rows of one length");
        all.truncate(length);
        Ok(Bytes::from(all))
    }
}

/// The crate `rusty_erasure`, on the best instructions it has.
pub(crate) struct Rusty {
    n: usize,
    l: usize,
    library: Coder,
    /// The last pattern of fragments and what to do about it.
    plan: Mutex<Option<(Vec<bool>, DecodePlan)>>,
}

impl Rusty {
    pub(crate) fn new(n: usize, l: usize) -> Rusty {
        let matrix = Matrix::cauchy(l, n - l).expect("a possible code");
        let library = rusty_erasure::coder(matrix).expect("a possible code");
        Rusty {
            n,
            l,
            library,
            plan: Mutex::new(None),
        }
    }
}

impl fmt::Debug for Rusty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rusty-erasure [{}, {}]", self.n, self.l)
    }
}

impl Mds for Rusty {
    fn n(&self) -> usize {
        self.n
    }

    fn l(&self) -> usize {
        self.l
    }

    fn encode_one(&self, value: &Bytes, index: usize) -> Bytes {
        self.encode_all(value).swap_remove(index)
    }

    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        let width = value.len().div_ceil(self.l);
        let mut padding = Vec::new();
        let data = rows(value, width, self.l, &mut padding);
        let mut parities = vec![vec![0; width]; self.n - self.l];
        let mut slices: Vec<&mut [u8]> = parities.iter_mut().map(|row| &mut row[..]).collect();
        let coded = self.library.encode(&data, &mut slices);
        coded.expect("rows of one length");
        fragments(value, width, self.l, parities)
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        recovered(self, length, parts, |present, given, lost| {
            let mut plan = self.plan.lock().expect("one thread");
            if plan.as_ref().is_none_or(|(pattern, _)| pattern != present) {
                let gone: Vec<usize> = (0..self.l).filter(|i| !present[*i]).collect();
                let new = self.library.decode_plan(present, &gone);
                *plan = Some((present.to_vec(), new.expect("enough fragments")));
            }
            let (_, plan) = plan.as_ref().expect("just made");
            let recovered = self.library.recover_with(plan, given, lost);
            recovered.expect("rows of one length");
        })
    }
}

/// Decodes by a library that recovers lost rows of the value from whole rows: which fragments are
/// present, all rows that are given, and the lost ones to fill.
pub(crate) fn recovered(
    coder: &dyn Mds,
    length: u64,
    parts: &[(usize, Bytes)],
    recover: impl FnOnce(&[bool], &[Option<&[u8]>], &mut [&mut [u8]]),
) -> Result<Bytes, Undecodable> {
    let (n, l) = (coder.n(), coder.l());
    check(n, l, length, parts)?;
    let width = length.div_ceil(l as u64) as usize;
    let mut value = vec![0; l * width];
    let mut present = vec![false; n];
    let mut given: Vec<Option<&[u8]>> = vec![None; n];
    let mut padded = Vec::new();
    for (index, bytes) in parts {
        present[*index] = true;
        given[*index] = Some(bytes);
        if *index < l {
            value[index * width..][..bytes.len()].copy_from_slice(bytes);
        }
        if bytes.len() < width {
            padded.extend_from_slice(bytes);
            padded.resize(width, 0);
        }
    }
    for bytes in given.iter_mut().flatten() {
        if bytes.len() < width {
            *bytes = &padded;
        }
    }
    let rows = value.chunks_exact_mut(width).zip(&present);
    let mut lost: Vec<&mut [u8]> = rows.filter(|(_, here)| !**here).map(|(r, _)| r).collect();
    recover(&present, &given, &mut lost);
    value.truncate(length as usize);
    Ok(Bytes::from(value))
}

/// The crate `reed-solomon-simd`.
pub(crate) struct Simd {
    n: usize,
    l: usize,
    encoder: Mutex<ReedSolomonEncoder>,
    decoder: Mutex<ReedSolomonDecoder>,
}

impl Simd {
    pub(crate) fn new(n: usize, l: usize) -> Simd {
        let encoder = ReedSolomonEncoder::new(l, n - l, 64).expect("a possible code");
        let decoder = ReedSolomonDecoder::new(l, n - l, 64).expect("a possible code");
        Simd {
            n,
            l,
            encoder: Mutex::new(encoder),
            decoder: Mutex::new(decoder),
        }
    }

    /// Rows have an even number of bytes there.
    fn width(&self, length: usize) -> usize {
        length.div_ceil(self.l).next_multiple_of(2)
    }
}

impl fmt::Debug for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rs-simd [{}, {}]", self.n, self.l)
    }
}

impl Mds for Simd {
    fn n(&self) -> usize {
        self.n
    }

    fn l(&self) -> usize {
        self.l
    }

    fn fragment_length(&self, length: u64, index: usize) -> u64 {
        let width = self.width(length as usize) as u64;
        let left = length.saturating_sub(width * index as u64);
        if index < self.l {
            left.min(width)
        } else {
            width
        }
    }

    fn encode_one(&self, value: &Bytes, index: usize) -> Bytes {
        self.encode_all(value).swap_remove(index)
    }

    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        let width = self.width(value.len());
        let mut encoder = self.encoder.lock().expect("one thread");
        encoder.reset(self.l, self.n - self.l, width).expect("even");
        let mut padding = Vec::new();
        for row in rows(value, width, self.l, &mut padding) {
            encoder.add_original_shard(row).expect("even");
        }
        let result = encoder.encode().expect("all rows are there");
        let cut = |i: usize| {
            let end = value.len().min((i + 1) * width);
            value.slice((i * width).min(end)..end)
        };
        let parities = result.recovery_iter().map(Bytes::copy_from_slice);
        (0..self.l).map(cut).chain(parities).collect()
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        let length = length as usize;
        let width = self.width(length);
        let mut decoder = self.decoder.lock().expect("one thread");
        decoder.reset(self.l, self.n - self.l, width).expect("even");
        let mut value = vec![0; self.l * width];
        for (index, bytes) in parts {
            if *index >= self.l {
                let added = decoder.add_recovery_shard(index - self.l, bytes);
                added.expect("an even row");
                continue;
            }
            let row = &mut value[index * width..][..width];
            row[..bytes.len()].copy_from_slice(bytes);
            decoder
                .add_original_shard(*index, row)
                .expect("an even row");
        }
        let result = decoder.decode().expect("enough rows");
        for (index, row) in result.restored_original_iter() {
            value[index * width..][..width].copy_from_slice(row);
        }
        value.truncate(length);
        Ok(Bytes::from(value))
    }
}
