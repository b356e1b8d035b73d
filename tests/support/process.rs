//! Processes that a test starts, stops and kills. Each is the test binary itself, which runs a single test, and finds its
//! work in environment variables.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A running process, which ends with the test.
pub struct Process {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl Process {
    /// Starts a process that runs this test of the binary, with these environment variables.
    pub fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = unbounded_channel();
        // It ends with the process.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Returns whether the test passes in a process that runs it alone with these environment variables.
    pub fn passes(test: &str, variables: &[(&str, &str)]) -> bool {
        let mut command = Command::new(env::current_exe().unwrap());
        let output = command.args(["--exact", test]).envs(variables.iter().copied()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("test result: ok. 1 passed")
    }

    /// Returns the next line that it writes to standard error, or `None` after its end. Panics after two silent minutes.
    pub async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(Duration::from_secs(120), self.lines.recv()).await.expect("it writes or ends")
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Kills it (`SIGKILL`), without a chance to write anything.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, and returns whether it succeeded.
    pub fn succeeds(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
