//! The kernels for x86-64.
//!
//! *GFNI.* Multiplying by a constant is a linear map over the eight bits of a byte, hence a matrix
//! of 8 × 8 bits, and `gf2p8affineqb` applies one matrix to every byte of a register. (Its sister
//! `gf2p8mulb` is tied to another polynomial.)
//!
//! *AVX2.* A product is the sum of those of the low and the high four bits, and `pshufb` looks up
//! 32 of them at once in a table of 16.
//!
//! The loops are the same for all, hence the macro. The blocks in which a row ends are loaded with
//! zeros after the end and stored up to it.
#![allow(unsafe_code)] // Pointers into rows; each block says why it may.

use super::raw::{Instructions, Target};
use crate::field::{doubled, product};
use core::arch::x86_64::*;

/// Per weight the matrix of `gf2p8affineqb`: bit i of a result is the parity of byte 7 − i of the
/// matrix, masked with the operand.
static MATRICES: [u64; 256] = {
    let mut all = [0; 256];
    let mut weight = 0;
    while weight < 256 {
        // Bit j of the operand contributes weight · 2^j.
        let mut contribution = weight as u8;
        let mut j = 0;
        while j < 8 {
            let mut i = 0;
            while i < 8 {
                if contribution >> i & 1 == 1 {
                    all[weight] |= 1 << (8 * (7 - i) + j);
                }
                i += 1;
            }
            contribution = doubled(contribution);
            j += 1;
        }
        weight += 1;
    }
    all
};

/// Per weight its products with 0 to 15, and with those times 16.
#[repr(align(32))]
pub(super) struct Products([u8; 32]);

static PRODUCTS: [Products; 256] = {
    let mut all = [const { Products([0; 32]) }; 256];
    let mut weight = 0;
    while weight < 256 {
        let mut four = 0;
        while four < 16 {
            all[weight].0[four] = product(weight as u8, four as u8);
            all[weight].0[16 + four] = product(weight as u8, (four << 4) as u8);
            four += 1;
        }
        weight += 1;
    }
    all
};

/// The loops, for a module that has `Vector`, `Weight`, `Factor`, `BYTES`, `GROUP` and the
/// operations used below. `$unroll` are the vectors per row and step, by the number of sums.
macro_rules! kernel {
    ($name:ident, $features:literal, [$($sums:literal => $unroll:literal),+]) => {
        impl Instructions for super::$name {
            type Weight = Weight;

            fn weight(coefficient: u8) -> Weight {
                weight(coefficient)
            }

            unsafe fn sum(
                weights: &[Weight],
                sources: &[&[u8]],
                targets: &[Target],
                from: usize,
                to: usize,
            ) {
                // Groups of nearly equal size: five sums are three and two, not four and one.
                let group = targets.len().div_ceil(targets.len().div_ceil(GROUP));
                let groups = weights.chunks(group * sources.len());
                for (weights, targets) in groups.zip(targets.chunks(group)) {
                    match targets.len() {
                        $(
                            // SAFETY: what the caller promises.
                            $sums => unsafe {
                                rows::<$sums, $unroll>(weights, sources, targets, from, to);
                            },
                        )+
                        count => unreachable!("a group of {count} sums"),
                    }
                }
            }
        }

        /// Columns `from..to` of `R` sums, `U` vectors of each row at a step.
        ///
        /// # Safety
        /// As [`Instructions::sum`], with `R` targets.
        #[target_feature(enable = $features)]
        unsafe fn rows<const R: usize, const U: usize>(
            weights: &[Weight],
            sources: &[&[u8]],
            targets: &[Target],
            from: usize,
            to: usize,
        ) {
            assert!(targets.len() == R && weights.len() == R * sources.len());
            let stride = sources.len();
            let shortest = sources.iter().map(|source| source.len());
            let whole = shortest.chain(targets.iter().map(|target| target.length)).min();
            let whole = whole.unwrap_or(0).min(to);
            let mut at = from;
            while at + U * BYTES <= whole {
                let mut sums = [[zero(); U]; R];
                for (j, source) in sources.iter().enumerate() {
                    let mut vectors = [zero(); U];
                    for (u, vector) in vectors.iter_mut().enumerate() {
                        // SAFETY: `at + U * BYTES` is within every source.
                        *vector = unsafe { load(source.as_ptr().add(at + u * BYTES)) };
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let factor = factor(weights[r * stride + j]);
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = add(*sum, multiply(vector, factor));
                        }
                    }
                }
                for (target, sums) in targets.iter().zip(sums) {
                    for (u, sum) in sums.into_iter().enumerate() {
                        // SAFETY: `at + U * BYTES` is within every target.
                        unsafe { store(target.at.add(at + u * BYTES), sum) };
                    }
                }
                at += U * BYTES;
            }
            while at < to {
                let mut sums = [zero(); R];
                for (j, source) in sources.iter().enumerate() {
                    let part = source.get(at..).unwrap_or(&[]);
                    let vector = load_part(part);
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let product = multiply(vector, factor(weights[r * stride + j]));
                        *sum = add(*sum, product);
                    }
                }
                for (target, sum) in targets.iter().zip(sums) {
                    let count = target.length.saturating_sub(at).min(BYTES);
                    if count > 0 {
                        // SAFETY: `at + count` is within the target.
                        unsafe { store_part(target.at.add(at), count, sum) };
                    }
                }
                at += BYTES;
            }
        }
    };
}

