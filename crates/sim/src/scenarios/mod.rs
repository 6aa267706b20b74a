//! Known schedules, each by name: the fault that breaks the obvious rule, played against the rule
//! that is built.
//!
//! Every scenario runs on one segment with three replicas (A, B, C: nodes 1, 2, 3; A leads first)
//! and three nodes without a seat (4, 5, 6), so that a coordinator need not be a replica. The text
//! of a scenario is its steps. With the right rules nothing is violated; with the wrong rule that
//! it is made for, a checker fires (`crate::planted`).

mod acknowledgements;
mod away;
mod bounds;
mod callers;
mod clocks;
mod coded;
mod commands;
mod early;
mod eventual;
mod found;
mod full;
mod identity;
mod keyspaces;
mod learners;
mod leases;
mod ledger;
mod listings;
mod locks;
mod machines;
mod parting;
mod placement;
mod policies;
mod records;
mod registers;
mod ring;
mod rotten;
mod rules;
mod settings;
mod split;
mod stage;
mod strangers;
mod synchs;
mod upkeep;

pub use stage::Stage;

use crate::random::Run;
use fermata_protocol::base::Bug;

/// One schedule.
#[derive(Debug)]
pub struct Scenario {
    /// What the command line calls it.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Plays it.
    pub play: fn(&mut Stage),
}

