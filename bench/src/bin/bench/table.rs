//! Tables, as text for a terminal and as Markdown.

use std::fmt::Write;

/// A table. The first columns are row headings and are left-aligned. The others are figures.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { title: title.into(), header, rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.header]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
    }

    pub(crate) fn text(&self) -> String {
        let widths = self.widths();
        let mut text = format!("\n{}\n\n", self.title);
        for row in [&self.header].into_iter().chain(&self.rows) {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(text, "{cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// Returns the table in Markdown. `level` is the beginning of its heading, such as `###`.
    pub(crate) fn markdown(&self, level: &str) -> String {
        let mut text = format!("{level} {}\n\n", self.title);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(&self.header));
        let rule: Vec<&str> = (0..self.header.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
        let _ = writeln!(text, "|{}|", rule.join("|"));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }
}

/// Returns a figure with three significant digits, or as a whole number if it has more.
pub(crate) fn figure(value: f64) -> String {
    match value {
        v if v >= 99.95 => group(v.round()),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 => format!("{v:.2}"),
        0.0 => "0".to_owned(),
        v => format!("{v:.3}"),
    }
}

/// The placeholder if nothing was measured.
pub(crate) const NOTHING: &str = "–";

pub(crate) fn figure_or_nothing(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), figure)
}

/// Returns a whole number with its digits in groups of three.
pub(crate) fn group(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::with_capacity(digits.len() + 2);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the median.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let (&low, &high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let figures = [0.0, 0.0051, 0.5, 1.234, 45.67, 234.5, 12_345.6].map(figure);
        assert_eq!(figures, ["0", "0.005", "0.50", "1.23", "45.7", "235", "12,346"]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
