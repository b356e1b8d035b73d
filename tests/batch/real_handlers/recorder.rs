//! A store that notes what reaches it, in one list with what the handlers do.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    Error, MemoryStore, Store,
    clock::{Clock, Timestamp},
    record::{KeyHash, Record},
    store::{
        Answers, BoxFuture, ClaimRequest, Claimed, Limits, ResultData, SettleRequest, Settled, Settlement, StoreId,
    },
};
use tokio::sync::Notify;

use crate::real_handlers::clock::TokioClock;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call that claims so many keys was sent.
    ClaimsSent(usize),
    /// The key is among those of the last one.
    Claiming(KeyHash),
    /// The store granted a claim.
    Granted(KeyHash),
    /// A handler was polled for the first time.
    Began(KeyHash),
    /// A handler blocked its thread until now.
    Blocked(KeyHash),
    /// A handler returned.
    Returned(KeyHash),
    /// The store recorded an outcome.
    Recorded(KeyHash),
    /// The store freed a key.
    Released(KeyHash),
    /// A call that reads so many keys reached the store.
    ReadSent(usize),
    /// The caller of a read has its answer.
    ReadAnswered,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<(Timestamp, Event)>,
    dies_in: Option<usize>,
    is_dead: bool,
    settles: usize,
}

/// The list, and whether the sandbox is dead: from then on nothing reaches the store.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    clock: TokioClock,
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
}

impl Events {
    pub(crate) fn new(clock: TokioClock) -> Self {
        Self { clock, state: Arc::default(), died: Arc::default() }
    }

    pub(crate) fn note(&self, event: Event) {
        self.state.lock().unwrap().events.push((self.clock.now(), event));
    }

    /// What happened so far, and when.
    pub(crate) fn timed(&self) -> Vec<(Timestamp, Event)> {
        self.state.lock().unwrap().events.clone()
    }

    /// What happened so far.
    pub(crate) fn all(&self) -> Vec<Event> {
        self.timed().into_iter().map(|(_, event)| event).collect()
    }

    /// When handlers began.
    pub(crate) fn beginnings(&self) -> Vec<Timestamp> {
        let began = |(at, event)| matches!(event, Event::Began(_)).then_some(at);
        self.timed().into_iter().filter_map(began).collect()
    }

    /// How many settle calls reached the store.
    pub(crate) fn settle_calls(&self) -> usize {
        self.state.lock().unwrap().settles
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    /// The sandbox will die in the middle of this run, counted from 0 over all invocations.
    pub(crate) fn die_in(&self, run: usize) {
        self.state.lock().unwrap().dies_in = Some(run);
    }

    /// A run has come to its middle; if it is the one to die in, the sandbox dies.
    pub(crate) fn middle_of_a_run(&self) {
        let begun = self.beginnings().len();
        let mut state = self.state.lock().unwrap();
        if state.dies_in.is_some_and(|run| run + 1 == begun) {
            state.is_dead = true;
            self.died.notify_one();
        }
    }

    /// Completes when the sandbox has died.
    pub(crate) async fn died(&self) {
        self.died.notified().await;
    }

    /// Another sandbox takes the place of the dead one.
    pub(crate) fn revive(&self) {
        let mut state = self.state.lock().unwrap();
        (state.dies_in, state.is_dead) = (None, false);
    }

    /// For each handler as it began: how many had returned before it whose outcomes the store had not recorded.
    pub(crate) fn unrecorded_at_each_beginning(&self) -> Vec<usize> {
        let mut unrecorded = 0;
        let mut lost = Vec::new();
        for event in self.all() {
            match event {
                Event::Returned(_) => unrecorded += 1,
                Event::Recorded(_) => unrecorded -= 1,
                Event::Began(_) => lost.push(unrecorded),
                _ => {}
            }
        }
        lost
    }

    /// The most claims that stood at one time without their handlers having begun. Those sent before `from` events had
    /// happened do not count.
    pub(crate) fn most_unbegun_since(&self, from: usize) -> usize {
        let (mut sent, mut unbegun, mut most) = (Vec::new(), Vec::new(), 0);
        for event in self.all().into_iter().skip(from) {
            match event {
                Event::Claiming(key) => sent.push(key),
                Event::Granted(key) if sent.contains(&key) => unbegun.push(key),
                Event::Began(key) | Event::Released(key) => unbegun.retain(|other| *other != key),
                _ => {}
            }
            most = unbegun.len().max(most);
        }
        most
    }

    /// How many keys each claim call had, of those sent after `from` events had happened.
    pub(crate) fn claim_calls_since(&self, from: usize) -> Vec<usize> {
        let sent = |event| if let Event::ClaimsSent(keys) = event { Some(keys) } else { None };
        self.all().into_iter().skip(from).filter_map(sent).collect()
    }
}

/// How long the store's answers take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    pub(crate) claim: Duration,
    pub(crate) settle: Duration,
    pub(crate) read: Duration,
}

/// The store. A request is sent by the first poll of its call, as over a connection that is open, and applied by a task of
/// its own: without a turn of the runtime it does not arrive. Its answer is on the way for as long as the latency says.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    inner: MemoryStore,
    events: Events,
    batch: usize,
    latency: Latency,
}

impl Recorder {
    pub(crate) fn new(inner: MemoryStore, events: Events, batch: usize, latency: Latency) -> Self {
        Self { inner, events, batch, latency }
    }

    /// Has the request applied, if the sandbox lives.
    async fn send<A, F>(&self, latency: Duration, apply: F) -> A
    where
        A: Send + 'static,
        F: Future<Output = A> + Send + 'static,
    {
        let answer = if self.events.is_dead() { None } else { tokio::spawn(apply).await.ok() };
        if answer.is_none() || self.events.is_dead() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(latency).await;
        answer.unwrap()
    }
}

impl Store for Recorder {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let (inner, events, requests) = (self.inner.clone(), self.events.clone(), requests.to_vec());
        Box::pin(async move {
            self.events.note(Event::ClaimsSent(requests.len()));
            requests.iter().for_each(|request| self.events.note(Event::Claiming(request.key)));
            let applied = async move {
                let answers = inner.claim(&requests).await;
                for (request, answer) in requests.iter().zip(&answers) {
                    if let Ok(Claimed::Granted(_)) = answer {
                        events.note(Event::Granted(request.key));
                    }
                }
                answers
            };
            self.send(self.latency.claim, applied).await
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        let (inner, events, requests) = (self.inner.clone(), self.events.clone(), requests.to_vec());
        Box::pin(self.send(self.latency.settle, async move {
            events.state.lock().unwrap().settles += 1;
            let answers = inner.settle(&requests).await;
            for request in requests {
                match request.settlement {
                    Settlement::Complete { .. } | Settlement::Fail { .. } => events.note(Event::Recorded(request.key)),
                    Settlement::Release { .. } => events.note(Event::Released(request.key)),
                    Settlement::Renew { .. } => {}
                }
            }
            answers
        }))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], result_data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        let (inner, events, keys) = (self.inner.clone(), self.events.clone(), keys.to_vec());
        Box::pin(async move {
            let answer = self.send(self.latency.read, async move {
                events.note(Event::ReadSent(keys.len()));
                inner.read(&keys, result_data).await
            });
            let answer = answer.await;
            self.events.note(Event::ReadAnswered);
            answer
        })
    }

    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: self.batch, orders: false }
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm()
    }
}
