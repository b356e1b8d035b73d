//! The actions that an operator may take on a record, and their risks.

use lambda_once::record::{KeyHash, Record};
use serde::Serialize;

use crate::{state::State, text::wrapped};

/// An action that may be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Advice {
    /// The command.
    pub(crate) command: String,
    /// The effect of the command.
    pub(crate) effect: String,
    /// The risk of the command.
    pub(crate) risk: String,
}

/// Returns the actions that may be taken on this record, the safest first.
pub(crate) fn of(state: State, record: &Record, hash: KeyHash) -> Vec<Advice> {
    let advice = |command: &str, effect: &str, risk: &str| Advice {
        command: format!("lambda-once {}", command.replace("ID", &hash.to_hex())),
        effect: effect.to_owned(),
        risk: risk.to_owned(),
    };
    let redact =
        advice("redact ID", "Removes the result and the label. The operation stays decided.", "It cannot be undone.");
    match state {
        State::Absent | State::Running => Vec::new(),
        State::Foreign => vec![advice(
            "forget ID",
            "Deletes the record: the next delivery runs.",
            "If a worker still runs it, both may take effect. If it took effect, it does so again.",
        )],
        State::Abandoned | State::HandedBack | State::Released => {
            let mut all = vec![
                advice(
                    "settle ID --result FILE",
                    "If it took effect: records that, and duplicates get this result. `--no-result` records none.",
                    "If it did not take effect, it never will.",
                ),
                advice(
                    "settle ID --failed TEXT",
                    "If it must not run: records a permanent failure, which duplicates get.",
                    "If it took effect, callers see a failure.",
                ),
                advice(
                    "release ID",
                    "If it did not take effect: the next delivery runs, under every policy, and the handler sees a takeover (`took_over()`).",
                    "If it took effect, it does so again, unless the handler finds out.",
                ),
                advice(
                    "forget ID",
                    "Deletes the record: the next delivery runs, and the handler does not see that an outcome was lost.",
                    "As of a release, and the handler has no reason to find out.",
                ),
            ];
            if state == State::Released {
                all.retain(|advice| !advice.command.contains(" release "));
            }
            if record.sequence.is_some() {
                for advice in &mut all {
                    let settles = advice.command.contains(" settle ");
                    advice.effect.push_str(if settles {
                        " It ends the doubt in the order of its entity."
                    } else {
                        " It stays in doubt: older operations of its entity wait."
                    });
                }
            }
            all
        }
        State::Failed => vec![
            advice(
                "forget ID",
                "Deletes the record: the next delivery runs. A message in a dead-letter queue has to be redriven.",
                "If the cause remains, it fails again. If a part of it took effect, that happens again.",
            ),
            redact,
        ],
        State::Done | State::Superseded => vec![
            redact,
            advice("forget ID --done", "Deletes the record: the next delivery runs.", "It takes effect a second time."),
        ],
    }
}

const INDENT: usize = 15;
const ADVICE_INDENT: usize = INDENT + 4;

/// Returns the rows of a page for these actions, or advice if no action is possible.
pub(crate) fn rows(advice: &[Advice], otherwise: &str) -> String {
    let mut rows = String::new();
    if advice.is_empty() {
        rows.push_str(&format!("{:INDENT$}{}\n", "you may", wrapped(otherwise, INDENT)));
    }
    for (position, advice) in advice.iter().enumerate() {
        let name = if position == 0 { "you may" } else { "" };
        rows.push_str(&format!("{name:INDENT$}{}\n", advice.command));
        for text in [&advice.effect, &format!("Risk: {}", advice.risk)] {
            rows.push_str(&format!("{:ADVICE_INDENT$}{}\n", "", wrapped(text, ADVICE_INDENT)));
        }
    }
    rows
}
