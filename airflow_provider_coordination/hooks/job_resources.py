"""What a submitted job has outside the store, its settings and its processes, and how Airflow removes them.

A driver reads the settings once, in a cluster or beside it. Whichever finds that the job has ended or will not begin
removes them: the task, a later try of it, the trigger or the supervisor. So the job's record in the store holds their
location.

In Kubernetes a Secret holds the settings, and the driver's pod mounts it. The extra `kubernetes` installs Airflow's
Kubernetes provider, whose client this module uses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.hooks.connections import aws_settings
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access, is_s3
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.settings import ApplicationSettings, delete_object

DEFAULT_CONN_ID = "kubernetes_default"
FOLDER = "/etc/coordination"
"""Where the Secret is mounted in the driver's pod."""
FILE = "settings.json"
MISSING = (
    "a job in Kubernetes needs Airflow's Kubernetes provider: install airflow-provider-coordination[kubernetes] where "
    "tasks and triggers run"
)
PENDING = "Pending"
NOT_FOUND = 404
REFUSED = (401, 403)


def secret_name(owner: str) -> str:
    """Return the name of a job's Secret, which is derived from its owner."""
    return f"coordination-{hashlib.sha256(owner.encode()).hexdigest()[:32]}"


class DriverSecrets:
    """The Secrets of one namespace. Failures raise; deleting what no longer exists is not a failure.

    :param conn_id: the connection of type `kubernetes`.
    :param namespace: the namespace of the drivers.
    :raises ConfigurationError: if the client is not installed, or the connection cannot be used.
    """

    def __init__(self, conn_id: str, namespace: str) -> None:
        try:
            from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
        except ImportError:
            raise ConfigurationError(MISSING) from None
        self.conn_id = conn_id
        self.namespace = namespace
        try:
            self._api: Any = KubernetesHook(conn_id=conn_id).core_v1_client
        except Exception as error:  # from Airflow, from the client's configuration, or from files
            raise ConfigurationError(
                f"field 'kubernetes_conn_id' is {conn_id!r}, which cannot be used: {type(error).__name__}: {error}"
            ) from None

    def make(self, settings: ApplicationSettings) -> None:
        """Create the Secret of a job.

        :raises ConfigurationError: if the connection has no permission.
        :raises CoordinationError: if the cluster does not respond, or refuses.
        """
        content = json.dumps(write_settings(settings)).encode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret_name(settings.owner),
                "labels": {"app.kubernetes.io/managed-by": "airflow-provider-coordination"},
                "annotations": {
                    "coordination/owner": settings.owner,
                    "coordination/expires-at": format_instant(settings.expires_at),
                },
            },
            "type": "Opaque",
            "immutable": True,
            "data": {FILE: base64.b64encode(content).decode()},
        }
        with self._explained("create secrets"):
            self._api.create_namespaced_secret(self.namespace, secret)

    def belong_to(self, owner: str, pod: str) -> None:
        """Make the driver's pod own the Secret of a job, so that it is deleted with the pod."""
        with self._explained("get pods and patch secrets"):
            uid = self._api.read_namespaced_pod(pod, self.namespace).metadata.uid
            reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
            self._api.patch_namespaced_secret(
                secret_name(owner), self.namespace, {"metadata": {"ownerReferences": [reference]}}
            )

    def delete(self, owner: str) -> None:
        """Delete the Secret of a job."""
        with self._explained("delete secrets", may_be_gone=True):
            self._api.delete_namespaced_secret(secret_name(owner), self.namespace)

    def delete_waiting_pod(self, pod: str) -> None:
        """Delete a driver's pod that has not begun: without its Secret it would wait forever."""
        with self._explained("get and delete pods", may_be_gone=True):
            if self._api.read_namespaced_pod(pod, self.namespace).status.phase == PENDING:
                self._api.delete_namespaced_pod(pod, self.namespace)

    @contextmanager
    def _explained(self, verb: str, *, may_be_gone: bool = False) -> Iterator[None]:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        where = f"connection {self.conn_id!r}, namespace {self.namespace!r}"
        try:
            yield
        except ApiException as error:
            if error.status == NOT_FOUND and may_be_gone:
                return
            if error.status in REFUSED:
                raise ConfigurationError(
                    f"{where}: Kubernetes denied access: {error.status} {error.reason}; give the connection's role "
                    f"the permission to {verb}"
                ) from None
            raise CoordinationError(f"{where}: Kubernetes responded {error.status} {error.reason}") from None
        except HTTPError as error:
            raise CoordinationError(f"{where}: Kubernetes did not respond: {error}") from None


log = logging.getLogger(__name__)

SECRET = "secret"
"""The location is a namespace, which holds the job's Kubernetes Secret."""
OBJECT = "object"
"""The location is the path or URI of a sealed object."""


@dataclass(frozen=True, kw_only=True)
class SettingsLocation:
    """The location of a job's settings.

    :param kind: `SECRET` or `OBJECT`.
    :param conn_id: the connection by which Airflow reaches them: of type `kubernetes`, or `aws`; empty for none.
    :param location: the location itself; its meaning depends on the kind.
    """

    kind: str
    conn_id: str
    location: str

    @classmethod
    def from_text(cls, text: str) -> SettingsLocation:
        """Return the location that `to_text` wrote.

        :raises ConfigurationError: if the text is not a settings location.
        """
        parts = text.split("|", 2)
        if len(parts) != 3 or parts[0] not in (SECRET, OBJECT):
            raise ConfigurationError(f"settings location {text!r} is not valid; it must be 'kind|connection|location'")
        return cls(kind=parts[0], conn_id=parts[1], location=parts[2])

    def to_text(self) -> str:
        """Return the text for the job's record; no connection id contains the separator."""
        return f"{self.kind}|{self.conn_id}|{self.location}"

    @property
    def access(self) -> Access:
        """How Airflow reaches an object.

        :raises ConfigurationError: if the connection cannot be used.
        """
        if not self.conn_id or not is_s3(self.location):
            return DEFAULT_ACCESS
        return Access(((self.location, aws_settings(self.conn_id, service="s3")),))


def remove_settings(job: Job | None) -> None:
    """Delete the rest of a job's settings, and the pod that waits for them; a failure is only logged.

    :param job: a job that no longer needs its settings. A job without a recorded location has none elsewhere.
    """
    if job is None or job.settings is None:
        return
    try:
        location = SettingsLocation.from_text(job.settings)
        if location.kind == OBJECT:
            delete_object(location.location, location.access)
            return
        drivers = DriverSecrets(location.conn_id, location.location)
        if job.cluster_id is not None and not job.was_started:
            drivers.delete_waiting_pod(job.cluster_id.rpartition(":")[2])
        drivers.delete(job.owner)
    except Exception as error:  # of a connection, a cluster or a filesystem: it does not affect the job's outcome
        log.warning("the settings of a job may remain: owner=%s location=%s: %s", job.owner, job.settings, error)


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
    import psutil

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
