//! The one table from stable codes to gRPC and HTTP statuses, and how a refusal travels in a gRPC
//! status.

use crate::v1;
use bytes::Bytes;
use fermata_protocol::{Code, Refusal};
use prost::Message;
use tonic::Status;

/// Every code there is.
pub const CODES: [Code; 23] = [
    Code::NoLongerHolder,
    Code::NotHolder,
    Code::Unavailable,
    Code::WaitOver,
    Code::Locked,
    Code::StaleSequence,
    Code::ReadOnlySection,
    Code::TooLarge,
    Code::Busy,
    Code::DiskFull,
    Code::NoSuchKeyspace,
    Code::KeyspaceExists,
    Code::WrongPurpose,
    Code::BadRequest,
    Code::Undecodable,
    Code::Forgotten,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::Conflict,
    Code::OutOfBounds,
    Code::NoTime,
    Code::ClockSkew,
    Code::SnapshotGone,
];

/// How one code shows on each face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Face {
    /// The gRPC status code.
    pub grpc: tonic::Code,
    /// The HTTP status code.
    pub http: u16,
    /// A few words for people: the `title` of `application/problem+json`.
    pub title: &'static str,
}

/// The faces of a code.
pub fn face(code: Code) -> Face {
    use tonic::Code as Grpc;
    let (grpc, http, title) = match code {
        Code::NoLongerHolder => (Grpc::FailedPrecondition, 409, "The section is over"),
        Code::NotHolder => (Grpc::FailedPrecondition, 409, "The section is not held"),
        Code::Unavailable => (Grpc::Unavailable, 503, "No quorum in time"),
        Code::WaitOver => (Grpc::DeadlineExceeded, 408, "The wait is over"),
        Code::Locked => (Grpc::FailedPrecondition, 423, "The key is locked"),
        Code::StaleSequence => (
            Grpc::FailedPrecondition,
            409,
            "The sequence number is stale",
        ),
        Code::ReadOnlySection => (Grpc::FailedPrecondition, 403, "A shared section only reads"),
        Code::TooLarge => (Grpc::InvalidArgument, 413, "Over a limit"),
        Code::Busy => (Grpc::ResourceExhausted, 429, "Too busy"),
        Code::DiskFull => (Grpc::ResourceExhausted, 507, "The disk is full"),
        Code::NoSuchKeyspace => (Grpc::NotFound, 404, "No such keyspace"),
        Code::KeyspaceExists => (Grpc::AlreadyExists, 409, "The keyspace exists"),
        Code::WrongPurpose => (Grpc::FailedPrecondition, 409, "Wrong kind of keyspace"),
        Code::BadRequest => (Grpc::InvalidArgument, 400, "Bad request"),
        Code::Undecodable => (Grpc::DataLoss, 500, "The value cannot be decoded"),
        Code::Forgotten => (Grpc::Aborted, 410, "The answer is forgotten"),
        Code::Unauthenticated => (Grpc::Unauthenticated, 401, "Nobody is known to ask"),
        Code::Forbidden => (Grpc::PermissionDenied, 403, "Not allowed"),
        Code::Conflict => (Grpc::Aborted, 409, "It has changed since it was read"),
        Code::OutOfBounds => (
            Grpc::FailedPrecondition,
            409,
            "A number would leave its bounds",
        ),
        Code::NoTime => (Grpc::Unavailable, 503, "The cluster's time is not known"),
        Code::ClockSkew => (Grpc::Unavailable, 503, "Two clocks contradict each other"),
        Code::SnapshotGone => (Grpc::OutOfRange, 410, "The past is not kept so long"),
    };
    Face { grpc, http, title }
}

/// The code of that name ([`Code::name`]).
pub fn code_named(name: &str) -> Option<Code> {
    CODES.into_iter().find(|code| code.name() == name)
}

/// `google.rpc.Status`, which common tools know how to show.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

const REFUSAL_TYPE: &str = "type.googleapis.com/fermata.v1.Refusal";

/// The message of a refusal.
pub fn refusal_to_proto(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        code: refusal.code.name().to_owned(),
        may_have_taken_effect: refusal.may_have_taken_effect,
        detail: refusal.detail.clone(),
    }
}