/// All scenarios, in the order of the faults that they play.
const LIST: &[Scenario] = &[
    Scenario {
        name: "f1-suspected-holder",
        about: "a put completes between the synch's read and its write",
        play: acknowledgements::suspected_holder,
    },
    Scenario {
        name: "f1-past-get",
        about: "a past holder reads before the next one has written",
        play: rules::past_get,
    },
    Scenario {
        name: "f2-refs-after-change-of-view",
        about: "lock refs go on in the log of the next epoch",
        play: machines::change_of_view,
    },
    Scenario {
        name: "f2-command-twice",
        about: "an enqueue that arrives twice gives one ref",
        play: locks::command_twice,
    },
    Scenario {
        name: "f2-forgotten-request",
        about: "a write that was answered long ago arrives at another node",
        play: commands::forgotten_request,
    },
    Scenario {
        name: "f3-pipelined-enters",
        about: "two enters read while the key is free; the first one writes",
        play: locks::pipelined_enters,
    },
    Scenario {
        name: "f3-read-ahead-in-vain",
        about: "an enqueue that was read ahead for is lost, and another comes first",
        play: locks::read_ahead_in_vain,
    },
    Scenario {
        name: "f3-declined-enqueue",
        about: "an enqueue is declined, and submitted again after a whole section",
        play: commands::declined_enqueue,
    },
    Scenario {
        name: "f3-hole",
        about: "a new leader finds a hole below what was accepted",
        play: commands::hole,
    },
    Scenario {
        name: "f4-two-synchs",
        about: "a deposed primary's synch goes on beside the next one's",
        play: acknowledgements::two_synchs,
    },
    Scenario {
        name: "f4-stale-attempt",
        about: "a deposed primary's synch ends first at its holder",
        play: commands::stale_attempt,
    },
    Scenario {
        name: "f5-dirty-leave",
        about: "a holder leaves while its last put is at one replica",
        play: acknowledgements::dirty_leave,
    },
    Scenario {
        name: "f5-put-beside-leave",
        about: "a holder leaves beside a put that is at one replica",
        play: parting::put_at_one,
    },
    Scenario {
        name: "f5-leave-before-put",
        about: "a leave is applied everywhere before the put beside it is stored",
        play: parting::leave_first,
    },
    Scenario {
        name: "f5-put-lost-once",
        about: "the next holder waits while the put beside a leave is repeated",
        play: parting::lost_once,
    },
    Scenario {
        name: "f5-put-and-leave-twice",
        about: "a put and its leave are repeated when the next holder has put",
        play: parting::repeated,
    },
    Scenario {
        name: "f5-put-and-leave-twice-beside-holder",
        about: "the same, and the next holder stays",
        play: parting::repeated_beside_holder,
    },
    Scenario {
        name: "f5-half-put-and-leave",
        about: "a coordinator dies beside a put whose leave is agreed",
        play: parting::dead_coordinator,
    },
    Scenario {
        name: "f5-word-to-one",
        about: "only a primary that is cut off hears that a put is done",
        play: parting::word_to_one,
    },
    Scenario {
        name: "f5-word-after-the-next",
        about: "the word of a put comes when somebody has held the key after it",
        play: parting::word_after_the_next,
    },
    Scenario {
        name: "f5-readers-beside-note",
        about: "a second reader, while the command that clears the flag is on its way",
        play: parting::readers_beside_note,
    },
    Scenario {
        name: "f5-word-beside-synch",
        about: "the word of a put comes when the next holder's synch has begun",
        play: parting::word_beside_synch,
    },
    Scenario {
        name: "f5-readers-by-word",
        about: "readers enter by the word of a put, whose note is on its way",
        play: parting::readers_by_word,
    },
    Scenario {
        name: "f6-eventual-put-under-lock",
        about: "an eventual put at a lagging replica does not reach a holder",
        play: locks::eventual_put,
    },
    Scenario {
        name: "f6-enter-adopts",
        about: "a holder finds the eventual put made before it",
        play: locks::enter_adopts,
    },
    Scenario {
        name: "f7-write-beside-section",
        about: "a write of a section key waits for its turn",
        play: locks::write_beside_section,
    },
    Scenario {
        name: "f8a-final-before-parts",
        about: "a reader completes a dead write, and a member dies",
        play: coded::final_before_parts,
    },
    Scenario {
        name: "f8b-lost-mark",
        about: "a member drops what was final, restarts, and answers a read under way",
        play: coded::lost_mark,
    },
    Scenario {
        name: "f8c-corrupt-part",
        about: "a part of the newest value is corrupt at a member that has an older one",
        play: coded::corrupt_part,
    },
    Scenario {
        name: "f8g-sweep",
        about: "a dead write is read and completed while a sweep is under way",
        play: coded::sweep,
    },
    Scenario {
        name: "f8c-changed-bytes",
        about: "a member's memory has changed bytes of a value that it answers with",
        play: coded::changed_bytes,
    },
    Scenario {
        name: "f8h-name-twice",
        about: "a client goes on from an old copy of its memory, and names another write the same",
        play: coded::name_twice,
    },
    Scenario {
        name: "f8f-deleted-key",
        about: "a key is deleted, and leaves nothing at any member",
        play: upkeep::deleted_key,
    },
    Scenario {
        name: "f8f-floor-elsewhere",
        about: "a key is deleted, and who would remove its trace does not lead",
        play: upkeep::floor_elsewhere,
    },
    Scenario {
        name: "f8f-deleted-of-several",
        about: "a key is deleted whose policy keeps several versions",
        play: upkeep::deleted_of_several,
    },
    Scenario {
        name: "g54-beside-a-section",
        about: "a key is deleted, and a later section of its segment goes on",
        play: upkeep::deleted_beside_a_section,
    },
    Scenario {
        name: "f8f-absent-member",
        about: "a key is deleted while a member is down that holds its value",
        play: upkeep::absent_member,
    },
    Scenario {
        name: "f8f-late-repair",
        about: "a repair comes when what it brings was deleted, and the trace of that removed",
        play: upkeep::late_repair,
    },
    Scenario {
        name: "f8f-late-spread",
        about: "an eventual value spreads when its key was deleted, and the trace of that removed",
        play: upkeep::late_spread,
    },
    Scenario {
        name: "f1-late-repair",
        about: "a repair comes when a synch has fenced the member that lacked it",
        play: upkeep::repair_below_fence,
    },
    Scenario {
        name: "upkeep-missed",
        about: "a member that was down is given what it missed, and nobody asks for it",
        play: upkeep::missed,
    },
    Scenario {
        name: "upkeep-damaged-part",
        about: "a part rots at a member, and nobody reads it",
        play: upkeep::damaged_part,
    },
    Scenario {
        name: "upkeep-dead-writers",
        about: "what dead writers have left of a register is completed, or removed",
        play: upkeep::dead_writers,
    },
    Scenario {
        name: "upkeep-eventual",
        about: "an eventual put that one member has reaches all",
        play: upkeep::eventual,
    },
    Scenario {
        name: "f9-reader-waits",
        about: "a value is read before its time, then another is written by a slower clock",
        play: coded::reader_waits,
    },
    Scenario {
        name: "f9-wrong-clock",
        about: "a clock is ahead of its bound, which its node finds out before it writes",
        play: clocks::wrong_clock,
    },
    Scenario {
        name: "treas-opt-stuck",
        about: "more writers die than delta says: reads find nothing, until somebody writes",
        play: coded::treas_opt_stuck,
    },
    Scenario {
        name: "coded-dying-writers",
        about: "the same under `coded`: every read finds the value",
        play: coded::dying_writers,
    },
    Scenario {
        name: "g51-crowd",
        about: "writers that fill different members do not wait for each other",
        play: coded::crowd,
    },
    Scenario {
        name: "coded-quorum",
        about: "what is at a majority, but at no quorum, is not acknowledged",
        play: coded::quorum,
    },
    Scenario {
        name: "f10-lease-at-a-cut-site",
        about: "a node that is cut off with its client prolongs no lease",
        play: locks::lease_at_a_cut_site,
    },
    Scenario {
        name: "f10-lease-table",
        about: "a dead holder is released when its lease is over, whoever leads by then",
        play: locks::lease_table,
    },
    Scenario {
        name: "f10-lease-table-twice",
        about: "a primary that was not told of the last leases waits a full one",
        play: locks::lease_table_twice,
    },
    Scenario {
        name: "f10-lease-table-not-taken",
        about: "a primary dies before it has taken the table of the one before",
        play: leases::table_not_taken,
    },
    Scenario {
        name: "f10-restarted-acceptor",
        about: "an acceptor that restarts is still bound by the read lease that it granted",
        play: machines::restarted_acceptor,
    },
    Scenario {
        name: "g45-rumour",
        about: "a primary is taken for gone while its lease runs",
        play: machines::rumour,
    },
    Scenario {
        name: "f10-drifting-acceptors",
        about: "acceptors' clocks are as fast as they may be, their primary's as slow",
        play: leases::drifting_acceptors,
    },
    Scenario {
        name: "f10-drifting-holder",
        about: "a holder's clock is as slow as it may be, its primary's as fast",
        play: leases::drifting_holder,
    },
    Scenario {
        name: "f10-late-vote",
        about: "a vote comes late, when its proposal was repeated and lost",
        play: leases::late_vote,
    },
    Scenario {
        name: "f10-new-primary",
        about: "a new primary leads while a lease runs that the one before has prolonged",
        play: rules::new_primary,
    },
    Scenario {
        name: "f13-accepted-entry",
        about: "of what was chosen one acceptor knows, and that it is chosen none",
        play: rules::accepted_entry,
    },
    Scenario {
        name: "f13-deposed-leader",
        about: "what a deposed leader has had chosen stays chosen",
        play: machines::deposed_leader,
    },
    Scenario {
        name: "f16-restarted-client",
        about: "a client that lost its counter resumes",
        play: acknowledgements::restarted_client,
    },
    Scenario {
        name: "f16-resumed-over-a-put",
        about: "a section is taken over while a put is at one replica",
        play: acknowledgements::resumed_over_a_put,
    },
    Scenario {
        name: "f17-pipelined-puts",
        about: "a holder dies with puts in flight above an acknowledged one",
        play: acknowledgements::pipelined_puts,
    },
    Scenario {
        name: "f18-late-synch-done",
        about: "the next holder is forced out while the synch before it is being concluded",
        play: acknowledgements::late_synch_done,
    },
    Scenario {
        name: "f18-late-word",
        about: "the word of a put clears no later flag",
        play: parting::late_word,
    },
    Scenario {
        name: "f18-idle-key",
        about: "a holder dies with a put at one replica, and nobody wants the key any more",
        play: locks::idle_key,
    },
    Scenario {
        name: "f18-idle-key-again",
        about: "a primary dies while it synchs a key that nobody wants",
        play: locks::idle_key_again,
    },
    Scenario {
        name: "f19-lost-key",
        about: "one key of a section is lost, and the section with it",
        play: locks::lost_key,
    },
    Scenario {
        name: "f19-readers-after-a-synch",
        about: "two readers find the same value after a dirty end",
        play: locks::readers_after_synch,
    },
    Scenario {
        name: "f20-stale-grant",
        about: "a grant on its way is overtaken by the next section",
        play: locks::stale_grant,
    },
    Scenario {
        name: "f20-grant-without-lease",
        about: "a deposed primary learns what a section holds that was resumed without it",
        play: leases::grant_without_lease,
    },
    Scenario {
        name: "f20-deposed-primary",
        about: "a deposed primary reads for a ref that is past, and ahead for a key that is held",
        play: commands::deposed_primary,
    },
    Scenario {
        name: "g1-adoption",
        about: "an adoption is at one replica when its primary dies",
        play: found::adoption,
    },
    Scenario {
        name: "g1-adoption-repeated",
        about: "an adoption that is at one replica is tried again without it",
        play: rules::adoption_repeated,
    },
    Scenario {
        name: "g2-adoption-for-waiter",
        about: "the same for a holder that waited",
        play: found::adoption_for_waiter,
    },
    Scenario {
        name: "g3-gives-up",
        about: "a client gives up while the adoption in its name is at one replica",
        play: found::gives_up,
    },
    Scenario {
        name: "g4-resumed-before-waiter",
        about: "a section is resumed before one that waits behind it",
        play: found::resumed_before_waiter,
    },
    Scenario {
        name: "g5-grant-twice",
        about: "a grant is prepared again beside its slow push",
        play: found::grant_twice,
    },
    Scenario {
        name: "g6-cancelled-enter",
        about: "an enter repeated elsewhere is closed at the first node",
        play: found::cancelled_enter,
    },
    Scenario {
        name: "g6-late-close",
        about: "an enter is closed at a node that still waits, when its client has entered",
        play: rules::late_close,
    },
    Scenario {
        name: "g7-living-holder",
        about: "a living holder is replaced by force",
        play: found::living_holder,
    },
    Scenario {
        name: "g8-damaged-record",
        about: "a record rots on which a put under way counts",
        play: rules::damaged_record,
    },
    Scenario {
        name: "g9-front-waits",
        about: "the front of a batch of readers waits for another key",
        play: found::front_waits,
    },
    Scenario {
        name: "g9-front-inherited",
        about: "the front of a batch of readers waits for another key when a primary begins",
        play: found::front_inherited,
    },
    Scenario {
        name: "g9-told-reader",
        about: "a reader is inside when a primary begins, beside a newer eventual put",
        play: found::told_reader,
    },
    Scenario {
        name: "g9-front-dies",
        about: "the front of a batch of readers dies while its adoption is at one replica",
        play: found::front_dies,
    },
    Scenario {
        name: "g10-released-waiter",
        about: "a waiting ref is released while it becomes head",
        play: found::released_waiter,
    },
    Scenario {
        name: "g11-fenced-key",
        about: "a key is fenced by a high ballot when the epoch changes",
        play: found::fenced_key,
    },
    Scenario {
        name: "g12-first-start",
        about: "a node loses its disk before everybody has met it",
        play: found::first_start,
    },
    Scenario {
        name: "g13-stale-wait",
        about: "a wait ends at a node that was cut off since",
        play: found::stale_wait,
    },
    Scenario {
        name: "g14-resume-beside-lease",
        about: "a section is taken over while its client has a lease",
        play: found::resume_beside_lease,
    },
    Scenario {
        name: "g14-resumed-before-primary",
        about: "the primary dies while a section that was taken over waits for a lease",
        play: leases::resumed_before_primary,
    },
    Scenario {
        name: "g14-leave-beside-lease",
        about: "a section that was taken over is left while it waits for a lease",
        play: leases::leave_beside_lease,
    },
    Scenario {
        name: "g14-renewed-after-resume",
        about: "a client goes on renewing a section that was taken over",
        play: leases::renewed_after_resume,
    },
    Scenario {
        name: "g16-put-twice",
        about: "an eventual put comes late, and once more after a section has written over it",
        play: found::put_twice,
    },
    Scenario {
        name: "g17-late-member",
        about: "a member is away during two changes of view, and is needed then",
        play: machines::late_member,
    },
    Scenario {
        name: "g19-write-twice",
        about: "a write of a register is repeated when another one has followed it",
        play: found::write_twice,
    },
    Scenario {
        name: "g20-passed-over",
        about: "a reader hears that a tag is final above what it has found",
        play: registers::passed_over,
    },
    Scenario {
        name: "g21-forgotten-fence",
        about: "a record rots that held the fence of a sweep whose stores come late",
        play: registers::forgotten_fence,
    },
    Scenario {
        name: "g22-fenced-member",
        about: "a member that lacks a delete has a fence above it",
        play: upkeep::fenced_member,
    },
    Scenario {
        name: "g23-forgotten-read",
        about: "an enqueue is declined, and repeated while what was read for it is under way",
        play: commands::forgotten_read,
    },
    Scenario {
        name: "g24-later-put",
        about: "an eventual put comes that is later than the one which a section has adopted",
        play: found::later_put,
    },
    Scenario {
        name: "g24-replaced-adoption",
        about: "an adoption is at one replica, and the next primary settles the value before it",
        play: found::replaced_adoption,
    },
    Scenario {
        name: "g25-refused-copy",
        about: "a put is refused by all, and a copy of it arrives when there is room again",
        play: acknowledgements::refused_copy,
    },
    Scenario {
        name: "g26-put-at-one",
        about: "a put comes to nothing that has reached the replica of an eventual value alone",
        play: found::put_at_one,
    },
    Scenario {
        name: "g34-burst",
        about: "more waits for a window than a frame holds",
        play: bounds::burst,
    },
    Scenario {
        name: "g35-many-votes",
        about: "a leader dies when the others have voted for more than a frame holds",
        play: bounds::many_votes,
    },
    Scenario {
        name: "g27-queued-release",
        about: "a release waits in a queue while its leader outbids a stray promise",
        play: commands::queued_release,
    },
    Scenario {
        name: "g28-synch-beside-its-note",
        about: "a reader is looked after while the word of a complete synch is on its way",
        play: synchs::beside_its_note,
    },
    Scenario {
        name: "g29-synch-beside-a-leave",
        about: "a client leaves that wrote nothing while a new primary synchs in its name",
        play: synchs::beside_a_leave,
    },
    Scenario {
        name: "g30-reader-behind-its-front",
        about: "a new primary fails to settle a key for a reader that has just come",
        play: synchs::failed_for_a_reader,
    },
    Scenario {
        name: "g31-longest-section",
        about: "the primary changes in the longest section that is allowed",
        play: locks::longest_section,
    },
    Scenario {
        name: "g58-resumed-again-and-again",
        about: "a client resumes its section, before and after the longest time of one",
        play: locks::resumed_again_and_again,
    },
    Scenario {
        name: "g32-lagging-home",
        about: "the home of a segment is back, and fetches a snapshot that does not arrive",
        play: placement::lagging_home,
    },
    Scenario {
        name: "g32-lagging-elsewhere",
        about: "the home of a segment fetches a snapshot from another than the primary, slowly",
        play: placement::lagging_elsewhere,
    },
    Scenario {
        name: "g33-retiring",
        about: "a node that is about to stop is given back what it has given away",
        play: placement::retiring,
    },
    Scenario {
        name: "g41-cut-off-primary",
        about: "a primary has lost its lease when the synch of a grant fails",
        play: machines::cut_off_primary,
    },
    Scenario {
        name: "g46-dead-primary",
        about: "a section is entered at a node that knows of its primary only that it is dead",
        play: machines::dead_primary,
    },
    Scenario {
        name: "g47-gone-caller",
        about: "a caller that does not come back hangs up while it waits",
        play: callers::gone_caller,
    },
    Scenario {
        name: "g47-returned-caller",
        about: "it comes back all the same, at another node, and enters there",
        play: callers::returned_caller,
    },
    Scenario {
        name: "g48-short-lease",
        about: "a long wait with a lease of half a second",
        play: callers::short_lease,
    },
    Scenario {
        name: "g48-silent-waiter",
        about: "one who waits is not heard for twice its short lease",
        play: callers::silent_waiter,
    },
    Scenario {
        name: "g62-late-renewal",
        about: "a coordinator that starts again is answered what it had asked before",
        play: callers::late_renewal,
    },
    Scenario {
        name: "g49-anothers-ref",
        about: "one who knows a section's ref, but not its secret, acts in it",
        play: strangers::anothers_ref,
    },
    Scenario {
        name: "m1-forced-release",
        about: "a forced release leaves a put at one replica",
        play: acknowledgements::forced_release,
    },
    Scenario {
        name: "m2-retry-elsewhere",
        about: "a put is retried at a node with another clock, and another put follows",
        play: acknowledgements::retry_elsewhere,
    },
    Scenario {
        name: "m3-enter-twice",
        about: "an enter is retried while the first one is being synched",
        play: acknowledgements::enter_twice,
    },
    Scenario {
        name: "m5-leave-after-failed-put",
        about: "a put fails for want of a quorum and its holder leaves",
        play: acknowledgements::leave_after_failed_put,
    },
    Scenario {
        name: "m6-past-put",
        about: "a put of a past holder arrives late",
        play: acknowledgements::past_put,
    },
    Scenario {
        name: "m6-put-comes-late",
        about: "a put reaches its coordinator after its section was taken for dead",
        play: acknowledgements::put_comes_late,
    },
    Scenario {
        name: "placement-user",
        about: "a segment's primary goes to the site that uses it, beside a section that goes on",
        play: placement::user,
    },
    Scenario {
        name: "placement-drains",
        about: "who drains leads nothing, and of those who all drain none gives on what it leads",
        play: placement::drains,
    },
    Scenario {
        name: "placement-even",
        about: "two sites use a segment in turns of a few seconds",
        play: placement::even,
    },
    Scenario {
        name: "placement-site-dies",
        about: "the site that a primary has gone to dies, and comes back",
        play: placement::site_dies,
    },
    Scenario {
        name: "register-write-back",
        about: "what one reader returned the next one returns",
        play: acknowledgements::read_writes_back,
    },
    Scenario {
        name: "log-quorum",
        about: "what one acceptor of three has accepted is not chosen",
        play: rules::log_quorum,
    },
    Scenario {
        name: "unknown-outcome",
        about: "a put without a quorum is found later",
        play: rules::unknown_outcome,
    },
    Scenario {
        name: "lost-disk",
        about: "a node that lost its disk does not vote under its old name",
        play: machines::lost_disk,
    },
    Scenario {
        name: "p5-early-primary",
        about: "a new leader cannot have chosen what it has recovered, and is asked for a queue",
        play: commands::early_primary,
    },
    Scenario {
        name: "created-twice",
        about: "the first primary of a log loses power before the log's creation is durable",
        play: machines::created_twice,
    },
    Scenario {
        name: "quorum",
        about: "what is at one replica of three is not acknowledged",
        play: machines::quorum,
    },
    Scenario {
        name: "flush",
        about: "what is acknowledged survives a blackout",
        play: machines::flush,
    },
    Scenario {
        name: "read-before-flush",
        about: "what is read survives a blackout",
        play: machines::read_before_flush,
    },
    Scenario {
        name: "full-disk",
        about: "full disks refuse, lose little, and are not full for ever",
        play: acknowledgements::full_disk,
    },
    Scenario {
        name: "ring-member-replaced",
        about: "another node takes a member's seat; then another member falls silent",
        play: ring::member_replaced,
    },
    Scenario {
        name: "ring-all-seats-new",
        about: "no member stays, and those who ask know the former ones alone",
        play: ring::all_seats_new,
    },
    Scenario {
        name: "ring-undecodable",
        about: "V12: a value that too many dead writers have hidden, in a group that changes",
        play: ring::undecodable,
    },
    Scenario {
        name: "ring-coded",
        about: "coded values in groups of five, six, seven and five, whose members change",
        play: ring::coded_sizes,
    },
    Scenario {
        name: "ring-two-sources",
        about: "a second change while values move, and a third that has to wait",
        play: ring::two_sources,
    },
    Scenario {
        name: "ring-resume",
        about: "a section is resumed by others while all its members are replaced",
        play: ring::resume_through_move,
    },
    Scenario {
        name: "ring-next-each-crash",
        about: "a node loses power at each step of a change of members, in each role",
        play: ring::next_each_crash,
    },
    Scenario {
        name: "ring-stale-coordinator",
        about: "members that have voted for the end of a log answer for its store no more",
        play: ring::stale_coordinator,
    },
    Scenario {
        name: "ring-closing-logs",
        about: "a log that has ended stays until a majority has what follows it",
        play: ring::closing_logs,
    },
    Scenario {
        name: "ring-retired-member",
        about: "a member that has dropped a log does not take part in it again",
        play: away::retired_member,
    },
    Scenario {
        name: "ring-retired-asked",
        about: "a member that was away hears former members first, who have nothing to give",
        play: away::retired_asked,
    },
    Scenario {
        name: "ring-left-behind",
        about: "a member that was away hears of a change after which the group has gone on",
        play: away::left_behind,
    },
    Scenario {
        name: "ring-newcomer",
        about: "a node with an empty directory is admitted, and gets a seat",
        play: ring::newcomer,
    },
    Scenario {
        name: "ring-moved-at-one",
        about: "of the members that have a key that has moved one loses its disk",
        play: ring::moved_at_one,
    },
    Scenario {
        name: "ring-left-beside",
        about: "a put beside a leave is late, its successor is granted, and the store ends",
        play: ring::left_beside,
    },
    Scenario {
        name: "ring-lost-disk",
        about: "a member's disk is lost, and a new node takes its seat",
        play: ring::lost_disk,
    },
    Scenario {
        name: "ring-all-strangers",
        about: "who slept while all that it knows were replaced and left",
        play: away::all_strangers,
    },
    Scenario {
        name: "ring-out-of-sight",
        about: "a node without a seat that slept while all members were replaced and left",
        play: away::out_of_sight,
    },
    Scenario {
        name: "ring-meta-asked",
        about: "a node that missed where the meta-group has gone asks its former members",
        play: away::meta_asked,
    },
    Scenario {
        name: "ring-late-founder",
        about: "a node of the file starts after another one of it has left",
        play: away::late_founder,
    },
    Scenario {
        name: "ring-dismissed",
        about: "a node without a seat is taken out of the cluster",
        play: away::dismissed,
    },
    Scenario {
        name: "ring-few-lists",
        about: "a source is closed only when enough of its members have said what there is",
        play: ring::few_lists,
    },
    Scenario {
        name: "ring-eventual-at-one",
        about: "an eventual put that only a member has that was away",
        play: ring::eventual_at_one,
    },
    Scenario {
        name: "ring-delete",
        about: "a key is deleted while an earlier store still has its value",
        play: ring::delete_beside_source,
    },
    Scenario {
        name: "ring-late-gift",
        about: "what the mover of an earlier life has asked is answered late",
        play: ring::late_gift,
    },
    Scenario {
        name: "ring-gift-at-one",
        about: "the only present member that was given an eventual value loses its disk",
        play: ring::gift_at_one,
    },
    Scenario {
        name: "ring-dead-gift",
        about: "a keyspace is deleted while an eventual value of it is given on",
        play: ring::dead_gift,
    },
    Scenario {
        name: "ring-low-synch",
        about: "a holder is granted anew while a source has a later put of its own",
        play: ring::low_synch,
    },
];

