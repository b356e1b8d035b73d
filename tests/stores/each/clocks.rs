//! The local clock is not compared with the store's clock.

use std::{sync::Arc, time::Duration};

use lambda_once::{Deadline, Failure, Idempotency, Outcome, clock::Clock};

use crate::support::{
    clock::WrongClock,
    stores::{Backend, Records, on_each_store},
};

const SECOND: Duration = Duration::from_secs(1);

async fn however_wrong_our_clock_is_an_operation_runs_and_is_replayed(backend: Backend) {
    let store = Records::on_its_own_clock(backend).await.store().await;
    for clock in [WrongClock::Ahead(5 * SECOND), WrongClock::Ahead(3_600 * SECOND), WrongClock::Behind(3_600 * SECOND)]
    {
        let once = Idempotency::builder(Arc::clone(&store)).scope("tests").clock(clock).build().unwrap();
        for left in [None, Some(10 * SECOND)] {
            let deadline = left.map_or(Deadline::UNKNOWN, |left| Deadline::at(clock.now().after(left)));
            let key = (format!("{clock:?}"), left.is_some());
            let run = || once.operation("charge", &key).deadline(deadline).run(async || Ok::<_, Failure>(7));
            let first = run().await.unwrap();
            assert!(matches!(first, Outcome::Executed(7)), "{clock:?} {left:?}: {first:?}");
            let second = run().await.unwrap();
            assert!(matches!(second, Outcome::Replayed(7)), "{clock:?} {left:?}: {second:?}");
        }
    }
}

on_each_store!(however_wrong_our_clock_is_an_operation_runs_and_is_replayed);
