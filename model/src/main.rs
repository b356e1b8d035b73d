//! The model of the protocol.

mod bugs;
mod convert;
mod doctor;
mod explorer;
mod promise;
mod state;
mod store;
mod system;
mod worker;
mod world;
mod worlds;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let filter = args.get(1).cloned().unwrap_or_default();
    let limit = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    if filter == "bugs" {
        for planted in bugs::BUGS {
            if args.get(3).is_some_and(|name| *name != format!("{:?}", planted.bug)) { continue; }
            let mut caught = false;
            for name in planted.worlds {
                let Some(world) = worlds::worlds().into_iter().find(|world| world.name == *name) else { println!("{:?}: no world {name}", planted.bug); continue };
                let system = system::System { world, bug: Some(planted.bug) };
                let reaches = system.world.reaches.clone();
                let explored = explorer::explore(&system, limit, |_, _| ());
                match explored.breach {
                    Some(breach) => { caught = true; println!("{:?} {name} {} {}: {}", planted.bug, explored.states, breach.steps.len(), breach.promise); if args.len() > 3 { for step in breach.steps { println!("   {step:?}"); } } break; }
                    None => {
                        let missing: Vec<_> = reaches.iter().filter(|event| explored.events & event.bit() == 0).collect();
                        println!("{:?} {name} {} {} SURVIVES {missing:?}", planted.bug, explored.states, explored.is_complete);
                    }
                }
            }
            let _ = caught;
        }
        return;
    }
    for world in worlds::worlds() {
        if filter != "" && filter != world.name { continue; }
        let begun = std::time::Instant::now();
        let reaches = world.reaches.clone();
        let name = world.name;
        let system = system::System { world, bug: None };
        let explored = explorer::explore(&system, limit, |_, _| ());
        println!("{name}: {} {} {:?}", explored.states, explored.is_complete, begun.elapsed());
        for event in reaches { if explored.events & event.bit() == 0 { println!("missing {event:?}"); } }
        if let Some(breach) = explored.breach { println!("{}", breach.promise); for step in breach.steps { println!("{step:?}"); } }
    }
}
