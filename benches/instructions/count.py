"""Counts every case, prints the figures beside those that are written, and fails beyond them. Started by `run`."""

import argparse
import contextlib
import platform
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import callgrind
import loopback
from cases import CASES, command, configuration, file_name
from load import Load, Upstream

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "figures.toml"

WARM_ROUNDS = 30
ROUNDS = 40
SLACK = 1.02
# The folder of the sources is a part of every symbol's hash, which orders the code: two builds of one commit in two
# folders had up to 13 % other misses, and 0.3 % other instructions.
MISSES_SLACK = 1.15

COLUMNS = {
    "instructions": lambda profile, requests, _: round(profile.totals["Ir"] / requests),
    "l1i_misses": lambda profile, requests, _: round(profile.totals["I1mr"] / requests),
    "allocations": lambda profile, requests, ours: round(profile.allocations / requests, 1) if ours else None,
    "largest_copy": lambda profile, requests, ours: profile.largest_copy(requests) if ours else None,
}


def arguments():
    parser = argparse.ArgumentParser(prog="benches/instructions/run", description="Counts what one request costs.")
    parser.add_argument("--binary", type=Path, help="the tollgate to count, instead of an ordinary release build")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], metavar="CASE", help="repeatable")
    parser.add_argument("--ours", action="store_true", help="without nginx and HAProxy")
    parser.add_argument("--write", action="store_true", help="make what is counted the written figures")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep callgrind's files there, for callgrind_annotate")
    return parser.parse_args()


def tools():
    """What the figures depend on beside the source."""
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split()[1:2]
    return {"compiler": " ".join(rustc), "libc": " ".join(platform.libc_ver()), "machine": platform.machine()}


def store(case, state):
    """A Redis of the case's own, where it asks one."""
    return loopback.redis(state) if case.redis else contextlib.nullcontext((None, None))


def count(case, upstream, binary, state):
    """The figures of one case."""
    port, prefix = loopback.free_port(), state / "callgrind"
    with store(case, state) as (_, redis):
        file = state / file_name(case)
        file.write_text(configuration(case, port, upstream.ports, redis))
        counted = callgrind.command(command(case, file, binary), prefix)
        with loopback.running(counted, state, lambda: loopback.listens(port)) as process:
            load = Load(case, port)
            load.rounds(WARM_ROUNDS)
            callgrind.control(process, "-z")
            requests = load.rounds(ROUNDS)
            callgrind.control(process, "-d")
            profile = callgrind.counted(prefix)
    return {name: figure(profile, requests, case.is_ours) for name, figure in COLUMNS.items()}


def counted(case, upstream, binary, keep):
    """The figures of one case, and callgrind's files in the folder `keep`, if there is one."""
    with tempfile.TemporaryDirectory(prefix="tollgate-instructions-") as folder:
        state = Path(folder)
        counts = count(case, upstream, binary, state)
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for file in state.glob("callgrind.*"):
                file.rename(keep / f"{case.name.replace(' ', '-')}.{file.name}")
    return counts


def lower(one, other):
    return {name: value if value is None else min(value, other[name]) for name, value in one.items()}


def written():
    return tomllib.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}


def write(figures):
    lines = ["# What one request costs at most: lowered in the landing that earns it. `benches/instructions/run --write` writes it.", ""]
    lines += [f'{name} = "{value}"' for name, value in tools().items()]
    for case, counts in figures.items():
        lines += ["", f'["{case}"]'] + [f"{name} = {value}" for name, value in counts.items() if value is not None]
    WRITTEN.write_text("\n".join(lines) + "\n")


def excess(case, counts, bound):
    """What lies beyond the written figures, in words."""
    for name, value in counts.items():
        most = bound.get(name)
        slack = MISSES_SLACK if name == "l1i_misses" else SLACK
        if value is not None and most is not None and value > most * slack:
            yield f"{case}: {name} {value}, written are {most}"


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that every with block is left
    options = arguments()
    binary = options.binary.resolve() if options.binary else loopback.build("release")
    bounds, figures, beyond = written(), {}, []
    print(f"{'a request':24}" + "".join(f"{name:>16}" for name in COLUMNS))
    upstreams = Upstream(), Upstream(http2=True)
    for case in CASES:
        if options.only and case.name not in options.only or options.ours and not case.is_ours:
            continue
        try:
            counts = counted(case, upstreams[case.http2_servers], binary, options.keep)
            beyond_here = list(excess(case.name, counts, bounds.get(case.name, {})))
            if beyond_here and not options.write:
                # Of two counts the lower decides: what differs between them is the order in which answers came.
                counts = lower(counts, counted(case, upstreams[case.http2_servers], binary, options.keep))
                beyond_here = list(excess(case.name, counts, bounds.get(case.name, {})))
        except (OSError, ValueError, loopback.DidNotStart) as error:
            if case.is_ours:
                raise
            print(f"{case.name:24}not counted: {error}")
            continue
        print(f"{case.name:24}" + "".join(f"{'' if value is None else value:>16}" for value in counts.values()), flush=True)
        if case.is_ours:
            figures[case.name] = counts
            beyond += beyond_here
    if options.write:
        write(bounds_of_all(bounds, figures))
        return
    same_tools = all(bounds.get(name) == value for name, value in tools().items())
    for line in beyond:
        print(line)
    if beyond and not same_tools:
        print("the written figures are of other tools, and only those can fail:", tools())
    if beyond and same_tools:
        sys.exit(1)


def bounds_of_all(bounds, figures):
    """The figures of this run over those that were written, in the order of the cases."""
    all_figures = {name: value for name, value in bounds.items() if isinstance(value, dict)} | figures
    return {case.name: all_figures[case.name] for case in CASES if case.name in all_figures}


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
