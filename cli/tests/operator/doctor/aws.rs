//! Functions and queues in MiniStack. Its responses have the shape of AWS's API models.

use std::process::Command;

use aws_sdk_lambda::{
    primitives::Blob,
    types::{Environment, FunctionCode, FunctionResponseType, Runtime},
};
use aws_sdk_sqs::types::QueueAttributeName as Attribute;

use super::{Report, report};
use crate::support::{on_ministack, server, tool, unique_name};

const ROLE: &str = "arn:aws:iam::000000000000:role/orders";
/// A ZIP file without entries.
const EMPTY_ZIP: [u8; 22] = [b'P', b'K', 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const UNCHECKED: [&str; 2] =
    ["batch size × p99 ÷ concurrency < timeout − reserve", "the permissions of its role on the table"];

/// A function with a queue. No test sends a message to an enabled mapping, because the function has no code.
pub(crate) struct Deployment {
    pub(crate) name: String,
    pub(crate) queue_url: String,
    pub(crate) dead_letters_url: String,
    mapping: String,
    queues: aws_sdk_sqs::Client,
    functions: aws_sdk_lambda::Client,
}

impl Deployment {
    /// As in template.yaml.
    pub(crate) async fn new(suffix: &str, stack: &str) -> Self {
        let config = on_ministack().await;
        let (queues, functions) = (aws_sdk_sqs::Client::new(&config), aws_sdk_lambda::Client::new(&config));
        let name = unique_name();
        let create = async |name: String, attributes: &[(Attribute, &str)]| {
            let mut request = queues.create_queue().queue_name(name);
            for (attribute, value) in attributes {
                request = request.attributes(attribute.clone(), *value);
            }
            if suffix == ".fifo" {
                request = request.attributes(Attribute::FifoQueue, "true");
            }
            request.send().await.unwrap().queue_url.unwrap()
        };
        let retention = (Attribute::MessageRetentionPeriod, "1209600");
        let dead_letters_url = create(format!("{name}-dead{suffix}"), &[retention]).await;
        let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}{suffix}");
        let redrive = redrive(&arn(&format!("{name}-dead")), 5);
        let attributes = [
            (Attribute::VisibilityTimeout, "180"),
            (Attribute::MessageRetentionPeriod, "345600"),
            (Attribute::RedrivePolicy, &*redrive),
        ];
        let queue_url = create(format!("{name}{suffix}"), &attributes).await;
        functions
            .create_function()
            .function_name(&name)
            .runtime(Runtime::Providedal2023)
            .handler("bootstrap")
            .role(ROLE)
            .timeout(30)
            .code(FunctionCode::builder().zip_file(Blob::new(EMPTY_ZIP)).build())
            .environment(Environment::builder().variables("IDEMPOTENCY_TABLE", &name).build())
            .tags("aws:cloudformation:stack-name", stack)
            .send()
            .await
            .unwrap();
        let mapping = functions
            .create_event_source_mapping()
            .function_name(&name)
            .event_source_arn(arn(&name))
            .batch_size(10)
            .function_response_types(FunctionResponseType::ReportBatchItemFailures)
            .send()
            .await
            .unwrap();
        Self { name, queue_url, dead_letters_url, mapping: mapping.uuid.unwrap(), queues, functions }
    }

    async fn set(&self, url: &str, attribute: Attribute, value: &str) {
        self.queues.set_queue_attributes().queue_url(url).attributes(attribute, value).send().await.unwrap();
    }

    pub(crate) async fn enable(&self, is_enabled: bool) {
        let update = self.functions.update_event_source_mapping().uuid(&self.mapping);
        update.enabled(is_enabled).send().await.unwrap();
    }

    async fn check(&self, arguments: &[&str]) -> Report {
        let mut command = self.command();
        command.args(["doctor", "--redrive-within", "10d"]).args(arguments);
        report(command).await
    }

    fn command(&self) -> Command {
        let mut command = tool();
        command.envs([("AWS_ENDPOINT_URL", server("MINISTACK_ENDPOINT")), ("AWS_REGION", "us-east-1".to_owned())]);
        // The store alone is on another server, because this one is not the reference for DynamoDB.
        command.env("AWS_ENDPOINT_URL_DYNAMODB", server("DYNAMODB_ENDPOINT"));
        command
    }

    /// Without the store.
    async fn codes(&self) -> Vec<String> {
        let report = self.check(&["--function", &self.name]).await;
        let codes = report.codes().into_iter().filter(|code| *code != "table-missing");
        codes.map(str::to_owned).collect()
    }
}

