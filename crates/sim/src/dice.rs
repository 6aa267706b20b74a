//! The only source of chance in a run: everything is drawn from one seed.

use fermata_protocol::base::Rng;

/// A seeded generator with the few draws that a simulation needs.
#[derive(Clone, Debug)]
pub struct Dice(Rng);

impl Dice {
    /// Dice that repeat themselves for the same seed.
    pub fn new(seed: u64) -> Dice {
        Dice(Rng::new(seed))
    }

    /// Dice of their own for one part of the world, so that what one part draws does not shift what
    /// the others draw.
    pub fn fork(&mut self) -> Dice {
        Dice::new(self.0.draw())
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// 128 bits.
    pub fn wide(&mut self) -> u128 {
        (u128::from(self.0.draw()) << 64) | u128::from(self.0.draw())
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number in `from ..= to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from + 1)
    }

    /// True in `percent` of a hundred draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.0.chance(percent)
    }

    /// True in `ppm` of a million draws.
    pub fn rarely(&mut self, ppm: u64) -> bool {
        ppm > 0 && self.0.below(1_000_000) < ppm
    }

    /// One of `items`, none if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.0.below(items.len() as u64) as usize)
    }

    /// A random subset of `items` with `count` members, in the order of `items`.
    pub fn subset<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut left = count.min(items.len()) as u64;
        let mut out = Vec::new();
        for (i, item) in items.iter().enumerate() {
            if self.0.below((items.len() - i) as u64) < left {
                out.push(item.clone());
                left -= 1;
            }
        }
        out
    }
}
