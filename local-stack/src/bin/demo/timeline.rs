//! The recorded deliveries, claims, runs and effects of both modes on one time axis per scenario, as data for the page.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    api::{Answer, Exchange},
    charge::{Expected, Request},
    events::{Batch, Effect, Events},
    invoke::Span,
    logs::{HandlerRun, Times},
    message::Fate,
    scenario::Run,
    sqs::{Delivery, Queue},
    verdict::Count,
};

/// Events that share a time axis.
#[derive(Debug, Serialize)]
pub(crate) struct Scenario {
    /// Unique on the page.
    id: &'static str,
    title: String,
    about: &'static str,
    rows: Vec<Row>,
}

/// One operation, by its key, or a message or request without one.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    what: String,
    /// Expected number of effects, or `None` for an operation without one.
    expected: Option<usize>,
    protected: Side,
    unprotected: Side,
}

/// Events of an operation in one mode.
#[derive(Debug, Default, Serialize)]
struct Side {
    effects: usize,
    marks: Vec<Mark>,
}

/// One recorded event. Times are in milliseconds since the scenario's first delivery.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Mark {
    kind: Kind,
    from: f64,
    to: f64,
    /// Deliveries that overlap are in different lanes, each with its claim, run and effect.
    lane: usize,
    title: String,
    text: String,
    /// The outcome of a delivery, and how a run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Delivery,
    Claim,
    Takeover,
    Run,
    Effect,
    /// An effect that had taken place already.
    Double,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Ran,
    Replayed,
    Refused,
    Failed,
    /// A claim that no outcome settled.
    Lapsed,
}

/// The scenarios of two runs.
pub(crate) fn scenarios(events: &Events, counts: &[Count], protected: &Run, unprotected: &Run) -> Vec<Scenario> {
    let batches = events.batches.iter().enumerate().map(|(place, batch)| {
        let (id, about) = if batch.function.is_fifo() {
            ("payouts", "A FIFO queue: receive 1 outlasts the visibility timeout, so receive 2 overlaps it.")
        } else {
            ("orders", "A standard queue: receives 1 and 2 overlap, failures are redelivered, and deleted messages arrive once more.")
        };
        let queues = [protected, unprotected].map(|run| (run, &run.queues[place]));
        Scenario { id, title: format!("SQS: {}", batch.function.name()), about, rows: message_rows(batch, queues, counts) }
    });
    let http = Scenario {
        id: "charges",
        title: "HTTP: charges".to_owned(),
        about: "Two clients send each request at once and repeat it while the response is 409. A third sends it later.",
        rows: request_rows(&events.requests, [protected, unprotected], counts),
    };
    batches.chain([http]).collect()
}

fn message_rows(batch: &Batch, queues: [(&Run, &Queue); 2], counts: &[Count]) -> Vec<Row> {
    // The messages of one key are one row.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut by_key: HashMap<&String, usize> = HashMap::new();
    for (place, message) in batch.messages.iter().enumerate() {
        match message.key.as_ref().and_then(|key| by_key.get(key).copied()) {
            Some(group) => groups[group].push(place),
            None => {
                by_key.extend(message.key.as_ref().map(|key| (key, groups.len())));
                groups.push(vec![place]);
            }
        }
    }
    let starts = queues.map(|(_, queue)| {
        let deliveries = queue.messages.iter().flat_map(|queued| &queued.deliveries);
        deliveries.map(|delivery| delivery.span.sent).min()
    });
    let row = |places: Vec<usize>| {
        let first = &batch.messages[places[0]];
        let operation = batch.function.operation();
        let effect = first.key.as_ref().map(|key| Effect::new(operation, key));
        let [protected, unprotected] = [0, 1].map(|mode| {
            let (run, queue) = queues[mode];
            let mut side = SideOf::new(run, starts[mode], effect.as_ref());
            for place in &places {
                let queued = &queue.messages[*place];
                for delivery in &queued.deliveries {
                    let title = format!("Message {}, receive {}", place + 1, delivery.receive);
                    let (end, text) = conclusion(delivery, queued.fate(), &queued.message.what, mode == 0);
                    side.deliver(Some((&queued.message.id, delivery.receive)), delivery.span, title, text, end);
                }
            }
            side.finish()
        });
        let group = first.group.as_ref().map(|group| format!(", {group}")).unwrap_or_default();
        Row {
            name: format!("{operation} {}", places[0] + 1),
            what: format!("{}{group}", first.what),
            expected: expected(counts, effect.as_ref()),
            protected,
            unprotected,
        }
    };
    groups.into_iter().map(row).collect()
}

