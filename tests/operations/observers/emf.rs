//! Metrics in CloudWatch's embedded metric format, validated against the schema that AWS publishes.
//! <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>

use std::{
    io,
    task::{Context, Poll},
};

use lambda_once::{
    store::fault::{Call, Fault},
    telemetry::Emf,
};

use super::*;
use crate::support::process::Process;

type Lines = Arc<Mutex<Vec<String>>>;

fn world() -> (Lines, Idempotency) {
    let lines = Lines::default();
    let written = Arc::clone(&lines);
    let emf =
        Emf::new("Payments").function("charges").writer(move |line| written.lock().unwrap().push(line.to_owned()));
    (lines, engine(store(), |builder| builder.observer(emf)))
}

/// Returns the lines since the last call, after validation against the schema and the limits of the specification.
fn lines(lines: &Lines) -> Vec<Value> {
    let schema = serde_json::from_str(include_str!("emf-schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    lines
        .iter()
        .map(|text| {
            assert!(text.len() < 256 * 1024 && !text.contains('\n'));
            let line: Value = serde_json::from_str(text).unwrap();
            let problems: Vec<_> = schema.iter_errors(&line).map(|problem| problem.to_string()).collect();
            assert!(problems.is_empty(), "{problems:?} in {line}");
            let directive = &line["_aws"]["CloudWatchMetrics"][0];
            for dimension in directive["Dimensions"][0].as_array().unwrap() {
                assert!(line[dimension.as_str().unwrap()].is_string(), "the target of {dimension} in {line}");
            }
            for metric in directive["Metrics"].as_array().unwrap() {
                match &line[metric["Name"].as_str().unwrap()] {
                    Value::Array(values) => assert!(values.len() <= 100 && values.iter().all(Value::is_number)),
                    value => assert!(value.is_number(), "the target of {metric} in {line}"),
                }
            }
            line
        })
        .collect()
}

/// Returns the metrics of a line, with their units.
fn metrics(line: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    metrics.iter().map(|metric| (text(&metric["Name"]), text(&metric["Unit"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_and_a_takeover_show_from_every_entry_point() {
    for (entry_point, operation) in ALL.into_iter().zip(["charge", "sqs", "http", "invocation"]) {
        let (written, once) = world();
        send(&once, entry_point, Act::Succeed).await;
        let first = &lines(&written)[..];
        let [first] = first else { panic!("{first:?}") };
        assert_eq!((&first["Function"], &first["Operation"]), (&json!("charges"), &json!(operation)));
        assert_eq!(first["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Payments");
        assert_eq!(first["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["Function", "Operation"]]));
        let expected = [
            ("Operations", "Count"),
            ("DuplicatesSaved", "Count"),
            ("Executed", "Count"),
            ("StoreCalls", "Count"),
            ("ClaimTime", "Milliseconds"),
            ("HandlerTime", "Milliseconds"),
            ("SettleTime", "Milliseconds"),
            ("LeaseRemaining", "Milliseconds"),
        ];
        assert_eq!(metrics(first), expected.map(|(name, unit)| (name.to_owned(), unit.to_owned())));
        assert_eq!(
            (&first["Operations"], &first["DuplicatesSaved"], &first["Executed"]),
            (&json!(1), &json!(0), &json!(1))
        );
        assert_eq!((&first["StoreCalls"], &first["HandlerTime"]), (&json!(2), &json!([70.0])));

        send(&once, entry_point, Act::Succeed).await;
        let [duplicate] = &lines(&written)[..] else { panic!("one line") };
        assert_eq!((&duplicate["DuplicatesSaved"], &duplicate["Replayed"]), (&json!(1), &json!(1)), "{entry_point:?}");
        assert_eq!((&duplicate["StoreCalls"], duplicate.get("HandlerTime")), (&json!(1), None));

        let (written, once) = world();
        send(&once, entry_point, Act::Doubt).await;
        assert_eq!(lines(&written)[0]["FailedUnknown"], 1, "{entry_point:?}");
        tokio::time::advance(LAPSE).await;
        send(&once, entry_point, Act::Succeed).await;
        let [takeover] = &lines(&written)[..] else { panic!("one line") };
        assert_eq!((&takeover["TookOver"], &takeover["Takeovers"]), (&json!(1), &json!(1)), "{entry_point:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_cloudwatch_would_drop_are_replaced() {
    let long = "é".repeat(1_500);
    let (cut, short) = ("_".repeat(1_024), "_".repeat(255));
    for (name, expected, namespace) in [
        ("größe", "gr__e", "gr__e"),
        ("", "_", "_"),
        ("  ", "_", "_"),
        ("a\nb\u{7f}", "a_b_", "a_b_"),
        ("a!b", "a!b", "a_b"),
        (":x", ":x", "_x"),
        (&long, &cut, &short),
    ] {
        let written = Lines::default();
        let lines_of_emf = Arc::clone(&written);
        let emf = Emf::new(name.to_owned()).function(name.to_owned());
        let emf = emf.writer(move |line| lines_of_emf.lock().unwrap().push(line.to_owned()));
        let once = engine(store(), |builder| builder.observer(emf));
        // An empty name is refused, and the refusal is counted.
        drop(once.operation(name, "k").run(|| act(Act::Succeed)).await);
        let [line] = &lines(&written)[..] else { panic!("one line") };
        assert_eq!((&line["Function"], &line["Operation"]), (&json!(expected), &json!(expected)));
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], namespace);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_line_and_a_metric_of_over_100_values_takes_another() {
    let (written, once) = world();
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed)).concurrency(300);
    let messages = |count| testing::sqs::batch((0..count).map(|id| testing::record(&json!({ "id": id + 1 }))));
    testing::deliver(&service, &messages(100)).await;
    let [line] = &lines(&written)[..] else { panic!("one line") };
    assert_eq!((&line["Operations"], line["HandlerTime"].as_array().unwrap().len()), (&json!(100), 100));
    testing::deliver(&service, &messages(250)).await;
    let written = lines(&written);
    assert_eq!(written.len(), 3);
    let sum = |name: &str| -> u64 { written.iter().filter_map(|line| line[name].as_u64()).sum() };
    assert_eq!((sum("Operations"), sum("DuplicatesSaved"), sum("Executed")), (250, 100, 150));
    let values = written.iter().filter_map(|line| line["ClaimTime"].as_array()).map(Vec::len);
    assert_eq!(values.sum::<usize>(), 250);
}

#[tokio::test(start_paused = true)]
async fn an_operation_within_another_engines_handler_is_written_at_once() {
    let ((outer_written, outer), (inner_written, inner)) = (world(), world());
    let service = outer.sqs(Key::pointer("/id"), move |_: Value| {
        let inner = inner.clone();
        async move { inner.operation("charge", "k").run(|| act(Act::Succeed)).await.map(|_| ()) }
    });
    testing::deliver(&service, &testing::sqs::batch([testing::record(&json!({ "id": "k" }))])).await;
    for (written, operation) in [(&inner_written, "charge"), (&outer_written, "sqs")] {
        let lines = lines(written);
        let [line] = &lines[..] else { panic!("one line, not {lines:?}") };
        assert_eq!((&line["Operation"], &line["StoreCalls"]), (&json!(operation), &json!(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_shows_as_store_errors_and_a_missing_key_does_not() {
    let (written, once) = {
        let lines = Lines::default();
        let (written, store) = (Arc::clone(&lines), store());
        store.always(Call::Claim, Fault::AccessDenied);
        let emf = Emf::new("Payments").writer(move |line| written.lock().unwrap().push(line.to_owned()));
        (lines, engine(store, |builder| builder.observer(emf)))
    };
    send(&once, EntryPoint::Batch, Act::Succeed).await;
    let [dead] = &lines(&written)[..] else { panic!("one line") };
    assert_eq!((&dead["Errors"], &dead["StoreErrors"]), (&json!(1), &json!(1)));

    let (written, once) = world();
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    testing::deliver(&service, &testing::sqs::batch([testing::record(&json!({}))])).await;
    let [missing] = &lines(&written)[..] else { panic!("one line") };
    assert_eq!((&missing["Errors"], missing.get("StoreErrors")), (&json!(1), None));
}

#[tokio::test(start_paused = true)]
async fn an_operation_within_a_handler_is_written_with_it_under_its_own_name() {
    let (written, once) = world();
    let inner = once.clone();
    let service = once.sqs(Key::pointer("/id"), move |_: Value| {
        let inner = inner.clone();
        async move { inner.operation("charge", "secret-7").run(|| act(Act::Succeed)).await.map(|_| ()) }
    });
    let batch = testing::sqs::batch([testing::record(&json!({ "id": "secret-7" }))]);
    testing::deliver(&service, &batch).await;
    let told = lines(&written);
    let names: Vec<_> = told.iter().map(|line| line["Operation"].as_str().unwrap()).collect();
    assert_eq!(names, ["charge", "sqs"]);
    assert!(told.iter().all(|line| line["StoreCalls"] == 2 && !line.to_string().contains("secret")));

    let batch = testing::sqs::batch([1, 2].map(|id| testing::record(&json!({ "id": id }))));
    testing::deliver(&service, &batch).await;
    let told = lines(&written);
    let counts: Vec<_> = told.iter().map(|line| (line["Operation"].as_str(), line["Operations"].as_u64())).collect();
    assert_eq!(counts, [(Some("charge"), Some(2)), (Some("sqs"), Some(2))], "one line for both");
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_records_writes_nothing() {
    let (written, once) = world();
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    testing::deliver(&service, &testing::sqs::batch([])).await;
    assert_eq!(lines(&written), [] as [Value; 0]);
}

/// A service that fails while a request waits for it.
#[derive(Clone, Default)]
struct Failing {
    polls: u32,
}

impl tower::Service<http::Request<Full<Bytes>>> for Failing {
    type Response = http::Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = std::future::Ready<Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        if self.polls > 2 {
            return Poll::Ready(Err(io::Error::other("closed")));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: http::Request<Full<Bytes>>) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn store_calls_of_a_request_without_an_outcome_are_counted() {
    let (written, once) = world();
    let layer = IdempotencyKeyLayer::new(once, Caller::from_fn(|_| Some("alice".to_owned())));
    let request = http::Request::post("/").header("idempotency-key", "k").body(Full::<Bytes>::from("{}")).unwrap();
    // Its record is read while it waits for the service.
    assert!(layer.layer(Failing::default()).oneshot(request).await.is_err());
    let told = lines(&written);
    let [line] = &told[..] else { panic!("one line, not {told:?}") };
    assert_eq!((&line["Operation"], &line["Operations"], &line["StoreCalls"]), (&json!("http"), &json!(0), &json!(1)));
}

/// The test starts itself as a process with the variable of the function's name, which writes its metrics' settings.
#[tokio::test]
async fn the_function_has_the_name_in_lambdas_variable_or_is_local() {
    const TEST: &str = "observers::emf::the_function_has_the_name_in_lambdas_variable_or_is_local";
    if std::env::var_os("SHOWS_EMF").is_some() {
        eprintln!("{:?}", Emf::new("Payments"));
        return;
    }
    for (name, function) in [("charges", "charges"), ("", "local")] {
        let mut process = Process::start(TEST, &[("SHOWS_EMF", "1"), ("AWS_LAMBDA_FUNCTION_NAME", name)]);
        let line = process.line().await.unwrap();
        assert_eq!(line, format!("Emf {{ namespace: \"Payments\", function: \"{function}\", .. }}"));
    }
}
