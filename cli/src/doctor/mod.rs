//! `lambda-once doctor`, which finds misconfigurations. It only reads.
//!
//! [Collectors](collect) describe functions, queues and servers as plain [facts], and [rules] read nothing else.

mod collect;
mod facts;
mod finding;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::iter;

use anyhow::{Result, ensure};

pub(crate) use collect::Account;
pub(crate) use facts::{DeadLetters, Function, Source};
pub(crate) use finding::Severity;
pub(crate) use rules::LISTING_INDEX;

use self::{facts::Stated, finding::Report};
use crate::{
    args::{self, Doctor},
    output::{self, Ending},
    policy,
    settings::{self, Settings},
    spec::{self, Spec},
    store,
};

/// The variable in which the function of docs/dynamodb.md finds its home Region.
const HOME_REGION: &str = "HOME_REGION";
const TABLE: &str = "IDEMPOTENCY_TABLE";
const REDIS_PREFIX: &str = "once:";

/// Checks functions with their queues and stores, or a store alone.
///
/// # Errors
///
/// Returns an error if the functions of a stack, or the store that was given, cannot be read, and after the report if a function
/// could not be read.
pub(crate) async fn run(doctor: Doctor, settings: &Settings, is_store_given: bool) -> Result<Ending> {
    let stated = Stated {
        is_store_given,
        margin: settings.margin,
        retention: doctor.retention,
        redrive_within: doctor.redrive_within,
        lease: doctor.lease,
        reserve: doctor.reserve,
        concurrency: doctor.concurrency,
        p99: doctor.p99,
    };
    let mut report = Report::default();
    let (functions, are_complete) = functions(&doctor, &mut report).await?;
    for function in functions.iter().flat_map(|function| iter::once(function).chain(&function.aliases)) {
        rules::function(function, &stated, &mut report);
        skip_permissions(function, &mut report);
        if !is_store_given {
            check_stores_of(function, settings, &doctor, &mut report).await;
        }
    }
    if is_store_given || !names_functions(&doctor) {
        check_store(settings.store()?, Origin::Given, settings, doctor.home_region.clone(), &mut report).await?;
    }
    let ending = finish(report, doctor.severity, doctor.format.output())?;
    ensure!(are_complete, "not all functions could be read");
    Ok(ending)
}

/// Checks a table alone, without notes.
///
/// # Errors
///
/// Returns an error if the table cannot be read.
pub(crate) async fn check_table(table: &spec::Table) -> Result<Ending> {
    let mut report = Report::default();
    rules::table(&collect::table(table, None).await?, &mut report);
    finish(report, Severity::Warning, args::Output::Human)
}

fn finish(report: Report, least: Severity, form: args::Output) -> Result<Ending> {
    let report = report.finish(least);
    output::text(&report::print(&report, form)?)?;
    Ok(if report.findings.is_empty() { Ending::Done } else { Ending::Findings })
}

fn names_functions(doctor: &Doctor) -> bool {
    !doctor.stacks.is_empty() || !doctor.functions.is_empty()
}

/// Returns the functions that can be read, and whether these are all.
async fn functions(doctor: &Doctor, report: &mut Report) -> Result<(Vec<Function>, bool)> {
    if !names_functions(doctor) {
        return Ok((Vec::new(), true));
    }
    let account = collect::Account::open().await;
    let mut names = doctor.functions.clone();
    for stack in &doctor.stacks {
        names.extend(account.functions_of(stack).await?);
    }
    let count = names.len();
    let mut functions = Vec::with_capacity(count);
    for name in names {
        match account.describe(&name).await {
            Ok(function) => functions.push(function),
            Err(error) => report.skip(&format!("function {name}"), "the function", format!("{error:#}")),
        }
    }
    let are_complete = functions.len() == count;
    Ok((functions, are_complete))
}

/// The permissions of a role follow from all its policies, their conditions, boundaries and the account's policies. AWS evaluates
/// them, and this tool does not.
fn skip_permissions(function: &Function, report: &mut Report) {
    let Some(table) = function.variables.get(TABLE) else { return };
    let place: Vec<_> = function.arn.split(':').collect();
    let arn = match place[..] {
        ["arn", partition, "lambda", region, account, ..] => {
            format!("arn:{partition}:dynamodb:{region}:{account}:table/{table}")
        }
        _ => format!("the ARN of {table}"),
    };
    let actions = policy::FUNCTION.join(" ");
    report.skip(
        &format!("function {}", function.name),
        "the permissions of its role on the table",
        format!(
            "AWS evaluates them: aws iam simulate-principal-policy --policy-source-arn {} --action-names {actions} \
             --resource-arns {arn}",
            function.role
        ),
    );
}

async fn check_stores_of(function: &Function, settings: &Settings, doctor: &Doctor, report: &mut Report) {
    let resource = function.resource();
    let stores = match settings::stores(|name| function.variables.get(name).cloned()) {
        Ok(stores) => stores,
        Err(error) => {
            report.skip(&resource, "its store", format!("{error:#}"));
            return;
        }
    };
    let home_region = doctor.home_region.clone().or_else(|| function.variables.get(HOME_REGION).cloned());
    for store in stores {
        // Its network may not be this one's.
        if let Err(error) = check_store(&store, Origin::Function, settings, home_region.clone(), report).await {
            report.skip(&store.to_string(), "the store", format!("{error:#}"));
        }
    }
}

/// Who named a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The operator, with all parameters.
    Given,
    /// A variable of a function, whose code may set parameters.
    Function,
}

async fn check_store(
    store: &Spec,
    origin: Origin,
    settings: &Settings,
    home_region: Option<String>,
    report: &mut Report,
) -> Result<()> {
    match store {
        Spec::DynamoDb(table) => rules::table(&collect::table(table, home_region).await?, report),
        Spec::Redis { url, is_cluster, has_index } => {
            let prefix = settings.prefix.as_deref().unwrap_or(REDIS_PREFIX);
            // Its settings are checked, and the cryptography of TLS is installed.
            store::redis_store(url, (*is_cluster, *has_index), settings.prefix.clone())?;
            let as_cluster = (origin == Origin::Given).then_some(*is_cluster);
            let found = collect::redis(url, store.to_string(), prefix, *has_index, as_cluster).await?;
            rules::redis(&found, report);
        }
        Spec::Postgres { url, schema, table, has_index } => {
            let built = store::postgres_store(url, (schema.clone(), table.clone()), *has_index, None)?;
            let found = collect::postgres(url, store.to_string(), built.schema(), *has_index).await?;
            rules::postgres(&found, report);
        }
    }
    Ok(())
}
