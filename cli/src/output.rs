//! Standard output, and how a command ends.

use std::{
    io::{self, Write},
    process::ExitCode,
};

/// The end of a command without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All is as it was asked for.
    Done,
    /// Something was not: no such record, changed meanwhile, not applicable.
    Partly,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::Partly => 1,
        })
    }
}

/// Prints text that ends with a line break. A reader that has gone, such as `head`, is no error.
///
/// # Errors
///
/// Those of standard output.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a line.
///
/// # Errors
///
/// As of [`text`].
pub(crate) fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}
