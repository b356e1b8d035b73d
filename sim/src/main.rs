//! Runs histories until one breaks the promise: `sim [--seconds N | --steps N | --histories N] [--seed S] [--bug NAME]
//! [--trace] [--json FILE] [--commit NAME] [--bugs]`.

use std::{
    fs,
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use lambda_once_sim::{
    bugs::Bug,
    counters::Counters,
    history::History,
    judge::{Violation, judge},
    simulate,
};
use serde_json::{Map, Value};

const USAGE: &str = "\
usage: sim [OPTION ...]
  --seconds N    stop after this time (default 60)
  --steps N      stop after this number of steps
  --histories N  stop after this number of histories
  --seed S       the seed of the first history (default 0, with --json the next one of the file); each further one has
                 the next
  --bug NAME     plant a bug, and stop when it is found
  --bugs         find each planted bug, and print the table of operations until then
  --trace        print every history
  --json FILE    add the counters to those in the file
  --commit NAME  the name under which --json adds them, besides the total";

#[derive(Debug, Default)]
struct Options {
    seconds: Option<u64>,
    steps: Option<u64>,
    histories: Option<u64>,
    seed: Option<u64>,
    bug: Option<Bug>,
    all_bugs: bool,
    trace: bool,
    json: Option<String>,
    commit: Option<String>,
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help") {
        say(USAGE);
        return ExitCode::SUCCESS;
    }
    match options(std::env::args().skip(1)) {
        Ok(options) if options.all_bugs => bugs(&options),
        Ok(options) => run(&options),
        Err(message) => {
            complain(&format!("{message}\n{USAGE}"));
            ExitCode::from(2)
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let number = |text: String| text.replace('_', "").parse::<u64>().map_err(|_| format!("{text}: not a number"));
        match &*name {
            "--seconds" => options.seconds = Some(number(value()?)?),
            "--steps" => options.steps = Some(number(value()?)?),
            "--histories" => options.histories = Some(number(value()?)?),
            "--seed" => options.seed = Some(number(value()?)?),
            "--bug" => {
                let name = value()?;
                options.bug = Some(Bug::named(&name).ok_or(format!("{name}: no such bug"))?);
            }
            "--bugs" => options.all_bugs = true,
            "--trace" => options.trace = true,
            "--json" => options.json = Some(value()?),
            "--commit" => options.commit = Some(value()?),
            _ => return Err(format!("{name}: no such option")),
        }
    }
    Ok(options)
}

/// The histories of successive seeds, up to a limit or to a violation.
struct Search {
    counters: Counters,
    begun: Instant,
    found: Option<(u64, History, Vec<Violation>)>,
}

fn search(options: &Options, first: u64, bug: Option<Bug>) -> Search {
    let mut search = Search { counters: Counters::default(), begun: Instant::now(), found: None };
    let is_bounded = options.steps.is_some() || options.histories.is_some();
    let seconds = options.seconds.or((!is_bounded).then_some(60)).map(Duration::from_secs);
    for seed in first.. {
        let Search { counters, begun, .. } = &search;
        if seconds.is_some_and(|seconds| begun.elapsed() >= seconds)
            || options.steps.is_some_and(|steps| counters.steps >= steps)
            || options.histories.is_some_and(|histories| counters.histories >= histories)
        {
            break;
        }
        let (history, counters) = simulate(seed, bug);
        search.counters.merge(&counters);
        if options.trace {
            say(&format!("seed {seed}: {:?}\n{:#?}", history.terms, history.keys));
            history.events.iter().for_each(|event| say(&event.to_string()));
        }
        let violations = judge(&history);
        if !violations.is_empty() {
            search.found = Some((seed, history, violations));
            break;
        }
    }
    search
}

fn run(options: &Options) -> ExitCode {
    let mut file = match options.json.as_deref().map(read_json).transpose() {
        Ok(file) => file,
        Err(error) => {
            complain(&format!("the file of --json: {error}"));
            return ExitCode::from(2);
        }
    };
    let next = file.as_ref().and_then(|file| file.get(NEXT_SEED)?.as_u64());
    let first = options.seed.or(next).unwrap_or(0);
    let search = search(options, first, options.bug);
    print_counters(&search.counters, search.begun.elapsed());
    if let (Some(path), Some(file)) = (&options.json, &mut file) {
        add_counters(file, options.commit.as_deref(), first, &search.counters);
        let text = serde_json::to_string_pretty(file).map_err(io::Error::from);
        if let Err(error) = text.and_then(|text| fs::write(path, text + "\n")) {
            complain(&format!("{path}: {error}"));
            return ExitCode::from(2);
        }
    }
    let Some((seed, history, violations)) = search.found else { return ExitCode::SUCCESS };
    let key = violations[0].key;
    say(&format!("\nseed {seed}, {:?}\n{:?}", history.terms, history.keys[key as usize]));
    say(&history.of_key(key));
    for violation in &violations {
        say(&format!("violated: {violation}"));
    }
    let bug = options.bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    say(&format!("\nto replay: make sim SIM_ARGS='--seed {seed} --histories 1{bug}'"));
    ExitCode::FAILURE
}

/// Prints the number of operations after which each bug is found.
fn bugs(options: &Options) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    say("| rule | bug | found by | histories | operations |\n|---|---|---|---:|---:|");
    for bug in Bug::ALL {
        let Search { counters, found, .. } = search(options, options.seed.unwrap_or(0), Some(*bug));
        let property = match &found {
            Some((_, _, violations)) => violations[0].property,
            None => {
                code = ExitCode::FAILURE;
                "**not found**"
            }
        };
        let Counters { histories, operations, .. } = counters;
        let (rule, text) = (bug.rule(), bug.description());
        say(&format!("| {rule} | `{}`: {text} | {property} | {histories} | {operations} |", bug.name()));
    }
    code
}

fn print_counters(counters: &Counters, time: Duration) {
    for (name, count) in counters.rows() {
        say(&format!("{count:>14}  {name}"));
    }
    let rate = u128::from(counters.steps) * 1_000 / time.as_millis().max(1);
    say(&format!("{rate:>14}  steps per second, for {} s", time.as_secs()));
}

const NEXT_SEED: &str = "next seed";

fn read_json(path: &str) -> io::Result<Map<String, Value>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error),
    }
}

/// Adds the counters to the totals of the file and of the commit.
fn add_counters(file: &mut Map<String, Value>, commit: Option<&str>, first: u64, counters: &Counters) {
    for name in ["total"].into_iter().chain(commit) {
        let part = file.entry(name).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(part) = part {
            counters.add_to(part);
        }
    }
    file.insert(NEXT_SEED.to_owned(), (first + counters.histories).into());
}

fn say(text: &str) {
    // A reader that has seen enough closes the pipe.
    let _ = writeln!(io::stdout(), "{text}");
}

fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
