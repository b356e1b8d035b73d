//! Planted histories, sound and broken.

use lambda_once_chaos::{
    history::{Answer, End, Entry, Event, Fact, History, Key, Policy},
    judge::{Terms, judge},
};

const TERMS: Terms = Terms { shortest_hold: 400, late_end: 600, long_run: 700, grace: 250, slow_start: 0 };

const fn key(entry: Entry, policy: Policy) -> Key {
    Key { entry, policy, order: None, is_transaction: false, is_poison: false }
}

/// A history of the key 0, to which each method adds an event at a time.
struct Story(History);

impl Story {
    fn of(key: Key) -> Self {
        Self(History { keys: vec![key], events: Vec::new() })
    }

    fn queue(policy: Policy) -> Self {
        Self::of(key(Entry::Queue, policy)).at(0, Fact::Sent { message: 0, key: 0 })
    }

    fn http(policy: Policy) -> Self {
        Self::of(key(Entry::Http, policy))
    }

    fn at(mut self, at: u64, fact: Fact) -> Self {
        self.0.events.push(Event { at, fact });
        self
    }

    /// Delivers the message 0 to a worker of the same number.
    fn invoked(self, at: u64, invocation: u32) -> Self {
        let invoked = Fact::Invoked { invocation, worker: invocation, deadline: at + 1_500 };
        self.at(at, invoked).at(at, Fact::Delivered { message: 0, invocation })
    }

    fn acknowledged(self, at: u64, invocation: u32) -> Self {
        self.at(at, Fact::Responded { invocation }).at(at, Fact::Acknowledged { message: 0, invocation })
    }

    fn reported(self, at: u64, invocation: u32) -> Self {
        self.at(at, Fact::Responded { invocation })
    }

    /// Begins the run in the invocation, or in the request, that the worker of this number handles.
    fn began(self, at: u64, run: u32, worker: u32, took_over: bool) -> Self {
        let invocation = (self.0.keys[0].entry == Entry::Queue).then_some(worker);
        self.at(at, Fact::Began { run, key: 0, worker, invocation, took_over })
    }

    fn effect(self, at: u64, run: u32) -> Self {
        self.at(at, Fact::Effect { run })
    }

    fn ended(self, at: u64, run: u32, end: End) -> Self {
        self.at(at, Fact::Ended { run, end })
    }

    /// Begins the run, and lets it take effect and return.
    fn ran(self, at: u64, run: u32, worker: u32, took_over: bool) -> Self {
        self.began(at, run, worker, took_over).effect(at + 10, run).ended(at + 20, run, End::Returned)
    }

    fn answered(self, at: u64, call: u32, answer: Answer) -> Self {
        self.at(at, Fact::Asked { call, key: 0, worker: call }).at(at + 1, Fact::Told { call, answer })
    }

    fn breaks(self, property: &str) {
        let found = judge(&self.0, TERMS);
        assert!(found.iter().any(|violation| violation.property == property), "{property}: {found:?}");
    }

    fn keeps(self) {
        assert_eq!(judge(&self.0, TERMS), []);
    }
}

const fn result(run: u32) -> Answer {
    Answer::Result { run, is_replay: false }
}

const fn replay(run: u32) -> Answer {
    Answer::Result { run, is_replay: true }
}

/// A worker takes effect and is killed before it responds.
fn lost(policy: Policy) -> Story {
    Story::queue(policy).invoked(0, 0).began(10, 0, 0, false).effect(20, 0).at(30, Fact::Killed { worker: 0 })
}

#[test]
fn a_message_that_takes_effect_once_keeps() {
    Story::queue(Policy::Refuse).invoked(0, 0).ran(10, 0, 0, false).acknowledged(50, 0).keeps();
}

#[test]
fn an_effect_may_be_repeated_after_a_kill_under_rerun_alone() {
    let again = |policy| lost(policy).invoked(4_000, 1).ran(4_010, 1, 1, true).acknowledged(4_050, 1);
    again(Policy::Rerun).keeps();
    again(Policy::Refuse).breaks("at most one effect");
    again(Policy::Refuse).breaks("nothing runs after a loss under Refuse");
    again(Policy::Probe).breaks("at most one effect");
}

/// A worker is killed before it takes effect.
fn lost_before() -> Story {
    Story::queue(Policy::Refuse).invoked(0, 0).began(10, 0, 0, false).at(30, Fact::Killed { worker: 0 })
}

