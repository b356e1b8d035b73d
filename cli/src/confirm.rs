//! Confirmation on the terminal.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    pin::pin,
    thread,
    time::Duration,
};

use anyhow::Result;
use tokio::{signal::ctrl_c, sync::oneshot, time::timeout};

use crate::output::Usage;

/// Shows the plan, and asks for confirmation. An interrupt (Ctrl-C) means no.
///
/// # Errors
///
/// As of [`check_terminal`].
pub(crate) async fn is_confirmed(table: &str, question: &str) -> Result<bool> {
    check_terminal()?;
    let mut interrupt = pin!(ctrl_c());
    // Registers it before the question can be seen.
    let _ = timeout(Duration::ZERO, &mut interrupt).await;
    eprint!("{table}{question}? [y/N] ");
    io::stderr().flush()?;
    let (answer, answered) = oneshot::channel();
    // A task that reads would keep the program from ending.
    thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        // Nobody waits for it after an interrupt.
        let _ = answer.send(read.map(|_| line));
    });
    tokio::select! {
        biased;
        _ = interrupt => {
            eprintln!();
            Ok(false)
        }
        line = answered => Ok(matches!(line??.trim(), "y" | "Y" | "yes")),
    }
}

/// # Errors
///
/// Returns wrong usage if there is no terminal to confirm on.
pub(crate) fn check_terminal() -> Result<()> {
    let why = "there is no terminal to confirm on: give --yes, after a look at --dry-run";
    if io::stdin().is_terminal() { Ok(()) } else { Err(Usage(why.to_owned()).into()) }
}
