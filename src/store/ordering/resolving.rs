//! The rule by which an operator ends doubt (O8).

use super::{check_version, is_expired};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::{Mark, Sequence},
    store::{
        amend::{Amended, Resolution, ResolveRequest},
        rules::has_lapsed,
    },
};

const RESOLVE: &str = "resolve";

/// Decides a resolution made at `now`, based on the mark that exists. Returns the mark that replaces it, if any, and the
/// result, which holds only if that very mark is replaced.
///
/// * **O8** The mark is the one that was read, with all of its fields, and no live claim holds the entity. Otherwise it
///   stays unchanged. [`NoEffect`](Resolution::NoEffect) ends the doubt at its sequences, as a permanent failure of the
///   operations does. [`TookEffect`](Resolution::TookEffect) raises the newest sequence, as a completion does (G3). A
///   holder whose operation is no longer in doubt holds the entity no longer. The mark is kept for the retention, at
///   least (G4). A resolution that is sent again finds its own mark and is a success.
///
/// # Errors
///
/// * [`ErrorKind::Request`], permanent, if no operation is in doubt at a sequence of the request.
/// * [`ErrorKind::Order`], permanent, without the feature `order`.
/// * [`ErrorKind::Format`], temporary, for a mark of a newer format.
pub fn resolve(
    mark: Option<&Mark>,
    request: &ResolveRequest,
    now: Timestamp,
) -> Result<(Option<Mark>, Amended<Mark>), Error> {
    check_resolution(request)?;
    let Some(mark) = mark.filter(|mark| !is_expired(mark, now)) else { return Ok((None, Amended::Gone)) };
    check_version(mark, RESOLVE)?;
    let resolved = resolved(request);
    if *mark != request.read {
        let is_sent_again = *mark == Mark { expiration: mark.expiration, ..resolved };
        return Ok((None, if is_sent_again { Amended::Changed } else { unchanged(mark) }));
    }
    if mark.holder.is_some_and(|holder| !has_lapsed(holder.lease_until, request.skew_margin, now)) {
        return Ok((None, unchanged(mark)));
    }
    let kept_until = now.after(request.retention).seconds_rounded_up();
    Ok((Some(Mark { expiration: mark.expiration.max(kept_until), ..resolved }), Amended::Changed))
}

/// Checks that an operation is in doubt at each sequence of the request, before anything is sent.
///
/// # Errors
///
/// * [`ErrorKind::Request`], permanent, if none is.
/// * [`ErrorKind::Order`], permanent, without the feature `order`.
pub(crate) fn check_resolution(request: &ResolveRequest) -> Result<(), Error> {
    let refusal = |kind, message: &'static str| Err(Error::new(kind, ErrorStatus::Permanent, RESOLVE, message));
    if !cfg!(feature = "order") {
        return refusal(ErrorKind::Order, "a mark belongs to the order of an entity: enable the feature `order`");
    }
    let sequences = match &request.resolution {
        Resolution::NoEffect { sequences } => sequences.as_slice(),
        Resolution::TookEffect { sequence } => std::slice::from_ref(sequence),
    };
    if sequences.is_empty() || !sequences.iter().all(|sequence| is_in_doubt(&request.read, *sequence)) {
        return refusal(ErrorKind::Request, "no operation of the entity is in doubt at this sequence");
    }
    Ok(())
}

/// Returns whether an entry of the mark, or the operation of its holder, has this sequence.
fn is_in_doubt(mark: &Mark, sequence: Sequence) -> bool {
    mark.doubt.iter().any(|doubt| doubt.sequence == sequence)
        || mark.holder.is_some_and(|holder| holder.sequence == sequence)
}

/// Returns the mark that was read, after the resolution.
fn resolved(request: &ResolveRequest) -> Mark {
    let mut mark = request.read.clone();
    let stays = |doubted: Sequence| match &request.resolution {
        Resolution::NoEffect { sequences } => !sequences.contains(&doubted),
        Resolution::TookEffect { sequence } => doubted > *sequence,
    };
    if let Resolution::TookEffect { sequence } = request.resolution {
        mark.newest = mark.newest.max(Some(sequence));
    }
    mark.doubt.retain(|doubt| stays(doubt.sequence));
    mark.holder = mark.holder.filter(|holder| stays(holder.sequence));
    mark
}

fn unchanged(mark: &Mark) -> Amended<Mark> {
    Amended::Unchanged { current: Box::new(mark.clone()) }
}

