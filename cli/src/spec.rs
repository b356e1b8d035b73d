//! Addresses of stores.

use std::fmt;

use anyhow::{Result, bail, ensure};

/// A store, as `--store`, the file of settings or the function's variables name it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    DynamoDb(Table),
    Redis { url: String, is_cluster: bool, has_index: bool },
    Postgres { url: String, schema: Option<String>, table: Option<String>, has_index: bool },
}

/// A table in DynamoDB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// Whether lists read the index.
    pub(crate) has_index: bool,
}

impl Spec {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// Another scheme, or a parameter that is unknown. Errors quote nothing of an address that may contain a password.
    pub(crate) fn parse(address: &str) -> Result<Self> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        match scheme {
            "dynamodb" => table(rest).map(Self::DynamoDb),
            "redis" | "rediss" => {
                let (url, own) = without(address, &["cluster", "index"]);
                Ok(Self::Redis { url, is_cluster: is_true("cluster", &own)?, has_index: is_true("index", &own)? })
            }
            "postgres" | "postgresql" => {
                let (url, own) = without(address, &["schema", "table", "index"]);
                let of = |wanted| own.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
                Ok(Self::Postgres { url, schema: of("schema"), table: of("table"), has_index: is_true("index", &own)? })
            }
            _ => bail!("the address of a store begins with dynamodb://, redis://, rediss:// or postgres://"),
        }
    }
}

fn table(rest: &str) -> Result<Table> {
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    let name = name.trim_end_matches('/');
    ensure!(!name.is_empty() && !name.contains('/'), "the address of a table is dynamodb://TABLE");
    let mut table = Table { name: name.to_owned(), ..Table::default() };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "region" => {
                ensure!(!value.is_empty(), "`region` is a Region, such as eu-central-1");
                table.region = Some(value.to_owned());
            }
            // Any other value would make the client panic.
            "endpoint" => {
                let is_url = ["http://", "https://"]
                    .iter()
                    .any(|scheme| value.len() > scheme.len() && value.starts_with(scheme));
                ensure!(is_url, "`endpoint` is a URL with http:// or https://");
                table.endpoint = Some(value.to_owned());
            }
            "index" => table.has_index = is_true("index", &[(name.to_owned(), value.to_owned())])?,
            _ => bail!("dynamodb:// has the parameters `region`, `endpoint` and `index`, not `{name}`"),
        }
    }
    Ok(table)
}

type Parameter = (String, String);

/// The address without the parameters of these names, and those.
fn without(address: &str, names: &[&str]) -> (String, Vec<Parameter>) {
    let Some((base, query)) = address.split_once('?') else { return (address.to_owned(), Vec::new()) };
    let (mut others, mut own) = (Vec::new(), Vec::new());
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some((name, value)) if names.contains(&name) => own.push((name.to_owned(), value.to_owned())),
            _ => others.push(parameter),
        }
    }
    let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    (url, own)
}

/// Returns the value of a flag, which is `false` if the parameters do not contain it.
fn is_true(name: &str, parameters: &[Parameter]) -> Result<bool> {
    match parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()) {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => bail!("`{name}` is true or false"),
    }
}

/// The address without its user, password and parameters, for audit lines.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DynamoDb(table) => {
                write!(f, "dynamodb://{}", table.name)?;
                table.region.as_ref().map_or(Ok(()), |region| write!(f, "?region={region}"))
            }
            Self::Redis { url, .. } | Self::Postgres { url, .. } => f.write_str(&place(url)),
        }
    }
}

/// Shows no password.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // The last @ ends the password, which may contain others, or it is in a parameter.
    let host = match rest.rsplit_once('@') {
        Some((before, _)) if before.contains('?') => "…",
        Some((_, host)) => host,
        None => rest,
    };
    let host = host.split('?').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_region_an_endpoint_and_an_index() {
        let spec =
            Spec::parse("dynamodb://orders?region=eu-central-1&endpoint=http://127.0.0.1:8000&index=true").unwrap();
        let expected = Table {
            name: "orders".into(),
            region: Some("eu-central-1".into()),
            endpoint: Some("http://127.0.0.1:8000".into()),
            has_index: true,
        };
        assert_eq!(spec, Spec::DynamoDb(expected));
        assert_eq!(spec.to_string(), "dynamodb://orders?region=eu-central-1");
        assert_eq!(
            Spec::parse("dynamodb://t").unwrap(),
            Spec::DynamoDb(Table { name: "t".into(), ..Table::default() })
        );
    }

    #[test]
    fn parameters_of_the_tool_are_not_passed_to_the_client() {
        let redis = Spec::parse("rediss://h:6379?cluster=true").unwrap();
        assert_eq!(redis, Spec::Redis { url: "rediss://h:6379".into(), is_cluster: true, has_index: false });
        let redis = Spec::parse("redis://h:6379/2?index=true&protocol=resp3").unwrap();
        let url = "redis://h:6379/2?protocol=resp3".into();
        assert_eq!(redis, Spec::Redis { url, is_cluster: false, has_index: true });
        let postgres =
            Spec::parse("postgres://u@h/d?sslmode=require&schema=s&table=t&index=true&connect_timeout=5").unwrap();
        let url = "postgres://u@h/d?sslmode=require&connect_timeout=5".into();
        let (schema, table) = (Some("s".into()), Some("t".into()));
        assert_eq!(postgres, Spec::Postgres { url, schema, table, has_index: true });
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (address, shown) in [
            ("redis://user:secret@h:6379/1", "redis://h:6379/1"),
            ("postgres://u:se/cret@h:5432/d?password=secret", "postgres://h:5432/d"),
            ("postgres://u:se?cret@h/d", "postgres://…"),
            ("postgres://h/d?password=se@cret", "postgres://…"),
            ("redis://u:se@cret@h:6379", "redis://h:6379"),
            ("postgres://u:@se?cret@h?table=t", "postgres://…"),
            ("postgres://h/d?sslmode=require", "postgres://h/d"),
        ] {
            let spec = Spec::parse(address).unwrap();
            assert_eq!(spec.to_string(), shown);
            assert_eq!(format!("{spec:?}"), shown);
        }
    }

    #[test]
    fn other_addresses_are_refused_without_being_quoted() {
        for bad in [
            "",
            "orders",
            "mysql://u:secret@h",
            "dynamodb://",
            "dynamodb://a/b",
            "dynamodb://t?index=secret",
            "redis://h?index=secret",
            "postgres://h/d?index=secret",
            "dynamodb://t?x=secret",
            "dynamodb://t?endpoint=",
            "dynamodb://t?endpoint=secret",
            "dynamodb://t?region=",
        ] {
            let error = Spec::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{bad}: {error}");
        }
    }
}
