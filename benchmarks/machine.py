"""The machine that figures come from."""

import os
import platform
from importlib.metadata import version


def describe() -> dict[str, str | int | float]:
    """By name. `load`: runnable tasks over the last minute; above 1 or so, somebody else was at work too."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nixl": version("nixl"),
        "grpcio": version("grpcio"),
    }


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used, in steps of the kernel's clock tick (10 ms)."""
    with open(f"/proc/{pid}/stat") as file:
        # The name, in parentheses, may hold spaces; utime and stime are fields 14 and 15 of proc(5).
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
