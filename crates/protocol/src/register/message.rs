//! Messages of register replicas and those who call them.

use super::once::{Life, PutName};
use super::policy;
use crate::base::{Address, Epoch, EventualTag, KeyId, LockRef, Seat, SegmentId, Tag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Which register store is meant. A replica answers for its open epoch, and to sealed reads for
/// those that it has sealed and still keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoreId {
    /// The segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// How a fragment was made from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    /// The whole value.
    Whole,
    /// One part of a systematic code.
    Parts {
        /// Parts there are, n: one per seat.
        members: u8,
        /// Parts that give the value back, l.
        needed: u8,
    },
}

/// A replica's part of one value. The metadata travels with the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// How it was made.
    pub coding: Coding,
    /// For which seat.
    pub seat: Seat,
    /// Bytes of the whole value.
    pub length: u64,
    /// Digest of the whole value; with the tag it names the value (F8h: a tag used twice would name
    /// two).
    pub digest: u64,
    /// Binds the bytes to all of the above, the key and the tag; see [`super::policy`].
    pub sum: u64,
    /// The part.
    pub bytes: Bytes,
}

/// What a cell holds under a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Never written.
    Absent,
    /// Deleted.
    Tombstone,
    /// A value's fragment.
    Value(Fragment),
    /// A value that nothing gives any more: what has moved of a key that could not be read, nor
    /// ever will be, before a higher write (V12).
    Undecodable,
}

/// One write's trace at a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The write's tag.
    pub tag: Tag,
    /// Where the value stands among eventual puts; see [`Ask::Store`].
    pub origin: EventualTag,
    /// What the replica keeps of it; `Absent` where only tags were wanted.
    pub content: Content,
}

/// How far a key has moved into the store that answers, as far as is applied there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moved {
    /// All the way: no source of the store is open. Marks mean nothing any more.
    All,
    /// As far as its mark says.
    Marked(Box<Marked>),
}

/// Of a store that has sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// The epochs of the sources that are open.
    pub sources: Vec<Epoch>,
    /// See [`Ask::MarkMoved`]; none: the key may be in the sources alone.
    pub mark: Option<Tag>,
}

impl Moved {
    /// The mark, while it means something.
    pub fn mark(&self) -> Option<Tag> {
        match self {
            Moved::All => None,
            Moved::Marked(marked) => marked.mark,
        }
    }
}

/// Who asks as a holder: replicas that know the ref to be past refuse (F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The ref.
    pub lock_ref: LockRef,
    /// Its generation.
    pub generation: u32,
}

