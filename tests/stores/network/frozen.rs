//! A holder that resumes after its lease gets the operation's actual outcome.

use std::future::Future;

use lambda_once::{Error, Failure, Outcome};
use tokio::runtime::Handle;

use super::{Backend, CHARGE, KEY, World, assert_outcome};
use crate::support::stores::on_each_proxied_store;

/// Runs the operation with a handler that blocks its thread until its lease has ended for others, while `meanwhile`
/// happens.
async fn run_blocked(world: &World, meanwhile: impl Future<Output = ()> + Send) -> Result<Outcome<u32>, Error> {
    let blocked = world.once.operation(CHARGE, KEY).run(|| async {
        world.lapse();
        tokio::task::block_in_place(|| Handle::current().block_on(meanwhile));
        Ok::<_, Failure>(99)
    });
    blocked.await
}

async fn it_sees_its_successors_result(backend: Backend) {
    let world = World::new(backend).await;
    let successor = async { assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(1))) };
    assert_outcome!(run_blocked(&world, successor).await, Ok(Outcome::Replayed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn it_has_lost_its_lease_while_its_successor_runs(backend: Backend) {
    let world = World::new(backend).await;
    assert_outcome!(run_blocked(&world, world.abandon()).await, Ok(Outcome::LeaseLost));
}

async fn it_records_its_result_where_it_has_no_successor(backend: Backend) {
    let world = World::new(backend).await;
    assert_outcome!(run_blocked(&world, async {}).await, Ok(Outcome::Executed(99)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(99)));
}

on_each_proxied_store!(
    it_sees_its_successors_result,
    it_has_lost_its_lease_while_its_successor_runs,
    it_records_its_result_where_it_has_no_successor,
);
