//! Planted histories of consumers, which handle several messages at a time, without deadlines.

use lambda_once_chaos::history::{End, Fact, Policy};

use super::story::Story;

#[test]
fn a_consumers_message_that_takes_effect_once_keeps() {
    Story::queue(Policy::Refuse).received(0, 0, 0).ran_for(10, 0, 0, 0, false).acknowledged(50, 0).keeps();
}

/// An invocation would hold the key until its deadline, after 1.5 s.
#[test]
fn a_consumers_lost_run_holds_its_key_for_the_lease_alone() {
    let takeover = |at| {
        let lost = Story::queue(Policy::Rerun).received(0, 0, 0).began_for(10, 0, 0, 0, false);
        let other = lost.at(30, Fact::Killed { worker: 0 }).received(at - 5, 1, 1);
        other.ran_for(at, 1, 1, 1, true).acknowledged(at + 50, 1)
    };
    takeover(409).breaks("a lost run keeps its lease");
    takeover(410).keeps();
}

/// A message is received again, by the same worker, while the first receipt is being handled.
#[test]
fn two_live_runs_of_a_consumer_are_found() {
    let twice = Story::queue(Policy::Rerun).received(0, 0, 0).began_for(10, 0, 0, 0, false).received(1_800, 1, 0);
    let overlap = twice.began_for(1_810, 1, 1, 0, true).effect(1_820, 0).ended(1_830, 0, End::Returned);
    overlap.effect(1_840, 1).ended(1_850, 1, End::Returned).acknowledged(1_900, 1).breaks("one live run per key");
}

/// A short run needs no renewal. A renewal of a long one may have failed at any time.
#[test]
fn only_a_long_run_of_a_consumer_may_lose_its_lease_meanwhile() {
    let again = |ended| {
        let run = Story::queue(Policy::Rerun).received(0, 0, 0).began_for(10, 0, 0, 0, false);
        let struck = run.at(20, Fact::Struck { worker: 0, is_silent: false });
        let left = struck.effect(30, 0).ended(ended, 0, End::Returned).reported(ended + 10, 0);
        left.received(5_000, 1, 1).ran_for(5_010, 1, 1, 1, true).acknowledged(5_050, 1)
    };
    again(700).keeps();
    again(699).breaks("a decided key does not run");
}

#[test]
fn nothing_of_a_consumer_runs_after_a_replay() {
    let done = Story::queue(Policy::Rerun).received(0, 0, 0).ran_for(10, 0, 0, 0, false);
    let killed = done.at(35, Fact::Killed { worker: 0 });
    let replayed = killed.received(2_000, 1, 1).acknowledged(2_010, 1);
    replayed.received(3_000, 2, 2).ran_for(3_010, 1, 2, 2, true).breaks("a decided key does not run");
}

/// A receipt without a response may still be handled when a message is dead-lettered.
#[test]
fn a_consumers_message_is_refused_only_after_a_fault() {
    let refused =
        |story: Story| story.received(9_000, 1, 1).reported(9_010, 1).at(9_500, Fact::DeadLettered { message: 0 });
    refused(Story::queue(Policy::Refuse).received(0, 0, 0)).breaks("no message is lost");
    refused(Story::queue(Policy::Refuse).received(0, 0, 0).at(5, Fact::Killed { worker: 0 })).keeps();
    let later = |fact| refused(Story::queue(Policy::Refuse).received(0, 0, 0)).at(9_600, fact);
    later(Fact::Killed { worker: 0 }).breaks("no message is lost");
    later(Fact::ServerKilled).breaks("no message is lost");
}

/// The consumer of the first receipt has left the message, and handles others.
#[test]
fn a_fault_after_the_response_of_a_receipt_excuses_no_further_run() {
    let again = |struck: u64| {
        let left = Story::queue(Policy::Rerun).received(0, 0, 0).ran_for(10, 0, 0, 0, false);
        let strike = Fact::Struck { worker: 0, is_silent: false };
        let left =
            if struck < 40 { left.at(struck, strike).reported(40, 0) } else { left.reported(40, 0).at(struck, strike) };
        left.received(2_000, 1, 1).ran_for(2_010, 1, 1, 1, true).acknowledged(2_050, 1)
    };
    again(35).keeps();
    again(100).breaks("a decided key does not run");
}
