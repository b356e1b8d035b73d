//! A child process that is stopped together with everything it started.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The time that processes have to stop before they are killed.
const GRACE: Duration = Duration::from_secs(3);

/// The interval of checks whether a process has ended.
const POLL: Duration = Duration::from_millis(10);

/// A process in a separate group. Dropping it stops it and its descendants, including any that have
/// moved into other groups.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    child: Child,
}

impl ProcessTree {
    /// Starts `command` as the leader of a new process group. A terminal's Ctrl-C does not reach
    /// it: whoever owns the value decides when it stops.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        Ok(Self { child })
    }

    /// The process that was started, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the process has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn wait(&mut self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        while !self.has_ended() {
            if Instant::now() >= until {
                return false;
            }
            sleep(POLL);
        }
        true
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        let leader = Pid::from_child(&self.child);
        let descendants = descendants(leader);
        if !self.has_ended() {
            // Errors mean that no process is left to signal.
            let _ = kill_process_group(leader, Signal::TERM);
            if !self.wait(GRACE) {
                let _ = kill_process_group(leader, Signal::KILL);
                let _ = self.child.wait();
            }
        }
        for process in descendants.into_iter().filter(Process::still_runs) {
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

/// A process in `/proc`. The start time distinguishes it from a later one with the same id.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: i32,
    started: u64,
}

impl Process {
    fn still_runs(&self) -> bool {
        read(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// Returns all descendants of `ancestor`, nearest first. Empty if the system has no `/proc`.
fn descendants(ancestor: Pid) -> Vec<Process> {
    let mut others: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| read(Pid::from_raw(pid)?))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![ancestor.as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|process| process.parent == parent);
        parents.extend(children.iter().map(|child| child.pid.as_raw_nonzero().get()));
        found.extend(children);
        others = rest;
    }
    found
}

/// Reads `/proc/PID/stat`: the command's name is in parentheses and may contain anything, the
/// other fields follow it.
fn read(pid: Pid) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    (state != "Z").then_some(Process { pid, parent, started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::BufRead as _, process::Stdio};

    #[test]
    fn a_grandchild_in_its_own_process_group_is_stopped_too() {
        // `set -m` gives the background job a separate process group. It ignores SIGTERM.
        let mut tree = ProcessTree::spawn(
            Command::new("bash")
                .args(["-c", "set -m; (trap '' TERM; while :; do sleep 1; done) & echo $!; wait"])
                .stdout(Stdio::piped()),
        )
        .unwrap();
        let stdout = tree.child().stdout.take().unwrap();
        let mut line = String::new();
        io::BufReader::new(stdout).read_line(&mut line).unwrap();
        let grandchild = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        assert!(read(grandchild).is_some());

        drop(tree);
        sleep(Duration::from_millis(50));
        assert_eq!(read(grandchild), None);
    }
}
