//! The deterministic simulator: the same node and the same log on a virtual world.
