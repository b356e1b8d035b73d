//! The vectors of the library's unit tests match the current packages.

use serde_json::{Value, json};

use crate::worker::{Language, ask};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/powertools.json")).unwrap()
}

fn assert_hashes(language: Language, name: &str) {
    for vector in vectors()["hashes"].as_array().unwrap() {
        assert_eq!(ask(language, &json!({ "do": "text", "data": vector["json"] })), vector[name], "{vector}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_makes_them() {
    assert_hashes(Language::Python, "python");
    for vector in vectors()["expressions"].as_array().unwrap() {
        let request = json!({ "do": "expression", "expression": vector["expression"], "data": vector["json"] });
        assert_eq!(ask(Language::Python, &request), vector["python"], "{vector}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_makes_them() {
    assert_hashes(Language::TypeScript, "typescript");
}
