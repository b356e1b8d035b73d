//! Explains a mark in words, which depend only on the mark, the records of its operations in doubt, and the time.

use std::time::Duration;

use anyhow::Result;
use lambda_once::{clock::Timestamp, order::Mark};
use serde::Serialize;

use super::{
    Found,
    view::{Doubted, MarkView, Standing, is_live},
};
use crate::{
    advice::{self, Advice},
    args::Output,
    state::State,
    text::{columns, json, plain, wrapped},
    time::relative,
};

const INDENT: usize = 15;

/// The state of an entity, explained for an operator.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    /// The newest completed operation.
    completed: String,
    /// The holder of the entity.
    who: String,
    /// The end of this state.
    until: String,
    /// The result that an operation of the entity gets.
    next: String,
    /// The actions that may be taken.
    advice: Vec<Advice>,
}

#[derive(Serialize)]
struct Json<'a> {
    entity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(flatten)]
    mark: Option<MarkView>,
    #[serde(flatten)]
    absent: Option<Absent>,
    #[serde(flatten)]
    explanation: Explanation,
}

/// The JSON output if there is no mark.
#[derive(Serialize)]
struct Absent {
    state: &'static str,
}

/// Returns the output of `order show`.
///
/// # Errors
///
/// Returns the errors of the JSON.
pub(super) fn print(found: &Found, margin: Duration, output: Output) -> Result<String> {
    let standing = Standing::of(found.mark.as_ref(), margin, found.now);
    Ok(match output {
        Output::Human => page(found, standing, &explain(found, standing, margin)),
        Output::Table => table(&found.doubted),
        Output::Json | Output::Jsonl => {
            let object = Json {
                entity: found.entity.to_string(),
                operation: found.operation.as_deref(),
                mark: found.mark.as_ref().map(|mark| MarkView::with(mark, &found.doubted, margin, found.now)),
                absent: found.mark.is_none().then(|| Absent { state: standing.as_str() }),
                explanation: explain(found, standing, margin),
            };
            json(&object)? + "\n"
        }
    })
}

/// Returns a table of the operations in doubt, with a heading.
pub(super) fn table(doubted: &[Doubted]) -> String {
    let mut rows = vec![["SEQUENCE", "RECORD", "ID"].map(str::to_owned)];
    rows.extend(doubted.iter().map(|doubted| {
        [
            doubted.sequence.to_string(),
            doubted.record.map_or("-", State::as_str).to_owned(),
            doubted.key.map_or_else(|| "several, up to this sequence".to_owned(), |key| key.to_hex()),
        ]
    }));
    columns(&rows)
}

fn page(found: &Found, standing: Standing, explanation: &Explanation) -> String {
    let operation = found.operation.as_deref().map_or(String::new(), |name| plain(name) + " ");
    let mut page = format!("{operation}{}: {}\n\n", found.entity, standing.as_str());
    let mut row = |name: &str, text: &str| {
        page.push_str(&format!("{name:INDENT$}{}\n", wrapped(text, INDENT)));
    };
    row("completed", &explanation.completed);
    row("who holds it", &explanation.who);
    row("until when", &explanation.until);
    row("an operation", &explanation.next);
    if !found.doubted.is_empty() {
        for (position, line) in table(&found.doubted).lines().enumerate() {
            page.push_str(&format!("{:INDENT$}{line}\n", if position == 0 { "in doubt" } else { "" }));
        }
    }
    page.push_str(&advice::rows(
        &explanation.advice,
        match standing {
            Standing::Held => "Wait. A mark is never changed while a live claim holds the entity.",
            _ => "Nothing: no operation is in doubt.",
        },
    ));
    page
}

