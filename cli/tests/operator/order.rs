//! The order of an entity: its state, and the end of doubt.

use std::time::Duration;

use lambda_once::{AfterUnknown, Failure, Idempotency, Outcome, record::KeyHash};
use serde_json::{Value, json};

use crate::support::{Backend, Ended, Records, on_each_store, receipt};

on_each_store!(
    an_entity_is_explained_in_each_state,
    an_operation_without_effect_lets_older_ones_run,
    an_operation_with_effect_supersedes_older_ones,
    one_of_several_in_doubt_is_chosen,
    nothing_is_cleared_while_a_claim_is_live,
    an_order_is_not_changed_without_leave,
    an_entity_is_found_by_its_ids,
);

pub(crate) const ENTITY: [&str; 4] = ["--operation", "apply", "--entity", "account 1"];

impl Records {
    async fn show_order(&self) -> Value {
        let show = [&["order", "show", "--json"][..], &ENTITY].concat();
        self.run(&show).await.assert_code(0).objects().remove(0)
    }

    async fn clear(&self, statement: &[&str], code: i32) -> Ended {
        let clear = [&["order", "clear"][..], &ENTITY, statement].concat();
        self.run(&clear).await.assert_code(code)
    }

    /// Loses an ordered operation with this sequence, the greater the later. Returns the hash of its key.
    pub(crate) async fn lose(&self, sequence: u64) -> String {
        let lost = || async { Err::<String, _>(Failure::unknown("the connection was lost")) };
        let earlier = self.ago(Duration::from_secs((24 - sequence) * 3_600)).await;
        let key = format!("event {sequence}");
        let outcome = earlier.operation("apply", &key).ordered_by("account 1", sequence).run(lost).await.unwrap();
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        let [entity, key] = ["account 1", &key].map(|key| earlier.key_hash("apply", key).unwrap());
        KeyHash::ordered(&entity, &key).to_hex()
    }
}

async fn apply(once: &Idempotency, sequence: u64) -> Outcome<String> {
    once.operation("apply", &format!("event {sequence}")).ordered_by("account 1", sequence).run(receipt).await.unwrap()
}

