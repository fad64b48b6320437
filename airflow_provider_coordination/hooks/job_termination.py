"""Ends a job that was submitted without waiting for it, from a task or from the triggerer: its processes and leases."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.hooks.settings_locations import remove_settings
from airflow_provider_coordination.spark.outcome import Outcome

log = logging.getLogger(__name__)

END_TIMEOUT_SECONDS = 2.0


def settings_file_of(job_log: str) -> Path:
    """Return the path of a job's settings file, which is beside its output."""
    folder = Path(job_log).parent
    return folder / f"{folder.name}.json"


def end_local_processes(job_log: str | None) -> bool:
    """Kill the processes of a job on this machine, and delete the files that travelled to it.

    :param job_log: the path of its output, which no other job has; None if it was submitted to a cluster.
    :returns: whether there were any processes.
    """
    if job_log is None:
        return False
    settings_file = settings_file_of(job_log)
    processes = job_processes(str(settings_file))
    end_processes(processes)
    for left in settings_file.parent.glob("*"):
        if left != Path(job_log):
            with suppress(OSError):
                left.unlink()
    return bool(processes)


def stop_job(
    coordinator: SourceCoordinator, owner: str, reason: str, *, was_killed: bool, removes_settings: bool = True
) -> None:
    """Request a job to stop, or release its leases at once if it is known to be dead; delete its settings.

    :param coordinator: a coordinator of the job's source, for another owner than the job.
    :param owner: the job's owner.
    :param was_killed: whether its processes were killed just now.
    :param removes_settings: False if Airflow cannot be queried for a connection.
    """
    jobs = Jobs(coordinator.view)
    if jobs.request_stop(owner, reason):
        log.info("job requested to stop: source=%s owner=%s: %s", coordinator.source, owner, reason)
    if removes_settings:  # a job that has not begun will not begin
        remove_settings(jobs.get(owner))
    if not was_killed:
        return
    jobs.end(owner, Outcome(exit_code=-signal.SIGKILL, error=f"stopped: {reason}").to_mapping())
    keys = coordinator.give_up_owner(owner)
    log.info(
        "job killed, %d leases released: source=%s owner=%s partitions=%s: %s",
        len(keys), coordinator.source, owner, ", ".join(keys) or "none", reason,
    )  # fmt: skip


def job_processes(argument: str) -> list[Any]:
    """Return the processes on this machine that were started with an argument, and all their descendants.

    The Python process of a driver may outlive a killed `spark-submit`, and would continue to lease partitions.

    :param argument: an argument that only the processes of one job have, such as the path of their settings file.
    """
    import psutil  # type: ignore[import-untyped]

    processes: dict[int, Any] = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and argument in process.cmdline():
                processes |= {related.pid: related for related in (process, *process.children(recursive=True))}
        except psutil.Error:  # the process has ended, or this user may not see it
            continue
    return list(processes.values())


def end_processes(processes: Iterable[Any]) -> None:
    """Kill processes, and wait briefly until they have ended.

    :param processes: processes as `job_processes` returns them; those that have ended are skipped.
    """
    import psutil

    processes = list(processes)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(process: Any) -> bool:
    # Not process.wait(): it would take the exit code away from the parent process.
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
