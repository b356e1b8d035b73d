//! Formats numbers as Python and ECMAScript do: the shortest digits that parse to the same double, in each language's
//! layout.

/// The shortest digits of a non-negative finite double, and the number of digits before the point.
struct Shortest {
    digits: String,
    point: i32,
}

impl Shortest {
    /// Computes the digits with `serde_json`. Of two texts that are equally short and near, it uses the one with an
    /// even last digit, like Python and ECMAScript. `std` uses the greater one.
    fn of(value: f64) -> Self {
        let text = serde_json::Number::from_f64(value).map_or_else(String::new, |number| number.to_string());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_start_matches('0');
        let leading = all.len() - significant.len();
        let digits = match significant.trim_end_matches('0') {
            // Zero also has one digit.
            "" => "0",
            digits => digits,
        };
        let point = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(leading).unwrap_or(0);
        let point = if significant.is_empty() { 1 } else { point };
        Self { digits: digits.to_owned(), point: point + exponent.parse::<i32>().unwrap_or(0) }
    }

    /// Formats the number without an exponent. An integer has no point.
    fn plain(&self) -> String {
        let (digits, length) = (&self.digits, self.digits.len());
        match usize::try_from(self.point) {
            Ok(0) | Err(_) => ["0.", &"0".repeat(usize::try_from(-self.point).unwrap_or(0)), digits].concat(),
            Ok(point) if point >= length => [digits, "0".repeat(point - length).as_str()].concat(),
            Ok(point) => [&digits[..point], ".", &digits[point..]].concat(),
        }
    }

    /// Formats the number with an exponent of at least this many digits.
    fn scientific(&self, exponent_digits: usize) -> String {
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent = self.point - 1;
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{sign}{:0exponent_digits$}", exponent.unsigned_abs())
    }
}

/// Formats a number as Python's `json` does after parsing it: integers are exact, floats as by `repr`.
pub(super) fn python(number: &str) -> String {
    if !number.contains(['.', 'e', 'E']) {
        return if number == "-0" { "0".to_owned() } else { number.to_owned() };
    }
    let value: f64 = number.parse().unwrap_or(f64::NAN);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}Infinity");
    }
    // https://docs.python.org/3/library/stdtypes.html#float.hex, and `float_repr_style` in `sys`: format code `r`.
    let shortest = Shortest::of(value.abs());
    let text = match shortest.point {
        -3..=16 => shortest.plain(),
        _ => return sign.to_owned() + &shortest.scientific(2),
    };
    let end = if text.contains('.') { "" } else { ".0" };
    [sign, &text, end].concat()
}

/// Formats a number as `JSON.stringify` does after `JSON.parse`, in which all numbers are doubles.
///
/// <https://tc39.es/ecma262/#sec-numeric-types-number-tostring>
pub(super) fn typescript(number: &str) -> String {
    let value: f64 = number.parse().unwrap_or(f64::NAN);
    if !value.is_finite() {
        return "null".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let shortest = Shortest::of(value.abs());
    let text = match shortest.point {
        -5..=21 => shortest.plain(),
        _ => shortest.scientific(1),
    };
    if value < 0.0 { format!("-{text}") } else { text }
}
