//! Writes the random histories on which other checkers are asked, one file per seed:
//! `cargo run -p fermata-check --features file --example histories -- FOLDER`.

fn main() {}