#[test]
fn a_release_by_an_operator_allows_one_run_more() {
    let released = || lost_before().at(4_000, Fact::Released { key: 0 });
    released().invoked(4_100, 1).ran(4_110, 1, 1, true).acknowledged(4_150, 1).keeps();
    let again = |story: Story| story.invoked(8_100, 2).ran(8_110, 2, 2, true).acknowledged(8_150, 2);
    let lost_again = || released().invoked(4_100, 1).began(4_110, 1, 1, true).at(4_130, Fact::Killed { worker: 1 });
    again(lost_again()).breaks("nothing runs after a loss under Refuse");
    again(lost_again().at(8_000, Fact::Released { key: 0 })).keeps();
    released().invoked(4_100, 1).ran(4_110, 1, 1, false).breaks("a run after a loss is told so");
}

#[test]
fn a_release_after_an_effect_breaks_the_promise_unless_the_effect_came_later() {
    let again = |story: Story| story.invoked(4_100, 1).ran(4_110, 1, 1, true).acknowledged(4_150, 1);
    let released = Fact::Released { key: 0 };
    again(lost(Policy::Refuse).at(4_000, released)).breaks("at most one effect");
    let frozen = Story::queue(Policy::Refuse).invoked(0, 0).began(10, 0, 0, false).at(20, Fact::Frozen { worker: 0 });
    let thawed = frozen.at(4_000, released).at(4_040, Fact::Thawed { worker: 0 }).effect(4_050, 0);
    again(thawed).keeps();
}

/// The outcome of a run is lost when a server that has started a second and a half before responds too late.
#[test]
fn a_server_that_has_just_started_may_respond_too_late() {
    let story = || {
        let started = Story::queue(Policy::Rerun).at(0, Fact::ServerKilled).at(500, Fact::ServerStarted);
        let ran = started.invoked(2_000, 0).ran(2_010, 0, 0, false).reported(2_050, 0);
        ran.invoked(6_000, 1).ran(6_010, 1, 1, true).acknowledged(6_050, 1)
    };
    story().breaks("a decided key does not run");
    assert_eq!(judge(&story().0, Terms { slow_start: 1_000, ..TERMS }), []);
}

#[test]
fn nothing_runs_after_an_operator_has_settled_the_key() {
    let settled = lost(Policy::Refuse).at(4_000, Fact::Settled { key: 0 }).invoked(4_100, 1);
    settled.ran(4_110, 1, 1, true).acknowledged(4_150, 1).breaks("a decided key does not run");
}

#[test]
fn nothing_is_repeated_without_a_loss() {
    Story::queue(Policy::Rerun)
        .invoked(0, 0)
        .ran(10, 0, 0, false)
        .reported(50, 0)
        .invoked(4_000, 1)
        .ran(4_010, 1, 1, true)
        .acknowledged(4_050, 1)
        .breaks("a decided key does not run");
}

/// The response shows that the outcome was recorded before the kill.
#[test]
fn nothing_is_repeated_after_a_response_despite_a_later_kill() {
    Story::queue(Policy::Rerun)
        .at(0, Fact::Sent { message: 1, key: 0 })
        .invoked(0, 0)
        .ran(10, 0, 0, false)
        .acknowledged(50, 0)
        .at(60, Fact::Killed { worker: 0 })
        .at(4_000, Fact::Invoked { invocation: 1, worker: 1, deadline: 5_500 })
        .at(4_000, Fact::Delivered { message: 1, invocation: 1 })
        .ran(4_010, 1, 1, true)
        .at(4_050, Fact::Acknowledged { message: 1, invocation: 1 })
        .breaks("a decided key does not run");
}

#[test]
fn a_run_that_ends_close_to_its_deadline_may_have_been_cancelled() {
    let again = |began| {
        let story = Story::queue(Policy::Rerun).invoked(0, 0).ran(began, 0, 0, false).reported(1_400, 0);
        story.invoked(4_000, 1).ran(4_010, 1, 1, true).acknowledged(4_050, 1)
    };
    again(880).keeps();
    again(870).breaks("a decided key does not run");
}

#[test]
fn nothing_runs_after_a_replay() {
    Story::http(Policy::Rerun)
        .ran(0, 0, 0, false)
        .at(30, Fact::Killed { worker: 0 })
        .answered(2_000, 0, replay(0))
        .ran(4_000, 1, 1, true)
        .breaks("a decided key does not run");
}

#[test]
fn a_run_unaware_of_its_takeover_is_found() {
    lost(Policy::Rerun)
        .invoked(4_000, 1)
        .ran(4_010, 1, 1, false)
        .acknowledged(4_050, 1)
        .breaks("a run after a loss is told so");
}

#[test]
fn a_takeover_before_the_deadline_is_found() {
    let takeover = |at| lost(Policy::Rerun).invoked(at, 1).ran(at + 10, 1, 1, true).acknowledged(at + 50, 1);
    takeover(1_400).breaks("a lost run keeps its lease");
    takeover(1_500).keeps();
    Story::http(Policy::Rerun)
        .began(0, 0, 0, false)
        .at(10, Fact::Killed { worker: 0 })
        .ran(399, 1, 1, true)
        .answered(500, 0, result(1))
        .breaks("a lost run keeps its lease");
}