/// The kernel `avx512-gfni`.
pub(super) struct Avx512Gfni;

mod avx512_gfni {
    use super::*;

    type Vector = __m512i;
    type Weight = u64;
    type Factor = __m512i;
    const BYTES: usize = 64;
    const GROUP: usize = 8;

    fn weight(coefficient: u8) -> Weight {
        MATRICES[usize::from(coefficient)]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn factor(weight: Weight) -> Factor {
        _mm512_set1_epi64(weight as i64)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn zero() -> Vector {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn add(a: Vector, b: Vector) -> Vector {
        _mm512_xor_si512(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn multiply(vector: Vector, factor: Factor) -> Vector {
        _mm512_gf2p8affine_epi64_epi8::<0>(vector, factor)
    }

    /// # Safety
    /// [`BYTES`] bytes from `at` may be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn load(at: *const u8) -> Vector {
        // SAFETY: what the caller promises.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    /// # Safety
    /// [`BYTES`] bytes from `at` may be written.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn store(at: *mut u8, vector: Vector) {
        // SAFETY: what the caller promises.
        unsafe { _mm512_storeu_si512(at.cast(), vector) };
    }

    /// A bit for each of the first `count` bytes.
    #[inline]
    fn mask(count: usize) -> u64 {
        u64::MAX >> (BYTES - count)
    }

    /// The first bytes of `part`, with zeros after its end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn load_part(part: &[u8]) -> Vector {
        if part.is_empty() {
            return zero();
        }
        let mask = mask(part.len().min(BYTES));
        // SAFETY: what the mask leaves out is not read.
        unsafe { _mm512_maskz_loadu_epi8(mask, part.as_ptr().cast()) }
    }

    /// # Safety
    /// `count` bytes from `at` may be written, 1 to [`BYTES`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn store_part(at: *mut u8, count: usize, vector: Vector) {
        // SAFETY: what the mask leaves out is not written.
        unsafe { _mm512_mask_storeu_epi8(at.cast(), mask(count), vector) };
    }

    kernel!(
        Avx512Gfni,
        "avx512f,avx512bw,gfni",
        [1 => 4, 2 => 4, 3 => 2, 4 => 2, 5 => 2, 6 => 2, 7 => 2, 8 => 2]
    );
}

/// The operations on 32 bytes, and the loops; multiplication is the module's own.
macro_rules! kernel_of_32_bytes {
    ($name:ident, $features:literal, $unroll:tt) => {
        type Vector = __m256i;
        const BYTES: usize = 32;
        const GROUP: usize = 4;

        #[inline]
        #[target_feature(enable = $features)]
        fn zero() -> Vector {
            _mm256_setzero_si256()
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm256_xor_si256(a, b)
        }

        /// # Safety
        /// [`BYTES`] bytes from `at` may be read.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn load(at: *const u8) -> Vector {
            // SAFETY: what the caller promises.
            unsafe { _mm256_loadu_si256(at.cast()) }
        }

        /// # Safety
        /// [`BYTES`] bytes from `at` may be written.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn store(at: *mut u8, vector: Vector) {
            // SAFETY: what the caller promises.
            unsafe { _mm256_storeu_si256(at.cast(), vector) };
        }

        /// The first bytes of `part`, with zeros after its end.
        #[inline]
        #[target_feature(enable = $features)]
        fn load_part(part: &[u8]) -> Vector {
            if part.len() >= BYTES {
                // SAFETY: there are as many.
                return unsafe { load(part.as_ptr()) };
            }
            let mut bytes = [0; BYTES];
            bytes[..part.len()].copy_from_slice(part);
            // SAFETY: an array of as many.
            unsafe { load(bytes.as_ptr()) }
        }

        /// # Safety
        /// `count` bytes from `at` may be written, 1 to [`BYTES`].
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn store_part(at: *mut u8, count: usize, vector: Vector) {
            if count == BYTES {
                // SAFETY: what the caller promises.
                return unsafe { store(at, vector) };
            }
            let mut bytes = [0; BYTES];
            // SAFETY: an array of as many; then what the caller promises.
            unsafe {
                store(bytes.as_mut_ptr(), vector);
                at.copy_from_nonoverlapping(bytes.as_ptr(), count);
            }
        }

        kernel!($name, $features, $unroll);
    };
}

