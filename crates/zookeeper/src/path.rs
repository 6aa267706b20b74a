//! Where a key's node is.
//!
//! **Invariants.** Two keys never have the same path. A path is one that `ZooKeeper` accepts: no
//! control characters, no component `.`, `..` or empty, at most [`COMPONENT_LIMIT`] bytes for the
//! key. Nothing but rows is below `ROOT/KEYSPACE`.

use fermata_protocol::base::{KeyId, KeyspaceId};

/// The longest key, in bytes.
pub const KEY_LIMIT: usize = 4096;

/// The longest last component of a path, in bytes: a key of which every byte is escaped.
pub const COMPONENT_LIMIT: usize = 3 * KEY_LIMIT;

/// The node below which a keyspace's rows are.
pub fn keyspace(root: &str, keyspace: KeyspaceId) -> String {
    format!("{root}/{}", keyspace.0)
}

/// The node of a key.
///
/// # Errors
/// The key is longer than [`KEY_LIMIT`]: one sentence.
pub fn node(root: &str, key: &KeyId) -> Result<String, String> {
    if key.key.len() > KEY_LIMIT {
        return Err(format!(
            "a key of {} bytes is too long for ZooKeeper; use keys of at most {KEY_LIMIT}",
            key.key.len()
        ));
    }
    let mut path = keyspace(root, key.keyspace);
    path.push('/');
    escape(&key.key, &mut path);
    Ok(path)
}

/// Appends a key as one component of a path.
fn escape(key: &[u8], out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if key.is_empty() {
        // Elsewhere two digits follow it.
        out.push('%');
    }
    for byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Whether `root` can be the node below which everything is; if not, one sentence.
pub(crate) fn check_root(root: &str) -> Result<(), String> {
    let good = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_graphic())
    };
    match root.strip_prefix('/') {
        Some(rest) if rest.split('/').all(good) && rest.split('/').next() != Some("zookeeper") => {
            Ok(())
        }
        _ => Err(format!(
            "`{root}` cannot be the root in ZooKeeper; give a path such as /fermata, not below \
             /zookeeper"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn path(key: &[u8]) -> String {
        let key = KeyId {
            keyspace: KeyspaceId(7),
            key: key.to_vec().into(),
        };
        node("/r", &key).unwrap()
    }

    #[test]
    fn odd_keys_have_good_paths_of_their_own() {
        assert_eq!(path(b"a_B-9"), "/r/7/a_B-9");
        assert_eq!(path(b""), "/r/7/%");
        assert_eq!(path(b"%"), "/r/7/%25");
        assert_eq!(path(b"."), "/r/7/%2E");
        assert_eq!(path(b".."), "/r/7/%2E%2E");
        assert_eq!(path("a/ü\0".as_bytes()), "/r/7/a%2F%C3%BC%00");
        let longest = path(&[0; KEY_LIMIT]);
        assert_eq!(longest.len(), "/r/7/".len() + COMPONENT_LIMIT);
        let long = KeyId {
            keyspace: KeyspaceId(7),
            key: vec![0; KEY_LIMIT + 1].into(),
        };
        assert!(node("/r", &long).unwrap_err().contains("at most 4096"));
    }

    #[test]
    fn keys_of_up_to_two_bytes_are_all_different() {
        let mut seen = HashSet::new();
        assert!(seen.insert(path(b"")));
        for a in 0..=255u8 {
            assert!(seen.insert(path(&[a])));
            for b in 0..=255u8 {
                assert!(seen.insert(path(&[a, b])));
            }
        }
        // What an escape looks like is itself escaped.
        assert!(seen.insert(path(b"%25")));
    }

    #[test]
    fn roots() {
        for good in ["/fermata", "/a/b.c", "/x/zookeeper"] {
            assert_eq!(check_root(good), Ok(()));
        }
        for bad in [
            "",
            "/",
            "fermata",
            "/a/",
            "/a//b",
            "/a/..",
            "/zookeeper/x",
            "/a b",
        ] {
            assert!(check_root(bad).is_err(), "{bad}");
        }
    }
}
