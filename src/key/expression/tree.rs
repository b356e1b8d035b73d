//! Converts canonical JSON to the tree that expressions are applied to, and back.
//!
//! The tree's numbers are `serde_json`'s: 64-bit integers, or floats beyond that. Each number that is replaced
//! by such a float is remembered by the address of its node, and written back with its original digits. Expressions
//! pass nodes on without copying them.
//!
//! Any crate of the build may turn on `serde_json/arbitrary_precision`, which changes how `serde_json` reads numbers. Keys
//! must not depend on that, so numbers are read here.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use jmespath::{Rcvar, Variable};
use serde_json::Number;

use crate::key::{
    NUMBER,
    text::{elements, has_surrogates, members, text, write_string},
};

/// The limit from which not every integer has a separate float.
const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;

/// The digits of numbers, by the addresses of their nodes. It owns the nodes too, so that their addresses are not
/// reused.
type Digits = HashMap<*const Variable, (Rcvar, Box<str>)>;

thread_local! {
    /// The digits for the current expression, whose functions have no other access to them.
    static DIGITS: RefCell<Digits> = RefCell::default();

    /// Whether a tree of the current expression has a replacement for an unpaired surrogate.
    static HAS_REPLACED: Cell<bool> = const { Cell::new(false) };
}

/// The reason why a value has no canonical form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Problem {
    Inexact,
    NotAValue,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inexact => "a computed number of 2^53 or more is not exact",
            Self::NotAValue => "an expression is not a value",
        })
    }
}

/// Builds a tree of canonical JSON and applies an expression to it.
pub(super) fn within<T>(json: &[u8], apply: impl FnOnce(&Rcvar) -> T) -> T {
    let applied = apply(&build(json));
    DIGITS.take();
    HAS_REPLACED.set(false);
    applied
}

/// Returns whether a tree that the current expression was applied to, or that its functions have built, has a
/// replacement for an unpaired surrogate.
pub(super) fn has_replaced() -> bool {
    HAS_REPLACED.get()
}

/// Builds the tree of a value in canonical JSON.
pub(super) fn build(json: &[u8]) -> Rcvar {
    if has_surrogates(json) {
        HAS_REPLACED.set(true);
    }
    node(json)
}

fn node(json: &[u8]) -> Rcvar {
    Arc::new(match json.first() {
        Some(b'n') | None => Variable::Null,
        Some(b't') => Variable::Bool(true),
        Some(b'f') => Variable::Bool(false),
        Some(b'"') => Variable::String(text(json)),
        Some(b'[') => Variable::Array(elements(json).map(node).collect()),
        Some(b'{') => Variable::Object(members(json).map(|(name, value)| (text(name), node(value))).collect()),
        Some(_) => return number(&String::from_utf8_lossy(json)),
    })
}

fn number(digits: &str) -> Rcvar {
    if let Some(integer) = integer(digits) {
        return Arc::new(Variable::Number(integer));
    }
    let node = Arc::new(float(digits).map_or(Variable::Null, Variable::Number));
    DIGITS.with_borrow_mut(|all| all.insert(Arc::as_ptr(&node), (Arc::clone(&node), digits.into())));
    node
}

/// Returns a number that is written as an integer of 64 bits. A negative zero is a float.
fn integer(digits: &str) -> Option<Number> {
    let signed = || digits.parse::<i64>().ok().filter(|integer| *integer != 0);
    digits.parse::<u64>().map(Number::from).ok().or_else(|| signed().map(Number::from))
}

/// Returns the nearest float, which is the largest or the smallest for a number beyond all.
fn float(digits: &str) -> Option<Number> {
    let float: f64 = digits.parse().ok()?;
    Number::from_f64(float.clamp(f64::MIN, f64::MAX))
}

/// Returns the value of a literal. With `serde_json/arbitrary_precision` the parser of expressions reads each number as an
/// object with this member.
pub(super) fn literal(value: &Rcvar) -> Rcvar {
    match &**value {
        Variable::Array(elements) => Arc::new(Variable::Array(elements.iter().map(literal).collect())),
        Variable::Object(members) => {
            let digits = members.get(NUMBER).filter(|_| members.len() == 1).and_then(|digits| digits.as_string());
            if let Some(number) = digits.and_then(|digits| integer(digits).or_else(|| float(digits))) {
                return Arc::new(Variable::Number(number));
            }
            let members = members.iter().map(|(name, value)| (name.clone(), literal(value)));
            Arc::new(Variable::Object(members.collect()))
        }
        _ => Arc::clone(value),
    }
}

/// Writes a tree in canonical JSON.
pub(super) fn write(out: &mut Vec<u8>, value: &Rcvar) -> Result<(), Problem> {
    match &**value {
        Variable::Null => out.extend_from_slice(b"null"),
        Variable::Bool(true) => out.extend_from_slice(b"true"),
        Variable::Bool(false) => out.extend_from_slice(b"false"),
        Variable::String(string) => write_string(out, string),
        Variable::Number(number) => return write_number(out, value, number),
        Variable::Array(elements) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(out, element)?;
            }
            out.push(b']');
        }
        Variable::Object(members) => {
            out.push(b'{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                write(out, member)?;
            }
            out.push(b'}');
        }
        Variable::Expref(_) => return Err(Problem::NotAValue),
    }
    Ok(())
}

fn write_number(out: &mut Vec<u8>, node: &Rcvar, number: &Number) -> Result<(), Problem> {
    DIGITS.with_borrow(|all| {
        match all.get(&Arc::as_ptr(node)) {
            Some((_, digits)) => out.extend_from_slice(digits.as_bytes()),
            None if number.is_f64() && number.as_f64().is_some_and(|float| float.abs() >= FIRST_INEXACT) => {
                return Err(Problem::Inexact);
            }
            None => out.extend_from_slice(number.to_string().as_bytes()),
        }
        Ok(())
    })
}

#[cfg(test)]
pub(super) fn remembered() -> usize {
    DIGITS.with_borrow(HashMap::len)
}
