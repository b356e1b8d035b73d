"""Shared utilities: Python environments, free ports, and processes that are always stopped."""

import contextlib
import fcntl
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOWNLOADS = ROOT / "target" / "tools"


def say(text):
    """Prints progress to standard error, because standard output belongs to the command."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def must(command, **options):
    """Runs a command that reports its own errors. If it fails, exits."""
    try:
        subprocess.run(command, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


def install(group, otherwise=None):
    """Installs tools/setup/requirements/GROUP.txt into .venv/GROUP unless it exists, and returns its bin directory.

    Every group has a separate environment, so that a target installs no more than it needs and the dependencies of tools
    cannot conflict. `otherwise` is the alternative to report if the packages cannot be installed.
    """
    requirements = ROOT / "tools" / "setup" / "requirements" / f"{group}.txt"
    venv = ROOT / ".venv" / group
    with locked(venv):
        stamp = venv / "installed"
        # The path is part of the stamp because the scripts in a virtual environment contain it.
        wanted = f"{venv}\n{requirements.read_text()}"
        if not stamp.is_file() or stamp.read_text() != wanted:
            say(f"installing {group} into .venv/{group} (once; up to a minute)")
            shutil.rmtree(venv, ignore_errors=True)
            must([sys.executable, "-m", "venv", "--without-pip", venv])
            # The files list all packages, including dependencies.
            command = [*pip(), "--python", venv / "bin" / "python", "install", "--quiet", "--no-compile", "--no-deps"]
            command += ["--root-user-action", "ignore"]
            if subprocess.run([*command, "--requirement", requirements], stdout=sys.stderr).returncode != 0:
                sys.exit(f"{group} could not be installed{f'; {otherwise}' if otherwise else ''}")
            stamp.write_text(wanted)
    return venv / "bin"


def pip():
    """Returns the command of the pip for all environments, which is this Python's if it is recent enough."""
    options = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
    try:
        found = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        found = "0"
    # The first version with the option --python.
    if tuple(map(int, found.split(".")[:2])) >= (22, 3):
        return [sys.executable, *options]
    home = ROOT / ".venv" / "pip"
    with locked(home):
        if not (home / "installed").is_file():
            shutil.rmtree(home, ignore_errors=True)
            must([sys.executable, "-m", "venv", home])
            must([home / "bin" / "python", *options, "install", "--quiet", "--upgrade", "pip>=22.3"])
            (home / "installed").touch()
    return [home / "bin" / "python", *options]


@contextlib.contextmanager
def locked(path):
    """Prevents other processes and threads from preparing the same directory until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f".{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def path_with(*directories):
    """Returns the PATH with these directories in front."""
    return os.pathsep.join([*map(str, directories), os.environ.get("PATH", "")])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(url):
    """Returns whether an HTTP server responds there, with any status."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_until(condition, seconds, process=None, pause=0.1):
    """Polls until the condition holds. Returns False if it does not in time, or if the process ends first."""
    deadline = time.monotonic() + seconds
    while True:
        if process is not None and process.poll() is not None:
            return False
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """The first signal that ends this program, which is deferred while a process is started or stopped."""

    received = None
    deferred = 0

    @classmethod
    def receive(cls, number, _):
        # Later signals would interrupt the cleanup.
        if cls.received is None:
            cls.received = number
            if not cls.deferred:
                sys.exit(128 + number)

    @classmethod
    @contextlib.contextmanager
    def wait(cls):
        cls.deferred += 1
        before = cls.received
        try:
            yield
        finally:
            cls.deferred -= 1
        if before is None and cls.received is not None and not cls.deferred:
            sys.exit(128 + cls.received)


def exit_on_signals():
    """Makes Ctrl-C and similar signals unwind the stack silently, so that background processes are stopped."""
    for number in ENDINGS:
        signal.signal(number, Ending.receive)


class Background:
    """A process in a separate session, stopped with its process group when the block ends.

    The session keeps a Ctrl-C in the terminal from reaching it directly, so that its users can finish first.
    """

    # The time for the processes to end by themselves.
    GRACE_S = 10

    def __init__(self, command, stop=signal.SIGTERM, grace=GRACE_S, **options):
        self.command = command
        self.signal = stop
        self.grace = grace
        self.options = options

    def __enter__(self):
        self.process = None
        try:
            with Ending.wait():
                self.process = subprocess.Popen(
                    self.command, start_new_session=True, **{"stdin": subprocess.DEVNULL, **self.options}
                )
        except BaseException:
            # For example a deferred signal. Nothing else stops the process yet.
            if self.process is not None:
                self.__exit__()
            raise
        return self.process

    def __exit__(self, *_):
        with Ending.wait():
            for number in (self.signal, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
                if self.has_ended(self.grace):
                    break

    def has_ended(self, seconds):
        """Returns whether all processes of the group end within this many seconds."""
        def is_empty():
            if self.process.poll() is None:
                return False
            return not any(group == self.process.pid for _, _, group in processes())
        return wait_until(is_empty, seconds, pause=0.02)


def run(command, env):
    """Runs the command in the foreground and returns its exit code, as a shell does."""
    process = None
    try:
        with Ending.wait():
            process = subprocess.Popen(command, env=env)
        code = process.wait()
    except SystemExit as ending:
        if process is None:
            raise
        # The terminal has also sent a Ctrl-C to the command, which gets some time to end by itself.
        if ending.code != 128 + signal.SIGINT or not wait_until(lambda: process.poll() is not None, 10):
            stop_tree(process)
        raise
    return code if code >= 0 else 128 - code


def stop_tree(process):
    """Ends a process with all its descendants, because `cargo test` does not end them."""
    tree = [process.pid]
    children = {}
    for pid, parent, _ in processes():
        children.setdefault(parent, []).append(pid)
    for pid in tree:
        tree += children.get(pid, [])
    # The ids of ended processes may be reused, so only those that still run get the second signal.
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = {pid for pid, _, _ in processes()} | {process.pid}
        for pid in running.intersection(tree):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        has_ended = lambda: process.poll() is not None and not {pid for pid, _, _ in processes()}.intersection(tree)
        if wait_until(has_ended, Background.GRACE_S):
            return


def processes():
    """Returns the ids of each running process, of its parent, and of its group, without zombies."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True).stdout
        rows = (line.split() for line in listed.splitlines())
        return [(int(pid), int(parent), int(group)) for pid, parent, group, state in rows if not state.startswith("Z")]
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name before the last parenthesis may contain spaces. The state, the parent and the group follow.
            state, parent, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if state != "Z":
            found.append((int(path.parent.name), int(parent), int(group)))
    return found
