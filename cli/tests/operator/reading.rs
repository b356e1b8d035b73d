//! The output of `show` and `list`.

use lambda_once::{AfterUnknown, Outcome};
use serde_json::Value;

use crate::support::{Backend, Records, file, on_each_store, receipt};

on_each_store!(
    a_record_is_found_by_its_key_and_its_id,
    results_are_shown_on_request,
    a_result_keeps_its_digits_in_json,
    a_list_is_narrowed_down,
);

async fn a_record_is_found_by_its_key_and_its_id(backend: Backend) {
    let records = Records::new(backend).await;
    let hash = records.abandon("order 7").await;
    let hex = hash.to_hex();
    let item = format!("once#{hex}");
    for arguments in [
        &["show", "--operation", "charge", "--key", "order 7"][..],
        &["show", "--hash", &hex],
        &["show", "--id", &item],
    ] {
        let shown = records.run(arguments).await.assert_code(0).out;
        assert!(shown.starts_with(&format!("charge {hex}: abandoned\n")), "{shown}");
        assert!(shown.contains("label          label of order 7"), "{shown}");
        assert!(shown.contains(&format!("lambda-once release {hex}")), "{shown}");
    }
    // A number is a different key than its digits as text.
    let once = records.engine(AfterUnknown::Refuse).await;
    let number = once.operation("charge", &42).run(receipt).await.unwrap();
    assert!(matches!(number, Outcome::Executed(_)), "{number:?}");
    let shown = records.run(&["show", "--operation", "charge", "--key", "42", "--json"]).await.assert_code(0);
    assert_eq!(shown.objects()[0]["id"], once.key_hash("charge", &42).unwrap().to_hex());
    let text = once.operation("charge", "42").run(receipt).await.unwrap();
    assert!(matches!(text, Outcome::Executed(_)), "{text:?}");
    let both = records.run(&["show", "--operation", "charge", "--key", "42"]).await.assert_code(2);
    assert!(both.errors.contains("choose one by its id"), "{both:?}");
    let outcome = once.operation("charge", "order 7").tenant("a").run(receipt).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
    let of_tenant = ["show", "--operation", "charge", "--key", "order 7", "--tenant"];
    let shown = records.run(&[&of_tenant[..], &["a"]].concat()).await.assert_code(0);
    assert!(shown.out.contains(": done\n"), "{shown:?}");
    records.run(&[&of_tenant[..], &["b"]].concat()).await.assert_code(3);
    let absent = records.run(&["show", "--operation", "mail", "--key", "order 7"]).await.assert_code(3);
    assert!(absent.out.contains(": absent\n"), "{absent:?}");
    let absent = records.run(&["show", "--operation", "mail", "--key", "order 7", "--json"]).await.assert_code(3);
    assert_eq!(absent.objects()[0]["id"], once.key_hash("mail", "order 7").unwrap().to_hex());
}

async fn results_are_shown_on_request(backend: Backend) {
    let records = Records::new(backend).await;
    let (done, failed) = (records.complete("order 7").await.to_hex(), records.fail("order 8").await.to_hex());
    for (id, secret) in [(&done, "receipt 7"), (&failed, "the card is declined")] {
        for format in [&[][..], &["--json"]] {
            let shown = records.run(&[&["show", "--id", id], format].concat()).await.assert_code(0);
            assert!(!shown.out.contains(secret), "{shown:?}");
            let shown = records.run(&[&["show", "--id", id, "--show-result"], format].concat()).await.assert_code(0);
            assert!(shown.out.contains(secret), "{shown:?}");
        }
    }
}

async fn a_result_keeps_its_digits_in_json(backend: Backend) {
    let records = Records::new(backend).await;
    let id = records.abandon("order 7").await.to_hex();
    let (path, result) = (file(), r#"{"id":123456789012345678901234567890}"#);
    std::fs::write(&path, result).unwrap();
    records.run(&["settle", &id, "--result", path.to_str().unwrap(), "--yes"]).await.assert_code(0);
    std::fs::remove_file(&path).unwrap();
    let shown = records.run(&["show", "--id", &id, "--json", "--show-result"]).await.assert_code(0);
    assert_eq!(shown.objects()[0]["stored_result"], result);
}

async fn a_list_is_narrowed_down(backend: Backend) {
    let records = Records::new(backend).await;
    let mut abandoned = Vec::new();
    for key in ["order 1", "order 2", "order 3"] {
        abandoned.push(records.abandon(key).await.to_hex());
    }
    let failed = records.fail("order 4").await.to_hex();
    records.complete("order 5").await;
    abandoned.sort();
    // An index in DynamoDB is updated within moments.
    let ids = async |arguments: &[&str]| -> Vec<String> {
        let ended = records.run(&[&["list", "--json"], arguments].concat()).await;
        let mut ids: Vec<_> = ended.objects().iter().map(id).collect();
        ended.assert_code(if ids.is_empty() { 3 } else { 0 });
        ids.sort();
        ids
    };
    assert_eq!(ids(&[]).await, abandoned);
    assert_eq!(ids(&["--operation", "charge", "--older-than", "30m"]).await, abandoned);
    assert_eq!(ids(&["--operation", "mail"]).await, [""; 0]);
    assert_eq!(ids(&["--older-than", "2h"]).await, [""; 0]);
    assert_eq!(ids(&["--state", "failed"]).await, [failed]);
    assert_eq!(ids(&["--state", "running"]).await, [""; 0]);
    assert_eq!(ids(&["--label", "label of order 2"]).await.len(), 1);
    assert_eq!(ids(&["--label", "label of order"]).await, [""; 0]);
    assert_eq!(ids(&["--limit", "2"]).await.len(), 2);

    let table = records.run(&["list", "--limit", "2"]).await.assert_code(0);
    let heading: Vec<_> = table.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["STATE", "OPERATION", "CLAIMED", "ATTEMPT", "ID", "LABEL"]);
    assert_eq!(table.out.matches("\nabandoned  charge     60 min ago  1 ").count(), 2, "{table:?}");
    assert!(table.errors.contains("there are more"), "{table:?}");
    let done = records.run(&["list", "--state", "done"]).await.assert_code(2);
    assert!(done.errors.contains("lambda-once show"), "{done:?}");
}

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}
