"""The promises of the pages for users. Each quotes words of its page, which must stand there.

Each paragraph of docs/how-it-works.md#guarantees has at least one promise, and so has each list item there and in
docs/recipes.md#what-ordered_by-guarantees.
"""

import re
from typing import NamedTuple

from tools.checks.docs import DOCS, prose, slug

HOME = "how-it-works.md#guarantees"
UNKNOWN = "how-it-works.md#when-a-run-leaves-no-outcome"
LIMITS = "how-it-works.md#not-guaranteed"
TRANSACTIONS = "recipes.md#transactions"
ORDER = "recipes.md#what-ordered_by-guarantees"
RESPONSES = "http.md#responses"
STORED = "security.md#stored-and-logged-data"
# Introduces the promises below it.
INTRODUCTION = "Always, whatever clocks, networks and workers do:"


class Promise(NamedTuple):
    id: str
    page: str
    text: str
    # The rules of the protocol that it depends on.
    rules: list = []
    # Words of the page, without emphasis, code and links, if they are not the text.
    quote: str = ""
    # Other labels of the mutation tests.
    planted: list = []

    @property
    def words(self):
        return self.quote or self.text


PROMISES = [
    Promise("P1", HOME, "The outcome of a key is recorded once. No late worker can change, replace or delete it", ["S1", "S2", "S3"]),
    Promise("P2", HOME, "Within the retention, all replays are equal", ["C3", "C4", "S3"]),
    Promise("P3", HOME, "If a result was not stored (too large, not serializable, or discarded), each replay reports that", ["S5", "S6"]),
    Promise("P4", HOME, "An operator who deletes a record frees its key. An execution environment with a local cache notices the deletion "
            "when its entry expires", ["C1", "O4"]),
    Promise("P5", HOME, "While clocks agree and handlers stop, no two workers run an operation at the same time",
            ["C5", "C6", "C7", "C9", "L7"]),
    Promise("P6", HOME, "The margin is added to a lease before another worker may take over", ["L3"]),
    Promise("P7", HOME, "The library drops the handler's future at the handler deadline", ["L7"], planted=["H"]),
    Promise("P8", HOME, "If clocks differ by more, two runs can overlap. One outcome is recorded. The other run loses its lease and "
            "reports the recorded outcome", ["S3", "S8"]),
    Promise("P9", HOME, "With ordered_by, under the same conditions, no operation takes effect after a newer one of its entity",
            ["G1", "G2", "G3", "G4"]),
    Promise("P10", UNKNOWN, "Under `Rerun` the effect happens once; after a lost outcome possibly again, which a second run under a "
            "claim sees until the record expires", ["C7", "C8"],
            "once; after such a loss possibly again | until the record expires, a second run under a claim gets Outcome::TookOver"),
    Promise("P11", UNKNOWN, "Under `Refuse` the effect happens at most once within the retention. An operation may be refused that never "
            "ran, until an operator amends its record or the retention ends", ["C7", "O5", "O7"],
            "at most once within the retention | an operation that never ran may be refused until an operator amends its record or the "
            "retention ends"),
    Promise("P12", UNKNOWN, "Under `Probe` the effect happens once within the retention, if the probe is right. While it fails, nothing "
            "runs", ["C7", "S9"],
            "once within the retention, if the probe is right | you write a function that looks the effect up. While it fails, nothing runs"),
    Promise("P13", UNKNOWN, "The same applies to an error marked `.unknown()`, and to a panic unless `on_panic` is `OnPanic::Transient`",
            quote="The same applies to an error marked .unknown(), and to a panic unless on_panic is OnPanic::Transient"),
    Promise("P14", UNKNOWN, "A plain error releases the claim, and the operation runs again under every policy, including `Refuse`", ["S9"],
            "It releases the claim, and the operation runs again under every policy, including Refuse"),
    Promise("P15", UNKNOWN, "`Claim::key` is the same in every run of an operation",
            quote="Claim::key is the same in every run of an operation"),
    Promise("P16", UNKNOWN, "A handler that blocks its thread delays the recording of others by one run at most"),
    Promise("P17", UNKNOWN, "A crash leaves claims on operations that had not started: under `Rerun` 250 at most; under `Refuse` and "
            "`Probe` one while handlers block their thread, else one for each free slot", ["B12"],
            "under Rerun up to 250, which are only delayed by the lease. Under Refuse and Probe one while handlers block their thread, "
            "else one for each free slot"),
    Promise("P18", LIMITS, "A claim that reaches the store late, after its worker has died, holds the key for at most the rest of its "
            "lease", ["C7", "C9"]),
    Promise("P19", TRANSACTIONS, "Its writes and the outcome are committed together, or not at all", ["S4"], planted=["T"]),
    Promise("P20", TRANSACTIONS, "If any delivery succeeds, the writes are there exactly once", ["C5", "S4", "S8"], planted=["T"]),
    Promise("P21", ORDER, "An operation never takes effect after a newer one of its entity has completed. It does not run, a batch "
            "acknowledges it, and HTTP returns 409 `superseded`", ["G1", "G3"],
            "An operation never takes effect after a newer one of its entity has completed. It is Outcome::Superseded, and the handler "
            "does not run. A batch acknowledges it. HTTP returns 409 superseded, without Retry-After"),
    Promise("P22", ORDER, "A finished operation is replayed, even if a newer one has completed", ["C3", "G1"]),
    Promise("P23", ORDER, "One operation at a time runs for an entity. Others are in progress meanwhile, whatever their keys", ["G2"]),
    Promise("P24", ORDER, "When all events have been processed, the state is that of the greatest sequence that succeeded",
            ["G1", "G2", "G3"]),
    Promise("P25", RESPONSES, "A retry of a request gets the stored response, byte for byte", ["C3"], "the stored response, byte for byte"),
    Promise("P26", RESPONSES, "If the store is unavailable, or a limit reached, the response is 503 and nothing ran",
            quote="store unavailable, or a limit reached | 503; nothing ran"),
    Promise("P27", "security.md#tenants-and-callers", "A client never gets another client's response",
            quote="one client never gets another client's response"),
    Promise("P28", STORED, "Neither records nor logs contain a key, only its hash",
            quote="| key | its SHA-256, with the scope | the same hash |"),
    Promise("P29", STORED, "Neither records nor logs contain a payload", ["C2"],
            "| payload | a fingerprint, if it is compared | the names of parts that differ |"),
    Promise("P30", "security.md#encrypting-results", "With a codec no result is stored in plain text", ["S6"],
            "Plain text is never stored"),
]


def text_of(markdown):
    """Returns the text of a page without emphasis, code and links, in one line."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[*`]", "", text).split())


def section(page):
    """Returns the section of a page to which an address leads."""
    name, _, anchor = page.partition("#")
    parts = re.split(r"^(#+ .*)$", prose((DOCS / name).read_text()), flags=re.MULTILINE)
    for heading, body in zip(parts[1::2], parts[2::2]):
        if slug(heading.lstrip("# ")) == anchor:
            return body
    return ""


def withdrawn():
    """Yields the promises whose words are no longer on their page."""
    for promise in PROMISES:
        if promise.words not in text_of(section(promise.page)):
            yield f"docs/{promise.page} does not promise {promise.id}: {promise.words}"


def unlisted():
    """Yields the guarantees that are in no promise."""
    for page in (HOME, ORDER):
        words = [promise.words for promise in PROMISES if promise.page == page]
        for block in re.split(r"\n\s*\n|\n(?=\* )", section(page)):
            text, is_promise = text_of(block), page == HOME or block.startswith("* ")
            if is_promise and text not in ("", INTRODUCTION) and not any(quoted in text for quoted in words):
                yield f"docs/{page}: no promise of tools/checks/requirements/promises.py is in this: {text[:80]}"
