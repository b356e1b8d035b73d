//! Prints the demo's results.

use crate::{
    api::{Answer, Exchange},
    charge::Request,
    events::{Batch, Events},
    message::{Fate, MAX_RECEIVES},
    page::{Line, Report},
    records::Kind,
    scenario::Run,
    sqs::{Delivery, Queue, Queued},
    table::{Cell, Colour, Table},
    timeline,
    verdict::{self, Count, Sequence},
};

/// The longest key that is shown in full, and how much is shown of a longer one, such as a UUID.
const KEY_WIDTH: (usize, usize) = (16, 8);

/// Prints the results, the summary first, and the deliveries only if `details` are wanted. Returns whether everything
/// was as expected, and the data of the page.
pub(crate) fn print(events: &Events, store: Kind, protected: &Run, unprotected: &Run, details: bool) -> (bool, Report) {
    let mut counts = verdict::counts(&events.effects(), protected, unprotected);
    counts.sort_by_key(|Count { effect, .. }| {
        (effect.operation.clone(), events.first_message(effect).map(|(number, _)| number))
    });
    let sequences: Vec<Sequence> = events
        .batches
        .iter()
        .flat_map(|batch| verdict::sequences(batch, &protected.ledger, &unprotected.ledger))
        .collect();
    let wrong = faults(events, protected, &counts, &sequences);
    print_double_effects(&counts);
    effect_table(events, &counts);
    sequence_table(&sequences);
    if details {
        for (batch, queue) in events.batches.iter().zip(&protected.queues) {
            batch_table(batch, queue);
        }
        request_table(&events.requests, &protected.exchanges);
    }
    let passed = conclusion(protected, &counts, &wrong);
    if !details {
        println!("       `make demo DETAILS=1` prints each delivery and each response.");
    }
    let scenarios = timeline::scenarios(events, &counts, protected, unprotected);
    let ledger = counts.iter().map(|count| Line {
        name: events.name(&count.effect),
        expected: count.expected,
        actual: count.protected,
        unprotected: count.unprotected,
    });
    let order = sequences.iter().map(|sequence| Line {
        name: sequence.group.clone(),
        expected: numbers(&sequence.expected),
        actual: numbers(&sequence.protected),
        unprotected: numbers(&sequence.unprotected),
    });
    let (ledger, order) = (ledger.collect(), order.collect());
    (passed, Report { store: store.name(), passed, faults: wrong, scenarios, ledger, order })
}

/// Lists every deviation from the expected results.
fn faults(events: &Events, protected: &Run, counts: &[Count], sequences: &[Sequence]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (batch, queue) in events.batches.iter().zip(&protected.queues) {
        for (number, queued) in (1..).zip(&queue.messages) {
            let faults = verdict::message(queued);
            wrong.extend(faults.iter().map(|fault| format!("{} message {number}: {fault}", batch.file)));
        }
    }
    for (request, exchange) in events.requests.iter().zip(&protected.exchanges) {
        wrong.extend(verdict::request(request, exchange).iter().map(|fault| format!("{}: {fault}", request.file)));
    }
    for count in counts.iter().filter(|count| !count.is_right()) {
        wrong.push(format!("{}: {} ledger rows, expected {}", count.effect, count.protected, count.expected));
    }
    for sequence in sequences.iter().filter(|sequence| !sequence.is_right()) {
        let [actual, expected] = [&sequence.protected, &sequence.expected].map(|found| numbers(found));
        wrong.push(format!("{}: {actual} took effect, expected {expected}", sequence.group));
    }
    wrong
}

fn print_double_effects(counts: &[Count]) {
    let without: usize = counts.iter().map(|count| doubles(count.unprotected)).sum();
    let with: usize = counts.iter().map(|count| doubles(count.protected)).sum();
    println!("\n{without} double effects without lambda-once, {with} with it.");
}

/// Returns the number of double effects among this many occurrences.
fn doubles(times: usize) -> usize {
    times.saturating_sub(1)
}

fn batch_table(batch: &Batch, queue: &Queue) {
    let queue_is = if batch.function.is_fifo() { "SQS FIFO" } else { "SQS" };
    println!("\n{queue_is}: events/{} to the function `{}`", batch.file, batch.function.name());
    if batch.function.is_fifo() {
        println!(
            "Each seller's messages are a group. Receive 1 outlasts the visibility timeout: receive 2 overlaps it,"
        );
        println!(
            "and SQS deletes nothing any more for receive 1. Failed messages come back together with those behind"
        );
        println!("them in their group, {MAX_RECEIVES} receives in all.\n");
    } else {
        println!(
            "Receives 1 and 2 overlap. Failed messages come back after the visibility timeout, {MAX_RECEIVES} receives"
        );
        println!("in all; deleted messages are delivered once more (late).\n");
    }
    let mut table = Table::new(["message", "key", "receive", "outcome", "SQS", "in the end", ""]);
    for (number, queued) in (1..).zip(&queue.messages) {
        let mut first = [
            what(number, queued).into(),
            queued.message.key.as_deref().map_or("–".to_owned(), shorten).into(),
            fate(queued.fate()).into(),
            mark(verdict::message(queued).is_empty()),
        ];
        for group in groups(queued) {
            let [what, key, end, mark] = std::mem::take(&mut first);
            let delivery = group[0];
            table.row([what, key, receives(group).into(), said(delivery).into(), so(delivery).into(), end, mark]);
        }
    }
    print_table(&table);
}

/// Successive deliveries with the same response.
fn groups(queued: &Queued) -> Vec<Vec<&Delivery>> {
    let alike = |a: &Delivery, b: &Delivery| (a.late, so(a), said(a)) == (b.late, so(b), said(b));
    let mut groups: Vec<Vec<&Delivery>> = Vec::new();
    for delivery in &queued.deliveries {
        match groups.last_mut() {
            Some(group) if alike(group[0], delivery) => group.push(delivery),
            _ => groups.push(vec![delivery]),
        }
    }
    groups
}

