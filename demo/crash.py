"""The crash: one Spark job is killed with SIGKILL in the middle of a round, and another job takes over its work.

The worst moment is when a batch is landed and recorded in the store, but not yet delivered. That moment is short. So
the driver is halted first, and the store is read again. If the batch was delivered in between, the driver continues
unharmed, and the demo waits for the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.hooks.job_resources import end_processes, job_processes
from airflow_provider_coordination.sources.kinds import progress_of
from demo.observation import Observation

APPLICATION = "ingest.py"
POLL_SECONDS = 0.002
SETTLE_SECONDS = 0.01
"""How long the threads of a halted process may take to stop."""


@dataclass(frozen=True)
class Driver:
    """A running job: its owner's name, its settings file, and its Python process."""

    owner: str
    settings_file: str
    python: psutil.Process


@dataclass(frozen=True)
class Crash:
    """The killed job.

    :param owner: the owner of the job.
    :param at: the time of the kill, by the monotonic clock.
    :param processes: the number of its processes.
    :param partitions: the keys of its leased partitions.
    :param batches: batches that were recorded but not yet delivered.
    """

    owner: str
    at: float
    processes: int
    partitions: tuple[str, ...]
    batches: tuple[str, ...]


def drivers(scratch: Path) -> list[Driver]:
    """Return the jobs whose settings file is below a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, ValueError):
            command = process.cmdline()
            # The driver's JVM has the same arguments, after many others.
            if len(command) < 4 or "python" not in Path(command[0]).name or Path(command[-3]).name != APPLICATION:
                continue
            settings, owner = command[-2:]
            if Path(settings).is_relative_to(scratch):
                found.append(Driver(owner, settings, process))
    return found


def kill_in_mid_round(observation: Observation, running: list[Driver], check: Callable[[], None]) -> Crash:
    """Wait until one of these jobs has a batch that is recorded but not delivered, and kill the job.

    :param check: called during the wait; raises to end it.
    """
    by_owner = {driver.owner: driver for driver in running}
    while True:
        check()
        for partition in observation.view.partitions(PartitionStatus.ASSIGNED):
            driver = by_owner.get(str(partition.owner))
            if driver is not None and progress_of(partition).landed:
                crash = _kill_if_mid_round(observation, driver)
                if crash is not None:
                    return crash
        time.sleep(POLL_SECONDS)


def is_taken_over(partition: Partition | None, crash: Crash) -> bool:
    """Return whether another job has taken over a partition of the killed job, or has finished it."""
    if partition is None:
        return False
    return partition.status is PartitionStatus.COMPLETED or partition.owner not in (None, crash.owner)


def _kill_if_mid_round(observation: Observation, driver: Driver) -> Crash | None:
    driver.python.suspend()
    try:
        time.sleep(SETTLE_SECONDS)
        held = observation.leases().get(driver.owner, [])
        batches = tuple(batch.batch_id for partition in held for batch in progress_of(partition).landed)
        if not batches:
            return None
        processes = job_processes(driver.settings_file)
        at = time.monotonic()
        end_processes(processes)
        return Crash(driver.owner, at, len(processes), tuple(p.partition_key for p in held), batches)
    finally:
        with suppress(psutil.NoSuchProcess):
            driver.python.resume()
