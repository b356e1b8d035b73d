//! Dry runs and confirmations, which describe the effects of a redrive.

#[cfg(unix)]
use std::{
    io::{Read, Write},
    process::{Command, Stdio},
};

use super::{orders, queues::Queues};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_of_a_fifo_queue_states_a_lower_bound() {
    let queues = Queues::new(".fifo").await;
    for order in 0..12 {
        queues.dead_letter(&format!("a-{order}"), &[]).await;
    }
    let redrive = ["redrive", "--to", &*queues.source];
    let dry = queues.run(&[&redrive[..], &["--dry-run"]].concat()).await.assert_code(0);
    assert!(dry.out.contains("would redrive at least 10 ") && dry.errors.contains("first ten messages"), "{dry:?}");
    let moved = queues.run(&[&redrive[..], &["--yes"]].concat()).await.assert_code(0);
    assert_eq!(moved.out, "redrive: 12 moved\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_skips_messages_behind_an_earlier_one() {
    let queues = Queues::new(".fifo").await;
    for (order, reason) in [("a-1", "mismatch"), ("a-2", "failed"), ("a-3", "failed"), ("b-1", "failed")] {
        queues.dead_letter(order, &[("lambda-once.reason", reason)]).await;
    }
    let redrive = ["redrive", "--to", &*queues.source, "--reason", "failed", "--dry-run"];
    let dry = queues.run(&redrive).await.assert_code(0);
    assert!(dry.out.contains("would redrive at least 1 "), "{dry:?}");
    assert!(dry.out.ends_with(", 2 left behind an earlier message of the group\n"), "{dry:?}");
}

/// On a terminal, which Python makes.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_is_for_the_messages_that_it_shows() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let tool = queues.command(&["redrive", "--to", &queues.source], None);
    let mut command = Command::new("python3");
    command.args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]).arg(tool.get_program());
    command.args(tool.get_args()).envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut tool = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (tool.stdin.take().unwrap(), tool.stdout.take().unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        let mut screen = Vec::new();
        while !screen.ends_with(b"[y/N] ") {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            screen.extend(byte);
        }
        (output, String::from_utf8(screen).unwrap())
    });
    let (mut output, question) = reading.await.unwrap();
    assert!(question.contains("redrive 1 "), "{question}");
    queues.dead_letter("2", &[]).await;
    let ended = tokio::task::spawn_blocking(move || {
        input.write_all(b"y\n").unwrap();
        let mut screen = String::new();
        output.read_to_string(&mut screen).unwrap();
        (tool.wait().unwrap().code(), screen)
    });
    let (code, screen) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(orders(&queues.drain(&queues.source).await), ["1"]);
    assert_eq!(orders(&queues.drain(&queues.dead).await), ["2"]);
}
