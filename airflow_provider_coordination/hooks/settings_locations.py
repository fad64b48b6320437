"""The location of a job's settings in a cluster or beside it, and how Airflow removes the settings.

A driver reads the settings once. Whichever finds that the job has ended or will not begin removes them: the task, a
later try of it, the trigger or the supervisor. So the job's record in the store holds their location.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.jobs import Job
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.kubernetes import DriverSecrets
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access, is_s3
from airflow_provider_coordination.spark.settings_reference import delete_object

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
