//! A custom source, with news from an importer.

use std::{borrow::Cow, sync::Arc};

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Key, RecordContext,
    batch::{BatchService, Handler, OnFailure, RecordInfo, Source},
    record::Status,
    store::fault::Call,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{Job, World, millis, order, seconds, work};

#[derive(Deserialize)]
struct Issue {
    feed: String,
    articles: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    #[serde(skip)]
    feed: Option<Arc<str>>,
    position: Option<u64>,
    topic: Option<String>,
    tries: u32,
    author: Option<String>,
    text: String,
}

/// Articles, ordered by topic. The response contains the positions of the failed ones.
#[derive(Clone)]
struct News;

#[derive(Debug, Serialize)]
struct Rejected {
    feed: String,
    positions: Vec<Position>,
}

#[derive(Debug, Serialize)]
struct Position {
    at: u64,
}

impl Source for News {
    type Event = Issue;
    type Record = Article;
    type Rest = String;
    type Body = String;
    type Response = Rejected;

    const OPERATION: &'static str = "news";

    fn split(&self, mut issue: Issue) -> Result<(Vec<Article>, String), Error> {
        let feed: Arc<str> = issue.feed.as_str().into();
        for article in &mut issue.articles {
            if article.position.is_none() {
                let message = "an article has no position";
                return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
            }
            article.feed = Some(Arc::clone(&feed));
        }
        Ok((issue.articles, issue.feed))
    }

    fn lane<'a>(&self, article: &'a Article) -> Option<Cow<'a, str>> {
        article.topic.as_deref().map(Cow::Borrowed)
    }

    fn open(&self, article: Article) -> (RecordInfo, String) {
        let position = article.position.unwrap_or_default().to_string();
        let mut info = RecordInfo::within(&*article.feed.unwrap(), position).with_receive_count(article.tries);
        if let Some(author) = article.author {
            info = info.with_header("author", author);
        }
        (info.with_attribute("topic", article.topic.unwrap_or_default()), article.text)
    }

    fn respond(&self, feed: String, failed: &[Arc<RecordInfo>]) -> Result<Rejected, Error> {
        let positions = failed.iter().map(|record| Position { at: record.id().parse().unwrap() }).collect();
        Ok(Rejected { feed, positions })
    }
}

fn issue<'a>(feed: &str, articles: impl IntoIterator<Item = (Option<&'a str>, Value)>) -> Value {
    let article = |(position, (topic, job)): (usize, (Option<&str>, Value))| {
        let text = job.to_string();
        json!({ "position": position, "topic": topic, "tries": 2, "author": "A. N. Author", "text": text })
    };
    json!({ "feed": feed, "articles": articles.into_iter().enumerate().map(article).collect::<Vec<_>>() })
}

fn service(world: &World, key: Key) -> BatchService<News, impl Handler<Job, (Job,)> + use<>, Job, (Job,)> {
    world.once.batch(News, key, |_, text| Ok(serde_json::from_str(text)?), world.handler())
}

#[tokio::test(start_paused = true)]
async fn a_custom_source_keeps_its_order_and_its_own_response_format() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let event = issue(
        "daily",
        [
            (Some("art"), work("art 0", "succeed", 100)),
            (Some("art"), work("art 1", "transient once", 100)),
            (Some("art"), work("art 2", "succeed", 100)),
            (Some("sport"), work("sport 3", "succeed", 100)),
            (None, work("4", "panic", 0)),
            (None, order("5")),
        ],
    );
    let service = service(&world, Key::message_id());
    assert_eq!(world.answer(&service, &event).await, r#"{"feed":"daily","positions":[{"at":1},{"at":2},{"at":4}]}"#);
    assert_eq!(began.elapsed(), millis(200));
    let ran = world.journal.keys();
    assert_eq!(ran.len(), 5, "{ran:?}");
    assert_eq!(world.answer(&service, &event).await, r#"{"feed":"daily","positions":[{"at":4}]}"#);
    assert_eq!(world.journal.keys()[5..], ["art 1", "art 2"]);
    assert_eq!(
        world.status_in("news", &("daily", "4")).await,
        Some(Status::InProgress),
        "nobody knows what a panic left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_behind_the_duplicate_of_an_unordered_one_runs() {
    let world = World::new();
    let service = service(&world, Key::pointer("/order_id"));
    let event = issue("daily", [(None, order("0")), (Some("art"), order("0")), (Some("art"), order("1"))]);
    assert_eq!(world.answer(&service, &event).await, r#"{"feed":"daily","positions":[]}"#);
    assert_eq!(world.journal.keys(), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn its_ids_are_within_its_source() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    for feed in ["daily", "weekly", "daily"] {
        let answer = world.answer(&service, &issue(feed, [(None, order(feed))])).await;
        assert_eq!(answer, format!(r#"{{"feed":"{feed}","positions":[]}}"#));
    }
    assert_eq!(world.journal.keys(), ["daily", "weekly"]);
    for other in [None, Some("weekly".to_owned())] {
        let info = RecordInfo::within("daily", "0").with_source(other);
        assert_eq!(info.source(), Some("daily"), "it keeps its source");
    }
    assert_eq!((world.calls(Call::Claim), world.calls(Call::Settle)), (vec![1; 3], vec![1; 2]));
}

#[tokio::test(start_paused = true)]
async fn its_attributes_and_headers_are_keys_and_reach_handlers() {
    let world = World::new();
    let journal = world.journal.clone();
    let handler = move |job: Job, context: RecordContext| {
        let (topic, author) =
            (context.record().attribute("topic").unwrap(), context.record().header("author").unwrap());
        let (source, id, tries) =
            (context.record().source().unwrap(), context.record().message_id(), context.record().receive_count());
        journal.ran(format!("{} {topic} {author} {source} {id} {tries}", job.order_id));
        async { Ok::<_, lambda_once::Failure>(()) }
    };
    let key = Key::composite([Key::attribute("topic"), Key::header("author")]);
    let service = world.once.batch(News, key, |_, text| Ok(serde_json::from_str(text)?), handler);
    let event = issue("daily", [(Some("art"), order("0")), (Some("art"), order("0")), (Some("sport"), order("0"))]);
    assert_eq!(world.answer(&service, &event).await, r#"{"feed":"daily","positions":[]}"#);
    assert_eq!(world.journal.keys(), ["0 art A. N. Author daily 0 2", "0 sport A. N. Author daily 2 2"]);
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_live_claim_and_has_the_settings_of_every_source() {
    let world = World::new();
    let service = service(&world, Key::message_id()).on_failure(OnFailure::StopBatch).concurrency(1);
    let event = issue("daily", [(Some("art"), work("0", "hang once", 0)), (Some("sport"), order("1"))]);
    let answer = world.invoke(&service, &event, seconds(10)).await.unwrap();
    assert_eq!(answer, r#"{"feed":"daily","positions":[{"at":0},{"at":1}]}"#);
    assert_eq!(world.answer(&service, &event).await, r#"{"feed":"daily","positions":[]}"#);
    assert_eq!(world.record_in("news", &("daily", "0")).await.unwrap().prior_status, Some(Status::InProgress));
}

#[tokio::test(start_paused = true)]
async fn its_own_error_fails_the_invocation_before_anything_is_claimed() {
    let world = World::new();
    let mut event = issue("daily", [(None, order("0")), (None, order("1"))]);
    event["articles"][1]["position"] = Value::Null;
    let message = world.refuse(&service(&world, Key::message_id()), &event).await;
    assert_eq!(message, "receive (event): an article has no position");
}
