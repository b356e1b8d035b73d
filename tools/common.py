"""What the tools share: Python environments, free ports, processes that are always stopped, and functions run locally."""

import contextlib
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

ROOT = Path(__file__).resolve().parent.parent
DOWNLOADS = ROOT / "target" / "tools"


def say(text):
    """Progress goes to standard error: standard output belongs to the command that is run."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def must(command, **options):
    """Runs a command that speaks for itself when it fails, and then ends this program."""
    try:
        subprocess.run(command, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


def install(group):
    """Installs tools/requirements/GROUP.txt into .venv/GROUP, unless it is there; returns its bin directory.

    Every group has an environment of its own, so that a target installs no more than it needs and the tools'
    dependencies cannot conflict.
    """
    requirements = ROOT / "tools" / "requirements" / f"{group}.txt"
    venv = ROOT / ".venv" / group
    stamp = venv / "installed"
    # The path is part of the stamp because the scripts in a virtual environment contain it.
    wanted = f"{venv}\n{requirements.read_text()}"
    if not stamp.is_file() or stamp.read_text() != wanted:
        if sys.version_info < (3, 10):
            sys.exit(f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}")
        say(f"installing {group} into .venv/{group} (once; up to a minute)")
        shutil.rmtree(venv, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", venv]).returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            sys.exit("cannot create a virtual environment; on Debian: apt-get install python3-venv")
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        must([*pip, "install", "--quiet", "--requirement", requirements])
        stamp.write_text(wanted)
    return venv / "bin"


def build(binary):
    """The path of a binary of the workspace, which is built first, with the features that `make test` builds with."""
    must(["cargo", "build", "--quiet", "--workspace", "--all-features", "--bin", binary], cwd=ROOT)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / binary


def path_with(*directories):
    """The PATH with these directories in front."""
    return os.pathsep.join([*map(str, directories), os.environ.get("PATH", "")])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(url):
    """Whether an HTTP server answers there, with whatever status."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_until(condition, seconds, process=None):
    """Polls until the condition holds. False if it does not in time, or if the process ends first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            return False
        if condition():
            return True
        time.sleep(0.1)
    return False


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals():
    """Lets Ctrl-C and the like unwind the stack quietly, so that background processes are stopped."""
    for sig in ENDINGS:
        signal.signal(sig, lambda number, _: sys.exit(128 + number))


class Background:
    """A process in a session of its own, stopped with all its children when the block is left.

    The session keeps a Ctrl-C in the terminal from reaching it directly, so that whatever uses it can finish first.
    """

    def __init__(self, command, **options):
        self.command = command
        self.options = options

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, start_new_session=True, stdin=subprocess.DEVNULL, **self.options
        )
        return self.process

    def __exit__(self, *_):
        for sig in ENDINGS:
            signal.signal(sig, signal.SIG_IGN)
        for sig in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sig)
                self.process.wait(timeout=10)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        exit_on_signals()


def run(command, env):
    """Runs the command in the foreground and returns its exit code, as a shell would give it."""
    process = subprocess.Popen(command, env=env)
    try:
        code = process.wait()
    except SystemExit as ending:
        try:
            # A Ctrl-C has reached the command too, from the terminal: it is left some time to end by itself.
            process.wait(timeout=10 if ending.code == 128 + signal.SIGINT else 0)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        raise
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def local_functions():
    """The environment in which cargo lambda watch runs the functions, with an embedded DynamoDB until the block is left.

    The tables start empty. What the environment of this program sets beyond that reaches the functions.
    """
    env = {
        **os.environ,
        "PATH": path_with(install("cargo-lambda")),
        "IDEMPOTENCY_TABLE": "idempotency",
        "LEDGER_TABLE": "ledger",
        # The SDK wants a Region and credentials; the embedded DynamoDB accepts any.
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    say("building the embedded DynamoDB (the first time some minutes)")
    database = [build("local-dynamodb")]
    with Background(database, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        name, _, endpoint = process.stdout.readline().strip().partition("=")
        if name != "DYNAMODB_ENDPOINT":
            sys.exit("the embedded DynamoDB did not start")
        yield {**env, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}


def watch(port, *options):
    """The command that serves the functions at this port of 127.0.0.1."""
    # Named, because cargo lambda listens on every interface otherwise.
    return ["cargo", "lambda", "watch", "--invoke-address", "127.0.0.1", "--invoke-port", str(port), *options]