fn redrive(arn: &str, count: u32) -> String {
    format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{count}"}}"#)
}

#[tokio::test]
async fn a_function_is_checked_with_its_queue_and_its_store() {
    for suffix in ["", ".fifo"] {
        let deployment = Deployment::new(suffix, "none").await;
        let report = deployment.check(&["--function", &deployment.name]).await;
        // The variable of the function names the store.
        report.assert(&["table-missing"], &UNCHECKED);
        assert_eq!(report.findings[0]["resource"], format!("table {}", deployment.name));
        let arn = format!("--resource-arns arn:aws:dynamodb:us-east-1:000000000000:table/{}", deployment.name);
        assert!(report.ended.out.contains(&format!("--policy-source-arn {ROLE} ")), "{report:#?}");
        assert!(report.ended.out.contains(&arn), "{report:#?}");
        let fits = deployment.check(&["--function", &deployment.name, "--p99", "800ms"]).await;
        fits.assert(&["table-missing"], &UNCHECKED[1..]);
    }
}

#[tokio::test]
async fn the_functions_of_a_stack_are_found() {
    let stack = unique_name();
    let (first, second) = (Deployment::new("", &stack).await, Deployment::new("", &stack).await);
    let report = first.check(&["--stack", &stack]).await;
    let mut tables: Vec<_> = report.findings.iter().map(|finding| finding["resource"].as_str().unwrap()).collect();
    tables.sort_unstable();
    let mut expected = [format!("table {}", first.name), format!("table {}", second.name)];
    expected.sort_unstable();
    assert_eq!(tables, expected, "{report:#?}");
    let mut command = tool();
    command.envs([("AWS_ENDPOINT_URL", server("MINISTACK_ENDPOINT")), ("AWS_REGION", "us-east-1".to_owned())]);
    command.args(["doctor", "--stack", &unique_name()]);
    let none = crate::support::ended(command).await.assert_code(1);
    assert!(none.errors.contains("has no functions"), "{none:?}");
}

#[tokio::test]
async fn a_store_out_of_reach_is_not_checked() {
    let deployment = Deployment::new("", "none").await;
    let update = deployment.functions.update_function_configuration().function_name(&deployment.name);
    let variables = Environment::builder().variables("REDIS_URL", "redis://:secret@127.0.0.1:1").build();
    update.environment(variables).send().await.unwrap();
    let report = deployment.check(&["--function", &deployment.name]).await;
    report.assert(&[], &[UNCHECKED[0], "the store"]);
    assert!(report.ended.out.contains("no connection to redis://127.0.0.1:1"), "{report:#?}");
    assert!(!report.ended.out.contains("secret"), "{report:#?}");
}

