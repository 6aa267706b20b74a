//! The figures: which points each needs, and how it is drawn.
//!
//! Points are in [`points`] and known by [`names`]; the drawings are one file for each family of
//! figures, over the tables and charts of [`grid`].

mod grid;
mod latency;
mod names;
mod plain;
mod points;
mod throughput;

use anyhow::Result;

use super::page::Page;
use super::place::{LUS, PROFILES};
use super::{Effort, Measured, Point, targets};

pub(super) use names::{
    CRITICAL, DISTINCT, HOT, HOT_NATIVE, MEDIUM, PLAIN_PUTS, QUEUE, QUEUE_ALONE, SMALL,
    hundred_name, many_puts_name, shared_name, steps_name,
};
pub(super) use points::{
    critical_puts, distinct, hot, hot_native, hundred, many_puts, plain_puts, queue, queue_alone,
    shared, steps,
};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Figure {
    /// One table of what was aimed at.
    Targets,
    /// Those of them that processors and disks bound, and no distance.
    Rates,
    /// Throughput of `CassaEV`, MUSIC and MSCP by profile.
    #[value(name = "4")]
    Four,
    /// Their latency, and that of MUSIC's steps.
    #[value(name = "5")]
    Five,
    /// Throughput by the number of puts in a section and by their size.
    #[value(name = "6")]
    Six,
    /// Latency of a section beside updates that are transactions each.
    #[value(name = "7")]
    Seven,
    /// Distribution of latencies.
    #[value(name = "8")]
    Eight,
    /// YCSB.
    #[value(name = "9")]
    Nine,
    /// Plain puts and gets beside Cassandra.
    #[value(name = "11")]
    Eleven,
    /// Plain puts, gets and sections beside `ZooKeeper`.
    #[value(name = "12")]
    Twelve,
}

impl Figure {
    /// All of them, in order.
    pub(super) fn all() -> Vec<Figure> {
        <Figure as clap::ValueEnum>::value_variants().to_vec()
    }

    /// What it shows.
    pub(super) fn points(self, effort: Effort) -> Vec<Point> {
        match self {
            Figure::Targets => targets::points(effort),
            Figure::Rates => targets::rate_points(effort),
            Figure::Four => PROFILES.map(|p| points::many(p, effort)).into(),
            Figure::Five => PROFILES.map(|p| points::steps(p, effort, false)).into(),
            Figure::Six => points::six(effort),
            Figure::Seven => points::seven(effort),
            Figure::Eight => vec![steps(PROFILES[0], effort, false), steps(LUS, effort, false)],
            Figure::Nine => points::nine(effort),
            Figure::Eleven => vec![plain_puts(effort), points::plain_gets(effort)],
            Figure::Twelve => vec![
                plain_puts(effort),
                points::plain_gets(effort),
                distinct(effort),
            ],
        }
    }

    /// Draws it.
    pub(super) fn draw(self, measured: &Measured, page: &mut Page) -> Result<()> {
        match self {
            Figure::Targets => targets::draw(measured, page),
            Figure::Rates => targets::draw_rates(measured, page),
            Figure::Four => throughput::draw_four(measured, page),
            Figure::Five => latency::draw_five(measured, page),
            Figure::Six => throughput::draw_six(measured, page),
            Figure::Seven => latency::draw_seven(measured, page),
            Figure::Eight => latency::draw_eight(measured, page),
            Figure::Nine => throughput::draw_nine(measured, page),
            Figure::Eleven => plain::draw_eleven(measured, page),
            Figure::Twelve => plain::draw_twelve(measured, page),
        }
    }
}
