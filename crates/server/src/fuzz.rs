//! The decoders that a stranger's bytes meet, one function for each: `fuzz/` feeds them, and each
//! run of the tests gives them what `fuzz/corpus` has kept.
//!
//! **Invariants.** No bytes end the process. What a decoder takes, and can be written again, reads
//! as itself.

use crate::{access, music, rest, transport};
use fermata_access::Policy;
use fermata_api::convert::{operation_to_proto, request_from_proto};
use fermata_api::{Names, Secret, v1};
use fermata_protocol::base::{Keyspace, SiteId};
use fermata_protocol::wire::frame;
use fermata_tls::Name;
use prost::Message;

/// Decodes, and says nothing of it.
pub type Decoder = fn(&[u8]);

/// All of them, by the names of their targets.
pub const DECODERS: [(&str, Decoder); 8] = [
    ("certificate", certificate),
    ("credentials", access::fuzz),
    ("frame", frame),
    ("greeting", transport::fuzz),
    ("music", music::fuzz),
    ("policy", policy),
    ("request", request),
    ("rest", rest::fuzz),
];

/// What a peer sends once it has greeted.
fn frame(bytes: &[u8]) {
    let Ok((envelope, memory)) = frame::measure(bytes) else {
        return;
    };
    assert!(memory <= frame::memory_max(bytes.len()));
    let sealed = frame::seal(&envelope, bytes.len());
    assert_eq!(frame::open(&sealed[frame::LENGTH..]), Ok(envelope));
}

/// What a client asks over gRPC.
fn request(bytes: &[u8]) {
    let Ok(asked) = v1::SessionRequest::decode(bytes) else {
        return;
    };
    let Some(asked) = asked.operation else {
        return;
    };
    let names = Names::new(&Keyspace::built_in(), vec!["ohio".into()]);
    match request_from_proto(asked, &names, SiteId(0)) {
        Err(refusal) => assert!(!refusal.detail.is_empty() && !refusal.detail.contains('\n')),
        // Another secret: who a session's owner is, its number does not say.
        Ok(request) => {
            let _written = operation_to_proto(&request, &|_| Secret::new(1), &names, "");
        }
    }
}

/// Who may do what, as an administrator applies it.
fn policy(bytes: &[u8]) {
    if let Ok(policy) = Policy::parse(bytes)
        && let Ok(written) = policy.to_json()
    {
        assert_eq!(Policy::parse(&written), Ok(policy));
    }
}

/// Whom a certificate names.
fn certificate(bytes: &[u8]) {
    let certificate = bytes.into();
    let _until = fermata_tls::until(&certificate);
    if let Ok(Name::Node { label: name, .. } | Name::Client { name, .. }) = Name::of(&certificate) {
        assert!(!name.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn what_was_kept_ends_nobody() {
        let kept = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"));
        let mut corpora: BTreeSet<String> = (kept.read_dir().unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for (name, decode) in DECODERS {
            assert!(corpora.remove(name), "{name} has no corpus");
            for entry in kept.join(name).read_dir().unwrap() {
                let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                decode(&bytes);
                // What is cut off, and what one byte makes of it.
                for at in 0..bytes.len().min(512) {
                    decode(&bytes[..at]);
                    let mut other = bytes.clone();
                    other[at] ^= 1 << (at % 8);
                    decode(&other);
                }
            }
        }
        assert_eq!(corpora, BTreeSet::new(), "corpora of no decoder");
    }
}
