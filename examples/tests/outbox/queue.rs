//! A relay's standard output, which is its queue.

use std::process::Stdio;

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::TIMEOUT;

#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    pub id: String,
    pub payload: String,
}

/// A relay, and its output that has not been read.
pub struct Relay {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Relay {
    pub fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Returns the next message, or `None` when the process has ended.
    pub async fn next(&mut self) -> Option<Message> {
        let mut line = String::new();
        timeout(TIMEOUT, self.output.read_line(&mut line)).await.expect("a message in time").unwrap();
        // A message that was being written when the process was killed was not published.
        line.ends_with('\n').then(|| serde_json::from_str(&line).unwrap())
    }

    /// Kills it, and returns the messages that it had published.
    pub async fn kill(mut self) -> Vec<Message> {
        self.process.kill().await.unwrap();
        let mut published = Vec::new();
        while let Some(message) = self.next().await {
            published.push(message);
        }
        published
    }

    /// Closes its output, so that every further message is refused.
    pub fn close_queue(self) -> Child {
        self.process
    }

    /// Reads it to its end, which is the end of the task.
    pub fn forward(self, to: mpsc::UnboundedSender<Message>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let Self { process: _process, output } = self;
            let mut lines = output.lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                to.send(serde_json::from_str(&line).unwrap()).unwrap();
            }
        })
    }
}
