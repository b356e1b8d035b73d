//! JMESPath expressions over canonical JSON.

use std::fmt;

use jmespath::{
    Context, ErrorReason, JmespathError,
    ast::{Ast, KeyValuePair},
    interpret, parse,
};

use crate::error::Error;

mod encoded;
mod functions;
#[cfg(test)]
mod tests;
mod tree;

use functions::RUNTIME;

/// An expression, or the reason why it does not parse.
pub(super) struct Expression {
    text: Box<str>,
    parsed: Result<Ast, String>,
}

impl Expression {
    pub(super) fn new(text: &str) -> Self {
        let parsed = parse(text).map_err(|error| format!("{} at character {}", error.reason, error.offset));
        let parsed = parsed.and_then(|mut ast| prepare(&mut ast).map(|()| ast));
        Self { text: text.into(), parsed }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Reports errors that can be detected before any delivery.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.ast().map(drop)
    }

    fn ast(&self) -> Result<&Ast, Error> {
        self.parsed.as_ref().map_err(|why| Error::config(format!("{self} is not a JMESPath expression: {why}")))
    }

    /// Maps an error. One that is the same for every body is a fault of the expression, not of the delivery.
    fn inapplicable(&self, error: &JmespathError) -> Error {
        use jmespath::RuntimeError::{InvalidSlice, NotEnoughArguments, TooManyArguments, UnknownFunction};
        let message = format!("{self} cannot be applied to the body: {}", error.reason);
        match &error.reason {
            ErrorReason::Runtime(
                InvalidSlice | NotEnoughArguments { .. } | TooManyArguments { .. } | UnknownFunction(_),
            ) => Error::config(message),
            // Custom functions report errors as parser errors.
            ErrorReason::Runtime(_) | ErrorReason::Parse(_) => Error::payload(message),
        }
    }

    /// Applies the expression to canonical JSON, and returns the result in canonical JSON.
    pub(super) fn search(&self, json: &[u8]) -> Result<Vec<u8>, Error> {
        let ast = self.ast()?;
        tree::within(json, |root| {
            let mut context = Context::new(&self.text, &RUNTIME);
            // The reason contains types and positions, and nothing of the body.
            let found = interpret(root, ast, &mut context).map_err(|error| self.inapplicable(&error))?;
            let mut out = Vec::new();
            tree::write(&mut out, &found)
                .map_err(|problem| Error::payload(format!("{self} does not select a key: {problem}")))?;
            // Two different texts would become equal.
            let replaced = char::REPLACEMENT_CHARACTER.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
            if tree::has_replaced() && out.windows(replaced.len()).any(|part| part == replaced) {
                let message = format!("{self} does not select a key: half of a surrogate pair is no character");
                return Err(Error::payload(message));
            }
            Ok(out)
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)
    }
}

/// Reads the numbers in literals as in bodies, and refuses unknown functions, because the parser accepts any name.
fn prepare(ast: &mut Ast) -> Result<(), String> {
    match ast {
        Ast::Literal { value, .. } => *value = tree::literal(value),
        Ast::Function { name, .. } if RUNTIME.get_function(name).is_none() => {
            return Err(format!("there is no function `{name}`"));
        }
        Ast::Function { args: nodes, .. } | Ast::MultiList { elements: nodes, .. } => {
            return nodes.iter_mut().try_for_each(prepare);
        }
        Ast::MultiHash { elements, .. } => {
            return elements.iter_mut().try_for_each(|KeyValuePair { value, .. }| prepare(value));
        }
        Ast::Expref { ast: node, .. }
        | Ast::Flatten { node, .. }
        | Ast::Not { node, .. }
        | Ast::ObjectValues { node, .. } => return prepare(node),
        Ast::Comparison { lhs, rhs, .. }
        | Ast::Condition { predicate: lhs, then: rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. } => {
            prepare(lhs)?;
            return prepare(rhs);
        }
        Ast::Identity { .. } | Ast::Field { .. } | Ast::Index { .. } | Ast::Slice { .. } => {}
    }
    Ok(())
}
