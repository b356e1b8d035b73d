"""Has a page of another origin make charges in a headless Chromium: python3 -m tools.scenarios.browser [--required]

The page (browser.html) calls the example `payments` with fetch. The header Idempotency-Key makes the browser send a
preflight first. The page records what it could read. Without a browser this is skipped, unless it is --required.
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
    """What is not as it should be."""
    if "error" in read:
        return [f"a request failed in the page: {read['error']}"]
    first, busy, replay, reused, malformed = (read[name] for name in ("first", "busy", "replay", "reused", "malformed"))
    checks = {
        "the first answer is 201, and no replay": (first["status"], first["replayed"]) == (201, None),
        "the same request at the same time is refused": (busy["status"], busy["code"]) == (409, "in_progress"),
        "its Retry-After can be read": busy["retryAfter"] in ("1", "2"),
        "the repeated request is marked as a replay": (replay["status"], replay["replayed"]) == (201, "true"),
        "its body is the first one's": replay["body"] == first["body"] and first["body"] != "",
        "another body with this key is refused": (reused["status"], reused["code"]) == (422, "key_reused"),
        "so is a malformed key": (malformed["status"], malformed["code"]) == (400, "key_malformed"),
        # Or the page was not of another origin, and all of this shows nothing.
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
    # A charge takes long enough for the page to ask again meanwhile.
    environment = {name: value for name, value in os.environ.items() if name != "IDEMPOTENCY_TABLE"} | {"DELAY_MS": "1000"}
    programs = builds.programs("building the example; the first time a minute", ["-p", "examples"], ["payments"])
    payments = [programs / "payments", "127.0.0.1:0"]
    background = Background(payments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with chromium.serve({"/": PAGE}) as url, background as process:
        _, _, api = process.stdout.readline().strip().partition("listening on ")
        if not api:
            sys.exit("the example did not start")
        say(f"the page {url} asks {api}, in {browser}")
        read, _ = chromium.visit(browser, f"{url}?api={api}{ACCOUNT}&token={TOKEN}")
        found = failures(read, charges(api))
    for failure in found:
        print(f"not so: {failure}", file=sys.stderr)
    if found:
        sys.exit(json.dumps(read, indent=2))
    print("a page of another origin charged once, and read the answer, its replay and three refusals")


if __name__ == "__main__":
    main()
