//! Describes a trace in words.

use std::fmt::Write;

use crate::{
    explorer::{Breach, Model},
    state::{Change, MOST, Mark, Message, NOBODY, Owner, Phase, Record, Request, Settle, State, Status},
    system::{Fate, Step, System, Verdict},
};

/// Returns the steps to a breach, one per line, each with its changes.
pub(crate) fn trace(system: &System, breach: &Breach<Step>) -> String {
    let Some(mut state) = system.init_states().into_iter().nth(breach.begins) else { return String::new() };
    let mut text = String::new();
    for (number, step) in breach.steps.iter().enumerate() {
        let next = system.next_state(&state, step, &mut 0);
        let changes = changes(&state, &next);
        let _ = writeln!(text, "{:4}. time {}: {}{changes}", number + 1, next.now, action(&state, step));
        state = next;
    }
    let _ = writeln!(text, "      broken: {}", breach.promise);
    text
}

fn worker(number: usize) -> char {
    ['A', 'B', 'C'][number.min(MOST - 1)]
}

/// Returns the name of a claim: its worker and the number of its delivery.
fn claim(owner: Owner) -> String {
    match owner {
        NOBODY => "nobody".to_owned(),
        11..=39 => format!("{}{}", worker(usize::from(owner / 10 - 1)), owner % 10),
        111..=139 => format!("{}' (the same claim)", claim(owner - 100)),
        _ => format!("an earlier run of position {}", owner % 100),
    }
}

fn action(state: &State, step: &Step) -> String {
    match *step {
        Step::Tick => "the time passes".to_owned(),
        Step::Begin(number) => format!("worker {} takes a delivery", worker(number)),
        Step::Arrive { place, answer } => {
            let fate = match answer {
                Fate::Arrives => "",
                Fate::IsLate => ", its answer is late",
                Fate::IsLost => ", its answer is lost",
                Fate::IsError => ", and fails",
                Fate::IsRepeated => ", and a copy of it stays on its way",
            };
            format!("{} arrives{fate}", request(&state.network[place]))
        }
        Step::Receive(number) => format!("worker {} gets the late answer", worker(number)),
        Step::TimeOut { worker: number, repeats } => {
            let then = if repeats { "sends its request again" } else { "gives up waiting for an answer" };
            format!("worker {} {then}", worker(number))
        }
        Step::Effect(number) => format!("the handler of {} takes effect", claim(state.workers[number].owner)),
        Step::Probe(number) => format!("the probe of {} looks for an effect", claim(state.workers[number].owner)),
        Step::Finish(number, verdict) => {
            let verdict = match verdict {
                Verdict::Success => "succeeds",
                Verdict::Transient => "returns a transient error",
                Verdict::Permanent => "returns a permanent error",
            };
            format!("the handler of {} {verdict}", claim(state.workers[number].owner))
        }
        Step::Renew(number) => format!("worker {} renews its lease", worker(number)),
        Step::Crash(number) => format!("worker {} dies", worker(number)),
        Step::Drop(number) => format!("the client of worker {} goes", worker(number)),
        Step::Purge(key) => format!("the expired record of key {key} is deleted"),
        Step::Read(key) => format!("the operator reads the record of key {key}"),
        Step::Amend(change) => format!("the operator sends: {}", amendment(change)),
        Step::Inquire => "the operator reads the mark, and looks up what has taken effect".to_owned(),
        Step::State(position) => format!("the operator states whether position {position} took effect"),
    }
}

fn amendment(change: Change) -> &'static str {
    match change {
        Change::Forget => "forget",
        Change::Settle(true) => "settle as completed",
        Change::Settle(false) => "settle as failed",
        Change::Release => "release",
        Change::Redact => "redact",
    }
}

fn request(message: &Message) -> String {
    let name = match message.request {
        Request::Claim => "claim",
        Request::Insert => "INSERT",
        Request::Select => "SELECT",
        Request::Update { .. } => "UPDATE",
        Request::Read => "read",
        Request::Settle(Settle::Complete { .. }) => "completion",
        Request::Settle(Settle::Fail) => "failure",
        Request::Settle(Settle::Release) => "release",
        Request::Settle(Settle::HandBack) => "hand-back",
        Request::Settle(Settle::Renew) => "renewal",
        Request::Commit { .. } => "commit",
        Request::Amend { change, .. } => return format!("the operator's {}", amendment(change)),
    };
    format!("the {name} of {}, sent at {},", claim(message.owner), message.sent)
}

fn record(record: &Record) -> String {
    let mut text = match record.status {
        Status::InProgress if record.owner == NOBODY => "INPROGRESS, handed back".to_owned(),
        Status::InProgress => format!("INPROGRESS by {} until {}", claim(record.owner), record.lease),
        Status::Completed => format!("COMPLETED by {}", claim(record.owner)),
        Status::Failed => format!("FAILED by {}", claim(record.owner)),
    };
    if record.prior == Some(Status::InProgress) {
        text.push_str(", took over");
    }
    if record.released > 0 {
        let _ = write!(text, ", attempt {} is released", record.released);
    }
    text
}

fn mark(mark: &Mark) -> String {
    let newest = mark.newest.map_or("none".to_owned(), |newest| newest.to_string());
    let holder = mark.holder.map_or("nobody".to_owned(), |holder| {
        format!("{} (position {}) until {}", claim(holder.owner), holder.sequence, holder.lease)
    });
    let doubt: Vec<_> = mark.doubt.iter().map(|(_, position)| position.to_string()).collect();
    format!("newest {newest}, held by {holder}, in doubt: [{}]", doubt.join(", "))
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "is idle",
        Phase::Claiming => "claims",
        Phase::Dropped => "waits for a claim to release it",
        Phase::Withdrawing => "looks for a claim without an answer",
        Phase::Probing => "probes",
        Phase::Running => "runs",
        Phase::Settling(_) => "settles",
        Phase::Committing => "commits",
        Phase::Deciding => "lets a release decide",
    }
}

/// Returns the changes of a step.
fn changes(before: &State, after: &State) -> String {
    let mut text = String::new();
    for (key, (old, new)) in before.records.iter().zip(&after.records).enumerate() {
        if old != new {
            let new = new.as_ref().map_or("none".to_owned(), record);
            let _ = write!(text, "; record of key {key}: {new}");
        }
    }
    if before.mark != after.mark {
        let _ = write!(text, "; mark: {}", after.mark.as_ref().map_or("none".to_owned(), mark));
    }
    for (number, (old, new)) in before.workers.iter().zip(&after.workers).enumerate() {
        if old.phase != new.phase {
            let took_over = if new.phase.is_live() && new.took_over { ", told that it took over" } else { "" };
            let _ = write!(text, "; {} {}{took_over}", worker(number), phase(new.phase));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::{
        bugs::{BUGS, Bug},
        run::of_bug,
    };

    #[test]
    fn a_trace_describes_each_step_and_its_effect() {
        let planted = BUGS.iter().find(|planted| planted.bug == Bug::L3Margin).expect("the bug");
        let found = of_bug(planted).detected.expect("a trace");
        let lines: Vec<_> = found.trace.lines().map(str::trim).collect();
        assert_eq!(Some(lines.len()), found.steps.map(|steps| steps + 1));
        assert_eq!(lines[0], "1. time 2: worker A takes a delivery; A claims");
        assert!(lines[lines.len() - 2].contains("took over; B runs, told that it took over"), "{}", found.trace);
        assert_eq!(lines[lines.len() - 1], "broken: at most one claim of a key is live");
    }
}
