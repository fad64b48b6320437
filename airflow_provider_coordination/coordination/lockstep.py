"""Work on several leased partitions in lockstep: their next writes are sent together.

A process is a generator. It yields the change of a partition to write. It is then sent the partition as written, or the
error is raised in it. Finally it returns its result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.leases import LeaseChange
from airflow_provider_coordination.coordination.partition import Partition

T = TypeVar("T")

Steps = Generator[LeaseChange, Partition, T]
Write = Callable[[Sequence[LeaseChange]], Sequence[Partition | Exception]]
"""Writes several changes; returns each partition as written, or its error. See `Leases.change_each`."""


def run_in_lockstep(processes: Sequence[Steps[T]], write: Write) -> list[T | Exception]:
    """Run processes to completion; return the result or the error of each one.

    An error of one process does not affect the others. Once the store is unavailable, no further process is started;
    its result is that error.
    """
    results: dict[int, T | Exception] = {}
    changes: dict[int, LeaseChange] = {}
    for n, process in enumerate(processes):
        error = results.get(n - 1)
        if isinstance(error, StoreUnavailableError):
            results[n] = error
        else:
            _advance(n, process, None, changes, results)
    while changes:
        sent, changes = changes, {}
        for n, written in zip(sent, write(list(sent.values())), strict=True):
            _advance(n, processes[n], written, changes, results)
    return [results[n] for n in range(len(processes))]


def run_alone(process: Steps[T], write: Write) -> T:
    """Run one process to completion; return its result.

    :raises Exception: whatever the process raises.
    """
    [result] = run_in_lockstep([process], write)
    if isinstance(result, Exception):
        raise result
    return result


def _advance(
    n: int,
    process: Steps[T],
    written: Partition | Exception | None,
    changes: dict[int, LeaseChange],
    results: dict[int, T | Exception],
) -> None:
    """Run one process until it yields its next change, or ends."""
    try:
        if written is None:
            changes[n] = next(process)
        elif isinstance(written, Exception):
            changes[n] = process.throw(written)
        else:
            changes[n] = process.send(written)
    except StopIteration as end:
        results[n] = end.value
    except Exception as error:  # any error is the result of this process
        results[n] = error
