//! `doctor` on real servers: a good one, then each fault that can be planted in it.

pub(crate) mod aws;
mod dynamodb;
mod postgres;
mod redis;

use std::process::Command;

use serde_json::Value;

use crate::support::{Ended, ended, server, tool};

/// Runs `doctor` with these arguments.
async fn doctor(arguments: &[&str]) -> Report {
    let mut command = tool();
    command.arg("doctor").args(arguments);
    report(command).await
}

async fn report(mut command: Command) -> Report {
    command.args(["--output", "jsonl"]);
    Report::of(ended(command).await)
}

/// The output of `doctor`.
#[derive(Debug)]
struct Report {
    ended: Ended,
    findings: Vec<Value>,
    not_checked: Vec<String>,
}

impl Report {
    #[track_caller]
    fn of(ended: Ended) -> Self {
        let (findings, not_checked): (Vec<_>, Vec<_>) =
            ended.objects().into_iter().partition(|line| line["kind"] == "finding");
        let expected = if findings.is_empty() { 0 } else { 5 };
        assert_eq!(ended.code, expected, "{ended:#?}");
        let not_checked = not_checked.iter().map(|line| line["what"].as_str().unwrap().to_owned()).collect();
        Self { ended, findings, not_checked }
    }

    fn codes(&self) -> Vec<&str> {
        self.findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
    }

    #[track_caller]
    fn assert(&self, codes: &[&str], not_checked: &[&str]) {
        assert_eq!(self.codes(), codes, "{self:#?}");
        assert_eq!(self.not_checked, not_checked, "{self:#?}");
        assert_eq!(self.ended.errors, "", "{self:#?}");
    }
}

#[tokio::test]
async fn an_unreachable_store_is_an_error() {
    let without_tls = server("REDIS_URL").replace("redis://", "rediss://");
    for store in [
        "redis://127.0.0.1:1",
        &without_tls,
        "postgres://127.0.0.1:1/d",
        &format!("{}?sslmode=require", server("POSTGRES_URL")),
        "dynamodb://t?region=us-east-1&endpoint=http://127.0.0.1:1",
    ] {
        let mut command = tool();
        command.args(["doctor", "--store", store]);
        let failed = ended(command).await.assert_code(1);
        assert!(failed.errors.starts_with("error: "), "{failed:?}");
    }
    let mut command = tool();
    command.args(["doctor", "--store", "mysql://h"]);
    ended(command).await.assert_code(2);
}
