//! Explores larger worlds for hours. An interrupted exploration is resumed.

use std::{
    env, fs, io,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    explorer::fingerprint,
    run::{of_world, side_by_side},
    world::World,
    worlds::worlds,
};

/// The worlds that were explored, to their end or until they were given up, one a line, after the hash of the program
/// that did so.
const DONE: &str = "target/model/deep.txt";

/// The end of the line of a world that was given up.
const INCOMPLETE: &str = ": incomplete";

/// The states at which the exploration of a world is given up, for the sake of memory: some 4 GB a processor.
const MOST_STATES: usize = 20_000_000;

/// A larger variant of a world.
struct Variant {
    name: String,
    world: World,
}

/// Returns the larger variants of all worlds, the smaller ones first.
fn variants() -> Vec<Variant> {
    let longer = |world: World| World { ends: world.ends + 3, ..world };
    let more = |number: u8| if number > 0 { number + 1 } else { 0 };
    let more_faults = |world: World| World {
        crashes: more(world.crashes),
        timeouts: more(world.timeouts),
        late_answers: world.late_answers + 1,
        copies: world.copies + 1,
        amendments: more(world.amendments),
        statements: more(world.statements),
        ..world
    };
    let larger = |mut world: World| {
        if let [first, _] = world.workers[..] {
            world.workers.push(first);
        }
        world
    };
    let named = |suffix: &str, enlarged: &dyn Fn(World) -> World| -> Vec<Variant> {
        let variant = |world: World| Variant { name: format!("{}{suffix}", world.name), world: enlarged(world) };
        worlds().into_iter().map(variant).collect()
    };
    let mut variants = named(", longer", &longer);
    variants.extend(named(", more faults", &more_faults));
    variants.extend(named(", another worker", &larger));
    variants.extend(named(", longer with more faults", &|world| longer(more_faults(world))));
    variants.extend(named(", all of this", &|world| larger(longer(more_faults(world)))));
    variants
}

/// Explores the larger variants of the worlds with these names, or of all, for some minutes or to the end. Returns
/// whether all promises hold.
pub(crate) fn explore(names: &[String], minutes: Option<u64>) -> bool {
    let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let is_over = || until.is_some_and(|until| Instant::now() >= until);
    let (done, program) = (fs::read_to_string(DONE).unwrap_or_default(), program());
    let line = |variant: &Variant| format!("{program:016x} {}", variant.name);
    let is_open = |variant: &Variant| {
        (names.is_empty() || names.iter().any(|name| name == variant.world.name))
            && !done.lines().any(|done| done.strip_suffix(INCOMPLETE).unwrap_or(done) == line(variant))
    };
    let open: Vec<Variant> = variants().into_iter().filter(is_open).collect();
    let hold = side_by_side(&open, |variant| {
        if is_over() {
            return true;
        }
        let begun = Instant::now();
        let (explored, fault) = of_world(&variant.world, |states| states < MOST_STATES && !is_over());
        let how = if explored.is_complete { "to the end" } else { "not to the end" };
        let seconds = begun.elapsed().as_secs();
        println!("{}: {} states in {seconds} s, {how}", variant.name, explored.states);
        if let Some(fault) = &fault {
            println!("{fault}");
        } else if explored.is_complete || explored.states >= MOST_STATES {
            let suffix = if explored.is_complete { "" } else { INCOMPLETE };
            if remember(&format!("{}{suffix}", line(variant))).is_err() {
                eprintln!("{DONE}: cannot be written, so that this world is explored again");
            }
        }
        fault.is_none()
    });
    hold.into_iter().all(|holds| holds)
}

/// Returns the hash of this program, which changes with the rules and the model.
fn program() -> u64 {
    let program = env::current_exe().and_then(fs::read);
    program.map_or(0, |program| fingerprint(&program))
}

fn remember(line: &str) -> io::Result<()> {
    if let Some(folder) = Path::new(DONE).parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(DONE)?;
    writeln!(file, "{line}")
}
