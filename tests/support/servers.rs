//! Servers that a single test starts, kills and restarts.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use tokio::task::block_in_place;

/// A server that ends with the test.
pub struct Server {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    /// Starts a server of this kind (see `tools/servers/serve.py`) with these settings, such as `appendonly=yes`.
    pub fn start(kind: &str, settings: &[&str]) -> Self {
        block_in_place(|| {
            let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
            let mut command = Command::new(python);
            // A member of the workspace finds the tools in the directory above its own.
            command
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
            command.args(["-m", "tools.servers.serve", kind]).args(settings);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn().expect("python3 is installed");
            let commands = process.stdin.take();
            let answers = BufReader::new(process.stdout.take().expect("it is piped"));
            let mut server = Self { process, commands, answers, url: String::new() };
            server.url = server.line();
            server
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills it, without a chance to write anything.
    pub fn kill(&mut self) {
        self.perform("kill");
    }

    /// Stops it in the regular way.
    pub fn stop(&mut self) {
        self.perform("stop");
    }

    /// Restarts it, with its data and port.
    pub fn restart(&mut self) {
        self.perform("start");
    }

    /// Suspends it until [`resume`](Self::resume).
    pub fn freeze(&mut self) {
        self.perform("freeze");
    }

    pub fn resume(&mut self) {
        self.perform("resume");
    }

    /// Does the same as [`kill`](Self::kill) for one node of a cluster.
    pub fn kill_node(&mut self, node: usize) {
        self.perform(&format!("kill {node}"));
    }

    /// Does the same as [`restart`](Self::restart) for one node of a cluster, and waits until it serves its slots.
    pub fn restart_node(&mut self, node: usize) {
        self.perform(&format!("start {node}"));
    }

    /// Does the same as [`freeze`](Self::freeze) for one node of a cluster.
    pub fn freeze_node(&mut self, node: usize) {
        self.perform(&format!("freeze {node}"));
    }

    pub fn resume_node(&mut self, node: usize) {
        self.perform(&format!("resume {node}"));
    }

    fn perform(&mut self, command: &str) {
        block_in_place(|| {
            writeln!(self.commands.as_ref().expect("it runs"), "{command}").expect("it runs");
            assert_eq!(self.line(), "done", "{command}");
        });
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends with its input.
        self.commands = None;
        let _ = self.process.wait();
    }
}
