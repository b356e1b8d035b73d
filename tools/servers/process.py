"""A server as a child process that can be stopped, killed, frozen and restarted with the same port and data."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lib.common import Background, Ending, free_port, say, wait_until

# Another process may take the port before the server starts.
ATTEMPTS = 3
START_TIMEOUT_S = 30
NOBODY = 65534


class Server:
    """Subclasses `prepare` a directory, return the `command` to run in it, and check whether it `is_up`."""

    # Whether it runs as an ordinary user even if this program runs as root.
    is_unprivileged = False
    # The signal that ends it without waiting for its clients.
    stop_signal = signal.SIGTERM
    _copy = None
    _background = None

    @classmethod
    def fetch(cls):
        """Installs its programs unless they exist."""

    def __enter__(self):
        for _ in range(ATTEMPTS):
            self.port = free_port()
            self._directory = tempfile.TemporaryDirectory(prefix="lambda-once-")
            self.home = Path(self._directory.name)
            if self.options:
                os.chown(self.home, NOBODY, NOBODY)
            try:
                self.prepare()
                if self.start():
                    return self
            except BaseException:
                # For example a signal. Nothing else stops the server yet.
                self.__exit__()
                raise
            log = self.log()
            self.__exit__()
        sys.exit(f"{type(self).__name__} did not start; its log ends:\n{log}")

    def __exit__(self, *_):
        with Ending.wait():
            self.stop()
            self._directory.cleanup()

    @property
    def options(self):
        """Options for its processes, which run as nobody if the server refuses to run as root."""
        if self.is_unprivileged and os.geteuid() == 0:
            return {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        return {}

    @property
    def env(self):
        return dict(os.environ)

    def prepare(self):
        pass

    def readable(self, root, directories, program):
        """Returns the path of a program below `root`, or in a copy of these directories if the server's user cannot read the checkout."""
        if self.runs(root / program):
            return root / program
        if self._copy is None:
            say(f"copying {type(self).__name__} to a directory that its user can read")
            self._copy = tempfile.TemporaryDirectory(prefix="lambda-once-programs-")
            copy = Path(self._copy.name)
            for directory in directories:
                shutil.copytree(directory, copy / directory.relative_to(root), symlinks=True, dirs_exist_ok=True)
            copy.chmod(0o755)
        return Path(self._copy.name) / program

    def runs(self, program):
        try:
            command = [program, "--version"]
            return subprocess.run(command, cwd="/", capture_output=True, **self.options).returncode == 0
        except OSError:
            return False

    def log(self):
        return (self.home / "log").read_text(errors="replace")[-2000:]

    def start(self):
        """Starts it, and returns whether it is up."""
        with open(self.home / "log", "a") as output, Ending.wait():
            self._background = Background(
                self.command(), self.stop_signal, cwd=self.home, env=self.env, stdout=output, stderr=subprocess.STDOUT,
                **self.options,
            )
            process = self._background.__enter__()
        return wait_until(self.is_up, START_TIMEOUT_S, process)

    def stop(self):
        with Ending.wait():
            if self._background is not None:
                self.resume()
                self._background.__exit__()
                self._background = None

    def kill(self):
        """Kills it, without a chance to write anything."""
        with Ending.wait():
            self.signal(signal.SIGKILL)
            self._background.process.wait()

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def signal(self, number):
        try:
            os.killpg(self._background.process.pid, number)
        except ProcessLookupError:
            pass
