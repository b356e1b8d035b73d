"""Packages of npm, as a lock file names them."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.lib.common import DOWNLOADS, install, locked, must, path_with, say


def modules(name, what, folder):
    """Node.js, and the directory below which the packages of package-lock.json in `folder` are, installed unless they are."""
    node = install("node")
    home = DOWNLOADS / name
    lock = (folder / "package-lock.json").read_bytes()
    with locked(home):
        if not (home / "installed").is_file() or (home / "installed").read_bytes() != lock:
            say(f"installing {what} below target/tools (once)")
            shutil.rmtree(home, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=DOWNLOADS) as work:
                for file in ("package.json", "package-lock.json"):
                    shutil.copy(folder / file, work)
                options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
                must([node / "npm", "ci", *options], cwd=work, env={**os.environ, "PATH": path_with(node)}, stdout=sys.stderr)
                (Path(work) / "installed").write_bytes(lock)
                # Renamed last, so that a directory of this name is always complete.
                os.rename(work, home)
                os.mkdir(work)
    return node / "node", home
