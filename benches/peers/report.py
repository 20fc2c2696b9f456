"""Turns measurements into medians, ratios and verdicts, and prints them for a person."""

import dataclasses
import os
import platform
import re
import shutil
import statistics
import subprocess
from pathlib import Path

from cases import RATIOS
from servers import WORKERS

FIGURES = ("requests_per_second", "p50_ms", "p99_ms", "proxy_us", "redis_us", "script_calls", "refused")


def summarize(measurements, machine, seconds, rounds):
    """Everything the report says, as plain data."""
    groups = {}
    for measurement in measurements:
        groups.setdefault((measurement.case, measurement.name), []).append(measurement)
    rows = [medians(case, name, group) for (case, name), group in groups.items()]
    return {
        "machine": machine,
        "load": {
            "seconds": seconds,
            "rounds": rounds,
            "proxy_workers": WORKERS,
        },
        "rows": rows,
        "ratios": ratios(rows),
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }


def medians(case, name, group):
    """The medians of a contestant's quiet rounds, or of all where none was.

    One invalid round makes the contestant invalid: it is shown, not averaged away.
    """
    quiet = [measurement for measurement in group if measurement.quiet]
    counted = quiet or group
    costs = [measurement.proxy_us for measurement in counted if measurement.proxy_us is not None]
    return {
        "case": case,
        "name": name,
        **{figure: median(getattr(measurement, figure) for measurement in counted) for figure in FIGURES},
        "least": min(map(total, counted), default=None) if costs else None,
        "spread": (max(costs) - min(costs)) / statistics.median(costs) if costs else None,
        "rounds": len(group),
        "quiet_rounds": len(quiet),
        "problems": sorted({problem for measurement in group for problem in measurement.problems}),
    }


def median(values):
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def ratios(rows):
    measured = {(row["case"], row["name"]): row for row in rows}
    pairs = [(ratio, measured.get((ratio.case, ratio.of)), measured.get((ratio.case, ratio.to))) for ratio in RATIOS]
    return [verdict(ratio, of, to) for ratio, of, to in pairs if of and to]


def verdict(ratio, of, to):
    invalid = bool(of["problems"] or to["problems"])
    value = None if invalid else cost(of) / cost(to)
    least = None if invalid else of["least"] / to["least"]
    calls_kept = ratio.script_calls is None or invalid or of["script_calls"] <= ratio.script_calls

    return {
        **dataclasses.asdict(ratio),
        "value": value,
        "least": least,
        "latency_value": None if invalid else of["p50_ms"] / to["p50_ms"],
        # A neighbour disturbs one of the two figures easily, and both seldom.
        "met": None if ratio.most is None or invalid else min(value, least) <= ratio.most and calls_kept,
        "script_calls_measured": of["script_calls"] if ratio.script_calls is not None else None,
        "disturbed": not (of["quiet_rounds"] and to["quiet_rounds"]),
    }


def cost(row):
    """CPU microseconds per request, of the proxy and of the Redis it asks: the medians."""
    return row["proxy_us"] + (row["redis_us"] or 0)


def total(measurement):
    """The same of one measurement."""
    return measurement.proxy_us + (measurement.redis_us or 0) if measurement.proxy_us is not None else float("inf")


def machine(binary):
    versions = {
        "nginx": version(["nginx", "-v"], r"nginx/(\S+)"),
        "haproxy": version(["haproxy", "-v"], r"version (\S+)"),
        "redis": version(["redis-server", "--version"], r"v=(\S+)"),
    }
    if shutil.which("envoy"):
        versions["envoy"] = version(["envoy", "--version"], r"/([\d.]+)/")
    if binary:
        versions["tollgate"] = version([str(binary), "--version"], r"tollgate (\S+)")
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": versions,
    }


def version(command, pattern):
    ran = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, ran.stdout + ran.stderr)
    return found.group(1) if found else "unknown"


def processor():
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else "unknown"


def progress(measurement):
    name = f"{measurement.case:<15} {measurement.name:<19}"
    if measurement.problems:
        return f"{name} INVALID: {'; '.join(measurement.problems)}"
    redis = "" if measurement.redis_us is None else f" + {measurement.redis_us:.1f} redis"
    others = "" if measurement.quiet else f"  (disturbed: {measurement.others:.0%} of the busy time was not ours)"
    return f"{name} {measurement.requests_per_second:>8.0f}/s  {measurement.proxy_us:.1f}{redis} us/request{others}"


def text(result):
    return "\n".join([*heading(result), "", *table(result["rows"]), "", *ratio_table(result["ratios"])])


def heading(result):
    machine, load = result["machine"], result["load"]
    yield f"machine   {machine['cores']} cores, {machine['processor']}, {machine['kernel']}"
    yield "versions  " + ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    yield (
        f"load      {load['seconds']} s by one thread that never sleeps, {load['rounds']} rounds, "
        f"{load['proxy_workers']} worker per proxy, on a core of its own"
    )


COLUMNS = (
    # title, figure, format, factor
    ("req/s", "requests_per_second", ".0f", 1),
    ("p50 ms", "p50_ms", ".2f", 1),
    ("p99 ms", "p99_ms", ".2f", 1),
    ("proxy us", "proxy_us", ".1f", 1),
    ("redis us", "redis_us", ".1f", 1),
    ("calls/req", "script_calls", ".3f", 1),
    ("refused %", "refused", ".1f", 100),
    ("spread %", "spread", ".0f", 100),
)


def table(rows):
    yield f"{'case':<15} {'who':<19}" + "".join(f"{title:>10}" for title, *_ in COLUMNS) + f"{'quiet':>7}"
    for row in rows:
        figures = "".join(f"{number(row[figure], form, factor):>10}" for _, figure, form, factor in COLUMNS)
        yield f"{row['case']:<15} {row['name']:<19}{figures}{row['quiet_rounds']:>5}/{row['rounds']}"
        for problem in row["problems"]:
            yield f"         INVALID: {problem}"
    yield "us: CPU microseconds per request. Medians and spread are of the quiet rounds, or of all where none was."


def number(value, form, factor):
    return "-" if value is None else format(value * factor, form)


def ratio_table(ratios):
    if not ratios:
        yield "no ratio: Tollgate or its peer was not measured"
        return
    yield f"{'CPU per request, proxy and Redis together':<54}{'medians':>8}{'minima':>8}{'p50':>7}   at most"
    for ratio in ratios:
        who = f"{ratio['case']:<15} {ratio['of']} / {ratio['to']}"
        values = "".join(
            f"{'-' if value is None else format(value, '.2f'):>{width}}"
            for value, width in ((ratio["value"], 8), (ratio["least"], 8), (ratio["latency_value"], 7))
        )
        calls = ratio["script_calls_measured"]
        asked = "" if calls is None else f"   script calls per request {calls:.4f}, at most {ratio['script_calls']}"
        latency = "" if ratio["latency"] is None else f"   p50 at most {ratio['latency']:.2f}"
        disturbed = "   (disturbed: no quiet round)" if ratio["disturbed"] else ""
        yield f"{who:<54}{values}   {target(ratio['most'], ratio['met'])}{latency}{asked}{disturbed}".rstrip()


def target(bound, met):
    if bound is None:
        return "-"
    return f"{bound:.2f} " + {True: "met", False: "missed", None: "unknown"}[met]
