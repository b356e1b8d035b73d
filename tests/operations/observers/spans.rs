//! Spans in the OpenTelemetry format, with the names that OpenTelemetry defines.

use lambda_once::store::fault::{Call, Fault};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use opentelemetry_semantic_conventions::attribute as names;
use tracing::{Instrument, field::Empty, level_filters::LevelFilter};
use tracing_subscriber::{Layer as _, filter::Targets, layer::SubscriberExt as _};

use super::*;
use crate::support::{
    process::Process,
    traces::{Traces, attribute, number},
};

/// The written logs.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn once() -> Idempotency {
    engine(store(), |builder| builder)
}

/// Returns the name of the entry point's span, and its kind.
fn own(entry_point: EntryPoint) -> (&'static str, SpanKind) {
    match entry_point {
        EntryPoint::Operation => ("charge", SpanKind::Internal),
        EntryPoint::Batch => ("process sqs", SpanKind::Consumer),
        EntryPoint::Http => ("http", SpanKind::Internal),
        EntryPoint::Invocation => ("invocation", SpanKind::Internal),
        other => panic!("{other:?} is new"),
    }
}

/// Returns the span without a parent, and the others.
fn split(spans: Vec<SpanData>) -> (SpanData, Vec<SpanData>) {
    let (mut roots, rest): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| !is_child(span));
    assert_eq!(roots.len(), 1, "{roots:?}");
    (roots.remove(0), rest)
}

fn is_child(span: &SpanData) -> bool {
    span.parent_span_id != opentelemetry::trace::SpanId::INVALID
}

