//! Fuzz targets for an operator's input. See `docs/internals/fuzzing.md`.

use std::{future::ready, time::Duration};

use lambda_once::{Failure, Key, record::KeyHash, testing};
use lambda_once_fuzz::{
    input::Input,
    json::{Json, code_points},
    mutate, target,
};
use serde::de::IgnoredAny;

use crate::{
    args::Options,
    dlq::{message::Message, selector},
    settings::Settings,
    spec::Spec,
    store, time,
};

/// A part of every password, which must never appear in an output.
const SECRET: &str = "S3CR3T";

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// Returns the settings for the records of the functions that `testing` makes.
pub(crate) fn settings() -> Settings {
    let given = |text: &str| Some(text.to_owned());
    Settings::load(Options { store: given("redis://h"), scope: given("testing"), ..Options::default() }).unwrap()
}

/// Returns the key that a function of a queue derives from a message, or `None` if it finds none.
pub(crate) async fn of_function(key: Key, body: &str) -> Option<KeyHash> {
    let service = testing::engine().sqs(key, |_: IgnoredAny| ready(Ok::<_, Failure>(())));
    let batch = testing::sqs::batch([testing::bytes(body).id("m-1")]);
    testing::deliver(&service, &batch).await.records[0].key
}

target!(
    /// The value of `--key` names the record of a function's operation, whatever JSON the key is.
    keys,
    |bytes| {
        let mut input = Input::new(bytes);
        let mut key = String::new();
        Json::draw(&mut input, 2).spell(&mut input, &mut key);
        run(async {
            let Some(hash) = of_function(Key::pointer("/id"), &format!("{{\"id\":{key}}}")).await else {
                return "no key".to_owned();
            };
            let readings = store::readings(&settings(), "sqs", &key).await.unwrap();
            assert!(readings.contains(&hash), "{key:?}");
            format!("{:?}", key.trim().chars().next())
        })
    }
);

/// Draws the pointer to a value within this one.
fn pointer(value: &Json, input: &mut Input<'_>) -> String {
    let (name, value) = match value {
        Json::Object(members) if !members.is_empty() && !input.one_in(6) => {
            let (name, value) = &members[input.below(members.len())];
            let name: String = code_points(name).into_iter().filter_map(char::from_u32).collect();
            (name, value)
        }
        Json::Array(items) if !items.is_empty() && !input.one_in(6) => {
            let at = input.below(items.len());
            (at.to_string(), &items[at])
        }
        _ => return String::new(),
    };
    format!("/{}{}", name.replace('~', "~0").replace('/', "~1"), pointer(value, input))
}

target!(
    /// The tool derives the same key from a dead-lettered message as the function.
    keys_of_messages,
    |bytes| {
        let mut input = Input::new(bytes);
        let value = Json::draw(&mut input, 4);
        let pointer = pointer(&value, &mut input);
        let mut body = String::new();
        value.spell(&mut input, &mut body);
        let message = Message { id: "m-1".to_owned(), body: body.clone(), ..Message::default() };
        let (mut selectors, mut key) = (vec![pointer.parse().unwrap()], Key::pointer(&pointer));
        if input.one_in(4) {
            selectors.push("message-id".parse().unwrap());
            key = Key::composite([key, Key::message_id()]);
        }
        run(async {
            let expected = of_function(key, &body).await;
            let found = match selector::key(&selectors, &message) {
                Ok(key) => store::hash(&settings(), "sqs", &key).await.ok(),
                Err(_) => None,
            };
            // Only a service accepts a key with something empty in it, and only as a whole body (docs/internals/known-limits.md).
            if pointer.is_empty() && value.has_empty() {
                assert!(found.is_none_or(|found| expected == Some(found)), "{body:?}");
                return "whole body".to_owned();
            }
            assert_eq!(found, expected, "{pointer:?} in {body:?}");
            format!("{} {}", found.is_some(), pointer.matches('/').count())
        })
    }
);

target!(
    /// Durations are digits and a unit.
    durations,
    |bytes| {
        let mut input = Input::new(bytes);
        let count = if input.one_in(4) { input.text(4) } else { input.integer().to_string() };
        let signs = ["", "", "", "+", "-", " "];
        let text = format!("{}{count}{}", input.pick(&signs), input.pick(&["s", "m", "h", "d", "ms", "", "w"]));
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let units = [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("ms", 1)];
        let unit = units.into_iter().find(|(unit, _)| *unit == &text[digits.len()..]);
        let (unit, millis) = unit.unwrap_or_default();
        let count = digits.parse::<u64>().ok();
        let seconds = count.filter(|_| millis >= 1_000).and_then(|count| count.checked_mul(millis / 1_000));
        let expected = seconds.map(Duration::from_secs);
        assert_eq!(time::parse(&text).ok(), expected, "{text:?}");
        let precise = expected.or(count.filter(|_| millis == 1).map(Duration::from_millis));
        assert_eq!(time::parse_precise(&text).ok(), precise, "{text:?}");
        format!("{unit} {}", precise.is_some())
    }
);

/// Draws the address of a store whose password contains a secret.
fn address(input: &mut Input<'_>) -> String {
    let secret = format!("{}{SECRET}{}", input.text(3), input.text(3));
    let scheme = *input.pick(&["redis", "rediss", "postgres", "postgresql", "redis+unix", "mysql", ""]);
    let query =
        *input.pick(&["", "?schema=s", "?table=t&x=1", "?cluster=true", "?index=maybe", "?protocol=resp3&index=1"]);
    match input.below(4) {
        0 => format!("{scheme}://h/d?password={secret}&user=u"),
        1 => format!("{scheme}://u:{secret}@h:5432,i:1/d{query}"),
        _ => format!("{scheme}://u:{secret}@h{query}"),
    }
}

target!(
    /// No password is shown, whatever characters it contains.
    addresses,
    |bytes| {
        let address = address(&mut Input::new(bytes));
        let shown = match Spec::parse(&address) {
            Ok(spec) => format!("{spec} {spec:?}"),
            Err(error) => format!("{error:#}"),
        };
        assert!(!shown.contains(SECRET), "{address:?} is shown as {shown:?}");
        shown.split(':').next().unwrap_or_default().to_owned()
    }
);

target!(
    /// The file of settings. No error shows its contents.
    files_of_settings,
    |bytes| {
        let mut input = Input::new(bytes);
        let address = format!("redis://u:{SECRET}@h");
        let mut text = format!("store = '{address}'\nscope = 'orders'\nmargin = '2s'\nread_only = true\n").into_bytes();
        for _ in 0..input.below(4) {
            mutate::bytes(&mut text, &mut input);
        }
        let file = std::env::temp_dir().join(format!("lambda-once-fuzz-{}.toml", std::process::id()));
        std::fs::write(&file, &text).unwrap();
        let settings = Settings::load(Options { config: Some(file.clone()), ..Options::default() });
        std::fs::remove_file(file).unwrap();
        match settings {
            Ok(settings) => settings.is_read_only.to_string(),
            Err(error) => {
                let shown = format!("{error:#}");
                assert!(!shown.contains(SECRET), "{shown}");
                shown.chars().filter(|character| character.is_ascii_lowercase()).take(40).collect()
            }
        }
    }
);
