//! The effects of changes on the next delivery.

use std::time::Duration;

use lambda_once::{AfterUnknown, Failure, Outcome, record::Status};
use tokio::sync::Notify;

use crate::support::{Backend, Records, file, objects, on_each_store, receipt};

on_each_store!(
    a_released_operation_runs_as_a_takeover,
    a_hung_run_is_released_by_a_filter,
    a_settled_operation_replays_the_given_result,
    a_settled_operation_keeps_the_retention_of_its_claim,
    an_operation_settled_as_failed_replays_the_reason,
    a_forgotten_failure_runs_again,
    an_ordered_operation_is_settled_with_its_mark,
    a_success_is_forgotten_only_with_done,
    a_redacted_success_is_replayed_without_its_result,
    a_live_claim_is_left_alone,
    a_record_that_changes_meanwhile_is_left_alone,
);

async fn a_released_operation_runs_as_a_takeover(backend: Backend) {
    let records = Records::new(backend).await;
    records.abandon("order 7").await;
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::Abandoned { .. }), "{outcome:?}");

    let ended = records.run(&["release", "--operation", "charge", "--key", "order 7", "--yes"]).await.assert_code(0);
    assert_eq!(ended.out, "release: 1 changed\n");

    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(&outcome, Outcome::TookOver(result) if result == "receipt 7"), "{outcome:?}");
}

async fn a_hung_run_is_released_by_a_filter(backend: Backend) {
    let records = Records::new(backend).await;
    let earlier = records.earlier().await;
    let hangs = Notify::new();
    let hang = async || {
        hangs.notify_one();
        std::future::pending::<Result<String, Failure>>().await
    };
    tokio::select! {
        outcome = earlier.operation("charge", "order 7").run(hang) => panic!("{outcome:?}"),
        () = hangs.notified() => {} // its worker is killed
    }
    let ended = records.run(&["release", "--operation", "charge", "--yes"]).await.assert_code(0);
    assert_eq!(ended.out, "release: 1 changed\n");
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::TookOver(_)), "{outcome:?}");
}

async fn a_settled_operation_replays_the_given_result(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.abandon("order 7").await;
    let result = file();
    std::fs::write(&result, "\"receipt by hand\"\n").unwrap();
    let path = result.to_str().unwrap();
    let ended = records.run(&["settle", &hash.to_hex(), "--result", path, "--yes"]).await.assert_code(0);
    std::fs::remove_file(&result).unwrap();
    assert!(!format!("{ended:?}").contains("receipt by hand"), "{ended:?}");
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(&outcome, Outcome::Replayed(result) if result == "receipt by hand"), "{outcome:?}");
}

async fn a_settled_operation_keeps_the_retention_of_its_claim(backend: Backend) {
    const DAY: u64 = 24 * 60 * 60;
    let records = Records::new(backend).await;
    let (kept, given) = (records.abandon("order 7").await, records.abandon("order 8").await);
    records.run(&["settle", &kept.to_hex(), "--no-result", "--yes"]).await.assert_code(0);
    records.run(&["settle", &given.to_hex(), "--no-result", "--retention", "3d", "--yes"]).await.assert_code(0);
    for (hash, days) in [(kept, 15), (given, 3)] {
        let record = records.read(hash).await.unwrap();
        let lasts = record.expiration.unwrap() - record.settled_at.unwrap().seconds_rounded_down();
        assert!((days * DAY..=days * DAY + 2).contains(&lasts), "{lasts} s for {days} days");
    }
}

async fn an_operation_settled_as_failed_replays_the_reason(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.abandon("order 7").await;
    records.run(&["settle", &hash.to_hex(), "--failed", "refunded by hand", "--yes"]).await.assert_code(0);
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    let Outcome::ReplayedFailure(failure) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.message.as_deref(), Some("refunded by hand"));
}

async fn a_forgotten_failure_runs_again(backend: Backend) {
    let records = Records::new(backend).await;
    let (failed, abandoned) = (records.fail("order 7").await, records.abandon("order 8").await);
    let forget = ["forget", "--state", "failed", "--operation", "charge", "--older-than", "10m", "--yes"];
    let ended = records.run(&forget).await.assert_code(0);
    assert_eq!(ended.out, "forget: 1 changed\n");
    assert_eq!(records.read(failed).await, None);
    assert!(records.read(abandoned).await.is_some());
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
}

