"""Trees of processes, from /proc: for the test, which must find Spark's processes, and for the benchmark."""

import contextlib
import glob
import os


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path) as file:
            found += map(int, file.read().split())
    return found


def descendants(pid):
    return [x for child in children(pid) for x in (child, *descendants(child))]


def cpu_seconds(pid):
    """What a process, those below it, and those of them that ended have used."""
    ticks = 0
    for process in (pid, *descendants(pid)):
        with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))  # utime, stime, and both of children that ended (proc(5))
    return ticks / os.sysconf("SC_CLK_TCK")
