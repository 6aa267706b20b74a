//! Which seat should lead a segment, given who uses it.
//!
//! **Problem.** An entry costs a trip from the client's site to the segment's primary and back.
//! With the primary beside the client it costs the round trip to the nearest quorum and nothing
//! else, so the primary belongs where the segment is used. But every move costs those who use it a
//! pause, and a primary that follows each request of every site would do nothing but move.
//!
//! **Idea.** The primary counts the entries that it applies, by the site of the node that
//! coordinates them, and lets the counts fade: each [half-life](crate::base::Timing::usage) halves
//! them. Once it has counted for [`TENURE`] half-lives, [`wished`] says where the segment belongs:
//!
//! 1. at a site whose count exceeds twice that of all others together by
//!    [`Limits::usage_lead`](crate::base::Limits::usage_lead) entries, if a seat there has been
//!    heard steadily: at the home seat if that is there, else where it is if that is there, else at
//!    the seat there that the segment's number picks;
//! 2. else at its home seat, which spreads the load, unless its present site uses it more than the
//!    home's does, or it was in use not long ago and nobody has used it since.
//!
//! To leave the home takes a clear majority, to go back a tie: between the two nothing moves.
//!
//! **Invariants.** The counts are one leadership's: a node that takes a log over begins with none,
//! and keeps the log until it has counted for itself. The seat that it names wishes the same, as
//! long as the counts are the same. Two sites that take turns of less than half a half-life,
//! however often, move nothing, but that the first one of them may win what nobody has used so far,
//! until a tie brings it home. Turns that last longer are followed; how often is bounded by whoever
//! gives the log away (`placement`).
//!
//! Entries are counted, and resumptions, not what follows an entry: leaving is waited for by
//! nobody, renewals need no short way, and puts and gets pass the primary by. A command submitted
//! once more is not counted: a segment that is stuck would move to whoever asks again the loudest.

use crate::base::{Micros, Seat, SiteId};
use alloc::collections::BTreeMap;

/// A primary counts for so many half-lives before it gives the log away.
pub(super) const TENURE: Micros = 2;
/// A log that nobody has used for so many half-lives goes home.
const IDLE: Micros = 30;
/// One entry, in the counts: they fade in integers.
const ENTRY: u64 = 1 << 10;
/// Counts fade so often in a half-life,
const FADES: Micros = 8;
/// each time by one part in so many: (11/12)^8 is 0.4985.
const PART: u64 = 12;
/// After so many times without an entry nothing is left of any count.
const FADES_MAX: Micros = 64 * FADES;

/// What a primary has counted since it began to lead.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    half_life: Micros,
    since: Micros,
    /// When the counts have faded last.
    faded: Micros,
    /// When the last entry came.
    last: Option<Micros>,
    /// Sites with a count above 0.
    sites: BTreeMap<SiteId, u64>,
}

/// The seats of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seats<'a> {
    /// The segment's number, which spreads segments over the seats of a site.
    pub(super) number: u32,
    /// Where the location table puts the primary.
    pub(super) home: Seat,
    /// Where it is.
    pub(super) current: Seat,
    /// Of each seat its site, and whether it has been heard steadily; by number.
    pub(super) all: &'a [(SiteId, bool)],
}

impl Usage {
    /// Nothing has been counted yet.
    pub(super) fn new(half_life: Micros, now: Micros) -> Usage {
        Usage {
            half_life,
            since: now,
            faded: now,
            last: None,
            sites: BTreeMap::new(),
        }
    }

    /// Somebody at a site has used the segment.
    pub(super) fn count(&mut self, site: SiteId, now: Micros) {
        self.fade(now);
        let count = self.sites.entry(site).or_default();
        *count = count.saturating_add(ENTRY);
        self.last = Some(now);
    }

    /// Lets time pass over the counts.
    pub(super) fn fade(&mut self, now: Micros) {
        let step = (self.half_life / FADES).max(1);
        let times = now.saturating_sub(self.faded) / step;
        self.faded += times * step;
        if times > FADES_MAX {
            self.sites.clear();
        }
        for _ in 0..times {
            if self.sites.is_empty() {
                break;
            }
            self.sites.retain(|_, count| {
                *count -= count.div_ceil(PART);
                *count > 0
            });
        }
    }

    /// Nobody has used the segment since this leadership began.
    pub(super) fn is_unused(&self) -> bool {
        self.last.is_none()
    }

