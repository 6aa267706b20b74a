//! Libraries behind one trait, so that they are asked for exactly what Fermata would ask.
//!
//! All want whole rows of equal length: a value whose length is not a multiple of l has its last
//! row copied and padded, as any user of them would have to do. Matrices and work space are kept
//! from call to call where the library can keep them.

use bytes::Bytes;
use fermata_codec::{Code, Mds, Undecodable, check};
use reed_solomon_erasure::galois_8::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use rusty_erasure::{DecodePlan, Matrix};
use std::sync::Mutex;

/// What Fermata calls of a code; its threads share one coder.
pub(crate) trait Coder: Sync {
    /// All n fragments, those below l cut from the value.
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes>;

    /// The value of `length` bytes from l fragments.
    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable>;
}

impl Coder for Code {
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        Mds::encode_all(self, value)
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        Mds::decode(self, length, parts)
    }
}

/// The rows of `value`, `width` bytes each, of which those in `padding` are padded.
fn rows<'a>(value: &'a [u8], width: usize, l: usize, padding: &'a mut Vec<u8>) -> Vec<&'a [u8]> {
    let whole = value.len() / width;
    padding.extend_from_slice(&value[whole * width..]);
    padding.resize((l - whole) * width, 0);
    let given = value[..whole * width].chunks_exact(width);
    given.chain(padding.chunks_exact(width)).collect()
}

/// The value, cut into rows, and then its parities.
fn fragments(
    value: &Bytes,
    width: usize,
    l: usize,
    parities: impl Iterator<Item = Bytes>,
) -> Vec<Bytes> {
    let cut = |i: usize| {
        let end = value.len().min((i + 1) * width);
        value.slice((i * width).min(end)..end)
    };
    (0..l).map(cut).chain(parities).collect()
}

/// Encodes by a library that fills parities from whole rows.
pub(crate) fn encoded(
    (n, l): (usize, usize),
    value: &Bytes,
    encode: impl FnOnce(&[&[u8]], &mut [Vec<u8>]),
) -> Vec<Bytes> {
    let width = value.len().div_ceil(l);
    let mut padding = Vec::new();
    let data = rows(value, width, l, &mut padding);
    let mut parities = vec![vec![0; width]; n - l];
    encode(&data, &mut parities);
    fragments(value, width, l, parities.into_iter().map(Bytes::from))
}

/// Decodes by a library that recovers lost rows of the value from whole rows: which fragments are
/// present, all rows that are given, and the lost ones to fill.
pub(crate) fn recovered(
    (n, l): (usize, usize),
    length: u64,
    parts: &[(usize, Bytes)],
    recover: impl FnOnce(&[bool], &[Option<&[u8]>], &mut [&mut [u8]]),
) -> Result<Bytes, Undecodable> {
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

impl Coder for Erasure {
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        encoded((self.n, self.l), value, |data, parities| {
            let coded = self.library.encode_sep(data, parities);
            coded.expect("rows of one length");
        })
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
    library: rusty_erasure::Coder,
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

impl Coder for Rusty {
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        encoded((self.n, self.l), value, |data, parities| {
            let mut rows: Vec<&mut [u8]> = parities.iter_mut().map(|row| &mut row[..]).collect();
            let coded = self.library.encode(data, &mut rows);
            coded.expect("rows of one length");
        })
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        recovered((self.n, self.l), length, parts, |present, given, lost| {
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

impl Coder for Simd {
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        let width = self.width(value.len());
        let mut encoder = self.encoder.lock().expect("one thread");
        encoder.reset(self.l, self.n - self.l, width).expect("even");
        let mut padding = Vec::new();
        for row in rows(value, width, self.l, &mut padding) {
            encoder.add_original_shard(row).expect("even");
        }
        let result = encoder.encode().expect("all rows are there");
        let parities = result.recovery_iter().map(Bytes::copy_from_slice);
        fragments(value, width, self.l, parities)
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
