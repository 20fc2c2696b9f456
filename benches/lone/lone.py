"""What a Redis limit adds to one request at a time, beside a bare client that asks Redis the same. Started by `run`."""

import argparse
import ast
import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "instructions")]
import loopback
from cases import CASES, configuration
from load import BODY, Upstream

TIMES = 400
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: k1\r\n\r\n"
# The gateway and the bare client have one core, Redis and everything else the other: whoever waits for Redis is woken
# from the other core.
OURS, OTHERS = "0", "1"


def arguments():
    parser = argparse.ArgumentParser(prog="benches/lone/run", description="Measures what a Redis limit adds to a lone request.")
    parser.add_argument("--binary", type=Path, help="the tollgate to measure, instead of an ordinary release build")
    parser.add_argument("--rounds", type=int, default=12, help="each measures everything once, in turn")
    return parser.parse_args()


def asked(redis, ask):
    """What the gateway sends to Redis for one request, as bytes of the protocol."""
    with socket.create_connection(("127.0.0.1", redis)) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        said = monitor.recv(100)
        ask()
        deadline = time.monotonic() + 10
        while not (call := re.search(rb'"EVALSHA".*\r\n', said)) and time.monotonic() < deadline:
            said += monitor.recv(65536)
    words = [ast.literal_eval("b" + word) for word in re.findall(r'"(?:[^"\\]|\\.)*"', call[0].decode("latin-1"))]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def on(core, *command):
    return ["taskset", "-c", core, *map(str, command)]


def main():
    options = arguments()
    binary = options.binary.resolve() if options.binary else loopback.build("release")
    cases = {case.name: case for case in CASES if case.name in ("plain", "redis limit")}
    os.sched_setaffinity(0, {int(OTHERS)})
    # Where that is allowed, everything here runs before all other work of the machine; children inherit it.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    upstream = Upstream()
    with tempfile.TemporaryDirectory(prefix="tollgate-lone-") as folder, contextlib.ExitStack() as stack:
        state = Path(folder)
        client = state / "client"
        subprocess.run(["rustc", "--edition", "2021", "-O", "-o", client, HERE / "client.rs"], check=True)
        server, redis = stack.enter_context(loopback.redis(state))
        subprocess.run(["taskset", "-acp", OTHERS, str(server.pid)], check=True, stdout=subprocess.DEVNULL)
        ports = {}
        for name, case in cases.items():
            ports[name] = port = loopback.free_port()
            home = state / name.replace(" ", "-")
            home.mkdir()
            file = home / "gateway.toml"
            file.write_text(configuration(case, port, upstream.ports, redis))
            command = on(OURS, binary, "run", "--config", file)
            stack.enter_context(loopback.running(command, home, lambda port=port: loopback.listens(port)))
        time.sleep(1)
        (state / "request").write_bytes(REQUEST)

        def median(core, times, *servers):
            command = on(core, client, times, *(word for server in servers for word in server))
            return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1000

        def gateway(name):
            return ports[name], state / "request", BODY.decode()

        def ask(name, times=TIMES):
            return median(OTHERS, times, gateway(name))

        (state / "call").write_bytes(asked(redis, lambda: ask("redis limit", 1)))
        bare = redis, state / "call", "\r\n"
        rounds = [
            (ask("plain"), ask("redis limit"), median(OURS, TIMES, bare), median(OURS, TIMES, bare, gateway("plain")))
            for _ in range(options.rounds)
        ]
    report(rounds)


def report(rounds):
    """Prints the least and the median of the rounds' medians."""
    plain, limited, bare, between = zip(*rounds)
    added = [limited - plain for plain, limited, *_ in rounds]
    print(f"{'p50, microseconds':32}{'least':>10}{'median':>10}")
    names = {"plain": plain, "redis limit": limited, "bare round trip": bare, "the same between requests": between}
    for name, values in names.items():
        print(f"{name:32}{min(values):10.1f}{statistics.median(values):10.1f}")
    least = min(limited) - min(plain)
    print(f"{'added':32}{least:10.1f}{statistics.median(added):10.1f}")
    for name, trips in (("added / bare", bare), ("added / bare between requests", between)):
        ratio = statistics.median(one / trip for one, trip in zip(added, trips))
        print(f"{name:32}{least / min(trips):10.2f}{ratio:10.2f}")


if __name__ == "__main__":
    main()
