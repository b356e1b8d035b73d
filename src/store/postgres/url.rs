//! Options of a database's URL that libpq and other drivers accept and this client does not.

use crate::error::Error;

/// A URL in the client's form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) text: String,
    /// The file of root certificates that the URL names.
    pub(super) root_certificates: Option<String>,
}

/// Options without an effect here, because statements are unnamed and TLS always sends the server's name.
const IGNORED: [(&str, &[&str]); 4] = [
    ("pgbouncer", &["true", "false"]),
    ("gssencmode", &["disable", "prefer"]),
    ("sslsni", &["1"]),
    ("uselibpqcompat", &["true"]),
];

/// Options of other drivers, and the replacement here. Errors quote only names in this list, because an unknown one may
/// be part of a password.
const REFUSED: [(&str, &str); 22] = [
    ("client_encoding", "the client uses UTF-8"),
    ("connection_limit", "use `Config::pool_size`"),
    ("currentSchema", "use `Config::schema`"),
    ("fallback_application_name", "use `application_name`"),
    ("gssencmode", "GSSAPI is not supported"),
    ("keepalives_count", "use `keepalives_retries`"),
    ("passfile", "use `Config::password`"),
    ("pgbouncer", "it takes true or false"),
    ("pool_timeout", "a call waits for a connection for 2 s"),
    ("schema", "use `Config::schema`"),
    ("search_path", "use `Config::schema`"),
    ("service", "write host, user and database into the URL"),
    ("ssl", "use `sslmode`"),
    ("sslaccept", "use `sslmode`"),
    ("sslcert", "client certificates are not supported"),
    ("sslcrl", "lists of revoked certificates are not supported"),
    ("sslidentity", "client certificates are not supported"),
    ("sslkey", "client certificates are not supported"),
    ("sslpassword", "client certificates are not supported"),
    ("sslsni", "TLS always sends the server's name"),
    ("statement_cache_size", "statements are not cached"),
    ("statement_timeout", "use `options=-c%20statement_timeout%3D2s`, or set it on the role"),
];

/// Options that the client accepts, for errors about their values.
const KNOWN: [&str; 15] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "port",
    "sslmode",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// Translates the options that the client does not accept.
///
/// | option | here |
/// |---|---|
/// | `sslmode=verify-full`, `verify-ca` | `require`: the certificate and the server's name are always verified |
/// | `sslmode=allow` | `prefer` |
/// | `sslrootcert=FILE` | the root certificates; `system` means the public ones |
///
/// # Errors
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for an option that only other drivers accept.
pub(super) fn translated(text: &str) -> Result<Url, Error> {
    let Some(options) = Options::of(text) else { return Ok(Url { text: text.to_owned(), root_certificates: None }) };
    let (mut kept, mut root_certificates) = (Vec::new(), None);
    for pair in options.pairs() {
        let Some((name, value)) = pair.split_once('=') else {
            kept.push(pair.to_owned());
            continue;
        };
        match (name, value) {
            ("sslmode", "verify-full" | "verify-ca") => kept.push("sslmode=require".to_owned()),
            ("sslmode", "allow") => kept.push("sslmode=prefer".to_owned()),
            ("sslrootcert", "system") => {}
            ("sslrootcert", file) => root_certificates = Some(decoded(file)),
            _ if IGNORED.iter().any(|(ignored, values)| *ignored == name && values.contains(&value)) => {}
            _ => match REFUSED.iter().find(|(refused, _)| *refused == name) {
                Some((name, instead)) => {
                    return Err(Error::config(format!(
                        "the URL of the database has the option `{name}`, which is not supported: {instead}"
                    )));
                }
                None => kept.push(pair.to_owned()),
            },
        }
    }
    Ok(Url { text: options.with(&kept), root_certificates })
}

/// Returns the error of a URL that the client cannot read. The client's own error may quote a part of the text, and so
/// of the password.
pub(super) fn unreadable(text: &str) -> Error {
    let names = |name: &&&str| Options::of(text).is_some_and(|options| options.has_bad_value(name));
    match KNOWN.iter().find(names) {
        Some(name) => Error::config(format!("the URL of the database has an invalid value of the option `{name}`")),
        None => Error::config(
            "the URL of the database cannot be read: write postgresql://user[:password]@host[:port]/database[?option=value], and \
             percent-encode special characters of the password",
        ),
    }
}

