//! What every code here can do, whoever computes it.

use bytes::Bytes;
use core::fmt;

/// A systematic [n, l] code over bytes: n fragments, any l of which give the value.
pub trait Mds: fmt::Debug + Send + Sync {
    /// Fragments of a value.
    fn n(&self) -> usize;

    /// Fragments that suffice, 1 ≤ l ≤ n. Those below l are the value, cut.
    fn l(&self) -> usize;

    /// Bytes of fragment `index` of a value of `length` bytes: ⌈length / l⌉, and what is left for
    /// the last fragments below l.
    fn fragment_length(&self, length: u64, index: usize) -> u64 {
        let width = length.div_ceil(self.l() as u64);
        fragment_length(self.l(), width, length, index)
    }

    /// The fragment `index` of `value`. Below l it shares the value's memory.
    ///
    /// # Panics
    /// Where `index` ≥ n.
    fn encode_one(&self, value: &Bytes, index: usize) -> Bytes;

    /// All n fragments of `value`, in order. Those below l share the value's memory, the others one
    /// memory of their own: copy a fragment that is kept for long.
    fn encode_all(&self, value: &Bytes) -> alloc::vec::Vec<Bytes>;

    /// The value of `length` bytes of which `parts` are fragments with their indices. More than l
    /// parts are welcome; the spare ones are checked for index and length, and not used.
    ///
    /// # Errors
    /// [`Undecodable`]. Changed bytes are not seen here but by [`crate::checksum`].
    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable>;
}

/// [`Mds::fragment_length`], where `width` is ⌈length / l⌉. (Divisions are what costs here.)
fn fragment_length(l: usize, width: u64, length: u64, index: usize) -> u64 {
    if index >= l {
        return width;
    }
    let before = width.saturating_mul(index as u64);
    length.saturating_sub(before).min(width)
}

/// Whether `parts` are at least `l` distinct fragments of a value of `length` bytes, by their
/// indices and lengths: the checks of every decoder.
///
/// # Errors
/// The first thing that is wrong, in the order of `parts`.
pub fn check(n: usize, l: usize, length: u64, parts: &[(usize, Bytes)]) -> Result<(), Undecodable> {
    if usize::try_from(length).is_err() {
        return Err(Undecodable::TooLong { length });
    }
    let width = length.div_ceil(l as u64);
    let mut seen = 0u64;
    for (index, bytes) in parts {
        let index = *index;
        if index >= n {
            return Err(Undecodable::NoSuchFragment { index, n });
        }
        if seen >> index & 1 == 1 {
            return Err(Undecodable::Twice { index });
        }
        seen |= 1 << index;
        let needed = fragment_length(l, width, length, index);
        if bytes.len() as u64 != needed {
            let found = bytes.len();
            return Err(Undecodable::WrongLength {
                index,
                found,
                needed,
            });
        }
    }
    if parts.len() < l {
        let found = parts.len();
        return Err(Undecodable::TooFew { found, needed: l });
    }
    Ok(())
}

/// There is no such code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// Fragments asked for.
    pub n: usize,
    /// Fragments that should suffice.
    pub l: usize,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no code makes {} fragments of which {} suffice; choose 1 <= l <= n <= {}",
            self.n,
            self.l,
            crate::field::N_MAX
        )
    }
}

impl core::error::Error for Impossible {}

/// Why parts do not give a value. Nothing has been changed by the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecodable {
    /// Fewer parts than suffice.
    TooFew {
        /// Parts given.
        found: usize,
        /// Parts that suffice.
        needed: usize,
    },
    /// A fragment is given more than once.
    Twice {
        /// Its index.
        index: usize,
    },
    /// An index that the code does not have.
    NoSuchFragment {
        /// The index.
        index: usize,
        /// Fragments of the code.
        n: usize,
    },
    /// A fragment that cannot be of a value of the given length.
    WrongLength {
        /// Its index.
        index: usize,
        /// Its bytes.
        found: usize,
        /// Bytes that it should have.
        needed: u64,
    },
    /// A value that this machine cannot address.
    TooLong {
        /// Bytes of the value.
        length: u64,
    },
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Undecodable::TooFew { found, needed } => write!(
                f,
                "{found} fragments do not give the value; ask more members until there are {needed}"
            ),
            Undecodable::Twice { index } => write!(
                f,
                "fragment {index} was given twice; give each fragment once"
            ),
            Undecodable::NoSuchFragment { index, n } => write!(
                f,
                "there is no fragment {index} in a code of {n}; the part is of another code"
            ),
            Undecodable::WrongLength {
                index,
                found,
                needed,
            } => write!(
                f,
                "fragment {index} has {found} bytes where a value of that length gives {needed}; \
                 the part is damaged or of another value"
            ),
            Undecodable::TooLong { length } => write!(
                f,
                "a value of {length} bytes cannot be addressed on this machine; read it elsewhere"
            ),
        }
    }
}

impl core::error::Error for Undecodable {}
