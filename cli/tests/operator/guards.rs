//! Guards that prevent a change, and the audit of a change.

use std::process::{Command, Stdio};

use crate::support::{Backend, Records, ended, file, objects, on_each_store, tool};

on_each_store!(nothing_is_changed_without_leave, an_audit_line_names_the_user_and_the_change);

async fn nothing_is_changed_without_leave(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.abandon("order 7").await;
    let before = records.read(hash).await;
    let id = hash.to_hex();
    // There is no terminal for the confirmation.
    let refused = records.run(&["release", &id]).await.assert_code(2);
    assert!(refused.errors.contains("--yes"), "{refused:?}");
    records.run(&["release", &id, "--yes", "--read-only"]).await.assert_code(1);
    let mut command = records.command(&["release", &id, "--yes"]);
    command.env("LAMBDA_ONCE_READ_ONLY", "1");
    let refused = ended(command).await.assert_code(1);
    assert!(refused.errors.contains("LAMBDA_ONCE_READ_ONLY"), "{refused:?}");
    records.run(&["release", &id, "--yes", "--audit", "/nowhere/audit.log"]).await.assert_code(1);
    let dry = records.run(&["release", &id, "--dry-run", "--read-only"]).await.assert_code(0);
    assert!(dry.out.ends_with("would release 1 operation\n"), "{dry:?}");
    assert_eq!(records.read(hash).await, before);
}

async fn an_audit_line_names_the_user_and_the_change(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.abandon("order 7").await;
    let change = ["release", "--operation", "charge", "--key", "order 7", "--yes"];
    let ended = records.run(&change).await.assert_code(0);
    let [line] = &ended.audit()[..] else { panic!("{ended:?}") };
    assert_eq!(line["who"], "ana");
    assert_eq!((&line["action"], &line["outcome"]), (&"release".into(), &"changed".into()));
    assert_eq!(line["id"], hash.to_hex());
    assert_eq!((&line["before"]["state"], &line["after"]["state"]), (&"abandoned".into(), &"released".into()));
    // The label contains the key, too.
    assert!(!ended.errors.contains("order 7"), "{ended:?}");
    let store = line["store"].as_str().unwrap();
    assert!(!store.contains('@') && !store.contains("endpoint"), "{store}");

    let path = file();
    let forget = ["forget", &hash.to_hex(), "--yes", "--audit", path.to_str().unwrap()];
    let ended = records.run(&forget).await.assert_code(0);
    assert!(ended.audit().is_empty());
    let lines = objects(&std::fs::read_to_string(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!((lines.len(), &lines[0]["after"]), (1, &serde_json::Value::Null));
}

#[tokio::test]
async fn wrong_usage_has_its_own_exit_code() {
    for (arguments, code) in [
        (&["release"][..], 2),
        (&["list"], 2),
        (&["--store", "mysql://h", "list"], 2),
        (&["--store", "redis://127.0.0.1:1?cluster=true&index=true", "list"], 2), // a cluster has no index
        (&["--store", "postgres://127.0.0.1:1/d?sslmode=sideways", "list"], 2),
        (&["--store", "postgres://127.0.0.1:1/d?schema=", "list"], 2),
        (&["--store", "redis://127.0.0.1:1", "show", "--operation", "charge", "--key", "7"], 2), // no scope
        (&["--store", "redis://127.0.0.1:1", "show", "--id", "7"], 2),
        (&["--store", "redis://127.0.0.1:1", "list"], 1),
    ] {
        let mut command = tool();
        command.args(arguments);
        ended(command).await.assert_code(code);
    }
}

/// Answers the question as a person would, on a terminal that Python creates.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_confirmed_on_a_terminal() {
    use std::io::{Read, Write};

    const SPAWN: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let records = Records::new(Backend::Redis).await;
    let hash = records.abandon("order 7").await;
    for (answer, code) in [("n\n", 4), ("\x03", 4), ("y\n", 0)] {
        let before = records.read(hash).await.unwrap();
        let tool = records.command(&["release", &hash.to_hex()]);
        let mut python = Command::new(std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned()));
        python.args(["-c", SPAWN]).arg(tool.get_program()).args(tool.get_args()).env("USER", "ana");
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let answered = tokio::task::spawn_blocking(move || {
            let mut text = Vec::new();
            while !text.ends_with(b"[y/N] ") {
                let mut byte = [0];
                output.read_exact(&mut byte).unwrap();
                text.extend(byte);
            }
            input.write_all(answer.as_bytes()).unwrap();
            output.read_to_end(&mut text).unwrap();
            (String::from_utf8_lossy(&text).into_owned(), child.wait().unwrap().code())
        });
        let (text, ended) = answered.await.unwrap();
        assert_eq!(ended, Some(code), "{text}");
        assert!(text.contains("release 1 operation in redis://127.0.0.1"), "{text}");
        let is_released = records.read(hash).await.unwrap().released.is_some();
        assert_eq!((before.released, is_released), (None, code == 0));
    }
}
