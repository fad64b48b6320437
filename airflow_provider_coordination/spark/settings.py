"""The settings of one ingestion job: the Airflow operator writes them, and the Spark application reads them.

They contain secrets. So they are never part of a command line, are bound to one job, and expire. See
`settings_reference` for where they are stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.renewal import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    check_lease_times,
)
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.job_settings import (
    check_function,
)
from airflow_provider_coordination.spark.settings_reference import SettingsReference
from airflow_provider_coordination.spark.sink_settings import (
    FOLDERS,
    SinkSettings,
    access_of,
    check_sinks,
    with_dead_letters,
)
from airflow_provider_coordination.stores import StoreSettings


@dataclass(kw_only=True)
class IngestSettings(IngestionOptions):
    """The settings of one ingestion job: what it ingests, with all connections resolved, and whose job it is.

    Parameters that are not listed are those of `IngestionOptions`.

    :param reads: what the job reads.
    :param writes: the sinks, in the order of their commits; at least one.
    :param source: the source's name.
    :param landing_path: the folder where raw batches wait for delivery: a path or URI that every worker reaches. If a
        dataset takes landed files unchanged, it must be on that dataset's filesystem.
    :param owner: the job's owner, as made by `new_owner`.
    :param expires_at: a job that starts later than this instant refuses to run (UTC).
    :param store: the settings of the store that holds the partitions.
    :param prefix: separates installations that share the store.
    :param ownership_timeout: how long a lease lasts without renewal.
    :param safety_margin: how far the clocks of workers may differ.
    :param retry_policy: what happens to partitions that fail.
    :param traceparent: the parent span of the job's spans, in the form of W3C Trace Context; None for none.
    :param workers: the expected number of jobs that share the source.
    :param run: the Airflow run, as `run_name` names it.
    :param is_followed: whether the job keeps a record in the store, by which Airflow follows and stops it, and which
        only one driver may create; the job then deletes its settings once it has read them.
    """

    reads: ReadsSettings
    writes: tuple[SinkSettings, ...]
    source: str = field()
    landing_path: str = field()
    owner: str
    expires_at: datetime
    store: StoreSettings
    prefix: str | None = None
    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    traceparent: str | None = None
    workers: int = 1
    run: str = ""
    is_followed: bool = False

    def check(self, is_known: Callable[[Any], bool] = lambda value: True) -> None:
        """Check every value.

        :param is_known: see `Described.check`; all values of a job are known.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("source", "owner", "writes", "landing_path"):
            if not getattr(self, name):
                raise ConfigurationError(f"ingest settings: field {name!r} must not be empty")
        if self.workers <= 0:
            raise ConfigurationError(f"ingest settings: field 'workers' must be positive; got {self.workers!r}")
        self.reads.check()
        if self.transform is not None:
            check_function("ingest settings: field 'transform'", self.transform)
        if self.schema is not None and not self.schema.strip():
            raise ConfigurationError("ingest settings: field 'schema' must not be empty; leave it out")
        if self.time_formats is not None and self.schema is None:
            raise ConfigurationError(
                f"ingest settings: field 'time_formats' is {self.time_formats!r}, and there is no 'schema': give a "
                "schema that has these columns, or leave 'time_formats' out"
            )
        for topic in (self.bad_records, self.rejection, self.acknowledgments, self.leases, self.rounds):
            topic.check()
        if self.rejection.event_time is not None and self.schema is None:
            raise ConfigurationError(
                f"RejectionSettings: field 'event_time' is {self.rejection.event_time!r}, and there is no 'schema' "
                "to parse it from the payload: give a schema that has this column"
            )
        check_sinks(self.writes, self.bad_records, self.acknowledgments, self.landing_path)
        check_lease_times(self.ownership_timeout, self.safety_margin)
        self.store.check()

    @property
    def all_sinks(self) -> tuple[SinkSettings, ...]:
        """Every sink, in the order in which they are committed: bad records first."""
        return with_dead_letters(self.writes, self.bad_records)

    @property
    def access(self) -> Access:
        """The job's credentials for S3; landed files use those of the sink in the same folder or bucket."""
        return access_of(self.writes)

    @property
    def worker_roots(self) -> tuple[str, ...]:
        """The folders that the job's tasks write to; if one folder contains another, only the inner one."""
        roots = [self.landing_path]
        for sink in self.all_sinks:
            root = sink.files or ("" if self.publishes_landed else sink.location)
            if (
                root
                and FOLDERS.match(root)
                and not any(f"{known}/".startswith(f"{root.rstrip('/')}/") for known in roots)
            ):
                roots.append(root)
        return tuple(roots)

    @property
    def publishes_landed(self) -> bool:
        """Whether nothing reads the records during delivery, so that a sink can take landed files unchanged."""
        [first, *others] = self.writes
        return self.transform is None and self.schema is None and first.where is None and not others

    def write(self, path: Path) -> None:
        """Write the settings to a new file that only its owner can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(write_settings(self), file)

    @classmethod
    def read(cls, reference: SettingsReference, owner: str, now: datetime) -> IngestSettings:
        """Read and check the settings.

        :param reference: the location of the settings.
        :param owner: the job that the settings must belong to.
        :param now: the present instant; settings that expired before it are refused.
        :raises ConfigurationError: if the settings are missing, damaged, invalid, expired, or another job's.
        :raises CoordinationError: if their filesystem is unavailable.
        """
        text = reference.read()
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"ingest settings {reference.uri}: not JSON: {error}") from None
        settings = read_settings(cls, "ingest settings", values)
        settings.check()
        if settings.owner != owner:
            raise ConfigurationError(
                f"ingest settings {reference.uri}: they belong to job {settings.owner!r}, and this is a driver of job "
                f"{owner!r}; start the application with the arguments of its own job"
            )
        if settings.expires_at <= now:
            raise ConfigurationError(
                f"ingest settings {reference.uri}: expired at {settings.expires_at:%Y-%m-%dT%H:%M:%SZ}; they are valid "
                "for one job only: run the task again instead of starting the application with old settings"
            )
        return settings
