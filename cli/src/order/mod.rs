//! `lambda-once order`, which explains the mark of an entity, and ends doubt.

mod clear;
mod explain;
mod view;

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock, Timestamp},
    order::{Entity, Mark},
    record::KeyHash,
    store::ResultData,
};

use self::view::Doubted;
use crate::{
    args::{OneEntity, OrderCommand, OrderShow},
    id,
    output::{self, Ending, Usage},
    settings::Settings,
    state::State,
    store::{self, Records},
};

pub(crate) async fn run(command: OrderCommand, settings: &Settings) -> Result<Ending> {
    match command {
        OrderCommand::Show(show) => self::show(show, settings).await,
        OrderCommand::Clear(clear) => clear::run(clear, settings).await,
    }
}

async fn show(show: OrderShow, settings: &Settings) -> Result<Ending> {
    let store = store::open(settings).await?;
    let found = Found::read(&*store, &show.one, settings).await?;
    output::text(&explain::print(&found, settings.margin, show.format.output())?)?;
    Ok(if found.mark.is_some() { Ending::Done } else { Ending::Nothing })
}

/// An entity and its mark at one time.
struct Found {
    entity: Entity,
    /// `None` if there is none, or it has expired.
    mark: Option<Mark>,
    /// The operations in doubt, the newest last.
    doubted: Vec<Doubted>,
    /// The name of its operations, as a record has it.
    operation: Option<String>,
    now: Timestamp,
}

impl Found {
    /// Reads the mark of an entity, and the records of its operations in doubt.
    ///
    /// # Errors
    ///
    /// Returns wrong usage, and the errors of the store.
    async fn read(store: &dyn Records, one: &OneEntity, settings: &Settings) -> Result<Self> {
        let entities = entities(one, settings).await?;
        let mut marks = Vec::new();
        for (entity, mark) in entities.iter().zip(store.marks(&entities).await) {
            marks.push((*entity, mark?));
        }
        let now = SystemClock.now();
        marks.retain(|(_, mark)| mark.as_ref().is_some_and(|mark| mark.expiration > now.seconds_rounded_down()));
        if let [(first, _), (second, _), ..] = &marks[..] {
            let why = "has a mark as text, and one as JSON: choose one by --id";
            return Err(Usage(format!("the entity {why}: {first} or {second}")).into());
        }
        let Some((entity, Some(mark))) = marks.pop() else {
            return Ok(Self { entity: entities[0], mark: None, doubted: Vec::new(), operation: None, now });
        };
        let doubts = view::in_doubt(&mark, settings.margin, now);
        let held = mark.holder.map(|holder| holder.key);
        let mut keys: Vec<KeyHash> = Vec::new();
        for key in doubts.iter().filter_map(|doubt| doubt.key).chain(held) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let records = store::read(store, &keys, ResultData::Omit).await?;
        let operation = records.iter().flatten().find_map(|record| record.operation.as_deref()).map(str::to_owned);
        let record = |key| keys.iter().position(|known| *known == key).and_then(|place| records[place].as_ref());
        let state = |key| State::of(record(key), settings.margin, now);
        let doubted = doubts.into_iter().map(|doubt| Doubted { record: doubt.key.map(state), ..Doubted::from(doubt) });
        Ok(Self { entity, doubted: doubted.collect(), mark: Some(mark), operation, now })
    }
}

/// Returns the entities that the command line may mean: its key as text, and as JSON if it is JSON that is not text.
async fn entities(one: &OneEntity, settings: &Settings) -> Result<Vec<Entity>> {
    Ok(match (&one.id, &one.operation, &one.entity) {
        (Some(id), ..) => vec![id::parse_entity(id).map_err(Usage::of)?],
        (None, Some(operation), Some(entity)) => {
            let readings = store::readings(settings, operation, entity).await.map_err(Usage::of)?;
            readings.iter().map(|hash| Entity::of(&KeyHash::ordered(hash, hash))).collect()
        }
        _ => unreachable!("the command line has one of both"),
    })
}
