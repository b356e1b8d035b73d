//! Turns a page into a module with the page as its documentation.

/// Begins an HTML comment with hidden lines of the next block.
const HIDDEN: &str = "<!-- rust";

/// Separates the hidden lines before the block from those after it.
const BLOCK: &str = "...";

/// Returns the source of a module. A block begins and ends at the same lines as in the page, including its hidden
/// lines, so that the line number of a failing block is correct.
///
/// # Errors
///
/// Returns a line number and the mistake: a Rust block that is not compiled, lines that only the book hides, or hidden lines
/// without a following block.
pub(crate) fn module(page: &str) -> Result<String, String> {
    let mut documentation = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let mut next = || lines.next().map(|(line, _)| line);
        let mut through = |end: &str| std::iter::from_fn(&mut next).take_while(|line| *line != end).collect::<Vec<_>>();
        if line.starts_with(HIDDEN) {
            let hidden = through("-->");
            let [fence, block @ ..] = &through("```")[..] else { return Err(missing(number)) };
            if !fence.starts_with("```rust") {
                return Err(missing(number));
            }
            check(block, number)?;
            let (before, after) = match hidden.iter().position(|line| *line == BLOCK) {
                Some(place) => (&hidden[..place], &hidden[place + 1..]),
                None => (&hidden[..], &[][..]),
            };
            let hide = |line: &&str| format!("# {line}");
            documentation.push(line.replacen("<!-- ", "```", 1));
            documentation.extend(before.iter().map(hide));
            documentation.extend(block.iter().map(|&line| line.to_owned()));
            documentation.extend(after.iter().map(hide));
            // Keeps the number of lines of the page.
            documentation.extend(vec!["#".to_owned(); 2 + hidden.len() - before.len() - after.len()]);
            documentation.push("```".to_owned());
        } else if let Some(language) = line.strip_prefix("```") {
            if language.starts_with("rust") && language.contains("ignore") {
                return Err(format!("{number}: the block is not compiled"));
            }
            // Without a language, rustdoc assumes Rust.
            documentation.push(format!("```{}", if language.is_empty() { "text" } else { language }));
            let block = through("```");
            if language.starts_with("rust") {
                check(&block, number)?;
            }
            documentation.extend(block.into_iter().map(str::to_owned));
            documentation.push("```".to_owned());
        } else {
            documentation.push(line.to_owned());
        }
    }
    Ok(documentation.into_iter().map(|line| format!("//! {line}\n")).collect())
}

/// Refuses lines that rustdoc and the book hide, but not GitHub.
fn check(block: &[&str], number: i32) -> Result<(), String> {
    let is_hidden = |line: &&str| line.starts_with("# ") || *line == "#";
    match block.iter().find(|line| is_hidden(line)) {
        Some(line) => Err(format!("{number}: `{line}` belongs into an HTML comment before the block")),
        None => Ok(()),
    }
}

fn missing(number: i32) -> String {
    format!("{number}: no block follows the hidden lines")
}

#[cfg(test)]
mod tests {
    use super::module;

    #[test]
    fn hidden_lines_enclose_the_block_below_and_the_text_keeps_its_lines() {
        let page = "A\n<!-- rust,no_run\nasync fn f() {\n...\n}\n-->\n```rust\ng();\n```\nB\n";
        let source =
            "//! A\n//! ```rust,no_run\n//! # async fn f() {\n//! g();\n//! # }\n//! #\n//! #\n//! #\n//! ```\n//! B\n";
        assert_eq!(module(page).as_deref(), Ok(source));
        assert_eq!(source.lines().count(), page.lines().count());
    }

    #[test]
    fn without_a_separator_all_hidden_lines_are_before_the_block() {
        let source = "//! ```rust\n//! # use a::b;\n//! b();\n//! #\n//! #\n//! ```\n";
        assert_eq!(module("<!-- rust\nuse a::b;\n-->\n```rust\nb();\n```\n").as_deref(), Ok(source));
    }

    #[test]
    fn a_line_that_only_the_book_hides_is_refused() {
        let refusal = Err("1: `# use a::b;` belongs into an HTML comment before the block".to_owned());
        assert_eq!(module("```rust\n# use a::b;\nb();\n```\n"), refusal);
        assert_eq!(module("<!-- rust\n-->\n```rust\n# use a::b;\nb();\n```\n"), refusal);
        assert!(module("```console\n# cat file\n```\n").is_ok());
    }

    #[test]
    fn a_block_of_no_language_is_text() {
        assert_eq!(module("```\na b\n```\n").as_deref(), Ok("//! ```text\n//! a b\n//! ```\n"));
    }

    #[test]
    fn a_block_that_is_not_compiled_is_refused() {
        assert_eq!(module("A\n```rust,ignore\n```\n").unwrap_err(), "2: the block is not compiled");
    }

    #[test]
    fn hidden_lines_without_a_block_are_refused() {
        for page in ["A\n<!-- rust\nuse a::b;\n-->\n\n```rust\n```\n", "A\n<!-- rust\nuse a::b;\n"] {
            assert_eq!(module(page).unwrap_err(), "2: no block follows the hidden lines");
        }
    }
}