#[tokio::test]
async fn each_fault_of_a_deployment_is_found() {
    let deployment = Deployment::new("", "none").await;
    assert_eq!(deployment.codes().await, [""; 0]);
    let (url, dead) = (&*deployment.queue_url, &*deployment.dead_letters_url);

    deployment.set(url, Attribute::VisibilityTimeout, "100").await;
    assert_eq!(deployment.codes().await, ["visibility-timeout-short"]);
    deployment.set(url, Attribute::VisibilityTimeout, "180").await;

    let name = &deployment.name;
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{name}-dead");
    deployment.set(url, Attribute::RedrivePolicy, &redrive(&arn, 3)).await;
    assert_eq!(deployment.codes().await, ["max-receive-count-low"]);
    deployment.set(url, Attribute::RedrivePolicy, "").await;
    assert_eq!(deployment.codes().await, ["dead-letter-queue-missing"]);
    deployment.set(url, Attribute::RedrivePolicy, &redrive(&arn, 5)).await;

    deployment.set(dead, Attribute::MessageRetentionPeriod, "345600").await;
    assert_eq!(deployment.codes().await, ["dead-letter-retention-short"]);
    deployment.set(dead, Attribute::MessageRetentionPeriod, "1209600").await;

    let update = deployment.functions.update_event_source_mapping().uuid(&deployment.mapping);
    update.set_function_response_types(Some(Vec::new())).send().await.unwrap();
    assert_eq!(deployment.codes().await, ["report-batch-item-failures-missing"]);
    let update = deployment.functions.update_event_source_mapping().uuid(&deployment.mapping);
    update.function_response_types(FunctionResponseType::ReportBatchItemFailures).send().await.unwrap();

    let update = deployment.functions.update_function_configuration().function_name(name);
    let variables = Environment::builder().variables("LAMBDA_ONCE_DISABLED", "1").variables("IDEMPOTENCY_TABLE", name);
    update.environment(variables.build()).send().await.unwrap();
    assert_eq!(deployment.codes().await, ["protection-disabled"]);

    deployment.queues.delete_queue().queue_url(dead).send().await.unwrap();
    assert_eq!(deployment.codes().await, ["protection-disabled", "dead-letter-queue-absent"]);
}

#[tokio::test]
async fn a_disabled_mapping_is_not_checked() {
    let deployment = Deployment::new("", "none").await;
    deployment.enable(false).await;
    deployment.queues.delete_queue().queue_url(&deployment.queue_url).send().await.unwrap();
    let report = deployment.check(&["--function", &deployment.name]).await;
    report.assert(&["table-missing"], &["the event source mapping", UNCHECKED[1]]);
    assert!(report.ended.out.contains("it is disabled"), "{report:#?}");
}

#[tokio::test]
async fn a_deleted_queue_leaves_the_other_findings() {
    let deployment = Deployment::new("", "none").await;
    deployment.queues.delete_queue().queue_url(&deployment.queue_url).send().await.unwrap();
    let report = deployment.check(&["--function", &deployment.name]).await;
    report.assert(&["queue-missing", "table-missing"], &UNCHECKED[1..]);
}