/// The options of a URL, or of a string of keywords and values.
#[derive(Clone, Copy)]
struct Options<'a> {
    head: &'a str,
    pairs: &'a str,
    separator: char,
}

impl<'a> Options<'a> {
    /// Returns `None` if there are none, or if they are quoted or written with spaces around the equals sign.
    fn of(text: &'a str) -> Option<Self> {
        if ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            // As in the client, credentials end at the first `@`, and may contain a question mark.
            let after_credentials = text.find('@').unwrap_or_default();
            let (start, _) = text[after_credentials..].match_indices('?').next()?;
            let start = after_credentials + start + 1;
            return Some(Self { head: &text[..start], pairs: &text[start..], separator: '&' });
        }
        let is_plain = !text.contains(['\'', '\\']) && text.split_whitespace().all(|pair| pair.contains('='));
        is_plain.then_some(Self { head: "", pairs: text, separator: ' ' })
    }

    fn pairs(self) -> impl Iterator<Item = &'a str> {
        self.pairs.split(self.separator).filter(|pair| !pair.is_empty())
    }

    /// Returns the text with other options.
    fn with(self, pairs: &[String]) -> String {
        let separator = self.separator.to_string();
        [self.head, &pairs.join(&separator)].concat()
    }

    /// Returns whether the client itself rejects this option.
    fn has_bad_value(self, name: &str) -> bool {
        let mut values = self.pairs().filter_map(|pair| pair.split_once('=')).filter(|(found, _)| *found == name);
        values.any(|(name, value)| {
            let alone = format!("postgresql://localhost/?{name}={value}");
            alone.parse::<tokio_postgres::Config>().is_err()
        })
    }
}

/// Returns a value without percent-encoding. Invalid encodings are left unchanged.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "postgresql://once:p%3F%40@db.example.com:6432/orders";

    fn text(options: &str) -> String {
        translated(&format!("{BASE}?{options}")).unwrap().text
    }

    #[test]
    fn modes_that_verify_become_require() {
        for mode in ["verify-full", "verify-ca"] {
            assert_eq!(
                text(&format!("sslmode={mode}&connect_timeout=3")),
                format!("{BASE}?sslmode=require&connect_timeout=3")
            );
        }
        assert_eq!(text("sslmode=allow"), format!("{BASE}?sslmode=prefer"));
        let keywords = translated("host=127.0.0.1 user=once sslmode=verify-full").unwrap();
        assert_eq!(keywords.text, "host=127.0.0.1 user=once sslmode=require");
    }

    #[test]
    fn a_file_of_root_certificates_is_taken_out_of_the_url() {
        let url = translated(&format!("{BASE}?sslmode=verify-full&sslrootcert=%2Ftmp%2Frds.pem")).unwrap();
        assert_eq!(url.text, format!("{BASE}?sslmode=require"));
        assert_eq!(url.root_certificates.as_deref(), Some("/tmp/rds.pem"));
        assert_eq!(translated(&format!("{BASE}?sslrootcert=system")).unwrap().root_certificates, None);
    }

    #[test]
    fn options_without_an_effect_are_left_out() {
        let options = "pgbouncer=true&gssencmode=disable&sslmode=require&channel_binding=require";
        assert_eq!(text(options), format!("{BASE}?sslmode=require&channel_binding=require"));
        assert!(text(options).parse::<tokio_postgres::Config>().is_ok());
    }

    #[test]
    fn an_option_of_other_drivers_is_named_with_its_replacement() {
        let error = translated(&format!("{BASE}?connection_limit=2")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "configure (config): the URL of the database has the option `connection_limit`, which is not supported: use \
             `Config::pool_size`"
        );
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_by_its_option() {
        let error = unreadable(&format!("{BASE}?sslmode=secret"));
        assert_eq!(error.message(), "the URL of the database has an invalid value of the option `sslmode`");
    }

    #[test]
    fn nothing_of_a_url_without_encoding_is_quoted() {
        for url in [
            "postgresql://once:pa@ss?hunter2=1@host/db",
            "host=127.0.0.1 password=pass hunter2=1",
            "host=127.0.0.1 password='pass  hunter2=1'",
            "hunter2",
        ] {
            assert_eq!(translated(url).unwrap(), Url { text: url.to_owned(), root_certificates: None });
            assert!(!format!("{:?}", unreadable(url)).contains("hunter2"));
        }
    }
}
