//! The machine's transitions for each event.

use std::convert::Infallible;

use super::{Batch, Machine};
use crate::{
    batch::{
        processor::{
            records::{Decoded, Duplicate, NoWork, Operation},
            steps::{Event, OfEach},
        },
        report::outcome_of,
        source::Source,
    },
    clock::Timestamp,
    error::Error,
    idempotency::{
        engine::{ClaimAnswer, ClaimResult, End, LeaseWait, Polled, SettleResult, WaitStep, Withdrawal},
        outcome::Outcome,
    },
    order::Entity,
    store::{Refusal, rules::lapses},
};

impl<S: Source, T> Machine<'_, S, T> {
    /// Takes the result of decoding a record and finding its key. The first record with a key leads, and is the only one
    /// that is claimed or decided (B3).
    pub(in crate::batch::processor) fn decoded(&mut self, index: usize, body: S::Body, work: Decoded<T>) {
        let Batch { records, lanes, entities, .. } = &mut self.batch;
        if self.terms.options.dead_letters.is_some() {
            records.keep_body(index, body);
        }
        let (work, extras) = match work {
            Ok(decoded) => decoded,
            Err(no_work) => return self.has_no_work(index, no_work),
        };
        let Some(Operation { key, fingerprint }) = work.operation else {
            records.unprotected(index, work);
            self.queues.unprotected(index, lanes);
            return self.batch.recheck_if_blocked(index);
        };
        match self.leaders.get(&key) {
            Some(&(leader, theirs)) => {
                let same_payload = theirs == fingerprint;
                let difference = fingerprint.zip(theirs).map(|(ours, theirs)| ours.difference(&theirs));
                let difference = difference.unwrap_or_default();
                records.duplicate(index, work, Duplicate { leader, same_payload, difference });
                self.batch.wait_for_leader(index, leader);
            }
            None => {
                self.leaders.insert(key, (index, fingerprint));
                if let Some(extras) = extras {
                    entities.insert(index, Entity::of(&key), *extras);
                }
                records.decoded(index, work);
                self.queues.decoded(index);
                self.batch.recheck_if_blocked(index);
            }
        }
    }

    #[cold]
    fn has_no_work(&mut self, index: usize, no_work: NoWork) {
        let outcome = match no_work {
            NoWork::Ignored => Ok(Outcome::Ignored),
            NoWork::Failed(error) => Err(error),
        };
        self.batch.decide(index, outcome, None);
    }

    /// Takes the event of a call or handler that ended at `now` (B5, B12).
    pub(in crate::batch::processor) fn ended(&mut self, event: Event, now: Timestamp) {
        self.now = now;
        self.calls -= usize::from(!matches!(event, Event::Ran(..) | Event::RanTogether(..)));
        match event {
            Event::Ran(index, end, begun) => {
                self.handler_ended(1, begun, end.is_cancelled());
                self.ran(index, end);
            }
            Event::RanTogether(ran, begun) => {
                let is_cancelled = ran.iter().any(|(_, end)| end.is_cancelled());
                self.handler_ended(ran.len(), begun, is_cancelled);
                ran.into_iter().for_each(|(index, end)| self.ran(index, end));
            }
            Event::Claimed(answers, withdrawal, begun) => {
                let took = now.since(begun);
                // An error does not show the duration of a call.
                if answers.iter().all(|(_, answer)| matches!(answer, Ok(Ok(_)))) {
                    self.pace.claimed(took);
                }
                let is_done = |(_, answer): &&(usize, ClaimResult)| match answer {
                    Ok(Ok(ClaimAnswer::Refused(refusal))) => is_final(refusal),
                    _ => false,
                };
                // A store that takes no time, such as a local cache, is faster to claim from.
                let done = if took.is_zero() { 0 } else { answers.iter().filter(is_done).count() };
                self.lookups.claimed(answers.len(), done);
                self.claims_answered(answers, withdrawal);
            }
            Event::ClaimedAgain(answers, withdrawal) => self.claims_answered(answers, withdrawal),
            Event::Settled(settled) => {
                self.settling.answered();
                self.settled(settled);
            }
            Event::SettledAgain(settled) => self.settled(settled),
            Event::Polled(polled) => {
                self.waits.end_poll();
                polled.into_iter().for_each(|(index, polled)| self.polled_record(index, polled));
            }
            Event::LookedUp(found) => self.looked_up(found),
            Event::DeadLettered(index, decision, sent) => self.batch.dead_lettered(index, decision, sent),
            Event::Released => {}
        }
    }

    /// Measures a handler of `records` that has ended (B5, B12).
    fn handler_ended(&mut self, records: usize, begun: Timestamp, is_cancelled: bool) {
        self.handlers -= 1;
        self.pace.ended(records, self.now, self.handlers == 0);
        // A cancelled run does not show the duration of others.
        if !is_cancelled && self.pace.took(self.now.since(begun)) {
            self.batch.recheck_waits();
        }
    }

    /// Takes the end of a record's handler, which may have to be recorded. A failure that no recording can undo blocks
    /// the records behind it immediately.
    fn ran(&mut self, index: usize, end: End<()>) {
        let has_failed = if end.is_due() {
            let has_failed = end.is_release() && !self.batch.may_be_dead_lettered(index);
            self.batch.records.settle(index);
            self.settling.add(index, end, self.now);
            has_failed
        } else {
            self.conclude(index, end);
            self.batch.records.report(index).is_some_and(|report| report.reported)
        };
        if has_failed {
            self.batch.lanes.fail(index);
        }
    }

    fn settled(&mut self, settled: OfEach<SettleResult<()>>) {
        for (index, settled) in settled {
            match settled {
                Ok(end) => self.recorded(index, end),
                Err(unsettled) => self.settling.unsettled(index, *unsettled),
            }
        }
    }

    fn recorded(&mut self, index: usize, end: End<()>) {
        self.settling.recorded();
        self.conclude(index, end);
    }

    fn conclude(&mut self, index: usize, end: End<()>) {
        let held_until = end.held_until();
        let Ok(outcome) = end.into_outcome(|refusal| Ok::<_, Infallible>(self.outcome_of(refusal)));
        self.batch.decide(index, Ok(outcome), held_until);
    }

    /// Takes the results of a claim call. Claims to be sent again count as pending.
    fn claims_answered(&mut self, answers: OfEach<ClaimResult>, withdrawal: Withdrawal) {
        self.withdrawals.extend(Some(withdrawal).filter(|withdrawal| !withdrawal.is_empty()));
        for (index, answer) in answers {
            match answer {
                Ok(answer) => {
                    self.claiming -= 1;
                    self.claimed(index, answer);
                }
                Err(unclaimed) => self.unclaimed.push((index, *unclaimed)),
            }
        }
    }

    fn claimed(&mut self, index: usize, answer: Result<ClaimAnswer, Error>) {
        let outcome = match answer {
            Ok(ClaimAnswer::Granted(claim)) => {
                self.batch.records.granted(index, claim);
                self.queues.ready(index);
                return self.batch.recheck_if_blocked(index);
            }
            Ok(ClaimAnswer::Refused(refusal)) if self.may_wait(index, &refusal) => {
                let wait = self.batch.entities.wait(index, refusal, self.now, |refusal| {
                    let ends = self.now.after(self.terms.options.wait_up_to);
                    LeaseWait::new(refusal, self.now, ends, self.terms.engine.settings.skew_margin).for_any_payload()
                });
                self.waits.insert(index, &wait);
                return self.batch.records.wait(index, wait);
            }
            Ok(ClaimAnswer::Refused(refusal)) => return self.refuse(index, refusal),
            Ok(ClaimAnswer::OutOfTime) => Ok(Outcome::NotStarted),
            Err(error) => Err(error),
        };
        self.batch.decide(index, outcome, None);
    }

    /// Returns whether the record waits for its key (B6). It does if failing now would block records behind it or use
    /// up one of few retries, and the other lease ends while there is time to run. It waits only once, unless it waits
    /// for an entity, which may be taken again.
    fn may_wait(&self, index: usize, refusal: &Refusal) -> bool {
        let Some(lease_until) = refusal.lease_until() else { return false };
        let Batch { records, lanes, entities, .. } = &self.batch;
        let is_in_order = entities.has(index);
        (self.terms.options.waits_for_lease::<S>() || lanes.is_ordered(index) || is_in_order)
            && (is_in_order || !records.has_waited(index))
            && !self.is_stopped
            && !lanes.is_blocked(index)
            && !self.batch.is_response_fixed(index)
            && self.pace.in_time(lapses(lease_until, self.terms.engine.settings.skew_margin))
    }

    fn polled_record(&mut self, index: usize, polled: Result<Polled, Error>) {
        let Some(wait) = self.batch.records.wait_mut(index) else { return };
        let is_waiting = self.waits.remove(index, wait);
        let outcome = match polled {
            Ok(polled) => match wait.polled(polled, self.now) {
                // It keeps waiting, or is about to be claimed.
                None => {
                    if is_waiting || wait.step(self.now) != WaitStep::Claim {
                        self.waits.insert(index, wait);
                        self.queues.remove_free(index);
                    }
                    // Its lease may have been renewed beyond the time to run.
                    return self.batch.recheck_waits();
                }
                Some(refusal) => Ok(self.outcome_of(refusal)),
            },
            Err(error) => Err(error),
        };
        self.stop_waiting(index);
        self.batch.decide(index, outcome, None);
    }

    /// Takes the results of lookups. Records with an outcome are decided. All others need a claim, because a read
    /// grants nothing.
    #[cold]
    fn looked_up(&mut self, found: OfEach<Result<Polled, Error>>) {
        let (records, mut done) = (found.len(), 0);
        for (index, found) in found {
            match found {
                Ok(Polled::Refused(refusal)) if is_final(&refusal) => {
                    done += 1;
                    self.refuse(index, refusal);
                }
                _ => {
                    self.queues.looked_up(index);
                    self.batch.recheck_if_blocked(index);
                }
            }
        }
        self.lookups.end(records, done);
    }

    /// Decides a record whose claim was refused and is not retried.
    pub(super) fn refuse(&mut self, index: usize, refusal: Refusal) {
        let held_until = refusal.lease_until();
        self.batch.decide(index, Ok(self.outcome_of(refusal)), held_until);
    }

    fn outcome_of(&self, refusal: Refusal) -> Outcome<()> {
        outcome_of(refusal, self.terms.engine.settings.payload_version)
    }
}

/// Returns whether the operation has an outcome.
fn is_final(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Completed(_) | Refusal::Failed(_) => true,
        Refusal::Mismatch(mismatch) => mismatch.is_final(),
        _ => false,
    }
}
