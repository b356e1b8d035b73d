//! The examples of the pages about testing that use the feature, verbatim.

#[test]
fn the_examples_are_those_of_the_pages() {
    let lines = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    let here = lines(include_str!("page.rs"));
    let pages = concat!(include_str!("../../../docs/recipes.md"), include_str!("../../../docs/internals/testing.md"));
    let blocks = pages.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = blocks.filter(|block| block.contains("testing::")).collect();
    assert_eq!(examples.len(), 7);
    for example in examples {
        for part in example.split("\n\n") {
            assert!(here.contains(&lines(part)), "{part}");
        }
    }
}

#[rustfmt::skip]
mod deliver_twice {
    use lambda_once::{Failure, Key, testing::{self, sqs}};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Order { order_id: String }

    async fn book(order: Order) -> Result<String, Failure> {
        Ok(order.order_id)
    }

    #[tokio::test]
    async fn an_order_is_booked_once() {
        let service = testing::engine().sqs(Key::pointer("/order_id"), book);
        let batch = sqs::batch([testing::record(&Order { order_id: "7".into() })]);
        testing::deliver_twice(&service, &batch).await.assert_once();
    }
}

#[rustfmt::skip]
mod envelopes {
    use lambda_once::{Failure, Key, batch::envelope::Sns, testing::{self, sns, sqs}};

    async fn book(order: serde_json::Value) -> Result<String, Failure> {
        Ok(order["order_id"].to_string())
    }

    #[tokio::test]
    async fn an_order_that_is_published_again_is_booked_once() {
        let service = testing::engine().sqs(Key::pointer("/order_id"), book).envelope(Sns);
        let order = serde_json::json!({ "order_id": "7" });
        let [first, again, raw] = [(); 3].map(|()| testing::record(&order));
        let batch = sqs::batch([sns::in_sqs(&first), sns::in_sqs(&again), sns::in_sqs_raw(&raw)]);
        testing::deliver_twice(&service, &batch).await.assert_once();
    }
}

#[rustfmt::skip]
mod events {
    use lambda_once::testing::{self, dynamodb, kafka, sqs};
    use lambda_once::testing::Redeliver;

    #[test]
    fn events_are_built() {
        let order = serde_json::json!({ "order_id": "7", "total_cents": 995 });
        let fifo = sqs::fifo([
            testing::record(&order)
                .id("m-7")
                .attribute("MessageGroupId", "customer 1")
                .attribute("ApproximateReceiveCount", 3)
                .header("tenant", "a"),
            testing::bytes("not JSON").attribute("MessageGroupId", "customer 2"),
        ]);
        let changes = dynamodb::batch(["order_id"], [dynamodb::insert(&order), dynamodb::expire(&order)]);
        let topic = kafka::batch([
            testing::record(&order).attribute("key", "7").attribute("partition", 1),
            kafka::tombstone().attribute("key", "6"),
        ]);
        let _ = (fifo.delivery(1), changes.delivery(1), topic.delivery(1));
    }
}

#[rustfmt::skip]
mod handler_alone {
    use lambda_once::{Failure, RecordContext, batch::RecordInfo, testing};

    async fn book(order_id: &str, context: RecordContext) -> Result<String, Failure> {
        Ok(if context.took_over() { format!("looked up {order_id}") } else { format!("booked {order_id}") })
    }

    #[tokio::test]
    async fn after_a_crash_the_order_is_looked_up() {
        let context = testing::record_context(RecordInfo::new("m-7").with_header("tenant", "a"));
        assert_eq!(book("7", context.clone()).await.unwrap(), "booked 7");
        let context = context.with_claim(testing::claim("7").with_takeover());
        assert_eq!(book("7", context).await.unwrap(), "looked up 7");
    }
}

#[rustfmt::skip]
mod time {
    use std::time::Duration;
    use lambda_once::{Failure, Key, OutcomeKind, testing::{self, TIME_LEFT, sqs}};

    #[tokio::test(start_paused = true)]
    async fn an_order_without_an_outcome_is_taken_over_after_its_lease() {
        let once = testing::engine().named("orders"); // two services with one name share their records
        let lose = once.sqs(Key::message_id(), |_: u32| async { Err::<(), _>(Failure::unknown("no response")) });
        let book = once.sqs(Key::message_id(), |_: u32| async { Ok::<_, Failure>(()) });
        let batch = sqs::batch([testing::record(&7)]);

        testing::deliver(&lose, &batch).await;
        assert_eq!(testing::deliver(&book, &batch).await.outcomes(), [Ok(OutcomeKind::InProgress)]);

        tokio::time::advance(TIME_LEFT + Duration::from_secs(3)).await; // the lease ends after 61 s; the margin is 1 s
        assert_eq!(testing::deliver(&book, &batch).await.outcomes(), [Ok(OutcomeKind::TookOver)]);
    }
}

#[rustfmt::skip]
mod requests {
    use lambda_http::{Body, Request, Response, http, service_fn};
    use lambda_once::{http::{IdempotencyKeyLayer, Caller}, testing};
    use tower::{Layer, ServiceExt};

    #[tokio::test]
    async fn a_repeated_request_gets_the_first_response() {
        let charge = service_fn(|_: Request| async { Ok::<_, lambda_http::Error>(Response::new(Body::from("charged"))) });
        let service = IdempotencyKeyLayer::new(testing::engine(), Caller::authorizer().or_anonymous()).layer(charge);
        for replayed in [false, true] {
            let request = http::Request::post("/charges").header("idempotency-key", "k-1").body(Body::Empty).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            assert_eq!(response.headers().contains_key("idempotency-replayed"), replayed);
        }
    }
}

#[rustfmt::skip]
mod invocations {
    use std::sync::atomic::{AtomicU32, Ordering};
    use lambda_once::{Key, invocation::InvocationLayer, testing};
    use lambda_runtime::{LambdaEvent, service_fn};
    use tower::{Layer, ServiceExt};

    #[tokio::test]
    async fn a_repeated_event_gets_the_first_result() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let book = service_fn(|_: LambdaEvent<serde_json::Value>| async {
            Ok::<_, lambda_runtime::Error>(RUNS.fetch_add(1, Ordering::Relaxed))
        });
        let service = InvocationLayer::new(testing::engine(), Key::pointer("/order_id")).layer(book);
        for _ in 0..2 {
            let event = testing::event(&serde_json::json!({ "order_id": "7" }));
            assert_eq!(service.clone().oneshot(event).await.unwrap(), 0);
        }
    }
}
