"""Drives a proxy with the load program beside this file: clients and server in one thread that never sleeps."""

import contextlib
import json
import os
import select
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRACE_SECONDS = 30
# The load on one core, the proxy on another. Redis is left to the kernel.
LOAD_CORE, PROXY_CORE = "0", str((os.cpu_count() or 1) - 1)


class NothingMeasured(Exception):
    """The load could not reach the proxy, or did not end in time."""


def built(state):
    """The path of the load program, compiled."""
    program = state / "load"
    subprocess.run(["rustc", "--edition", "2024", "-O", "-o", str(program), str(HERE / "load.rs")], check=True)
    return program


class Load:
    """One load program with its connections, behind and before one proxy."""

    def __init__(self, process):
        self.process = process

    @classmethod
    @contextlib.contextmanager
    def started(cls, program, proxy, upstream, connections, keys):
        command = ["taskset", "-c", LOAD_CORE, str(program), *map(str, (proxy, upstream, connections, keys))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        load = cls(process)
        try:
            load.line(GRACE_SECONDS)
            yield load
        finally:
            process.kill()
            process.communicate()

    def run(self, seconds):
        """What so many seconds of load came to."""
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return json.loads(self.line(seconds + GRACE_SECONDS))

    def line(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            raise NothingMeasured(f"the load ended without a figure: {self.process.stderr.read().strip()}")
        return line
