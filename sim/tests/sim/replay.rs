//! A seed gives the same history each time.

use lambda_once_sim::{judge::judge, simulate};

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 0..20 {
        let (first, counters) = simulate(seed, None);
        let (second, again) = simulate(seed, None);
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(counters, again, "seed {seed}");
    }
}

#[test]
fn seeds_give_different_histories() {
    assert_ne!(simulate(1, None).0, simulate(2, None).0);
}

#[test]
fn the_library_keeps_its_promise_in_many_histories() {
    for seed in 1_000..1_060 {
        let (history, _) = simulate(seed, None);
        assert_eq!(judge(&history), [], "seed {seed}");
    }
}

#[test]
fn histories_contain_every_kind_of_fault() {
    let mut counters = lambda_once_sim::counters::Counters::default();
    (0..120).for_each(|seed| counters.merge(&simulate(seed, None).1));
    for (name, count) in counters.rows() {
        assert!(count > 0, "{name}");
    }
}