fn request_rows(requests: &[Request], runs: [&Run; 2], counts: &[Count]) -> Vec<Row> {
    let starts =
        runs.map(|run| run.exchanges.iter().flat_map(|exchange| &exchange.spans).flatten().map(|span| span.sent).min());
    let row = |(place, request): (usize, &Request)| {
        let effect = request.charge.customer.as_ref().map(|customer| Effect::new("charge", customer));
        let [protected, unprotected] = [0, 1].map(|mode| {
            let mut side = SideOf::new(runs[mode], starts[mode], effect.as_ref());
            let Exchange { clients, spans } = &runs[mode].exchanges[place];
            for (client, (answers, spans)) in (1..).zip(clients.iter().zip(spans)) {
                for (number, (answer, span)) in (1..).zip(answers.iter().zip(spans)) {
                    let (end, text) = response(answer, request.expected == Expected::Read);
                    side.deliver(None, *span, format!("Client {client}, request {number}"), text, end);
                }
            }
            side.finish()
        });
        Row {
            name: format!("request {}", place + 1),
            what: request.expected.what().to_owned(),
            expected: expected(counts, effect.as_ref()),
            protected,
            unprotected,
        }
    };
    requests.iter().enumerate().map(row).collect()
}

fn expected(counts: &[Count], effect: Option<&Effect>) -> Option<usize> {
    counts.iter().find(|count| Some(&count.effect) == effect).map(|count| count.expected)
}

/// The outcome of a delivery, in a word and in full.
fn conclusion(delivery: &Delivery, fate: Fate, what: &str, is_protected: bool) -> (End, String) {
    let (end, outcome) = match (&delivery.batch_failure, &delivery.logged) {
        (Some(reason), _) => (End::Failed, format!("the whole batch failed: {reason}")),
        (None, Some(logged)) => {
            let end = match &*logged.outcome {
                "replayed" | "replayed_failure" => End::Replayed,
                "in_progress" | "skipped" | "mismatch" | "superseded" => End::Refused,
                _ if logged.reported => End::Failed,
                _ => End::Ran,
            };
            (end, logged.outcome.replace('_', " "))
        }
        (None, None) if is_protected => (End::Failed, "no outcome was logged".to_owned()),
        (None, None) if delivery.acknowledged => (End::Ran, "ran".to_owned()),
        (None, None) => (End::Failed, "failed".to_owned()),
    };
    let then = match (delivery.acknowledged, delivery.expired) {
        (true, false) => "SQS deletes the message",
        (true, true) => "SQS cannot delete the message: it has been received again",
        (false, _) if fate == Fate::DeadLettered => "SQS keeps the message, and dead-letters it after the last receive",
        (false, _) => "SQS keeps the message",
    };
    let late = if delivery.late { ", delivered again after it was deleted" } else { "" };
    (end, format!("{what}{late}. Outcome: {outcome}. {then}."))
}

fn response(answer: &Answer, is_read: bool) -> (End, String) {
    match answer {
        Answer::Response { status, replayed: true, .. } => (End::Replayed, format!("Response: {status}, replayed.")),
        Answer::Response { status: 409, .. } => {
            (End::Refused, "Response: 409, the first request is running.".to_owned())
        }
        Answer::Response { status: status @ 400..500, .. } if !is_read => {
            (End::Refused, format!("Response: {status}."))
        }
        Answer::Response { status: status @ 500.., .. } => (End::Failed, format!("Response: {status}.")),
        Answer::Response { status, .. } => (End::Ran, format!("Response: {status}.")),
        Answer::Failed(reason) => (End::Failed, format!("The function failed: {reason}.")),
    }
}

/// A delivery's place: which one it is, when it was under way, and in which lane it is drawn.
struct Place<'a> {
    delivery: Option<(&'a str, u32)>,
    from: f64,
    to: f64,
    end: End,
    mark: usize,
}

