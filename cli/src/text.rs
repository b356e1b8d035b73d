//! Text for a terminal.

use std::fmt::Write;

use serde::Serialize;

/// The width of wrapped text.
const WIDTH: usize = 100;

/// Returns whether a terminal obeys the character instead of showing it.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a value as JSON in one line, which contains such characters only as escapes.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(text.chars().fold(String::new(), |mut json, c| {
        if is_hidden(c) {
            // It is written to memory. All of them have four digits.
            let _ = write!(json, "\\u{:04x}", u32::from(c));
        } else {
            json.push(c);
        }
        json
    }))
}

/// Returns text from a record, without control characters, because a client may have chosen it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().fold(String::new(), |mut plain, c| {
        if is_hidden(c) {
            // It is written to memory.
            let _ = write!(plain, "{}", c.escape_unicode());
        } else {
            plain.push(c);
        }
        plain
    })
}

/// Wraps the text at 100 characters, and indents each line after the first. The first line must already be indented.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), indent);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Returns rows in columns, two spaces apart.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    rows.iter().fold(String::new(), |mut out, row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_a_label_that_cannot_control_the_terminal() {
        let label = "a\u{9b}2J\u{202e}\u{7f}é";
        let text = json(&label).unwrap();
        assert_eq!(text, r#""a\u009b2J\u202e\u007fé""#);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), label);
    }

    #[test]
    fn a_label_cannot_control_the_terminal() {
        assert_eq!(plain("order é 7"), "order é 7");
        assert_eq!(plain("\u{1b}[2Jx\n\u{202e}"), "\\u{1b}[2Jx\\u{a}\\u{202e}");
    }

    #[test]
    fn long_text_is_wrapped_at_words() {
        let text = ["word"; 30].join(" ");
        let wrapped = wrapped(&text, 10);
        let lines: Vec<_> = wrapped.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), 89);
        assert!(lines[1].starts_with("          word word"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B"], ["long", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "A     B\nlong  x\n");
    }
}
