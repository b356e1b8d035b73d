//! The load: messages, some of them sent or delivered several times, and requests with retries.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{World, clients, queue::Source};
use crate::{
    client::client,
    history::{Entry, Key, KeyId, Policy},
    settings::StoreKind,
};

/// The entities that receive ordered operations at the same time, and the operations of each.
const ENTITIES: usize = 12;
const OPERATIONS_OF_ENTITY: u64 = 6;

/// Makes all operations.
pub(super) async fn make(world: &Arc<World>) {
    let client = client();
    let mut entities: Vec<(u32, u64)> = (0..ENTITIES as u32).map(|entity| (entity, 0)).collect();
    let mut last_entity = ENTITIES as u32;
    for _ in 0..world.options.operations {
        while world.lock().open >= world.options.most_open {
            sleep(Duration::from_millis(5)).await;
        }
        let draw = world.lock().random.u32(0..100);
        match draw {
            0..8 if world.options.store == StoreKind::Postgres => {
                let key = add(world, Entry::Queue, None, true);
                send(world, key, Source::Transaction);
            }
            0..40 => {
                let key = add(world, Entry::Queue, None, false);
                send(world, key, Source::of(world.key(key).policy));
            }
            40..55 => {
                // As in `examples/consumer`, the effects are rows of a transaction on PostgreSQL.
                let policy = policy(&mut world.lock().random);
                let is_transaction = world.options.store == StoreKind::Postgres && policy == Policy::Rerun;
                let key = add_with(world, Entry::Queue, policy, None, is_transaction);
                send(world, key, Source::Consumer);
            }
            55..70 => {
                let place = world.lock().random.usize(0..entities.len());
                let entity = &mut entities[place];
                entity.1 += 1;
                let order = *entity;
                if entity.1 == OPERATIONS_OF_ENTITY {
                    *entity = (last_entity, 0);
                    last_entity += 1;
                }
                let key = add(world, Entry::Queue, Some(order), false);
                send(world, key, Source::Ordered);
            }
            _ => {
                let key = add(world, Entry::Http, None, false);
                world.lock().open += 1;
                let (world, client) = (Arc::clone(world), client.clone());
                tokio::spawn(async move {
                    clients::call(&world, &client, key).await;
                    world.lock().open -= 1;
                });
            }
        }
    }
}

fn add(world: &World, entry: Entry, order: Option<(u32, u64)>, is_transaction: bool) -> KeyId {
    let is_rerun = order.is_some() || is_transaction;
    let policy = if is_rerun { Policy::Rerun } else { policy(&mut world.lock().random) };
    add_with(world, entry, policy, order, is_transaction)
}

fn policy(random: &mut fastrand::Rng) -> Policy {
    match random.u32(0..10) {
        0..4 => Policy::Rerun,
        4..7 => Policy::Refuse,
        _ => Policy::Probe,
    }
}

fn add_with(world: &World, entry: Entry, policy: Policy, order: Option<(u32, u64)>, is_transaction: bool) -> KeyId {
    let mut state = world.lock();
    // A poisonous message uses up its receives, which are few only under this policy.
    let is_poison = entry == Entry::Queue && policy == Policy::Refuse && state.random.u32(0..100) < 4;
    let key = KeyId::try_from(state.history.keys.len()).unwrap_or(KeyId::MAX);
    state.history.keys.push(Key { entry, policy, order, is_transaction, is_poison });
    key
}

/// Sends a message, and at times again: at once, or when it has been handled already.
fn send(world: &Arc<World>, key: KeyId, source: Source) {
    // Ordered messages often overtake each other.
    let is_late = source == Source::Ordered && world.chance(250);
    let copies = if world.chance(300) { world.lock().random.u32(1..3) } else { 0 };
    let mut pauses: Vec<Duration> = (0..copies).map(|_| world.pause(0, 2_500)).collect();
    pauses.push(if is_late { world.pause(50, 600) } else { Duration::ZERO });
    for pause in pauses {
        if pause.is_zero() {
            world.send(key, source);
            continue;
        }
        world.lock().open += 1;
        let world = Arc::clone(world);
        tokio::spawn(async move {
            sleep(pause).await;
            world.send(key, source);
            world.lock().open -= 1;
        });
    }
}
