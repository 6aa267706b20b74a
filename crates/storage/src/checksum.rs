//! CRC-32C (Castagnoli), the one checksum of the log and of the table's entries.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of the concatenation of `parts`.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    if let [one] = parts {
        return crc_fast::crc32_iscsi(one);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // The digest is 64 bits wide for all algorithms; a 32-bit one fills the lower half.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn is_castagnoli_and_parts_concatenate() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }
}