/// The kernel `avx2-gfni`.
pub(super) struct Avx2Gfni;

mod avx2_gfni {
    use super::*;

    type Weight = u64;
    type Factor = __m256i;

    fn weight(coefficient: u8) -> Weight {
        MATRICES[usize::from(coefficient)]
    }

    #[inline]
    #[target_feature(enable = "avx2,gfni")]
    fn factor(weight: Weight) -> Factor {
        _mm256_set1_epi64x(weight as i64)
    }

    #[inline]
    #[target_feature(enable = "avx2,gfni")]
    fn multiply(vector: Vector, factor: Factor) -> Vector {
        _mm256_gf2p8affine_epi64_epi8::<0>(vector, factor)
    }

    kernel_of_32_bytes!(Avx2Gfni, "avx2,gfni", [1 => 4, 2 => 4, 3 => 2, 4 => 2]);
}

/// The kernel `avx2`.
pub(super) struct Avx2;

mod avx2 {
    use super::*;

    type Weight = &'static Products;
    /// Products of the low and the high four bits, each in both halves of a register.
    type Factor = (__m256i, __m256i);

    fn weight(coefficient: u8) -> Weight {
        &PRODUCTS[usize::from(coefficient)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factor(weight: Weight) -> Factor {
        // SAFETY: an array of 32 bytes.
        let both = unsafe { _mm256_loadu_si256(weight.0.as_ptr().cast()) };
        let low = _mm256_permute2x128_si256::<0x00>(both, both);
        let high = _mm256_permute2x128_si256::<0x11>(both, both);
        (low, high)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply(vector: Vector, (low, high): Factor) -> Vector {
        let mask = _mm256_set1_epi8(0x0f);
        let low_bits = _mm256_and_si256(vector, mask);
        let high_bits = _mm256_and_si256(_mm256_srli_epi64::<4>(vector), mask);
        _mm256_xor_si256(
            _mm256_shuffle_epi8(low, low_bits),
            _mm256_shuffle_epi8(high, high_bits),
        )
    }

    kernel_of_32_bytes!(Avx2, "avx2", [1 => 4, 2 => 2, 3 => 2, 4 => 1]);
}
