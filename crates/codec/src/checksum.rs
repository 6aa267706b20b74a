//! A fast checksum of 64 bits, against damage and mix-ups; no defence against one who wants a
//! collision.
//!
//! Eight independent chains, so that a processor has eight multiplications under way. Each step of
//! a chain, and the way the chains are joined, is one-to-one in the word that enters: damage within
//! one aligned word of eight bytes *always* shows, any other with a probability of 1 − 2⁻⁶⁴.

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 8;
const CHAINS: usize = 8;

/// One-to-one in `word`, and in `hash`.
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(PRIME);
    product ^ (product >> 29)
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The checksum of `bytes` under `seed`: other seeds give unrelated checksums.
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(mix(0xcbf2_9ce4_8422_2325, seed), bytes.len() as u64);
    let mut blocks = bytes.chunks_exact(WORD * CHAINS);
    if bytes.len() >= WORD * CHAINS {
        let mut chains: [u64; CHAINS] = core::array::from_fn(|i| mix(hash, i as u64));
        for block in &mut blocks {
            for (chain, bytes) in chains.iter_mut().zip(block.chunks_exact(WORD)) {
                *chain = mix(*chain, word(bytes));
            }
        }
        for chain in chains {
            hash = mix(hash, chain);
        }
    }
    let mut words = blocks.remainder().chunks_exact(WORD);
    for bytes in &mut words {
        hash = mix(hash, word(bytes));
    }
    let mut last = [0; WORD];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(mix(hash, u64::from_le_bytes(last)), PRIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    #[test]
    fn every_bit_the_length_and_the_seed_are_seen() {
        for length in [1, 7, 8, 9, 63, 64, 65, 200] {
            let bytes: vec::Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut seen = BTreeSet::from([checksum(0, &bytes), checksum(1, &bytes)]);
            for bit in 0..8 * length {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                seen.insert(checksum(0, &other));
            }
            assert_eq!(seen.len(), 2 + 8 * length);
        }
        let zeros: BTreeSet<u64> = (0..200).map(|n| checksum(0, &vec![0; n])).collect();
        assert_eq!(zeros.len(), 200);
    }

    /// What is at rest today must be sound tomorrow. The numbers are those of another program.
    #[test]
    fn the_checksum_never_changes() {
        let bytes: vec::Vec<u8> = (0..100).collect();
        assert_eq!(checksum(0, &[]), 0xcf8e_692c_fe6c_6601);
        assert_eq!(checksum(7, &bytes), 0xb06f_283f_149c_62a2);
    }
}
