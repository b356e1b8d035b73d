//! That the cases are worth something: everything that can become of a record does.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use crate::{
    cases,
    desk::{Told, Verdict},
    generate::{plan_of, size},
    stage::{Seen, perform},
};

/// What happened in a case, in words.
fn words(seen: &Seen) -> BTreeSet<String> {
    let claims = seen.asked.claims.iter().map(|claim| match claim.told {
        Told::InProgress(_) => "told InProgress".to_owned(),
        told => format!("told {told:?}"),
    });
    let settles = seen.asked.settles.iter().map(|settle| match settle.verdict {
        Verdict::Lost(current) => format!("{:?} Lost to {:?}", settle.ending, current.map(|(status, _)| status)),
        verdict => format!("{:?} {verdict:?}", settle.ending),
    });
    let ends = seen.pages.attempts.iter().filter_map(|attempt| attempt.end);
    let ends = ends.map(|(end, _)| format!("ended {end:?}"));
    let letters = seen.pages.letters.iter().map(|letter| format!("letter sent: {}", letter.sent));
    let answers = seen.calls.iter().map(|call| match &call.answer {
        Ok(ids) => format!("answered, failures: {}", !ids.is_empty()),
        Err(kind) => format!("answered {kind:?}"),
    });
    let took_over = seen.pages.attempts.iter().filter(|attempt| attempt.claim.is_some_and(|(took_over, _)| took_over));
    let took_over = took_over.map(|_| "took over".to_owned());
    let together = (seen.pages.most_together > 1).then(|| "together".to_owned());
    let unprotected = seen.pages.attempts.iter().any(|attempt| attempt.key.is_none()).then(|| "unprotected".to_owned());
    let all = claims.chain(settles).chain(ends).chain(letters).chain(answers).chain(took_over);
    all.chain(together).chain(unprotected).collect()
}

const ALL: [&str; 32] = [
    "told Granted",
    "told Completed",
    "told Failed",
    "told InProgress",
    "told Abandoned",
    "told Mismatch",
    "told Nothing",
    "Complete Done",
    "Complete Nothing",
    "Complete Lost to Some(InProgress)",
    "Complete Lost to Some(Completed)",
    "Fail Done",
    "Fail Nothing",
    "Release Done",
    "Release Nothing",
    "ended Succeeded",
    "ended Recovered",
    "ended NotDone",
    "ended Transient",
    "ended Permanent",
    "ended Unknown",
    "ended Panicked",
    "ended CutOff",
    "letter sent: true",
    "letter sent: false",
    "answered, failures: true",
    "answered, failures: false",
    "answered Batch",
    "answered Event",
    "took over",
    "together",
    "unprotected",
];

#[test]
fn everything_that_can_become_of_a_record_does() {
    let plans = (0..40_usize).prop_flat_map(plan_of);
    let mut missing = BTreeSet::from(ALL);
    for case in 0..20_000 {
        let plan = Arc::new(plans.new_tree(&mut cases::runner(0, case)).unwrap().current());
        let found = words(&perform(&plan, None));
        missing.retain(|word| !found.contains(*word));
        if missing.is_empty() {
            return;
        }
    }
    panic!("never seen: {missing:?}");
}

#[test]
fn one_batch_in_a_hundred_is_large() {
    let mut runner = TestRunner::deterministic();
    let mut sizes: Vec<usize> = (0..10_000).map(|_| size().new_tree(&mut runner).unwrap().current()).collect();
    sizes.sort_unstable();
    let large = sizes.iter().filter(|size| **size > 1_000).count();
    assert!((50..=150).contains(&large), "{large}");
    assert!(sizes[0] == 0 && sizes[9_999] > 8_000 && sizes[9_999] <= 10_000, "{:?}", sizes.last());
    assert!((20..=50).contains(&sizes[5_000]), "the logarithm is uniform: {}", sizes[5_000]);
}
