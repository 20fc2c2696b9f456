"""Sends a build of Tollgate the traffic that a release is made fast for, so that the compiler learns which code is hot. Started by `release`."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY / "benches"), str(REPOSITORY / "benches" / "instructions")]
import loopback
from cases import CASES, CERTIFICATE, KEY, Case, command, configuration, file_name
from count import store
from load import Http1, Load, Upstream, connected

# Beside the counted cases: with TLS each round also has a handshake of its own.
ENCRYPTED = (Case("tls", tls=True, limits=1), Case("h2 over tls", tls=True, http2=True))

SECONDS = 2  # for each case; more changes no decision of the compiler

BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    "Accept-Encoding: gzip, deflate, br, zstd\r\nCookie: session=0123456789abcdef; theme=dark\r\nDNT: 1\r\n"
    "Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n"
)
CHUNKS = b"".join(b"%x\r\n%s\r\n" % (1000, b"c" * 1000) for _ in range(20)) + b"0\r\n\r\n"


def request(line, fields="", body=b""):
    head = f"{line} HTTP/1.1\r\nHost: gateway.example\r\nX-Api-Key: k2\r\n{fields}\r\n"
    return head.encode() + body


# Beside the cases, on connections of their own: what clients send as well, and answers of other forms.
VISITS = (
    request("GET /orders/4711?page=2&sort=name", BROWSER),
    request("GET /large"),
    request("GET /chunked", BROWSER),
    request("HEAD /orders"),
    request("POST /orders", "Content-Type: application/json\r\nContent-Length: 300\r\n", b"j" * 300),
    request("PUT /orders/1", "Content-Length: 100000\r\n", b"u" * 100_000),
    request("POST /upload", "Transfer-Encoding: chunked\r\n", CHUNKS),
    request("GET /orders", "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"),
)
LAST = "Connection: close\r\n"


def visit(port, tls):
    """All visits on one kept connection, then one that ends its own; each answer is read to its end by a last request that closes."""
    with connected(port, Http1.protocol if tls else None) as connection:
        connection.settimeout(10)
        for message in VISITS:
            connection.sendall(message)
        connection.sendall(request("GET /last", LAST))
        while connection.recv(65536):
            pass


def certify(state):
    """A certificate that lives for a day, and its key."""
    own = ["-keyout", KEY, "-out", CERTIFICATE, "-subj", "/", "-addext", "subjectAltName = DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command = ["openssl", "req", "-x509", "-nodes", "-days", "1", *kind, *own]
    subprocess.run(command, cwd=state, check=True, capture_output=True)


def train(case, upstream, binary, state, seconds):
    """Runs one case for its time; the gateway drains and ends, which is when it writes its profile."""
    port = loopback.free_port()
    with store(case, state) as (_, redis):
        file = state / file_name(case)
        file.write_text(configuration(case, port, upstream.ports, redis))
        if case.tls:
            certify(state)
        with loopback.running(command(case, file, binary), state, lambda: loopback.listens(port)):
            load, requests = Load(case, port), 0
            deadline = time.monotonic() + seconds
            while not requests or time.monotonic() < deadline:
                requests += load.rounds(1)
                # The upstream of HTTP/2 opens no window for long uploads.
                if case.status == 200 and not case.http2 and not case.http2_servers:
                    visit(port, case.tls)
    print(f"trained on: {case.name}, {requests} requests", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="deploy/build/train.py", description="Trains an instrumented build.")
    parser.add_argument("binary", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each case; 0 is one round of it")
    options = parser.parse_args()
    binary = options.binary.resolve()
    upstreams = Upstream(), Upstream(http2=True)
    for case in [case for case in CASES if case.is_ours] + list(ENCRYPTED):
        needed = "redis-server" if case.redis else "openssl" if case.tls else None
        if needed and not shutil.which(needed):
            print(f"left out of the training, because no {needed} is installed: {case.name}")
            continue
        with tempfile.TemporaryDirectory(prefix="tollgate-training-") as folder:
            train(case, upstreams[case.http2_servers], binary, Path(folder), options.seconds)


if __name__ == "__main__":
    main()