#[test]
fn two_live_runs_are_found_unless_one_was_frozen() {
    let overlap = |story: Story| {
        story.invoked(4_000, 1).began(4_010, 1, 1, true).effect(4_020, 0).effect(4_030, 1).ended(
            4_040,
            1,
            End::Returned,
        )
    };
    let begun = || Story::queue(Policy::Rerun).invoked(0, 0).began(10, 0, 0, false);
    overlap(begun()).acknowledged(4_050, 1).breaks("one live run per key");
    let frozen = begun().at(20, Fact::Frozen { worker: 0 });
    overlap(frozen).at(4_045, Fact::Thawed { worker: 0 }).acknowledged(4_050, 1).keeps();
}

#[test]
fn only_an_unrecorded_outcome_may_differ_from_later_ones() {
    let ran = || Story::http(Policy::Rerun).ran(0, 0, 0, false);
    let again = |story: Story| story.answered(40, 0, result(0)).ran(4_000, 1, 1, true).answered(4_100, 1, result(1));
    again(ran().at(25, Fact::Struck { worker: 0, is_silent: false })).keeps();
    again(ran().at(25, Fact::Struck { worker: 7, is_silent: false })).breaks("a decided key does not run");
    again(ran().at(25, Fact::ServerRefuses).at(30, Fact::ServerAccepts)).keeps();
    again(ran().at(25, Fact::ServerKilled).at(30, Fact::ServerStarted)).keeps();
    again(ran()).breaks("all answers are equal");
    let trouble = [(Fact::ServerRefuses, Fact::ServerAccepts), (Fact::ServerKilled, Fact::ServerStarted)];
    for (begin, end) in trouble {
        let story = Story::http(Policy::Rerun).at(0, begin).at(5, end).ran(2_000, 0, 0, false);
        let again = story.answered(2_040, 0, result(0)).ran(6_000, 1, 1, true).answered(6_100, 1, result(1));
        again.breaks("a decided key does not run");
    }
}

#[test]
fn a_lease_counts_from_the_claim() {
    // Nearly half of the lease was over before the handler began, so that its renewal came before the end of the run.
    let story = |worker, struck| {
        let mut story = Story::http(Policy::Rerun).at(0, Fact::Asked { call: 0, key: 0, worker: 0 });
        let strike = Fact::Struck { worker, is_silent: false };
        if struck < 727 {
            story = story.at(struck, strike);
        }
        story = story.began(727, 0, 0, false);
        if struck > 727 {
            story = story.at(struck, strike);
        }
        story
            .effect(1_000, 0)
            .ended(1_407, 0, End::Returned)
            .at(1_507, Fact::Told { call: 0, answer: Answer::Retry })
            .ran(3_588, 1, 1, true)
            .answered(3_700, 1, result(1))
    };
    story(0, 985).keeps();
    story(0, 500).breaks("a decided key does not run");
    story(7, 985).breaks("a decided key does not run");
}

#[test]
fn different_replays_are_found() {
    Story::http(Policy::Rerun)
        .ran(0, 0, 0, false)
        .at(25, Fact::Killed { worker: 0 })
        .ran(4_000, 1, 1, true)
        .answered(4_100, 0, replay(0))
        .answered(4_200, 1, replay(1))
        .breaks("all answers are equal");
}

#[test]
fn a_response_of_another_key_or_without_an_effect_is_found() {
    Story::http(Policy::Rerun).answered(0, 0, result(0)).breaks("answers are of the key");
    let began = Story::http(Policy::Rerun).began(0, 0, 0, false).ended(10, 0, End::Returned);
    began.answered(20, 0, result(0)).breaks("answers follow their effect");
}

#[test]
fn a_message_that_is_acknowledged_without_an_effect_is_found() {
    Story::queue(Policy::Rerun).invoked(0, 0).acknowledged(50, 0).breaks("no message is lost");
}

#[test]
fn a_message_that_vanishes_is_found() {
    Story::queue(Policy::Rerun).invoked(0, 0).ran(10, 0, 0, false).breaks("no message is lost");
}

#[test]
fn a_transaction_commits_one_row() {
    let transaction = Key { is_transaction: true, ..key(Entry::Queue, Policy::Rerun) };
    let ran = || {
        let story = Story::of(transaction).at(0, Fact::Sent { message: 0, key: 0 }).invoked(0, 0);
        story.began(10, 0, 0, false).ended(20, 0, End::Returned).acknowledged(50, 0)
    };
    ran().breaks("no message is lost");
    ran().at(90, Fact::Row { run: 0 }).keeps();
    ran().at(90, Fact::Row { run: 0 }).at(90, Fact::Row { run: 0 }).breaks("a transaction commits once");
}

