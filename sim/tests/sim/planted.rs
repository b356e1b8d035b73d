//! Planted histories: one for each property, which the judge refuses, and good ones, which it accepts.

use lambda_once_sim::{
    history::{Answer, End, Entry, Event, Fact, History, Key, Ms, Outcome, Policy, Terms},
    judge::judge,
};

const TERMS: Terms = Terms { clocks_hold: true, retention: None, slack: 3_000, is_calm: false };

const KEY: Key = Key { entry: Entry::Call, policy: Policy::Rerun, order: None, is_poison: false };

/// The call of a run, in histories that do not show it.
const NO_CALL: u32 = u32::MAX;

struct Planted(History);

impl Planted {
    fn new(policy: Policy) -> Self {
        Self(History { terms: TERMS, keys: vec![Key { policy, ..KEY }], events: Vec::new() })
    }

    fn of_keys(keys: Vec<Key>) -> Self {
        Self(History { terms: TERMS, keys, events: Vec::new() })
    }

    fn at(mut self, at: Ms, fact: Fact) -> Self {
        self.0.events.push(Event { at, fact });
        self
    }

    fn begin(self, at: Ms, run: u32, took_over: bool) -> Self {
        self.begin_of(at, run, 0, 0, took_over)
    }

    fn begin_of(self, at: Ms, run: u32, key: u32, payload: u8, took_over: bool) -> Self {
        self.at(at, Fact::Began { run, key, payload, call: NO_CALL, took_over, holds_until: at + 5_000 })
    }

    fn effect(self, at: Ms, run: u32) -> Self {
        self.at(at, Fact::Effect { run })
    }

    fn end(self, at: Ms, run: u32, end: End) -> Self {
        self.at(at, Fact::Ended { run, end, active_until: at })
    }

    fn record(self, at: Ms, run: u32) -> Self {
        self.at(at, Fact::Recorded { key: 0, outcome: Outcome::Completed(run) })
    }

    fn ask(self, at: Ms, call: u32, payload: u8) -> Self {
        self.at(at, Fact::Asked { call, key: 0, payload, is_audit: false })
    }

    fn tell(self, at: Ms, call: u32, answer: Answer) -> Self {
        self.at(at, Fact::Told { call, answer })
    }

    /// One operation that runs and is recorded, with its call.
    fn executed(self) -> Self {
        self.ask(0, 0, 0).begin(10, 0, false).effect(20, 0).end(30, 0, End::Returned).record(40, 0).tell(
            50,
            0,
            Answer::Executed(Some(0)),
        )
    }

    /// A run that takes effect and is lost.
    fn lost(self) -> Self {
        self.begin(10, 0, false).effect(20, 0).end(1_000, 0, End::Dropped)
    }

    #[track_caller]
    fn accepted(self) {
        assert_eq!(judge(&self.0), []);
    }

    #[track_caller]
    fn refused(self, property: &str) {
        let found: Vec<_> = judge(&self.0).into_iter().map(|violation| violation.property).collect();
        assert!(found.contains(&property), "{found:?}");
    }
}

#[test]
fn good_histories_are_accepted() {
    Planted::new(Policy::Rerun).executed().ask(60, 1, 0).tell(70, 1, Answer::Replayed(Some(0))).accepted();
    let rerun = Planted::new(Policy::Rerun).lost().begin(7_000, 1, true).effect(7_100, 1);
    rerun.end(7_200, 1, End::Returned).record(7_300, 1).accepted();
    Planted::new(Policy::Refuse).lost().ask(7_000, 0, 0).tell(7_100, 0, Answer::Abandoned).accepted();
    let probe = Planted::new(Policy::Probe).lost().ask(7_000, 0, 0).record(7_100, 0);
    probe.tell(7_200, 0, Answer::Recovered(Some(0))).accepted();
    let released = Planted::new(Policy::Refuse).begin(10, 0, false).end(20, 0, End::Transient).begin(30, 1, false);
    released.effect(40, 1).end(50, 1, End::Returned).record(60, 1).accepted();
}

#[test]
fn a_frozen_run_is_not_live() {
    let frozen = Fact::Ended { run: 0, end: End::Dropped, active_until: 500 };
    let history = Planted::new(Policy::Rerun).begin(10, 0, false).begin(7_000, 1, true).at(9_000, frozen);
    history.end(9_100, 1, End::Transient).accepted();
}

