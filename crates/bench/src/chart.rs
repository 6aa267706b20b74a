//! Line charts as SVG, made by hand: a few lines over a few named places, and what is to be said
//! of them below.

use std::fmt::Write;

/// One line of a chart.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) dashed: bool,
    /// Which colour and mark: the same in all charts in which the line is.
    pub(crate) style: usize,
    /// One per place; none leaves a gap.
    pub(crate) values: Vec<Option<f64>>,
}

/// A chart.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the places are.
    pub(crate) across: &'static str,
    /// What the values are.
    pub(crate) up: &'static str,
    pub(crate) places: Vec<String>,
    pub(crate) lines: Vec<Line>,
    /// Whether the places are of one scale, so that lines lead from one to the next. Else the marks
    /// stand side by side at their place.
    pub(crate) joined: bool,
    /// Whether values are drawn by their powers of ten; those that are not positive are left out.
    pub(crate) logarithmic: bool,
    /// Sentences below the chart.
    pub(crate) notes: Vec<String>,
}

/// Where values are between the bottom and the top of a chart.
struct Scale {
    /// Lines of the grid, lowest first: the first one is the bottom, the last one the top.
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Scale {
    /// Between two lines of a linear grid: 1, 2 or 5 times a power of ten, for four to eight of
    /// them.
    fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let most = values.fold(0.0_f64, f64::max);
        let most = if most > 0.0 { most * 1.02 } else { 1.0 };
        let raw = most / 6.0;
        let power = 10_f64.powf(raw.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0];
        let fits = nice.iter().find(|n| **n * power >= raw);
        let step = fits.unwrap_or(&10.0) * power;
        let lines = (most / step).ceil() as u32;
        Scale {
            ticks: (0..=lines).map(|number| step * f64::from(number)).collect(),
            logarithmic: false,
        }
    }

    /// Powers of ten that all values are between.
    fn powers(values: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = values
            .filter(|value| *value > 0.0)
            .map(f64::log10)
            .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        let (least, most) = match least <= most {
            true => (least.floor() as i32, most.ceil() as i32),
            false => (0, 1),
        };
        let ticks = least..=most.max(least + 1);
        Scale {
            ticks: ticks.map(|power| 10_f64.powi(power)).collect(),
            logarithmic: true,
        }
    }

    /// Where a value is; none where it cannot be drawn.
    fn height(&self, value: f64) -> Option<f64> {
        let place = |value: f64| {
            if self.logarithmic {
                value.log10()
            } else {
                value
            }
        };
        let (bottom, top) = (
            place(self.ticks[0]),
            place(self.ticks[self.ticks.len() - 1]),
        );
        let share = (place(value) - bottom) / (top - bottom);
        share.is_finite().then_some(BOTTOM - (BOTTOM - TOP) * share)
    }
}

/// Colours that differ for people who do not see all of them, one per line.
const COLOURS: [&str; 8] = [
    "#222222", "#0072b2", "#009e73", "#cc79a7", "#d55e00", "#999999", "#e69f00", "#56b4e9",
];

const WIDTH: f64 = 800.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 600.0;
/// Between two marks of one place, where they are not joined.
const BESIDE: f64 = 11.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 356.0;
/// Characters of a note on one line, by the width of the letters.
const WRAP: usize = 108;
const LINE: f64 = 17.0;

impl Chart {
    /// The chart as a file's text.
    pub(crate) fn svg(&self) -> String {
        let notes: Vec<String> = self.notes.iter().flat_map(|note| wrapped(note)).collect();
        let height = BOTTOM + 70.0 + LINE * notes.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let middle = f64::midpoint(LEFT, RIGHT);
        text(
            &mut out,
            (LEFT, 28.0),
            "font-size=\"16\" font-weight=\"bold\"",
            &self.title,
        );
        text(
            &mut out,
            (middle, BOTTOM + 40.0),
            "text-anchor=\"middle\"",
            self.across,
        );
        let turned = format!(
            "text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1})\"",
            200.0
        );
        text(&mut out, (18.0, 200.0), &turned, self.up);
        let values = self.lines.iter().flat_map(|line| &line.values).flatten();
        let values = values.copied();
        let scale = match self.logarithmic {
            true => Scale::powers(values),
            false => Scale::linear(values),
        };
        self.grid(&mut out, &scale);
        for (index, line) in self.lines.iter().enumerate() {
            self.line(&mut out, index, line, &scale);
        }
        for (row, note) in notes.iter().enumerate() {
            let y = BOTTOM + 66.0 + LINE * row as f64;
            text(
                &mut out,
                (16.0, y),
                "font-size=\"12.5\" fill=\"#333\"",
                note,
            );
        }
        out += "</svg>\n";
        out
    }

