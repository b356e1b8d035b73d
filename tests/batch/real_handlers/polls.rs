//! The number of store calls for thousands of waiting records.

use lambda_once::{batch::Processed, clock::Clock};

use crate::world::{Event, Latency, START, World, fifo, millis, orders, reported, seconds};

const RECORDS: usize = 4_000;

/// Delivers as many messages as there are records, each in a separate group, whose keys are held elsewhere for 40 s.
async fn wait_for_all() -> World {
    let latency = Latency { read: millis(20), ..Latency::default() };
    let world = World::on(latency, |builder| builder);
    for i in 0..RECORDS {
        // Plus the margin of one second.
        world.hold_in("sqs", &format!("order-{i}"), seconds(39));
    }
    let groups = (0..RECORDS).map(|i| &*format!("group-{i}").leak());
    let event = fifo(groups.zip(orders(RECORDS, "succeed", 0)));
    let processed: Processed<_> =
        world.process_within(&world.service().wait_up_to(seconds(60)), event, seconds(120)).await;
    assert!(reported(&processed).is_empty());
    assert!(world.clock.now() >= START.after(seconds(40)) && world.clock.now() < START.after(seconds(45)));
    world
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn waiting_records_are_polled_in_single_calls_at_a_bounded_rate_of_keys() {
    let world = wait_for_all().await;
    let (mut keys_read, mut is_in_flight) = (0, false);
    for (at, event) in world.journal.timed() {
        match event {
            Event::ReadArrived(keys) => {
                assert!(!is_in_flight, "two calls at once at {:?}", at.since(START));
                assert!(keys <= 25, "{keys} keys in a call");
                is_in_flight = true;
                keys_read += keys;
                let most = 100.0 * at.since(START).as_secs_f64() + 25.0;
                assert!(keys_read as f64 <= most, "{keys_read} keys read after {:?}", at.since(START));
            }
            Event::ReadAnswered => is_in_flight = false,
            _ => {}
        }
    }
    assert!(keys_read > 0);
}
