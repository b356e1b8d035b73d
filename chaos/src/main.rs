//! `chaos --store dynamodb|redis|postgres [OPTION ...]`: see `--help`.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use lambda_once_chaos::{Options, ROLE, USAGE, run, work};

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return work(&role);
    }
    if env::args().any(|argument| argument == "--help") {
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Options::parse(env::args().skip(1)) {
        Ok(options) => run(options),
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
