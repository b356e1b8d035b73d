//! Spans that are exported by OpenTelemetry's own crates.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use opentelemetry::{Value, trace::TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt};

use super::collector::keep_listening;

/// Exports the spans of its thread while it exists.
pub struct Traces {
    exporter: InMemorySpanExporter,
    // When it is dropped, the exporter ends.
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Traces {
    pub fn exported(level: LevelFilter) -> Self {
        Self::exported_beside(level, level)
    }

    /// Does the same with another layer, which may also filter for both.
    pub fn exported_beside(level: LevelFilter, other: impl Layer<Registry> + Send + Sync) -> Self {
        keep_listening();
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests")).with_filter(level);
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(other).with(layer));
        Self { exporter, _provider: provider, _guard: guard }
    }

    /// Returns the spans that have ended since the previous call, in the order in which they began.
    pub fn take(&self) -> Vec<SpanData> {
        let mut spans = self.exporter.get_finished_spans().unwrap();
        self.exporter.reset();
        spans.sort_by_key(|span| span.start_time);
        spans
    }
}

/// Returns the text of an attribute, or an empty string without it.
pub fn attribute(span: &SpanData, name: &str) -> String {
    match value(span, name) {
        Some(Value::String(text)) => text.to_string(),
        Some(other) => panic!("{name} is not text: {other:?}"),
        None => String::new(),
    }
}

/// Returns the number in an attribute, if the span has it.
pub fn number(span: &SpanData, name: &str) -> Option<i64> {
    value(span, name).map(|value| match value {
        Value::I64(number) => *number,
        other => panic!("{name} is not an integer: {other:?}"),
    })
}

fn value<'a>(span: &'a SpanData, name: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| &attribute.value)
}
