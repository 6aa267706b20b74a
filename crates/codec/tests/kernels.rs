//! All kernels give equal bytes: the portable one is the reference.

use bytes::Bytes;
use fermata_codec::{Code, Kernel, Mds};
use proptest::prelude::*;

/// Bytes without a pattern, the same for the same seed.
fn bytes(length: usize, seed: u32) -> Bytes {
    let word = |i: usize| (i as u32 ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(13);
    (0..length)
        .map(|i| word(i).wrapping_mul(0x85eb_ca6b) as u8)
        .collect()
}

/// Fragments and the value back, on `kernel`.
fn run(kernel: Kernel, n: usize, l: usize, value: &Bytes, bits: u16) -> (Vec<Bytes>, Bytes) {
    let code = Code::on(kernel, n, l).expect("possible");
    let fragments = code.encode_all(value);
    // The parts of the bits, then as many others as it takes.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| bits >> i & 1 == 0);
    let parts = order[..l].iter().map(|i| (*i, fragments[*i].clone()));
    let parts: Vec<_> = parts.collect();
    let decoded = code.decode(value.len() as u64, &parts);
    (fragments, decoded.expect("enough parts"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn kernels_agree(
        n in 1usize..=16,
        l in 1usize..=16,
        bits in any::<u16>(),
        // Not at an address that is a multiple of anything.
        skipped in 0usize..64,
        length in prop_oneof![4 => 0usize..600, 1 => 0usize..80_000],
        seed in any::<u32>(),
    ) {
        let l = l.min(n);
        let value = bytes(length + skipped, seed).slice(skipped..);
        let expected = run(Kernel::PORTABLE, n, l, &value, bits);
        prop_assert_eq!(&expected.1, &value);
        for kernel in Kernel::available() {
            let found = run(kernel, n, l, &value, bits);
            prop_assert!(found == expected, "{} differs", kernel.name());
        }
    }
}

/// Every block border of every kernel, with the short last row in each place.
#[test]
fn kernels_agree_at_block_borders() {
    let bytes = bytes(600_000, 7);
    for (n, l) in [(3, 2), (5, 3), (9, 3), (14, 10), (16, 8), (16, 2)] {
        for blocks in [1, 2, 3, 4, 5, 8, 9, 511, 512, 513, 1024, 1025] {
            for off in -2..=2i64 {
                let length = (blocks * 32 * l) as i64 + off;
                let value = bytes.slice(..(length as usize).min(bytes.len()));
                let worst = !0u16 << (n - l).min(l);
                let expected = run(Kernel::PORTABLE, n, l, &value, worst);
                assert_eq!(expected.1, value);
                for kernel in Kernel::available() {
                    let found = run(kernel, n, l, &value, worst);
                    assert!(found == expected, "{} ({n}, {l}) {length}", kernel.name());
                }
            }
        }
    }
}