#[test]
fn an_outcome_that_changes_is_refused() {
    let changed = Planted::new(Policy::Rerun).executed().begin(60, 1, true).record(90, 1);
    changed.refused("outcomes are decided once");
    Planted::new(Policy::Rerun).executed().at(90, Fact::Erased { key: 0 }).refused("outcomes are decided once");
}

#[test]
fn an_outcome_may_change_after_its_retention() {
    let mut history = Planted::new(Policy::Rerun).executed().at(9_000, Fact::Erased { key: 0 });
    history.0.terms.retention = Some(10_000);
    history.accepted();
}

#[test]
fn a_replay_of_an_unrecorded_result_is_refused() {
    let history = Planted::new(Policy::Rerun).begin(0, 0, false).effect(5, 0).end(9, 0, End::Returned).ask(10, 0, 0);
    history.tell(20, 0, Answer::Replayed(Some(0))).refused("answers are recorded");
}

#[test]
fn an_outcome_that_hides_a_takeover_is_refused() {
    let history = Planted::new(Policy::Rerun).ask(0, 0, 0).begin(10, 0, true).effect(20, 0).end(30, 0, End::Returned);
    history.record(40, 0).tell(50, 0, Answer::Executed(Some(0))).refused("answers show a takeover");
}

#[test]
fn an_outcome_other_than_the_decision_is_refused() {
    for answer in [Answer::InProgress, Answer::Abandoned, Answer::Mismatch, Answer::ReplayedFailure] {
        let history = Planted::new(Policy::Rerun).executed().ask(60, 1, 0).tell(70, 1, answer);
        history.refused("a decided key is replayed");
    }
}

#[test]
fn a_result_of_another_payload_is_refused() {
    let history = Planted::new(Policy::Rerun).executed().ask(60, 1, 1).tell(70, 1, Answer::Replayed(Some(0)));
    history.refused("answers are of the payload");
}

#[test]
fn a_result_of_another_key_is_refused() {
    let history = Planted::of_keys(vec![KEY, KEY]).executed();
    let ask = Fact::Asked { call: 1, key: 1, payload: 0, is_audit: false };
    history.at(60, ask).tell(70, 1, Answer::Ran(Some(0))).refused("answers are of the key");
}

#[test]
fn two_live_runs_are_refused() {
    let history = Planted::new(Policy::Rerun).begin(10, 0, false).begin(20, 1, false);
    history.end(30, 0, End::Transient).end(40, 1, End::Transient).refused("one live run per key");
}

#[test]
fn an_outcome_of_another_run_during_a_live_one_is_refused() {
    let history = Planted::new(Policy::Rerun).lost().begin(7_000, 1, true).record(7_500, 0);
    history.end(8_000, 1, End::Dropped).refused("a live run keeps its key");
}

#[test]
fn two_live_runs_of_an_entity_are_refused() {
    let keys = vec![Key { order: Some((7, 1)), ..KEY }, Key { order: Some((7, 2)), ..KEY }];
    let history = Planted::of_keys(keys).begin_of(10, 0, 0, 0, false).begin_of(20, 1, 1, 0, false);
    history.end(30, 0, End::Transient).end(40, 1, End::Transient).refused("one live run per entity");
}

#[test]
fn nothing_is_demanded_of_runs_if_clocks_do_not_hold() {
    let mut history = Planted::new(Policy::Rerun).begin(10, 0, false).begin(20, 1, false);
    history.0.terms.clocks_hold = false;
    history.end(30, 0, End::Transient).end(40, 1, End::Transient).accepted();
}

#[test]
fn a_run_after_the_decision_is_refused() {
    Planted::new(Policy::Rerun).executed().begin(60, 1, false).refused("a decided key does not run");
}

#[test]
fn a_run_for_a_call_after_the_decision_is_refused_whatever_clocks_do() {
    let began = |call| Fact::Began { run: 1, key: 0, payload: 0, call, took_over: false, holds_until: 5_000 };
    let history = |asked, call| {
        let mut history = Planted::new(Policy::Rerun).executed().ask(asked, 1, 0).at(80, began(call));
        history.0.terms.clocks_hold = false;
        history.end(90, 1, End::Transient).tell(100, 1, Answer::Failed)
    };
    history(60, 1).refused("a decided key does not run");
    // The call was made before the decision.
    history(60, 0).accepted();
}

/// The same with records that are kept for this time.
fn kept(mut history: Planted, retention: Ms) -> Planted {
    history.0.terms.retention = Some(retention);
    history
}

