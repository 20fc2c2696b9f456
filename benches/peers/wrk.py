"""Drives a port with wrk, for a bounded time, and reads what it measured."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
THREADS = 2
CONNECTIONS = 64
GRACE_SECONDS = 30


class NothingMeasured(Exception):
    """wrk could not reach the port, or did not end in time."""


def drive(port, seconds, script):
    command = ["wrk", f"-t{THREADS}", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency"]
    command += ["-s", str(HERE / script), f"http://127.0.0.1:{port}/orders/4711"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise NothingMeasured(f"wrk does not end within {seconds + GRACE_SECONDS} s") from None
    for line in ran.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise NothingMeasured(f"wrk measured nothing: {ran.stdout.strip()} {ran.stderr.strip()}")


def count_statuses(port, seconds):
    """How many answers there were of each status. Looks at every answer: a warm-up, not a measurement."""
    return {int(status): count for status, count in drive(port, seconds, "statuses.lua").items()}


def measure(port, seconds):
    return drive(port, seconds, "load.lua")
