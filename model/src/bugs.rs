//! Bugs: each drops or bends one rule of the protocol.

macro_rules! bugs {
    ($($bug:ident $rule:literal $what:literal [$($world:literal),*] $($why:literal)?;)+) => {
        /// A bug that can be planted in a world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug { $(#[doc = $what] $bug,)+ }

        /// All bugs.
        pub(crate) const BUGS: &[Planted] = &[$(Planted {
            bug: Bug::$bug,
            rule: $rule,
            what: $what,
            worlds: &[$($world),*],
            harmless: { let why: &[&str] = &[$($why)?]; if why.is_empty() { None } else { Some(why[0]) } },
        },)+];
    };
}

impl Bug {
    /// Returns whether a settle of an earlier claim may change a record.
    pub(crate) fn ignores_owners(self) -> bool {
        matches!(
            self,
            Self::S1Owner | Self::S1Status | Self::S1Creates | Self::S3Release | Self::G3Frees | Self::G3Commit
        )
    }
}

/// A bug, and the worlds that may detect it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    pub(crate) bug: Bug,
    pub(crate) rule: &'static str,
    pub(crate) what: &'static str,
    /// From the smallest to the largest.
    pub(crate) worlds: &'static [&'static str],
    /// The reason why no world detects it, if none does.
    pub(crate) harmless: Option<&'static str>,
}

