"""Mutants of the library's Rust code. All of them are built at once, and an environment variable selects one.

A build for each of them, as of `cargo mutants`, takes minutes, and there are thousands. The changes are about the same: bodies of functions,
comparisons, conjunctions, conditions, arithmetic, arms of a `match`. A test can detect only a mutant that it reaches, so each
test runs alone once, and its process writes down which ones it reached.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading

from tools.lib.common import ROOT, install, say
from tools.tests.mutants.program import FOLDER

SOURCE = FOLDER / "rust"
TARGET = FOLDER / "rust-target"
# The directory in which the tests find their files.
MANIFEST = {"CARGO_MANIFEST_DIR": str(SOURCE)}
# The module that is added to the library.
SWITCH = """
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutation {
    use std::{collections::HashSet, fs, io::Write, sync::{LazyLock, Mutex}};

    static ON: LazyLock<u32> = LazyLock::new(|| std::env::var("MUTANT").map_or(0, |text| text.parse().unwrap()));
    static REACHED: LazyLock<Option<(Mutex<HashSet<u32>>, fs::File)>> = LazyLock::new(|| {
        let file = std::env::var_os("MUTANTS_REACHED")?;
        Some((Mutex::default(), fs::File::options().create(true).append(true).open(file).unwrap()))
    });

    #[inline]
    pub fn is(mutant: u32) -> bool {
        if let Some((seen, file)) = &*REACHED {
            if seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(mutant) {
                // One write, because several processes of a test append to the file.
                (&*file).write_all(format!("{mutant}\\n").as_bytes()).unwrap();
            }
        }
        *ON == mutant
    }
}
"""
# Code for tests, and code that only compiles.
EXCLUDED = re.compile(r"tests\.rs$|/tests/|/histories\.rs$|^src/(testing|store/conformance|documented)")
# Tests of messages of the compiler, of exact numbers of allocations, and of the property test itself.
IGNORED_TESTS = re.compile(r"compile::|allocations::|planted_bugs::|coverage::")
# Words in the names of tests that need a server.
SERVERS = re.compile(r"dynamodb|redis|postgres|cluster|ministack")
ON_SERVERS = re.compile(r"src/store/(dynamodb|redis|postgres|remote)")
# The test programs of the library, except for those that need Python and Node.js.
PROGRAMS = ("lambda_once", "batch", "http", "operations", "property", "stores")


class Rust:
    """The library with its mutants: their keys, in the order of their numbers, which begin with 1."""

    # They are in the programs.
    version = b""

    def __init__(self):
        self.python = install("rust-syntax") / "python"
        self.dropped_file = FOLDER / "rust-dropped.json"
        self.codes = {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12] for file in files()}
        known = json.loads(self.dropped_file.read_text()) if self.dropped_file.is_file() else []
        self.dropped = {name for name, _, code in (key.rpartition(" | ") for key in known) if code == self.codes.get(name.partition(" | ")[0])}

    @contextlib.contextmanager
    def recording(self):
        """Yields the variables of a process that records the mutants which it reaches, and a function that returns them."""
        file = FOLDER / f"reached-{os.getpid()}-{threading.get_ident()}"
        file.unlink(missing_ok=True)
        numbers = lambda: {int(line) for line in file.read_text().split()} if file.is_file() else ()
        yield {"MUTANTS_REACHED": str(file), **MANIFEST}, lambda: sorted(self.keys[number - 1] for number in numbers())
        file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def applied(self, mutant):
        """Yields the variables of a process with the mutant."""
        yield {"MUTANT": str(self.keys.index(mutant) + 1), **MANIFEST}

    def is_near(self, mutant, program, test):
        """Returns whether a test is near a mutant. Those of a server are only near the code of the stores on servers."""
        return program != "stores" or not SERVERS.search(test) or bool(ON_SERVERS.match(mutant))

    def key(self, mutant):
        """Names the mutant and the code of its file when it was built."""
        return f"{mutant} | {self.codes[mutant.partition(' | ')[0]]}"

    def mutants(self):
        return [key for key in self.keys if key not in self.dropped]

    def build(self):
        """Builds the tests, and returns their programs by name. Mutants that do not compile are dropped."""
        copy_tree()
        while True:
            self.write()
            say(f"building {len(self.keys)} mutants, of which {len(self.dropped)} do not compile")
            programs, places = compiled()
            if programs:
                return programs
            wrong = {self.keys[number - 1] for place in places for number in self.numbers(*place)}
            if not wrong - self.dropped:
                sys.exit(f"no mutant is at the places of the errors: {places}")
            self.dropped |= wrong
            self.dropped_file.write_text(json.dumps(sorted(map(self.key, self.dropped)), indent=0))

    def write(self):
        request = {"root": str(ROOT), "files": files(), "dropped": sorted(self.dropped)}
        command = [self.python, ROOT / "tools" / "tests" / "mutants" / "rust_syntax.py"]
        response = json.loads(subprocess.run(command, input=json.dumps(request), check=True, stdout=subprocess.PIPE, text=True).stdout)
        self.keys, self.texts = response["mutants"], response["texts"]
        self.texts["src/lib.rs"] += SWITCH
        for file, text in self.texts.items():
            put(SOURCE / file, text.encode())

    def numbers(self, file, start, end):
        """Returns the numbers of the innermost place around a part of a file, and of the other mutants of that place."""
        if file not in self.texts:
            return []
        text = self.texts[file].encode()
        found = None
        for opened in re.finditer(rb"/\*<(\d+)\*/", text):
            closed = text.index(b"/*" + opened[1] + b">*/", opened.end())
            if opened.start() <= start and end <= closed + 20 and (found is None or closed - opened.start() < found[0]):
                found = (closed - opened.start(), opened, closed)
        if found is None:
            return []
        _, opened, closed = found
        inner = text[opened.end() : closed]
        # Without the places inside.
        while True:
            shorter = re.sub(rb"/\*<(\d+)\*/((?!/\*<).)*?/\*\1>\*/", b"", inner, flags=re.DOTALL)
            if shorter == inner:
                break
            inner = shorter
        return [int(number) for number in re.findall(rb"mutation::is\((\d+)\)", inner)]


def files():
    listed = subprocess.run(["git", "ls-files", "src/*.rs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [file for file in listed.split() if not EXCLUDED.search(file)]


def put(path, content):
    """Writes a file, unless it has this content, because Cargo looks at times."""
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_tree():
    """Copies the repository, and deletes files that are gone. The texts of mutants are written afterwards."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    mutated, wanted = set(files()), {file for file in listed.split("\0") if file and (ROOT / file).is_file()}
    for file in wanted - mutated:
        put(SOURCE / file, (ROOT / file).read_bytes())
    for path in SOURCE.rglob("*"):
        if path.is_file() and str(path.relative_to(SOURCE)) not in wanted:
            path.unlink()


def compiled():
    """Returns the test programs, or else None and the places of the errors."""
    command = ["cargo", "test", "--quiet", "--package", "lambda-once", "--all-features", "--lib", "--tests", "--no-run", "--message-format", "json"]
    env = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": "--cap-lints=allow", "CARGO_PROFILE_DEV_DEBUG": "0"}
    process = subprocess.run(command, cwd=SOURCE, env=env, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    if process.returncode == 0:
        built = [message for message in messages if message["reason"] == "compiler-artifact" and message["executable"]]
        return {message["target"]["name"]: message["executable"] for message in built if message["target"]["name"] in PROGRAMS}, []
    errors = [message["message"] for message in messages if message["reason"] == "compiler-message"]
    errors = [error for error in errors if error["level"] == "error"]
    spans = [span for error in errors for span in error["spans"] if span["is_primary"]]
    if not spans:
        sys.exit("\n".join(error["rendered"] for error in errors) or "the tests do not compile")
    return None, [(span["file_name"], span["byte_start"], span["byte_end"]) for span in spans]
