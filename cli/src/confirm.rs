//! Confirmation on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Result, ensure};

/// Shows what would be done, and asks.
///
/// # Errors
///
/// Returns an error if there is no terminal.
pub(crate) fn is_confirmed(table: &str, question: &str) -> Result<bool> {
    ensure!(has_terminal(), "there is no terminal to confirm on: give --yes, after a look at --dry-run");
    eprint!("{table}{question}? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn has_terminal() -> bool {
    io::stdin().is_terminal()
}
