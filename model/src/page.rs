//! The tables of docs/internals/model.md.

use std::fs;

use crate::{
    promise::is_rule,
    run::{BugReport, Detected, WorldReport},
};

/// From the root of the repository.
const PAGE: &str = "docs/internals/model.md";

const OF_WORLDS: &str = "| world | contents | states |";
const OF_BUGS: &str = "| rule | mutation | detected in | kind | what breaks | steps | states |";

/// Returns the length of a trace.
pub(crate) fn steps(detected: &Detected) -> String {
    detected.steps.map_or("explored to its end".to_owned(), |steps| format!("{steps} steps"))
}

fn world_row(of: &WorldReport) -> String {
    format!("| {} | {} | {} |", of.world.name, of.world.about, grouped(of.states))
}

fn bug_row(of: &BugReport) -> String {
    let (rule, what) = (of.planted.rule, of.planted.what);
    match &of.detected {
        Some(found) => {
            let steps = found.steps.map_or(String::new(), |steps| steps.to_string());
            let Detected { world, promise, states, .. } = found;
            format!("| {rule} | {what} | {world} | {} | {promise} | {steps} | {} |", kind(found), grouped(*states))
        }
        None => format!("| {rule} | {what} | none | | {} | | |", of.planted.harmless.unwrap_or_default()),
    }
}

/// Returns the kind of check that a bug breaks.
fn kind(detected: &Detected) -> &'static str {
    match detected.steps {
        None => "outcome",
        Some(_) if is_rule(&detected.promise) => "rule",
        Some(_) => "promise",
    }
}

/// Returns the number of bugs of each kind, and of those that none detects.
pub(crate) fn kinds(of_bugs: &[BugReport]) -> String {
    let count =
        |of: &str| of_bugs.iter().filter_map(|bug| bug.detected.as_ref()).filter(|found| kind(found) == of).count();
    let none = of_bugs.iter().filter(|bug| bug.detected.is_none()).count();
    let (promises, rules, outcomes) = (count("promise"), count("rule"), count("outcome"));
    format!(
        "{promises} break a promise, {rules} the check of a rule, {outcomes} reach an outcome no more, {none} are not detected"
    )
}

/// Returns a number with commas between its thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let comma = |place: usize| if place > 0 && (digits.len() - place).is_multiple_of(3) { "," } else { "" };
    digits.chars().enumerate().map(|(place, digit)| format!("{}{digit}", comma(place))).collect()
}

/// Replaces the rows of the table with this header. Returns `None` without such a table.
fn replaced(page: &str, header: &str, rows: &[String]) -> Option<String> {
    let begin = page.find(header)?;
    let end = begin + page[begin..].find("\n\n").unwrap_or(page.len() - begin);
    let line = format!("|{}", "---|".repeat(header.matches('|').count() - 1));
    let table = [&[header.to_owned(), line], rows].concat().join("\n");
    Some(format!("{}{table}{}", &page[..begin], page[end..].trim_end_matches('\n').to_owned() + "\n"))
}

/// Returns the words of a table's rows, without numbers.
fn words<'p>(page: &'p str, header: &str, columns: usize) -> Vec<Vec<&'p str>> {
    let rows = page.split_once(header).map_or("", |(_, rest)| rest);
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).take(columns).map(str::trim).collect()).collect()
}

/// Compares the page's tables with the results, apart from numbers, or updates them. Returns whether they are equal.
pub(crate) fn compare(of_worlds: &[WorldReport], of_bugs: &[BugReport], writes: bool) -> bool {
    let Ok(page) = fs::read_to_string(PAGE) else {
        eprintln!("{PAGE}: cannot be read; run this from the root of the repository");
        return false;
    };
    let worlds: Vec<String> = of_worlds.iter().map(world_row).collect();
    let bugs: Vec<String> = of_bugs.iter().map(bug_row).collect();
    let updated = replaced(&page, OF_WORLDS, &worlds).and_then(|page| replaced(&page, OF_BUGS, &bugs));
    let Some(updated) = updated else {
        eprintln!("{PAGE}: has no tables of worlds and mutations");
        return false;
    };
    if writes {
        return fs::write(PAGE, updated).is_ok();
    }
    let is_equal = [(OF_WORLDS, 2), (OF_BUGS, 5)]
        .iter()
        .all(|(header, columns)| words(&page, header, *columns) == words(&updated, header, *columns));
    if !is_equal {
        eprintln!("{PAGE}: its tables differ; update them by `make model MODEL_ARGS=--write`");
    }
    is_equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bugs::BUGS, worlds::worlds};

    fn page() -> String {
        fs::read_to_string(format!("../{PAGE}")).expect("the page")
    }

    #[test]
    fn the_page_lists_each_world() {
        let worlds: Vec<_> = worlds().iter().map(|world| vec![world.name, world.about]).collect();
        assert_eq!(words(&page(), OF_WORLDS, 2), worlds);
    }

    #[test]
    fn the_page_lists_each_bug_and_a_world_that_may_detect_it() {
        let page = page();
        let rows = words(&page, OF_BUGS, 5);
        assert_eq!(rows.len(), BUGS.len());
        for (row, planted) in rows.iter().zip(BUGS) {
            assert_eq!(row[..2], [planted.rule, planted.what]);
            match planted.harmless {
                Some(why) => assert_eq!(row[2..], ["none", "", why]),
                None => assert!(planted.worlds.contains(&row[2]), "{row:?}"),
            }
        }
    }

    #[test]
    fn the_worlds_of_a_bug_exist() {
        let worlds: Vec<_> = worlds().iter().map(|world| world.name).collect();
        for planted in BUGS {
            assert!(
                !planted.worlds.is_empty() && planted.worlds.iter().all(|name| worlds.contains(name)),
                "{planted:?}"
            );
        }
    }

    #[test]
    fn a_table_is_replaced_between_its_header_and_the_next_empty_line() {
        let page = format!("a\n\n{OF_WORLDS}\n|---|---|---|\n| old | | 1 |\n\nb\n");
        let new = replaced(&page, OF_WORLDS, &["| new | | 1,000 |".to_owned()]).expect("a table");
        assert_eq!(new, format!("a\n\n{OF_WORLDS}\n|---|---|---|\n| new | | 1,000 |\n\nb\n"));
        assert_eq!(words(&new, OF_WORLDS, 2), [["new", ""]]);
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