#[tokio::test(start_paused = true)]
async fn at_every_entry_point_store_calls_are_children_of_the_operations_span() {
    for entry_point in ALL {
        let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
        send(&once, entry_point, Act::Succeed).await;
        let (root, rest) = split(traces.take());
        assert_eq!((&*root.name, root.span_kind.clone()), own(entry_point), "{root:?}");
        let calls: Vec<_> = rest.iter().filter(|span| span.span_kind == SpanKind::Client).collect();
        let described: Vec<_> =
            calls.iter().map(|call| (&*call.name, attribute(call, names::DB_OPERATION_NAME))).collect();
        assert_eq!(described, [("claim memory", "claim".into()), ("complete memory", "complete".into())]);
        for call in calls {
            assert_eq!(call.parent_span_id, root.span_context.span_id(), "{entry_point:?}");
            assert_eq!(attribute(call, names::DB_SYSTEM_NAME), "memory");
            // A size of one must not be written.
            assert_eq!(number(call, names::DB_OPERATION_BATCH_SIZE), None);
            assert_eq!(call.status, Status::Unset);
        }
        if entry_point != EntryPoint::Batch {
            assert_eq!((&*attribute(&root, "outcome"), number(&root, "attempt")), ("executed", Some(1)));
            assert_eq!(attribute(&root, "key").len(), 64, "{root:?}");
        }

        send(&once, entry_point, Act::Succeed).await;
        let (root, rest) = split(traces.take());
        assert_eq!(
            rest.iter().map(|span| &*span.name).collect::<Vec<_>>(),
            ["claim memory"],
            "a duplicate runs nothing"
        );
        if entry_point != EntryPoint::Batch {
            assert_eq!(attribute(&root, "outcome"), "replayed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_and_its_records_have_the_names_of_messaging_and_the_function() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    let messages = ["a", "b", "c"].map(|id| testing::record(&json!({ "id": id })).id(id));
    testing::deliver(&service, &testing::sqs::batch(messages)).await;

    let (batch, rest) = split(traces.take());
    for (name, value) in [
        (names::MESSAGING_SYSTEM, "aws_sqs"),
        (names::MESSAGING_OPERATION_NAME, "process"),
        (names::MESSAGING_OPERATION_TYPE, "process"),
        (names::MESSAGING_DESTINATION_NAME, "orders"),
        (names::FAAS_TRIGGER, "pubsub"),
    ] {
        assert_eq!(attribute(&batch, name), value, "{name} of {batch:?}");
    }
    assert_eq!(number(&batch, names::MESSAGING_BATCH_MESSAGE_COUNT), Some(3));
    assert!(!attribute(&batch, names::FAAS_INVOCATION_ID).is_empty(), "{batch:?}");

    let records: Vec<_> = rest.iter().filter(|span| span.span_kind == SpanKind::Consumer).collect();
    let logged = rest.iter().filter(|span| span.name == "record");
    let of_log: Vec<_> = logged.map(|span| (span.parent_span_id, number(span, "attempt"))).collect();
    let inside: Vec<_> = records.iter().map(|span| (span.span_context.span_id(), Some(1))).collect();
    assert_eq!(of_log, inside, "what logs need is in the span of the trace");
    let ids: Vec<_> = records.iter().map(|span| attribute(span, names::MESSAGING_MESSAGE_ID)).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    for record in records {
        assert_eq!(record.name, "process orders");
        assert_eq!(record.parent_span_id, batch.span_context.span_id());
        assert_eq!(attribute(record, names::MESSAGING_SYSTEM), "aws_sqs");
        assert_eq!(attribute(record, names::MESSAGING_DESTINATION_NAME), "orders");
        assert_eq!(attribute(record, names::MESSAGING_OPERATION_TYPE), "process");
        assert_eq!((&record.status, attribute(record, names::ERROR_TYPE)), (&Status::Unset, String::new()));
    }

    let calls: Vec<_> = rest.iter().filter(|span| span.span_kind == SpanKind::Client).collect();
    let claim = calls.first().unwrap();
    assert_eq!(claim.name, "BATCH claim memory");
    assert_eq!(attribute(claim, names::DB_OPERATION_NAME), "BATCH claim");
    assert_eq!(number(claim, names::DB_OPERATION_BATCH_SIZE), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_and_an_operation_that_it_fails_have_the_error() {
    for entry_point in ALL {
        let (store, traces) = (store(), Traces::exported(LevelFilter::DEBUG));
        store.always(Call::Claim, Fault::AccessDenied);
        let once = engine(store, |builder| builder);
        match entry_point {
            EntryPoint::Operation => {
                once.operation("charge", "k").run(|| act(Act::Succeed)).await.unwrap_err();
            }
            _ => send(&once, entry_point, Act::Succeed).await,
        }
        let (root, rest) = split(traces.take());
        let claim = &rest[0];
        assert_eq!(attribute(claim, names::ERROR_TYPE), "access_denied", "{claim:?}");
        assert!(matches!(claim.status, Status::Error { .. }), "{claim:?}");
        // A batch response contains the failed records.
        if entry_point == EntryPoint::Batch {
            assert_eq!(attribute(&root, names::ERROR_TYPE), "", "{root:?}");
        } else {
            assert_eq!(attribute(&root, names::ERROR_TYPE), "access_denied", "{root:?}");
            assert!(matches!(root.status, Status::Error { .. }), "{root:?}");
            assert_eq!(number(&root, "attempt"), None, "nothing was granted");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_panics_or_is_cancelled_ends_its_span_in_error() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    let service = once.sqs(Key::pointer("/id"), |body: Value| async move {
        match body["id"].as_str().unwrap() {
            "panics" => panic!("no"),
            "hangs" => std::future::pending().await,
            "fails" => Err(Failure::permanent("no")),
            _ => Ok(()),
        }
    });
    let message = |id| testing::record(&json!({ "id": id })).id(id);
    let batch = testing::sqs::batch(["panics", "hangs", "fails", "succeeds"].map(message));
    testing::deliver(&service.concurrency(4), &batch).await;
    let spans = traces.take();
    let ended = |id: &str| {
        let span = spans.iter().find(|span| attribute(span, names::MESSAGING_MESSAGE_ID) == id).unwrap();
        (matches!(span.status, Status::Error { .. }), attribute(span, names::ERROR_TYPE))
    };
    assert_eq!(ended("panics"), (true, "panicked".into()));
    assert_eq!(ended("hangs"), (true, "cancelled".into()));
    assert_eq!(ended("fails"), (true, "failed".into()));
    assert_eq!(ended("succeeds"), (false, String::new()));
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_batch_that_returns_an_error_has_the_error() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Fail));
    let batch = testing::sqs::batch([testing::record(&json!({ "id": "k" }))]);
    let answered =
        |batch: SpanData| (matches!(batch.status, Status::Error { .. }), attribute(&batch, names::ERROR_TYPE));
    testing::deliver(&service, &batch).await;
    assert_eq!(answered(split(traces.take()).0), (false, String::new()), "the record is reported");
    testing::deliver(&service.all_or_error(), &batch).await;
    assert_eq!(answered(split(traces.take()).0), (true, "batch".into()));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_handler_of_several_records_is_one_span() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    let handler = |bodies: Vec<Value>| async move { bodies.iter().map(|_| Ok::<_, Failure>(())).collect() };
    let service = once.sqs(Key::pointer("/id"), lambda_once::batch::bulk(3, handler));
    let message = |id| testing::record(&json!({ "id": id })).id(id);
    testing::deliver(&service, &testing::sqs::batch(["a", "b", "c"].map(message))).await;
    let (_, rest) = split(traces.take());
    let process: Vec<_> = rest.iter().filter(|span| span.span_kind == SpanKind::Consumer).collect();
    assert_eq!(process.len(), 1, "{process:?}");
    assert_eq!(process[0].name, "process orders");
    assert_eq!(number(process[0], names::MESSAGING_BATCH_MESSAGE_COUNT), Some(3));
    assert_eq!(attribute(process[0], names::MESSAGING_MESSAGE_ID), "");
    let log = rest.iter().find(|span| span.name == "records").unwrap();
    assert_eq!((log.parent_span_id, number(log, "count")), (process[0].span_context.span_id(), Some(3)));
}

#[tokio::test(start_paused = true)]
async fn a_keyless_operation_has_its_error_and_an_unprotected_one_its_outcome() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    once.operation("charge", "").run(|| act(Act::Succeed)).await.unwrap_err();
    let (root, _) = split(traces.take());
    assert_eq!((&*attribute(&root, "outcome"), &*attribute(&root, names::ERROR_TYPE)), ("key_missing", "key_missing"));
    assert!(matches!(root.status, Status::Error { .. }), "{root:?}");

    let once = engine(store(), |builder| builder.disabled(true));
    let _ = once.operation("charge", "k").run(|| act(Act::Succeed)).await.unwrap();
    let (root, _) = split(traces.take());
    assert_eq!((&*attribute(&root, "outcome"), &root.status), ("executed", &Status::Unset));
}

/// The client gets its response, and the span of the store call has the error.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_open_is_no_error() {
    let (store, traces) = (store(), Traces::exported(LevelFilter::DEBUG));
    store.always(Call::Claim, Fault::AccessDenied);
    let once = engine(store, |builder| builder);
    let handler = service_fn(async |_: http::Request<Full<Bytes>>| {
        Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::from("done")))
    });
    let layer = IdempotencyKeyLayer::new(once, Caller::from_fn(|_| Some("alice".to_owned()))).fail_open();
    let request = http::Request::post("/").header("idempotency-key", "\"k\"");
    layer.layer(handler).oneshot(request.body(Full::<Bytes>::from("{}")).unwrap()).await.unwrap();
    let (root, rest) = split(traces.take());
    assert_eq!((&*attribute(&root, "outcome"), &root.status), ("unprotected", &Status::Ok), "{root:?}");
    assert_eq!(attribute(&rest[0], names::ERROR_TYPE), "access_denied");
}

/// A filter may want the application's spans at *debug*, and of the library's only those at *info*.
#[tokio::test(start_paused = true)]
async fn the_outcome_is_not_written_into_a_span_of_the_application() {
    let filter = Targets::new().with_default(LevelFilter::DEBUG).with_target("lambda_once", LevelFilter::INFO);
    let (once, traces) = (once(), Traces::exported_beside(LevelFilter::DEBUG, filter));
    let checkout = tracing::debug_span!("checkout", outcome = Empty);
    let charge = once.operation("charge", "k").run(|| act(Act::Succeed));
    let _ = charge.instrument(checkout).await.unwrap();
    let (checkout, rest) = split(traces.take());
    assert_eq!((&*checkout.name, &*attribute(&checkout, "outcome")), ("checkout", ""));
    assert!(rest.is_empty(), "{rest:?}");
}

/// The other tests have a subscriber that wants *trace*, so this one runs in a separate process.
#[tokio::test(start_paused = true)]
async fn spans_at_debug_are_written_where_nothing_wants_trace() {
    const TEST: &str = "observers::spans::spans_at_debug_are_written_where_nothing_wants_trace";
    const ALONE: &str = "LAMBDA_ONCE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        return assert!(Process::passes(TEST, &[(ALONE, "1")]));
    }
    let written = Written::default();
    let writer = {
        let written = written.clone();
        move || written.clone()
    };
    let log = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let subscriber = tracing_subscriber::registry().with(LevelFilter::DEBUG).with(log);
    let _guard = tracing::subscriber::set_default(subscriber);
    let _ = once().operation("charge", "k").run(|| act(Act::Succeed)).await.unwrap();
    let text = written.text();
    let is_within = |line: &str| line.contains("operation{otel.name=\"charge\"") && line.contains("executed");
    assert!(text.lines().any(is_within), "{text}");
}

