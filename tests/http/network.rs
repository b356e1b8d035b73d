//! A server on a socket, with concurrent clients, slow clients, and clients that disconnect.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, body::Body, routing::post};
use futures_util::{FutureExt, future::join_all};
use http::Response;
use lambda_once::{
    AfterUnknown, Builder, Claim, Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer, InFlight},
    record::Status,
    store::{
        ResultData, Store,
        fault::{Call, Fault, FaultStore},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, mpsc},
};

use crate::{
    server::{Server, SteppedStore, Steps, Watch, created, undated},
    setup::Got,
};

const WATCHED: &str = "x-watched: 1\r\ncontent-length: 2\r\n";

fn layer(engine: Builder) -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(engine.scope("tests").build().unwrap(), Caller::shared())
}

/// A service that counts the runs of its handler, which responds when the test lets it.
struct Charges {
    server: Server,
    runs: Arc<AtomicUsize>,
    may_answer: Arc<Notify>,
}

impl Charges {
    async fn start(layer: IdempotencyKeyLayer, watch: Watch) -> Self {
        let (runs, may_answer) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let (counter, gate) = (Arc::clone(&runs), Arc::clone(&may_answer));
        let handler = move || {
            let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                created(run)
            }
        };
        let app = Router::new().route("/charges", post(handler)).route_layer(layer).layer(watch);
        Self { server: Server::start(app).await, runs, may_answer }
    }

    async fn post(&self) -> Got {
        undated(self.server.post("/charges", "k", "{}").await)
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

fn is_in_progress(got: &Got) -> bool {
    got.status == 409 && got.code() == "in_progress"
}

/// The response without the replay header.
fn unmarked(mut got: Got) -> Got {
    got.headers.remove("idempotency-replayed");
    got
}

// Tests P5, IKH-2.5.2-5, IKH-2.7-3.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_identical_requests_runs_and_the_others_are_in_progress() {
    let charges = Charges::start(layer(Idempotency::builder(MemoryStore::new())), Watch::default()).await;
    let refused = AtomicUsize::new(0);
    let requests = (0..100).map(|_| async {
        let got = charges.post().await;
        // The handler may finish once all other requests have their responses.
        if is_in_progress(&got) && refused.fetch_add(1, Ordering::SeqCst) + 1 == 99 {
            charges.may_answer.notify_one();
        }
        got
    });
    let (refused, answered): (Vec<_>, Vec<_>) = join_all(requests).await.into_iter().partition(is_in_progress);
    assert_eq!((refused.len(), answered.len(), charges.runs()), (99, 1, 1));
    assert_eq!((answered[0].status, &answered[0].body[..]), (201, &b"charge 1\n"[..]));

    let replays = join_all((0..100).map(|_| charges.post())).await;
    assert!(replays.iter().all(Got::is_replay));
    assert!(replays.into_iter().all(|replay| unmarked(replay) == answered[0]));
    assert_eq!(charges.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_identical_requests_get_one_response_or_are_in_progress() {
    let charges = Charges::start(layer(Idempotency::builder(MemoryStore::new())), Watch::default()).await;
    charges.may_answer.notify_one();
    let answers = join_all((0..100).map(|_| charges.post())).await;
    let given: Vec<_> = answers.into_iter().filter(|got| !is_in_progress(got)).collect();
    assert_eq!((given.iter().filter(|got| !got.is_replay()).count(), charges.runs()), (1, 1));
    assert!(given.into_iter().map(unmarked).all(|got| (got.status, &got.body[..]) == (201, b"charge 1\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_100_identical_requests_that_may_wait_get_the_same_response() {
    let watch = Watch::default();
    let layer = layer(Idempotency::builder(MemoryStore::new())).wait_up_to(Duration::from_secs(10));
    let charges = Charges::start(layer, watch.clone()).await;
    let release = async {
        watch.arrived(100).await;
        charges.may_answer.notify_one();
    };
    let (answers, ()) = tokio::join!(join_all((0..100).map(|_| charges.post())), release);
    assert_eq!((answers.iter().filter(|got| got.is_replay()).count(), charges.runs()), (99, 1));
    let mut answers = answers.into_iter().map(unmarked);
    let first = answers.next().unwrap();
    assert_eq!((first.status, &first.body[..]), (201, &b"charge 1\n"[..]));
    assert!(answers.all(|answer| answer == first));
}

/// A service with a step before and after its handler's effect, and around every call to its store.
struct Stepped {
    server: Server,
    steps: Steps,
    watch: Watch,
    in_flight: InFlight,
    /// The numbers of handler starts and of effects.
    begun: Arc<AtomicUsize>,
    effects: Arc<AtomicUsize>,
}

impl Stepped {
    async fn start(
        steps: Steps,
        watch: Watch,
        policy: AfterUnknown,
        set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    ) -> Self {
        let store = SteppedStore(MemoryStore::new(), steps.clone());
        let layer = set_up(layer(Idempotency::builder(store).after_unknown(policy)));
        let (begun, effects) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (handler_begun, handler_effects, handler_steps) = (Arc::clone(&begun), Arc::clone(&effects), steps.clone());
        let handler = move || {
            let (begun, effects) = (Arc::clone(&handler_begun), Arc::clone(&handler_effects));
            let steps = handler_steps.clone();
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                steps.step().await;
                let effect = effects.fetch_add(1, Ordering::SeqCst) + 1;
                steps.step().await;
                created(effect)
            }
        };
        let in_flight = layer.in_flight();
        let app = Router::new().route("/charges", post(handler)).route_layer(layer).layer(watch.clone());
        Self { server: Server::start(app).await, steps, watch, in_flight, begun, effects }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    /// Sends a request whose client disconnects at this step or poll. Returns whether it did, because the response may come
    /// first.
    async fn is_cut(&self) -> bool {
        let mut client = self.server.begin("k", WATCHED, "{}").await;
        let mut answer = [0; 1];
        tokio::select! {
            () = self.steps.reached() => {}
            () = self.watch.reached() => {}
            read = client.read(&mut answer) => {
                assert_eq!(read.unwrap(), 1, "an answer");
                // The step may belong to the next request.
                self.steps.go();
                return false;
            }
        }
        drop(client);
        self.watch.gone().await;
        self.steps.go();
        true
    }

    async fn retry(&self) -> Got {
        self.server.post("/charges", "k", "{}").await
    }
}

fn patient(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.wait_up_to(Duration::from_secs(10))
}

fn within_the_request(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.run_to_completion(false)
}

/// Asserts that the retry of a disconnected client gets the response, and that there was one effect.
async fn assert_retry_gets_response(service: &Stepped, at: usize) {
    let got = service.retry().await;
    assert_eq!((got.status, &got.body[..], service.effects()), (201, &b"charge 1\n"[..], 1), "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_at_any_step_gets_the_response_on_retry() {
    let mut at = 1;
    loop {
        let service = Stepped::start(Steps::stopping_at(at), Watch::default(), AfterUnknown::Rerun, patient).await;
        let is_cut = service.is_cut().await;
        assert_retry_gets_response(&service, at).await;
        assert_eq!(service.begun(), 1, "{at}");
        if !is_cut {
            break;
        }
        at += 1;
    }
    assert_eq!(at, 7, "before and after the claim, the effect, and the completion");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_at_any_poll_gets_the_response_on_retry() {
    for at in 1.. {
        let service = Stepped::start(Steps::default(), Watch::stopping_at(at), AfterUnknown::Rerun, patient).await;
        let is_cut = service.is_cut().await;
        assert_retry_gets_response(&service, at).await;
        if !is_cut {
            assert!(at > 2, "at least the body and the work are awaited");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_leaves_before_its_handler_begins_is_given_up() {
    for at in [1, 2] {
        let service =
            Stepped::start(Steps::stopping_at(at), Watch::default(), AfterUnknown::Refuse, |layer| layer).await;
        assert!(service.is_cut().await, "while the claim is on its way, and while its answer is");
        service.in_flight.drain().await;
        assert_eq!(service.begun(), 0, "{at}");
        // The claim has been released. Otherwise the retry would be refused.
        let got = service.retry().await;
        assert_eq!((got.status, got.is_replay(), service.effects()), (201, false, 1), "{at}");
    }
}

/// Asserts that the retry of a disconnected client runs the handler if it had not started, and does not run it again if it had.
async fn is_not_wedged(service: &Stepped, at: usize) {
    service.in_flight.drain().await;
    let begun = service.begun();
    let got = service.retry().await;
    if begun == 0 {
        assert_eq!((got.status, &got.body[..]), (201, &b"charge 1\n"[..]), "{at}");
    } else {
        assert!(got.is_replay() || got.status == 409, "{at}: {got:?}");
    }
    assert!(service.begun() <= 1 && service.effects() <= 1, "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_refuse_a_drop_at_any_step_wedges_the_key_only_if_the_run_began() {
    let mut before_the_handler = 0;
    for at in 1.. {
        let (steps, watch) = (Steps::stopping_at(at), Watch::default());
        let service = Stepped::start(steps, watch, AfterUnknown::Refuse, within_the_request).await;
        let is_cut = service.is_cut().await;
        before_the_handler += usize::from(service.begun() == 0);
        is_not_wedged(&service, at).await;
        if !is_cut {
            break;
        }
    }
    assert_eq!(before_the_handler, 2, "while the claim is on its way, and while its answer is");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_refuse_a_drop_at_any_poll_wedges_the_key_only_if_the_run_began() {
    for at in 1.. {
        let (steps, watch) = (Steps::default(), Watch::stopping_at(at));
        let service = Stepped::start(steps, watch, AfterUnknown::Refuse, within_the_request).await;
        let is_cut = service.is_cut().await;
        is_not_wedged(&service, at).await;
        if !is_cut {
            assert!(at > 5, "the claim, the handler and the completion are awaited one by one");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_shutdown_work_for_clients_that_have_gone_is_finished_and_recorded() {
    let store = Arc::new(MemoryStore::new());
    let layer = layer(Idempotency::builder(Arc::clone(&store)));
    let in_flight = layer.in_flight();
    let (begun, mut has_begun) = mpsc::channel(1);
    let may_end = Arc::new(Notify::new());
    let gate = Arc::clone(&may_end);
    let handler = move |Extension(claim): Extension<Claim>| async move {
        begun.send(claim.key()).await.unwrap();
        gate.notified().await;
        created(1)
    };
    let watch = Watch::default();
    let app = Router::new().route("/charges", post(handler)).route_layer(layer).layer(watch.clone());
    let server = Server::start(app).await;

    let client = server.begin("k", WATCHED, "{}").await;
    let key = has_begun.recv().await.unwrap();
    drop(client);
    watch.gone().await;
    server.shut_down().await;
    let mut draining = std::pin::pin!(in_flight.drain());
    assert!(draining.as_mut().now_or_never().is_none(), "the handler is not done");
    may_end.notify_one();
    draining.await;
    let record = store.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap();
    assert_eq!((record.status, in_flight.count()), (Status::Completed, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_fails_open_is_finished_when_its_client_has_gone() {
    let store = FaultStore::new(MemoryStore::new(), 1);
    store.always(Call::Claim, Fault::AccessDenied);
    let layer = layer(Idempotency::builder(store)).fail_open();
    let in_flight = layer.in_flight();
    let ((begun, mut has_begun), (ended, mut has_ended)) = (mpsc::channel(1), mpsc::channel(1));
    let may_end = Arc::new(Notify::new());
    let gate = Arc::clone(&may_end);
    let handler = move || async move {
        begun.send(()).await.unwrap();
        gate.notified().await;
        ended.send(()).await.unwrap();
        created(1)
    };
    let watch = Watch::default();
    let app = Router::new().route("/charges", post(handler)).route_layer(layer).layer(watch.clone());
    let server = Server::start(app).await;

    let client = server.begin("k", WATCHED, "{}").await;
    has_begun.recv().await.unwrap();
    drop(client);
    watch.gone().await;
    may_end.notify_one();
    // The handler never ends if it was dropped.
    let ended = tokio::time::timeout(Duration::from_secs(10), has_ended.recv()).await;
    assert_eq!(ended, Ok(Some(())));
    in_flight.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_takes_longer_than_the_lease_to_arrive_is_served() {
    let engine = Idempotency::builder(MemoryStore::new());
    let engine = engine.lease(Duration::from_secs(2)).reserve(Duration::from_millis(500));
    let echo = |body: String| async { Response::new(Body::from(body)) };
    let server = Server::start(Router::new().route("/charges", post(echo)).route_layer(layer(engine))).await;

    let mut client = server.begin("k", "connection: close\r\ntransfer-encoding: chunked\r\n", "").await;
    client.write_all(b"5\r\nfirst\r\n").await.unwrap();
    // This test depends on real time.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    client.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfirstsecond"), "{answer}");
}
