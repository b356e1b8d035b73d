"""The requirements of draft-ietf-httpapi-idempotency-key-header-07, in our words.

The id contains the section. The level is the draft's key word, or `advice` for a recommendation without one. `exempt` is the reason for
which a requirement does not concern the layer: it is for clients, or for the documentation of an API.
"""

from typing import NamedTuple


class Requirement(NamedTuple):
    id: str
    level: str
    text: str
    layer: str = ""
    # Files below src/ with their functions, as in docs/internals/protocol.md.
    code: str = ""
    exempt: str = ""


CLIENT = "for clients"
API = "for the documentation of the API"

DRAFT = [
    Requirement("IKH-2.1-1", "MUST", "takes the header's value as a String of RFC 8941",
                "yes, without parameters. **Beyond the draft**, a key without quotes is the same key",
                "`http/header_key.rs`: `read`, `quoted`"),
    Requirement("IKH-2.2-1", "MUST", "a key is unique", exempt=CLIENT),
    Requirement("IKH-2.2-2", "MUST NOT", "a key is not used again with another payload",
                exempt="for clients; the answer to it is IKH-2.7-2"),
    Requirement("IKH-2.2-3", "MUST", "the owner of the resource defines what unique means", exempt=API),
    Requirement("IKH-2.2-4", "MUST", "clients implement that", exempt=CLIENT),
    Requirement("IKH-2.2-5", "RECOMMENDED", "a key is a UUID or similarly random", exempt=CLIENT),
    Requirement("IKH-2.3-1", "MAY", "lets keys expire, to delete them",
                "after `Builder::retention`, 24 hours by default",
                "`http/settings.rs`: `LayerSettings::new`"),
    Requirement("IKH-2.3-2", "SHOULD", "has a policy for the expiration of keys",
                "the same. To publish it is up to the API",
                "`http/settings.rs`: `LayerSettings::new`"),
    Requirement("IKH-2.3-3", "SHOULD", "the policy is published", exempt=API),
    Requirement("IKH-2.4-1", "MAY", "distinguishes requests by a fingerprint of the payload, too",
                "[comparison](../http.md#comparison-of-requests)", "`http/fingerprint.rs`: `of_request`"),
    Requirement("IKH-2.4-2", "MAY", "makes it of the whole payload, or of parts of it",
                "the whole, or what `fingerprint` selects", "`http/fingerprint.rs`: `of_request`"),
    Requirement("IKH-2.5.1-1", "SHOULD", "clients follow the published requirements", exempt=CLIENT),
    Requirement("IKH-2.5.1-2", "MAY", "clients send a key without knowing whether it is respected", exempt=CLIENT),
    Requirement("IKH-2.5.1-3", "SHOULD", "clients send a unique key with each request", exempt=CLIENT),
    Requirement("IKH-2.5.2-1", "MUST", "the API publishes its requirements", exempt=API),
    Requirement("IKH-2.5.2-2", "MUST", "they contain the policy for the expiration, if there is one", exempt=API),
    Requirement("IKH-2.5.2-3", "SHOULD", "finds the key in the header of each request",
                "yes; the name of the header can be changed", "`http/entry.rs`: `participation`; `http/header_key.rs`: `read`"),
    Requirement("IKH-2.5.2-4", "SHOULD", "makes a fingerprint, if one is required", "yes", "`http/fingerprint.rs`: `of_request`"),
    Requirement("IKH-2.5.2-5", "SHOULD", "enforces idempotency", "yes", "`http/exchange.rs`: `answer`"),
    Requirement("IKH-2.6-1", "SHOULD", "processes a first request, and responds to it, as without a key",
                "yes", "`http/answer.rs`: `first`"),
    Requirement("IKH-2.6-2", "SHOULD", "responds to a retry after the end with the first result, a success or an error",
                "yes. **Deviation**: responses that a retry may change are [not stored](../http.md#which-responses-are-stored)",
                "`http/answer.rs`: `replay`; `http/response_action.rs`: `by_status`"),
    Requirement("IKH-2.6-3", "SHOULD", "refuses a retry before the end as a conflict",
                "yes; **beyond the draft**, `wait_up_to` waits for the result", "`http/answer.rs`: `refuse`, `in_progress`"),
    Requirement("IKH-2.7-1", "SHOULD", "refuses a request without a required key with 400 and a link to documentation",
                "`key_missing`. **Deviation**: no link, unless the API sets `problem_type_base`, with which the problem's `type` begins",
                "`http/entry.rs`: `participation`; `http/problem.rs`: `into_response`"),
    Requirement("IKH-2.7-2", "SHOULD", "refuses a key of another payload with 422 and a link to documentation",
                "`key_reused`, likewise; the status can be changed",
                "`http/answer.rs`: `refuse`; `http/problem.rs`: `of_mismatch`, `into_response`"),
    Requirement("IKH-2.7-3", "SHOULD", "refuses a retry before the end with 409 and a description of the problem",
                "`in_progress`; **beyond the draft**, `Retry-After`; the status can be changed",
                "`http/answer.rs`: `refuse`, `in_progress`"),
    Requirement("IKH-2.7-4", "MUST", "refuses a refused request again, unless the client corrects it or it was a 409", "yes",
                "`http/entry.rs`: `participation`; `http/answer.rs`: `refuse`"),
    Requirement("IKH-2.7-5", "SHOULD", "clients follow the documentation after other errors", exempt=CLIENT),
    Requirement("IKH-5-1", "advice", "has a fixed format of keys",
                "1 to 255 characters of printable ASCII; `check_key` restricts them. To publish it is up to the API",
                "`http/header_key.rs`: `read`"),
    Requirement("IKH-5-2", "advice", "checks the key before it processes the request", "yes, before anything is claimed",
                "`http/entry.rs`: `participation`"),
    Requirement("IKH-5-3", "advice", "looks keys up together with what only the server knows of the client, which MAY be its attributes",
                "[`Caller`](../http.md#the-caller)", "`http/caller.rs`: `of`; `http/entry.rs`: `hasher`"),
]