/// A run and its delivery.
struct PlacedRun<'a> {
    log: &'a HandlerRun,
    place: usize,
    from: f64,
    to: f64,
}

/// Collects the marks of a [`Side`].
struct SideOf<'a> {
    run: &'a Run,
    start: Instant,
    effect: Option<&'a Effect>,
    places: Vec<Place<'a>>,
    marks: Vec<Mark>,
}

impl<'a> SideOf<'a> {
    fn new(run: &'a Run, start: Option<Instant>, effect: Option<&'a Effect>) -> Self {
        Self { run, start: start.unwrap_or(run.clock.0), effect, places: Vec::new(), marks: Vec::new() }
    }

    fn deliver(&mut self, delivery: Option<(&'a str, u32)>, span: Span, title: String, text: String, end: End) {
        let (from, to) = (self.at(span.sent), self.at(span.answered));
        self.places.push(Place { delivery, from, to, end, mark: self.marks.len() });
        self.marks.push(Mark { kind: Kind::Delivery, from, to, lane: 0, title, text, end: Some(end) });
    }

    fn finish(mut self) -> Side {
        self.assign_lanes();
        let runs = self.place_runs();
        let mut spans = Vec::new();
        for run in &runs {
            let lane = self.lane(run);
            self.marks.extend(self.claim(run, &runs));
            let panicked = run.log.ended.is_some_and(|(_, panicked)| panicked);
            let end = if panicked { End::Failed } else { End::Ran };
            let attempt = run.log.claim.as_ref().map(|(_, attempt)| format!(", attempt {attempt}")).unwrap_or_default();
            let text = if panicked { "The handler panicked." } else { "The handler ran to its end." };
            self.mark(Kind::Run, (run.from, run.to), lane, format!("Run{attempt}"), text.to_owned(), Some(end));
            // Whatever else ran had no effect.
            if self.took_effect(run) {
                spans.push((run.from, run.to, lane));
            }
        }
        let rows = self.run.ledger.effects.iter().zip(&self.run.ledger.times);
        let times: Vec<u64> = rows.filter(|(effect, _)| Some(*effect) == self.effect).map(|(_, at)| *at).collect();
        for (number, time) in (1..).zip(&times) {
            let at = self.ledger_time(*time);
            // A row is made at the start of its run, or at its end if the run is a slow one.
            let distance = |(from, to, _): &(f64, f64, usize)| (at - from).abs().min((to - at).abs());
            let nearest = spans.iter().enumerate().min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
            let of = nearest.map(|(place, _)| place).map(|place| spans.remove(place));
            let (at, lane) = of.map_or((at, 0), |(from, to, lane)| (at.max(from).min(to.max(from)), lane));
            let (kind, text) = match number {
                1 => (Kind::Effect, "It takes effect.".to_owned()),
                _ => (Kind::Double, "It takes effect although it has done so before.".to_owned()),
            };
            self.mark(kind, (at, at), lane, format!("Effect {number} of {}", times.len()), text, None);
        }
        self.marks.sort_by(|a, b| a.from.total_cmp(&b.from));
        Side { effects: times.len(), marks: self.marks }
    }

    /// Puts each delivery into the first lane that is free when it is sent.
    fn assign_lanes(&mut self) {
        self.places.sort_by(|a, b| a.from.total_cmp(&b.from));
        let mut busy_until: Vec<f64> = Vec::new();
        for place in &self.places {
            let free = busy_until.iter().position(|until| *until < place.from);
            let lane = free.unwrap_or(busy_until.len());
            busy_until.resize(busy_until.len().max(lane + 1), 0.0);
            busy_until[lane] = place.to;
            self.marks[place.mark].lane = lane;
        }
    }

    /// The runs of the row's effect, each with its delivery.
    fn place_runs(&self) -> Vec<PlacedRun<'a>> {
        let mut taken = HashSet::new();
        let logs = self.run.activity.runs.iter().filter(|log| {
            self.effect.is_some_and(|effect| (&log.operation, &log.key) == (&effect.operation, &effect.key))
        });
        let placed = logs.filter_map(|log| {
            let (from, to) = (self.at(log.started), self.at(log.ended.map_or(log.started, |(ended, _)| ended)));
            let by_id = log.delivery.as_ref().map(|(id, receive)| (&**id, *receive));
            let places = self.places.iter().enumerate();
            let mut places =
                places.filter(|(_, place)| place.delivery == by_id && place.from <= from && from <= place.to);
            let place = match by_id {
                Some(_) => places.next()?.0,
                // The log names no request: it is one of those under way that ran, each of which ran once.
                None => places.min_by_key(|(index, place)| (place.end != End::Ran, taken.contains(index)))?.0,
            };
            taken.insert(place);
            Some(PlacedRun { log, place, from, to })
        });
        placed.collect()
    }

