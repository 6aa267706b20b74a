//! The engine on simulated stores, under exact schedules and under random ones.
//!
//! | file | what it is |
//! | --- | --- |
//! | `world` | sites, messages, faults, conditional updates; the rules of a schedule |
//! | `store` | the two stores of the engine, on the world |
//! | `clients` | the cluster that clients ask (clients and judge: `fermata_engine::check`) |
//! | `scenarios` | exact schedules, each with the wrong rule that it catches |
//! | `schedules`, `conditions` | the schedules themselves |
//! | `paper` | MUSIC's own layout, which the schedules break |
//! | `seeds` | random runs |

mod clients;
mod conditions;
mod paper;
mod scenarios;
mod schedules;
mod seeds;
mod store;
mod world;