// Tests P28, P29.
#[tokio::test(start_paused = true)]
async fn no_span_holds_a_payload_or_a_plain_key() {
    const SECRET: &str = "4929-1234";
    let (once, traces) = (once(), Traces::exported(LevelFilter::TRACE));
    let secret = json!({ "id": SECRET, "card": SECRET });
    let _ = once.operation("charge", SECRET).heartbeat(None).run(|| act(Act::Succeed)).await.unwrap();
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    testing::deliver(&service, &testing::sqs::batch([testing::record(&secret)])).await;
    let handler = service_fn(|_: LambdaEvent<Value>| act(Act::Succeed));
    let layer = InvocationLayer::new(once.clone(), Key::pointer("/id")).heartbeat(None);
    layer.layer(handler).oneshot(testing::event(&secret)).await.unwrap();
    // Errors contain text.
    let service = once.clone().named("undecodable").sqs(Key::pointer("/id"), |_: u32| act(Act::Fail));
    testing::deliver(&service, &testing::sqs::batch([testing::record(&secret)])).await;
    let service = once.clone().named("failing").sqs(Key::pointer("/id"), |_: Value| act(Act::Fail));
    testing::deliver(&service, &testing::sqs::batch([testing::record(&secret)])).await;
    let handler = service_fn(async |_: http::Request<Full<Bytes>>| {
        Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::from("done")))
    });
    let layer = IdempotencyKeyLayer::new(once, Caller::from_fn(|_| Some(SECRET.to_owned())));
    for body in [SECRET, "another"] {
        let request = http::Request::post("/").header("idempotency-key", format!("\"{SECRET}\""));
        layer.layer(handler).oneshot(request.body(Full::<Bytes>::from(body)).unwrap()).await.unwrap();
    }
    let spans = traces.take();
    assert!(spans.len() > 16, "{spans:?}");
    assert!(!format!("{spans:?}").contains(SECRET), "{spans:?}");
}

