//! `lambda-once order clear`.

use anyhow::Result;
use lambda_once::{
    Error, ErrorStatus,
    clock::{Clock, SystemClock},
    order::{Mark, Sequence},
    store::{
        amend::{Amended, Resolution, ResolveRequest},
        ordering,
    },
};
use serde::Serialize;

use super::{
    Found,
    explain::table,
    view::{Doubted, MarkView, is_live},
};
use crate::{
    args::OrderClear,
    audit::{Audit, Entry, Outcome},
    confirm::is_confirmed,
    output::{self, Ending, Usage},
    settings::Settings,
    store,
    time::relative,
};

const ACTION: &str = "order clear";

/// A mark before and after its change.
#[derive(Serialize)]
struct Marks {
    before: MarkView,
    /// `null` if there is no mark. Left out after an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Option<MarkView>>,
}

/// Finds the mark, plans the change, asks for confirmation, and makes it.
pub(super) async fn run(clear: OrderClear, settings: &Settings) -> Result<Ending> {
    if !clear.how.dry_run {
        settings.check_changes()?;
    }
    let store = store::open(settings).await?;
    let found = Found::read(&*store, &clear.one, settings).await?;
    let Some(mark) = &found.mark else {
        eprintln!("{}: there is no mark", found.entity);
        return Ok(Ending::Nothing);
    };
    if let Some(holder) = mark.holder.filter(|holder| is_live(holder, settings.margin, found.now)) {
        let until = relative(holder.lease_until, found.now);
        eprintln!("{}: a claim holds it until {until}: a live claim is never changed", found.entity);
        return Ok(Ending::Partly);
    }
    let Some(chosen) = choose(&clear, &found.doubted)? else {
        eprintln!("{}: no operation is in doubt{}", found.entity, at(clear.sequence));
        return Ok(Ending::Nothing);
    };
    let request = ResolveRequest {
        entity: found.entity,
        read: mark.clone(),
        skew_margin: settings.margin,
        retention: clear.retention,
        resolution: chosen.resolution,
    };
    let (after, _) = ordering::resolve(Some(mark), &request, found.now)?;
    let table = table(&chosen.concerned);
    let what = format!("state that {}", chosen.statement);
    if clear.how.dry_run {
        output::text(&format!("{table}would {what}\n"))?;
        return Ok(Ending::Done);
    }
    let mut audit = Audit::open(clear.how.audit.as_deref(), Some(settings.store()?.to_string()))?;
    if !clear.how.yes && !is_confirmed(&table, &format!("{what}, in {}", settings.store()?)).await? {
        eprintln!("nothing was changed");
        return Ok(Ending::Partly);
    }
    let answer = store.resolve(&request).await;
    let outcome = write(&request, after, &answer, settings, &mut audit)?;
    output::line(&format!(
        "{ACTION}: {}",
        match outcome {
            Outcome::Changed => "1 changed",
            Outcome::Gone => "gone meanwhile",
            Outcome::Unchanged => "changed by others meanwhile, and left as it is",
            _ => "failed",
        }
    ))?;
    answer?;
    Ok(if outcome == Outcome::Changed { Ending::Done } else { Ending::Partly })
}

/// The statement that the command line makes.
struct Chosen {
    concerned: Vec<Doubted>,
    resolution: Resolution,
    statement: String,
}

/// Returns the statement, or `None` if it would concern nothing.
///
/// # Errors
///
/// Returns wrong usage if several operations are in doubt and none is chosen.
fn choose(clear: &OrderClear, doubted: &[Doubted]) -> Result<Option<Chosen>> {
    let is_one = doubted.windows(2).all(|pair| pair[0].sequence == pair[1].sequence);
    let chosen: Vec<Sequence> = match clear.sequence {
        Some(sequence) => doubted.iter().map(|one| one.sequence).filter(|known| *known == sequence).collect(),
        None if clear.all || is_one => doubted.iter().map(|one| one.sequence).collect(),
        None => {
            let why = "operations are in doubt: choose one by --sequence, or --all";
            return Err(Usage(format!("{}{} {why}", table(doubted), doubted.len())).into());
        }
    };
    let Some(newest) = chosen.last().copied() else { return Ok(None) };
    let concerned = |is_concerned: &dyn Fn(Sequence) -> bool| -> Vec<Doubted> {
        doubted.iter().filter(|one| is_concerned(one.sequence)).cloned().collect()
    };
    Ok(Some(if clear.took_effect {
        Chosen {
            concerned: concerned(&|sequence| sequence <= newest),
            resolution: Resolution::TookEffect { sequence: newest },
            statement: format!("the operation{} took effect, and supersedes older ones", at(Some(newest))),
        }
    } else {
        let concerned = concerned(&|sequence| chosen.contains(&sequence));
        Chosen {
            statement: match &concerned[..] {
                [one] => format!("no run of the operation{} took effect", at(Some(one.sequence))),
                all => format!("no run of these {} operations took effect", all.len()),
            },
            resolution: Resolution::NoEffect { sequences: chosen.clone() },
            concerned,
        }
    }))
}

fn at(sequence: Option<Sequence>) -> String {
    sequence.map_or(String::new(), |sequence| format!(" with the sequence {sequence}"))
}

/// Writes the audit line, and returns the outcome.
fn write(
    request: &ResolveRequest,
    planned: Option<Mark>,
    answer: &Result<Amended<Mark>, Error>,
    settings: &Settings,
    audit: &mut Audit,
) -> Result<Outcome> {
    let now = SystemClock.now();
    let view = |mark: &Mark| MarkView::of(mark, settings.margin, now);
    let (outcome, after) = match answer {
        Ok(Amended::Changed) => (Outcome::Changed, Some(planned.as_ref().map(view))),
        Ok(Amended::Gone) => (Outcome::Gone, Some(None)),
        Ok(Amended::Unchanged { current }) => (Outcome::Unchanged, Some(Some(view(current)))),
        Err(error) if error.status() == ErrorStatus::Ambiguous => (Outcome::Unknown, None),
        Err(_) => (Outcome::Failed, None),
    };
    audit.write(Entry {
        at: now,
        action: ACTION,
        id: request.entity.to_string(),
        outcome,
        error: answer.as_ref().err().map(ToString::to_string),
        details: Marks { before: view(&request.read), after },
    })?;
    Ok(outcome)
}
