//! One decoder, that of the target's name: `cargo +nightly fuzz run NAME`.

#![no_main]

use fermata_server::fuzz::DECODERS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut own = DECODERS.into_iter();
    let own = own.find(|(name, _)| *name == env!("CARGO_BIN_NAME"));
    (own.expect("a decoder of this name").1)(bytes)
});
