"""Starts Redis and the proxies on free loopback ports, each proxy on a core of its own."""

import contextlib
import hashlib
import re
import subprocess
from pathlib import Path

import loopback
from load import PROXY_CORE

HERE = Path(__file__).resolve().parent
WORKERS = 1  # of every proxy, on the one core that it has


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


def nginx_command(configuration):
    # -e: without it nginx first opens the log of the system's nginx.
    return ["nginx", "-e", "stderr", "-c", str(configuration)]


def envoy_command(configuration):
    # Each process is its own: several on one machine share no segment for restarts.
    alone = ["--disable-hot-restart", "--log-level", "error"]
    return ["envoy", "-c", str(configuration), "--concurrency", str(WORKERS), *alone]


class Redis:
    """A throw-away Redis that keeps nothing on disk."""

    SCRIPT = (HERE / "gcra.lua").read_text()

    def __init__(self, process, port):
        self.process = process
        self.port = port

    @classmethod
    @contextlib.contextmanager
    def started(cls, state):
        with loopback.redis(state) as (process, port):
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
def proxy(contestant, state, port, upstream_port, redis, binary):
    """Yields the process of a contestant's proxy."""
    values = {"MODULES": "", "LIMIT": "", "STORE": "", "FIELDS": ""}
    values |= contestant.settings
    values |= {"STATE": state, "HERE": HERE, "WORKERS": WORKERS, "PORT": port, "UPSTREAM": upstream_port}
    if contestant.proxy == "nginx":
        values["MODULE_DIR"] = nginx_module_dir()
    if redis:
        values |= {"REDIS": redis.port, "SCRIPT_SHA": Redis.script_sha()}

    file, command = {
        "nginx": ("nginx.conf", nginx_command),
        "envoy": ("envoy.yaml", envoy_command),
        "haproxy": ("haproxy.cfg", lambda path: ["haproxy", "-db", "-f", str(path)]),
        "tollgate": ("tollgate.toml", lambda path: [str(binary), "run", "--config", str(path)]),
    }[contestant.proxy]
    configuration = configure(state, file, values)
    pinned = ["taskset", "-c", PROXY_CORE, *command(configuration)]
    with loopback.running(pinned, state, lambda: loopback.listens(port)) as process:
        yield process
