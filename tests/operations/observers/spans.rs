//! Spans, as OpenTelemetry's own crates export them, under the names that OpenTelemetry defines.

use lambda_once::store::fault::{Call, Fault};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use opentelemetry_semantic_conventions::attribute as names;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;

use super::*;
use crate::support::traces::{Traces, attribute, number};

/// What was logged.
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

/// The name of the entry point's own span, and its kind.
fn own(entry_point: EntryPoint) -> (&'static str, SpanKind) {
    match entry_point {
        EntryPoint::Operation => ("charge", SpanKind::Internal),
        EntryPoint::Batch => ("process sqs", SpanKind::Consumer),
        EntryPoint::Http => ("http", SpanKind::Internal),
        EntryPoint::Invocation => ("invocation", SpanKind::Internal),
        other => panic!("{other:?} is new"),
    }
}

/// The span without a parent, and the rest.
fn split(spans: Vec<SpanData>) -> (SpanData, Vec<SpanData>) {
    let (mut roots, rest): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| !is_child(span));
    assert_eq!(roots.len(), 1, "{roots:?}");
    (roots.remove(0), rest)
}

fn is_child(span: &SpanData) -> bool {
    span.parent_span_id != opentelemetry::trace::SpanId::INVALID
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_an_operation_are_children_of_its_span_at_every_entry_point() {
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
            // One must not be written.
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
async fn a_batch_and_its_records_have_the_names_of_messaging_and_of_the_function() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::DEBUG));
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    let messages = ["a", "b", "c"].map(|id| testing::sqs::message(&json!({ "id": id })).id(id));
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
    let ids: Vec<_> = records.iter().map(|span| attribute(span, names::MESSAGING_MESSAGE_ID)).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    for record in records {
        assert_eq!(record.name, "process orders");
        assert_eq!(record.parent_span_id, batch.span_context.span_id());
        assert_eq!(attribute(record, names::MESSAGING_SYSTEM), "aws_sqs");
        assert_eq!(attribute(record, names::MESSAGING_DESTINATION_NAME), "orders");
        assert_eq!(attribute(record, names::MESSAGING_OPERATION_TYPE), "process");
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
        if entry_point != EntryPoint::Batch {
            assert_eq!(attribute(&root, names::ERROR_TYPE), "access_denied", "{root:?}");
            assert!(matches!(root.status, Status::Error { .. }), "{root:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_span_holds_a_payload_or_a_plain_key() {
    const SECRET: &str = "4929-1234";
    let (once, traces) = (once(), Traces::exported(LevelFilter::TRACE));
    let secret = json!({ "id": SECRET, "card": SECRET });
    let _ = once.operation("charge", SECRET).without_heartbeat().run(|| act(Act::Succeed)).await.unwrap();
    let service = once.sqs(Key::pointer("/id"), |_: Value| act(Act::Succeed));
    testing::deliver(&service, &testing::sqs::batch([testing::sqs::message(&secret)])).await;
    let handler = service_fn(|_: LambdaEvent<Value>| act(Act::Succeed));
    let layer = InvocationLayer::new(once.clone(), Key::pointer("/id")).without_heartbeat();
    layer.layer(handler).oneshot(testing::event(&secret)).await.unwrap();
    let spans = traces.take();
    assert!(spans.len() > 8, "{spans:?}");
    assert!(!format!("{spans:?}").contains(SECRET), "{spans:?}");
}

/// Where only logs are written, the names of messaging would lengthen every line of a handler.
#[tokio::test(start_paused = true)]
async fn at_info_there_is_only_the_span_that_a_handlers_logs_need() {
    let (once, traces) = (once(), Traces::exported(LevelFilter::INFO));
    for entry_point in ALL {
        send(&once, entry_point, Act::Succeed).await;
    }
    let spans = traces.take();
    assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["record"]);
    assert!(!attribute(&spans[0], "message_id").is_empty());
    for name in [names::MESSAGING_SYSTEM, names::MESSAGING_MESSAGE_ID, names::MESSAGING_OPERATION_TYPE] {
        assert_eq!(attribute(&spans[0], name), "");
    }
}

/// The layers of a function that writes logs at one level and exports traces at another.
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
        let message = testing::sqs::message(&json!({ "id": "k" })).id("the-message");
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
            assert!(found[0].contains("message_id=\"the-message\""), "{text}");
        }
        assert_eq!(traces.take().len(), 4, "the batch, its record and two calls");
    }
}
