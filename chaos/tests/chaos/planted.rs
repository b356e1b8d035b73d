//! Planted histories, sound and broken.

use lambda_once_chaos::{
    history::{Answer, End, Entry, Fact, Key, Policy},
    judge::{Terms, judge},
};

use super::story::{Story, TERMS, key, lost, replay, result};

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

/// A worker is frozen when it is about to begin a run, and thaws when another worker has taken over.
#[test]
fn a_run_that_was_decided_before_a_freeze_precedes_later_runs() {
    let frozen = Story::queue(Policy::Probe).invoked(0, 0).at(10, Fact::Frozen { worker: 0 });
    let other = frozen.invoked(4_000, 1).ran(4_010, 0, 1, true).acknowledged(4_050, 1);
    let late = |took_over| Fact::Began { run: 1, key: 0, worker: 0, invocation: Some(0), took_over };
    other.at(4_100, Fact::Thawed { worker: 0 }).at(4_101, late(false)).keeps();
    // Without a freeze it is decided when it begins.
    let other =
        Story::queue(Policy::Probe).invoked(0, 0).invoked(4_000, 1).ran(4_010, 0, 1, true).acknowledged(4_050, 1);
    other.at(4_101, late(false)).breaks("a decided key does not run");
}

/// The same over HTTP, where a claim has no deadline.
#[test]
fn a_request_that_was_decided_before_a_freeze_precedes_later_runs() {
    let frozen = Story::http(Policy::Probe).at(0, Fact::Asked { call: 0, key: 0, worker: 0 });
    let frozen = frozen.at(10, Fact::Frozen { worker: 0 }).at(4_000, Fact::Asked { call: 1, key: 0, worker: 1 });
    let other = frozen.ran(4_010, 0, 1, true).at(4_050, Fact::Told { call: 1, answer: result(0) });
    other.at(4_100, Fact::Thawed { worker: 0 }).began(4_101, 1, 0, false).keeps();
}

/// A worker thaws when another has released the key, and claims it at once.
#[test]
fn a_run_just_after_a_freeze_may_also_be_decided_after_it() {
    let frozen = Story::queue(Policy::Probe).at(10, Fact::Frozen { worker: 0 }).invoked(4_000, 1);
    let released = frozen.began(4_010, 0, 1, false).ended(4_030, 0, End::Transient).reported(4_050, 1);
    let thawed = released.at(4_100, Fact::Thawed { worker: 0 }).invoked(4_110, 0);
    thawed.ran(4_150, 1, 0, false).acknowledged(4_200, 0).keeps();
}

#[test]
fn a_recorded_outcome_does_not_become_unknown() {
    let done = || Story::http(Policy::Refuse).at(0, Fact::Asked { call: 0, key: 0, worker: 0 }).ran(10, 0, 0, false);
    let answered = || done().at(60, Fact::Told { call: 0, answer: result(0) });
    let unknown = |story: Story| {
        let asked = story.at(5_000, Fact::Asked { call: 1, key: 0, worker: 1 });
        asked.at(5_020, Fact::Told { call: 1, answer: Answer::Abandoned })
    };
    unknown(answered()).breaks("a recorded outcome stays");
    let lost = |answer| done().at(30, Fact::Killed { worker: 0 }).at(60, Fact::Told { call: 0, answer });
    unknown(lost(replay(0))).breaks("a recorded outcome stays");
    unknown(lost(Answer::Retry)).keeps();
    unknown(
        done().at(30, Fact::Struck { worker: 0, is_silent: false }).at(60, Fact::Told { call: 0, answer: result(0) }),
    )
    .keeps();
}

/// The outcome of a run is lost when a server that has started a second and a half before responds too late.
#[test]
fn a_server_that_has_just_started_may_respond_too_late() {
    let again = |started: Story| {
        let ran = started.invoked(2_000, 0).ran(2_010, 0, 0, false).reported(2_050, 0);
        ran.invoked(6_000, 1).ran(6_010, 1, 1, true).acknowledged(6_050, 1)
    };
    let first = Story::queue(Policy::Rerun).at(500, Fact::ServerStarted);
    let killed = Story::queue(Policy::Rerun).at(0, Fact::ServerStarted).at(100, Fact::ServerKilled);
    for story in [again(first), again(killed.at(500, Fact::ServerStarted))] {
        assert_eq!(judge(&story.0, Terms { slow_start: 2_000, ..TERMS }), []);
        story.breaks("a decided key does not run");
    }
}

