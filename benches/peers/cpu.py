"""Reads how much CPU time a process and everything it started have used."""

import contextlib
import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(root):
    """Seconds that the threads of a process and of its children have run, to the nanosecond."""
    nanoseconds, left = 0, [root]
    while left:
        # A thread or a child may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{left.pop()}/task").iterdir():
                nanoseconds += int((task / "schedstat").read_text().split()[0])
                left += (task / "children").read_text().split()
    return nanoseconds / 1e9


def seconds_of_machine():
    """Seconds in which the machine's cores, summed, were busy with anything, or taken away by its host."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
        int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS
