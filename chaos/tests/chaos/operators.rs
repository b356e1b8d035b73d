//! Planted histories with an operator.

use lambda_once_chaos::history::{Amendment, Fact, Policy};

use super::story::{Story, lost, lost_before};

impl Story {
    /// An operator releases or settles the key, which takes 100 ms.
    fn amended(self, at: u64, is_release: bool, outcome: Amendment) -> Self {
        let key = 0;
        self.at(at, Fact::Amending { key, is_release }).at(at + 100, Fact::Amended { key, is_release, outcome })
    }

    fn released(self, at: u64) -> Self {
        self.amended(at, true, Amendment::Applied)
    }
}

#[test]
fn a_release_by_an_operator_allows_one_run_more() {
    let released = || lost_before().released(4_000);
    released().invoked(4_200, 1).ran(4_210, 1, 1, true).acknowledged(4_250, 1).keeps();
    let again = |story: Story| story.invoked(8_200, 2).ran(8_210, 2, 2, true).acknowledged(8_250, 2);
    let lost_again = || released().invoked(4_200, 1).began(4_210, 1, 1, true).at(4_230, Fact::Killed { worker: 1 });
    again(lost_again()).breaks("nothing runs after a loss under Refuse");
    again(lost_again().released(8_000)).keeps();
    released().invoked(4_200, 1).ran(4_210, 1, 1, false).breaks("a run after a loss is told so");
}

#[test]
fn a_release_that_was_refused_allows_nothing() {
    let again = |story: Story| story.invoked(4_200, 1).ran(4_210, 1, 1, true).acknowledged(4_250, 1);
    again(lost_before().amended(4_000, true, Amendment::Refused)).breaks("nothing runs after a loss under Refuse");
    again(lost_before().amended(4_000, true, Amendment::Unknown)).keeps();
    again(lost_before().amended(4_000, false, Amendment::Applied)).breaks("nothing runs after a loss under Refuse");
}

/// The tool begins before a run, which was released earlier, and releases it after its loss.
#[test]
fn a_slow_release_may_belong_to_a_run_that_began_meanwhile() {
    let key = 0;
    let slow = lost_before().released(4_000).at(4_200, Fact::Amending { key, is_release: true });
    let lost = slow.invoked(4_300, 1).began(4_310, 1, 1, true).at(4_330, Fact::Killed { worker: 1 });
    let released = lost.at(8_000, Fact::Amended { key, is_release: true, outcome: Amendment::Applied });
    released.invoked(8_200, 2).ran(8_210, 2, 2, true).acknowledged(8_250, 2).keeps();
}

#[test]
fn a_release_after_an_effect_breaks_the_promise_unless_it_came_later() {
    let again = |story: Story| story.invoked(4_200, 1).ran(4_210, 1, 1, true).acknowledged(4_250, 1);
    again(lost(Policy::Refuse).released(4_000)).breaks("at most one effect");
    let frozen = Story::queue(Policy::Refuse).invoked(0, 0).began(10, 0, 0, false).at(20, Fact::Frozen { worker: 0 });
    again(frozen.released(4_000).at(4_140, Fact::Thawed { worker: 0 }).effect(4_150, 0)).keeps();
}

#[test]
fn nothing_runs_after_an_operator_has_settled_the_key() {
    let settled = lost(Policy::Refuse).amended(4_000, false, Amendment::Applied).invoked(4_200, 1);
    settled.ran(4_210, 1, 1, true).acknowledged(4_250, 1).breaks("a decided key does not run");
}

/// A worker is frozen when it is about to begin a run, before or after an operator settles the key.
#[test]
fn a_run_that_was_decided_before_a_settle_alone_may_begin_after_it() {
    let late = |frozen| {
        let settled = lost(Policy::Rerun).invoked(3_900, 1).amended(4_000, false, Amendment::Applied);
        let mut story = settled.at(frozen, Fact::Frozen { worker: 1 }).at(4_300, Fact::Thawed { worker: 1 });
        story.0.events.sort_by_key(|event| event.at);
        story.ran(4_301, 1, 1, true).acknowledged(4_350, 1)
    };
    late(4_099).keeps();
    late(4_101).breaks("a decided key does not run");
}

/// A loss before a release is no reason to refuse a message that is sent after it.
#[test]
fn a_message_sent_after_a_release_is_not_refused_for_an_earlier_loss() {
    let sent = Fact::Sent { message: 1, key: 0 };
    let dead = |story: Story| {
        let dead = story.at(4_000, Fact::DeadLettered { message: 0 });
        let sent = dead
            .released(9_000)
            .at(9_100, sent)
            .at(9_200, Fact::Invoked { invocation: 1, worker: 1, deadline: Some(10_700) });
        sent.at(9_200, Fact::Delivered { message: 1, invocation: 1 })
    };
    let refused = |story: Story| {
        let responded = story.at(9_300, Fact::Responded { invocation: 1 });
        responded.at(30_000, Fact::DeadLettered { message: 1 }).at(30_000, Fact::Calm)
    };
    refused(dead(lost_before())).breaks("no message is lost");
    refused(dead(lost_before()).at(9_250, Fact::Struck { worker: 1, is_silent: false })).keeps();
}

/// An operator releases the key of a worker that is frozen when it is about to begin a run.
#[test]
fn a_release_during_a_freeze_belongs_to_the_frozen_run() {
    let frozen = Story::queue(Policy::Refuse).invoked(0, 0).at(10, Fact::Frozen { worker: 0 });
    let other = frozen.released(4_000).invoked(4_200, 1).ran(4_210, 0, 1, true).acknowledged(4_250, 1);
    let late = Fact::Began { run: 1, key: 0, worker: 0, invocation: Some(0), took_over: false };
    other.at(4_400, Fact::Thawed { worker: 0 }).at(4_401, late).keeps();
}

/// A tool whose outcome is unknown excuses nothing after its end.
#[test]
fn a_release_with_an_unknown_outcome_allows_no_later_run() {
    let lost_again = lost_before().amended(4_000, true, Amendment::Unknown).invoked(4_200, 1);
    let lost_again = lost_again.began(4_210, 1, 1, true).at(4_230, Fact::Killed { worker: 1 });
    let again = lost_again.invoked(20_000, 2).ran(20_010, 2, 2, true).acknowledged(20_050, 2);
    again.breaks("nothing runs after a loss under Refuse");
}