bugs! {
    C1Expired "C1" "an expired record counts" ["expiry"];
    C1Update "C1" "the `UPDATE` of a batch does not compare the expiration" ["batched-expiry"];
    C2Payload "C2" "payloads are not compared" ["payloads"];
    C2Takeover "C2" "a takeover does not compare payloads" ["payloads"];
    C3Completed "C3" "a completed operation is claimed again" ["rerun"];
    C4Failed "C4" "a failed operation is claimed again" ["errors"];
    C5Own "C5" "a claim does not recognize its own record" ["rerun"];
    C5Order "C5" "the same in an order" ["order-refuse"];
    C5Token "C5" "a repetition draws a new token" ["rerun"];
    C5History "C5" "a repeated claim forgets that it took over" ["rerun"];
    C6Live "C6" "a claim that stands is replaced" ["rerun"];
    C7Refuse "C7" "`Refuse` takes over" ["refuse"];
    C7NoProbe "C7" "`Probe` runs without its probe" ["probe"];
    C7ProbeFirst "C7" "the probe is called before the claim" ["probe"];
    C7UpdateAsRead "C7" "the `UPDATE` of a batch compares only owner and attempt" ["batched"];
    C7UpdateLease "C7" "the `UPDATE` of a batch compares only status and attempt" ["batched-beside"];
    C7ReadGrants "C7" "the `SELECT` of a batch grants" ["batched"];
    C7Released "C7" "an operator's release does not let a claim take over" ["operator-release"];
    C8Prior "C8" "a claim does not write the status that it replaced" ["rerun"];
    C8Expired "C8" "a claim over one that has expired takes over" ["overrun-payloads"];
    C9Late "C9" "a grant after its lease is acted on" ["rerun"];
    S1Owner "S1" "an outcome is recorded whatever the owner" ["rerun"];
    S1Status "S1" "an outcome is recorded whatever the status" ["rerun"];
    S1Creates "S1" "a completion creates a record" ["expiry"];
    S2Outcome "S2" "a repeated completion has lost its lease" ["rerun"]
        "the record that it finds has its own outcome, which S8 reports";
    S2Hides "S2" "a release does not return the record that it found" ["transaction"];
    S3Release "S3" "a release deletes the record of another owner" ["errors"];
    S4Release "S4" "a success that could not be recorded is released" ["rerun"];
    S8OwnRun "S8" "a run that lost its lease reports its own result" ["overrun"];
    S8Payload "S8" "a run that lost its lease reports the outcome of another payload" ["overrun-payloads"];
    S9Delete "S9" "a claim that took over is deleted, by engine and store" ["rerun"];
    S9Engine "S9" "the engine alone deletes a claim that took over" ["errors"]
        "the store refuses it, because the record shows the takeover";
    S9Late "S9" "a late release deletes a claim that took over" ["server-late"];
    S9PassOn "S9" "a hand-back does not pass an operator's release on" ["operator-release"];
    S9Owner "S9" "a hand-back keeps the token of the claim" ["transaction"];
    L3Margin "L3" "the margin is not added" ["rerun"];
    L4Lease "L4" "a claim may expire before its lease" ["expiry"];
    L4Round "L4" "the expiration is rounded down" ["expiry"];
    L4Renewal "L4" "a renewal does not move the expiration" ["renewals-expiry"];
    L5Lowers "L5" "a renewal may lower the lease" ["renewals"];
    L5Revives "L5" "a renewal revives a lapsed claim" ["renewals-server"];
    L5Arrival "L5" "the handler deadline counts from the answer to a renewal" ["renewals"];
    L5Lost "L5" "a run goes on although its lease is lost" ["renewals", "renewals-server"]
        "its handler deadline ends it before another may claim";
    L7Stop "L7" "a handler runs beyond its handler deadline" ["rerun"];
    L7Drop "L7" "a dropped handler's claim is released" ["cancel"];
    L7Claim "L7" "a dropped request leaves its claim" ["cancel-refuse"];
    G1Newest "G1" "a claim below the newest position is granted" ["order"];
    G2Live "G2" "a claim that holds the entity is ignored" ["order"];
    G2Doubt "G2" "a lapsed claim leaves no doubt" ["order"];
    G2Older "G2" "a lapsed holder does not block older claims" ["order"];
    G2Release "G2" "a release ends doubt" ["order"];
    G2Merge "G2" "merged doubt keeps the lower position" ["doubt"];
    G2MergedKey "G2" "merged doubt ends with the failure of one operation" ["doubt"];
    G2FailsAll "G2" "a failure ends all doubt" ["doubt"];
    G2LowerEnds "G2" "any completion ends all doubt" ["doubt-late"];
    G2Ends "G2" "a completion ends no doubt" ["doubt-late"];
    G2Renewal "G2" "a renewal does not renew the entity" ["order-renewals"];
    G3Newest "G3" "a completion does not raise the newest position" ["order"];
    G3Lowers "G3" "a completion may lower the newest position" ["doubt-late"];
    G3Frees "G3" "a settle frees the entity whatever the owner" ["order"];
    G3Keeps "G3" "a settle does not free the entity" ["order"];
    G3Renewal "G3" "a renewal does not need the entity" ["order-renewals"]
        "the lease of the entity is that of the record, so a holder that lost it has stopped";
    G3Commit "G3" "a commit does not need the entity" ["order-transaction"];
    G1Commit "G1" "a commit does not compare the newest position" ["order-transaction"]
        "it needs the entity, which a newer claim has taken";
    G4Claim "G4" "a claim does not keep the mark" ["order"];
    G4Settle "G4" "a settle does not keep the mark" ["order"];
    O1AsRead "O1" "an amendment does not compare the record that was read" ["operator"];
    O2Expired "O2" "an amendment changes an expired record" ["operator-expiry"];
    O3Stands "O3" "an amendment changes a claim that stands" ["operator"];
    O3Margin "O3" "an amendment does not add the margin" ["operator"];
    O4Completed "O4" "*forget* deletes a completed record unasked" ["operator"];
    O5Owner "O5" "*settle* keeps the token of the claim" ["operator-overrun"];
    O5Mark "O5" "*settle* does not change the mark" ["operator-order"];
    O6Payload "O6" "*redact* removes the fingerprint, too" ["operator"];
    O7Later "O7" "a release holds for later claims" ["operator-release"];
    O8AsRead "O8" "a statement does not compare the mark that was read" ["operator-doubt"];
    O8Live "O8" "a statement ends the doubt about a claim that stands" ["operator-doubt"];
    O8Margin "O8" "a statement does not add the margin" ["operator-doubt"];
    O8Newest "O8" "a statement of an effect does not raise the newest position" ["operator-doubt"];
    O8Others "O8" "a statement ends all doubt" ["operator-doubt"];
    O8Holder "O8" "a statement keeps the holder" ["operator-doubt"];
    O8Doubt "O8" "a statement keeps the doubt" ["operator-doubt"];
    TransactionRead "release decides" "a read decides about a commit without an answer" ["transaction"];
    TransactionComplete "release decides" "a completion is repeated without its transaction" ["transaction"];
    TransactionError "release decides" "a definite error after a timeout is believed" ["transaction"];
    B8Transaction "B8" "an undecided commit is acknowledged" ["transaction"];
    B8Order "B8" "an unrecorded success in an order is acknowledged" ["order"];
}
