//! Settings from the command line, from a file, and from the environment, in this order of precedence.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{args::Options, output::Usage, spec::Spec, time};

const FILE: &str = "lambda-once.toml";
const READ_ONLY_VARIABLE: &str = "LAMBDA_ONCE_READ_ONLY";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The reason if there is none, or more than one.
    store: Result<Spec, String>,
    pub(crate) prefix: Option<String>,
    /// `None` if no source sets it.
    pub(crate) scope: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) margin: Duration,
    pub(crate) is_read_only: bool,
    /// The prefix, the scope and the name that the command line gives.
    given: [Option<String>; 3],
}

/// The file of settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    store: Option<String>,
    prefix: Option<String>,
    scope: Option<String>,
    name: Option<String>,
    margin: Option<String>,
    #[serde(default)]
    read_only: bool,
}

impl Settings {
    /// Collects the settings of this process.
    ///
    /// # Errors
    ///
    /// Returns an error if a file or the address of a store cannot be read.
    pub(crate) fn load(options: Options) -> Result<Self> {
        let file = match &options.config {
            Some(path) => read(path)?,
            None if Path::new(FILE).exists() => read(Path::new(FILE))?,
            None => File::default(),
        };
        Self::merge(options, file, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn merge(options: Options, file: File, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let margin = file.margin.as_deref().map(time::parse_precise).transpose();
        let margin = margin.map_err(|why| anyhow::anyhow!("`margin` in the file of settings: {why}"))?;
        let store = match options.store.or(file.store) {
            Some(address) => Ok(Spec::parse(&address)?),
            None => {
                let variables = "IDEMPOTENCY_TABLE, REDIS_URL or POSTGRES_URL";
                only_store(&variable, &format!("no store: give --store, `store` in {FILE}, or {variables}"))?
            }
        };
        // A guard that does not know a spelling must not fail open.
        let is_set = |value: String| !["0", "false"].contains(&&*value.to_ascii_lowercase());
        let given = [options.prefix.clone(), options.scope.clone(), options.name.clone()];
        Ok(Self {
            given,
            store,
            prefix: options.prefix.or(file.prefix),
            scope: options.scope.or(file.scope).or_else(|| variable("AWS_LAMBDA_FUNCTION_NAME")),
            name: options.name.or(file.name),
            tenant: options.tenant,
            margin: options.margin.or(margin).unwrap_or(Duration::from_secs(1)),
            is_read_only: options.read_only || file.read_only || variable(READ_ONLY_VARIABLE).is_some_and(is_set),
        })
    }

    /// Returns the settings for the records of a function, with the store that its variables name. Its name is the scope, and its
    /// `Idempotency` value has no name. Ids have the default prefix. Only the command line overrides them: the file and the
    /// environment can belong to another function.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Spec::parse`].
    pub(crate) fn of_function(
        mut self,
        name: &str,
        variables: &BTreeMap<String, String>,
        is_store_given: bool,
    ) -> Result<Self> {
        if !is_store_given {
            let named = |name: &str| variables.get(name).cloned();
            self.store = only_store(named, "the function names no store: give --store")?;
        }
        [self.prefix, self.scope, self.name] = self.given.clone();
        self.scope.get_or_insert_with(|| name.to_owned());
        Ok(self)
    }

    /// Returns the store.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none, or more than one.
    pub(crate) fn store(&self) -> Result<&Spec> {
        self.store.as_ref().map_err(|why| Usage(why.clone()).into())
    }

    /// Returns the scope, for the hash of a key.
    ///
    /// # Errors
    ///
    /// Returns an error if no scope is set, because a guess would look up another function's records, or none.
    pub(crate) fn scope(&self) -> Result<&str> {
        self.scope.as_deref().ok_or_else(|| {
            let why = "It is that of the function's `scope(…)`, else the name of the function in Lambda";
            Usage(format!("the hash of a key depends on the scope: give --scope, or `scope` in {FILE}. {why}")).into()
        })
    }

    /// # Errors
    ///
    /// Returns an error if changes are not permitted.
    pub(crate) fn check_changes(&self) -> Result<()> {
        ensure!(
            !self.is_read_only,
            "nothing is changed: --read-only, {READ_ONLY_VARIABLE} or `read_only` in {FILE} is set"
        );
        Ok(())
    }
}

fn read(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    // The error quotes a line, which may contain a password.
    toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {}", path.display(), error.message()))
}

/// Returns the store of a process with these variables, or the reason that there is not exactly one: `missing` if there is none.
fn only_store(variable: impl Fn(&str) -> Option<String>, missing: &str) -> Result<Result<Spec, String>> {
    let mut found = stores(variable)?;
    Ok(match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(missing.to_owned()),
        _ => Err("several of IDEMPOTENCY_TABLE, REDIS_URL and POSTGRES_URL are set: choose one by --store".to_owned()),
    })
}

/// Returns the stores that the variables of a process name.
///
/// # Errors
///
/// Returns the errors of [`Spec::parse`].
pub(crate) fn stores(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Spec>> {
    let table = variable("IDEMPOTENCY_TABLE").map(|table| format!("dynamodb://{table}"));
    let found = [table, variable("REDIS_URL"), variable("POSTGRES_URL")].into_iter().flatten();
    found.filter(|address| !address.is_empty()).map(|address| Spec::parse(&address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(options: Options, file: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        let find =
            |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned());
        Settings::merge(options, toml::from_str(file)?, find)
    }

    #[test]
    fn options_come_before_the_file_and_the_file_before_the_environment() {
        let variables = [("IDEMPOTENCY_TABLE", "from-env"), ("AWS_LAMBDA_FUNCTION_NAME", "function")];
        let settings = merged(Options::default(), "", &variables).unwrap();
        assert_eq!(
            (settings.store().unwrap().to_string(), settings.scope().unwrap()),
            ("dynamodb://from-env".into(), "function")
        );
        let file = "store = 'dynamodb://from-file'\nscope = 'orders'\nprefix = 'p'\nname = 'n'\nmargin = '1500ms'";
        let settings = merged(Options::default(), file, &variables).unwrap();
        assert_eq!(
            (settings.store().unwrap().to_string(), settings.scope().unwrap()),
            ("dynamodb://from-file".into(), "orders")
        );
        assert_eq!(settings.margin, Duration::from_millis(1_500));
        let options = Options { store: Some("redis://h".into()), scope: Some("mine".into()), ..Options::default() };
        let settings = merged(options, file, &variables).unwrap();
        assert_eq!((settings.store().unwrap().to_string(), settings.scope().unwrap()), ("redis://h".into(), "mine"));
        assert_eq!((settings.prefix.as_deref(), settings.name.as_deref()), (Some("p"), Some("n")));
    }

    #[test]
    fn a_missing_or_ambiguous_store_is_an_error() {
        for variables in [&[][..], &[("REDIS_URL", "redis://h"), ("POSTGRES_URL", "postgres://h/d")]] {
            assert!(merged(Options::default(), "", variables).unwrap().store().is_err());
        }
        assert!(merged(Options::default(), "stor = 'x'", &[("REDIS_URL", "redis://h")]).is_err());
    }

    #[test]
    fn a_function_names_its_store_and_its_scope() {
        let of = |options: Options, variable: &str| {
            let is_store_given = options.store.is_some();
            let of_others = [("REDIS_URL", "redis://h"), ("AWS_LAMBDA_FUNCTION_NAME", "g")];
            let file = "store = 'dynamodb://of-file'\nprefix = 'p'\nscope = 's'\nname = 'n'";
            let variables = BTreeMap::from([(variable.to_owned(), "of-function".to_owned())]);
            let settings = merged(options, file, &of_others).unwrap();
            let settings = settings.of_function("f", &variables, is_store_given).unwrap();
            let store = settings.store().map_or_else(|error| error.to_string(), ToString::to_string);
            (store, settings.scope().unwrap().to_owned(), settings.prefix, settings.name)
        };
        let named = of(Options::default(), "IDEMPOTENCY_TABLE");
        assert_eq!(named, ("dynamodb://of-function".into(), "f".into(), None, None));
        let unnamed = of(Options::default(), "TABLE");
        assert_eq!(unnamed, ("the function names no store: give --store".into(), "f".into(), None, None));
        let given = |text: &str| Some(text.to_owned());
        let options = Options {
            store: given("dynamodb://t"),
            prefix: given("q"),
            scope: given("mine"),
            name: given("own"),
            ..Options::default()
        };
        for variable in ["IDEMPOTENCY_TABLE", "TABLE"] {
            let overridden = of(options.clone(), variable);
            assert_eq!(overridden, ("dynamodb://t".into(), "mine".into(), given("q"), given("own")));
        }
    }

    #[test]
    fn a_scope_is_never_guessed() {
        assert!(merged(Options::default(), "", &[("REDIS_URL", "redis://h")]).unwrap().scope().is_err());
    }

    #[test]
    fn each_source_can_refuse_changes() {
        let redis = ("REDIS_URL", "redis://h");
        let option = Options { read_only: true, ..Options::default() };
        assert!(merged(Options::default(), "", &[redis]).unwrap().check_changes().is_ok());
        assert!(merged(option, "", &[redis]).unwrap().check_changes().is_err());
        assert!(merged(Options::default(), "read_only = true", &[redis]).unwrap().check_changes().is_err());
        for (value, is_read_only) in [("1", true), ("TRUE", true), ("yes", true), ("0", false), ("False", false)] {
            let settings = merged(Options::default(), "", &[redis, (READ_ONLY_VARIABLE, value)]).unwrap();
            assert_eq!(settings.check_changes().is_err(), is_read_only, "{value}");
        }
    }
}
