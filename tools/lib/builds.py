"""Builds with Cargo that report their progress."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tools.lib.common import ROOT, Ending, say, stop_tree

TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
# The directory of the workspace's programs.
PROGRAMS = TARGET / "debug"
# The selection of the tests. Another selection of packages or features would compile the dependencies again.
ALL = ("--workspace", "--all-features")
# Seconds between two lines of progress if Cargo's progress bar is not visible.
PROGRESS_S = 15
# Cargo's status lines. All others are diagnostics.
STATUS = re.compile(r"\s*(Adding|Blocking|Building|Compiling|Checking|Downloaded|Downloading|Executable|Finished|Fresh|Locking|Updating)\b")


class Program(NamedTuple):
    """A test program: its target's name, its file, and the directory of its package."""

    name: str
    path: str
    package: Path


def programs(what, selection, binaries):
    """Builds this selection, and returns the directory of these binaries of the workspace.

    With BUILT=1 nothing is built, and the binaries must exist from a build of the tests.
    """
    if os.environ.get("BUILT"):
        if missing := [binary for binary in binaries if not (PROGRAMS / binary).is_file()]:
            sys.exit(f"BUILT is set, and target/debug lacks {', '.join(missing)}")
        return PROGRAMS
    cargo(what, ["build", *selection, *(word for binary in binaries for word in ("--bin", binary))])
    return PROGRAMS


def tests(what, selection):
    """Builds the test programs of a selection, with everything they run, and returns them."""
    output = cargo(what, ["test", *selection, "--no-run", "--message-format", "json-render-diagnostics"])
    messages = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [
        Program(message["target"]["name"], message["executable"], Path(message["manifest_path"]).parent)
        for message in messages
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]
    ]


def cargo(what, arguments):
    """Runs Cargo, and returns its standard output. Ends this program if it fails."""
    say(what)
    environment = dict(os.environ)
    is_seen = sys.stderr.isatty()
    if not is_seen:
        environment |= {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "120"}
    with tempfile.TemporaryFile("w+") as output:
        process = None
        try:
            with Ending.wait():
                process = subprocess.Popen(
                    ["cargo", *arguments], cwd=ROOT, env=environment, stdout=output, stderr=None if is_seen else subprocess.PIPE
                )
            if not is_seen:
                relay(process.stderr)
            code = process.wait()
        except SystemExit:
            if process is not None:
                stop_tree(process)
            raise
        if code:
            sys.exit(code)
        output.seek(0)
        return output.read()


def relay(stream):
    """Prints the diagnostics of Cargo, and regularly its progress."""
    began = told = time.monotonic()
    rest = b""
    while chunk := os.read(stream.fileno(), 65536):
        # The bar is redrawn in one line.
        *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line.decode(errors="replace"))
            bar = re.search(r"\] (\d+)/(\d+)", text)
            if bar and time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                say(f"{bar[1]} of {bar[2]} crates and programs built, {told - began:.0f} s")
            if text.strip() and not bar and not STATUS.match(text):
                print(text, file=sys.stderr, flush=True)
