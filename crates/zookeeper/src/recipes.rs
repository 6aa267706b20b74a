//! `ZooKeeper`'s own lock recipe.
