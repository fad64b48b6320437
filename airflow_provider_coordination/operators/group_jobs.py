"""Jobs of a group: they are requested in the store, and the group's host runs them; see `coordination.groups`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.airflow_names import conf
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.groups import GroupRequests, group_identifier
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.job_follower import JobFollower
from airflow_provider_coordination.operators.packaging import packaged_application
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.spark.group_settings import GroupSettings, group_key, key_id, seal
from airflow_provider_coordination.spark.settings import IngestSettings

log = logging.getLogger(__name__)

APPLICATION = "ingest_group.py"


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """A group of sources, as one of its members' supervisors uses it.

    :param name: the group's name.
    :param connection: the settings of the store's connection.
    """

    name: str
    connection: ConnectionSettings

    @property
    def key(self) -> str:
        """The key of the members' settings.

        :raises ConfigurationError: if Airflow has no Fernet key to derive it from.
        """
        fernet_key = str(conf.get("core", "fernet_key", fallback="") or "").split(",")[0]
        if not fernet_key.strip():
            raise ConfigurationError(
                f"field 'tuning.group' is {self.name!r}: the settings of a group's jobs contain secrets and are sealed "
                "with a key derived from Airflow's '[core] fernet_key', which is empty: set the same key for all "
                "workers, or leave 'tuning.group' out"
            )
        return group_key(fernet_key, self.name)

    @contextmanager
    def requests(self) -> Iterator[GroupRequests]:
        """Open the store; yield the requests of the group."""
        view = self.connection.view(self._identifier)
        with closing(view.store):
            yield GroupRequests(view)

    def start(
        self, operator: CoordinatedSparkSubmitOperator, follower: JobFollower, settings: IngestSettings, context: Any
    ) -> None:
        """Request a job, and submit a host if the group has none.

        :param operator: submits the job in an application of its own, if it were no member.
        :param follower: records the job.
        :param settings: the job's settings.
        :param context: the context of the task that starts the job.
        :raises Exception: if the host cannot be submitted; the job is not requested then.
        """
        with self.requests() as requests:
            host = requests.host()
            if host is not None and host.has_begun:  # it takes the request at once, or it is dead
                soon = datetime.now(UTC) + 2 * settings.ownership_timeout
                settings = replace(settings, expires_at=min(settings.expires_at, soon))
            sealed = seal(settings, self.key)
            follower.submit(settings, None)
            try:
                requests.add(settings.owner, settings.source, sealed)
                # Only now: a host that ends looks for requests after it has written so.
                if requests.host() is None:
                    self._submit_host(operator, settings, context)
            except BaseException:
                requests.withdraw(settings.owner)
                raise

    def withdraw(self, owner: str) -> None:
        """Withdraw the request of a job that is given up, if no host has taken it."""
        with self.requests() as requests:
            requests.withdraw(owner)

    @property
    def _identifier(self) -> str:
        return group_identifier(self.name, key_id(self.key))

    def _submit_host(self, operator: CoordinatedSparkSubmitOperator, settings: IngestSettings, context: Any) -> None:
        ti = context["ti"]
        host = GroupSettings(
            group=self.name,
            secret_key=self.key,
            source=self._identifier,
            owner=new_owner(ti.dag_id, ti.run_id, f"group-{self.name}", -1, ti.try_number),
            expires_at=settings.expires_at,
            store=settings.store,
            prefix=settings.prefix,
            ownership_timeout=settings.ownership_timeout,
            safety_margin=settings.safety_margin,
            is_followed=True,
        )
        operator.application, operator.name = packaged_application(APPLICATION), f"group {self.name}"
        log.info("group %s gets a host: owner=%s", self.name, host.owner)
        operator.submit(JobFollower(connection=self.connection, source=host.source, task=f"group/{self.name}"), host)
