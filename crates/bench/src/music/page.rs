//! The report: text, tables, and charts beside it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::chart::{Chart, Line};

/// A report that is being written.
pub(crate) struct Page {
    out: PathBuf,
    text: String,
}

/// The lines of a table; the first is its head.
pub(crate) type Rows = Vec<Vec<String>>;

impl Page {
    pub(crate) fn new(out: &Path) -> Page {
        Page {
            out: out.to_owned(),
            text: String::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.text += text;
    }

    /// The head of a figure, and what the paper says of it.
    pub(crate) fn figure(&mut self, title: &str, paper: &str) {
        println!("\n{title}");
        self.text(&format!("\n## {title}\n\nThe paper: {paper}\n\n"));
    }

    /// What this run says of it.
    pub(crate) fn run(&mut self, sentence: &str) {
        println!("{sentence}");
        self.text(&format!("\nThis run: {sentence}\n"));
    }

    /// A table, also printed.
    pub(crate) fn table(&mut self, rows: &Rows) {
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (at, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| {
                if cell.starts_with(|c: char| c.is_ascii_digit()) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            let cells: Vec<String> = cells.collect();
            println!("{}", cells.join("  ").trim_end());
            self.text(&format!("| {} |\n", row.join(" | ")));
            if at == 0 {
                self.text(&format!("|{}\n", " --- |".repeat(columns)));
            }
        }
    }

    /// A chart in a file of its own.
    pub(crate) fn chart(&mut self, file: &str, mut chart: Chart) -> Result<()> {
        chart
            .lines
            .retain(|line| line.values.iter().any(Option::is_some));
        std::fs::write(self.out.join(file), chart.svg())?;
        self.text(&format!("\n![{}]({file})\n", chart.title));
        Ok(())
    }

    pub(crate) fn write(&self) -> Result<()> {
        Ok(std::fs::write(self.out.join("report.md"), &self.text)?)
    }
}

/// A line of a chart: a system looks the same in all of them.
pub(crate) fn line(name: &'static str, values: Vec<Option<f64>>) -> Line {
    let style = match name {
        "native" => 0,
        "cassandra" => 1,
        "MUSIC (paper's rows)" => 2,
        "MSCP" => 3,
        "ZooKeeper" => 4,
        "cassandra, no verify" => 5,
        "etcd" | "etcd, txn per update" => 6,
        _ => 7,
    };
    Line {
        name,
        style,
        dashed: false,
        values,
    }
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Milliseconds, or a rate, with as many digits as mean something.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}