#[test]
fn a_short_retention_is_demanded_until_its_end() {
    let decided =
        |at| kept(Planted::new(Policy::Rerun).executed().begin(at, 1, false).end(at + 10, 1, End::Transient), 30_000);
    decided(140).refused("a decided key does not run");
    decided(40_000).accepted();
    let lost =
        |at| kept(Planted::new(Policy::Refuse).lost().begin(at, 1, false).end(at + 10, 1, End::Transient), 30_000);
    lost(1_007).refused("a run after a loss is told so");
    lost(7_000).refused("nothing runs after a loss under Refuse");
    lost(40_000).accepted();
    let keys = vec![Key { order: Some((7, 2)), ..KEY }, Key { order: Some((7, 1)), ..KEY }];
    let older = |at| {
        let newer = Planted::of_keys(keys.clone()).begin_of(10, 0, 0, 0, false).effect(20, 0).end(30, 0, End::Returned);
        let older = newer.record(35, 0).begin_of(at, 1, 1, 0, false).effect(at, 1).end(at + 10, 1, End::Transient);
        kept(older, 30_000)
    };
    older(40).refused("no older effect after a newer one");
    older(40_000).accepted();
    let sent = Fact::Sent { message: 0, key: 0, payload: 0 };
    let vanished = Planted::new(Policy::Rerun).at(0, sent).at(10, Fact::Acknowledged { message: 0 });
    kept(vanished, 30_000).refused("no message is lost");
    let executed = |at| {
        let lost = Planted::new(Policy::Rerun).lost().ask(at, 0, 0).begin(at, 1, false).effect(at + 10, 1);
        let executed = lost.end(at + 20, 1, End::Returned).record(at + 30, 1);
        kept(executed.tell(at + 40, 0, Answer::Executed(Some(1))), 30_000)
    };
    executed(7_000).refused("Executed means no earlier effect");
    executed(40_000).accepted();
}

#[test]
fn superseded_without_a_newer_completion_is_refused() {
    let keys = vec![Key { order: Some((7, 1)), ..KEY }, Key { order: Some((7, 2)), ..KEY }];
    let nothing = Planted::of_keys(keys.clone()).ask(0, 0, 0).tell(10, 0, Answer::Superseded);
    nothing.refused("refusals have a reason");
    let unordered = Planted::new(Policy::Rerun).executed().ask(60, 1, 0).tell(70, 1, Answer::Superseded);
    unordered.refused("refusals have a reason");
    let newer = Planted::of_keys(keys).begin_of(10, 0, 1, 0, false).effect(20, 0).end(30, 0, End::Returned);
    let newer = newer.at(40, Fact::Recorded { key: 1, outcome: Outcome::Completed(0) }).ask(50, 0, 0);
    newer.tell(60, 0, Answer::Superseded).accepted();
}

#[test]
fn a_mismatch_without_another_payload_is_refused() {
    for policy in [Policy::Rerun, Policy::Refuse] {
        let history = Planted::new(policy).ask(0, 0, 0).tell(10, 0, Answer::Mismatch);
        history.refused("refusals have a reason");
    }
    let other = Planted::new(Policy::Rerun).ask(0, 0, 1).ask(5, 1, 0).tell(10, 1, Answer::Mismatch);
    other.accepted();
}

#[test]
fn a_second_effect_of_one_run_is_refused() {
    Planted::new(Policy::Rerun).lost().effect(1_001, 0).refused("a run takes effect once");
}

#[test]
fn a_run_unaware_of_its_takeover_is_refused() {
    Planted::new(Policy::Rerun).lost().begin(7_000, 1, false).refused("a run after a loss is told so");
}

#[test]
fn a_takeover_during_the_lease_is_refused() {
    Planted::new(Policy::Rerun).lost().begin(4_000, 1, true).refused("a lost run keeps its lease");
}

#[test]
fn a_takeover_by_another_payload_is_refused() {
    Planted::new(Policy::Rerun).lost().begin_of(7_000, 1, 0, 1, true).refused("a lost payload keeps its key");
}

#[test]
fn a_takeover_under_refuse_is_refused() {
    let history = Planted::new(Policy::Refuse).lost().begin(7_000, 1, true);
    history.refused("nothing runs after a loss under Refuse");
}

#[test]
fn a_repeated_effect_under_refuse_or_probe_is_refused() {
    for policy in [Policy::Refuse, Policy::Probe] {
        let history = Planted::new(policy).lost().begin(7_000, 1, true).effect(7_100, 1);
        history.refused("at most one effect");
    }
}

