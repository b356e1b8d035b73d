//! The worlds. Each is small, and explored to its end.

use crate::{
    state::Change,
    world::{Clock, Event::*, Path, Plan, Policy, World},
};

/// A worker whose clock is right, with one delivery.
const WORKER: Plan = Plan { key: 0, payload: 1, skew: 0, deliveries: 1, renewals: 0, path: Path::Single };

/// A worker with two deliveries.
const AGAIN: Plan = Plan { deliveries: 2, ..WORKER };

/// A worker whose clock is ahead by the margin.
const AHEAD: Plan = Plan { skew: 1, ..WORKER };

/// Returns a world without faults.
fn quiet(name: &'static str, about: &'static str) -> World {
    World {
        name,
        about,
        workers: vec![AGAIN, AHEAD],
        ends: 6,
        lease: 1,
        retention: (50, 50),
        policy: Policy::Rerun,
        clock: Clock::Sender,
        crashes: 0,
        timeouts: 0,
        late_answers: 0,
        copies: 0,
        amendments: 0,
        statements: 0,
        changes: Vec::new(),
        errors: (false, false),
        purges: false,
        cancels: false,
        is_ordered: false,
        doubt: Vec::new(),
        is_late: false,
        outlives: false,
        reaches: Vec::new(),
    }
}

/// Returns all worlds.
pub(crate) fn worlds() -> Vec<World> {
    [claims(), batches(), cancellations(), transactions(), orders(), renewals(), operators()].concat()
}

/// Claims and settles.
fn claims() -> Vec<World> {
    vec![
        World {
            crashes: 1,
            timeouts: 1,
            reaches: vec![Executed, Replayed, TookOver, OwnClaim, InProgress, Unrecorded, AppliedBefore, Withdrawn],
            ..quiet("rerun", "lost requests and answers, a crash")
        },
        World {
            copies: 1,
            late_answers: 1,
            errors: (true, false),
            reaches: vec![Executed, Replayed, TookOver, LateGrant, InProgress],
            ..quiet("late", "late answers, doubled requests, transient errors")
        },
        World {
            timeouts: 1,
            ends: 7,
            errors: (true, true),
            reaches: vec![Executed, Replayed, ReplayedFailure, TookOver, HandedBack],
            ..quiet("errors", "transient and permanent errors, a lost request or answer")
        },
        World {
            policy: Policy::Refuse,
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            reaches: vec![Executed, Replayed, Abandoned, OwnClaim],
            ..quiet("refuse", "the policy `Refuse`")
        },
        World {
            policy: Policy::Probe,
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            reaches: vec![Executed, Recovered, NotDone, HandedBack],
            ..quiet("probe", "the policy `Probe`, with a truthful probe")
        },
        World {
            clock: Clock::Store,
            crashes: 1,
            timeouts: 1,
            reaches: vec![Executed, TookOver, OwnClaim, AppliedBefore],
            ..quiet("server", "a store whose clock decides")
        },
        World {
            clock: Clock::Store,
            workers: vec![WORKER, AGAIN],
            copies: 2,
            errors: (true, false),
            reaches: vec![Executed, TookOver, HandedBack],
            ..quiet("server-late", "doubled requests to a store whose clock decides")
        },
        World {
            // A claim expires as soon as it lapses, so none is taken over.
            retention: (2, 2),
            purges: true,
            crashes: 1,
            copies: 1,
            reaches: vec![Executed, Expired, Purged],
            ..quiet("expiry", "records that expire and are deleted")
        },
        World {
            workers: vec![AGAIN, Plan { payload: 2, ..AHEAD }],
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            reaches: vec![Executed, Mismatch, TookOver],
            ..quiet("payloads", "two payloads of one key")
        },
        World {
            outlives: true,
            timeouts: 1,
            reaches: vec![Executed, LeaseLost, Overtaken],
            ..quiet("overrun", "handlers that outlive their leases")
        },
        World {
            workers: vec![AGAIN, Plan { payload: 2, ..AHEAD }],
            outlives: true,
            retention: (2, 50),
            reaches: vec![Executed, LeaseLost, Expired],
            ..quiet("overrun-payloads", "the same, with two payloads and claims that expire")
        },
    ]
}

/// Claims of several keys on DynamoDB.
fn batches() -> Vec<World> {
    let batched = |plan| Plan { path: Path::Batched, ..plan };
    vec![
        World {
            workers: vec![batched(AGAIN), batched(AHEAD)],
            crashes: 1,
            timeouts: 1,
            reaches: vec![Executed, Replayed, TookOver, OwnClaim, Changed],
            ..quiet("batched", "claims by `INSERT`, `SELECT` and `UPDATE`")
        },
        World {
            workers: vec![Plan { renewals: 1, ..AGAIN }, batched(AHEAD)],
            errors: (true, false),
            ends: 7,
            reaches: vec![Executed, TookOver, Changed, Renewed],
            ..quiet("batched-beside", "the same beside single claims, renewals and releases")
        },
        World {
            workers: vec![batched(AGAIN), batched(AHEAD)],
            retention: (2, 1),
            purges: true,
            reaches: vec![Executed, Expired, Purged, Changed],
            ..quiet("batched-expiry", "the same with records that expire and are deleted")
        },
        World {
            policy: Policy::Refuse,
            workers: vec![batched(AGAIN), batched(AHEAD)],
            amendments: 1,
            changes: vec![Change::Release, Change::Settle(true)],
            reaches: vec![Executed, Abandoned, Released, SettledBy, Changed],
            ..quiet("batched-operator", "the same with `Refuse` and an operator")
        },
    ]
}

