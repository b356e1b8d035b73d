//! Aligned columns, with colours on a terminal.

use std::{
    env,
    io::{IsTerminal as _, stdout},
};

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// As it has to be.
    Good,
    /// Not as it has to be.
    Bad,
    /// Less important.
    Dim,
}

impl Colour {
    /// The text in this colour; plain if standard output is no terminal or `NO_COLOR` is set.
    pub(crate) fn paint(self, text: &str) -> String {
        if !stdout().is_terminal() || env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty()) {
            return text.to_owned();
        }
        let code = match self {
            Self::Good => 32,
            Self::Bad => 31,
            Self::Dim => 2,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: None }
    }
}

impl Cell {
    /// A coloured cell.
    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}

/// Rows of cells below a header.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these column titles.
    pub(crate) fn new<const COLUMNS: usize>(titles: [&str; COLUMNS]) -> Self {
        let titles = titles.map(|title| Cell::coloured(title, Colour::Dim));
        Self { rows: vec![titles.into()] }
    }

    /// Adds a row.
    pub(crate) fn row<const COLUMNS: usize>(&mut self, cells: [Cell; COLUMNS]) {
        self.rows.push(cells.into());
    }

    /// The lines of the table, indented by two, without trailing spaces.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| self.rows.iter().filter_map(|row: &Vec<Cell>| row.get(column)).map(Cell::width).max();
        let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        self.rows.iter().map(|row| line(row, &widths)).collect()
    }
}

impl Cell {
    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

fn line(row: &[Cell], widths: &[usize]) -> String {
    let last = row.iter().rposition(|cell| !cell.text.is_empty());
    let shown = &row[..last.map_or(0, |last| last + 1)];
    let mut line = String::new();
    let mut gap = 2;
    for (cell, width) in shown.iter().zip(widths) {
        line.extend(std::iter::repeat_n(' ', gap));
        match cell.colour {
            Some(colour) => line.push_str(&colour.paint(&cell.text)),
            None => line.push_str(&cell.text),
        }
        gap = 2 + width - cell.width();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let mut table = Table::new(["key", "rows", "verdict"]);
        table.row(["order ü".into(), "1".into(), Cell::coloured("ok", Colour::Good)]);
        table.row(["k".into(), "".into(), "".into()]);
        assert_eq!(table.lines(), ["  key      rows  verdict", "  order ü  1     ok", "  k"]);
    }
}
