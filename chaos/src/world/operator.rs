//! An operator, who decides about the messages of a dead-letter queue with the project's tool, and moves them back.
//!
//! The operator looks up the effect in the ledger first. What took effect is settled, and the rest is released.

use std::{
    env,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{process::Command, time::sleep};

use super::{Result, State, World, queue::Source, server};
use crate::{
    history::{Fact, KeyId},
    report::Fault,
    settings::{MARGIN, StoreKind},
    worker,
};

/// The name of the tool, which is built into the directory of this program.
const TOOL: &str = "lambda-once";
/// Its exit codes: everything is done, or an error such as a store that cannot be reached.
const DONE: i32 = 0;
const FAILED: i32 = 1;
/// Of the dead-lettered messages, those about which the operator decides, in thousandths.
const DECIDED: u32 = 600;
/// The most attempts while the server is down, and the pause between them.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the path of the tool.
pub(super) fn tool(chosen: Option<&str>) -> Result<PathBuf> {
    let path = match chosen {
        Some(path) => path.into(),
        None => env::current_exe()?.with_file_name(TOOL),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("{} is missing: build it, or name it by --tool", path.display()).into())
    }
}

/// Returns whether the operator decides about the next message that is dead-lettered. Until then it is open.
pub(super) fn decides(world: &World, state: &mut State) -> bool {
    !world.options.is_control && state.random.u32(0..1_000) < DECIDED
}

/// Decides about dead-lettered messages until the run is over.
pub(super) async fn decide_at_times(world: Arc<World>, tool: PathBuf, url: String) {
    while !world.is_over.load(Ordering::SeqCst) {
        sleep(PAUSE).await;
        let Some(key) = world.next_dead_letter() else { continue };
        for _ in 0..ATTEMPTS {
            match decide(&world, &tool, &url, key).await {
                Some(DONE) => world.send(key, Source::Refuse),
                Some(FAILED) | None => {
                    sleep(PAUSE).await;
                    continue;
                }
                // A redelivery has the key, or another message of the key has ended it.
                Some(_) => {}
            }
            break;
        }
        world.lock().open -= 1;
    }
}

/// Decides about a key, and returns the tool's exit code.
async fn decide(world: &World, tool: &Path, url: &str, key: KeyId) -> Option<i32> {
    // A release is recorded first, because a worker may claim the key before the tool has ended.
    let has_effect = world.lock().last_effects.contains_key(&key);
    if !has_effect {
        world.record(Fact::Released { key });
    }
    let words: &[&str] = if has_effect { &["settle", "--no-result"] } else { &["release"] };
    let code = run(tool, url, world.options.store, words, key).await.ok()?.code()?;
    if code == DONE {
        let mut state = world.lock();
        if has_effect {
            world.record_in(&mut state, Fact::Settled { key });
        }
        state.faults.add(if has_effect { Fault::SettledByTool } else { Fault::ReleasedByTool });
    }
    Some(code)
}

async fn run(tool: &Path, url: &str, store: StoreKind, words: &[&str], key: KeyId) -> Result<ExitStatus> {
    let address = match store {
        StoreKind::DynamoDb => format!("dynamodb://{}?region={}&endpoint={url}", server::TABLE, server::REGION),
        StoreKind::RedisCluster => format!("redis://{}?cluster=true", server::host_and_port(url)),
        StoreKind::Redis | StoreKind::Postgres => url.to_owned(),
    };
    let margin = format!("{}ms", MARGIN.as_millis());
    let mut command = Command::new(tool);
    command.args(words).args(["--store", &address, "--scope", worker::SCOPE, "--name", Source::Refuse.name()]);
    command.args(["--margin", &margin, "--operation", "sqs", "--key", &key.to_string(), "--yes"]);
    command.env_clear().envs(server::variables(store, url));
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).status().await?)
}
