"""What Linux says of a server's processes: CPU time, memory, and how much the rest of the machine ran meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")


def family(process_id: int) -> list[int]:
    """Return a process and all that descend from it and still live."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    members = [process_id]
    for member in members:
        members.extend(children.get(member, []))
    return members


def cpu_seconds(process_id: int) -> float:
    """Return the user and system time of a process and its descendants."""
    return _total(process_id, lambda member: sum(int(ticks) for ticks in _stat(member)[11:13]) * SECONDS_PER_TICK)


def peak_mib(process_id: int) -> float:
    """Return the most memory that was resident (VmHWM); of several processes the sum of their peaks."""
    return _total(process_id, lambda member: _kib(PROC / str(member) / "status", "VmHWM:") / 1024)


def proportional_mib(process_id: int) -> float:
    """Return the resident memory now, shared pages in proportion (PSS)."""
    return _total(process_id, lambda member: _kib(PROC / str(member) / "smaps_rollup", "Pss:") / 1024)


def machine_busy_seconds() -> float:
    """Return the CPU time that all processes took since boot, and what the hypervisor took from this machine."""
    user, nice, system, _, _, interrupt, soft_interrupt, stolen = (
        int(ticks) for ticks in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + interrupt + soft_interrupt + stolen) * SECONDS_PER_TICK


def _stat(process_id: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command, which may hold blanks and brackets."""
    return (PROC / str(process_id) / "stat").read_text().rsplit(")", 1)[1].split()


def _kib(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


def _total(process_id: int, measure: Callable[[int], float]) -> float:
    total = 0.0
    for member in family(process_id):
        with suppress(OSError):  # it ended meanwhile
            total += measure(member)
    return total
