//! Random batches, delivered several times to a store in trouble.

use std::collections::HashMap;

use lambda_once::{
    AfterUnknown, PermanentFailures,
    clock::{Clock, Timestamp},
    record::Status,
    store::fault::Fault,
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::world::{Run, World, batch, fifo, invoke, millis};

/// What a message is.
#[derive(Clone, Debug)]
enum Letter {
    /// An order of this number; its note makes it another payload.
    Order {
        key: usize,
        note: u64,
    },
    NoKey,
    Poison,
}

#[derive(Clone, Debug)]
struct Delivery {
    letters: Vec<Letter>,
    left: u64,
    pause: u64,
}

#[derive(Clone, Debug)]
struct Plan {
    /// What the handler does with an order of each number, and how long it takes.
    acts: Vec<(&'static str, u64)>,
    deliveries: Vec<Delivery>,
    concurrency: usize,
    store_batch: usize,
    after_unknown: AfterUnknown,
    policy: PermanentFailures,
    faults: Vec<(Fault, f64)>,
    /// Of a FIFO queue, how many groups its messages are in.
    groups: Option<usize>,
}

const KEYS: usize = 24;
const GROUPS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Messages with one key may be in several groups.
fn group_of(index: usize, letter: &Letter, groups: usize) -> usize {
    match letter {
        Letter::Order { key, .. } => (key + index / 5) % groups,
        Letter::NoKey | Letter::Poison => index % groups,
    }
}

fn letter() -> impl Strategy<Value = Letter> {
    prop_oneof![
        16 => (0..KEYS).prop_map(|key| Letter::Order { key, note: 0 }),
        1 => (0..KEYS).prop_map(|key| Letter::Order { key, note: 1 }),
        1 => Just(Letter::NoKey),
        1 => Just(Letter::Poison),
    ]
}

fn act() -> impl Strategy<Value = (&'static str, u64)> {
    let acts = ["transient", "transient once", "permanent", "unknown", "panic", "panic at once", "hang"];
    let act = prop_oneof![4 => Just("succeed"), 3 => select(acts.to_vec())];
    (act, prop_oneof![Just(0), 0..400_u64, 0..4_000_u64])
}

fn faults() -> impl Strategy<Value = Vec<(Fault, f64)>> {
    let often = vec![
        (Fault::Throttled, 0.15),
        (Fault::ErrorBefore, 0.1),
        (Fault::ErrorAfter, 0.15),
        (Fault::AccessDenied, 0.03),
        (Fault::Delay(millis(300)), 0.05),
        (Fault::Silence, 0.01),
    ];
    prop_oneof![Just(vec![]), Just(often)]
}

fn plan() -> impl Strategy<Value = Plan> {
    let left = prop_oneof![Just(0), 0..3_000_u64, 3_000..30_000_u64];
    let delivery = (vec(letter(), 0..=60), left, 0..40_000_u64);
    let delivery = delivery.prop_map(|(letters, left, pause)| Delivery { letters, left, pause });
    (
        vec(act(), KEYS),
        vec(delivery, 1..=3),
        1..=12_usize,
        1..=40_usize,
        select(vec![AfterUnknown::Rerun, AfterUnknown::Refuse]),
        select(vec![PermanentFailures::Report, PermanentFailures::Acknowledge]),
        faults(),
        prop_oneof![Just(None), (1..=6_usize).prop_map(Some)],
    )
        .prop_map(|(acts, mut deliveries, concurrency, store_batch, after_unknown, policy, faults, groups)| {
            if groups.is_some() {
                // Which of two payloads is the misuse depends on what the groups hold up.
                let letters = deliveries.iter_mut().flat_map(|delivery| &mut delivery.letters);
                letters.for_each(|letter| {
                    if let Letter::Order { note, .. } = letter {
                        *note = 0;
                    }
                });
            }
            Plan { acts, deliveries, concurrency, store_batch, after_unknown, policy, faults, groups }
        })
}

/// What is known of a key besides its record: the payload that the record stands for.
type Notes = HashMap<usize, u64>;

fn name(key: usize) -> String {
    format!("order-{key}")
}

fn body(plan: &Plan, letter: &Letter) -> Value {
    match *letter {
        Letter::Order { key, note } => {
            let (act, ms) = plan.acts[key];
            json!({ "order_id": name(key), "act": act, "ms": ms, "note": note })
        }
        Letter::NoKey => json!({ "act": "succeed", "ms": 0 , "order_id": "" }),
        Letter::Poison => json!({ "order_id": ["no", "order"] }),
    }
}

async fn statuses(world: &World) -> Vec<Option<Status>> {
    let mut statuses = Vec::new();
    for key in 0..KEYS {
        statuses.push(world.status(&name(key)).await);
    }
    statuses
}

async fn deliver_all(plan: Plan) -> Result<(), TestCaseError> {
    let faults = plan.faults.clone();
    let world = World::on(
        plan.store_batch,
        |store| faults.into_iter().fold(store, |store, (fault, rate)| store.with_rate(fault, rate)),
        |builder| builder.after_unknown(plan.after_unknown),
    );
    let service = world.service().concurrency(plan.concurrency).permanent_failures(plan.policy);
    let mut notes = Notes::new();
    for delivery in &plan.deliveries {
        let before = statuses(&world).await;
        let runs_before = world.journal.runs().len();
        let context = world.left(millis(delivery.left));
        let stop = stop_point(world.clock.now(), delivery.left);
        let deadline = world.clock.now().after(millis(delivery.left));
        let bodies = delivery.letters.iter().map(|letter| body(&plan, letter));
        let event = match plan.groups {
            None => batch(bodies),
            Some(groups) => {
                let group = |(i, letter)| GROUPS[group_of(i, letter, groups)];
                fifo(delivery.letters.iter().enumerate().map(group).zip(bodies))
            }
        };
        let reported = invoke(&service, event, context).await.unwrap();
        let answered = world.clock.now();
        prop_assert!(
            delivery.left == 0 || answered <= deadline,
            "answered {:?} after the deadline",
            answered.since(deadline)
        );
        let after = statuses(&world).await;
        let runs = world.journal.runs().split_off(runs_before);
        let seen = Seen { plan: &plan, letters: &delivery.letters, before: &before, after: &after, runs: &runs, stop };
        seen.check(&mut notes, &reported)?;
        prop_assert!(world.journal.most_at_once() <= plan.concurrency);
        tokio::time::advance(millis(delivery.pause)).await;
    }
    Ok(())
}

/// By the documented defaults: the reserve is a twentieth of the time left, from half a second to two.
fn stop_point(now: Timestamp, left: u64) -> Timestamp {
    let left = if left == 0 { 30_000 } else { left };
    now.after(millis(left)).before(millis((left / 20).clamp(500, 2_000)))
}

/// One invocation, as seen from outside.
struct Seen<'a> {
    plan: &'a Plan,
    letters: &'a [Letter],
    before: &'a [Option<Status>],
    after: &'a [Option<Status>],
    runs: &'a [Run],
    stop: Timestamp,
}

impl Seen<'_> {
    fn check(&self, notes: &mut Notes, reported: &[String]) -> Result<(), TestCaseError> {
        self.check_runs()?;
        self.note_leaders(notes);
        let ids: Vec<String> = (0..self.letters.len()).map(|i| format!("m{i}")).collect();
        let in_order: Vec<&String> = ids.iter().filter(|id| reported.contains(id)).collect();
        prop_assert_eq!(reported.iter().collect::<Vec<_>>(), in_order, "in event order, and none that is unknown");
        if let Some(groups) = self.plan.groups {
            return self.check_groups(notes, &ids, reported, groups);
        }
        let looked_at = ids.iter().rposition(|id| !reported.contains(id)).map_or(0, |last| last + 1);
        for (i, (letter, id)) in self.letters.iter().zip(&ids).enumerate() {
            let reported = reported.contains(id);
            // What nobody has looked at for want of time is reported, as all after it are.
            let unseen = reported && i >= looked_at && (self.is_duplicate(i) || self.was_done(letter));
            if let Some(expected) = self.must_be_reported(letter, notes) {
                prop_assert!(reported == expected || unseen, "{} {:?}: {}", id, letter, reported);
            } else if !reported {
                prop_assert!(self.is_decided(letter), "{} {:?} is acknowledged, and nobody knows why", id, letter);
            }
        }
        Ok(())
    }

    /// In each group everything behind the first that is reported is reported too and did not run, that one had a reason,
    /// and what ran did so one after the other.
    fn check_groups(
        &self,
        notes: &Notes,
        ids: &[String],
        reported: &[String],
        groups: usize,
    ) -> Result<(), TestCaseError> {
        for group in 0..groups {
            let members = || {
                let letters = self.letters.iter().enumerate();
                letters.filter(move |(i, letter)| group_of(*i, letter, groups) == group)
            };
            let (mut held_up, mut last_ended) = (false, None);
            for (i, letter) in members() {
                let reported = reported.contains(&ids[i]);
                prop_assert!(
                    reported || !held_up,
                    "{} {:?} is acknowledged behind one that is reported",
                    ids[i],
                    letter
                );
                // Of several with one key nobody can tell from outside which one ran.
                let run = match letter {
                    Letter::Order { key, .. } if self.is_alone(*key) => self.run_of(*key),
                    _ => None,
                };
                if let Some(run) = run {
                    prop_assert!(!held_up, "{} {:?} ran behind one that is reported", ids[i], letter);
                    prop_assert!(last_ended <= Some(run.began), "{} {:?} ran before its turn", ids[i], letter);
                    last_ended = run.ended;
                }
                if !held_up {
                    let unseen = reported && (self.is_duplicate(i) || self.was_done(letter));
                    if let Some(expected) = self.must_be_reported(letter, notes) {
                        prop_assert!(reported == expected || unseen, "{} {:?}: {}", ids[i], letter, reported);
                    } else if !reported {
                        prop_assert!(
                            self.is_decided(letter),
                            "{} {:?} is acknowledged, nobody knows why",
                            ids[i],
                            letter
                        );
                    }
                }
                held_up |= reported;
            }
        }
        Ok(())
    }

    /// No key runs twice, none that was decided runs again, and nothing runs past the stop point.
    fn check_runs(&self) -> Result<(), TestCaseError> {
        let mut keys: Vec<&str> = self.runs.iter().map(|run| run.key.as_str()).collect();
        keys.sort_unstable();
        prop_assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a key ran twice: {:?}", keys);
        for run in self.runs {
            prop_assert!(run.began < self.stop && run.ended.is_some_and(|ended| ended <= self.stop), "{:?}", run);
        }
        for (key, status) in self.before.iter().enumerate() {
            let decided = matches!(status, Some(Status::Completed | Status::Failed));
            let abandoned = *status == Some(Status::InProgress) && self.plan.after_unknown == AfterUnknown::Refuse;
            prop_assert!(!(decided || abandoned) || self.run_of(key).is_none(), "order {} ran again", key);
            if self.plan.faults.is_empty() && self.run_of(key).is_none() {
                prop_assert_eq!(*status, self.after[key], "order {} did not run, and its record has changed", key);
            }
            if decided {
                prop_assert_eq!(*status, self.after[key], "an outcome was changed");
            }
        }
        Ok(())
    }

    /// A new record stands for the payload of the earliest message with its key.
    fn note_leaders(&self, notes: &mut Notes) {
        for key in 0..KEYS {
            if self.before[key].is_none() {
                notes.remove(&key);
                if let Some(note) = self.leader(key) {
                    notes.insert(key, note);
                }
            }
        }
    }

    fn leader(&self, wanted: usize) -> Option<u64> {
        self.letters.iter().find_map(|letter| match *letter {
            Letter::Order { key, note } if key == wanted => Some(note),
            _ => None,
        })
    }

    fn is_duplicate(&self, index: usize) -> bool {
        let key_of = |letter: &Letter| if let Letter::Order { key, .. } = letter { Some(*key) } else { None };
        self.letters[..index].iter().any(|letter| key_of(letter) == key_of(&self.letters[index]))
    }

    fn is_alone(&self, wanted: usize) -> bool {
        self.letters.iter().filter(|letter| matches!(letter, Letter::Order { key, .. } if *key == wanted)).count() == 1
    }

    fn was_done(&self, letter: &Letter) -> bool {
        matches!(letter, Letter::Order { key, .. } if self.before[*key] == Some(Status::Completed))
    }

    fn run_of(&self, key: usize) -> Option<&Run> {
        let name = name(key);
        self.runs.iter().find(|run| run.key == name)
    }

    /// `None` where the store's trouble, or the time, decides.
    fn must_be_reported(&self, letter: &Letter, notes: &Notes) -> Option<bool> {
        let by_policy = self.plan.policy == PermanentFailures::Report;
        let Letter::Order { key, note } = *letter else {
            // It may not have been looked at for want of time, and is reported then.
            return if by_policy { Some(true) } else { None };
        };
        if self.leader(key) != Some(note) || (self.before[key].is_some() && notes.get(&key) != Some(&note)) {
            return if by_policy { Some(true) } else { None };
        }
        match self.run_of(key) {
            Some(run) if run.succeeded => Some(false),
            Some(run) if run.refused => Some(by_policy),
            Some(_) => Some(true),
            None => match self.after[key] {
                Some(Status::Completed) if self.plan.faults.is_empty() => Some(false),
                Some(Status::Completed) => None,
                Some(Status::Failed) if !by_policy => None,
                Some(Status::Failed | Status::InProgress) | None => Some(true),
            },
        }
    }

    /// Whether there was a reason to acknowledge.
    fn is_decided(&self, letter: &Letter) -> bool {
        let acknowledge = self.plan.policy == PermanentFailures::Acknowledge;
        let Letter::Order { key, note } = *letter else { return acknowledge };
        if self.leader(key) != Some(note) {
            return acknowledge;
        }
        match self.before[key] {
            // A mismatch, if it is not the outcome itself.
            Some(Status::Completed) => true,
            Some(Status::Failed | Status::InProgress) => acknowledge,
            None => false,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_what_is_not_durably_decided_is_reported_and_no_key_runs_twice(plan in plan()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(deliver_all(plan))?;
    }
}
