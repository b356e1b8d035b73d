//! Updates some sections of the page.

use anyhow::{Context, Result};

use crate::table::Table;

/// Replaces the section with this title, up to the next one.
pub(crate) fn replace_section(page: &str, title: &str, section: &str) -> Result<String> {
    let (before, rest) = split_at_section(page, title)?;
    let after = rest[1..].find("\n## ").map_or("", |end| &rest[1 + end..]);
    Ok(format!("{before}\n{section}{after}"))
}

/// Replaces the measured rows of the last section's table, and keeps the others.
pub(crate) fn replace_rows(page: &str, mut table: Table) -> Result<String> {
    let (before, rest) = split_at_section(page, &table.title)?;
    let row = |line: &str| Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned).collect());
    let mut rows: Vec<Vec<String>> = rest.lines().filter_map(row).skip(1).collect();
    let is_new = |row: &Vec<String>| table.rows.iter().any(|new| new.first() == row.first());
    let at = rows.iter().position(is_new).unwrap_or(rows.len());
    rows.retain(|row| !is_new(row));
    rows.splice(at..at, std::mem::take(&mut table.rows));
    table.rows = rows;
    Ok(format!("{before}\n{}", table.markdown("##")))
}

fn split_at_section<'a>(page: &'a str, title: &str) -> Result<(&'a str, &'a str)> {
    let heading = format!("\n## {title}\n");
    let at = page.find(&heading).with_context(|| format!("the page has no section `{title}`: measure all of it"))?;
    Ok(page.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_sections_and_rows_are_kept() {
        let page = "# P\n\n## A\n\nold\n\n## B\n\nkept\n\n## T\n\n| t | v |\n|---|---:|\n| a | 1 |\n| b | 2 |\n";
        let page = replace_section(page, "A", "## A\n\nnew\n").unwrap();
        let mut table = Table::new("T", ["t", "v"]);
        table.row(["a0", "0"]);
        table.row(["a", "9"]);
        let rows = "## T\n\n| t | v |\n|---|---:|\n| a0 | 0 |\n| a | 9 |\n| b | 2 |\n";
        assert_eq!(replace_rows(&page, table).unwrap(), format!("# P\n\n## A\n\nnew\n\n## B\n\nkept\n\n{rows}"));
        assert!(replace_section(&page, "C", "").is_err());
    }
}
