"""Makes charges from a page of another origin in a headless Chromium: python3 -m tools.scenarios.browser [--required]

The page (browser.html) calls the example `payments` with fetch. The header Idempotency-Key makes the browser send a
preflight request first. The page records the responses that it could read. Without a browser the scenario is skipped, or fails with
--required.
"""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tools.lib import builds, chromium
from tools.lib.common import Background, exit_on_signals, say

PAGE = Path(__file__).with_name("browser.html")
TOKEN = "token-of-alice"
ACCOUNT = "/accounts/browser/charges"


def charges(api):
    request = urllib.request.Request(api + ACCOUNT, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def failures(read, ledger):
    """Returns the failed checks."""
    if "error" in read:
        return [f"a request failed in the page: {read['error']}"]
    first, busy, replay, reused, malformed = (read[name] for name in ("first", "busy", "replay", "reused", "malformed"))
    checks = {
        "the first response is 201, and not a replay": (first["status"], first["replayed"]) == (201, None),
        "the same request at the same time is refused": (busy["status"], busy["code"]) == (409, "in_progress"),
        "its Retry-After can be read": busy["retryAfter"] in ("1", "2"),
        "the repeated request is marked as a replay": (replay["status"], replay["replayed"]) == (201, "true"),
        "its body is the first one's": replay["body"] == first["body"] and first["body"] != "",
        "another body with this key is refused": (reused["status"], reused["code"]) == (422, "key_reused"),
        "so is a malformed key": (malformed["status"], malformed["code"]) == (400, "key_malformed"),
        # Otherwise the page was not from another origin, and the other checks show nothing.
        "a header that is not exposed cannot be read": first["notExposed"] is None,
        "there is one charge": [json.loads(first["body"])] == ledger if first["status"] == 201 else False,
    }
    return [check for check, holds in checks.items() if not holds]


def main():
    if sys.argv[1:] not in ([], ["--required"]):
        sys.exit(__doc__)
    browser = chromium.find(required=bool(sys.argv[1:]))
    if browser is None:
        return
    exit_on_signals()
    # A charge takes long enough for the page to repeat the request meanwhile.
    environment = {name: value for name, value in os.environ.items() if name != "IDEMPOTENCY_TABLE"} | {"DELAY_MS": "1000"}
    programs = builds.programs("building the example; the first time a minute", ["-p", "examples"], ["payments"])
    payments = [programs / "payments", "127.0.0.1:0"]
    background = Background(payments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with chromium.serve({"/": PAGE}) as url, background as process:
        _, _, api = process.stdout.readline().strip().partition("listening on ")
        if not api:
            sys.exit("the example did not start")
        say(f"the page {url} calls {api}, in {browser}")
        read, _ = chromium.visit(browser, f"{url}?api={api}{ACCOUNT}&token={TOKEN}")
        found = failures(read, charges(api))
    for failure in found:
        print(f"failed: {failure}", file=sys.stderr)
    if found:
        sys.exit(json.dumps(read, indent=2))
    print("a page of another origin charged once, and read the response, its replay and three refusals")


if __name__ == "__main__":
    main()
