"""Checks the compiler's messages about unsuitable handlers. Each program in tests/messages/ lists required parts of its messages.

A program lists parts for one or both of these forms: `alone:` for the plain function, and `wrapped:` for the function wrapped in
`batch::handler` or `batch::handler_with_context`. Only the listed parts are compared, because messages change between compiler versions.
"""

import json
import os
import re
import shutil
import subprocess
import sys

from tools.lib.common import ROOT, say

PROGRAMS = ROOT / "tests" / "messages"
CRATE = ROOT / "target" / "messages"
MANIFEST = f"""
[package]
name = "messages"
version = "0.0.0"
edition = "2024"

[dependencies]
lambda-once = {{ path = {json.dumps(str(ROOT))}, default-features = false, features = ["invocation", "sqs"] }}
lambda_runtime = "1"
serde = {{ version = "1", features = ["derive"] }}

[workspace]
"""
FORMS = ("alone", "wrapped")


def write_crate():
    shutil.rmtree(CRATE, ignore_errors=True)
    (CRATE / "src" / "bin").mkdir(parents=True)
    (CRATE / "Cargo.toml").write_text(MANIFEST)
    # The same versions as in the workspace, so that dependencies are compiled only once.
    shutil.copy(ROOT / "Cargo.lock", CRATE)
    expected = {}
    for program in sorted(PROGRAMS.glob("*.rs")):
        text = program.read_text()
        for form in FORMS:
            parts = re.findall(rf"^// {form}: (.+)$", text, re.MULTILINE)
            if not parts:
                continue
            name = f"{program.stem}_{form}"
            wrap = lambda found: f"lambda_once::batch::{found[0].lower()}" if form == "wrapped" else ""
            source = re.sub(r"\bHANDLER\w*", wrap, text)
            (CRATE / "src" / "bin" / f"{name}.rs").write_text(source)
            expected[name] = parts
    return expected


def messages():
    """Returns the compiler's messages for each program."""
    target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    checked = subprocess.run(
        ["cargo", "check", "--quiet", "--bins", "--keep-going", "--message-format", "json"],
        cwd=CRATE,
        env={**os.environ, "CARGO_TARGET_DIR": target},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    said = {}
    for line in checked.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-message":
            name = message["target"]["name"]
            said[name] = said.get(name, "") + message["message"]["rendered"]
    return said


def main():
    say("checking the compiler's messages about unsuitable handlers")
    expected = write_crate()
    said = messages()
    missing = [
        f"{name}: the compiler's messages do not contain `{part}`:\n{said.get(name, '(none)')}"
        for name, parts in expected.items()
        for part in parts
        if part not in said.get(name, "")
    ]
    tested = {name.rsplit("_", 1)[0] for name in expected}
    empty = [f"{path.name}: it lists no expected messages" for path in PROGRAMS.glob("*.rs") if path.stem not in tested]
    for problem in missing + empty:
        print(problem, file=sys.stderr)
    sys.exit(1 if missing or empty else 0)


if __name__ == "__main__":
    main()