#[test]
fn a_slow_response_may_come_too_late_for_the_outcome() {
    let again = |worker, since, at| {
        let ran = Story::queue(Policy::Rerun).invoked(0, 0).ran(10, 0, 0, false);
        let slow = ran.at(at, Fact::Slow { worker, since }).reported(1_400, 0);
        slow.invoked(4_000, 1).ran(4_010, 1, 1, true).acknowledged(4_050, 1)
    };
    again(0, 31, 600).keeps();
    again(7, 31, 600).breaks("a decided key does not run");
    again(0, 5, 9).breaks("a decided key does not run");
    again(0, 1_401, 1_700).breaks("a decided key does not run");
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
        .at(4_000, Fact::Invoked { invocation: 1, worker: 1, deadline: Some(5_500) })
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
fn a_thawed_run_may_finish_an_instruction_and_no_more() {
    let acts = |at| {
        let frozen =
            Story::queue(Policy::Rerun).invoked(0, 0).began(10, 0, 0, false).at(20, Fact::Frozen { worker: 0 });
        let other = frozen.invoked(3_000, 1).began(3_010, 1, 1, true).at(4_000, Fact::Thawed { worker: 0 });
        other.effect(at, 0).effect(at + 1, 1).ended(at + 2, 1, End::Returned).acknowledged(at + 3, 1)
    };
    acts(4_250).keeps();
    acts(4_251).breaks("one live run per key");
}

#[test]
fn a_run_is_live_unless_it_was_frozen_since_before_the_next_began() {
    let begun = || Story::queue(Policy::Rerun).invoked(0, 0).began(10, 0, 0, false);
    let next = |story: Story| story.invoked(3_000, 1).began(3_010, 1, 1, true);
    let ends = |story: Story| story.effect(3_700, 1).ended(3_710, 1, End::Returned).acknowledged(3_720, 1);
    // It acts before the freeze.
    let acts = |story: Story| next(story).effect(3_100, 0).at(3_200, Fact::Frozen { worker: 0 });
    let thawed = |story: Story| story.at(3_300, Fact::Thawed { worker: 0 }).ended(3_310, 0, End::Returned);
    ends(thawed(acts(begun()))).breaks("one live run per key");
    // It acts after a freeze that began too late.
    let acts = |story: Story| story.at(3_600, Fact::Thawed { worker: 0 }).effect(3_650, 0);
    ends(acts(next(begun()).at(3_500, Fact::Frozen { worker: 0 }))).breaks("one live run per key");
    ends(acts(next(begun().at(3_000, Fact::Frozen { worker: 0 })))).keeps();
    // A freeze before that is over.
    let frozen = begun().at(20, Fact::Frozen { worker: 0 }).at(100, Fact::Thawed { worker: 0 });
    ends(acts(next(frozen).at(3_500, Fact::Frozen { worker: 0 }))).breaks("one live run per key");
}

#[test]
fn a_late_begin_excuses_no_begin_within_the_lease_of_another() {
    // Run 1 was decided before or after the freeze of its worker. At both times run 0 held the key.
    let begun = Story::queue(Policy::Rerun).invoked(0, 0).began(10, 0, 0, false).invoked(100, 1);
    let frozen = begun.at(500, Fact::Frozen { worker: 1 }).at(1_000, Fact::Thawed { worker: 1 });
    let late = frozen.began(1_010, 1, 1, true).effect(1_020, 1).ended(1_030, 1, End::Returned).acknowledged(1_040, 1);
    late.breaks("a lost run keeps its lease");
}

#[test]
fn a_stall_that_begins_just_after_another_prolongs_it() {
    let begun = || Story::queue(Policy::Rerun).invoked(0, 0).began(10, 0, 0, false).at(20, Fact::Frozen { worker: 0 });
    let next = |story: Story| story.invoked(2_490, 1).began(2_500, 1, 1, true);
    let acts = |story: Story, at| {
        story.effect(at, 0).effect(at + 1, 1).ended(at + 2, 1, End::Returned).acknowledged(at + 3, 1)
    };
    let stalled =
        |thawed, since| next(begun()).at(thawed, Fact::Thawed { worker: 0 }).at(3_400, Fact::Stalled { since });
    acts(stalled(3_000, 2_980), 3_410).keeps();
    acts(stalled(3_000, 3_250), 3_650).keeps();
    acts(stalled(3_000, 3_250), 3_651).breaks("one live run per key");
    acts(stalled(2_900, 3_151), 3_410).breaks("one live run per key");
    let twice = next(begun().at(100, Fact::Thawed { worker: 0 }).at(2_480, Fact::Stalled { since: 200 }));
    acts(twice.at(2_900, Fact::Stalled { since: 2_485 }), 3_000).keeps();
}

/// A run whose end comes after the next run began is a lost one, whatever its end.
#[test]
fn an_end_after_the_next_run_began_excuses_nothing() {
    let ends = |policy, began, took_over, end| {
        let begun = Story::queue(policy).invoked(0, 0).began(10, 0, 0, false).at(20, Fact::Frozen { worker: 0 });
        let next = begun.invoked(began - 10, 1).began(began, 1, 1, took_over).effect(began + 10, 1);
        let done = next.ended(began + 20, 1, End::Returned).acknowledged(began + 30, 1);
        done.at(began + 100, Fact::Thawed { worker: 0 }).ended(began + 101, 0, end)
    };
    ends(Policy::Rerun, 3_010, true, End::Returned).keeps();
    ends(Policy::Refuse, 3_010, true, End::Returned).breaks("nothing runs after a loss under Refuse");
    ends(Policy::Rerun, 3_010, false, End::Returned).breaks("a run after a loss is told so");
    ends(Policy::Rerun, 1_010, true, End::Transient).breaks("a lost run keeps its lease");
}

/// Clients on other workers get the outcome and a replay, while the worker of a request is frozen or before.
#[test]
fn a_run_that_was_decided_before_a_replay_may_begin_after_it() {
    let late = |frozen| {
        let ran = Story::http(Policy::Rerun)
            .at(0, Fact::Asked { call: 0, key: 0, worker: 0 })
            .at(4_000, Fact::Asked { call: 1, key: 0, worker: 1 })
            .ran(4_010, 0, 1, true)
            .at(4_050, Fact::Told { call: 1, answer: result(0) })
            .answered(4_080, 2, replay(0));
        let mut story = ran.at(frozen, Fact::Frozen { worker: 0 }).at(4_200, Fact::Thawed { worker: 0 });
        story.0.events.sort_by_key(|event| event.at);
        story.began(4_201, 1, 0, false)
    };
    late(10).keeps();
    late(4_090).breaks("a decided key does not run");
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
            .at(100, Fact::Invoked { invocation: 1, worker: 1, deadline: Some(1_600) })
            .at(100, Fact::Began { run: 1, key: 1, worker: 1, invocation: Some(1), took_over: false })
            .effect(110, 1)
            .ended(120, 1, End::Returned)
            .at(150, Fact::Acknowledged { message: 1, invocation: 1 })
    };
    of(1, 2).keeps();
    of(2, 1).breaks("no older effect after a newer one");
}

