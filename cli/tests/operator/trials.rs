//! Repairs with nothing but the commands that docs/troubleshooting.md prints.

use lambda_once::{AfterUnknown, Failure, Idempotency, Outcome};
use serde_json::{Value, json};

use crate::{
    doctor::aws::Deployment,
    support::{Backend, Ended, Records, ended, on_each_store, on_ministack, receipt, server},
};

on_each_store!(
    a_message_that_failed_is_done,
    an_unknown_outcome_is_settled,
    a_blocked_entity_resumes_after_order_clear
);

const PAGE: &str = include_str!("../../../docs/troubleshooting.md");
const MAX_COMMANDS: usize = 5;

/// Returns the commands of a trial, as the page prints them, without the name of the tool.
fn commands(trial: &str) -> Vec<Vec<String>> {
    let (_, after) =
        PAGE.split_once(&format!("<!-- trial: {trial} -->\n```console\n")).expect("the page has the trial");
    let (block, _) = after.split_once("```").expect("the block ends");
    let lines: Vec<&str> =
        block.lines().map(|line| line.strip_prefix("$ lambda-once ").expect("a command, without its output")).collect();
    assert!(!lines.is_empty() && lines.len() <= MAX_COMMANDS, "{lines:?}");
    lines.into_iter().map(words).collect()
}

/// Splits a command as a shell does, whose single quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (position, part) in line.split('\'').enumerate() {
        match position % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Runs the next command of a trial, with this function in place of the page's.
async fn run(records: &Records, command: Option<Vec<String>>, function: &str) -> Ended {
    let mut command = command.expect("the trial has one more command");
    if let Some(place) = command.iter().position(|word| word == "--function") {
        command[place + 1] = function.to_owned();
    }
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut tool = records.command(&arguments);
    tool.env("AWS_ENDPOINT_URL", server("MINISTACK_ENDPOINT")).env("AWS_REGION", "us-east-1");
    ended(tool).await.assert_code(0)
}

/// Runs an operation whose label is its key.
async fn operate(once: &Idempotency, operation: &str, key: &str, result: Result<String, Failure>) -> Outcome<String> {
    once.operation(operation, key).label(key).run(|| async { result }).await.unwrap()
}

async fn a_message_that_failed_is_done(backend: Backend) {
    let records = Records::new(backend).await;
    let deployment = Deployment::new("", "none").await;
    // The function has no code.
    deployment.enable(false).await;
    let queue = aws_sdk_sqs::Client::new(&on_ministack().await);
    for order in ["order 7", "order 9"] {
        let body = json!({ "order_id": order }).to_string();
        queue.send_message().queue_url(&deployment.dead_letters_url).message_body(&body).send().await.unwrap();
    }
    for (order, failure) in [
        ("order 7", Failure::permanent("the card is declined")),
        ("order 8", Failure::permanent("another")),
        ("order 9", Failure::unknown("the connection was lost")),
    ] {
        let outcome = operate(&records.earlier().await, "sqs", order, Err(failure)).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
    let once = records.engine(AfterUnknown::Rerun).await;

    let mut commands = commands("failed").into_iter();
    let listed = run(&records, commands.next(), "").await;
    assert!(listed.out.contains("order 7") && !listed.out.contains("order 8"), "{listed:?}");
    let shown = run(&records, commands.next(), "").await;
    assert!(shown.out.contains("the card is declined"), "{shown:?}");
    assert_eq!(run(&records, commands.next(), "").await.out, "forget: 1 changed\n");
    assert_eq!(run(&records, commands.next(), &deployment.name).await.out, "redrive: 1 moved\n");
    assert_eq!(commands.next(), None);

    let received = queue.receive_message().queue_url(&deployment.queue_url).send().await.unwrap();
    let received: Value = serde_json::from_str(received.messages()[0].body().unwrap()).unwrap();
    let outcome = operate(&once, "sqs", received["order_id"].as_str().unwrap(), receipt().await).await;
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
    // The operator has not decided about an abandoned one.
    let left = queue.receive_message().queue_url(&deployment.dead_letters_url).send().await.unwrap();
    let left: Value = serde_json::from_str(left.messages()[0].body().unwrap()).unwrap();
    assert_eq!(left["order_id"], "order 9");
}

async fn an_unknown_outcome_is_settled(backend: Backend) {
    let records = Records::new(backend).await;
    for order in ["order 7", "order 8"] {
        let lost = Err(Failure::unknown("the connection was lost"));
        let outcome = operate(&records.earlier().await, "charge", order, lost).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
    let mut commands = commands("abandoned").into_iter();
    let listed = run(&records, commands.next(), "").await;
    assert!(listed.out.contains("order 7") && listed.out.contains("order 8"), "{listed:?}");
    let shown = run(&records, commands.next(), "").await;
    assert!(shown.out.contains(": abandoned\n") && shown.out.contains("marked its error as unknown"), "{shown:?}");
    assert_eq!(run(&records, commands.next(), "").await.out, "settle: 1 changed\n");
    assert_eq!(run(&records, commands.next(), "").await.out, "release: 1 changed\n");
    assert_eq!(commands.next(), None);

    let once = records.engine(AfterUnknown::Refuse).await;
    let outcome = operate(&once, "charge", "order 7", receipt().await).await;
    assert!(matches!(outcome, Outcome::ReplayedWithoutResult), "{outcome:?}");
    let outcome = operate(&once, "charge", "order 8", receipt().await).await;
    assert!(matches!(outcome, Outcome::TookOver(_)), "{outcome:?}");
}

async fn a_blocked_entity_resumes_after_order_clear(backend: Backend) {
    let records = Records::new(backend).await;
    let lost = || async { Err::<String, _>(Failure::unknown("the connection was lost")) };
    let earlier = records.earlier().await;
    let outcome = earlier.operation("apply", "event 9").ordered_by("account 1", 9_u64).run(lost).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let once = records.engine(AfterUnknown::Refuse).await;
    let older = async || once.operation("apply", "event 8").ordered_by("account 1", 8_u64).run(receipt).await.unwrap();
    assert!(matches!(older().await, Outcome::InProgress { .. }));

    let mut commands = commands("blocked").into_iter();
    let shown = run(&records, commands.next(), "").await;
    assert!(shown.out.contains("older than 9 waits"), "{shown:?}");
    assert_eq!(run(&records, commands.next(), "").await.out, "order clear: 1 changed\n");
    assert_eq!(commands.next(), None);
    let outcome = older().await;
    assert!(matches!(outcome, Outcome::Executed(_)), "{outcome:?}");
}
