//! Standard output, and the exit status of a command, also for wrong usage.

use std::{
    error::Error,
    fmt,
    io::{self, Write},
    process::ExitCode,
};

/// Wrong usage that the command line itself does not show. Its exit code is the same.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl Usage {
    /// Returns an error as one of wrong usage.
    pub(crate) fn of(error: impl Into<anyhow::Error>) -> anyhow::Error {
        Self(format!("{:#}", error.into())).into()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// The end of a command without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything was done as requested.
    Done,
    /// There is no such record, mark or message.
    Nothing,
    /// Something was not done: not applicable, not confirmed, changed meanwhile, or failed.
    Partly,
    /// A check found something.
    Findings,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::Nothing => 3,
            Ending::Partly => 4,
            Ending::Findings => 5,
        })
    }
}

/// Prints text that ends with a line break. A reader that has exited, such as `head`, is not an error.
///
/// # Errors
///
/// Returns the errors of standard output.
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
/// Returns the errors of [`text`].
pub(crate) fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}
