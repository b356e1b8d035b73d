//! Lines of the embedded metric format, with any names, against AWS's schema and limits.

use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use lambda_once::{Failure, telemetry::Emf, testing};
use lambda_once_fuzz::{
    input::Input,
    oracle::emf::{SCHEMA, problems},
    target,
};
use serde_json::Value;

use crate::run;

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap());

target!(
    /// Operations of any name, in a function of any name.
    names,
    |bytes| {
        let mut input = Input::new(bytes);
        let (namespace, function) = (name(&mut input), name(&mut input));
        let operations: Vec<String> = (0..1 + input.below(3)).map(|_| name(&mut input)).collect();
        let written = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&written);
        let emf = Emf::new(namespace).function(function).writer(move |line| lines.lock().unwrap().push(line.to_owned()));
        run(async {
            let once = testing::builder(testing::store()).observer(emf).build().unwrap();
            for name in &operations {
                let fails = input.one_in(3);
                let handler = || async move { if fails { Err(Failure::permanent("no")) } else { Ok(1) } };
                drop(once.operation(name, "key").run(handler).await);
            }
        });
        let lines = written.lock().unwrap();
        assert_eq!(lines.len(), operations.len(), "one line for each operation");
        for text in lines.iter() {
            let line: Value = serde_json::from_str(text).unwrap();
            let of_schema: Vec<_> = VALIDATOR.iter_errors(&line).map(|problem| problem.to_string()).collect();
            assert!(of_schema.is_empty(), "{of_schema:?} in {text}");
            let beyond = problems(text, &line);
            assert!(beyond.is_empty(), "{beyond:?} in {text}");
        }
        format!("{}", operations.len())
    }
);

/// Draws a name, in rare cases an over-long one.
fn name(input: &mut Input<'_>) -> String {
    let text = input.text(12);
    if input.one_in(6) { text.repeat(1 + input.below(400)) } else { text }
}
