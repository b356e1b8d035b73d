//! Records that have expired, and that the store has not deleted yet. Redis deletes them itself.

use std::time::Duration;

use lambda_once::{AfterUnknown, Outcome};

use crate::support::{Backend, Records, on_each_store, receipt};

on_each_store!(dynamodb, DynamoDb; an_expired_record_is_no_record, an_expired_record_does_not_make_a_key_ambiguous);
on_each_store!(postgres, Postgres; an_expired_record_is_no_record, an_expired_record_does_not_make_a_key_ambiguous);

/// Longer than the retention.
const LONG_AGO: Duration = Duration::from_secs(20 * 24 * 60 * 60);

async fn an_expired_record_is_no_record(backend: Backend) {
    let records = Records::new(backend).await;
    let before = records.ago(LONG_AGO).await;
    let outcome = before.operation("charge", "order 7").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
    let id = before.key_hash("charge", "order 7").unwrap().to_hex();
    for command in [
        &["show", "--id", &id][..],
        &["show", "--operation", "charge", "--key", "order 7"],
        &["release", &id, "--yes"],
        &["settle", &id, "--no-result", "--yes"],
        &["forget", &id, "--yes"],
        &["forget", &id, "--done", "--dry-run"],
        &["redact", "--operation", "charge", "--key", "order 7", "--yes"],
    ] {
        let ended = records.run(command).await.assert_code(3);
        assert!(ended.audit().is_empty(), "{ended:?}");
    }
    let failed = records.fail("order 8").await.to_hex();
    let ended = records.run(&["forget", &id, &failed, "--yes"]).await.assert_code(4);
    assert_eq!(ended.out, "forget: 1 changed\n");
}

/// As text, and as a number.
async fn an_expired_record_does_not_make_a_key_ambiguous(backend: Backend) {
    let records = Records::new(backend).await;
    let (before, once) = (records.ago(LONG_AGO).await, records.engine(AfterUnknown::Refuse).await);
    let outcomes = [
        before.operation("charge", "42").run(receipt).await.unwrap(),
        once.operation("charge", &42).run(receipt).await.unwrap(),
        once.operation("charge", "43").run(receipt).await.unwrap(),
        before.operation("charge", &43).run(receipt).await.unwrap(),
        before.operation("charge", "44").run(receipt).await.unwrap(),
        before.operation("charge", &44).run(receipt).await.unwrap(),
    ];
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Executed(_))), "{outcomes:?}");
    let show = async |key: &str| records.run(&["show", "--operation", "charge", "--key", key, "--json"]).await;
    let number = show("42").await.assert_code(0).objects().remove(0);
    assert_eq!(number["id"], once.key_hash("charge", &42).unwrap().to_hex());
    let text = show("43").await.assert_code(0).objects().remove(0);
    assert_eq!(text["id"], once.key_hash("charge", "43").unwrap().to_hex());
    show("44").await.assert_code(3);
}