/// Requests whose clients go.
fn cancellations() -> Vec<World> {
    let cancelled = World { cancels: true, timeouts: 1, ..quiet("", "") };
    vec![
        World {
            name: "cancel",
            about: "requests whose clients go",
            errors: (true, false),
            reaches: vec![Executed, Replayed, TookOver, Dropped],
            ..cancelled.clone()
        },
        World {
            name: "cancel-refuse",
            about: "the same with the policy `Refuse`",
            policy: Policy::Refuse,
            reaches: vec![Executed, Abandoned, Dropped],
            ..cancelled
        },
    ]
}

/// Effects that are committed with their outcomes.
fn transactions() -> Vec<World> {
    let commits = |plan| Plan { path: Path::Transaction, ..plan };
    let claimless = |plan| Plan { path: Path::Claimless, ..plan };
    vec![
        World {
            workers: vec![commits(WORKER), commits(AHEAD)],
            timeouts: 2,
            reaches: vec![Executed, Replayed, TookOver, Undone, Committed, Undecided],
            ..quiet("transaction", "a release decides about a commit without an answer")
        },
        World {
            workers: vec![claimless(AGAIN), claimless(AHEAD)],
            timeouts: 2,
            reaches: vec![Executed, Overtaken, Undecided, AppliedBefore],
            ..quiet("claimless", "a commit without a claim")
        },
        World {
            clock: Clock::Store,
            workers: vec![commits(WORKER), commits(AHEAD)],
            timeouts: 1,
            copies: 1,
            reaches: vec![Executed, Replayed, TookOver, Undone, Committed],
            ..quiet("transaction-server", "the same on a store whose clock decides, with doubled requests")
        },
        World {
            workers: vec![claimless(AGAIN), commits(AHEAD)],
            timeouts: 1,
            reaches: vec![Executed, Replayed, Undone, Committed, Overtaken],
            ..quiet("claimless-beside", "a commit without a claim beside one with a claim")
        },
        World {
            workers: vec![claimless(AGAIN), Plan { key: 1, ..AGAIN }],
            is_ordered: true,
            timeouts: 1,
            reaches: vec![Executed, InDoubt, InProgress],
            ..quiet("order-claimless", "an older operation without a claim, a newer one with a claim")
        },
        World {
            workers: vec![commits(AGAIN), Plan { key: 1, ..AHEAD }],
            is_ordered: true,
            timeouts: 1,
            crashes: 1,
            reaches: vec![Executed, Superseded, InProgress],
            ..quiet("order-transaction", "an older operation in a transaction, a newer one outside")
        },
    ]
}

/// Operations in the order of an entity.
fn orders() -> Vec<World> {
    let second = |plan| Plan { key: 1, ..plan };
    let third = |plan| Plan { key: 2, ..plan };
    vec![
        World {
            workers: vec![AGAIN, second(AGAIN)],
            is_ordered: true,
            crashes: 1,
            errors: (true, true),
            reaches: vec![Executed, Superseded, InDoubt, InProgress, ReplayedFailure],
            ..quiet("order", "two operations of one entity")
        },
        World {
            clock: Clock::Store,
            workers: vec![AGAIN, second(AGAIN)],
            is_ordered: true,
            copies: 1,
            errors: (true, false),
            reaches: vec![Executed, Superseded, InDoubt, InProgress],
            ..quiet("order-server", "the same on a store whose clock decides")
        },
        World {
            policy: Policy::Refuse,
            workers: vec![AGAIN, second(AHEAD)],
            is_ordered: true,
            crashes: 1,
            timeouts: 1,
            errors: (true, false),
            reaches: vec![Executed, Superseded, InDoubt, Abandoned],
            ..quiet("order-refuse", "the same with the policy `Refuse`")
        },
        World {
            policy: Policy::Probe,
            workers: vec![AGAIN, second(AGAIN)],
            is_ordered: true,
            crashes: 1,
            errors: (true, false),
            reaches: vec![Executed, Superseded, InDoubt, Recovered, NotDone],
            ..quiet("order-probe", "the same with the policy `Probe`")
        },
        World {
            workers: vec![AGAIN, second(AGAIN)],
            is_ordered: true,
            retention: (3, 3),
            ends: 8,
            reaches: vec![Executed, Superseded, InDoubt, Expired],
            ..quiet("order-expiry", "the same with records and a mark that expire")
        },
        World {
            workers: vec![WORKER, second(WORKER), third(AGAIN)],
            is_ordered: true,
            doubt: vec![1, 2],
            ends: 7,
            crashes: 1,
            errors: (false, true),
            reaches: vec![Executed, Merged, InDoubt],
            ..quiet("doubt", "operations in doubt merge")
        },
        World {
            workers: vec![second(AHEAD), third(AGAIN)],
            is_ordered: true,
            doubt: vec![1, 3],
            is_late: true,
            errors: (true, true),
            reaches: vec![Executed, Superseded, InDoubt],
            ..quiet("doubt-late", "a late completion of an older operation")
        },
        World {
            workers: vec![Plan { renewals: 1, ..WORKER }, second(AHEAD)],
            is_ordered: true,
            timeouts: 1,
            ends: 7,
            reaches: vec![Executed, Renewed, Superseded, InProgress],
            ..quiet("order-renewals", "renewals in an order")
        },
    ]
}

