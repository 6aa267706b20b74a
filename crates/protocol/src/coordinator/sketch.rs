use crate::base::{KeyId, LockRef, Micros, Now, Tag};
use crate::io::Effects;
use crate::register::Store;
use crate::request::Inspection;
use bytes::Bytes;
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);
#[derive(Clone, Debug)]
pub struct Place {
    pub store: Store,
}
#[derive(Clone, Debug)]
pub enum Op {
    Get {
        key: KeyId,
        holder: (LockRef, u32),
    },
    Put {
        key: KeyId,
        tag: Tag,
        value: Option<Bytes>,
    },
    Read {
        key: KeyId,
    },
    Write {
        key: KeyId,
        writer: u128,
        value: Option<Bytes>,
    },
    EventualGet {
        key: KeyId,
    },
    EventualPut {
        key: KeyId,
        value: Option<Bytes>,
    },
    Inspect {
        key: KeyId,
    },
}
#[derive(Clone, Debug)]
pub enum Outcome {
    Value { value: Option<Bytes>, tag: Tag },
    Stored { tag: Tag },
    EventualValue { value: Option<Bytes> },
    EventualStored,
    Locked,
    Past { may_have_taken_effect: bool },
    NotHolder,
    StaleSequence,
    DiskFull,
    Inspection(Inspection),
    Moved,
    Unavailable { may_have_taken_effect: bool },
}
#[derive(Debug, Default)]
pub struct Caller {
    next: u64,
    pub started: alloc::vec::Vec<Op>,
}
impl Caller {
    pub fn start(
        &mut self,
        op: Op,
        _place: Place,
        _deadline: Micros,
        _now: Now,
        _fx: &mut Effects,
    ) -> OpId {
        self.next += 1;
        self.started.push(op);
        OpId(self.next)
    }
}
