//! Prints the demo's results.

use crate::{
    api::{Answer, Exchange},
    charge::Request,
    events::{Batch, Events},
    message::{Fate, MAX_RECEIVES},
    scenario::Run,
    sqs::{Delivery, Queue, Queued},
    table::{Cell, Colour, Table},
    verdict::{self, Count, Sequence},
};

/// The longest key that is shown in full, and how much is shown of a longer one, such as a UUID.
const KEY_WIDTH: (usize, usize) = (16, 8);

/// Prints the tables and the verdict; whether everything was as it has to be.
pub(crate) fn print(events: &Events, protected: &Run, unprotected: &Run) -> bool {
    let mut wrong = Vec::new();
    for (batch, queue) in events.batches.iter().zip(&protected.queues) {
        batch_table(batch, queue, &mut wrong);
    }
    request_table(&events.requests, &protected.exchanges, &mut wrong);
    let counts = verdict::counts(&events.effects(), protected, unprotected);
    effect_table(&counts, &mut wrong);
    for batch in &events.batches {
        sequence_table(&verdict::sequences(batch, &protected.ledger, &unprotected.ledger), &mut wrong);
    }
    conclusion(protected, &counts, &wrong)
}

fn batch_table(batch: &Batch, queue: &Queue, wrong: &mut Vec<String>) {
    let queue_is = if batch.function.is_fifo() { "SQS FIFO" } else { "SQS" };
    println!("\n{queue_is}: events/{} to the function `{}`", batch.file, batch.function.name());
    if batch.function.is_fifo() {
        println!("Each seller's messages are a group. Receive 1 takes longer than the visibility timeout: receive 2");
        println!("overlaps it, and SQS deletes nothing any more for receive 1. What is reported comes back, together");
        println!("with what is behind it in its group; {MAX_RECEIVES} receives in all.\n");
    } else {
        println!("Receives 1 and 2 overlap. What is reported as failed comes back after the visibility timeout,");
        println!("{MAX_RECEIVES} receives in all; what SQS deleted is delivered once more (late).\n");
    }
    let mut table = Table::new(["message", "key", "receive", "the function answered", "so SQS", "in the end", ""]);
    for (number, queued) in (1..).zip(&queue.messages) {
        let faults = verdict::message(queued);
        let mut first = [
            what(number, queued).into(),
            queued.message.key.as_deref().map_or("–".to_owned(), shorten).into(),
            fate(queued.fate()).into(),
            mark(faults.is_empty()),
        ];
        for group in groups(queued) {
            let [what, key, end, mark] = std::mem::take(&mut first);
            let delivery = group[0];
            table.row([what, key, receives(group).into(), said(delivery).into(), so(delivery).into(), end, mark]);
        }
        wrong.extend(faults.iter().map(|fault| format!("{} message {number}: {fault}", batch.file)));
    }
    print_table(&table);
}

/// Successive deliveries that were answered alike.
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

fn request_table(requests: &[Request], exchanges: &[Exchange], wrong: &mut Vec<String>) {
    println!("\nHTTP: events/charge-*.json to the function `charges`");
    println!("Two clients send each request at once and repeat it while the answer is 409; a third sends it later.\n");
    let mut table = Table::new(["request", "key", "client", "the function answered", ""]);
    for (request, exchange) in requests.iter().zip(exchanges) {
        let faults = verdict::request(request, exchange);
        let charge = &request.charge;
        let mut first = [
            format!("{} ({})", request.expected.what(), charge.format).into(),
            charge.key.as_deref().map_or("–".to_owned(), shorten).into(),
            mark(faults.is_empty()),
        ];
        let answers = exchange.clients.each_ref().map(|answers| chain(answers));
        let all_alike = answers.iter().all(|answer| *answer == answers[0]);
        let clients = if all_alike { vec!["1–3"] } else { vec!["1", "2", "3 (late)"] };
        for (client, answer) in clients.into_iter().zip(answers) {
            let [what, key, mark] = std::mem::take(&mut first);
            table.row([what, key, client.into(), answer.into(), mark]);
        }
        wrong.extend(faults.iter().map(|fault| format!("{}: {fault}", request.file)));
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

fn effect_table(counts: &[Count], wrong: &mut Vec<String>) {
    println!("\nLedger: one row for each time an effect happened");
    println!("The last column is the control: the same deliveries with LAMBDA_ONCE_DISABLED=1.\n");
    let mut table = Table::new(["effect", "has to happen", "happened", "", "unprotected"]);
    for count in counts {
        let effect = format!("{} {}", count.effect.operation, shorten(&count.effect.key));
        table.row([
            effect.into(),
            count.expected.to_string().into(),
            count.protected.to_string().into(),
            mark(count.is_right()),
            count.unprotected.to_string().into(),
        ]);
        if !count.is_right() {
            wrong.push(format!(
                "{}: {} ledger rows, and there have to be {}",
                count.effect, count.protected, count.expected
            ));
        }
    }
    print_table(&table);
}

fn sequence_table(sequences: &[Sequence], wrong: &mut Vec<String>) {
    if sequences.is_empty() {
        return;
    }
    println!("\nThe same in order: the numbers of the messages that took effect, group by group\n");
    let mut table = Table::new(["group", "has to happen", "happened", "", "unprotected"]);
    for sequence in sequences {
        table.row([
            sequence.group.as_str().into(),
            numbers(&sequence.expected).into(),
            numbers(&sequence.protected).into(),
            mark(sequence.is_right()),
            numbers(&sequence.unprotected).into(),
        ]);
        if !sequence.is_right() {
            wrong.push(format!(
                "{}: {} happened, and it had to be {}",
                sequence.group,
                numbers(&sequence.protected),
                numbers(&sequence.expected)
            ));
        }
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
    let doubles: usize = counts.iter().map(Count::doubles).sum();
    let deliveries = protected.queues.iter().flat_map(|queue| &queue.messages);
    let deliveries: usize = deliveries.map(|queued| queued.deliveries.len()).sum();
    let requests: usize = protected.exchanges.iter().flat_map(|exchange| &exchange.clients).map(Vec::len).sum();

    println!();
    for fault in wrong {
        println!("{} {fault}", Colour::Bad.paint("WRONG"));
    }
    if doubles == 0 {
        println!("{} the control has no double effect, so the demo proves nothing", Colour::Bad.paint("WRONG"));
    }
    let passed = wrong.is_empty() && doubles > 0;
    if passed {
        println!(
            "{} {deliveries} deliveries and {requests} requests had {effects} effects, each of them once, each seller's in order, and no message was lost.",
            Colour::Good.paint("PASSED")
        );
        println!("       Without protection they had {doubles} double effects.");
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