fn what(number: usize, queued: &Queued) -> String {
    match &queued.message.group {
        Some(group) => format!("{number} {group}: {}", queued.message.what),
        None => format!("{number} {}", queued.message.what),
    }
}

fn so(delivery: &Delivery) -> &'static str {
    match (delivery.acknowledged, delivery.expired) {
        (true, false) => "deletes it",
        (true, true) => "cannot delete it",
        (false, _) => "keeps it",
    }
}

fn receives(group: Vec<&Delivery>) -> String {
    let (first, last) = (group[0], group[group.len() - 1]);
    let late = if first.late { " (late)" } else { "" };
    if first.receive == last.receive {
        format!("{}{late}", first.receive)
    } else {
        format!("{}–{}{late}", first.receive, last.receive)
    }
}

fn said(delivery: &Delivery) -> String {
    match (&delivery.batch_failure, &delivery.logged) {
        (Some(_), _) => "batch failed".to_owned(),
        (None, Some(logged)) => logged.outcome.replace('_', " "),
        (None, None) => "(not logged)".to_owned(),
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Deleted => "deleted",
        Fate::DeadLettered => "dead-letter queue",
    }
}

fn request_table(requests: &[Request], exchanges: &[Exchange]) {
    println!("\nHTTP: events/charge-*.json to the function `charges`");
    println!(
        "Two clients send each request at once and repeat it while the response is 409; a third sends it later.\n"
    );
    let mut table = Table::new(["request", "key", "client", "response", ""]);
    for (request, exchange) in requests.iter().zip(exchanges) {
        let charge = &request.charge;
        let mut first = [
            format!("{} ({})", request.expected.what(), charge.format).into(),
            charge.key.as_deref().map_or("–".to_owned(), shorten).into(),
            mark(verdict::request(request, exchange).is_empty()),
        ];
        let answers = exchange.clients.each_ref().map(|answers| chain(answers));
        let all_alike = answers.iter().all(|answer| *answer == answers[0]);
        let clients = if all_alike { vec!["1–3"] } else { vec!["1", "2", "3 (late)"] };
        for (client, answer) in clients.into_iter().zip(answers) {
            let [what, key, mark] = std::mem::take(&mut first);
            table.row([what, key, client.into(), answer.into(), mark]);
        }
    }
    print_table(&table);
}

fn chain(answers: &[Answer]) -> String {
    let mut shown: Vec<String> = answers.iter().map(answer).collect();
    shown.dedup();
    shown.join(", then ")
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Response { status, replayed: true, .. } => format!("{status} replayed"),
        Answer::Response { status, .. } => status.to_string(),
        Answer::Failed(_) => "failed".to_owned(),
    }
}

fn effect_table(events: &Events, counts: &[Count]) {
    println!("\nLedger: how often each effect happened. The last column is the control: the same deliveries with");
    println!("LAMBDA_ONCE_DISABLED=1.\n");
    let mut table = Table::new(["effect", "expected", "actual", "", "without lambda-once"]);
    for count in counts {
        table.row([
            events.name(&count.effect).into(),
            count.expected.to_string().into(),
            count.protected.to_string().into(),
            mark(count.is_right()),
            count.unprotected.to_string().into(),
        ]);
    }
    print_table(&table);
}

fn sequence_table(sequences: &[Sequence]) {
    println!("\nOrder: the numbers of the payouts that took effect, seller by seller\n");
    let mut table = Table::new(["seller", "expected", "actual", "", "without lambda-once"]);
    for sequence in sequences {
        table.row([
            sequence.group.as_str().into(),
            numbers(&sequence.expected).into(),
            numbers(&sequence.protected).into(),
            mark(sequence.is_right()),
            numbers(&sequence.unprotected).into(),
        ]);
    }
    print_table(&table);
}

fn numbers(numbers: &[usize]) -> String {
    if numbers.is_empty() {
        return "–".to_owned();
    }
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

fn conclusion(protected: &Run, counts: &[Count], wrong: &[String]) -> bool {
    let effects: usize = counts.iter().map(|count| count.protected).sum();
    let proves_something = counts.iter().any(|count| doubles(count.unprotected) > 0);
    let deliveries = protected.queues.iter().flat_map(|queue| &queue.messages);
    let deliveries: usize = deliveries.map(|queued| queued.deliveries.len()).sum();
    let requests: usize = protected.exchanges.iter().flat_map(|exchange| &exchange.clients).map(Vec::len).sum();

    println!();
    for fault in wrong {
        println!("{} {fault}", Colour::Bad.paint("WRONG"));
    }
    if !proves_something {
        println!("{} the control has no double effect, so the demo proves nothing", Colour::Bad.paint("WRONG"));
    }
    let passed = wrong.is_empty() && proves_something;
    if passed {
        println!(
            "{} {deliveries} deliveries and {requests} requests had {effects} effects: each once, each seller's in order, no message lost.",
            Colour::Good.paint("PASSED")
        );
    } else {
        println!("{} see above.", Colour::Bad.paint("FAILED"));
    }
    passed
}

fn mark(right: bool) -> Cell {
    if right { Cell::coloured("ok", Colour::Good) } else { Cell::coloured("WRONG", Colour::Bad) }
}

fn shorten(key: &str) -> String {
    let (longest, kept) = KEY_WIDTH;
    if key.chars().count() <= longest {
        return key.to_owned();
    }
    key.chars().take(kept).chain(['…']).collect()
}

fn print_table(table: &Table) {
    for line in table.lines() {
        println!("{line}");
    }
}
