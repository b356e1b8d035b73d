//! Connections that are cut at any point. The writes exist exactly once, and everything acknowledged is committed.

use futures_util::{StreamExt, stream};
use lambda_once::{Outcome, Verdict};

use super::{Database, MODES, Mode, World, on_each_database};
use crate::support::{cases, wire::Fault};

/// The lost part of an exchange: the response to an applied request, or the request.
const CUTS: [fn(Fault<'_>); 2] = [|fault| fault.drop_response(), |fault| fault.drop_request()];

// Tests P20.
async fn at_any_message_of_an_operation<D: Database>() {
    for mode in MODES {
        for cut in CUTS {
            let mut place = 0;
            loop {
                place += 1;
                let world = World::<D>::new().await;
                cut(world.proxy.on(|_| true).nth(place));
                let first = world.debit(mode).await;
                let was_cut = world.proxy.pending_faults() == 0;
                let is_acknowledged = first.as_ref().is_ok_and(Outcome::is_done);
                let rows = world.rows().await.len();
                let is_undone = match &first {
                    Ok(Outcome::Failed(failure)) => failure.verdict() == Verdict::Transient,
                    outcome => outcome.is_err(),
                };
                assert!(!is_undone || rows == 0, "{mode:?}, cut at {place}: {first:?}, {rows} rows");
                assert!(!is_acknowledged || rows == 1, "{mode:?}, cut at {place}: {first:?}, {rows} rows");
                world.assert_takes_effect_once(mode, &format!("{mode:?}, cut at {place}: {first:?}")).await;
                if !was_cut {
                    assert!(place > 1 && is_acknowledged, "{first:?}");
                    break;
                }
            }
        }
    }
}

/// Returns the number of operations in a test with random cuts (`CUT_OPERATIONS`).
fn operations() -> usize {
    cases("CUT_OPERATIONS", 100)
}

/// Each operation is delivered twice concurrently until both deliveries are acknowledged. All leases end from time to
/// time.
// Tests P20.
async fn at_random_in_many_operations<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(|_| fastrand::u32(..20) == 0).times(usize::MAX).drop_response();
    world.proxy.on(|_| fastrand::u32(..20) == 0).times(usize::MAX).drop_request();
    let mut open: Vec<usize> = (0..operations()).collect();
    for round in 0.. {
        assert!(round < 20, "operations {open:?} are never done");
        let deliveries = open.iter().map(|&number| {
            let world = &world;
            async move {
                if fastrand::u32(..100) == 0 {
                    world.lapse();
                }
                let (order, mode) = (format!("order {number}"), MODES[number % 2]);
                let deliver = || world.debit_order(&order, &world.once, &world.store, mode, || Ok(()));
                let (first, second) = futures_util::join!(deliver(), deliver());
                let is_done = |outcome: &Result<_, _>| outcome.as_ref().is_ok_and(Outcome::is_done);
                (number, is_done(&first), is_done(&second))
            }
        });
        let told: Vec<(usize, bool, bool)> = stream::iter(deliveries).buffer_unordered(8).collect().await;
        let rows = world.ledger.all_rows().await;
        let count = |order: &str| rows.iter().filter(|(_, of)| of == order).count();
        for (number, first, second) in &told {
            let rows = count(&format!("order {number}"));
            assert!(rows == 1 || rows == 0 && !first && !second, "order {number} has {rows} rows: {first}, {second}");
        }
        open = told.into_iter().filter_map(|(number, first, second)| (!(first && second)).then_some(number)).collect();
        if open.is_empty() {
            return;
        }
        world.lapse();
    }
}

impl<D: Database> World<D> {
    /// Redelivers the operation directly until it is done, and asserts that there is exactly one row, then and later.
    async fn assert_takes_effect_once(&self, mode: Mode, what: &str) {
        for _ in 0..2 {
            self.lapse();
            let outcome = self.debit_elsewhere(mode).await;
            assert!(outcome.as_ref().is_ok_and(Outcome::is_done), "{what}, then {outcome:?}");
            assert_eq!(self.rows().await.len(), 1, "{what}, then {outcome:?}");
        }
    }
}

on_each_database!(at_any_message_of_an_operation, at_random_in_many_operations);