    fn grid(&self, out: &mut String, scale: &Scale) {
        // As many digits as the least of them needs.
        let finest = scale.ticks.iter().find(|tick| **tick > 0.0);
        let places = finest.map_or(0.0, |tick| tick.log10().floor().min(0.0).abs()) as usize;
        for value in &scale.ticks {
            let Some(y) = scale.height(*value) else {
                continue;
            };
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
            let places = if scale.logarithmic && *value >= 1.0 {
                0
            } else {
                places
            };
            let label = grouped(&format!("{value:.places$}"));
            text(out, (LEFT - 8.0, y + 4.5), "text-anchor=\"end\"", &label);
        }
        for (at, place) in self.places.iter().enumerate() {
            let x = self.x(at);
            text(out, (x, BOTTOM + 20.0), "text-anchor=\"middle\"", place);
        }
    }

    fn x(&self, at: usize) -> f64 {
        let room = (RIGHT - LEFT) / self.places.len() as f64;
        LEFT + room * (at as f64 + 0.5)
    }

    fn line(&self, out: &mut String, index: usize, line: &Line, scale: &Scale) {
        let colour = COLOURS[line.style % COLOURS.len()];
        let beside = match self.joined {
            true => 0.0,
            false => BESIDE * (index as f64 - (self.lines.len() as f64 - 1.0) / 2.0),
        };
        let points: Vec<(f64, f64)> = (line.values.iter().enumerate())
            .filter_map(|(at, value)| Some((self.x(at) + beside, scale.height((*value)?)?)))
            .collect();
        if self.joined {
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let dashes = if line.dashed { "6 4" } else { "none" };
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\"/>",
                path.join(" ")
            );
        } else {
            for (x, y) in &points {
                let _ = writeln!(
                    out,
                    "<line x1=\"{x:.1}\" y1=\"{BOTTOM}\" x2=\"{x:.1}\" y2=\"{y:.1}\" \
                     stroke=\"{colour}\" stroke-opacity=\"0.35\" stroke-width=\"3\"/>"
                );
            }
        }
        for point in points {
            mark(out, line.style, point, colour);
        }
        let y = TOP + 10.0 + 24.0 * index as f64;
        mark(out, line.style, (RIGHT + 24.0, y), colour);
        text(out, (RIGHT + 38.0, y + 4.5), "", line.name);
    }
}

/// A number with its thousands apart.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// Each line has marks of its own shape.
fn mark(out: &mut String, index: usize, (x, y): (f64, f64), colour: &str) {
    let shape = match index % 5 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" "),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" ",
            x - 4.0,
            y - 4.0
        ),
        2 => polygon(&[(x, y - 5.0), (x + 5.0, y + 4.0), (x - 5.0, y + 4.0)]),
        3 => polygon(&[(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)]),
        _ => polygon(&[(x, y + 5.0), (x + 5.0, y - 4.0), (x - 5.0, y - 4.0)]),
    };
    let _ = writeln!(out, "{shape}fill=\"{colour}\"/>");
}

fn polygon(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    format!("<polygon points=\"{}\" ", points.join(" "))
}

fn text(out: &mut String, (x, y): (f64, f64), how: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {how}>{what}</text>");
}

fn wrapped(note: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            *last = word.to_owned();
        } else if last.chars().count() + 1 + word.chars().count() <= WRAP {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_well_formed_whatever_its_values() {
        for values in [
            vec![Some(0.0), None],
            vec![Some(0.001), Some(0.0023)],
            vec![Some(1.0), Some(98_765.0)],
            vec![None, None],
        ] {
            for (joined, logarithmic) in [(true, false), (false, true)] {
                let line = |name| Line {
                    name,
                    dashed: false,
                    style: 1,
                    values: values.clone(),
                };
                let chart = Chart {
                    title: "a < b & c".into(),
                    across: "x",
                    up: "y",
                    places: vec!["1".into(), "2".into()],
                    lines: ["a", "b", "c", "d", "e"].map(line).into(),
                    joined,
                    logarithmic,
                    notes: vec!["word ".repeat(60)],
                };
                let svg = chart.svg();
                assert!(svg.contains("a &lt; b &amp; c"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn thousands_are_apart() {
        let numbers = ["1", "999", "1000", "25000", "1234567", "0.05"];
        let expected = ["1", "999", "1,000", "25,000", "1,234,567", "0.05"];
        assert_eq!(numbers.map(grouped), expected);
    }
}