/// The refusal of a message. A code of a later version reads as `Unavailable`, which every client
/// has to handle, and keeps its sentence.
pub fn refusal_from_proto(message: v1::Refusal) -> Refusal {
    Refusal {
        code: code_named(&message.code).unwrap_or(Code::Unavailable),
        may_have_taken_effect: message.may_have_taken_effect,
        detail: message.detail,
    }
}

/// The gRPC status of a refusal, with the refusal itself in its details.
pub fn to_status(refusal: &Refusal) -> Status {
    let grpc = face(refusal.code).grpc;
    let detail = Any {
        type_url: REFUSAL_TYPE.to_owned(),
        value: refusal_to_proto(refusal).encode_to_vec().into(),
    };
    let details = RpcStatus {
        code: grpc as i32,
        message: refusal.detail.clone(),
        details: vec![detail],
    };
    Status::with_details(grpc, refusal.detail.clone(), details.encode_to_vec().into())
}

/// The refusal in a gRPC status. A status without one comes from the transport (connection lost,
/// deadline): nobody knows whether the request took effect, and it reads as `Unavailable` unless
/// the status says that the request itself was at fault. A status does not say whose message was
/// too long, the request or its answer.
pub fn from_status(status: &Status) -> Refusal {
    let decoded = RpcStatus::decode(status.details()).ok();
    let any = decoded.and_then(|s| s.details.into_iter().find(|a| a.type_url == REFUSAL_TYPE));
    if let Some(Ok(refusal)) = any.map(|any| v1::Refusal::decode(any.value)) {
        return refusal_from_proto(refusal);
    }
    let detail = format!("the connection to the node failed: {}", status.message());
    match status.code() {
        tonic::Code::InvalidArgument | tonic::Code::Unimplemented => {
            Refusal::definite(Code::BadRequest, detail)
        }
        _ if says_too_long(status) => Refusal::unknown(Code::TooLarge, detail),
        _ => Refusal::unknown(Code::Unavailable, detail),
    }
}

/// Whether a status of the transport says that a message was longer than its receiver reads.
/// Implementations of gRPC have either of two codes for it, and the other meaning of the second one
/// is told apart by the words alone.
pub fn says_too_long(status: &Status) -> bool {
    match status.code() {
        tonic::Code::OutOfRange => true,
        tonic::Code::ResourceExhausted if status.details().is_empty() => {
            let words = status.message().to_ascii_lowercase();
            ["larger than max", "too large", "exceeds maximum"]
                .iter()
                .any(|w| words.contains(w))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_status() {
        for code in CODES {
            for effect in [false, true] {
                let refusal = Refusal {
                    code,
                    may_have_taken_effect: effect,
                    detail: "a sentence".into(),
                };
                assert_eq!(from_status(&to_status(&refusal)), refusal);
            }
        }
    }

    #[test]
    fn a_bare_status_leaves_the_outcome_unknown() {
        let refusal = from_status(&Status::unavailable("reset"));
        assert_eq!(refusal.code, Code::Unavailable);
        assert!(refusal.may_have_taken_effect);
    }

    #[test]
    fn a_message_that_is_too_long_is_no_reason_to_try_again() {
        let statuses = [
            Status::out_of_range("Error, decoded message length too large: found 9, limit 8"),
            Status::resource_exhausted("grpc: received message larger than max (9 vs. 8)"),
        ];
        for status in statuses {
            assert_eq!(from_status(&status).code, Code::TooLarge, "{status}");
        }
        let status = Status::resource_exhausted("too many pings");
        assert_eq!(from_status(&status).code, Code::Unavailable);
        let status = to_status(&Refusal::definite(Code::Busy, "the queue is too large"));
        assert_eq!(from_status(&status).code, Code::Busy);
    }

    #[test]
    fn the_proto_file_lists_every_code() {
        let proto = include_str!("../proto/fermata/v1/fermata.proto");
        for code in CODES {
            let line = proto
                .lines()
                .find(|l| l.contains(&format!("   {} ", code.name())));
            assert!(line.is_some(), "{} is not in the table", code.name());
        }
    }
}