fn explain(found: &Found, standing: Standing, margin: Duration) -> Explanation {
    let Some(mark) = &found.mark else { return absent() };
    Explanation {
        completed: mark.newest.map_or("No operation has completed.".to_owned(), |newest| {
            format!("The operation with the sequence {newest} has completed. Up to it, others are superseded.")
        }),
        who: holder(mark, margin, found.now),
        until: format!(
            "The mark expires at {}. After that the order begins anew.",
            relative(Timestamp::from_seconds(mark.expiration), found.now)
        ),
        next: next(&found.doubted, standing),
        advice: if standing == Standing::InDoubt { advise(found) } else { Vec::new() },
    }
}

fn absent() -> Explanation {
    Explanation {
        completed: "There is no mark: no operation of the entity was claimed within the retention, or the entity differs. If you \
                 expected one, check the scope, the tenant, the name of the operations and the type of the entity."
            .to_owned(),
        who: "Nobody.".to_owned(),
        until: "An operation is claimed.".to_owned(),
        next: "It runs.".to_owned(),
        advice: Vec::new(),
    }
}

fn holder(mark: &Mark, margin: Duration, now: Timestamp) -> String {
    match mark.holder {
        None => "Nobody.".to_owned(),
        Some(holder) if is_live(&holder, margin, now) => format!(
            "The worker with the claim {}…, for the operation with the sequence {}. Its lease ends at {}; {} ms later, for clocks that \
             differ, the claim has lapsed. A worker that still runs may renew it.",
            &holder.owner.to_hex()[..8],
            holder.sequence,
            relative(holder.lease_until, now),
            margin.as_millis()
        ),
        Some(holder) => format!(
            "Nobody. The last claim, for the operation with the sequence {}, ended at {} without an outcome.",
            holder.sequence,
            relative(holder.lease_until, now)
        ),
    }
}

fn next(doubted: &[Doubted], standing: Standing) -> String {
    let newer = match standing {
        Standing::Held => "It waits for the holder: in progress.",
        _ => "A newer one runs.",
    };
    match doubted.last() {
        None => newer.to_owned(),
        Some(last) => format!(
            "{newer} One that is older than {} waits: in progress. Nobody knows whether the operations in doubt took effect, and an older \
             operation could overwrite it. That ends when the operation completes or fails permanently, a newer one completes, or you \
             state what happened.",
            last.sequence
        ),
    }
}

/// Returns the possible actions on the operations in doubt, the safest first.
fn advise(found: &Found) -> Vec<Advice> {
    let sequence = match &found.doubted[..] {
        [one] => format!("--sequence {}", one.sequence),
        _ => "--sequence N".to_owned(),
    };
    let command = |statement: &str| format!("lambda-once order clear --id {} {sequence} {statement}", found.entity);
    let lapsed: Vec<&Doubted> = found
        .doubted
        .iter()
        .filter(|one| matches!(one.record, Some(State::Abandoned | State::HandedBack | State::Released)))
        .collect();
    let mut all = Vec::new();
    if let Some(key) = lapsed.first().and_then(|one| one.key) {
        let id = if lapsed.len() == 1 { key.to_hex() } else { "ID".to_owned() };
        all.push(Advice {
            command: format!("lambda-once settle {id} --no-result"),
            effect: "If it took effect: records that, and operations up to its sequence are superseded. `--result FILE` records the \
                     result, too."
                .to_owned(),
            risk: "If it did not take effect, it never will, and neither will older ones.".to_owned(),
        });
    }
    all.push(Advice {
        command: command("--no-effect"),
        effect: "If no run of it took effect, and none can any more: older operations run. Its record stays, so that it can run, too, by \
                 the policy of the function."
            .to_owned(),
        risk: "If it took effect, an older operation overwrites that.".to_owned(),
    });
    if lapsed.len() < found.doubted.len() {
        all.push(Advice {
            command: command("--took-effect"),
            effect: "If it took effect, and its record is gone: operations up to its sequence are superseded."
                .to_owned(),
            risk: "If it did not take effect, it never will, and neither will older ones.".to_owned(),
        });
    }
    all
}
