//! Functions, queues and tables.

use std::time::Duration;

use super::{
    super::{
        facts::{DeadLetters, Function, Mapping, Queue, Redrive, Source, Stated, Table, TableDescription, Ttl, Unread},
        finding::{Report, Severity},
        rules,
    },
    assert_only, found,
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// As template.yaml has them.
fn good_queue() -> Queue {
    Queue {
        name: "orders".into(),
        url: "https://sqs/1/orders".into(),
        is_fifo: false,
        visibility: 180 * SECOND,
        retention: 4 * DAY,
        redrive: Some(Redrive {
            max_receive_count: 5,
            target_arn: "arn:aws:sqs:eu-central-1:1:dead".into(),
            target: DeadLetters::Found { url: "https://sqs/1/dead".into(), retention: 14 * DAY },
        }),
    }
}

fn good_function(queue: Queue) -> Function {
    Function {
        name: "orders".into(),
        qualifier: None,
        arn: "arn:aws:lambda:eu-central-1:1:function:orders".into(),
        timeout: 30 * SECOND,
        role: "arn:aws:iam::1:role/orders".into(),
        variables: [("IDEMPOTENCY_TABLE".to_owned(), "idempotency".to_owned())].into(),
        mappings: vec![Mapping {
            uuid: "u-1".into(),
            is_enabled: true,
            source: Source::Queue(queue),
            batch_size: 10,
            window: Duration::ZERO,
            reports_failures: true,
        }],
        aliases: Vec::new(),
        unread: Vec::new(),
    }
}

fn stated() -> Stated {
    Stated {
        is_store_given: false,
        margin: SECOND,
        retention: 15 * DAY,
        redrive_within: Some(10 * DAY),
        lease: None,
        reserve: None,
        concurrency: 10,
        p99: Some(SECOND),
    }
}

fn check(function: &Function, stated: &Stated) -> Report {
    let mut report = Report::default();
    rules::function(function, stated, &mut report);
    report
}

fn with_queue(change: impl FnOnce(&mut Queue)) -> Report {
    let mut queue = good_queue();
    change(&mut queue);
    check(&good_function(queue), &stated())
}

fn with_redrive(change: impl FnOnce(&mut Redrive)) -> Report {
    with_queue(|queue| change(queue.redrive.as_mut().unwrap()))
}

fn with_function(change: impl FnOnce(&mut Function)) -> Report {
    let mut function = good_function(good_queue());
    change(&mut function);
    check(&function, &stated())
}

fn with_stated(change: impl FnOnce(&mut Stated)) -> Report {
    let mut stated = stated();
    change(&mut stated);
    check(&good_function(good_queue()), &stated)
}

fn good_description() -> TableDescription {
    TableDescription {
        is_active: true,
        key: vec![("id".into(), "S".into())],
        index: None,
        ttl: Some(Ttl::On("expiration".into())),
        replicas: Vec::new(),
        is_strong: false,
        is_protected: true,
        has_recovery: Some(false),
    }
}

fn with_table(change: impl FnOnce(&mut Table, &mut TableDescription)) -> Report {
    let mut table = Table { name: "t".into(), description: None, wants_index: false, home_region: None };
    let mut description = good_description();
    change(&mut table, &mut description);
    table.description = Some(description);
    let mut report = Report::default();
    rules::table(&table, &mut report);
    report
}

#[test]
fn a_good_deployment_has_no_findings_and_nothing_unchecked() {
    assert_eq!(with_queue(|_| {}), Report::default());
    assert_eq!(with_table(|_, _| {}), Report::default());
    let fifo = |queue: &mut Queue| {
        queue.name = "orders.fifo".into();
        queue.is_fifo = true;
    };
    assert_eq!(with_queue(fifo), Report::default());
}

#[test]
fn report_batch_item_failures_is_missing() {
    let report = with_function(|function| function.mappings[0].reports_failures = false);
    assert_only(
        &report,
        "report-batch-item-failures-missing",
        Severity::Error,
        "--uuid u-1 --function-response-types ReportBatchItemFailures",
    );
}

#[test]
fn report_batch_item_failures_is_missing_on_a_stream() {
    let report = with_function(|function| {
        function.mappings[0].reports_failures = false;
        function.mappings[0].source = Source::Stream("arn:aws:kinesis:eu-central-1:1:stream/s".into());
    });
    assert_only(&report, "report-batch-item-failures-missing", Severity::Error, "ReportBatchItemFailures");
    assert!(report.findings[0].reason.contains("records, and advances past them"), "{report:#?}");
}

#[test]
fn the_visibility_timeout_is_below_six_function_timeouts() {
    let report = with_queue(|queue| queue.visibility = 179 * SECOND);
    assert_only(&report, "visibility-timeout-short", Severity::Warning, "--attributes VisibilityTimeout=180");
}

#[test]
fn the_visibility_timeout_leaves_out_the_batching_window() {
    let report = with_function(|function| function.mappings[0].window = 20 * SECOND);
    assert_only(&report, "visibility-timeout-short", Severity::Warning, "VisibilityTimeout=200");
}

#[test]
fn the_visibility_timeout_ends_before_the_function_does() {
    let report = with_queue(|queue| queue.visibility = 30 * SECOND);
    assert_only(&report, "visibility-timeout-short", Severity::Error, "VisibilityTimeout=180");
}

/// 31 s of lease and 1 s of margin against 4 × 8 s.
#[test]
fn the_lease_outlasts_all_receives() {
    let lasting = |seconds| with_queue(|queue| queue.visibility = seconds * SECOND);
    let report = lasting(8);
    let codes = found(&report);
    assert_eq!(
        codes,
        [("visibility-timeout-short", Severity::Error), ("lease-outlasts-receives", Severity::Error)],
        "{report:#?}"
    );
    assert!(report.findings[1].fix.starts_with("maxReceiveCount: 6,"), "{report:#?}");
    assert_eq!(found(&lasting(9)), [("visibility-timeout-short", Severity::Error)]);
}

#[test]
fn the_batch_does_not_fit_into_the_timeout() {
    // 10 × 28.5 s ÷ 10 = 30 s − 5 %.
    let report = with_stated(|stated| stated.p99 = Some(Duration::from_millis(28_500)));
    assert_only(&report, "batch-exceeds-timeout", Severity::Warning, "--uuid u-1 --batch-size 9");
    assert_eq!(found(&with_stated(|stated| stated.p99 = Some(Duration::from_millis(28_499)))), []);
}

#[test]
fn the_handler_blocks_its_thread() {
    let report = with_stated(|stated| (stated.p99, stated.concurrency) = (Some(3 * SECOND), 1));
    assert_only(&report, "batch-exceeds-timeout", Severity::Warning, "--batch-size 9");
}

#[test]
fn a_message_takes_longer_than_the_function() {
    let report = with_stated(|stated| (stated.p99, stated.concurrency) = (Some(40 * SECOND), 1));
    assert_only(&report, "batch-exceeds-timeout", Severity::Warning, "Timeout: 403 or more");
}

#[test]
fn the_duration_of_a_handler_is_not_known() {
    let report = with_stated(|stated| stated.p99 = None);
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert!(report.not_checked[0].why.contains("--p99"), "{report:#?}");
}

#[test]
fn max_receive_count_is_below_five() {
    let report = with_redrive(|redrive| redrive.max_receive_count = 4);
    assert_only(&report, "max-receive-count-low", Severity::Warning, r#"\"maxReceiveCount\":\"5\""#);
}

#[test]
fn the_first_failure_is_dead_lettered() {
    let report = with_redrive(|redrive| redrive.max_receive_count = 1);
    let expected = [("max-receive-count-low", Severity::Warning), ("lease-outlasts-receives", Severity::Error)];
    assert_eq!(found(&report), expected, "{report:#?}");
}

#[test]
fn the_dead_letter_queue_is_missing() {
    let report = with_queue(|queue| queue.redrive = None);
    assert_only(&report, "dead-letter-queue-missing", Severity::Warning, "RedrivePolicy");
}

#[test]
fn the_dead_letter_queue_does_not_exist() {
    let report = with_redrive(|redrive| redrive.target = DeadLetters::Missing);
    assert_only(&report, "dead-letter-queue-absent", Severity::Error, "deadLetterTargetArn");
}

#[test]
fn the_dead_letter_queue_cannot_be_read() {
    let report = with_redrive(|redrive| redrive.target = DeadLetters::Unread { why: "ExpiredToken".into() });
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert_eq!(report.not_checked[0].why, "ExpiredToken");
}

#[test]
fn the_dead_letter_queue_keeps_messages_no_longer_than_the_queue() {
    let keeping = |days, is_fifo| {
        with_queue(|queue| {
            queue.is_fifo = is_fifo;
            let target = DeadLetters::Found { url: "https://sqs/1/dead".into(), retention: days * DAY };
            queue.redrive.as_mut().unwrap().target = target;
        })
    };
    assert_only(&keeping(4, false), "dead-letter-retention-short", Severity::Warning, "--queue-url https://sqs/1/dead");
    assert_eq!(found(&keeping(5, false)), []);
    // The move starts the age of a message in a FIFO queue again.
    assert_eq!(found(&keeping(4, true)), []);
    assert_only(&keeping(3, true), "dead-letter-retention-short", Severity::Warning, "1209600");
}

#[test]
fn records_expire_before_the_queue_drops_the_message() {
    let report = with_stated(|stated| stated.retention = 4 * DAY);
    assert_only(&report, "retention-below-queue", Severity::Error, "5 * 24 * 60 * 60");
}

#[test]
fn records_expire_before_the_dead_letter_queue_drops_the_message() {
    // The default. 4 + 14 days, in a FIFO queue 2 × 4 + 14.
    for (is_fifo, horizon) in [(false, 18), (true, 22)] {
        let mut queue = good_queue();
        queue.is_fifo = is_fifo;
        let function = good_function(queue);
        let kept = |days| check(&function, &Stated { retention: days * DAY, redrive_within: None, ..stated() });
        let fix = format!("{} * 24 * 60 * 60", horizon + 1);
        assert_only(&kept(15), "retention-below-redrive", Severity::Warning, &fix);
        assert_only(&kept(horizon), "retention-below-redrive", Severity::Warning, &fix);
        assert_eq!(found(&kept(horizon + 1)), []);
    }
}

#[test]
fn records_expire_before_a_late_redrive_is_handled() {
    let redriven = |days| with_stated(|stated| stated.redrive_within = Some(days * DAY));
    assert_only(&redriven(11), "retention-below-redrive", Severity::Warning, "16 * 24 * 60 * 60");
    assert_eq!(found(&redriven(10)), []);
}

#[test]
fn the_lease_exceeds_the_function_timeout() {
    let report = with_stated(|stated| stated.lease = Some(31 * SECOND));
    assert_only(&report, "lease-exceeds-timeout", Severity::Warning, "`.deadline(&context)`");
}

#[test]
fn the_protection_is_switched_off() {
    let report = with_function(|function| {
        function.variables.insert("LAMBDA_ONCE_DISABLED".into(), "TRUE".into());
    });
    assert_only(&report, "protection-disabled", Severity::Error, "LAMBDA_ONCE_DISABLED");
}

#[test]
fn a_function_without_a_store_is_not_checked() {
    let mut function = good_function(good_queue());
    function.variables.clear();
    function.mappings[0].reports_failures = false;
    let report = check(&function, &stated());
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert!(report.not_checked[0].why.contains("give --store"), "{report:#?}");
    let report = check(&function, &Stated { is_store_given: true, ..stated() });
    assert_only(&report, "report-batch-item-failures-missing", Severity::Error, "u-1");
    assert_eq!(report.not_checked, []);
}

#[test]
fn a_source_has_no_rules() {
    let report = with_function(|function| function.mappings[0].source = Source::Other);
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
}

#[test]
fn a_function_without_mappings_may_have_them_at_a_version() {
    let report = with_function(|function| function.mappings.clear());
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert!(report.not_checked[0].why.contains("--function NAME:VERSION"), "{report:#?}");
    let of_version = with_function(|function| {
        function.mappings.clear();
        function.qualifier = Some("7".into());
    });
    assert_eq!(of_version, Report::default());
    let of_aliases = with_function(|function| {
        function.mappings.clear();
        function.aliases.push(good_function(good_queue()));
    });
    assert_eq!(of_aliases, Report::default());
}

#[test]
fn a_disabled_mapping_is_reported_as_not_checked() {
    let report = with_function(|function| {
        function.mappings[0].is_enabled = false;
        function.mappings[0].reports_failures = false;
        function.mappings[0].source = Source::MissingQueue("arn:aws:sqs:eu-central-1:1:gone".into());
    });
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert!(report.not_checked[0].resource.ends_with("mapping u-1"), "{report:#?}");
    assert!(report.not_checked[0].why.contains("disabled"), "{report:#?}");
}

#[test]
fn the_queue_of_a_mapping_does_not_exist() {
    let source = || Source::MissingQueue("arn:aws:sqs:eu-central-1:1:gone".into());
    let report = with_function(|function| function.mappings[0].source = source());
    assert_only(&report, "queue-missing", Severity::Error, "delete-event-source-mapping --uuid u-1");
    assert!(report.findings[0].reason.contains(":gone"), "{report:#?}");
}

#[test]
fn unreadable_resources_are_reported_and_the_rest_is_checked() {
    let report = with_function(|function| {
        let unread = Source::UnreadQueue { arn: "arn:aws:sqs:eu-central-1:1:q".into(), why: "AccessDenied".into() };
        function.mappings.push(Mapping { source: unread, ..function.mappings[0].clone() });
        function.mappings[0].reports_failures = false;
        function.unread.push(Unread { what: "event source mappings".into(), why: "Throttling".into() });
    });
    assert_only(&report, "report-batch-item-failures-missing", Severity::Error, "u-1");
    let mut why: Vec<_> = report.not_checked.iter().map(|unchecked| unchecked.why.as_str()).collect();
    why.sort_unstable();
    assert_eq!(why, ["AccessDenied", "Throttling"], "{report:#?}");
}

#[test]
fn a_function_names_its_unreadable_parts_and_queues() {
    let mut function = good_function(good_queue());
    assert_eq!(function.unreadable(), [""; 0]);
    let mut queue = good_queue();
    queue.redrive.as_mut().unwrap().target = DeadLetters::Unread { why: "ExpiredToken".into() };
    let unread = Source::UnreadQueue { arn: "arn:aws:sqs:eu-central-1:1:q".into(), why: "AccessDenied".into() };
    for source in [Source::Queue(queue), unread, Source::MissingQueue("arn:aws:sqs:eu-central-1:1:gone".into())] {
        function.mappings.push(Mapping { source, ..function.mappings[0].clone() });
    }
    function.unread.push(Unread { what: "event source mappings".into(), why: "Throttling".into() });
    let expected = [
        "function orders: event source mappings could not be read: Throttling",
        "the queue arn:aws:sqs:eu-central-1:1:dead could not be read: ExpiredToken",
        "the queue arn:aws:sqs:eu-central-1:1:q could not be read: AccessDenied",
    ];
    assert_eq!(function.unreadable(), expected);
}

#[test]
fn the_table_is_missing() {
    let table = Table { name: "t".into(), ..Table::default() };
    let mut report = Report::default();
    rules::table(&table, &mut report);
    assert_only(&report, "table-missing", Severity::Error, "aws dynamodb create-table --table-name t ");
}

#[test]
fn the_table_is_not_active() {
    let report = with_table(|_, description| description.is_active = false);
    assert_only(&report, "table-not-active", Severity::Warning, "table-exists");
}

#[test]
fn the_key_has_another_name_type_or_part() {
    for key in [&[("pk", "S")][..], &[("id", "N")], &[("id", "S"), ("sk", "S")]] {
        let key = key.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect();
        let report = with_table(|_, description| description.key = key);
        assert_only(&report, "table-key-schema", Severity::Error, "KeySchema");
    }
}

#[test]
fn ttl_is_off() {
    let report = with_table(|_, description| description.ttl = Some(Ttl::Off));
    assert_only(&report, "ttl-off", Severity::Warning, "Enabled=true,AttributeName=expiration");
}

#[test]
fn ttl_is_on_another_attribute() {
    let report = with_table(|_, description| description.ttl = Some(Ttl::On("ttl".into())));
    assert_only(&report, "ttl-attribute", Severity::Warning, "Enabled=false,AttributeName=ttl");
}

#[test]
fn a_global_table_has_no_home_region() {
    let replicate = |table: &mut Table, description: &mut TableDescription, home: Option<&str>| {
        description.replicas = vec!["us-east-1".into()];
        table.home_region = home.map(str::to_owned);
    };
    let report = with_table(|table, description| replicate(table, description, None));
    assert_only(&report, "home-region-missing", Severity::Error, "Config::home_region");
    assert_eq!(found(&with_table(|table, description| replicate(table, description, Some("us-east-1")))), []);
}

#[test]
fn a_strongly_consistent_global_table_needs_no_home_region() {
    let report = with_table(|_, description| {
        description.replicas = vec!["us-east-1".into()];
        description.is_strong = true;
    });
    assert_eq!(found(&report), []);
}

#[test]
fn the_index_for_lists_is_missing() {
    let report = with_table(|table, _| table.wants_index = true);
    assert_only(&report, "listing-index-missing", Severity::Error, "docs/dynamodb.md");
}

#[test]
fn the_index_for_lists_has_another_key() {
    let report = with_table(|_, description| {
        description.index = Some(vec![("open".into(), "S".into()), ("claimed_at".into(), "S".into())]);
    });
    assert_only(&report, "listing-index-key", Severity::Error, "docs/dynamodb.md");
    let good = Some(vec![("open".to_owned(), "S".to_owned()), ("claimed_at".to_owned(), "N".to_owned())]);
    assert_eq!(found(&with_table(|_, description| description.index = good)), []);
}

#[test]
fn the_table_can_be_deleted() {
    let report = with_table(|_, description| description.is_protected = false);
    assert_only(&report, "deletion-protection-off", Severity::Note, "--deletion-protection-enabled");
}

#[test]
fn point_in_time_recovery_is_on() {
    let report = with_table(|_, description| description.has_recovery = Some(true));
    assert_only(&report, "point-in-time-recovery-on", Severity::Note, "PointInTimeRecoveryEnabled=false");
}

#[test]
fn ttl_and_recovery_cannot_be_read() {
    let report = with_table(|_, description| (description.ttl, description.has_recovery) = (None, None));
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 2), "{report:#?}");
}
