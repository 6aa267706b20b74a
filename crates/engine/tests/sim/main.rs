//! The engine on simulated stores, under exact schedules and under random ones.
//!
//! | file | what it is |
//! | --- | --- |
//! | `world` | sites, messages, faults, conditional updates; the rules of a schedule |
//! | `store` | the two stores of the engine, on the world |
//! | `clients` | clients and the cluster that they ask |
//! | `history`, `checker` | what they saw, and what it must be like |
//! | `scenarios` | exact schedules, each with the wrong rule that it catches |
//! | `paper` | MUSIC's own layout, which the schedules break |
//! | `seeds` | random runs |

mod checker;
mod clients;
mod history;
mod paper;
mod scenarios;
mod seeds;
mod store;
mod world;