async fn an_entity_is_explained_in_each_state(backend: Backend) {
    let records = Records::new(backend).await;
    let show = [&["order", "show"][..], &ENTITY].concat();
    let absent = records.run(&show).await.assert_code(3);
    assert!(absent.out.contains(": absent\n"), "{absent:?}");
    let absent = records.run(&[&show[..], &["--output", "json"]].concat()).await.assert_code(3).objects();
    assert_eq!((&absent[0]["state"], &absent[0]["advice"]), (&json!("absent"), &json!([])));

    let once = records.engine(AfterUnknown::Rerun).await;
    assert!(matches!(apply(&once, 3).await, Outcome::Executed(_)));
    let free = records.show_order().await;
    assert_eq!((&free["state"], &free["newest"], &free["holder"]), (&json!("free"), &json!("3"), &Value::Null));

    let look = async || {
        let held = records.show_order().await;
        assert_eq!((&held["state"], &held["holder"]["sequence"]), (&json!("held"), &json!("4")));
        assert_eq!((&held["holder"]["is_live"], &held["in_doubt"]), (&json!(true), &json!([])));
        let page = records.run(&show).await.assert_code(0).out;
        assert!(page.contains("The worker with the claim"), "{page}");
        receipt().await
    };
    let outcome = once.operation("apply", "event 4").ordered_by("account 1", 4_u64).run(look).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");

    let lost = records.lose(9).await;
    let doubtful = records.show_order().await;
    assert_eq!((&doubtful["state"], &doubtful["newest"]), (&json!("in doubt"), &json!("4")));
    assert_eq!(doubtful["in_doubt"], json!([{ "sequence": "9", "id": lost, "record": "abandoned" }]));
    assert_eq!(doubtful["holder"]["is_live"], json!(false));
    let page = records.run(&show).await.assert_code(0).out;
    assert!(page.starts_with("apply ") && page.contains(": in doubt\n"), "{page}");
    for part in ["older than 9 waits", &format!("lambda-once settle {lost} --no-result"), "--sequence 9 --no-effect"] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

async fn an_operation_without_effect_lets_older_ones_run(backend: Backend) {
    let records = Records::new(backend).await;
    records.lose(9).await;
    let once = records.engine(AfterUnknown::Rerun).await;
    assert!(matches!(apply(&once, 8).await, Outcome::InProgress { .. }));
    let cleared = records.clear(&["--no-effect", "--yes"], 0).await;
    assert_eq!(cleared.out, "order clear: 1 changed\n");
    let [line] = &cleared.audit()[..] else { panic!("{cleared:?}") };
    assert_eq!(
        (&line["action"], &line["outcome"], &line["who"]),
        (&json!("order clear"), &json!("changed"), &json!("ana"))
    );
    assert_eq!((&line["before"]["state"], &line["after"]["state"]), (&json!("in doubt"), &json!("free")));
    assert!(matches!(apply(&once, 8).await, Outcome::Executed(_)));
    let outcome = apply(&once, 9).await;
    assert!(matches!(outcome, Outcome::TookOver(_)), "{outcome:?}");
    records.clear(&["--no-effect", "--yes"], 3).await;
}

async fn an_operation_with_effect_supersedes_older_ones(backend: Backend) {
    let records = Records::new(backend).await;
    let lost = records.lose(9).await;
    records.run(&["forget", &lost, "--yes"]).await.assert_code(0);
    let shown = records.show_order().await;
    assert_eq!(shown["in_doubt"][0]["record"], json!("absent"));
    records.clear(&["--took-effect", "--sequence", "9", "--yes"], 0).await;
    let once = records.engine(AfterUnknown::Rerun).await;
    for sequence in [8, 9] {
        let outcome = apply(&once, sequence).await;
        assert!(matches!(outcome, Outcome::Superseded { .. }), "{outcome:?}");
    }
    assert!(matches!(apply(&once, 10).await, Outcome::Executed(_)));
}

async fn one_of_several_in_doubt_is_chosen(backend: Backend) {
    let records = Records::new(backend).await;
    for sequence in [5, 7, 9] {
        records.lose(sequence).await;
    }
    let refused = records.clear(&["--no-effect", "--yes"], 2).await;
    assert!(refused.errors.contains("3 operations are in doubt: choose one by --sequence, or --all"), "{refused:?}");
    records.clear(&["--no-effect", "--sequence", "8", "--yes"], 3).await;
    records.clear(&["--no-effect", "--sequence", "7", "--yes"], 0).await;
    let in_doubt = async || {
        let shown = records.show_order().await;
        shown["in_doubt"].as_array().unwrap().iter().map(|one| one["sequence"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(in_doubt().await, [json!("5"), json!("9")]);
    records.clear(&["--took-effect", "--sequence", "5", "--yes"], 0).await;
    assert_eq!((in_doubt().await, records.show_order().await["newest"].clone()), (vec![json!("9")], json!("5")));
    records.lose(11).await;
    records.clear(&["--no-effect", "--all", "--yes"], 0).await;
    assert_eq!(records.show_order().await["state"], json!("free"));
}

async fn nothing_is_cleared_while_a_claim_is_live(backend: Backend) {
    let records = Records::new(backend).await;
    records.lose(5).await;
    let once = records.engine(AfterUnknown::Rerun).await;
    let attempts = async || {
        let mark = async || {
            let shown = records.show_order().await;
            ["state", "newest", "holder", "in_doubt", "expires_at"].map(|name| shown[name].clone())
        };
        let before = mark().await;
        for statement in ["--no-effect", "--took-effect"] {
            let refused = records.clear(&[statement, "--sequence", "5", "--yes"], 4).await;
            assert!(refused.errors.contains("a live claim is never changed"), "{refused:?}");
            assert!(refused.audit().is_empty(), "{refused:?}");
        }
        assert_eq!(mark().await, before);
        receipt().await
    };
    let outcome = once.operation("apply", "event 7").ordered_by("account 1", 7_u64).run(attempts).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
}

async fn an_order_is_not_changed_without_leave(backend: Backend) {
    let records = Records::new(backend).await;
    records.lose(9).await;
    let before = records.show_order().await;
    for arguments in [&["--no-effect", "--dry-run", "--read-only"][..], &["--no-effect", "--dry-run"]] {
        let dry = records.clear(arguments, 0).await;
        assert!(
            dry.out.ends_with("would state that no run of the operation with the sequence 9 took effect\n"),
            "{dry:?}"
        );
    }
    // There is no terminal for the confirmation.
    let refused = records.clear(&["--no-effect"], 2).await;
    assert!(refused.errors.contains("--yes") && refused.out.is_empty(), "{refused:?}");
    records.clear(&["--no-effect", "--read-only"], 1).await;
    records.clear(&["--no-effect", "--yes", "--read-only"], 1).await;
    records.clear(&["--no-effect", "--yes", "--audit", "/nowhere/audit.log"], 1).await;
    assert_eq!(records.show_order().await["in_doubt"], before["in_doubt"]);
}

async fn an_entity_is_found_by_its_ids(backend: Backend) {
    let records = Records::new(backend).await;
    let lost = records.lose(9).await;
    let entity = &lost[..32];
    for id in [lost.clone(), entity.to_owned(), format!("once#{entity}mark"), format!("once:{{{entity}}}mark")] {
        let shown = records.run(&["order", "show", "--json", "--id", &id]).await.assert_code(0).objects();
        assert_eq!((&shown[0]["entity"], &shown[0]["state"]), (&json!(entity), &json!("in doubt")), "{id}");
    }
    records.run(&["order", "show", "--id", "mark"]).await.assert_code(2);
    records.run(&["order", "show", "--operation", "apply", "--entity", "7"]).await.assert_code(3);
}