#[cfg(all(test, feature = "order"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        order::{Doubt, Entity, Holder},
        record::{KeyHash, NEWEST_KNOWN_VERSION, Owner},
    };

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
    const MARGIN: Duration = Duration::from_secs(1);

    /// Returns a mark with operations in doubt at 10, 20 and 30, of which the last is its lapsed holder, after a
    /// completion at 5.
    fn mark() -> Mark {
        let key = |byte| KeyHash::from_bytes([byte; 32]);
        Mark {
            newest: Some(5_u64.into()),
            holder: Some(Holder {
                owner: Owner::from_bytes([0; 16]),
                key: key(3),
                sequence: 30_u64.into(),
                lease_until: NOW.before(Duration::from_millis(1_001)),
            }),
            doubt: vec![
                Doubt { key: Some(key(1)), sequence: 10_u64.into() },
                Doubt { key: None, sequence: 20_u64.into() },
            ],
            expiration: 1_700_000_010,
            ..Mark::default()
        }
    }

    fn request(resolution: Resolution) -> ResolveRequest {
        ResolveRequest {
            entity: Entity::of(&KeyHash::from_bytes([1; 32])),
            read: mark(),
            skew_margin: MARGIN,
            retention: Duration::from_millis(59_500),
            resolution,
        }
    }

    fn no_effect(sequences: &[u64]) -> ResolveRequest {
        request(Resolution::NoEffect { sequences: sequences.iter().map(|sequence| (*sequence).into()).collect() })
    }

    fn took_effect(sequence: u64) -> ResolveRequest {
        request(Resolution::TookEffect { sequence: sequence.into() })
    }

    /// Returns the newest sequence and the sequences in doubt, with the holder's last.
    fn left(mark: &Mark) -> (u64, Vec<u64>) {
        let number = |sequence: Sequence| sequence.to_string().parse::<u64>().expect("a number of 64 bits");
        let doubt = mark.doubt.iter().map(|doubt| doubt.sequence).chain(mark.holder.map(|holder| holder.sequence));
        (mark.newest.map_or(0, number), doubt.map(number).collect())
    }

    // Tests O8.
    #[test]
    fn a_statement_ends_the_doubt_that_it_names_and_no_other() {
        for (request, expected) in [
            (no_effect(&[10]), (5, vec![20, 30])),
            (no_effect(&[30]), (5, vec![10, 20])),
            (no_effect(&[10, 20, 30]), (5, vec![])),
            (took_effect(10), (10, vec![20, 30])),
            (took_effect(20), (20, vec![30])),
            (took_effect(30), (30, vec![])),
        ] {
            let (after, answer) = resolve(Some(&mark()), &request, NOW).unwrap();
            let after = after.unwrap();
            assert_eq!((answer, left(&after)), (Amended::Changed, expected), "{:?}", request.resolution);
            assert_eq!(after.expiration, 1_700_000_060, "the retention, rounded up");
            // Its response was lost.
            let again = resolve(Some(&after), &request, NOW.after(MARGIN)).unwrap();
            assert_eq!(again, (None, Amended::Changed), "{:?}", request.resolution);
        }
    }

    // Tests O8.
    #[test]
    fn nothing_is_written_unless_the_mark_is_as_it_was_read() {
        let request = no_effect(&[10]);
        let changed = [
            Mark { newest: Some(6_u64.into()), ..mark() },
            Mark { newest: None, ..mark() },
            Mark { holder: None, ..mark() },
            Mark { doubt: mark().doubt[..1].to_vec(), ..mark() },
            Mark { expiration: mark().expiration + 1, ..mark() },
            Mark { version: NEWEST_KNOWN_VERSION, ..mark() },
        ];
        for current in changed.into_iter().filter(|current| *current != mark()) {
            let answer = resolve(Some(&current), &request, NOW).unwrap();
            assert_eq!(answer, (None, unchanged(&current)));
        }
        assert_eq!(resolve(None, &request, NOW).unwrap(), (None, Amended::Gone));
        let expired = NOW.after(Duration::from_secs(10));
        assert_eq!(resolve(Some(&mark()), &request, expired).unwrap(), (None, Amended::Gone));
        let newer = Mark { version: NEWEST_KNOWN_VERSION + 1, ..mark() };
        assert_eq!(resolve(Some(&newer), &request, NOW).unwrap_err().kind(), ErrorKind::Format);
    }

    // Tests O8.
    #[test]
    fn no_mark_is_changed_while_a_live_claim_holds_the_entity() {
        let before = NOW.before(Duration::from_millis(1));
        for request in [no_effect(&[10]), no_effect(&[30]), took_effect(30)] {
            assert_eq!(resolve(Some(&mark()), &request, before).unwrap(), (None, unchanged(&mark())));
            assert_eq!(resolve(Some(&mark()), &request, NOW).unwrap().1, Amended::Changed);
        }
    }

    #[test]
    fn a_statement_on_an_operation_that_is_not_in_doubt_is_refused() {
        for request in [no_effect(&[]), no_effect(&[10, 11]), no_effect(&[5]), took_effect(40)] {
            let error = resolve(Some(&mark()), &request, NOW).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Request, false), "{:?}", request.resolution);
        }
    }
}
