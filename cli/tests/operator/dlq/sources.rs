//! The sources and the functions of a dead-letter queue.

use aws_sdk_lambda::types::Environment;
use aws_sdk_sqs::types::QueueAttributeName as Attribute;
use serde_json::json;

use super::{
    orders,
    proxy::{Fate, Proxy},
    queues::{Queues, body},
    sorted,
};
use crate::{
    doctor::aws::Deployment,
    support::{Ended, ended, on_ministack, server, tool, unique_name},
};

/// Creates a queue whose messages move to a dead-letter queue after one receive, and returns its URL and ARN.
async fn source_of(queues: &Queues, dead: &str) -> (String, String) {
    let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let target = arn(dead.rsplit('/').next().unwrap());
    let policy = json!({ "deadLetterTargetArn": target, "maxReceiveCount": "1" }).to_string();
    let name = unique_name();
    let created = queues.client.create_queue().queue_name(&name).attributes(Attribute::RedrivePolicy, policy);
    (created.send().await.unwrap().queue_url.unwrap(), arn(&name))
}

/// Has SQS move the message of an order from this queue to the dead-letter queue.
async fn fail(queues: &Queues, source: &str, order: &str) {
    queues.client.send_message().queue_url(source).message_body(body(order)).send().await.unwrap();
    for received in [1, 0] {
        let found = queues.client.receive_message().queue_url(source).visibility_timeout(0).send().await.unwrap();
        assert_eq!(found.messages.unwrap_or_default().len(), received);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_moved_only_to_the_queue_that_it_comes_from() {
    let queues = Queues::new("").await;
    let (own, arn) = source_of(&queues, &queues.dead).await;
    let (other, _) = source_of(&queues, &queues.dead).await;
    fail(&queues, &own, "1").await;
    fail(&queues, &other, "2").await;
    queues.dead_letter("3", &[]).await;
    queues.dead_letter("4", &[("lambda-once.source", &arn)]).await;
    queues.dead_letter("5", &[("lambda-once.source", "arn:aws:sqs:us-east-1:000000000000:other")]).await;

    // MiniStack has no ListDeadLetterSourceQueues. The response follows its API model.
    let answer = json!({ "queueUrls": [own] }).to_string();
    let proxy = Proxy::start(move |call| match call {
        "ListDeadLetterSourceQueues" => Fate::Answer(answer.clone()),
        _ => Fate::Forward,
    })
    .await;
    let dry = ended(queues.command(&["redrive", "--dry-run"], Some(&proxy.url))).await.assert_code(0);
    assert!(dry.out.contains("would redrive 3 ") && dry.out.contains("2 refused: it comes from another"), "{dry:?}");
    let moved = ended(queues.command(&["redrive", "--yes"], Some(&proxy.url))).await.assert_code(4);
    assert_eq!(moved.out, "redrive: 3 moved, 2 skipped, because of another source\n");
    assert_eq!(sorted(orders(&queues.drain(&own).await)), ["1", "3", "4"]);

    // The operator has chosen this queue for all.
    queues.run(&["redrive", "--yes", "--to", &other]).await.assert_code(0);
    assert_eq!(sorted(orders(&queues.drain(&other).await)), ["2", "5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_another_region_is_refused() {
    let queues = Queues::new("").await;
    queues.dead_letter("1", &[]).await;
    let name = queues.dead.rsplit('/').next().unwrap();
    let list = async |region: &str| {
        let arn = format!("arn:aws:sqs:{region}:000000000000:{name}");
        ended(queues.plain_command(&["dlq", "list", "--queue", &arn], None)).await
    };
    list("us-east-1").await.assert_code(0);
    let refused = list("eu-central-1").await.assert_code(2);
    assert!(refused.errors.contains("AWS_REGION"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_a_redrive_policy_is_not_read() {
    let queues = Queues::new("").await;
    let (source, _) = source_of(&queues, &queues.dead).await;
    queues.client.send_message().queue_url(&source).message_body(body("1")).send().await.unwrap();
    let run = async |more: &[&str]| {
        let arguments = ["dlq", "list", "--selector", "/order_id", "--json", "--queue", &source];
        ended(queues.plain_command(&[&arguments, more].concat(), None)).await
    };
    let refused = run(&[]).await.assert_code(2);
    assert!(refused.errors.contains("--allow-redrive-policy"), "{refused:?}");
    let listed = run(&["--allow-redrive-policy"]).await.assert_code(0).objects();
    assert_eq!(listed[0]["receives"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_queues_of_a_function_share_one_dead_letter_queue() {
    let queues = Queues::new("").await;
    let deployment = Deployment::new("", "none").await;
    let (other, arn) = source_of(&queues, &deployment.dead_letters_url).await;
    let functions = aws_sdk_lambda::Client::new(&on_ministack().await);
    let mapping = functions.create_event_source_mapping().function_name(&deployment.name).event_source_arn(arn);
    mapping.enabled(false).send().await.unwrap();
    fail(&queues, &other, "1").await;

    let run = async |command: &str, more: &[&str]| {
        let arguments = ["dlq", command, "--selector", "/order_id", "--function", &deployment.name];
        ended(queues.plain_command(&[&arguments, more].concat(), None)).await
    };
    assert_eq!(run("list", &["--json"]).await.assert_code(0).objects().len(), 1);
    let ambiguous = run("redrive", &["--yes"]).await.assert_code(2);
    assert!(ambiguous.errors.contains("several sources"), "{ambiguous:?}");
    run("redrive", &["--yes", "--to", &other]).await.assert_code(0);
    assert_eq!(orders(&queues.drain(&other).await), ["1"]);
}

/// Runs the tool without the permission to read the attributes of this queue.
async fn run_without(queues: &Queues, denied: &str, arguments: &[&str]) -> Ended {
    let name = format!("/{}\"", denied.rsplit('/').next().unwrap());
    let proxy = Proxy::with_bodies(move |call, body| {
        if call == "GetQueueAttributes" && body.contains(&*name) { Fate::Deny } else { Fate::Forward }
    })
    .await;
    let mut command = queues.plain_command(arguments, None);
    command.env("AWS_ENDPOINT_URL_SQS", &proxy.url);
    ended(command).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_a_function_that_cannot_be_read_is_an_error() {
    let (queues, deployment) = (Queues::new("").await, Deployment::new("", "none").await);
    for denied in [&deployment.queue_url, &deployment.dead_letters_url] {
        let arguments = ["dlq", "list", "--function", &deployment.name];
        let failed = run_without(&queues, denied, &arguments).await.assert_code(1);
        let why = format!(":{} could not be read: ", denied.rsplit('/').next().unwrap());
        assert!(failed.errors.contains(&why) && failed.errors.contains("AccessDenied"), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_moved_if_a_dead_letter_queue_cannot_be_read() {
    let (queues, deployment) = (Queues::new("").await, Deployment::new("", "none").await);
    let (readable, arn) = source_of(&queues, &queues.dead).await;
    let functions = aws_sdk_lambda::Client::new(&on_ministack().await);
    let mapping = functions.create_event_source_mapping().function_name(&deployment.name).event_source_arn(arn);
    // The function has no code.
    mapping.enabled(false).send().await.unwrap();
    queues.dead_letter("1", &[]).await;

    let arguments = ["dlq", "redrive", "--selector", "/order_id", "--function", &deployment.name, "--yes"];
    let failed = run_without(&queues, &deployment.dead_letters_url, &arguments).await.assert_code(1);
    assert!(failed.errors.contains("AccessDenied") && failed.errors.contains("give --queue"), "{failed:?}");
    assert_eq!((queues.count(&queues.dead).await, queues.count(&readable).await), ((1, 0), (0, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_function_that_names_no_store_are_refused() {
    let deployment = Deployment::new("", "none").await;
    // The function has no code.
    deployment.enable(false).await;
    let config = on_ministack().await;
    let functions = aws_sdk_lambda::Client::new(&config);
    let update = functions.update_function_configuration().function_name(&deployment.name);
    update.environment(Environment::builder().variables("OTHER", "1").build()).send().await.unwrap();
    let send = aws_sdk_sqs::Client::new(&config).send_message().queue_url(&deployment.dead_letters_url);
    send.message_body(body("1")).send().await.unwrap();

    let run = async |command: &str, more: &[&str]| {
        let mut tool = tool();
        tool.env("AWS_ENDPOINT_URL", server("MINISTACK_ENDPOINT")).env("AWS_REGION", "us-east-1");
        // The store of some other function.
        tool.env("REDIS_URL", server("REDIS_URL"));
        tool.args(["dlq", command, "--selector", "/order_id", "--function", &deployment.name]).args(more);
        ended(tool).await
    };
    let listed = run("list", &["--json"]).await.assert_code(0).objects();
    assert_eq!(listed[0]["state"], "unknown");
    assert_eq!(listed[0]["redrive"], "the function names no store: give --store");
    assert_eq!(run("redrive", &["--yes"]).await.assert_code(4).out, "redrive: 0 moved, 1 refused\n");
    run("redrive", &["--yes", "--unprotected"]).await.assert_code(0);
}