#[tokio::test]
async fn a_missing_function_leaves_the_other_findings() {
    let (deployment, missing) = (Deployment::new("", "none").await, unique_name());
    let mut command = deployment.command();
    command.args([
        "doctor",
        "--redrive-within",
        "10d",
        "--function",
        &missing,
        "--function",
        &deployment.name,
        "--output",
        "jsonl",
    ]);
    let ended = crate::support::ended(command).await.assert_code(1);
    assert!(ended.out.contains(r#""code":"table-missing""#), "{ended:?}");
    assert!(ended.out.contains(&format!(r#""resource":"function {missing}","what":"the function""#)), "{ended:?}");
    assert!(ended.out.contains("ResourceNotFoundException"), "{ended:?}");
    assert_eq!(ended.errors, "error: not all functions could be read\n");
}

impl Deployment {
    /// Maps its queue to a new alias of a new version.
    async fn map_alias(&self, alias: &str) {
        let (name, functions) = (&self.name, &self.functions);
        let version = functions.publish_version().function_name(name).send().await.unwrap().version.unwrap();
        functions.create_alias().function_name(name).name(alias).function_version(&version).send().await.unwrap();
        let mapping = functions.create_event_source_mapping().function_name(format!("{name}:{alias}"));
        mapping.event_source_arn(format!("arn:aws:sqs:us-east-1:000000000000:{name}")).send().await.unwrap();
    }

    /// Runs `dlq list` for a function.
    async fn list(&self, function: &str) -> crate::support::Ended {
        let mut command = self.command();
        command.args(["dlq", "list", "--function", function]);
        crate::support::ended(command).await
    }
}

#[tokio::test]
async fn mappings_of_aliases_are_checked_with_the_version_that_they_name() {
    let deployment = Deployment::new("", "none").await;
    let (name, functions) = (&deployment.name, &deployment.functions);
    functions.delete_event_source_mapping().uuid(&deployment.mapping).send().await.unwrap();
    let none = deployment.check(&["--function", name]).await;
    none.assert(&["table-missing"], &["event source mappings", UNCHECKED[1]]);

    let version = functions.publish_version().function_name(name).send().await.unwrap().version.unwrap();
    for alias in ["idle", "live"] {
        functions.create_alias().function_name(name).name(alias).function_version(&version).send().await.unwrap();
    }
    let mapping = functions.create_event_source_mapping().function_name(format!("{name}:live"));
    mapping.event_source_arn(format!("arn:aws:sqs:us-east-1:000000000000:{name}")).send().await.unwrap();
    // It leaves the version unchanged.
    functions.update_function_configuration().function_name(name).timeout(60).send().await.unwrap();
    let report = deployment.check(&["--function", name, "--p99", "800ms"]).await;
    report.assert(&["table-missing", "report-batch-item-failures-missing"], &UNCHECKED[1..]);
    let resource = report.findings[1]["resource"].as_str().unwrap();
    assert!(resource.starts_with(&format!("function {name}:live, event source mapping ")), "{report:#?}");
}

#[tokio::test]
async fn a_function_of_a_stack_without_a_store_is_not_checked() {
    let stack = unique_name();
    let deployment = Deployment::new("", &stack).await;
    let update = deployment.functions.update_function_configuration().function_name(&deployment.name);
    update.environment(Environment::builder().variables("OTHER", "1").build()).send().await.unwrap();
    let update = deployment.functions.update_event_source_mapping().uuid(&deployment.mapping);
    update.set_function_response_types(Some(Vec::new())).send().await.unwrap();
    let report = deployment.check(&["--stack", &stack]).await;
    report.assert(&[], &["its store, event source mappings and queues"]);
}

#[tokio::test]
async fn dlq_list_skips_and_reports_a_deleted_queue() {
    let (deployment, deleted) = (Deployment::new("", "none").await, Deployment::new("", "none").await);
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{}", deleted.name);
    let mapping = deployment.functions.create_event_source_mapping().function_name(&deployment.name);
    mapping.event_source_arn(&arn).send().await.unwrap();
    deployment.queues.delete_queue().queue_url(&deleted.queue_url).send().await.unwrap();
    let mut command = deployment.command();
    command.args(["dlq", "list", "--function", &deployment.name]);
    let ended = crate::support::ended(command).await.assert_code(3);
    assert_eq!(ended.errors, format!("there is no queue {arn}\nno such message\n"));
}

#[tokio::test]
async fn dlq_finds_the_queue_of_an_alias() {
    let deployment = Deployment::new("", "none").await;
    let name = &deployment.name;
    deployment.functions.delete_event_source_mapping().uuid(&deployment.mapping).send().await.unwrap();
    let none = deployment.list(name).await.assert_code(2);
    assert!(none.errors.contains("no dead-letter queue was found"), "{none:?}");

    deployment.map_alias("live").await;
    let found = deployment.list(name).await.assert_code(3);
    assert_eq!(found.errors, "no such message\n");

    // Another version, which may have other settings.
    deployment.functions.update_function_configuration().function_name(name).timeout(60).send().await.unwrap();
    deployment.map_alias("next").await;
    let ambiguous = deployment.list(name).await.assert_code(2);
    let choice = format!("choose one by --function: function {name}:live, function {name}:next");
    assert!(ambiguous.errors.contains(&choice), "{ambiguous:?}");
    let chosen = deployment.list(&format!("{name}:live")).await.assert_code(3);
    assert_eq!(chosen.errors, "no such message\n");
}

#[tokio::test]
async fn dlq_takes_the_queue_of_a_function_and_its_alias_once() {
    let deployment = Deployment::new("", "none").await;
    deployment.map_alias("live").await;
    let found = deployment.list(&deployment.name).await.assert_code(3);
    assert_eq!(found.errors, "no such message\n");
}
