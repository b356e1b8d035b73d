//! The functions of expressions, from the JMESPath specification and AWS Powertools.

use std::sync::{Arc, LazyLock};

use jmespath::{
    Context, ErrorReason, JmespathError, Rcvar, Runtime, Variable,
    functions::{ArgumentType, CustomFunction, Signature},
};

use super::{encoded, tree};
use crate::key::canonical::canonical;

type Answer = Result<Rcvar, JmespathError>;

pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut runtime = Runtime::new();
    runtime.register_builtin_functions();
    // The built-in versions would convert numbers beyond 64 bits to floats.
    runtime.register_function("to_string", one(ArgumentType::Any, to_string));
    runtime.register_function("to_number", one(ArgumentType::Any, to_number));
    let text = ArgumentType::Union(vec![ArgumentType::String, ArgumentType::Null]);
    runtime.register_function("powertools_json", one(text.clone(), powertools_json));
    runtime.register_function("powertools_base64", one(text.clone(), powertools_base64));
    runtime.register_function("powertools_base64_gzip", one(text, powertools_base64_gzip));
    runtime
});

/// Creates a function of one argument.
fn one(argument: ArgumentType, function: fn(&Rcvar, &Context<'_>) -> Answer) -> Box<CustomFunction> {
    let signature = Signature::new(vec![argument], None);
    Box::new(CustomFunction::new(signature, Box::new(move |args, context| function(&args[0], context))))
}

/// Returns a string unchanged, and any other value as JSON.
fn to_string(value: &Rcvar, context: &Context<'_>) -> Answer {
    if value.is_string() {
        return Ok(Arc::clone(value));
    }
    let mut json = Vec::new();
    tree::write(&mut json, value).map_err(|problem| fails(context, "to_string", problem))?;
    Ok(Arc::new(Variable::String(String::from_utf8_lossy(&json).into_owned())))
}

/// Returns the number that a text represents, or `null`.
fn to_number(value: &Rcvar, _: &Context<'_>) -> Answer {
    let number = match &**value {
        Variable::Number(_) => Some(Arc::clone(value)),
        Variable::String(text) => canonical(text.as_bytes()).ok().map(|json| tree::build(&json)),
        _ => None,
    };
    Ok(number.filter(|found| found.is_number()).unwrap_or_else(|| Arc::new(Variable::Null)))
}

/// Returns the value of a JSON text. Without a text it returns its argument, so that values selected from it are
/// missing and not errors.
fn powertools_json(value: &Rcvar, context: &Context<'_>) -> Answer {
    let Some(text) = value.as_string() else { return Ok(Arc::clone(value)) };
    let json = canonical(text.as_bytes()).map_err(|problem| fails(context, "powertools_json", problem))?;
    Ok(tree::build(&json))
}

/// Decodes a text in Base64. Without a text it returns its argument, like `powertools_json`.
fn powertools_base64(value: &Rcvar, context: &Context<'_>) -> Answer {
    decoded(value, context, "powertools_base64", encoded::base64)
}

/// Decodes a text in Base64 and gzip, such as the data of CloudWatch Logs.
fn powertools_base64_gzip(value: &Rcvar, context: &Context<'_>) -> Answer {
    decoded(value, context, "powertools_base64_gzip", encoded::base64_gzip)
}

fn decoded(
    value: &Rcvar,
    context: &Context<'_>,
    function: &str,
    decode: fn(&str) -> Result<String, encoded::Problem>,
) -> Answer {
    let Some(text) = value.as_string() else { return Ok(Arc::clone(value)) };
    let text = decode(text).map_err(|problem| fails(context, function, problem))?;
    Ok(Arc::new(Variable::String(text)))
}

fn fails(context: &Context<'_>, function: &str, problem: impl std::fmt::Display) -> JmespathError {
    JmespathError::from_ctx(context, ErrorReason::Parse(format!("{function}: {problem}")))
}
