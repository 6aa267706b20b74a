//! Tables and charts of the same numbers.

use anyhow::Result;

use crate::chart::Chart;
use crate::music::Measured;
use crate::music::load::Counted;
use crate::music::page::{Page, Rows, line, number, row};
use crate::music::place::{PROFILES, Profile};
use crate::music::system::Kind;

/// What a figure's lines and cells are made of.
pub(super) struct Grid<'a> {
    pub(super) file: &'a str,
    pub(super) title: &'a str,
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    /// Names on the axis, and the points there.
    pub(super) places: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    /// Whether the places are of one scale; see [`Chart::joined`].
    pub(super) joined: bool,
}

/// From this ratio of the largest to the least value on, a chart has powers of ten.
const WIDE: f64 = 15.0;

impl Grid<'_> {
    /// A table and a chart: a row and a line per system.
    pub(super) fn draw(
        &self,
        measured: &Measured,
        page: &mut Page,
        kinds: &[Kind],
        of: impl Fn(&Counted) -> f64,
    ) -> Result<()> {
        let lines = kinds.iter().map(|kind| {
            let values = self.places.iter();
            let values = values.map(|(_, point)| measured.of(point, *kind).map(&of));
            (kind.name(), values.collect())
        });
        self.lines(page, lines.collect())
    }

    pub(super) fn lines(
        &self,
        page: &mut Page,
        lines: Vec<(&'static str, Vec<Option<f64>>)>,
    ) -> Result<()> {
        page.text(&format!("\n**{}**, {}\n\n", self.title, self.up));
        let mut head = row([self.across]);
        head.extend(self.places.iter().map(|(place, _)| place.clone()));
        let mut rows: Rows = vec![head];
        for (name, values) in &lines {
            let mut cells = row([name]);
            cells.extend(values.iter().map(|value| number(*value)));
            rows.push(cells);
        }
        page.table(&rows);
        let values = lines.iter().flat_map(|(_, values)| values).flatten();
        let positive = values.copied().filter(|value| *value > 0.0);
        let (least, most) = positive.fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        let chart = Chart {
            joined: self.joined,
            logarithmic: most > WIDE * least,
            title: self.title.to_owned(),
            across: self.across,
            up: self.up,
            places: self.places.iter().map(|(place, _)| place.clone()).collect(),
            lines: lines
                .into_iter()
                .map(|(name, values)| line(name, values))
                .collect(),
            notes: self.notes.clone(),
        };
        page.chart(self.file, chart)
    }
}

/// The ratio of two systems at a point, as words.
pub(super) fn times(
    measured: &Measured,
    point: &str,
    kinds: (Kind, Kind),
    of: fn(&Counted) -> f64,
) -> String {
    let (over, under) = kinds;
    let values = measured.of(point, over).zip(measured.of(point, under));
    match values.map(|(a, b)| (of(a), of(b))) {
        Some((a, b)) if b > 0.0 => format!("{:.2}", a / b),
        _ => "(not measured)".to_owned(),
    }
}

/// The profiles as places.
pub(super) fn profiles(name: fn(Profile) -> String) -> Vec<(String, String)> {
    PROFILES
        .iter()
        .map(|p| (p.name.to_owned(), name(*p)))
        .collect()
}
