//! The worlds. Each is small, and explored to its end.

use crate::{
    state::Change,
    world::{Clock, Event, Path, Plan, Policy, World},
};

/// A worker whose clock is right.
const WORKER: Plan = Plan { key: 0, payload: 1, skew: 0, deliveries: 1, renewals: 0 };

fn world(name: &'static str, about: &'static str, workers: &[Plan], reaches: &[Event]) -> World {
    World {
        name,
        about,
        workers: workers.to_vec(),
        ends: 6,
        lease: 1,
        retention: (50, 50),
        policy: Policy::Rerun,
        clock: Clock::Sender,
        path: Path::Single,
        crashes: 0,
        timeouts: 0,
        late_answers: 0,
        copies: 0,
        amendments: 0,
        changes: Vec::new(),
        errors: (false, false),
        purges: false,
        cancels: false,
        is_ordered: false,
        doubt: Vec::new(),
        outlives: false,
        reaches: reaches.to_vec(),
    }
}

/// Returns all worlds.
pub(crate) fn worlds() -> Vec<World> {
    use Event::*;
    let again = Plan { deliveries: 2, ..WORKER };
    let ahead = Plan { skew: 1, ..WORKER };
    vec![
        World {
            crashes: 1,
            timeouts: 1,
            ..world(
                "rerun",
                "lost requests and answers, a crash, clocks that differ",
                &[again, ahead],
                &[Executed, Replayed, TookOver, OwnClaim, InProgress, Unrecorded, AppliedBefore, Withdrawn],
            )
        },
        World {
            copies: 1,
            late_answers: 1,
            errors: (true, false),
            ..world(
                "late",
                "late answers, requests that arrive twice, transient errors",
                &[again, ahead],
                &[Executed, Replayed, TookOver, LateGrant, InProgress],
            )
        },
        World {
            timeouts: 1,
            ends: 7,
            errors: (true, true),
            ..world(
                "errors",
                "transient and permanent errors",
                &[again, ahead],
                &[Executed, ReplayedFailure, TookOver, HandedBack],
            )
        },
        World {
            policy: Policy::Refuse,
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            ..world("refuse", "the policy `Refuse`", &[again, ahead], &[Executed, Replayed, Abandoned, OwnClaim])
        },
        World {
            policy: Policy::Probe,
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            ends: 7,
            ..world("probe", "the policy `Probe`", &[again, ahead], &[Executed, Recovered, NotDone, HandedBack])
        },
        World {
            clock: Clock::Store,
            crashes: 1,
            timeouts: 1,
            copies: 1,
            ..world("server", "a store whose clock decides", &[again, ahead], &[Executed, TookOver, OwnClaim, LateGrant])
        },
        World {
            retention: (2, 2),
            purges: true,
            crashes: 1,
            copies: 1,
            ..world("expiry", "records that expire and are deleted", &[again, ahead], &[Executed, Expired, Purged, TookOver])
        },
        World {
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            ..world(
                "payloads",
                "two payloads of one key",
                &[again, Plan { payload: 2, ..ahead }],
                &[Executed, Mismatch, TookOver],
            )
        },
        World {
            outlives: true,
            timeouts: 1,
            ..world("overrun", "handlers that outlive their leases", &[again, ahead], &[Executed, LeaseLost, Overtaken])
        },
        World {
            path: Path::Batched,
            crashes: 1,
            timeouts: 1,
            ..world(
                "batched",
                "claims in three steps",
                &[again, ahead],
                &[Executed, Replayed, TookOver, OwnClaim, Changed],
            )
        },
        World {
            cancels: true,
            timeouts: 1,
            errors: (true, false),
            ..world("cancel", "requests whose clients go", &[again, ahead], &[Executed, Replayed, TookOver, Dropped])
        },
        World {
            path: Path::Transaction,
            crashes: 1,
            timeouts: 2,
            ..world(
                "transaction",
                "the outcome is committed with the effect, and a release decides",
                &[again, ahead],
                &[Executed, Replayed, TookOver, Undone, Committed, Undecided],
            )
        },
        World {
            path: Path::Claimless,
            timeouts: 2,
            ..world("claimless", "a commit without a claim", &[again, ahead], &[Executed, Overtaken, Undecided, AppliedBefore])
        },
        World {
            is_ordered: true,
            crashes: 1,
            errors: (true, true),
            ..world(
                "order",
                "two operations of one entity",
                &[again, Plan { key: 1, ..again }],
                &[Executed, Superseded, InDoubt, InProgress],
            )
        },
        World {
            is_ordered: true,
            doubt: vec![1, 2],
            ends: 9,
            crashes: 2,
            errors: (false, true),
            ..world(
                "doubt",
                "operations in doubt merge",
                &[WORKER, Plan { key: 1, ..WORKER }, Plan { key: 2, deliveries: 2, ..WORKER }],
                &[Merged, InDoubt, Executed],
            )
        },
        World {
            path: Path::Transaction,
            is_ordered: true,
            timeouts: 1,
            crashes: 1,
            ..world(
                "order-transaction",
                "two operations of one entity in transactions",
                &[again, Plan { key: 1, ..ahead }],
                &[Executed, Superseded, InProgress],
            )
        },
        World {
            timeouts: 1,
            ends: 7,
            ..world(
                "renewals",
                "leases are renewed",
                &[Plan { renewals: 2, ..WORKER }, ahead],
                &[Executed, Renewed, TookOver],
            )
        },
        World {
            clock: Clock::Store,
            timeouts: 1,
            ends: 7,
            ..world(
                "renewals-server",
                "the same on a store whose clock decides",
                &[Plan { renewals: 2, ..WORKER }, ahead],
                &[Executed, Renewed, Refused, TookOver],
            )
        },
        World {
            policy: Policy::Refuse,
            crashes: 1,
            amendments: 2,
            changes: vec![Change::Forget, Change::Settle(true), Change::Release, Change::Redact],
            copies: 1,
            ..world(
                "operator",
                "an operator amends records",
                &[again, ahead],
                &[Executed, Forgotten, SettledBy, Released, Redacted, Unchanged],
            )
        },
        World {
            policy: Policy::Refuse,
            crashes: 1,
            amendments: 1,
            errors: (true, false),
            ends: 9,
            changes: vec![Change::Release],
            ..world("operator-refuse", "an operator releases", &[again, again], &[Executed, Released, PassedOn])
        },
        World {
            is_ordered: true,
            crashes: 1,
            amendments: 1,
            changes: vec![Change::Settle(true), Change::Forget],
            ..world("operator-order", "an operator settles in an order", &[again, Plan { key: 1, ..again }], &[SettledBy, Superseded])
        },
    ]
}
