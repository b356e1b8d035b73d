//! No caller ever gets another caller's response, for any request and authentication.

use std::collections::HashMap;

use lambda_once::{Idempotency, MemoryStore, http::Caller, store::cached::CachedStore};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;

use crate::callers::{SHAPES, Shape, Who, answered};

/// Names that might be confused with each other, or with the text that encodes them.
const NAMES: [&str; 7] =
    ["alice", "bob", "anonymous", "\"]", "alice\",\"alice", "https://id.example.com/", "caller alice"];

#[derive(Clone, Debug)]
struct Sent {
    shape: Shape,
    who: &'static str,
    key: &'static str,
    body: &'static str,
}

fn sent() -> impl Strategy<Value = Sent> {
    let request = (select(SHAPES), select(&NAMES[..]), select(vec!["k", "l"]), select(vec!["{}", "[]"]));
    request.prop_map(|(shape, who, key, body)| Sent { shape, who, key, body })
}

/// Sends all requests and checks each response. `identify` is the expected caller.
async fn each_gets_its_own(once: Idempotency, scope: fn() -> Caller, all: Vec<Sent>, identify: fn(&Sent) -> Who) {
    let mut first = HashMap::<(Who, &str), (&str, Value)>::new();
    for sent in &all {
        let who = identify(sent);
        let event = sent.shape.event(sent.who, sent.key, sent.body);
        let (status, body, is_replay) = answered(&once, scope(), &event, format!("{who:?}")).await;
        if who == Who::Unnamed {
            assert_eq!(status, 403, "{sent:?}");
            continue;
        }
        // The same request to a different API of the function is a different request.
        let request = (sent.body, event["requestContext"]["apiId"].clone());
        let executed = first.get(&(who.clone(), sent.key));
        match executed {
            None => assert_eq!((status, is_replay), (200, false), "{sent:?}: a key that this caller has not used"),
            Some(first) if *first == request => assert_eq!((status, is_replay), (200, true), "{sent:?}"),
            Some(_) => assert_eq!(status, 422, "{sent:?}"),
        }
        if status == 200 {
            assert_eq!(body, format!("{who:?}"), "{sent:?}: another caller's response");
            first.insert((who, sent.key), request);
        }
    }
}

fn by_authorizer(sent: &Sent) -> Who {
    sent.shape.principal(sent.who)
}

fn by_api_key(sent: &Sent) -> Who {
    match (sent.shape, sent.shape.principal(sent.who)) {
        (Shape::RestApiKey, _) => Who::Known(sent.who.to_owned()),
        (_, Who::Nobody) => Who::Nobody,
        _ => Who::Unnamed,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    // Tests P27, IKH-5-3.
    #[test]
    fn no_caller_gets_the_response_of_another(all in vec(sent(), 1..40), cached: bool, by_key: bool) {
        let builder = if cached {
            Idempotency::builder(CachedStore::new(MemoryStore::new()))
        } else {
            Idempotency::builder(MemoryStore::new())
        };
        let once = builder.scope("tests").build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            if by_key {
                each_gets_its_own(once, || Caller::api_key().or_anonymous(), all, by_api_key).await;
            } else {
                each_gets_its_own(once, || Caller::authorizer().or_anonymous(), all, by_authorizer).await;
            }
        });
    }
}
