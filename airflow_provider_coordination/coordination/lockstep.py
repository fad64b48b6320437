"""Work on several leased partitions, in step: what each wants to write next is written together.

A process is a generator. It yields the change of a partition that it wants written, is sent the partition as written,
or has raised in it why it was not, and returns its result.
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
"""Writes several changes and returns what became of each; see `Leases.change_each`."""


def in_step(processes: Sequence[Steps[T]], write: Write) -> list[T | Exception]:
    """Take processes to their ends; return for each its result, or what it raises.

    What one raises holds no other. Once the store does not answer, no further one is begun: its result is that error.
    """
    results: dict[int, T | Exception] = {}
    wanted: dict[int, LeaseChange] = {}
    for n, process in enumerate(processes):
        away = results.get(n - 1)
        if isinstance(away, StoreUnavailableError):
            results[n] = away
        else:
            _go_on(n, process, None, wanted, results)
    while wanted:
        asked, wanted = wanted, {}
        for n, answer in zip(asked, write(list(asked.values())), strict=True):
            _go_on(n, processes[n], answer, wanted, results)
    return [results[n] for n in range(len(processes))]


def alone(process: Steps[T], write: Write) -> T:
    """Take one process to its end; return its result.

    :raises Exception: what it raises.
    """
    [result] = in_step([process], write)
    if isinstance(result, Exception):
        raise result
    return result


def _go_on(
    n: int,
    process: Steps[T],
    answer: Partition | Exception | None,
    wanted: dict[int, LeaseChange],
    results: dict[int, T | Exception],
) -> None:
    """Take one process to the next change that it wants written, or to its end."""
    try:
        if answer is None:
            wanted[n] = next(process)
        elif isinstance(answer, Exception):
            wanted[n] = process.throw(answer)
        else:
            wanted[n] = process.send(answer)
    except StopIteration as end:
        results[n] = end.value
    except Exception as error:  # whatever it is, it is this one's
        results[n] = error
