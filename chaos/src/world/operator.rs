//! An operator, who decides about the messages of a dead-letter queue with the project's tool, and moves them back.
//!
//! The operator looks for an effect in the ledger first. An operation with an effect is settled, and any other is released.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::Ordering,
    time::Duration,
};

use tokio::{process::Command, time::sleep};

use super::{Result, State, World, queue::Source, server};
use crate::{
    history::{Amendment, Fact, KeyId},
    report::Fault,
    settings::{MARGIN, StoreKind},
    worker,
};

/// The name of the tool, which is built into the directory of this program.
const TOOL: &str = "lambda-once";
/// The share of dead-lettered messages that the operator handles, in thousandths.
const HANDLED: u32 = 600;
/// The most attempts while the server is down, and the pause between them.
const ATTEMPTS: u32 = 30;
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the path of the tool.
pub(super) fn tool(chosen: Option<&str>) -> Result<PathBuf> {
    let path = match chosen {
        Some(path) => path.into(),
        None => env::current_exe()?.with_file_name(TOOL),
    };
    path.canonicalize().map_err(|error| format!("{}: {error}: build it, or name it by --tool", path.display()).into())
}

/// Returns whether the operator handles this dead-lettered message, which stays open until the decision.
pub(super) fn handles(world: &World, state: &mut State) -> bool {
    !world.options.is_control && state.random.u32(0..1_000) < HANDLED
}

/// Decides about dead-lettered messages until the run is over.
///
/// # Errors
///
/// The tool cannot be run, or rejects its arguments.
pub(super) async fn decide_at_times(world: &World, tool: &Path, url: &str) -> Result<()> {
    while !world.is_over.load(Ordering::SeqCst) {
        sleep(PAUSE).await;
        let Some(key) = world.next_dead_letter() else { continue };
        for _ in 0..ATTEMPTS {
            if decide(world, tool, url, key).await? != Amendment::Unknown {
                break;
            }
            sleep(PAUSE).await;
        }
        world.send(key, Source::Refuse);
        world.lock().open -= 1;
    }
    Ok(())
}

/// Decides about a key.
async fn decide(world: &World, tool: &Path, url: &str, key: KeyId) -> Result<Amendment> {
    let has_effect = {
        let mut state = world.lock();
        let has_effect = state.last_effects.contains_key(&key);
        world.record_in(&mut state, Fact::Amending { key, is_release: !has_effect });
        has_effect
    };
    let words: &[&str] = if has_effect { &["settle", "--no-result"] } else { &["release"] };
    let outcome = run(tool, url, world.options.store, words, key).await?;
    let mut state = world.lock();
    world.record_in(&mut state, Fact::Amended { key, is_release: !has_effect, outcome });
    if outcome == Amendment::Applied {
        state.faults.add(if has_effect { Fault::SettledByTool } else { Fault::ReleasedByTool });
    }
    Ok(outcome)
}

async fn run(tool: &Path, url: &str, store: StoreKind, words: &[&str], key: KeyId) -> Result<Amendment> {
    let address = match store {
        StoreKind::DynamoDb => format!("dynamodb://{}?region={}&endpoint={url}", server::TABLE, server::REGION),
        StoreKind::RedisCluster => format!("redis://{}?cluster=true", server::host_and_port(url)),
        StoreKind::Redis | StoreKind::Postgres => url.to_owned(),
    };
    let margin = format!("{}ms", MARGIN.as_millis());
    let mut command = Command::new(tool);
    command.args(words).args(["--store", &address, "--scope", worker::SCOPE, "--name", Source::Refuse.name()]);
    command.args(["--margin", &margin, "--operation", "sqs", "--key", &key.to_string(), "--yes"]);
    command.env_clear().envs(server::variables(store, url)).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let has_failed = ["failed", "unknown"].iter().any(|outcome| said.contains(&format!("\"outcome\":\"{outcome}\"")));
    match output.status.code() {
        Some(0) => Ok(Amendment::Applied),
        // The store could not be read, or the write failed.
        Some(1) => Ok(Amendment::Unknown),
        Some(4) if has_failed => Ok(Amendment::Unknown),
        // There is no record, a redelivery has the key, or another message of the key has ended it.
        Some(3 | 4) => Ok(Amendment::Refused),
        code => Err(format!("{} ended with {code:?}: {said}", tool.display()).into()),
    }
}
