//! A process that runs functions with AWS Powertools: tools/tests/workers/worker.py and worker.mjs.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

use serde_json::Value;

/// The worker's name of its Lambda function.
pub(crate) const FUNCTION: &str = "orders";

/// The language of Powertools under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    TypeScript,
}

struct Worker {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    // It ends with its standard input, and that with this process.
    _process: Child,
}

impl Worker {
    fn start(language: Language) -> Self {
        let variable = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set. Run the tests with `make test`"))
        };
        let mut command = match language {
            Language::Python => Command::new(variable("POWERTOOLS_PYTHON")),
            Language::TypeScript => Command::new(variable("POWERTOOLS_NODE")),
        };
        let script = if language == Language::Python { "worker.py" } else { "worker.mjs" };
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tools/tests/workers/").to_owned() + script);
        command.env("AWS_LAMBDA_FUNCTION_NAME", FUNCTION).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { requests, answers, _process: process }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|_| panic!("the worker's answer to {request} is {answer:?}"))
    }
}

/// Returns the response of the language's worker, which is started once. A held call does not delay others.
pub(crate) fn ask(language: Language, request: &Value) -> Value {
    static PYTHON: LazyLock<Mutex<Worker>> = LazyLock::new(|| Mutex::new(Worker::start(Language::Python)));
    static TYPESCRIPT: LazyLock<Mutex<Worker>> = LazyLock::new(|| Mutex::new(Worker::start(Language::TypeScript)));
    let worker = match language {
        Language::Python => &PYTHON,
        Language::TypeScript => &TYPESCRIPT,
    };
    tokio::task::block_in_place(|| worker.lock().unwrap_or_else(PoisonError::into_inner).ask(request))
}
