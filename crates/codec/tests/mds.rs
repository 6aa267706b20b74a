//! Any l fragments of n give the value, and what is wrong with parts is said.

use bytes::Bytes;
use fermata_codec::{Code, Impossible, Kernel, Mds, Undecodable, checksum};

/// Bytes that look random and are the same in every run.
fn bytes(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// All codes that there are.
fn codes() -> impl Iterator<Item = Code> {
    let pairs = (1..=16).flat_map(|n| (1..=n).map(move |l| (n, l)));
    pairs.map(|(n, l)| Code::new(n, l).expect("possible"))
}

/// The subsets of `n` with `l` elements, as bits.
fn subsets(n: usize, l: usize) -> impl Iterator<Item = u32> {
    (0..1u32 << n).filter(move |bits| bits.count_ones() as usize == l)
}

fn parts(fragments: &[Bytes], bits: u32) -> Vec<(usize, Bytes)> {
    let here = (0..fragments.len()).filter(|i| bits >> i & 1 == 1);
    here.map(|i| (i, fragments[i].clone())).collect()
}

#[test]
fn every_l_fragments_give_the_value() {
    for code in codes() {
        let (n, l) = (code.n(), code.l());
        let value = bytes(5 * l + 1, n as u64);
        let fragments = code.encode_all(&value);
        let count = subsets(n, l).count();
        // All of them where they are few, else a spread of a few hundred.
        let step = count.div_ceil(if n <= 9 { usize::MAX } else { 400 });
        for bits in subsets(n, l).step_by(step) {
            let decoded = code.decode(value.len() as u64, &parts(&fragments, bits));
            assert_eq!(decoded.as_ref(), Ok(&value), "{code:?} from {bits:b}");
        }
    }
}

#[test]
fn every_length_up_to_200_and_odd_large_ones() {
    let lengths = (0..=200).chain([1_023, 4_097, 16_385, 49_153, 65_537, 100_003, 300_007]);
    for length in lengths {
        let value = bytes(length, length as u64);
        for code in codes() {
            let (n, l) = (code.n(), code.l());
            if length > 200 && ![(5, 3), (5, 2), (9, 5), (14, 10), (16, 8)].contains(&(n, l)) {
                continue;
            }
            let fragments = code.encode_all(&value);
            assert_eq!(fragments.len(), n);
            let mut stored = 0;
            for (index, fragment) in fragments.iter().enumerate() {
                let expected = code.fragment_length(length as u64, index);
                assert_eq!(fragment.len() as u64, expected);
                assert_eq!(
                    code.encode_one(&value, index),
                    *fragment,
                    "{code:?} {index}"
                );
                stored += if index < l { fragment.len() } else { 0 };
            }
            assert_eq!(stored, length, "the data fragments are the value, cut");
            // The worst case, a mixed one in reverse order, and all.
            let lost = (n - l).min(l);
            let mut mixed = parts(&fragments, 0x5555_5555 | ((1 << n) - (1 << (n / 2))));
            mixed.reverse();
            for parts in [
                parts(&fragments, ((1 << l) - 1) << lost),
                mixed,
                parts(&fragments, !0),
            ] {
                if parts.len() >= l {
                    let decoded = code.decode(length as u64, &parts);
                    assert_eq!(decoded.as_ref(), Ok(&value), "{code:?}, {length} bytes");
                }
            }
        }
    }
}

#[test]
fn a_longer_code_goes_on_where_the_shorter_ends() {
    let value = bytes(1_000, 1);
    for code in codes() {
        let all = Code::new(16, code.l())
            .expect("possible")
            .encode_all(&value);
        assert_eq!(code.encode_all(&value), all[..code.n()]);
    }
}

#[test]
fn repetition_and_data_fragments_copy_nothing() {
    let value = bytes(1_000, 1);
    let code = Code::new(5, 1).expect("possible");
    for index in 0..5 {
        let fragment = code.encode_one(&value, index);
        assert_eq!(fragment.as_ptr(), value.as_ptr());
        let decoded = code
            .decode(1_000, &[(index, fragment)])
            .expect("one is enough");
        assert_eq!(decoded.as_ptr(), value.as_ptr());
    }
    let code = Code::new(5, 3).expect("possible");
    let second = code.encode_one(&value, 1);
    assert_eq!(second.as_ptr(), value[334..].as_ptr());
}

#[test]
fn impossible_codes_are_refused() {
    for (n, l) in [(0, 0), (3, 0), (3, 4), (17, 3), (17, 17)] {
        assert_eq!(Code::new(n, l), Err(Impossible { n, l }));
    }
    assert_eq!(
        Impossible { n: 3, l: 4 }.to_string(),
        "no code makes 3 fragments of which 4 suffice; choose 1 <= l <= n <= 16"
    );
}

#[test]
fn wrong_parts_are_refused_with_a_sentence() {
    let code = Code::new(5, 3).expect("possible");
    let value = bytes(100, 3);
    let good = parts(&code.encode_all(&value), 0b10101);
    let refused = |parts: &[(usize, Bytes)], length| code.decode(length, parts).unwrap_err();

    let error = refused(&good[..2], 100);
    assert_eq!(
        error,
        Undecodable::TooFew {
            found: 2,
            needed: 3
        }
    );
    assert_eq!(
        error.to_string(),
        "2 fragments do not give the value; ask more members until there are 3"
    );
    assert_eq!(
        refused(&[], 0),
        Undecodable::TooFew {
            found: 0,
            needed: 3
        }
    );

    let mut twice = good.clone();
    twice[2] = twice[0].clone();
    assert_eq!(refused(&twice, 100), Undecodable::Twice { index: 0 });

    let mut foreign = good.clone();
    foreign[1].0 = 5;
    assert_eq!(
        refused(&foreign, 100),
        Undecodable::NoSuchFragment { index: 5, n: 5 }
    );
    foreign[1].0 = usize::MAX;
    assert!(matches!(
        refused(&foreign, 100),
        Undecodable::NoSuchFragment { .. }
    ));

    for wrong in [0, 33, 35] {
        let mut short = good.clone();
        short[2].1 = bytes(wrong, 0);
        let error = refused(&short, 100);
        let needed = 34;
        assert_eq!(
            error,
            Undecodable::WrongLength {
                index: 4,
                found: wrong,
                needed
            }
        );
    }
    // A length made up, however large, takes no memory.
    for length in [99, 103, u64::MAX, u64::MAX - 1, u64::MAX / 3] {
        assert!(code.decode(length, &good).is_err(), "{length}");
    }
    // A spare part is checked like the others.
    let mut spare = parts(&code.encode_all(&value), !0);
    spare[4].1 = bytes(3, 0);
    assert!(code.decode(100, &spare).is_err());
}

#[test]
fn a_changed_byte_shows_in_the_checksum() {
    let code = Code::new(5, 3).expect("possible");
    let value = bytes(1_000, 5);
    for (index, fragment) in code.encode_all(&value).iter().enumerate() {
        let sound = checksum(index as u64, fragment);
        for at in 0..fragment.len() {
            let mut changed = fragment.to_vec();
            changed[at] ^= 0x10;
            assert_ne!(checksum(index as u64, &changed), sound);
        }
        assert_ne!(
            checksum(index as u64, &fragment[..fragment.len() - 1]),
            sound
        );
        assert_ne!(
            checksum(index as u64 + 1, fragment),
            sound,
            "another seat's"
        );
    }
}

/// The other library's matrix is another one, so parities differ; but what any l fragments give is
/// the same.
#[test]
fn another_library_agrees_on_what_any_l_fragments_give() {
    use reed_solomon_erasure::galois_8::ReedSolomon;
    for code in codes().filter(|code| code.n() > code.l()) {
        let (n, l) = (code.n(), code.l());
        let value = bytes(l * 24, 9);
        let other = ReedSolomon::new(l, n - l).expect("possible");
        let mut theirs: Vec<Vec<u8>> = value.chunks(24).map(<[u8]>::to_vec).collect();
        theirs.resize(n, vec![0; 24]);
        other.encode(&mut theirs).expect("well formed");
        let ours = code.encode_all(&value);
        assert_eq!(ours[..l], theirs[..l], "both are systematic");
        let count = subsets(n, l).count();
        for bits in subsets(n, l).step_by(count.div_ceil(40)) {
            let mut some: Vec<Option<Vec<u8>>> = (0..n)
                .map(|i| (bits >> i & 1 == 1).then(|| theirs[i].clone()))
                .collect();
            other.reconstruct_data(&mut some).expect("enough");
            let data: Vec<u8> = some.into_iter().take(l).flatten().flatten().collect();
            let decoded = code.decode(value.len() as u64, &parts(&ours, bits));
            assert_eq!(decoded.expect("enough"), data, "{code:?} from {bits:b}");
        }
    }
}

#[test]
fn kernels_have_names_and_the_portable_one_is_always_there() {
    let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names.last(), Some(&"portable"));
    assert_eq!(names[0], Kernel::best().name());
}
