//! A claim that may stand although nobody will act on it is given back.

use lambda_once::{
    AfterUnknown, ErrorKind, Outcome,
    record::Status,
    store::fault::{Call, Fault},
};

use super::{World, assert_outcome};

/// A world whose claims are applied and their answers lost, until it is healed.
fn without_answers(policy: AfterUnknown) -> World {
    let world = World::with(|builder| builder.after_unknown(policy));
    world.store.always(Call::Claim, Fault::ErrorAfter);
    world
}

/// What may happen to a withdrawal, and still it succeeds.
const TROUBLE: [&[(Call, Fault)]; 8] = [
    &[],
    &[(Call::Read, Fault::Throttled)],
    &[(Call::Read, Fault::ErrorBefore), (Call::Read, Fault::Throttled)],
    &[(Call::Read, Fault::Silence)],
    &[(Call::Settle, Fault::Throttled)],
    &[(Call::Settle, Fault::Silence)],
    &[(Call::Settle, Fault::ErrorAfter)],
    &[(Call::Read, Fault::Throttled), (Call::Settle, Fault::Throttled), (Call::Settle, Fault::ErrorBefore)],
];

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answers_were_lost_is_withdrawn_through_trouble() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for trouble in TROUBLE {
            let world = without_answers(policy);
            trouble.iter().for_each(|(call, fault)| world.store.next(*call, *fault));
            assert_outcome!(world.run().await, Err(error) if error.kind() == ErrorKind::Unavailable);
            assert_eq!(world.record().await, None, "{policy:?}, {trouble:?}: nothing ran, and the key is free");
            world.store.heal();
            assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_took_over_and_whose_answers_were_lost_is_handed_back() {
    for trouble in TROUBLE {
        let world = World::new();
        world.abandon().await;
        world.lapse().await;
        world.store.always(Call::Claim, Fault::ErrorAfter);
        trouble.iter().for_each(|(call, fault)| world.store.next(*call, *fault));
        assert_outcome!(world.run().await, Err(_));
        let record = world.record().await.unwrap();
        assert_eq!((record.status, record.owner), (Status::InProgress, None), "{trouble:?}: what ran is still unknown");
        world.store.heal();
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_leaves_the_claim_of_another_alone() {
    let world = World::new();
    world.abandon().await;
    let before = world.record().await;
    world.store.always(Call::Claim, Fault::ErrorAfter);
    world.store.next(Call::Read, Fault::Throttled);
    assert_outcome!(world.run().await, Err(_));
    assert_eq!(world.record().await, before);
    assert_eq!(world.count(Call::Settle), 0);
}