    fn lane(&self, run: &PlacedRun<'_>) -> usize {
        self.marks[self.places[run.place].mark].lane
    }

    /// Returns `true` if the delivery of a run reports an effect.
    fn took_effect(&self, run: &PlacedRun<'_>) -> bool {
        self.places[run.place].end == End::Ran
    }

    /// The claim under which a run was made, and whether it took over another.
    fn claim(&self, run: &PlacedRun<'_>, runs: &[PlacedRun<'_>]) -> Vec<Mark> {
        let Some((key, attempt)) = &run.log.claim else {
            return Vec::new();
        };
        let (from, lane) = (self.claimed(run), self.lane(run));
        let times = self.times(run);
        let next = runs.iter().find(|other| other.log.claim.as_ref() == Some(&(key.clone(), attempt + 1)));
        let (to, end, how) = match (times.settle_micros, next) {
            (Some(micros), _) => (round(run.to + millis(micros)), None, "until its outcome was recorded"),
            (None, Some(next)) => (
                self.claimed(next),
                Some(End::Lapsed),
                "no outcome was recorded: it lapsed with its lease, and was taken over",
            ),
            (None, None) if self.took_effect(run) => {
                (run.to, None, "until effect and outcome were recorded in one transaction")
            }
            (None, None) => (run.to, Some(End::Lapsed), "no outcome was recorded"),
        };
        let title = format!("Claim, attempt {attempt}");
        let claim = Mark { kind: Kind::Claim, from, to, lane, title, text: format!("Held, {how}."), end };
        let takeover = times.took_over.then(|| Mark {
            kind: Kind::Takeover,
            from,
            to: from,
            lane,
            title: format!("Takeover, attempt {attempt}"),
            text: "The lease of the claim before it had ended without an outcome.".to_owned(),
            end: None,
        });
        [claim].into_iter().chain(takeover).collect()
    }

    fn times(&self, run: &PlacedRun<'_>) -> Times {
        let times = run.log.claim.as_ref().and_then(|claim| self.run.activity.times.get(claim));
        times.copied().unwrap_or_default()
    }

    /// Returns the start of the store calls that made the claim. There may be several calls in sequence.
    fn claimed(&self, run: &PlacedRun<'_>) -> f64 {
        self.places[run.place].from.max(round(run.from - millis(self.times(run).claim_micros)))
    }

    fn mark(&mut self, kind: Kind, (from, to): (f64, f64), lane: usize, title: String, text: String, end: Option<End>) {
        self.marks.push(Mark { kind, from, to, lane, title, text, end });
    }

    fn at(&self, time: Instant) -> f64 {
        let since = time.saturating_duration_since(self.start).as_secs_f64();
        let before = self.start.saturating_duration_since(time).as_secs_f64();
        round((since - before) * 1000.0)
    }

    /// A time of the ledger, in milliseconds since 1970.
    fn ledger_time(&self, time: u64) -> f64 {
        let (instant, system) = self.run.clock;
        let ago = system
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(Duration::from_millis(time));
        instant.checked_sub(ago).map_or(0.0, |at| self.at(at))
    }
}

fn millis(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1000.0
}

/// To a hundredth of a millisecond, which keeps the page small.
fn round(millis: f64) -> f64 {
    (millis * 100.0).round() / 100.0
}

