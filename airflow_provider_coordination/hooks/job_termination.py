"""Ends a job that was submitted without waiting for it, from a task or from the triggerer."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from pathlib import Path

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.hooks.settings_locations import remove_settings
from airflow_provider_coordination.operators.packaging import end_processes, job_processes
from airflow_provider_coordination.spark.outcome import Outcome

log = logging.getLogger(__name__)


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
