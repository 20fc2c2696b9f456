"""Starts the upstream, Redis and the proxies on free loopback ports, and ends each by its process id."""

import contextlib
import ctypes
import hashlib
import http.client
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKERS = 2  # of every proxy, whatever the machine has
START_SECONDS = 10
STOP_SECONDS = 10

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class DidNotStart(Exception):
    """A server that ended, or did not answer, before it could be measured; with what it said."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fill(template, values):
    """The template with each @NAME@ replaced, in order, so that a value may itself hold later names."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", str(value))
    left = re.search(r"@[A-Z_]+@", template)
    if left:
        raise ValueError(f"nothing to put in place of {left.group()}")
    return template


def configure(state, file, values):
    """The path of a configuration file made from the template of that name."""
    configuration = state / file
    configuration.write_text(fill((HERE / "templates" / file).read_text(), values))
    return configuration


def end_with_parent():
    """Runs in the child: it is told to end should we be killed without a chance to end it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def running(name, command, state, answers):
    """Yields the process of a command once answers() holds; ends it on the way out. Its output goes to a log."""
    log = state / f"{name}.log"
    with log.open("wb") as output:  # what an earlier case said is not this one's reason
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


def answers_http(port):
    """True once anything answers a request, a refusal too: the limit under test may already hold."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def nginx_command(configuration):
    # -e: without it nginx first opens the log of the system's nginx.
    return ["nginx", "-e", "stderr", "-c", str(configuration)]


@contextlib.contextmanager
def upstream(state):
    """Yields (process, port) of what every proxy forwards to."""
    port = free_port()
    configuration = configure(state, "upstream.conf", {"STATE": state, "UPSTREAM": port})
    with running("upstream", nginx_command(configuration), state, lambda: answers_http(port)) as process:
        yield process, port


class Redis:
    """A throw-away Redis that keeps nothing on disk."""

    SCRIPT = (HERE / "gcra.lua").read_text()

    def __init__(self, process, port):
        self.process = process
        self.port = port

    @classmethod
    @contextlib.contextmanager
    def started(cls, state):
        port = free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(state)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        with running("redis", command, state, lambda: redis_cli(port, "PING") == "PONG") as process:
            redis_cli(port, "SCRIPT", "LOAD", cls.SCRIPT)
            yield cls(process, port)

    @classmethod
    def script_sha(cls):
        return hashlib.sha1(cls.SCRIPT.encode()).hexdigest()

    def script_calls(self):
        """How many script calls it has served, by whatever command they came."""
        statistics = redis_cli(self.port, "INFO", "commandstats")
        counts = re.findall(r"^cmdstat_(?:eval|evalsha|fcall)(?:_ro)?:calls=(\d+)", statistics, re.MULTILINE)
        return sum(map(int, counts))


def redis_cli(port, *words):
    command = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), *words]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def nginx_module_dir():
    built = subprocess.run(["nginx", "-V"], capture_output=True, text=True).stderr
    return re.search(r"--modules-path=(\S+)", built).group(1)


@contextlib.contextmanager
def proxy(contestant, state, upstream_port, redis, binary):
    """Yields (process, port) of a contestant's proxy."""
    port = free_port()
    values = {"MODULES": "", "LIMIT": "", "STORE": ""}
    values |= contestant.settings
    values |= {"STATE": state, "HERE": HERE, "WORKERS": WORKERS, "PORT": port, "UPSTREAM": upstream_port}
    if contestant.proxy == "nginx":
        values["MODULE_DIR"] = nginx_module_dir()
    if redis:
        values |= {"REDIS": redis.port, "SCRIPT_SHA": Redis.script_sha()}

    file, command = {
        "nginx": ("nginx.conf", nginx_command),
        "haproxy": ("haproxy.cfg", lambda path: ["haproxy", "-db", "-f", str(path)]),
        "tollgate": ("tollgate.toml", lambda path: [str(binary), "run", "--config", str(path)]),
    }[contestant.proxy]
    configuration = configure(state, file, values)
    with running(contestant.proxy, command(configuration), state, lambda: answers_http(port)) as process:
        yield process, port
