"""Runs a proxy under callgrind, and reads what it counted: of the thread that did the most."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field

# The caches of an old EPYC, for a figure that does not depend on the machine: bytes, ways, bytes of a line.
CACHES = ("--cache-sim=yes", "--I1=65536,4,64", "--D1=32768,8,64", "--LL=524288,8,64")

ALLOCATION = re.compile(r"^mi_(?:[mz]alloc|calloc|realloc)")  # what Rust asks the allocator for
COPY = re.compile(r"^_*(?:memcpy|memmove)")
WIDEST_STORE = 32  # bytes; callgrind's processor has no wider one
USUAL = 20  # a copy in one of so many requests is of the requests; a timer or a table that grows copies less often


def command(proxy, prefix):
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={prefix}", "--separate-threads=yes", *CACHES, *proxy]


def control(process, word):
    subprocess.run(["callgrind_control", word, str(process.pid)], check=True, capture_output=True)


@dataclass
class Profile:
    """One thread's counts since the last time they were zeroed."""

    totals: Counter = field(default_factory=Counter)
    allocations: int = 0
    copies: list = field(default_factory=list)  # Copies, one for each place that copies

    def largest_copy(self, requests):
        """Bytes of the largest copy that belongs to a request: a place that copies once in a while does other work."""
        return max((copies.bytes // copies.calls for copies in self.copies if copies.calls * USUAL >= requests), default=0)


@dataclass(frozen=True)
class Copies:
    """What one place of the program had copied."""

    calls: int
    bytes: int


def counted(prefix):
    """The thread that did the most, of the files that the last dump left beside `prefix`."""
    # A dump has the number of its part and of its thread behind the name; what is written at the end has no part.
    files = sorted(prefix.parent.glob(f"{prefix.name}.*-*"))
    return max((read(file) for file in files), key=lambda profile: profile.totals["Ir"])


def read(file):
    profile, names, events = Profile(), {}, []
    caller = callee = ""
    calls = 0
    with file.open(errors="replace") as lines:
        for line in lines:
            key, _, value = line.rstrip("\n").partition("=")
            if line.startswith("events: "):
                events = line.split()[1:]
            elif line.startswith(("totals: ", "summary: ")):
                profile.totals = Counter(dict(zip(events, map(int, line.split()[1:]))))
            elif key == "fn":
                caller = name(value, names)
            elif key == "cfn":
                callee = name(value, names)
            elif key == "calls":
                calls = int(value.split()[0])
            elif calls and line[:1] in "0123456789+-*":
                note(profile, caller, callee, calls, dict(zip(events, map(int, line.split()[1:]))))
                calls = 0
    return profile


def name(written, names):
    """Names are written once, and by their number from then on."""
    number, _, text = written.partition(" ")
    return names.setdefault(number, text)


def note(profile, caller, callee, calls, cost):
    if ALLOCATION.search(callee) and not caller.startswith(("mi_", "_mi_")):
        profile.allocations += calls
    if COPY.search(callee) and "tollgate" in caller:
        profile.copies.append(Copies(calls, cost.get("Dw", 0) * WIDEST_STORE))