impl Scenario {
    /// The number of its marks.
    #[cfg(test)]
    fn marks(&self) -> usize {
        self.rows.iter().map(|row| row.protected.marks.len() + row.unprotected.marks.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use serde_json::json;

    use crate::{
        body::Function,
        invoke::{Invocation, Timed},
        ledger::Ledger,
        logs::{Activity, Logged},
        message::{Earlier, Message},
    };

    const ORDER: &str = r#"{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR"}"#;

    /// A run in which receives 1 and 2 of one message overlap, and each of `started` took effect 5 ms after its start.
    fn run(start: Instant, message: &Message, outcomes: [&str; 2], started: &[(u32, Option<u64>)]) -> Run {
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = Queue::new(std::slice::from_ref(message), false);
        let received = [queue.receive().unwrap(), queue.receive().unwrap()];
        for ((received, outcome), sent) in received.into_iter().zip(outcomes).zip([0, 10]) {
            let answer = Timed {
                invocation: Invocation::Returned(r#"{"batchItemFailures":[]}"#.into()),
                span: Span { sent: at(sent), answered: at(sent + 50) },
            };
            let logged = Logged { outcome: outcome.to_owned(), reported: false };
            queue.settle(received, &answer, vec![Some(logged)]);
        }
        let mut activity = Activity::default();
        let mut ledger = Ledger::default();
        for (receive, attempt) in started {
            let from = u64::from(*receive) * 10;
            activity.runs.push(HandlerRun {
                operation: "order".to_owned(),
                key: "o".to_owned(),
                delivery: Some((message.id.clone(), *receive)),
                claim: attempt.map(|attempt| ("ab".to_owned(), attempt)),
                started: at(from),
                ended: Some((at(from + 20), false)),
            });
            if let Some(attempt) = attempt {
                let times = Times { took_over: false, claim_micros: 2_000, settle_micros: Some(3_000) };
                activity.times.insert(("ab".to_owned(), *attempt), times);
            }
            ledger.effects.push(Effect::new("order", "o"));
            ledger.times.push(1_000_000 + from + 5);
        }
        let clock = (start, SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000));
        // The clock is read at the end, and earlier times are computed from it.
        let clock = (clock.0 + Duration::from_secs(1), clock.1 + Duration::from_secs(1));
        Run { queues: vec![queue], exchanges: Vec::new(), ledger, activity, clock }
    }

    #[test]
    fn an_operation_is_a_row_and_its_second_effect_a_double() {
        let record = json!({ "messageId": "m", "body": ORDER });
        let message = Message::parse(&record, Function::Orders, &mut Earlier::default()).unwrap();
        let start = Instant::now();
        let protected = run(start, &message, ["executed", "replayed"], &[(1, Some(1))]);
        let unprotected = run(start, &message, ["unprotected", "unprotected"], &[(1, None), (2, None)]);
        let batch = Batch { file: "sqs-batch.json".to_owned(), function: Function::Orders, messages: vec![message] };
        let events = Events { batches: vec![batch], requests: Vec::new() };
        let counts = [Count { effect: Effect::new("order", "o"), expected: 1, protected: 1, unprotected: 2 }];

        let scenarios = scenarios(&events, &counts, &protected, &unprotected);
        let row = &scenarios[0].rows[0];
        let kinds = |side: &Side| side.marks.iter().map(|mark| (mark.kind, mark.lane)).collect::<Vec<_>>();
        let of = |side: &Side, kind| side.marks.iter().filter(|mark| mark.kind == kind).cloned().collect::<Vec<_>>();
        assert_eq!((row.expected, row.protected.effects, row.unprotected.effects), (Some(1), 1, 2));
        let [claim] = &of(&row.protected, Kind::Claim)[..] else { panic!("{row:?}") };
        assert_eq!((claim.from, claim.to, claim.lane), (8.0, 33.0, 0));
        let expected = [(Kind::Delivery, 0), (Kind::Claim, 0), (Kind::Delivery, 1), (Kind::Run, 0), (Kind::Effect, 0)];
        assert_eq!(kinds(&row.protected), expected);
        let [double] = &of(&row.unprotected, Kind::Double)[..] else { panic!("{row:?}") };
        assert_eq!((double.from, double.lane), (25.0, 1));
        assert_eq!(scenarios[0].marks(), 5 + 6);
    }
}
