//! Line charts as SVG, made by hand: a few lines over a few named places, and what is to be said
//! of them below.

use std::fmt::Write;

/// One line of a chart.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) dashed: bool,
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
    /// Sentences below the chart.
    pub(crate) notes: Vec<String>,
}

/// Colours that differ for people who do not see all of them, one per line.
const COLOURS: [&str; 6] = [
    "#222222", "#0072b2", "#009e73", "#cc79a7", "#d55e00", "#999999",
];

const WIDTH: f64 = 760.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 600.0;
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
        let step = self.step();
        let most = step * (self.most() / step).ceil();
        self.grid(&mut out, step, most);
        for (index, line) in self.lines.iter().enumerate() {
            self.line(&mut out, index, line, most);
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

    fn most(&self) -> f64 {
        let all = self.lines.iter().flat_map(|line| &line.values).flatten();
        let most = all.fold(0.0_f64, |most, value| most.max(*value));
        if most > 0.0 { most * 1.02 } else { 1.0 }
    }

    /// Between two lines of the grid: 1, 2 or 5 times a power of ten, for four to eight of them.
    fn step(&self) -> f64 {
        let raw = self.most() / 6.0;
        let power = 10_f64.powf(raw.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0];
        let fits = nice.iter().find(|n| **n * power >= raw);
        fits.unwrap_or(&10.0) * power
    }

    fn grid(&self, out: &mut String, step: f64, most: f64) {
        let lines = (most / step).round() as u32;
        let places = step.log10().floor().min(0.0).abs() as usize;
        for number in 0..=lines {
            let value = step * f64::from(number);
            let y = height_of(value, most);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
            let label = format!("{value:.places$}");
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

    fn line(&self, out: &mut String, index: usize, line: &Line, most: f64) {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<(f64, f64)> = (line.values.iter().enumerate())
            .filter_map(|(at, value)| Some((self.x(at), height_of((*value)?, most))))
            .collect();
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
        for point in points {
            mark(out, index, point, colour);
        }
        let y = TOP + 10.0 + 24.0 * index as f64;
        mark(out, index, (RIGHT + 24.0, y), colour);
        text(out, (RIGHT + 38.0, y + 4.5), "", line.name);
    }
}

fn height_of(value: f64, most: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * value / most
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
            let line = |name| Line {
                name,
                dashed: false,
                values: values.clone(),
            };
            let chart = Chart {
                title: "a < b & c".into(),
                across: "x",
                up: "y",
                places: vec!["1".into(), "2".into()],
                lines: ["a", "b", "c", "d", "e"].map(line).into(),
                notes: vec!["word ".repeat(60)],
            };
            let svg = chart.svg();
            assert!(svg.contains("a &lt; b &amp; c"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