#[test]
fn executed_after_a_loss_is_refused() {
    let history = Planted::new(Policy::Rerun).lost().ask(6_999, 0, 0).begin(7_000, 1, true).effect(7_100, 1);
    let history = history.end(7_200, 1, End::Returned).record(7_300, 1).tell(7_400, 0, Answer::Executed(Some(1)));
    history.refused("Executed means no earlier effect");
}

#[test]
fn an_older_effect_after_a_newer_one_is_refused() {
    let keys = vec![Key { order: Some((7, 2)), ..KEY }, Key { order: Some((7, 1)), ..KEY }];
    let newer = Planted::of_keys(keys).begin_of(10, 0, 0, 0, false).effect(20, 0).end(30, 0, End::Returned);
    let older = newer.record(40, 0).begin_of(50, 1, 1, 0, false).effect(60, 1).end(70, 1, End::Returned);
    older.refused("no older effect after a newer one");
}

#[test]
fn a_message_that_vanishes_is_refused() {
    let sent = Fact::Sent { message: 0, key: 0, payload: 0 };
    Planted::new(Policy::Rerun).at(0, sent).refused("no message is lost");
    let history = Planted::new(Policy::Rerun).at(0, sent).at(10, Fact::Acknowledged { message: 0 });
    history.refused("no message is lost");
}

#[test]
fn a_message_is_acknowledged_after_its_effect_or_a_newer_one() {
    let sent = Fact::Sent { message: 0, key: 0, payload: 0 };
    Planted::new(Policy::Rerun).at(0, sent).executed().at(60, Fact::Acknowledged { message: 0 }).accepted();
    let keys = vec![Key { order: Some((7, 1)), ..KEY }, Key { order: Some((7, 2)), ..KEY }];
    let newer = Planted::of_keys(keys).at(0, sent).begin_of(10, 0, 1, 0, false).effect(20, 0);
    let recorded = Fact::Recorded { key: 1, outcome: Outcome::Completed(0) };
    let newer = newer.end(30, 0, End::Returned).at(40, recorded);
    newer.at(60, Fact::Acknowledged { message: 0 }).accepted();
}

#[test]
fn an_ordered_message_is_not_acknowledged_before_it_is_recorded() {
    let sent = Fact::Sent { message: 0, key: 0, payload: 0 };
    let history = Planted::of_keys(vec![Key { order: Some((7, 1)), ..KEY }]).at(0, sent).lost();
    history.at(2_000, Fact::Acknowledged { message: 0 }).refused("no message is lost");
}

#[test]
fn a_healthy_message_in_the_dead_letter_queue_is_refused() {
    let sent = Fact::Sent { message: 0, key: 0, payload: 0 };
    let dead = |is_audit| Fact::DeadLettered { message: 0, is_audit };
    Planted::new(Policy::Rerun).at(0, sent).at(10, dead(true)).refused("no key is stuck");
    Planted::new(Policy::Rerun).at(0, sent).at(10, dead(false)).accepted();
    Planted::new(Policy::Refuse).at(0, sent).at(10, dead(true)).accepted();
    let mut calm = Planted::new(Policy::Refuse).at(0, sent).at(10, dead(true));
    calm.0.terms.is_calm = true;
    calm.refused("no key is stuck");
}

#[test]
fn a_stuck_key_is_refused() {
    let ask = Fact::Asked { call: 0, key: 0, payload: 0, is_audit: true };
    for answer in [Answer::InProgress, Answer::Abandoned, Answer::Error, Answer::Lost, Answer::Mismatch] {
        Planted::new(Policy::Rerun).at(0, ask).tell(10, 0, answer).refused("no key is stuck");
    }
    Planted::new(Policy::Refuse).at(0, ask).tell(10, 0, Answer::Abandoned).accepted();
}

#[test]
fn without_faults_nothing_is_abandoned_or_taken_over() {
    let calm = |mut history: Planted| {
        history.0.terms.is_calm = true;
        history
    };
    let abandoned = Planted::new(Policy::Refuse).ask(0, 0, 0).tell(10, 0, Answer::Abandoned);
    calm(abandoned).refused("nothing is abandoned without a loss");
    let over = Planted::new(Policy::Rerun).begin(10, 0, true).end(20, 0, End::Transient);
    calm(over).refused("nothing is taken over without a loss");
    let twice = Planted::new(Policy::Rerun).begin(10, 0, false).end(20, 0, End::Returned).begin(7_000, 1, false);
    calm(twice.end(7_100, 1, End::Returned)).refused("without faults one run returns");
}