async fn an_ordered_operation_is_settled_with_its_mark(backend: Backend) {
    let records = Records::new(backend).await;
    let lost = || async { Err::<String, _>(Failure::unknown("the connection was lost")) };
    let earlier = records.earlier().await;
    let outcome = earlier.operation("apply", "event 9").ordered_by("account 1", 9_u64).run(lost).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let once = records.engine(AfterUnknown::Refuse).await;
    let older = async || once.operation("apply", "event 8").ordered_by("account 1", 8_u64).run(receipt).await.unwrap();
    let outcome = older().await;
    assert!(matches!(outcome, Outcome::InProgress { .. }), "{outcome:?}");
    let one = ["settle", "--operation", "apply", "--entity", "account 1", "--key", "event 9"];
    records.run(&[&one[..], &["--no-result", "--yes"]].concat()).await.assert_code(0);
    let outcome = older().await;
    assert!(matches!(outcome, Outcome::Superseded { .. }), "{outcome:?}");
}

async fn a_success_is_forgotten_only_with_done(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.complete("order 7").await;
    let ended = records.run(&["forget", &hash.to_hex(), "--yes"]).await.assert_code(4);
    assert!(ended.errors.contains("its operation could take effect again"), "{ended:?}");
    assert!(records.read(hash).await.is_some());
    records.run(&["forget", &hash.to_hex(), "--done", "--yes"]).await.assert_code(0);
    assert_eq!(records.read(hash).await, None);
    records.run(&["forget", "--all", "--state", "failed", "--done", "--yes"]).await.assert_code(2);
}

async fn a_redacted_success_is_replayed_without_its_result(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.complete("order 7").await;
    let ended = records.run(&["redact", &hash.to_hex(), "--yes"]).await.assert_code(0);
    assert!(!format!("{ended:?}").contains("label of"), "{ended:?}");
    let record = records.read(hash).await.unwrap();
    assert_eq!((record.label, record.result.data), (None, None));
    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::ReplayedWithoutResult), "{outcome:?}");
}

async fn a_live_claim_is_left_alone(backend: Backend) {
    let records = Records::new(backend).await;
    let once = records.engine(AfterUnknown::Refuse).await;
    let hash = once.key_hash("charge", "order 7").unwrap();
    let id = hash.to_hex();
    let attempts = async || {
        let before = records.read(hash).await;
        for arguments in
            [&["release", &id, "--yes"][..], &["forget", &id, "--yes"], &["settle", &id, "--no-result", "--yes"]]
        {
            let ended = records.run(arguments).await.assert_code(4);
            assert!(ended.errors.contains("a live claim is never changed"), "{ended:?}");
            assert_eq!(ended.audit().len(), 0);
        }
        records.run(&["release", "--all", "--yes"]).await.assert_code(3);
        let running = records.run(&["list", "--state", "running", "--json"]).await.assert_code(0).objects();
        assert_eq!((running.len(), &running[0]["state"]), (1, &"running".into()));
        assert_eq!(records.read(hash).await.map(|record| record.attempt), before.map(|record| record.attempt));
        receipt().await
    };
    let outcome = once.operation("charge", "order 7").run(attempts).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
}

/// The tool makes one change a second, so that the last of these has time to change.
async fn a_record_that_changes_meanwhile_is_left_alone(backend: Backend) {
    let records = Records::new(backend).await;
    let mut ids = Vec::new();
    for key in ["order 1", "order 2", "order 3", "order 4"] {
        ids.push(records.abandon(key).await.to_hex());
    }
    let last = records.abandon("order 7").await;
    ids.push(last.to_hex());
    let audit = file();
    let mut command = records.command(&["release", "--yes", "--rate", "1", "--audit", audit.to_str().unwrap()]);
    command.args(&ids);
    let tool = tokio::spawn(crate::support::ended(command));
    while std::fs::read_to_string(&audit).unwrap_or_default().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let once = records.engine(AfterUnknown::Rerun).await;
    let outcome = once.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::TookOver(_)), "{outcome:?}");
    let completed = records.read(last).await.unwrap();

    let ended = tool.await.unwrap().assert_code(4);
    assert_eq!(ended.out, "release: 4 changed, 1 changed by others meanwhile, and left as they are\n");
    assert_eq!(records.read(last).await.unwrap(), completed);
    assert_eq!(completed.status, Status::Completed);
    let lines = objects(&std::fs::read_to_string(&audit).unwrap());
    std::fs::remove_file(&audit).unwrap();
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["changed", "changed", "changed", "changed", "unchanged"]);
    let line = &lines[4];
    assert_eq!((&line["before"]["status"], &line["after"]["status"]), (&"INPROGRESS".into(), &"COMPLETED".into()));
}