#[test]
fn a_transaction_runs_again_only_if_it_was_not_committed() {
    let transaction = Key { is_transaction: true, ..key(Entry::Queue, Policy::Rerun) };
    let struck = |of: Key| {
        let story = Story::of(of).at(0, Fact::Sent { message: 0, key: 0 }).invoked(0, 0);
        // The handler does not wait for the end of its statement, and returns on a lost connection.
        let struck = story.began(10, 0, 0, false).effect(20, 0).at(30, Fact::Struck { worker: 0, is_silent: false });
        let again = struck.ended(80, 0, End::Returned).reported(120, 0).invoked(800, 1);
        again.began(810, 1, 1, false).effect(820, 1).ended(830, 1, End::Returned).acknowledged(860, 1)
    };
    struck(transaction).at(5_000, Fact::Row { run: 1 }).keeps();
    struck(transaction).at(5_000, Fact::Row { run: 0 }).breaks("a decided key does not run");
    struck(key(Entry::Queue, Policy::Rerun)).breaks("a decided key does not run");

    let failed = || {
        let story = Story::of(transaction).at(0, Fact::Sent { message: 0, key: 0 }).invoked(0, 0);
        let failed = story.began(10, 0, 0, false).ended(80, 0, End::Transient).reported(120, 0).invoked(800, 1);
        failed.began(810, 1, 1, false).ended(830, 1, End::Returned).acknowledged(860, 1)
    };
    failed().at(5_000, Fact::Row { run: 1 }).keeps();
    failed().at(5_000, Fact::Row { run: 0 }).breaks("a failed transaction commits nothing");
    failed().at(5_000, Fact::Row { run: 0 }).breaks("a decided key does not run");
}

#[test]
fn a_message_is_dead_lettered_only_for_a_reason() {
    let dead = |story: Story| story.at(9_000, Fact::DeadLettered { message: 0 });
    let delivered = |policy| Story::queue(policy).invoked(0, 0).reported(50, 0);
    dead(delivered(Policy::Refuse)).breaks("no message is lost");
    dead(lost(Policy::Refuse)).keeps();
    dead(lost(Policy::Rerun)).breaks("no message is lost");
    dead(Story::queue(Policy::Refuse).invoked(0, 0).at(20, Fact::Struck { worker: 0, is_silent: false })).keeps();
    let poison = Key { is_poison: true, ..key(Entry::Queue, Policy::Refuse) };
    dead(Story::of(poison).at(0, Fact::Sent { message: 0, key: 0 })).keeps();
}

#[test]
fn a_key_without_a_final_response_is_found() {
    Story::http(Policy::Rerun).answered(0, 0, Answer::Retry).breaks("no key is stuck");
    Story::http(Policy::Rerun).answered(0, 0, Answer::Abandoned).breaks("no key is stuck");
    Story::http(Policy::Refuse).answered(0, 0, Answer::Abandoned).keeps();
}

#[test]
fn an_older_effect_after_a_newer_one_is_found() {
    let ordered = |sequence| Key { order: Some((0, sequence)), ..key(Entry::Queue, Policy::Rerun) };
    let of = |first, second| {
        let mut story = Story::of(ordered(first)).at(0, Fact::Sent { message: 0, key: 0 });
        story.0.keys.push(ordered(second));
        story
            .at(0, Fact::Sent { message: 1, key: 1 })
            .invoked(0, 0)
            .ran(10, 0, 0, false)
            .acknowledged(50, 0)
            .at(100, Fact::Invoked { invocation: 1, worker: 1, deadline: 1_600 })
            .at(100, Fact::Began { run: 1, key: 1, worker: 1, invocation: Some(1), took_over: false })
            .effect(110, 1)
            .ended(120, 1, End::Returned)
            .at(150, Fact::Acknowledged { message: 1, invocation: 1 })
    };
    of(1, 2).keeps();
    of(2, 1).breaks("no older effect after a newer one");
}

#[test]
fn an_ordered_message_is_acknowledged_after_a_newer_effect_alone() {
    let acknowledged = |sequence| {
        let ordered = |sequence| Key { order: Some((0, sequence)), ..key(Entry::Queue, Policy::Rerun) };
        let mut story = Story::of(ordered(2)).at(0, Fact::Sent { message: 0, key: 0 });
        story.0.keys.push(ordered(sequence));
        let story =
            story.at(0, Fact::Sent { message: 1, key: 1 }).invoked(0, 0).ran(10, 0, 0, false).acknowledged(50, 0);
        let invoked = Fact::Invoked { invocation: 1, worker: 1, deadline: 1_600 };
        let story = story.at(100, invoked).at(100, Fact::Delivered { message: 1, invocation: 1 });
        story.at(150, Fact::Acknowledged { message: 1, invocation: 1 })
    };
    acknowledged(1).keeps();
    acknowledged(3).breaks("no message is lost");
}
