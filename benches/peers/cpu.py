"""Reads how much CPU time a process and everything it started have used."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")

# Fields of /proc/PID/stat, counted from the one behind the name, which may itself hold spaces.
PARENT, UTIME, STIME, CHILDREN_UTIME, CHILDREN_STIME = 1, 11, 12, 13, 14


@dataclass(frozen=True)
class Stat:
    parent: int
    ticks: int


def read_stat(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(fields[at]) for at in (UTIME, STIME, CHILDREN_UTIME, CHILDREN_STIME))
    return Stat(int(fields[PARENT]), ticks)


def read_all_stats():
    stats = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stats[int(entry)] = read_stat(entry)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it ended while we were reading
    return stats


def seconds_of(root):
    """User and system seconds of a process: its threads, its children and theirs, and those already ended."""
    stats = read_all_stats()
    family, found = {root}, {root}
    while found:
        found = {pid for pid, stat in stats.items() if stat.parent in found} - family
        family |= found
    return sum(stats[pid].ticks for pid in family) / TICKS


def seconds_of_machine():
    """Seconds in which the machine's cores, summed, were busy with anything, or taken away by its host."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
        int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS
