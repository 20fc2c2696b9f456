"""What the measurements in Python have in common: a build, free ports, and servers that are ended by their process id."""

import contextlib
import ctypes
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
START_SECONDS = 120  # under valgrind, beside a busy machine
STOP_SECONDS = 30

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class DidNotStart(Exception):
    """A server that ended, or did not answer, before it could be measured; with what it said."""


def build(profile):
    """The path of a fresh build of that profile."""
    command = ["cargo", "build", "--profile", profile, "--locked", "--bin", "tollgate"]
    built = subprocess.run([*command, "--message-format=json-render-diagnostics"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("tollgate does not build; --binary PATH measures another")
    artifacts = map(json.loads, built.stdout.splitlines())
    return Path([artifact["executable"] for artifact in artifacts if artifact.get("executable")][-1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Does anything accept connections there?"""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def end_with_parent():
    """Runs in the child: it is told to end should this process be killed without a chance to end it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def running(command, state, answers):
    """Yields the process of a command once `answers()` holds; ends it, and it alone, on the way out. Its output goes to a log."""
    name = Path(command[3] if command[0] == "taskset" else command[0]).name
    log = state / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=state,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
    try:
        wait_for(name, process, log, answers)
        yield process
    finally:
        end(process)


def wait_for(name, process, log, answers):
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            why = f"ended with {process.returncode}" if ended else f"does not answer within {START_SECONDS} s"
            said = log.read_text(errors="replace").strip()[-2000:]
            raise DidNotStart(f"{name} {why}: {said}")
        time.sleep(0.02)


def end(process):
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis(state):
    """Yields (process, port) of a Redis that keeps nothing on disk."""
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(state), "--save", "", "--appendonly", "no"]
    with running(command, state, lambda: listens(port)) as process:
        yield process, port
