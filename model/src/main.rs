//! The model of the protocol: small worlds of workers, a store and faults, in which every promise is checked in every
//! state, and planted bugs, which some world must detect.
//!
//! `model` explores all worlds and plants all bugs. `model --trace C5` prints the shortest trace to a broken promise
//! for each bug against a rule. `model --write` updates the tables in docs/internals/model.md. `model --deep` explores
//! larger worlds, for `--minutes` or until all are explored, and resumes where it was stopped. Names of worlds select
//! some.

mod bugs;
mod convert;
mod deep;
mod explorer;
mod page;
mod planted;
mod promise;
mod run;
mod state;
mod statement;
mod store;
mod system;
mod words;
mod worker;
mod world;
mod worlds;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let mut take = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name);
        place.map(|place| arguments.remove(place)).is_some()
    };
    let (is_deep, writes, traces, is_timed) = (take("--deep"), take("--write"), take("--trace"), take("--minutes"));
    if let Some(unknown) = arguments.iter().find(|argument| argument.starts_with('-')) {
        eprintln!("{unknown}: not an option");
        return ExitCode::FAILURE;
    }
    let minutes = if is_timed && !arguments.is_empty() { arguments.remove(0).parse().ok() } else { None };
    if is_timed && (minutes.is_none() || !is_deep) {
        eprintln!("--minutes needs a number, and --deep");
        return ExitCode::FAILURE;
    }
    let passes = if traces {
        run::trace(&arguments)
    } else if is_deep {
        deep::explore(&arguments, minutes)
    } else {
        run::all(&arguments, writes)
    };
    if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
