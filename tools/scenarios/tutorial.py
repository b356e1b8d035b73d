"""Follows docs/getting-started.md: python3 -m tools.scenarios.tutorial [--all]

A single shell executes every `sh` block in order. Its output must contain each line of the following `text` block, where `…` matches any
text. A comment before a block changes this. With `<!-- not run: REASON -->` the block is only parsed, and with `<!-- slow -->` it is
executed only with --all.

The function is built in target/, with the versions in Cargo.lock. The ports on the page are replaced by free ones.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tools.lib import builds
from tools.lib.common import ROOT, Background, exit_on_signals, free_port, install, path_with, say, wait_until

PAGE = ROOT / "docs" / "getting-started.md"
BLOCK = re.compile(r"(?:^<!-- (?P<mark>not run: [^\n]+|slow) -->\n)?^```(?P<kind>sh|text)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# The timeout of a block, in seconds. The first build of the function takes most of it.
TIMEOUT_S = 1500
LISTENS_S = 60
# The command that runs the embedded DynamoDB, which the tests have built.
DYNAMODB = 'cargo run --manifest-path "$LAMBDA_ONCE/Cargo.toml" -p local-stack --bin local-dynamodb'
# The end of a block's output, followed by its exit code.
END = "end of the block:"


class Block(NamedTuple):
    line: int
    commands: str
    mark: str | None
    # The lines that its output must contain.
    expected: list[str]


def blocks(page):
    """Returns the shell blocks of a page."""
    found = []
    for match in BLOCK.finditer(page):
        line = page.count("\n", 0, match.start("text"))
        if match["kind"] == "sh":
            found.append(Block(line, match["text"], match["mark"], []))
        elif not found or match["mark"]:
            sys.exit(f"{PAGE.name}:{line}: no command prints this")
        else:
            found[-1].expected.extend(match["text"].splitlines())
    return found


def pattern(line):
    """Returns a pattern that matches a printed line, or a part of it."""
    return ".*".join(re.escape(part.strip()) for part in line.split("…"))


def replaced(text, old, new):
    if old not in text:
        sys.exit(f"{PAGE.name} no longer contains {old!r}")
    return text.replace(old, new)


def local(page, ports, dynamodb):
    """Returns the page with free ports, and with the embedded DynamoDB that was built."""
    page = replaced(page, f"{DYNAMODB} 8000", f"{dynamodb} {ports['dynamodb']}")
    listening = f"--invoke-address 127.0.0.1 --invoke-port {ports['lambda']}"
    page = replaced(page, "cargo lambda watch", f"cargo lambda watch {listening}")
    return replaced(page, "cargo lambda invoke", f"cargo lambda invoke {listening}")


class Shell:
    """A shell that keeps its directory, variables and jobs between blocks."""

    def __init__(self, process, output):
        self.process = process
        self.output = output

    def run(self, commands):
        """Runs these commands up to the first failure, and returns the exit code and the output."""
        begin = self.output.stat().st_size
        # In the shell itself, because later blocks need the directory, variables and jobs.
        self.process.stdin.write(f"set -e; trap 'echo \"{END} $?\"' EXIT\n{commands}\ntrap - EXIT; set +e; echo '{END} 0'\n")
        self.process.stdin.flush()
        ended = lambda: re.search(rf"^{END} (\d+)$", self.printed(begin), re.MULTILINE)
        wait_until(ended, TIMEOUT_S, self.process)
        printed = self.printed(begin)
        code = re.search(rf"^{END} (\d+)$", printed, re.MULTILINE)
        return (int(code[1]) if code else 1), printed

    def printed(self, begin):
        return self.output.read_bytes()[begin:].decode(errors="replace")


def listening(ports):
    """Returns commands that wait until these ports accept connections."""
    waits = (f"until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.1; done" for port in ports)
    return "\n".join(f"timeout {LISTENS_S} bash -c '{wait}'" for wait in waits)


def parse(block):
    """Exits if the shell cannot parse the block."""
    done = subprocess.run(["bash", "-n"], input=block.commands, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{PAGE.name}:{block.line}: {done.stderr}")


def follow(page, ports, folder, env, with_slow):
    """Executes the blocks in a new folder, in which lambda-once is a checkout."""
    output = folder / "output"
    with open(output, "w") as file:
        command = Background(
            ["bash"], cwd=folder / "lambda-once", env={**env, "PWD": str(folder / "lambda-once")}, stdin=subprocess.PIPE,
            stdout=file, stderr=subprocess.STDOUT, text=True,
        )
        with command as process:
            shell = Shell(process, output)
            for block in blocks(page):
                parse(block)
                if block.mark and not (block.mark == "slow" and with_slow):
                    print(f"skip  line {block.line}: {block.mark}", flush=True)
                    continue
                commands = block.commands
                if commands.rstrip().endswith("&"):
                    commands += listening(ports.values())
                code, printed = shell.run(commands)
                missing = [line for line in block.expected if not re.search(pattern(line), printed)]
                if code or missing:
                    reason = f"exit code {code}" if code else f"the output lacks {missing}"
                    sys.exit(f"{PAGE.name}:{block.line}: {reason}\n{block.commands}\n{printed}")
                print(f"ok    line {block.line}: {block.commands.splitlines()[0]}", flush=True)
                prepare(folder, ports)


def prepare(folder, ports):
    """Gives the new function the library's versions, and the port of DynamoDB."""
    manifest, lock, variables = (folder / "orders" / name for name in ("Cargo.toml", "Cargo.lock", "local.env"))
    if manifest.is_file() and "[dev-dependencies]" in manifest.read_text():
        text = variables.read_text()
        variables.write_text(text.replace("127.0.0.1:8000", f"127.0.0.1:{ports['dynamodb']}"))
        stamp = folder / "locked"
        if not stamp.exists():
            shutil.copy(ROOT / "Cargo.lock", lock)
            stamp.touch()


def main():
    exit_on_signals()
    programs = builds.programs("building the embedded DynamoDB", list(builds.ALL), ["local-dynamodb"])
    ports = {"dynamodb": free_port(), "lambda": free_port()}
    page = local(PAGE.read_text(), ports, programs / "local-dynamodb")
    env = {
        **os.environ,
        "PATH": path_with(install("cargo-lambda"), install("sam")),
        "CARGO_TARGET_DIR": str(builds.TARGET),
        # The same as in the workspace, which is quicker to build.
        "CARGO_PROFILE_DEV_DEBUG": "false",
        "CARGO_INCREMENTAL": "0",
        "SAM_CLI_TELEMETRY": "0",
    }
    say(f"following {PAGE.relative_to(ROOT)}; the first build of its function takes some minutes")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "lambda-once").symlink_to(ROOT)
        follow(page, ports, folder, env, "--all" in sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
