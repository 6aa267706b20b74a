//! How likely nodes die, by their ages: from what was observed, whatever the shape of it.
//!
//! Chances are whole numbers, so that every machine finds the same.

use crate::base::Micros;
use alloc::vec;
use alloc::vec::Vec;

/// A chance: so many parts of [`Odds::ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Odds(pub u64);

impl Odds {
    /// It is certain.
    pub const ONE: u64 = 1 << 30;

    fn both(self, other: Odds) -> u64 {
        self.0 * other.0 / Odds::ONE
    }

    fn not(self) -> Odds {
        Odds(Odds::ONE - self.0)
    }
}

/// How long nodes lived that are dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// Ascending.
    lifetimes: Vec<Micros>,
}

impl Survival {
    /// From lifetimes that were observed, microseconds.
    pub fn observed(lifetimes: impl Iterator<Item = Micros>) -> Survival {
        let mut lifetimes: Vec<Micros> = lifetimes.collect();
        lifetimes.sort_unstable();
        Survival { lifetimes }
    }

    /// Nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.lifetimes.is_empty()
    }

    /// How many lived longer than that.
    fn beyond(&self, age: Micros) -> u64 {
        let until = self.lifetimes.partition_point(|lived| *lived <= age);
        (self.lifetimes.len() - until) as u64
    }

    /// The chance that one of an age dies within a time: 1 - S(a + h) / S(a). Nobody was seen to
    /// die at an age above all that were observed: none is expected to.
    pub fn dies(&self, age: Micros, within: Micros) -> Odds {
        let (now, then) = (self.beyond(age), self.beyond(age.saturating_add(within)));
        match now {
            0 => Odds(0),
            _ => Odds((now - then) * Odds::ONE / now),
        }
    }
}

/// The chance that more than so many of these happen, each by itself (Poisson's binomial).
pub(super) fn more_than(most: usize, each: &[Odds]) -> Odds {
    // Of each number up to that the chance that exactly so many do.
    let mut exactly = vec![0; most + 1];
    exactly[0] = Odds::ONE;
    for odds in each {
        for count in (0..=most).rev() {
            let not = Odds(exactly[count]).both(odds.not());
            let too = count.checked_sub(1).map(|one| exactly[one]);
            exactly[count] = not + too.map_or(0, |one| Odds(one).both(*odds));
        }
    }
    Odds(Odds::ONE.saturating_sub(exactly.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What rounding takes at most.
    const NEAR: u64 = 1_000;

    fn odds() -> impl Strategy<Value = Vec<Odds>> {
        prop::collection::vec((0..=Odds::ONE).prop_map(Odds), 1..9)
    }

    /// By looking at every outcome.
    fn by_outcomes(most: usize, each: &[Odds]) -> f64 {
        let part = |odds: &Odds| odds.0 as f64 / Odds::ONE as f64;
        let outcomes = 0u32..1 << each.len();
        let more = outcomes.filter(|outcome| outcome.count_ones() as usize > most);
        let chance = |outcome: u32| -> f64 {
            let of = |(at, odds): (usize, &Odds)| match outcome >> at & 1 {
                1 => part(odds),
                _ => 1.0 - part(odds),
            };
            each.iter().enumerate().map(of).product()
        };
        more.map(chance).sum()
    }

    #[test]
    fn the_chance_to_die_is_that_of_those_who_lived_so_long() {
        let known = Survival::observed([10, 20, 30, 40].into_iter());
        assert_eq!(known.dies(0, 10), Odds(Odds::ONE / 4));
        assert_eq!(known.dies(10, 10), Odds(Odds::ONE / 3));
        assert_eq!(known.dies(30, 10), Odds(Odds::ONE));
        assert_eq!(known.dies(40, 10), Odds(0), "nobody was seen to die later");
        assert_eq!(Survival::default().dies(1, 1), Odds(0));
    }

    proptest! {
        #[test]
        fn as_many_as_all_outcomes_say(each in odds(), most in 0usize..9) {
            let found = more_than(most, &each).0 as f64;
            let wanted = by_outcomes(most, &each) * Odds::ONE as f64;
            prop_assert!((found - wanted).abs() <= NEAR as f64, "{found} and {wanted}");
        }

        #[test]
        fn who_is_likelier_to_die_makes_it_likelier(
            each in odds(),
            most in 0usize..9,
            at in any::<prop::sample::Index>(),
        ) {
            let mut worse = each.clone();
            let at = at.index(each.len());
            worse[at].0 = (worse[at].0 + Odds::ONE) / 2;
            let (before, after) = (more_than(most, &each), more_than(most, &worse));
            prop_assert!(after.0 + NEAR >= before.0);
            prop_assert!(more_than(most + 1, &each) <= before);
        }

        #[test]
        fn nobody_dies_with_more_than_certainty(
            lived in prop::collection::vec(0u64..100, 0..20),
            age in 0u64..120,
            within in 0u64..120,
        ) {
            let known = Survival::observed(lived.into_iter());
            let (short, long) = (known.dies(age, within), known.dies(age, within + 1));
            prop_assert!(short <= long && long.0 <= Odds::ONE);
        }
    }
}
