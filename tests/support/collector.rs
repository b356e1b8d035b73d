//! Collects log events.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
    sync::{Arc, Mutex, Once},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, Interest},
};

/// One event.
#[derive(Clone, Debug)]
pub struct Line {
    pub level: Level,
    target: &'static str,
    fields: BTreeMap<&'static str, String>,
    /// The fields of the span of the event.
    span: BTreeMap<&'static str, String>,
}

impl Line {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self { level: *metadata.level(), target: metadata.target(), fields: BTreeMap::new(), span: BTreeMap::new() }
    }

    pub fn of_span(&self, field: &str) -> &str {
        self.span.get(field).map_or("", String::as_str)
    }

    pub fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A repeated field is kept twice, so that nothing is hidden.
        let text = self.fields.entry(field.name()).or_default();
        write!(text, "{value:?}").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.entry(field.name()).or_default().push_str(value);
    }
}

/// Collects every event of its thread while it is installed.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    lines: Vec<Line>,
    /// The spans. The id of each is its place, from 1.
    spans: Vec<Line>,
    entered: Vec<span::Id>,
}

/// A subscriber without events, which keeps `tracing` from disabling events permanently. `tracing` caches for each
/// event whether there is a listener, and a test without a collector may be the first to reach it.
struct Deaf;

impl Subscriber for Deaf {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Keeps the decisions of one test's subscriber from affecting concurrent tests.
pub fn keep_listening() {
    static DEAF: Once = Once::new();
    DEAF.call_once(|| tracing::subscriber::set_global_default(Deaf).unwrap());
}

impl Collector {
    /// Collects until the guard is dropped.
    pub fn install() -> (Self, DefaultGuard) {
        keep_listening();
        let collector = Self::default();
        let guard = tracing::subscriber::set_default(collector.clone());
        (collector, guard)
    }

    /// Returns the events of the library so far.
    pub fn lines(&self) -> Vec<Line> {
        self.all().into_iter().filter(|line| line.target.starts_with("lambda_once")).collect()
    }

    /// Returns all events so far, including the events of handlers.
    pub fn all(&self) -> Vec<Line> {
        self.0.lock().unwrap().lines.clone()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line::new(attributes.metadata());
        attributes.record(&mut line);
        let mut collected = self.0.lock().unwrap();
        collected.spans.push(line);
        span::Id::from_u64(collected.spans.len() as u64)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::new(event.metadata());
        event.record(&mut line);
        let mut collected = self.0.lock().unwrap();
        if let Some(span) = collected.entered.last() {
            line.span = collected.spans[usize::try_from(span.into_u64()).unwrap() - 1].fields.clone();
        }
        collected.lines.push(line);
    }

    fn enter(&self, span: &span::Id) {
        self.0.lock().unwrap().entered.push(span.clone());
    }

    fn exit(&self, _: &span::Id) {
        self.0.lock().unwrap().entered.pop();
    }
}