#[test]
fn an_older_effect_is_excused_by_a_freeze_since_before_the_newer_run() {
    let ordered = |sequence| Key { order: Some((0, sequence)), ..key(Entry::Queue, Policy::Rerun) };
    // The newer run begins at 2,010 and takes effect at 2,200, the older one at 2,300.
    let of = |frozen, thawed| {
        let mut story = Story::of(ordered(1)).at(0, Fact::Sent { message: 0, key: 0 });
        story.0.keys.push(ordered(2));
        let begun = story.at(0, Fact::Sent { message: 1, key: 1 }).invoked(0, 0).began(10, 0, 0, false);
        let invoked = Fact::Invoked { invocation: 1, worker: 1, deadline: Some(3_500) };
        let mut story = begun
            .at(2_000, invoked)
            .at(2_010, Fact::Began { run: 1, key: 1, worker: 1, invocation: Some(1), took_over: false })
            .effect(2_200, 1)
            .ended(2_210, 1, End::Returned)
            .at(2_220, Fact::Acknowledged { message: 1, invocation: 1 })
            .effect(2_300, 0)
            .acknowledged(2_310, 0)
            .at(frozen, Fact::Frozen { worker: 0 })
            .at(thawed, Fact::Thawed { worker: 0 });
        story.0.events.sort_by_key(|event| event.at);
        story
    };
    let property = "no older effect after a newer one";
    of(20, 2_250).keeps();
    of(20, 2_050).keeps();
    of(20, 2_049).breaks(property);
    of(20, 100).breaks(property);
    of(2_010, 2_290).keeps();
    of(2_011, 2_290).breaks(property);
}

#[test]
fn an_ordered_message_is_acknowledged_after_a_newer_effect_alone() {
    let acknowledged = |sequence| {
        let ordered = |sequence| Key { order: Some((0, sequence)), ..key(Entry::Queue, Policy::Rerun) };
        let mut story = Story::of(ordered(2)).at(0, Fact::Sent { message: 0, key: 0 });
        story.0.keys.push(ordered(sequence));
        let story =
            story.at(0, Fact::Sent { message: 1, key: 1 }).invoked(0, 0).ran(10, 0, 0, false).acknowledged(50, 0);
        let invoked = Fact::Invoked { invocation: 1, worker: 1, deadline: Some(1_600) };
        let story = story.at(100, invoked).at(100, Fact::Delivered { message: 1, invocation: 1 });
        story.at(150, Fact::Acknowledged { message: 1, invocation: 1 })
    };
    acknowledged(1).keeps();
    acknowledged(3).breaks("no message is lost");
}