/// Leases that are renewed.
fn renewals() -> Vec<World> {
    let renewed = World { workers: vec![Plan { renewals: 2, ..WORKER }, AHEAD], timeouts: 1, ends: 7, ..quiet("", "") };
    vec![
        World {
            name: "renewals",
            about: "leases are renewed",
            reaches: vec![Executed, Renewed, TookOver],
            ..renewed.clone()
        },
        World {
            name: "renewals-server",
            about: "the same on a store whose clock decides",
            clock: Clock::Store,
            reaches: vec![Executed, Renewed, Refused, TookOver],
            ..renewed.clone()
        },
        World {
            name: "renewals-expiry",
            about: "the same with claims that expire",
            retention: (2, 50),
            purges: true,
            reaches: vec![Executed, Renewed, Expired, Purged],
            ..renewed
        },
    ]
}

/// Amendments by an operator beside workers.
fn operators() -> Vec<World> {
    vec![
        World {
            policy: Policy::Refuse,
            crashes: 1,
            amendments: 1,
            copies: 1,
            changes: vec![Change::Forget, Change::Settle(true), Change::Release, Change::Redact],
            reaches: vec![Executed, Abandoned, Forgotten, SettledBy, Released, Redacted, Unchanged],
            ..quiet("operator", "an operator amends records")
        },
        World {
            policy: Policy::Refuse,
            workers: vec![AGAIN, AHEAD],
            crashes: 1,
            amendments: 1,
            errors: (true, false),
            ends: 8,
            changes: vec![Change::Release],
            reaches: vec![Executed, Released, PassedOn],
            ..quiet("operator-release", "an operator releases a claim under `Refuse`")
        },
        World {
            policy: Policy::Refuse,
            workers: vec![Plan { renewals: 1, ..WORKER }, AHEAD],
            timeouts: 1,
            amendments: 1,
            changes: vec![Change::Settle(true), Change::Release],
            reaches: vec![Executed, Renewed, SettledBy, Released],
            ..quiet("operator-renewals", "an operator amends records beside renewals")
        },
        World {
            crashes: 1,
            amendments: 1,
            retention: (4, 2),
            changes: vec![Change::Forget, Change::Settle(true), Change::Redact],
            reaches: vec![Executed, Expired, SettledBy],
            ..quiet("operator-expiry", "an operator amends records that expire")
        },
        World {
            outlives: true,
            amendments: 1,
            timeouts: 1,
            changes: vec![Change::Settle(true)],
            reaches: vec![Executed, SettledBy, Overtaken],
            ..quiet("operator-overrun", "an operator settles an operation whose handler outlives its lease")
        },
        World {
            policy: Policy::Refuse,
            workers: [WORKER, AHEAD].map(|plan| Plan { path: Path::Transaction, ..plan }).to_vec(),
            timeouts: 1,
            amendments: 1,
            changes: vec![Change::Forget, Change::Settle(true), Change::Release],
            reaches: vec![Executed, Undone, Committed, Forgotten, SettledBy, Released],
            ..quiet("operator-transaction", "an operator amends records beside commits")
        },
        World {
            workers: vec![AGAIN, AHEAD],
            is_ordered: true,
            doubt: vec![2],
            amendments: 1,
            changes: vec![Change::Settle(true), Change::Forget],
            reaches: vec![SettledBy, Superseded, InDoubt],
            ..quiet("operator-order", "an operator settles an operation in doubt")
        },
        World {
            policy: Policy::Refuse,
            workers: vec![AGAIN, Plan { key: 1, ..WORKER }],
            is_ordered: true,
            crashes: 1,
            amendments: 1,
            changes: vec![Change::Forget, Change::Settle(true), Change::Release],
            reaches: vec![Executed, Superseded, InDoubt, Abandoned, Forgotten, SettledBy, Released],
            ..quiet("operator-order-refuse", "an operator amends records in an order under `Refuse`")
        },
        World {
            workers: vec![AGAIN, Plan { key: 1, ..AGAIN }],
            is_ordered: true,
            ends: 8,
            statements: 1,
            reaches: vec![Executed, Superseded, InDoubt, StatedEffect, StatedNone, Unchanged],
            ..quiet("operator-doubt", "an operator states what operations in doubt have done")
        },
    ]
}
