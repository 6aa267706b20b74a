//! Sums of weighted rows, at the speed of the machine.
//!
//! **Problem.** All the work of the code is one thing: out of up to 16 rows of bytes, make up to 15
//! others, each the sum of the rows with weights of its own. It should be done at the speed at
//! which memory is read.
//!
//! **Idea.** Each block of each source is read once and multiplied for up to eight sums that are
//! held in registers. A multiplication by a constant is linear over bits, so that one instruction
//! does it for up to 64 bytes where there is GFNI, and two table look-ups in a register do where
//! there is AVX2. The portable kernel doubles words of eight bytes in plain integers, which
//! compilers turn into whatever vectors the target always has.
//!
//! | kernel | bytes a step | needs |
//! | --- | --- | --- |
//! | `avx512-gfni` | 64 | AVX-512 F and BW, GFNI |
//! | `avx2-gfni` | 32 | AVX2, GFNI |
//! | `avx2` | 32 | AVX2 |
//! | `portable` | 64, as the compiler likes | nothing; safe code |
//!
//! **Invariants.**
//!
//! 1. All kernels give equal bytes (`tests/kernels.rs`).
//! 2. A [`Kernel`] other than the portable one exists only where the processor has said that it has
//!    the instructions. The unsafe code rests on that.
//! 3. A source shorter than the widest row counts as if followed by zeros.

mod portable;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod raw;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86;

use crate::field::{COEFFICIENTS_MAX, N_MAX};
use alloc::vec::Vec;

/// One way to compute; all give equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Which);

/// Which one. Private to this room: see its second invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx512Gfni,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2Gfni,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2,
    Portable,
}

impl Kernel {
    /// The kernel that needs nothing and has no unsafe code.
    pub const PORTABLE: Kernel = Kernel(Which::Portable);

    /// The fastest one that this processor can run. The processor is asked once per process.
    pub fn best() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel::PORTABLE)
    }

    /// All that this processor can run, the fastest first.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub fn available() -> impl Iterator<Item = Kernel> {
        use std::arch::is_x86_feature_detected as has;
        let gfni = has!("gfni");
        let avx2 = has!("avx2");
        let avx512 = has!("avx512f") && has!("avx512bw");
        let ways = [
            (avx512 && gfni, Which::Avx512Gfni),
            (avx2 && gfni, Which::Avx2Gfni),
            (avx2, Which::Avx2),
            (true, Which::Portable),
        ];
        ways.into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, which)| Kernel(which))
    }

    /// All that this processor can run, the fastest first.
    #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
    pub fn available() -> impl Iterator<Item = Kernel> {
        [Kernel::PORTABLE].into_iter()
    }

    /// Its name, for tables and logs.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx512Gfni => "avx512-gfni",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx2Gfni => "avx2-gfni",
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx2 => "avx2",
            Which::Portable => "portable",
        }
    }

    /// `total` bytes with the rows of `job` in their places and zeros between them.
    ///
    /// # Panics
    /// Where `job` is not well formed.
    #[allow(unsafe_code)] // Where the invariants that the unsafe kernels need are known.
    pub(crate) fn assemble(self, total: usize, job: &Job<'_>) -> Vec<u8> {
        job.assert_well_formed(total);
        match self.0 {
            // SAFETY (all three): the job was just checked, and the processor when this kernel was
            // made: the second invariant of this room.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx512Gfni => unsafe { raw::assemble::<x86::Avx512Gfni>(total, job) },
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx2Gfni => unsafe { raw::assemble::<x86::Avx2Gfni>(total, job) },
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Which::Avx2 => unsafe { raw::assemble::<x86::Avx2>(total, job) },
            Which::Portable => portable::assemble(total, job),
        }
    }
}

/// One piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// What is summed, each with zeros after its end.
    pub(crate) sources: &'a [&'a [u8]],
    /// Sum by sum the weights of the sources.
    pub(crate) coefficients: &'a [u8],
    /// What is made, in the order of places.
    pub(crate) rows: &'a [Row<'a>],
}

/// A row of the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    start: usize,
    length: usize,
    /// What it is a copy of; none where it is the next sum.
    given: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// A row of `length` bytes from `start`, which is the next sum.
    pub(crate) fn sum(start: usize, length: usize) -> Row<'a> {
        Row {
            start,
            length,
            given: None,
        }
    }

    /// A row from `start` which is a copy of `bytes`.
    pub(crate) fn copy(start: usize, bytes: &'a [u8]) -> Row<'a> {
        Row {
            start,
            length: bytes.len(),
            given: Some(bytes),
        }
    }

    fn end(&self) -> usize {
        self.start + self.length
    }
}

impl Job<'_> {
    /// What the kernels, unsafe ones among them, rely on.
    fn assert_well_formed(&self, total: usize) {
        let mut end = 0;
        for row in self.rows {
            assert!(end <= row.start, "rows are in order and do not overlap");
            end = row.start.checked_add(row.length).expect("a row in memory");
        }
        assert!(end <= total, "rows are inside the result");
        let sums = self.rows.iter().filter(|row| row.given.is_none()).count();
        assert!(self.rows.len() <= N_MAX && self.sources.len() <= N_MAX);
        assert!(self.coefficients.len() <= COEFFICIENTS_MAX);
        assert_eq!(
            self.coefficients.len(),
            sums * self.sources.len(),
            "one weight per sum and source"
        );
    }
}