/// What is outside of the fault model, each with a checker that must see the damage: it is
/// documented and not promised (`docs/simulator.md`, `docs/operations.md`).
pub const LIMITS: &[Scenario] = &[
    Scenario {
        name: "twins-copied-directory",
        about: "a data directory is copied, and a process started on each copy",
        play: identity::copied_directory,
    },
    Scenario {
        name: "lying-replica",
        about: "a replica answers with what it said before a write that it has acknowledged",
        play: identity::lying_replica,
    },
];

/// Every scenario that holds.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    let ring = learners::LIST
        .iter()
        .chain(split::LIST)
        .chain(listings::LIST)
        .chain(early::LIST)
        .chain(eventual::LIST)
        .chain(rotten::LIST)
        .chain(policies::LIST)
        .chain(leases::LIST)
        .chain(keyspaces::LIST)
        .chain(records::LIST)
        .chain(ledger::LIST);
    LIST.iter().chain(settings::LIST).chain(ring)
}

/// The scenario of a name, be it one that holds or one of the [`LIMITS`].
pub fn named(name: &str) -> Option<&'static Scenario> {
    all().chain(LIMITS).find(|s| s.name == name)
}

/// Plays a scenario, heals, reads everything once more and checks.
pub fn run(scenario: &Scenario, bug: Option<Bug>, trace: bool) -> Run {
    play(scenario, bug, trace, false)
}

/// As [`run`], and what happened is written down for the model.
pub fn observed(scenario: &Scenario, bug: Option<Bug>) -> Run {
    play(scenario, bug, false, true)
}

fn play(scenario: &Scenario, bug: Option<Bug>, trace: bool, model: bool) -> Run {
    let mut stage = Stage::new(bug, trace, model);
    (scenario.play)(&mut stage);
    stage.end()
}