    /// It has not counted for long enough to say where the segment belongs.
    pub(super) fn is_young(&self, now: Micros) -> bool {
        now < self.since + TENURE * self.half_life
    }

    fn of(&self, site: SiteId) -> u64 {
        self.sites.get(&site).copied().unwrap_or(0)
    }

    /// The site that uses the segment more than twice as much as all others, with so many entries
    /// to spare.
    fn majority(&self, lead: u32) -> Option<SiteId> {
        let (site, most) = self.sites.iter().max_by_key(|(_, count)| **count)?;
        let others: u64 = self.sites.values().sum::<u64>() - most;
        let spare = u64::from(lead) * ENTRY;
        (*most >= 2 * others + spare.max(1)).then_some(*site)
    }
}

impl Seats<'_> {
    fn site(&self, seat: Seat) -> Option<SiteId> {
        self.all.get(usize::from(seat.0)).map(|(site, _)| *site)
    }

    /// Whether a seat can lead: the present one does.
    fn can_lead(&self, seat: Seat) -> bool {
        let steady = self.all.get(usize::from(seat.0)).is_some_and(|(_, s)| *s);
        seat == self.current || steady
    }

    /// The seat that should lead for a site.
    fn at(&self, site: SiteId) -> Option<Seat> {
        let able = |seat: &Seat| self.site(*seat) == Some(site) && self.can_lead(*seat);
        let first = [self.home, self.current].into_iter().find(able);
        first.or_else(|| {
            let seats = || (0..self.all.len() as u8).map(Seat).filter(able);
            let count = seats().count().max(1);
            seats().nth(self.number as usize % count)
        })
    }
}