/// What is asked of one replica for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The cells of the key. With a holder: refused as past if a higher ref or generation is known.
    /// With a fence: the replica first durably promises to refuse every write below that tag.
    Read {
        /// Who asks.
        holder: Option<Holder>,
        /// The asker is the primary that grants the section to `holder`: a ref that still waits, as
        /// far as this replica has applied, is not refused. A past one is.
        entering: bool,
        /// The tag that the asker is about to write.
        fence: Option<Tag>,
        /// Whether the eventual cell is wanted too.
        eventual: bool,
        /// Whether values are wanted, or tags alone.
        values: bool,
    },
    /// Store into the critical or register cell, unless the cell's tag is higher. Answered `Stored`
    /// when the replica durably holds this tag or a higher one of the same section.
    Store {
        /// The tag.
        tag: Tag,
        /// Where the value stands among eventual puts: those above are not outranked (F6: a section
        /// hides older puts alone). A holder's put stands where its section does
        /// ([`EventualTag::of_section`]), an adopted value where its put did, and a synch carries
        /// on what it has found (G5, G24: neither counts as a write).
        origin: EventualTag,
        /// The content.
        content: Content,
    },
    /// The tag is *final*: q replicas hold its parts, durably. Not answered, and losing it costs
    /// space alone (F8). An eventual value that the version of the tag outranks goes (G26: it
    /// is hidden until then).
    Settle {
        /// The tag.
        tag: Tag,
    },
    /// An eventual read of this replica: the eventual cell if it is the newer one, else the
    /// critical.
    EventualGet,
    /// An eventual write at this replica, which gives the tag. Taken at its first arrival, whatever
    /// comes of it; any other arrival under the same name is `Late`.
    EventualPut {
        /// The name of this transmission, and of no other.
        name: PutName,
        /// The content.
        content: Content,
    },
    /// An eventual write that another replica has accepted, spread in the background.
    EventualSpread {
        /// Its tag.
        tag: EventualTag,
        /// The content.
        content: Content,
    },
    /// Everything that this replica holds of the key: for support.
    Inspect,
    /// Both cells of a key of an epoch that has ended. The store is sealed first, so that who has
    /// read q members in this way knows that nothing completes there any more.
    SealedRead {
        /// The epoch that follows.
        next: Epoch,
        /// Whether values are wanted, or tags alone.
        values: bool,
    },
    /// Takes over what an earlier epoch holds of the key, while a source of this store is open: the
    /// version, unless a higher one is here, and the fence. Whether the section that wrote it is
    /// over does not matter, for it was written before. Answered as `Store`, or `Closed`.
    Carry {
        /// The version's tag; zero where there is none, and the fence alone is carried.
        tag: Tag,
        /// As in `Store`.
        origin: EventualTag,
        /// The highest fence of the sources: what q members have promised there, these go on to
        /// promise.
        fence: Tag,
        /// What the replica keeps of it.
        content: Content,
    },
    /// The key needs no reading through to older epochs up to `tag`: q members of this epoch hold
    /// it, or a higher one, and every fence of the sources, durably. That is the asker's duty. No
    /// other ask sets the mark.
    MarkMoved {
        /// The tag moved; zero where the older epochs have fences alone.
        tag: Tag,
    },
    /// What the replica holds of the key, without contents. Answered `Surveyed`.
    Survey,
    /// Takes a version that the replica lacks. q members hold it, durably, and so does the sender,
    /// which holds nothing higher: that is the sender's duty. Answered as `Store`.
    Repair {
        /// The version's tag.
        tag: Tag,
        /// As in `Store`.
        origin: EventualTag,
        /// What the replica keeps of it.
        content: Content,
        /// The floor that the sender knew when it sent this: a deleted key does not come back
        /// from below it (F8f).
        floor: LockRef,
    },
    /// Takes an eventual value that the replica lacks, from one that has no newer one. Not
    /// answered.
    RepairEventual {
        /// Its tag.
        tag: EventualTag,
        /// The content.
        content: Content,
        /// As in `Repair`.
        floor: LockRef,
    },
    /// Takes an eventual value that a member of an earlier epoch has, sealed, unless a newer one is
    /// here: also where a section's write hides it, for that write may come to nothing, and it goes
    /// with the write's end (G26). Answered `EventualStored`, `Past` from below a floor that the
    /// sender did not know, or `DiskFull`.
    Harvest {
        /// Its tag.
        tag: EventualTag,
        /// The content.
        content: Content,
        /// As in `Repair`.
        floor: LockRef,
    },
    /// Removes every trace of a deleted key: all n members held exactly this, and nothing below,
    /// when none of them knew a higher floor than `above`. That is the sender's duty. Not answered.
    Bury {
        /// The critical cell's tag; zero where it was never written.
        tag: Tag,
        /// The eventual cell's, if there is one.
        eventual: Option<EventualTag>,
        /// Only a replica that knows a higher floor removes anything.
        above: LockRef,
    },
}

impl Ask {
    /// Asks a member for its cells of a key on behalf of no holder, and without a fence.
    pub(super) fn cells(eventual: bool) -> Ask {
        Ask::Read {
            holder: None,
            entering: false,
            fence: None,
            eventual,
            values: true,
        }
    }

    /// Whether it is asked of a store whose epoch is known to be over.
    pub(crate) fn is_of_the_past(&self) -> bool {
        self.seals().is_some()
    }

    /// Bytes of the value in it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Ask::Store { content, .. }
            | Ask::Carry { content, .. }
            | Ask::Repair { content, .. }
            | Ask::RepairEventual { content, .. }
            | Ask::Harvest { content, .. }
            | Ask::EventualPut { content, .. }
            | Ask::EventualSpread { content, .. } => policy::stored_bytes(content),
            _ => 0,
        }
    }

    /// The epoch that the store is sealed towards before this is answered, if it seals.
    pub(super) fn seals(&self) -> Option<Epoch> {
        match self {
            Ask::SealedRead { next, .. } => Some(*next),
            _ => None,
        }
    }
}

/// What is asked of one replica for a whole store. Each seals the store first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreAsk {
    /// No more than that. Answered `Sealed`, by whom the message says.
    Seal {
        /// The epoch that follows.
        next: Epoch,
    },
    /// The keys that have a record here, in order of address and key: what a mover walks. Answered
    /// `Listed`.
    List {
        /// The epoch that follows.
        next: Epoch,
        /// The last one listed so far.
        after: Option<(Address, KeyId)>,
        /// At most so many; the replica has a bound of its own.
        limit: u32,
        /// Those alone that have an eventual value, whatever the critical cell holds.
        eventual: bool,
    },
    /// All registers of the store are removed: everything has moved, which is the asker's duty to
    /// know. Answered `Moved`.
    Delete {
        /// The epoch that follows.
        next: Epoch,
    },
}

