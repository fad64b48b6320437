"""Where the settings of a job lie in a cluster, or beside it, and how Airflow removes what is left of them.

A driver reads them once. Who finds that the job ended, or will not begin, removes them: the task, a later try of it,
the trigger, the supervisor. So the job's record in the store says where they are.
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
"""The Secret of a job, in the namespace that the location names."""
OBJECT = "object"
"""A sealed object, under the path or URI that the location is."""


@dataclass(frozen=True, kw_only=True)
class SettingsPlace:
    """Where settings lie.

    :param kind: `SECRET` or `OBJECT`.
    :param conn_id: the connection by which Airflow reaches them: of type `kubernetes`, or `aws`; empty for none.
    :param location: what the kind says.
    """

    kind: str
    conn_id: str
    location: str

    @classmethod
    def from_text(cls, text: str) -> SettingsPlace:
        """Return the place that `to_text` made.

        :raises ConfigurationError: if it is none.
        """
        parts = text.split("|", 2)
        if len(parts) != 3 or parts[0] not in (SECRET, OBJECT):
            raise ConfigurationError(f"{text!r} names no place of settings")
        return cls(kind=parts[0], conn_id=parts[1], location=parts[2])

    def to_text(self) -> str:
        """Return it as the job's record holds it; no connection has a name with the character between."""
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
    """Remove what is left of a job's settings, and the pod that waits for them; what fails is logged alone.

    :param job: one that needs them no more; one whose driver is on the machine that submitted it has none elsewhere.
    """
    if job is None or job.settings is None:
        return
    try:
        place = SettingsPlace.from_text(job.settings)
        if place.kind == OBJECT:
            delete_object(place.location, place.access)
            return
        drivers = DriverSecrets(place.conn_id, place.location)
        if job.cluster_id is not None and not job.was_taken:
            drivers.delete_waiting_pod(job.cluster_id.rpartition(":")[2])
        drivers.delete(job.owner)
    except Exception as error:  # of a connection, a cluster, a filesystem: the job ended by something else
        log.warning("the settings of a job may be left: owner=%s place=%s: %s", job.owner, job.settings, error)