/// The seat that should lead a segment; the present one where nothing speaks for another. The
/// counts are to have faded up to `now`; `lead` is a number of entries.
pub(super) fn wished(usage: &Usage, seats: &Seats<'_>, lead: u32, now: Micros) -> Seat {
    if usage.is_young(now) {
        return seats.current;
    }
    let user = usage.majority(lead).and_then(|site| seats.at(site));
    if let Some(seat) = user {
        return seat;
    }
    let due = match usage.last {
        None => true,
        Some(last) if usage.sites.is_empty() => last + IDLE * usage.half_life <= now,
        Some(_) => {
            let count = |seat| seats.site(seat).map_or(0, |site| usage.of(site));
            count(seats.home) >= count(seats.current)
        }
    };
    match due && seats.can_lead(seats.home) {
        true => seats.home,
        false => seats.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;
    use alloc::vec::Vec;

    const LIFE: Micros = 15_000_000;
    const LEAD: u32 = 10;
    const ONE: SiteId = SiteId(1);
    const TWO: SiteId = SiteId(2);
    const THREE: SiteId = SiteId(3);
    /// One steady seat at each of three sites.
    const PAPER: [(SiteId, bool); 3] = [(ONE, true), (TWO, true), (THREE, true)];

    /// Counted for long enough, all of it just now.
    fn used(counts: &[(SiteId, u64)]) -> Usage {
        let mut usage = Usage::new(LIFE, 0);
        for (site, count) in counts {
            for _ in 0..*count {
                usage.count(*site, TENURE * LIFE);
            }
        }
        usage
    }

    fn seats(home: u8, current: u8, all: &[(SiteId, bool)]) -> Seats<'_> {
        Seats {
            number: 0,
            home: Seat(home),
            current: Seat(current),
            all,
        }
    }

    /// Where a segment is wished that is at home at seat 0, and led by `current`.
    fn from(current: u8, counts: &[(SiteId, u64)]) -> u8 {
        let (usage, seats) = (used(counts), seats(0, current, &PAPER));
        wished(&usage, &seats, LEAD, TENURE * LIFE).0
    }

    #[test]
    fn a_sole_user_has_it() {
        assert_eq!(from(0, &[(THREE, 10)]), 2);
        assert_eq!(from(1, &[(THREE, 10)]), 2);
        assert_eq!(from(2, &[(ONE, 10)]), 0);
    }

    #[test]
    fn too_few_entries_do_not_take_it_from_its_home() {
        assert_eq!(from(0, &[(THREE, 9)]), 0);
        assert_eq!(from(0, &[(THREE, 39), (ONE, 15)]), 0);
        assert_eq!(from(0, &[(THREE, 40), (ONE, 15)]), 2);
    }

    #[test]
    fn a_user_that_has_it_keeps_it_until_it_uses_it_less_than_the_home_does() {
        assert_eq!(from(2, &[(THREE, 3)]), 2);
        assert_eq!(from(2, &[(THREE, 30), (TWO, 30), (ONE, 29)]), 2);
        assert_eq!(from(2, &[(THREE, 30), (ONE, 30)]), 0);
        assert_eq!(from(2, &[(THREE, 1), (ONE, 3)]), 0);
        // None of the two needs it more than the other.
        assert_eq!(from(2, &[(TWO, 5)]), 0);
    }

    #[test]
    fn a_user_without_a_seat_that_can_lead_changes_nothing() {
        let usage = used(&[(THREE, 100)]);
        let away = [(ONE, true), (TWO, true), (THREE, false)];
        let none = [(ONE, true), (TWO, true), (TWO, true)];
        for all in [away, none] {
            let place = |current| wished(&usage, &seats(0, current, &all), LEAD, TENURE * LIFE);
            assert_eq!(place(0), Seat(0));
            assert_eq!(place(1), Seat(0));
        }
    }

    #[test]
    fn of_a_site_with_several_seats_the_home_is_first_then_who_leads() {
        let all = [(ONE, true), (TWO, true), (TWO, true), (TWO, true)];
        let usage = used(&[(TWO, 100)]);
        let place = |home, current, number| {
            let seats = Seats {
                number,
                ..seats(home, current, &all)
            };
            wished(&usage, &seats, LEAD, TENURE * LIFE).0
        };
        assert_eq!(place(2, 0, 0), 2);
        assert_eq!(place(2, 3, 0), 2);
        assert_eq!(place(0, 3, 0), 3);
        assert_eq!((place(0, 0, 4), place(0, 0, 5), place(0, 0, 6)), (2, 3, 1));
    }

    #[test]
    fn it_counts_for_a_while_before_it_says_anything() {
        let mut usage = Usage::new(LIFE, 0);
        for _ in 0..100 {
            usage.count(THREE, TENURE * LIFE - 1);
        }
        let place = |now| wished(&usage, &seats(0, 1, &PAPER), LEAD, now);
        assert_eq!(place(TENURE * LIFE - 1), Seat(1));
        assert_eq!(place(TENURE * LIFE), Seat(2));
        let unused = Usage::new(LIFE, 0);
        let place = |now| wished(&unused, &seats(0, 1, &PAPER), LEAD, now);
        assert_eq!(place(TENURE * LIFE - 1), Seat(1));
        assert_eq!(place(TENURE * LIFE), Seat(0));
    }

    #[test]
    fn what_nobody_uses_any_more_goes_home_after_long() {
        let mut usage = used(&[(THREE, 100)]);
        let begin = TENURE * LIFE;
        for lives in 0..=IDLE {
            let now = begin + lives * LIFE;
            usage.fade(now);
            let home = lives == IDLE;
            let place = wished(&usage, &seats(0, 2, &PAPER), LEAD, now);
            assert_eq!(place, Seat(if home { 0 } else { 2 }), "{lives}");
        }
    }

    #[test]
    fn counts_halve_in_a_half_life_and_end() {
        let mut usage = used(&[(ONE, 1_000)]);
        let begin = TENURE * LIFE;
        usage.fade(begin + LIFE);
        assert!(usage.of(ONE).abs_diff(500 * ENTRY) < 5 * ENTRY);
        // In how many steps it comes is the same.
        let mut often = used(&[(ONE, 1_000)]);
        for i in 0..=97 {
            often.fade(begin + i * LIFE / 97);
        }
        assert_eq!(often.of(ONE), usage.of(ONE));
        usage.fade(begin + 40 * LIFE);
        assert!(usage.sites.is_empty() && !usage.is_unused());
        let mut full = used(&[(ONE, 1_000)]);
        full.fade(u64::MAX / 2);
        assert!(full.sites.is_empty());
    }

    struct Drawn {
        rng: Rng,
    }

    /// Seats, counts of sites, and which seats are the home and the present one.
    type Case = (Vec<(SiteId, bool)>, Vec<(SiteId, u64)>, [u8; 2]);

    impl Drawn {
        fn below(&mut self, n: u64) -> u64 {
            self.rng.draw() % n
        }

        /// Seats of up to four sites, one of which leads and is steady, and counts of those sites.
        fn case(&mut self) -> Case {
            let members = 1 + self.below(7);
            let mut all = Vec::new();
            for _ in 0..members {
                all.push((SiteId(self.below(4) as u16), self.below(4) > 0));
            }
            let mut counts = Vec::new();
            for site in 0..4 {
                let most = [1, 3, 20, 200][self.below(4) as usize];
                counts.push((SiteId(site), self.below(most)));
            }
            let pair = [self.below(members) as u8, self.below(members) as u8];
            all[usize::from(pair[1])].1 = true;
            (all, counts, pair)
        }
    }

    #[test]
    fn any_case_wishes_a_seat_that_can_lead_and_wishes_it_from_there_too() {
        let mut drawn = Drawn { rng: Rng::new(11) };
        let mut moved = 0;
        for _ in 0..20_000 {
            let (all, counts, [home, current]) = drawn.case();
            let number = drawn.below(64) as u32;
            let usage = used(&counts);
            let place = |current| {
                let seats = Seats {
                    number,
                    ..seats(home, current, &all)
                };
                wished(&usage, &seats, LEAD, TENURE * LIFE).0
            };
            let to = place(current);
            assert!(all[usize::from(to)].1, "{all:?} {counts:?}: {to}");
            assert_eq!(place(to), to, "{all:?} {counts:?} from {current}");
            moved += u32::from(to != current);
            // More use where it is does not take it away.
            if to == current {
                let mut more = counts.clone();
                more.push((all[usize::from(current)].0, 1 + drawn.below(50)));
                let seats = Seats {
                    number,
                    ..seats(home, current, &all)
                };
                let to = wished(&used(&more), &seats, LEAD, TENURE * LIFE).0;
                let home_beside =
                    to == home && all[usize::from(to)].0 == all[usize::from(current)].0;
                assert!(to == current || home_beside, "{all:?} {counts:?}");
            }
        }
        assert!((4_000..16_000).contains(&moved), "{moved}");
    }

    /// How often a segment moves, at home at `home`, whose entries come as `entry` says: the time
    /// until the next one, and its site. The next leader begins to count anew.
    fn moves(home: u8, time: Micros, mut entry: impl FnMut(Micros) -> (Micros, SiteId)) -> u32 {
        let (mut current, mut moves) = (home, 0);
        let (mut now, mut beat) = (0, 0);
        let mut usage = Usage::new(LIFE, 0);
        while now < time {
            let (pause, site) = entry(now);
            now += pause;
            while beat < now {
                usage.fade(beat);
                let to = wished(&usage, &seats(home, current, &PAPER), LEAD, beat).0;
                if to != current {
                    (current, moves) = (to, moves + 1);
                    usage = Usage::new(LIFE, beat);
                }
                beat += 100_000;
            }
            usage.count(site, now);
        }
        moves
    }

    #[test]
    fn two_sites_that_take_short_turns_move_nothing() {
        let mut drawn = Drawn { rng: Rng::new(5) };
        for _ in 0..40 {
            let home = drawn.below(3) as u8;
            let turn = 100_000 + drawn.below(LIFE / 2 - 100_000);
            let pause = 20_000 + drawn.below(400_000);
            let offset = drawn.below(turn);
            for idle in [0, 10 * LIFE] {
                let mut pauses = [idle].into_iter();
                let count = moves(home, 200 * LIFE, |now| {
                    let site = [ONE, THREE][((now + offset) / turn) as usize % 2];
                    (pause + pauses.next().unwrap_or(0), site)
                });
                // The first one may win what nobody has used so far; a tie brings it home.
                let most = if idle > 0 { 2 } else { 0 };
                assert!(count <= most, "home {home}, turns of {turn}, each {pause}");
            }
        }
    }

    #[test]
    fn chance_does_not_move_what_two_sites_use_evenly() {
        let mut drawn = Drawn { rng: Rng::new(9) };
        for pause in [20_000, 100_000, 300_000, 700_000, 2_000_000] {
            for home in 0..3 {
                let count = moves(home, 3_000 * LIFE, |_| {
                    let site = [ONE, THREE][drawn.below(2) as usize];
                    (1 + drawn.below(2 * pause), site)
                });
                assert_eq!(count, 0, "home {home}, every {pause}");
            }
        }
    }

    #[test]
    fn a_new_user_has_it_soon() {
        for pause in [10_000, 100_000, 1_000_000] {
            let mut users = [ONE, THREE].into_iter().cycle();
            let mut user = users.next().unwrap();
            let mut since = 0;
            let count = moves(0, 41 * 4 * LIFE, |now| {
                if now >= since + 4 * LIFE {
                    (user, since) = (users.next().unwrap(), now);
                }
                (pause, user)
            });
            assert_eq!(count, 40, "each {pause}");
        }
    }
}
