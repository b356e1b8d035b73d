//! An operator who ends doubt by a statement (O8).

use lambda_once::{
    order::Entity,
    store::{
        amend::{Amended, Resolution, ResolveRequest},
        ordering,
    },
};

use crate::{
    bugs::Bug,
    convert::{at, duration, key_hash, mark_from_library, mark_to_library},
    state::{MOST, Mark, State, Time},
    store::MARGIN,
    system::{Step, System, operator_time},
    world::{Clock, Event},
};

/// An operator's look at an entity: its mark, and the operations that had taken effect at that time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inquiry {
    mark: Mark,
    took_effect: [bool; MOST],
}

impl System {
    pub(crate) fn statement_steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.statements == 0 {
            return;
        }
        match &state.inquiry {
            Some(inquiry) => steps.extend(in_doubt(&inquiry.mark).into_iter().map(Step::State)),
            // An operation with a live claim may still take effect, so the operator waits.
            None if state.mark.as_ref().is_some_and(|mark| self.is_at_rest(mark, operator_time(state))) => {
                steps.push(Step::Inquire);
            }
            None => {}
        }
    }

    /// Returns whether operations are in doubt and no claim holds the entity.
    fn is_at_rest(&self, mark: &Mark, now: Time) -> bool {
        let margin = if self.has(Bug::O8Margin) { 0 } else { MARGIN };
        let has_lapsed = mark.holder.is_none_or(|holder| holder.lease + margin < now);
        !in_doubt(mark).is_empty() && (has_lapsed || self.has(Bug::O8Live))
    }

    pub(crate) fn inquire(&self, state: &mut State) {
        let took_effect = state.histories.map(|history| history.effects > 0);
        state.inquiry = state.mark.clone().map(|mark| Inquiry { mark, took_effect });
    }

    /// Applies the statement about this position when it is sent. The model has no statement that is late.
    pub(crate) fn state_effect(&self, state: &mut State, position: u8, events: &mut u64) {
        let (Some(Inquiry { mark: read, took_effect }), Some(before)) = (state.inquiry.take(), state.mark.clone())
        else {
            return;
        };
        state.statements -= 1;
        let now = match self.world.clock {
            Clock::Sender => operator_time(state),
            Clock::Store => state.now,
        };
        let took_effect = took_effect[usize::from(position - 1)];
        let read = if self.has(Bug::O8AsRead) { &before } else { &read };
        let request = ResolveRequest {
            entity: Entity::of(&key_hash(0)),
            read: self.mark_seen_by_statement(read),
            skew_margin: duration(if self.has(Bug::O8Margin) { 0 } else { MARGIN }),
            retention: duration(self.world.retention.1),
            resolution: if took_effect {
                Resolution::TookEffect { sequence: position.into() }
            } else {
                Resolution::NoEffect { sequences: vec![position.into()] }
            },
        };
        let seen = self.mark_seen_by_statement(&before);
        // Only a bug lets an operator name an operation that is no longer in doubt, which is an error.
        let Ok((Some(mark), Amended::Changed)) = ordering::resolve(Some(&seen), &request, at(now)) else {
            *events |= Event::Unchanged.bit();
            return;
        };
        *events |= if took_effect { Event::StatedEffect.bit() } else { Event::StatedNone.bit() };
        let mut mark = mark_from_library(&mark);
        self.after_statement(&before, &mut mark);
        state.mark = Some(mark);
        state.runs.stated(position, took_effect);
    }

    /// Returns the mark as the rule for statements sees it.
    fn mark_seen_by_statement(&self, mark: &Mark) -> lambda_once::order::Mark {
        let mut seen = mark.clone();
        if let (true, Some(holder)) = (self.has(Bug::O8Live), &mut seen.holder) {
            holder.lease = 0;
        }
        mark_to_library(&seen, false)
    }

    /// Bends the mark that a statement has written.
    fn after_statement(&self, before: &Mark, mark: &mut Mark) {
        match self.bug {
            Some(Bug::O8Live) => mark.holder = before.holder.filter(|_| mark.holder.is_some()),
            Some(Bug::O8Newest) => mark.newest = before.newest,
            Some(Bug::O8Others) => (mark.doubt, mark.holder) = (Vec::new(), None),
            Some(Bug::O8Holder) => mark.holder = before.holder,
            Some(Bug::O8Doubt) => mark.doubt.clone_from(&before.doubt),
            _ => {}
        }
    }
}

/// Returns the positions of all single operations in doubt, including the holder's.
fn in_doubt(mark: &Mark) -> Vec<u8> {
    let listed = mark.doubt.iter().filter_map(|(key, position)| key.map(|_| *position));
    listed.chain(mark.holder.map(|holder| holder.sequence)).collect()
}