impl StoreAsk {
    /// The epoch that the store is sealed towards.
    pub(super) fn next(&self) -> Epoch {
        match self {
            StoreAsk::Seal { next } | StoreAsk::List { next, .. } | StoreAsk::Delete { next } => {
                *next
            }
        }
    }
}

/// A replica's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Read` and `SealedRead`.
    Cells {
        /// The critical or register cell: by tag, lowest first; empty where never written.
        versions: Vec<Version>,
        /// The highest tag that is known to be final.
        settled: Tag,
        /// Versions below this tag, which is final, may have been here and are gone.
        dropped: Tag,
        /// Its fence before this read.
        fence: Tag,
        /// Times below this have passed, by the replica's interval clock; 0 where it has none.
        passed: u64,
        /// The eventual cell.
        eventual: Option<(EventualTag, Content)>,
        /// How far the key has moved into this epoch.
        moved: Moved,
    },
    /// To `Store` and `Carry`: durable.
    Stored,
    /// To `Read` or `Store`: the ref is past; a write of this tag was not stored here.
    Past {
        /// The higher tag or fence known here.
        tag: Tag,
    },
    /// To a holder's `Read` or `Store`: as far as this replica has applied, the ref waits or was
    /// never given.
    NotHolder,
    /// To `Store`: a higher sequence number of the same section and generation is here, so that
    /// this write is stored in effect, but outranked (F16).
    Outranked {
        /// The tag here.
        tag: Tag,
    },
    /// To `Store`: so many writes of this key are unfinished here that no more is taken; stored
    /// nothing.
    Busy,
    /// To `Store` of a physical tag: further ahead of this replica's interval clock than clocks
    /// within their bounds can be; stored nothing (F9: such a tag would hide what others write).
    ClockSkew,
    /// To `Survey`.
    Surveyed(Survey),
    /// To `EventualGet`. A part of a code gives no value alone.
    EventualValue {
        /// The content.
        content: Content,
    },
    /// To `EventualPut`.
    EventualStored {
        /// The tag given.
        tag: EventualTag,
    },
    /// To `EventualPut`: somebody holds or waits for the key. Nothing was stored, nor will be.
    Locked,
    /// To `EventualPut`: its name was taken before, or came too late to be told from one that was.
    Late {
        /// The highest life of the sender that is known here.
        life: Life,
    },
    /// To `EventualGet`: this replica has nothing of the key, which an earlier epoch may have.
    Unmoved,
    /// To `Carry`: no source of this store is open any more. Stored nothing.
    Closed,
    /// To `MarkMoved`: durable.
    Marked,
    /// To `StoreAsk::List`.
    Listed {
        /// In order.
        keys: Vec<(Address, KeyId)>,
        /// Whether there are more.
        more: bool,
    },
    /// To `Inspect`.
    Inspection(crate::request::Inspection),
    /// The record of this key is corrupt here: the whole answer is void and counts for nothing
    /// (F8c).
    Void,
    /// This epoch is sealed here for ever, durably.
    Sealed {
        /// The next epoch.
        next: Epoch,
    },
    /// Not a member of this segment's group, or not in this epoch; or, to a sealed read, not known
    /// here whether the store was deleted.
    Elsewhere,
    /// The store was moved and deleted; not the same as empty.
    Moved {
        /// The next epoch.
        next: Epoch,
    },
    /// The disk takes no writes.
    DiskFull,
}

/// What a replica holds of a key, without contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Tags of the critical or register cell, lowest first.
    pub tags: Vec<Tag>,
    /// Below this tag it refuses writes.
    pub fence: Tag,
    /// The eventual cell's tag.
    pub eventual: Option<EventualTag>,
    /// Refs up to here are past, as far as the replica knows.
    pub floor: LockRef,
    /// An earlier store of the segment may still have something, as far as the replica knows.
    pub past: bool,
}

/// Between a caller and a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To a replica.
    Ask {
        /// Repeated in the answer; unique at the caller while the call is open.
        call: u64,
        /// Which store.
        store: StoreId,
        /// Which key.
        key: KeyId,
        /// What.
        ask: Ask,
    },
    /// To a replica, about all its keys.
    AskStore {
        /// As in `Ask`.
        call: u64,
        /// Which store.
        store: StoreId,
        /// What.
        ask: StoreAsk,
    },
    /// To the caller.
    Answer {
        /// From the question.
        call: u64,
        /// Which store answers.
        store: StoreId,
        /// Who answers, as the view of `store` names it.
        seat: Seat,
        /// What.
        answer: Answer,
    },
}
