//! CloudWatch's limits for lines of the embedded metric format.
//!
//! The schema that AWS publishes is in `emf-schema.json`. It does not have the limits of the values of dimensions, which
//! are those of [`PutMetricData`](https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html).

use serde_json::Value;

/// The schema of
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>.
pub const SCHEMA: &str = include_str!("emf-schema.json");

/// Returns the errors in the dimensions, the namespace or the size of a line.
pub fn problems(text: &str, line: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 1024 * 1024 || text.contains(['\n', '\r']) {
        problems.push("not one line of at most a mebibyte".to_owned());
    }
    for directive in line["_aws"]["CloudWatchMetrics"].as_array().into_iter().flatten() {
        let namespace = directive["Namespace"].as_str().unwrap_or_default();
        let is_legal = |character: char| character.is_ascii_alphanumeric() || ".-_/#: ".contains(character);
        if !(1..=255).contains(&namespace.len())
            || !namespace.chars().all(is_legal)
            || namespace.trim().is_empty()
            || namespace.starts_with(':')
        {
            problems.push(format!("the namespace {namespace:?}"));
        }
        for name in directive["Dimensions"].as_array().into_iter().flatten().flat_map(|set| set.as_array()).flatten() {
            let name = name.as_str().unwrap_or_default();
            if !(1..=255).contains(&name.len()) || !is_text(name) || name.starts_with(':') {
                problems.push(format!("the dimension's name {name:?}"));
            }
            match line[name].as_str() {
                Some(value) if (1..=1024).contains(&value.len()) && is_text(value) => {}
                value => problems.push(format!("the value {value:?} of the dimension {name:?}")),
            }
        }
        for metric in directive["Metrics"].as_array().into_iter().flatten() {
            let value = &line[metric["Name"].as_str().unwrap_or_default()];
            let is_valid = match value {
                Value::Array(values) => values.len() <= 100 && values.iter().all(Value::is_number),
                value => value.is_number(),
            };
            if !is_valid {
                problems.push(format!("the target of {metric}"));
            }
        }
    }
    problems
}

/// Returns whether a text is ASCII without control characters, and not only white space.
fn is_text(text: &str) -> bool {
    text.chars().all(|character| matches!(character, ' '..='~')) && !text.trim().is_empty()
}
