//! A server of a test's own, which the test stops, kills and starts again: `tools/serve.py` as a child process.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A running server. It ends when this is dropped. Its methods block the thread until they are done.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Closed by a drop, so that the program ends.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    /// Starts a `valkey`, a `valkey-cluster` or a `postgres` with settings of its configuration, `name=value`.
    pub fn start(server: &str, settings: &[&str]) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/serve.py");
        let mut process = Command::new("python3")
            .arg(program)
            .arg(server)
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, commands, answers, url: String::new() };
        server.url = server.answer();
        assert!(server.url.contains("://"), "the server does not start: {:?}", server.url);
        server
    }

    /// Where it is. It stays there when it is started again.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it at once, without a chance to write anything or to say good-bye.
    pub fn kill(&mut self) {
        self.command("kill");
    }

    /// Ends it as its operator would.
    pub fn stop(&mut self) {
        self.command("stop");
    }

    /// Starts it again with the data that it has, and waits until it answers.
    pub fn restart(&mut self) {
        self.command("start");
    }

    /// Stops it from doing anything, with its connections open.
    pub fn freeze(&mut self) {
        self.command("freeze");
    }

    /// Ends a [`freeze`](Self::freeze).
    pub fn resume(&mut self) {
        self.command("resume");
    }

    fn command(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").expect("the program listens");
        assert_eq!(self.answer(), "done", "{command}");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        line.trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.process.wait(); // fails only if it has been waited for
    }
}
