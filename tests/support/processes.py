"""Processes that a test ends."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes by SIGKILL; those that have ended since they were found are left out."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def with_descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return what a process started, and last the process itself; nothing if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [*process.children(recursive=True), process]
    return []