/// If only logs are written, the attributes of messaging would lengthen every line of a handler.
#[tokio::test(start_paused = true)]
async fn at_info_there_is_only_the_span_that_a_handlers_logs_need() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::INFO));
    for entry_point in ALL {
        send(&once, entry_point, Act::Succeed).await;
    }
    let spans = traces.take();
    assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["record"]);
    assert!(!attribute(&spans[0], "message_id").is_empty());
    assert_eq!(number(&spans[0], "attempt"), Some(1));
    for name in [names::MESSAGING_SYSTEM, names::MESSAGING_MESSAGE_ID, names::MESSAGING_OPERATION_TYPE] {
        assert_eq!(attribute(&spans[0], name), "");
    }
}

/// A function may write logs at one level and export traces at another.
#[tokio::test(start_paused = true)]
async fn logs_and_traces_with_filters_of_their_own_lose_nothing_to_each_other() {
    for (level, lines) in [(LevelFilter::INFO, vec!["the handler's own line", "batch"]), (LevelFilter::WARN, vec![])] {
        let written = Written::default();
        let writer = {
            let written = written.clone();
            move || written.clone()
        };
        let log = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).with_filter(level);
        let traces = Traces::exported_beside(LevelFilter::DEBUG, log);
        let once = once();
        let service = once.sqs(Key::pointer("/id"), |_: Value| async {
            tracing::info!("the handler's own line");
            act(Act::Succeed).await
        });
        let message = testing::record(&json!({ "id": "k" })).id("the-message");
        testing::deliver(&service, &testing::sqs::batch([message])).await;
        tracing::warn!("after the batch");
        tracing::warn!("and once more");

        let text = written.text();
        let mut expected = lines;
        expected.extend(["after the batch", "and once more"]);
        let found: Vec<_> = text.lines().collect();
        assert_eq!(found.len(), expected.len(), "{text}");
        for (line, expected) in found.iter().zip(&expected) {
            assert!(line.contains(expected), "{line}");
        }
        if level == LevelFilter::INFO {
            assert!(found[0].contains("record{message_id=\"the-message\""), "{text}");
            assert!(!text.contains("messaging.") && !text.contains("otel."), "{text}");
        }
        assert_eq!(traces.take().len(), 5, "the batch, its record's two spans and two calls");
    }
}
