//! Tables of text.

/// Columns as wide as they must be; what begins with a digit is set right.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let gap = if line.is_empty() { "" } else { "  " };
            line += gap;
            line += &if cell.starts_with(|c: char| c.is_ascii_digit()) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A table of Markdown.
pub(crate) fn markdown<const N: usize>(rows: &[[String; N]]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text += &format!("| {} |\n", row.join(" | "));
        if at == 0 {
            text += &format!("|{}\n", " --- |".repeat(N));
        }
    }
    text
}
