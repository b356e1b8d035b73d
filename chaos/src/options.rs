//! The options of the coordinator.

use crate::settings::StoreKind;

/// The description of the options.
pub const USAGE: &str = "\
usage: chaos --store dynamodb|redis|redis-cluster|postgres [OPTION ...]
  --operations N  the number of operations, each with a key (default 2000, on DynamoDB 300)
  --open N        the most messages and clients at once (default 260, on DynamoDB 40)
  --tool PATH     the operator's tool (default: lambda-once beside this program)
  --control       switch the protection off, and fail unless effects are repeated
  --calm          inject no faults
  --seed S        the seed of faults and load (default: random); processes and time make each run different
  --json FILE     add the counters to those in the file
  --commit NAME   the name under which --json adds them, besides the total
  --trace         print the history of the key with the slowest recovery";

/// The options of the coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) store: StoreKind,
    pub(crate) operations: u32,
    pub(crate) most_open: u32,
    pub(crate) tool: Option<String>,
    pub(crate) is_control: bool,
    pub(crate) is_calm: bool,
    pub(crate) seed: u64,
    pub(crate) json: Option<String>,
    pub(crate) commit: Option<String>,
    pub(crate) trace: bool,
}

impl Options {
    /// Parses arguments.
    ///
    /// # Errors
    ///
    /// The reason why they are not understood.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut store = None;
        let (mut operations, mut most_open, mut tool) = (None, None, None);
        let (mut is_control, mut is_calm, mut trace) = (false, false, false);
        let (mut seed, mut json, mut commit) = (fastrand::u64(..1 << 32), None, None);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            let number =
                |text: String| text.replace('_', "").parse::<u64>().map_err(|_| format!("{text}: not a number"));
            let to_u32 = |number: u64| u32::try_from(number).map_err(|_| format!("{number}: too many"));
            match &*name {
                "--store" => {
                    let name = value()?;
                    store = Some(StoreKind::named(&name).ok_or(format!("{name}: no such store"))?);
                }
                "--operations" => operations = Some(to_u32(number(value()?)?)?),
                "--open" => most_open = Some(to_u32(number(value()?)?)?),
                "--tool" => tool = Some(value()?),
                "--control" => is_control = true,
                "--calm" => is_calm = true,
                "--seed" => seed = number(value()?)?,
                "--json" => json = Some(value()?),
                "--commit" => commit = Some(value()?),
                "--trace" => trace = true,
                _ => return Err(format!("{name}: no such option")),
            }
        }
        let store = store.ok_or("--store is missing")?;
        let operations = operations.unwrap_or(store.pace().operations);
        let most_open = most_open.unwrap_or(store.pace().most_open);
        Ok(Self { store, operations, most_open, tool, is_control, is_calm, seed, json, commit, trace })
    }
}
