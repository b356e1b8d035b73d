"""Servers from Debian 12, unpacked below target/ by an ordinary user. Nothing is installed on the machine."""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lib.common import DOWNLOADS, must, say

RELEASE = ("debian", "12")
HOME = DOWNLOADS / "debian-12"

# The servers, and the libraries that a machine with apt and Python may lack.
PACKAGES = (
    "redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1",
    "postgresql-15", "libpq5", "libicu72", "libxml2", "libldap-2.5-0", "libsasl2-2", "libgssapi-krb5-2", "libkrb5-3",
    "libk5crypto3", "libkrb5support0", "libkeyutils1", "libcom-err2",
    "pgbouncer", "libc-ares2", "libevent-2.1-7",
    "libssl3",
)
PROGRAMS = (
    "usr/bin/redis-server",
    "usr/lib/postgresql/15/bin/initdb",
    "usr/lib/postgresql/15/bin/postgres",
    "usr/sbin/pgbouncer",
)
# Otherwise root would download as a user without write permission here, and the hooks in containers would clear the machine's cache.
SETTINGS = """
Dir::State::Lists "{directory}/lists";
Dir::Cache "{directory}/cache";
Acquire::Languages "none";
APT::Sandbox::User "root";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""
# A launcher that finds the libraries relative to itself.
LAUNCHER = """#!/bin/sh
home=${{0%/*}}/..
LD_LIBRARY_PATH="$home/{libraries}" exec "$home/{program}" "$@"
"""


def unavailable():
    """Returns the reason why this machine cannot run them, or None if it can."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if (system.get("ID"), system.get("VERSION_ID")) != RELEASE:
        return f"it is a package of Debian 12, and this is {system.get('PRETTY_NAME', platform.platform())}"
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"it is a package of Debian 12, and {tool} is missing"
    return None


def fetch():
    """Downloads and unpacks the servers unless they exist. Returns their directory, with the programs in bin/."""
    if HOME.is_dir():
        return HOME
    if reason := unavailable():
        sys.exit(reason)
    say("fetching Redis, PostgreSQL and PgBouncer from Debian 12 (once; 45 MB)")
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DOWNLOADS) as work:
        work = Path(work)
        download(work)
        tree = work / "tree"
        for package in work.glob("*.deb"):
            must(["dpkg-deb", "--extract", package, tree])
        # The query compiler needs LLVM, which has 24 MB. PostgreSQL works without it.
        (tree / "usr/lib/postgresql/15/lib/llvmjit.so").unlink()
        for program in PROGRAMS:
            launcher(tree, program)
        tree.chmod(0o755)
        # Renamed last, so that a directory of this name is always complete.
        tree.rename(HOME)
    return HOME


def download(directory):
    """Downloads the packages with separate package lists. The machine's lists may be old or absent, and only root can update them."""
    for part in ("lists/partial", "cache/archives/partial"):
        (directory / part).mkdir(parents=True)
    (directory / "apt.conf").write_text(SETTINGS.format(directory=directory))
    apt = ["apt-get", "--config-file", directory / "apt.conf", "--quiet=2"]
    must([*apt, "update"], cwd=directory, stdout=sys.stderr)
    must([*apt, "download", *PACKAGES], cwd=directory, stdout=sys.stderr)


def launcher(tree, program):
    libraries = next(tree.glob("usr/lib/*-linux-gnu")).relative_to(tree)
    path = tree / "bin" / Path(program).name
    path.parent.mkdir(exist_ok=True)
    path.write_text(LAUNCHER.format(libraries=libraries, program=program))
    path.chmod(0o755)
    if (tried := subprocess.run([path, "--version"], capture_output=True, text=True)).returncode != 0:
        sys.exit(f"{path.name} from Debian 12 does not run here: {tried.stderr.strip()}")
