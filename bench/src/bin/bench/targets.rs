//! The library's targets, and whether it meets them.

use crate::table::{Table, figure};

/// A figure and its limit.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) figure: Option<f64>,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
}

impl Target {
    pub(crate) fn new(what: impl Into<String>, figure: Option<f64>, limit: f64, unit: &'static str) -> Self {
        Self { what: what.into(), figure, limit, unit }
    }

    fn verdict(&self) -> &'static str {
        match self.figure {
            None => "not measured",
            Some(figure) if figure <= self.limit => "kept",
            Some(_) => "missed",
        }
    }
}

pub(crate) fn table<'a>(targets: impl Iterator<Item = &'a Target>) -> Table {
    let mut table = Table::new("Targets", ["target", "at most", "measured", ""]);
    for target in targets {
        let with_unit = |value: f64| format!("{} {}", figure(value), target.unit).trim_end().to_owned();
        let measured = target.figure.map_or_else(|| "–".to_owned(), with_unit);
        table.row([target.what.clone(), with_unit(target.limit), measured, target.verdict().to_owned()]);
    }
    table
}
