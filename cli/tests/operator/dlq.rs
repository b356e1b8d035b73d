//! `dlq` on queues in MiniStack, with records in Valkey.

mod plan;
mod proxy;
mod queues;
mod sources;

use std::{process::Stdio, sync::Mutex};

use serde_json::{Value, json};

use self::{
    proxy::{Fate, Proxy},
    queues::{Queues, body},
};
use crate::{
    doctor::aws::Deployment,
    support::{SCOPE, ended, file, objects, server, tool, unique_name},
};

/// The ids of the orders in these messages.
fn orders(messages: &[queues::Received]) -> Vec<String> {
    let id = |message: &queues::Received| {
        serde_json::from_str::<Value>(&message.body).unwrap()["order_id"].as_str().unwrap().to_owned()
    };
    messages.iter().map(id).collect()
}

fn sorted(mut orders: Vec<String>) -> Vec<String> {
    orders.sort();
    orders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_the_effect_of_a_redrive() {
    let queues = Queues::new("").await;
    queues.records.complete("1").await;
    let failed = queues.records.fail("2").await;
    queues.records.abandon("3").await;
    for (order, reason) in [("1", "mismatch"), ("2", "failed"), ("3", "panicked"), ("4", "failed")] {
        queues.dead_letter(order, &[("lambda-once.reason", reason)]).await;
    }
    let listed = queues.run(&["list", "--json"]).await.assert_code(0);
    // Everybody sees them again at once.
    assert_eq!(queues.count(&queues.dead).await, (4, 0));
    let mut messages = listed.objects();
    messages.sort_by_key(|message| message["key"].to_string());
    let of = |name: &str| messages.iter().map(|message| message[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("key"), ["\"1\"", "\"2\"", "\"3\"", "\"4\""]);
    assert_eq!(of("state"), ["done", "failed", "abandoned", "absent"]);
    assert_eq!(of("operation"), [json!("charge"), json!("charge"), json!("charge"), Value::Null]);
    assert_eq!(of("reason"), ["mismatch", "failed", "panicked", "failed"]);
    assert_eq!(of("receives"), [1, 1, 1, 1]);
    assert_eq!(of("record")[1], failed.to_hex());
    for (effect, expected) in
        of("redrive").iter().zip(["acknowledged without", "is refused", "`Rerun`", "as the first"])
    {
        assert!(effect.as_str().unwrap().contains(expected), "{effect} {expected}");
    }
    assert!(!listed.out.contains("declined"), "{listed:?}");
    let shown = queues.run(&["list", "--json", "--state", "failed", "--show-result"]).await.assert_code(0).objects();
    assert_eq!((shown.len(), &shown[0]["failure"]), (1, &json!("the card is declined")));

    let table = queues.run(&["list", "--reason", "failed", "--limit", "5"]).await.assert_code(0).out;
    let heading: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["STATE", "OPERATION", "KEY", "AGE", "RECEIVES", "MESSAGE", "A", "REDRIVE"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    let whole = queues.run(&["list", "--output", "json", "--only-operation", "charge"]).await.assert_code(0).out;
    assert_eq!(serde_json::from_str::<Vec<Value>>(&whole).unwrap().len(), 3);
    queues.run(&["list", "--older-than", "1h"]).await.assert_code(3);
    assert_eq!(queues.run(&["list", "--json", "--limit", "2"]).await.assert_code(0).objects().len(), 2);
    assert_eq!(queues.count(&queues.dead).await, (4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_moved_as_it_is() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[("lambda-once.reason", "failed"), ("trace", "t-1")]).await;
    let audit = file();
    let redrive = ["redrive", "--to", &queues.source, "--yes", "--audit", audit.to_str().unwrap()];
    let moved = queues.run(&redrive).await.assert_code(0);
    assert_eq!(moved.out, "redrive: 1 moved\n");
    let lines = objects(&std::fs::read_to_string(&audit).unwrap());
    std::fs::remove_file(&audit).unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&line["who"], &line["action"], &line["outcome"]),
        (&json!("ana"), &json!("redrive"), &json!("changed"))
    );
    assert_eq!(
        (&line["from"], &line["to"], &line["state"]),
        (&json!(queues.dead), &json!(queues.source), &json!("absent"))
    );
    assert!(line["sent"].as_str().is_some_and(|id| line["id"] != id), "{line}");

    assert_eq!(queues.count(&queues.dead).await, (0, 0));
    let received = queues.drain(&queues.source).await;
    // The reason comes from the dead letter.
    let attributes = vec![("trace".to_owned(), "String".to_owned(), "t-1".to_owned())];
    let expected = queues::Received { body: body("1"), group: None, deduplication_id: None, attributes };
    assert_eq!(received, [expected]);
    queues.run(&redrive[..4]).await.assert_code(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_moved_without_leave() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let to = ["redrive", "--to", &*queues.source];
    let run = async |more: &[&str]| queues.run(&[&to[..], more].concat()).await;
    // There is no terminal for the confirmation.
    let refused = run(&[]).await.assert_code(2);
    assert!(refused.errors.contains("--yes") && refused.out.is_empty(), "{refused:?}");
    // It did not read the queue.
    assert_eq!(queues.run(&["list", "--json"]).await.assert_code(0).objects()[0]["receives"], 1);
    for more in [&["--dry-run"][..], &["--dry-run", "--yes"], &["--dry-run", "--read-only"]] {
        let dry = run(more).await.assert_code(0);
        assert!(
            dry.out.ends_with(&format!("would redrive 1 message from {} to {}\n", queues.dead, queues.source)),
            "{dry:?}"
        );
    }
    for more in [&["--read-only"][..], &["--yes", "--read-only"]] {
        let refused = run(more).await.assert_code(1);
        assert!(refused.errors.contains("--read-only"), "{refused:?}");
    }
    run(&["--yes", "--audit", "/nowhere/audit.log"]).await.assert_code(1);
    let missing = format!("{}-none", queues.source.rsplit('/').next().unwrap());
    for (bad, code) in [(&queues.dead, 2), (&missing, 1)] {
        queues.run(&["redrive", "--to", bad, "--yes"]).await.assert_code(code);
    }
    for wrong in [["--selector", "order_id"], ["--hold", "0s"], ["--hold", "13h"]] {
        queues.run(&[&["redrive"], &wrong[..]].concat()).await.assert_code(2);
    }
    assert_eq!((queues.count(&queues.dead).await, queues.count(&queues.source).await), ((1, 0), (0, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_skipped_by_a_filter_are_visible_immediately() {
    let queues = Queues::new("").await;
    queues.records.fail("2").await;
    for order in ["1", "2", "3"] {
        queues.dead_letter(order, &[]).await;
    }
    let redrive = ["redrive", "--to", &*queues.source, "--yes", "--state", "absent"];
    let one = queues.run(&[&redrive[..], &["--limit", "1"]].concat()).await.assert_code(0);
    assert_eq!(one.out, "redrive: 1 moved\n");
    assert_eq!(queues.count(&queues.dead).await, (2, 0));
    queues.run(&redrive).await.assert_code(0);
    assert_eq!(queues.count(&queues.dead).await, (1, 0));
    assert_eq!(sorted(orders(&queues.drain(&queues.source).await)), ["1", "3"]);
    assert_eq!(orders(&queues.drain(&queues.dead).await), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_queue_keeps_groups_and_order() {
    let queues = Queues::new(".fifo").await;
    queues.records.fail("a-2").await;
    for order in ["a-1", "a-2", "a-3", "b-1", "b-2"] {
        queues.dead_letter(order, &[]).await;
    }
    // Messages behind one that stays do not overtake it.
    let redrive = ["redrive", "--to", &*queues.source, "--yes"];
    let ended = queues.run(&[&redrive[..], &["--state", "absent"]].concat()).await.assert_code(4);
    assert_eq!(ended.out, "redrive: 3 moved, 1 left behind an earlier message of the group\n");
    let ended = queues.run(&[&redrive[..], &["--state", "absent"]].concat()).await.assert_code(4);
    assert_eq!(ended.out, "redrive: 0 moved, 1 left behind an earlier message of the group\n");
    queues.run(&redrive).await.assert_code(0);
    let received = queues.drain(&queues.source).await;
    let of = |group: &str| {
        let messages = received.iter().filter(|message| message.group.as_deref() == Some(group));
        orders(&messages.cloned().collect::<Vec<_>>())
    };
    assert_eq!(of("a"), ["a-1", "a-2", "a-3"]);
    assert_eq!(of("b"), ["b-1", "b-2"]);
    assert_eq!(queues.count(&queues.dead).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_queue_accepts_a_redriven_message_again() {
    let queues = Queues::new(".fifo").await;
    let first = queues.client.send_message().queue_url(&queues.source).message_body(body("a-1"));
    first.message_group_id("a").message_deduplication_id("id of a-1").send().await.unwrap();
    queues.drain(&queues.source).await;
    let id = queues.dead_letter("a-1", &[]).await;
    queues.run(&["redrive", "--to", &queues.source, "--yes"]).await.assert_code(0);
    let received = queues.drain(&queues.source).await;
    assert_eq!(orders(&received), ["a-1"]);
    // A repeated run sends the same id, so that a copy is dropped.
    assert_eq!(received[0].deduplication_id.as_deref(), Some(&*id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_by_message_id_is_refused() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let by = |arguments: &[&str]| {
        let redrive = ["dlq", "redrive", "--queue", &*queues.dead, "--to", &*queues.source, "--yes"];
        ended(queues.plain_command(&[&redrive[..], arguments].concat(), None))
    };
    for unprotected in [
        &[][..],
        &["--selector", "message-id"],
        &["--selector", "/none"],
        &["--selector", "/order_id", "--selector", "message-id"],
    ] {
        let refused = by(unprotected).await.assert_code(4);
        assert_eq!(refused.out, "redrive: 0 moved, 1 refused\n");
        assert_eq!(queues.count(&queues.dead).await, (1, 0));
    }
    by(&["--selector", "message-id", "--unprotected"]).await.assert_code(0);
    assert_eq!((queues.count(&queues.dead).await, queues.count(&queues.source).await), ((0, 0), (1, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_that_the_records_contradict_protects_nothing() {
    let queues = Queues::new("").await;
    let id = queues.dead_letter("1", &[]).await;
    // The function has keyed it by its message id.
    queues.records.complete(&id).await;
    queues.dead_letter("2", &[]).await;
    let listed = queues.run(&["list", "--json", "--state", "unknown"]).await.assert_code(0).objects();
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &json!(id)));
    assert!(listed[0]["redrive"].as_str().unwrap().contains("check --selector"), "{listed:?}");
    let redrive = ["redrive", "--to", &*queues.source, "--yes"];
    assert_eq!(queues.run(&redrive).await.assert_code(4).out, "redrive: 1 moved, 1 refused\n");
    queues.run(&[&redrive[..], &["--unprotected"]].concat()).await.assert_code(0);
    assert_eq!(orders(&queues.drain(&queues.source).await), ["2", "1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_protected_without_a_store() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let redrive = ["dlq", "redrive", "--queue", &*queues.dead, "--to", &*queues.source, "--selector", "/order_id"];
    let run = async |more: &[&str]| {
        let mut command = tool();
        command.envs([("AWS_ENDPOINT_URL", server("MINISTACK_ENDPOINT")), ("AWS_REGION", "us-east-1".to_owned())]);
        command.args(["--scope", SCOPE]).args(redrive).args(more);
        ended(command).await
    };
    assert_eq!(run(&["--yes"]).await.assert_code(4).out, "redrive: 0 moved, 1 refused\n");
    run(&["--yes", "--unprotected"]).await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_of_the_library_names_its_record() {
    let queues = Queues::new("").await;
    let (right, wrong) = (queues.records.abandon("1").await.to_hex(), queues.records.abandon("2").await.to_hex());
    queues.dead_letter("1", &[("lambda-once.key", &right)]).await;
    queues.dead_letter("3", &[("lambda-once.key", &wrong)]).await;
    let listed = ended(queues.plain_command(&["dlq", "list", "--queue", &queues.dead, "--json"], None)).await;
    let states: Vec<_> = listed.objects().iter().map(|message| message["state"].clone()).collect();
    assert_eq!(states, ["abandoned", "abandoned"], "{listed:?}");
    // A selector that finds another key than the function did would look up another record.
    let redrive = queues.run(&["redrive", "--to", &queues.source, "--yes"]).await.assert_code(4);
    assert_eq!(redrive.out, "redrive: 1 moved, 1 refused\n");
    assert_eq!(orders(&queues.drain(&queues.dead).await), ["3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_send_and_delete_loses_nothing() {
    let queues = Queues::new("").await;
    for order in ["1", "2", "3"] {
        queues.dead_letter(order, &[]).await;
    }
    let proxy = Proxy::start(|call| if call == "DeleteMessageBatch" { Fate::Hang } else { Fate::Forward }).await;
    let redrive = ["redrive", "--to", &*queues.source, "--yes", "--hold", "1s"];
    let mut command = queues.command(&redrive, Some(&proxy.url));
    let mut tool = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    proxy.hangs().await;
    tool.kill().unwrap();
    tool.wait().unwrap();
    assert_eq!(queues.count(&queues.source).await, (3, 0));
    queues.until_visible(&queues.dead, 3).await;

    let resumed = queues.run(&["redrive", "--to", &queues.source, "--yes"]).await.assert_code(0);
    assert_eq!(resumed.out, "redrive: 3 moved\n");
    assert_eq!(queues.count(&queues.dead).await, (0, 0));
    assert_eq!(sorted(orders(&queues.drain(&queues.source).await)), ["1", "1", "2", "2", "3", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_stays_unless_sqs_has_accepted_it() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    // Shaped by the API model of SQS: SendMessageBatchResult.
    let refused =
        r#"{"Failed":[{"Code":"InternalError","Id":"0","Message":"try again","SenderFault":false}],"Successful":[]}"#;
    let stopped = ", stopped, because none of the last ones was moved";
    for (fate, outcome, end) in
        [(Fate::Answer(refused.to_owned()), "failed", ""), (Fate::LoseAnswer, "unknown", stopped)]
    {
        let proxy =
            Proxy::start(move |call| if call == "SendMessageBatch" { fate.clone() } else { Fate::Forward }).await;
        let redrive = ["redrive", "--to", &*queues.source, "--yes"];
        let failed = ended(queues.command(&redrive, Some(&proxy.url))).await.assert_code(4);
        assert_eq!(failed.out, format!("redrive: 0 moved, 1 failed{end}\n"));
        assert_eq!(failed.audit()[0]["outcome"], outcome, "{failed:?}");
        assert_eq!(proxy.count("DeleteMessageBatch"), 0);
        assert_eq!(queues.count(&queues.dead).await, (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_sqs_refuses_does_not_stop_the_others() {
    let queues = Queues::new(".fifo").await;
    for order in ["a-1", "a-2", "b-1", "c-1", "d-1", "e-1"] {
        queues.dead_letter(order, &[]).await;
    }
    let answer = |is_senders_fault: bool| {
        let failed = json!({ "Code": "C", "Id": "0", "Message": "M", "SenderFault": is_senders_fault });
        Fate::Answer(json!({ "Failed": [failed], "Successful": [] }).to_string())
    };
    let redrive = ["redrive", "--to", &*queues.source, "--yes"];
    let run = async |fates: Vec<Fate>| {
        let fates = Mutex::new(fates.into_iter());
        let proxy = Proxy::start(move |call| match call {
            "SendMessageBatch" => fates.lock().unwrap().next().unwrap_or(Fate::Forward),
            _ => Fate::Forward,
        });
        ended(queues.command(&redrive, Some(&proxy.await.url))).await.assert_code(4).out
    };
    // Three batches in a row, whatever SQS refuses in between.
    let failing = [answer(false), answer(true), answer(false), answer(false), answer(true)];
    let stopped = "redrive: 0 moved, 4 failed, 1 left behind an earlier message of the group, stopped, because none of the last ones was moved\n";
    assert_eq!(run(failing.into()).await, stopped);
    let behind = "redrive: 2 moved, 3 failed, 1 left behind an earlier message of the group\n";
    assert_eq!(run(vec![answer(true); 3]).await, behind);
    assert_eq!(orders(&queues.drain(&queues.source).await), ["d-1", "e-1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_does_not_hide_the_moved_count() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let receives = Mutex::new(0);
    let proxy = Proxy::start(move |call| {
        let mut receives = receives.lock().unwrap();
        *receives += usize::from(call == "ReceiveMessage");
        if *receives > 1 { Fate::Answer("not JSON".to_owned()) } else { Fate::Forward }
    })
    .await;
    let failed = ended(queues.command(&["redrive", "--to", &queues.source, "--yes"], Some(&proxy.url))).await;
    assert_eq!(failed.assert_code(1).out, "redrive: 1 moved\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_stays_invisible_is_reported() {
    let queues = Queues::new("").await;
    // Shaped by the API model of SQS: ChangeMessageVisibilityBatchResult.
    for (code, exit) in [("InternalError", 1), ("AWS.SimpleQueueService.MessageNotInflight", 0)] {
        queues.dead_letter("1", &[]).await;
        let failed = json!({ "Code": code, "Id": "0", "SenderFault": false });
        let answer = json!({ "Failed": [failed], "Successful": [] }).to_string();
        let proxy = Proxy::start(move |call| match call {
            "ChangeMessageVisibilityBatch" => Fate::Answer(answer.clone()),
            _ => Fate::Forward,
        })
        .await;
        let listed = ended(queues.command(&["list", "--json"], Some(&proxy.url))).await.assert_code(exit);
        assert_eq!(listed.errors.contains("may stay invisible for the time of --hold: 1 ("), exit == 1, "{listed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_not_deleted_is_reported() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    // Shaped by the API model of SQS: DeleteMessageBatchResult.
    let refused = r#"{"Failed":[{"Code":"ReceiptHandleIsInvalid","Id":"0","SenderFault":true}],"Successful":[]}"#;
    let proxy =
        Proxy::start(
            |call| if call == "DeleteMessageBatch" { Fate::Answer(refused.to_owned()) } else { Fate::Forward },
        )
        .await;
    let copied = ended(queues.command(&["redrive", "--to", &queues.source, "--yes"], Some(&proxy.url))).await;
    let copied = copied.assert_code(4);
    assert_eq!(
        copied.out,
        "redrive: 0 moved, 1 sent, but not deleted, stopped, because none of the last ones was moved\n"
    );
    assert_eq!(copied.audit()[0]["outcome"], "copied");
    assert_eq!((queues.count(&queues.dead).await, queues.count(&queues.source).await), ((1, 0), (1, 0)));
}

/// MiniStack has no ListDeadLetterSourceQueues. The responses follow its API model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_source_queue_is_the_default() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let others = ["https://sqs.us-east-1.amazonaws.com/1/a", "https://sqs.us-east-1.amazonaws.com/1/b"];
    for (urls, code) in [(json!([]), 2), (json!(others), 2), (json!([queues.source]), 0)] {
        let answer = json!({ "queueUrls": urls }).to_string();
        let proxy = Proxy::start(move |call| match call {
            "ListDeadLetterSourceQueues" => Fate::Answer(answer.clone()),
            _ => Fate::Forward,
        })
        .await;
        ended(queues.command(&["redrive", "--yes"], Some(&proxy.url))).await.assert_code(code);
    }
    assert_eq!(orders(&queues.drain(&queues.source).await), ["1"]);
}

/// The function dead-letters it again while the tool, which moves one message a second, is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_again_is_moved_once() {
    let queues = Queues::new("").await;
    for order in 0..6 {
        queues.dead_letter(&order.to_string(), &[]).await;
    }
    queues.dead_letter("6", &[("lambda-once.encoding", "base64")]).await;
    let audit = file();
    let redrive = ["redrive", "--to", &*queues.source, "--yes", "--rate", "1", "--audit", audit.to_str().unwrap()];
    let tool = tokio::spawn(ended(queues.command(&redrive, None)));
    let first = loop {
        match objects(&std::fs::read_to_string(&audit).unwrap_or_default()).first() {
            Some(line) => break line["sent"].as_str().unwrap().to_owned(),
            None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    queues.dead_letter("0", &[("lambda-once.message-id", &first)]).await;
    let ended = tool.await.unwrap().assert_code(4);
    std::fs::remove_file(&audit).unwrap();
    assert_eq!(ended.out, "redrive: 6 moved, 1 refused, 1 dead-lettered again, and left\n");
    assert_eq!(queues.count(&queues.dead).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_names_its_queues() {
    let queues = Queues::new("").await;
    let stack = unique_name();
    let deployment = Deployment::new("", &stack).await;
    // Or the function would take the messages that come back.
    deployment.enable(false).await;
    for _ in 0..2 {
        let request = queues.client.send_message().queue_url(&deployment.dead_letters_url);
        request.message_body(body("1")).send().await.unwrap();
    }
    for of in [["--function", &deployment.name], ["--stack", &stack]] {
        let redrive = ["dlq", "redrive", "--selector", "/order_id", "--limit", "1", "--yes"];
        let command = queues.plain_command(&[&redrive[..], &of].concat(), None);
        assert_eq!(ended(command).await.assert_code(0).out, "redrive: 1 moved\n");
    }
    assert_eq!(queues.count(&deployment.dead_letters_url).await, (0, 0));
    assert_eq!(orders(&queues.drain(&deployment.queue_url).await), ["1", "1"]);
    let list = ["dlq", "list", "--selector", "/order_id", "--function", "none"];
    ended(queues.plain_command(&list, None)).await.assert_code(1);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_ends_it_between_two_messages() {
    let queues = Queues::new("").await;
    for order in ["1", "2", "3", "4", "5"] {
        queues.dead_letter(order, &[]).await;
    }
    let audit = file();
    let redrive = ["redrive", "--to", &*queues.source, "--yes", "--rate", "1", "--audit", audit.to_str().unwrap()];
    let tool = queues.command(&redrive, None).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while std::fs::read_to_string(&audit).unwrap_or_default().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let kill = std::process::Command::new("kill").args(["-INT", &tool.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = tokio::task::spawn_blocking(|| tool.wait_with_output()).await.unwrap().unwrap();
    let lines = objects(&std::fs::read_to_string(&audit).unwrap());
    std::fs::remove_file(&audit).unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let moved = u32::try_from(lines.len()).unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out, format!("redrive: {moved} moved, interrupted\n"));
    assert!((1..5).contains(&moved), "{moved}");
    assert_eq!(queues.count(&queues.dead).await, (5 - moved, 0));
    assert_eq!(queues.count(&queues.source).await, (moved, 0));
}
