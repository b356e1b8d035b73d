//! Lapsed claims that an operator releases.

use lambda_once::store::conformance::{Subject, checks};

use crate::support::{
    self,
    stores::{Backend, Records, on_each_server},
};

async fn subject(backend: Backend) -> Subject {
    let clock = support::future_clock();
    let records = Records::new(backend, clock.clone()).await;
    Subject::new(records.store().await, clock).with_release(move |key| {
        let records = records.clone();
        Box::pin(async move { records.release(&key).await })
    })
}

macro_rules! checked {
    ($($check:ident),+ $(,)?) => {
        $(
            async fn $check(backend: Backend) {
                checks::$check(&subject(backend).await).await;
            }
        )+
        on_each_server!($($check),+);
    };
}

checked!(
    a_released_claim_is_taken_over_once_where_takeover_is_refused,
    a_release_does_not_end_the_claim_itself,
    a_handed_back_claim_passes_its_release_on,
    a_released_claim_in_order_keeps_the_order,
);
