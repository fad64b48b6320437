"""Jobs of a group: they are requested in the store, and the group's host runs them; see `coordination.groups`."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_coordination.airflow_names import conf
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.groups import (
    GROUP_NAME,
    GROUP_NAME_WORDS,
    GroupRequests,
    group_identifier,
)
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.job_follower import JobFollower
from airflow_provider_coordination.operators.packaging import packaged_application
from airflow_provider_coordination.spark.group_settings import GroupSettings, group_key, key_id, seal
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings

log = logging.getLogger(__name__)

APPLICATION = "ingest_group.py"
OF_TASK = frozenset(("self", "application", "application_args", "name", "verbose", "status_poll_interval", "kwargs"))
"""The arguments of Airflow's Spark operator that say nothing of a Spark application that tasks share."""


class JobOperator(Protocol):
    """An operator of Airflow's Spark provider that submits jobs and waits for none."""

    application: str
    name: str
    spark_archive: str | None

    def submit(self, follower: JobFollower, settings: ApplicationSettings) -> object:
        """Submit an application, and record it.

        :raises Exception: if it cannot be submitted.
        """
        ...


def digests_of_application(operator: JobOperator, key: str) -> dict[str, str]:
    """Return a digest of each argument that Spark gets from an operator, by its name.

    :param key: the key of the digests: an argument may contain a secret.
    """
    names = [name for name in inspect.signature(SparkSubmitOperator.__init__).parameters if name not in OF_TASK]
    values = {name: getattr(operator, name, getattr(operator, f"_{name}", None)) for name in names}
    values["spark_archive"] = operator.spark_archive
    texts = {name: json.dumps(value, sort_keys=True, default=str) for name, value in values.items() if value}
    return {name: hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:8] for name, text in texts.items()}


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """A group of sources, as a supervisor of one of them uses it, or a task that runs a job of one.

    :param name: the group's name.
    :param connection: the settings of the store's connection.
    """

    name: str
    connection: ConnectionSettings

    @classmethod
    def named(cls, name: str, connection: ConnectionSettings) -> Self:
        """Return the group of a task.

        :raises ConfigurationError: if the name cannot be one.
        """
        if re.fullmatch(GROUP_NAME, name) is None:
            raise ConfigurationError(f"field 'group' must be {GROUP_NAME_WORDS}; got {name!r}")
        return cls(name=name, connection=connection)

    @property
    def key(self) -> str:
        """The key of the members' settings.

        :raises ConfigurationError: if Airflow has no Fernet key to derive it from.
        """
        fernet_key = str(conf.get("core", "fernet_key", fallback="") or "").split(",")[0]
        if not fernet_key.strip():
            raise ConfigurationError(
                f"field 'group' is {self.name!r}: the settings of a group's jobs contain secrets and are sealed "
                "with a key derived from Airflow's '[core] fernet_key', which is empty: set the same key for all "
                "workers, or leave 'group' out"
            )
        return group_key(fernet_key, self.name)

    @contextmanager
    def requests(self) -> Iterator[GroupRequests]:
        """Open the store; yield the requests of the group."""
        view = self.connection.view(self._identifier)
        with closing(view.store):
            yield GroupRequests(view)

    def start(self, operator: JobOperator, follower: JobFollower, settings: IngestSettings, context: Any) -> None:
        """Request a job, and submit a host if the group has none.

        :param operator: submits the job in its own application, if it were no member.
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
            sealed, application = seal(settings, self.key), digests_of_application(operator, self.key)
            follower.submit(settings, None)
            try:
                requests.add(settings.owner, settings.source, sealed, application)
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

    def _submit_host(self, operator: JobOperator, settings: IngestSettings, context: Any) -> None:
        ti = context["ti"]
        host = GroupSettings(
            group=self.name,
            secret_key=self.key,
            application=digests_of_application(operator, self.key),
            source=self._identifier,
            owner=new_owner(ti.dag_id, ti.run_id, f"group-{self.name}", -1, ti.try_number),
            expires_at=settings.expires_at,
            store=settings.store,
            prefix=settings.prefix,
            ownership_timeout=settings.ownership_timeout,
            safety_margin=settings.safety_margin,
            is_followed=True,
        )
        operator = copy(operator)  # a task that is ended while it submits a host ends its own job only
        operator.application, operator.name = packaged_application(APPLICATION), f"group {self.name}"
        log.info("group %s gets a host: owner=%s", self.name, host.owner)
        operator.submit(JobFollower(connection=self.connection, source=host.source, task=f"group/{self.name}"), host)
