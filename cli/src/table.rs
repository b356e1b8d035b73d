//! `lambda-once table`, which checks the table in DynamoDB, and prints policies for it.

use anyhow::Result;

use crate::{
    args, doctor,
    output::{self, Ending, Usage},
    policy::policy,
    settings::Settings,
    spec::Spec,
};

pub(crate) async fn run(command: args::Table, settings: &Settings) -> Result<Ending> {
    let store = settings.store()?;
    let Spec::DynamoDb(table) = store else {
        return Err(Usage(format!("{store} is not in DynamoDB")).into());
    };
    match command {
        args::Table::Check => doctor::check_table(table).await,
        args::Table::Policy { role, account, ordered } => {
            output::line(&serde_json::to_string_pretty(&policy(role, table, &account, ordered))?)?;
            Ok(Ending::Done)
        }
    }
}
