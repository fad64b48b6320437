"""The settings of one ingestion job: the Airflow operator writes them, and the Spark application reads them.

They contain secrets. So they are never part of a command line, are bound to one job, and expire.

Mostly they are a file until the driver reads them, once: in a folder that only its owner can read, in the container of
a driver on YARN, or mounted from a Kubernetes Secret. Otherwise they are an object in a folder that Airflow and the
cluster share. Such a folder may keep deleted objects in versions, copies and backups, and others may be
able to read it. So the object is sealed, and its key, made for this object only, travels separately in the arguments of
the driver. Neither the folder nor the arguments reveal the settings alone, and the key is useless once the object is
deleted. The seal is a Fernet token of `cryptography`: without the key, nobody can read or change the content, which
includes the job's owner and the instant at which the settings expire.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.held_leases import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    check_lease_times,
)
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.ingestion import SETTINGS, IngestionOptions
from airflow_provider_coordination.spark.job_settings import (
    check_computed,
    check_function,
)
from airflow_provider_coordination.spark.sink_settings import (
    FOLDERS,
    SinkSettings,
    access_of,
    check_sinks,
    with_dead_letters,
)
from airflow_provider_coordination.spark.sinks import check_freshness
from airflow_provider_coordination.stores import StoreSettings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


log = logging.getLogger(__name__)

SEALED = re.compile(r"(.+)#([A-Za-z0-9_-]{43}=)", re.DOTALL)
"""A reference to sealed settings: their URI, and their key as URL-safe base64."""
SETTINGS_ARGUMENT = "--coordination-settings"
OWNER_ARGUMENT = "--coordination-owner"
"""The names of the driver's arguments, for a submitter that only passes arguments with names."""


def driver_arguments(passed: Sequence[str]) -> tuple[str, str]:
    """Return the text of a job's settings reference, and the job's owner.

    Most submitters pass only these two. AWS Glue passes them by name, in any order, among arguments of its own.

    :param passed: the arguments of the application.
    :raises ConfigurationError: if it is neither.
    """
    named = dict(pairwise(passed))
    if SETTINGS_ARGUMENT in named and OWNER_ARGUMENT in named:
        return named[SETTINGS_ARGUMENT], named[OWNER_ARGUMENT]
    if len(passed) == 2:
        return passed[0], passed[1]
    raise ConfigurationError(
        f"expected two arguments, the job's settings and its owner, or both by name as {SETTINGS_ARGUMENT} and "
        f"{OWNER_ARGUMENT}; got {len(passed)}"
    )


@dataclass(frozen=True, kw_only=True)
class SettingsReference:
    """The reference by which a driver finds its settings.

    :param uri: the path of a file; with a key, the path or URI of a sealed object.
    :param key: the key of the sealed object; None for a file that is not sealed.
    """

    uri: str
    key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> SettingsReference:
        """Return the reference that `to_text` made, or the reference to a file for a path."""
        found = SEALED.fullmatch(text)
        return cls(uri=text) if found is None else cls(uri=found[1], key=found[2])

    @classmethod
    def sealed(cls, uri: str) -> SettingsReference:
        """Return a reference to an object that is to be written, with a new key."""
        from cryptography.fernet import Fernet

        return cls(uri=uri, key=Fernet.generate_key().decode())

    def to_text(self) -> str:
        """Return the reference as an argument of the driver, including the key."""
        return self.uri if self.key is None else f"{self.uri}#{self.key}"

    def read(self) -> str:
        """Return the settings as text.

        :raises ConfigurationError: if they do not exist, are damaged, or were sealed with another key.
        :raises CoordinationError: if their filesystem is unavailable.
        """
        if self.key is None:
            try:
                return Path(self.uri).read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"ingest settings {self.uri}: cannot be read: {error.strerror}") from None
        fernet = _fernet(self.key)
        from cryptography.fernet import InvalidToken

        try:
            return fernet.decrypt(self._sealed()).decode()
        except InvalidToken:
            raise ConfigurationError(
                f"ingest settings {self.uri}: they were not sealed with the key that this driver was given, or are "
                "damaged; start the application with its own job's arguments"
            ) from None

    def write(self, text: str, access: Access = DEFAULT_ACCESS) -> None:
        """Write settings, sealed.

        :param access: the credentials for the object.
        :raises CoordinationError: if the object cannot be written.
        """
        from airflow_provider_coordination.spark.storage import open_files

        assert self.key is not None
        files, path = open_files(self.uri, access)
        try:
            files.write(path, _fernet(self.key).encrypt(text.encode()))
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be written: {error}") from None

    def delete(self, access: Access = DEFAULT_ACCESS) -> None:
        """Delete the settings, if that is possible here.

        If it is not, the party that mounted the file or wrote the object removes it.

        :param access: the credentials for an object.
        """
        try:
            if self.key is None:
                Path(self.uri).unlink(missing_ok=True)
            else:
                delete_object(self.uri, access)
        except (OSError, CoordinationError) as error:
            log.info("the settings in %s could not be deleted; their writer removes them: %s", self.uri, error)

    def _sealed(self) -> bytes:
        from airflow_provider_coordination.spark.storage import open_files

        try:
            files, path = open_files(self.uri, DEFAULT_ACCESS)
            return files.read(path)
        except FileNotFoundError:
            raise ConfigurationError(
                f"ingest settings {self.uri} do not exist: a driver has already read them, or they expired; run the "
                "task again to write new ones"
            ) from None
        except PermissionError as error:
            raise ConfigurationError(
                f"ingest settings {self.uri}: the driver may not read them: {error}; allow its role to read and delete "
                "objects in this folder"
            ) from None
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be read: {error}") from None


def delete_object(uri: str, access: Access) -> None:
    """Delete a sealed object, if it exists.

    :raises OSError: if it cannot be deleted.
    :raises ConfigurationError: if no filesystem supports its URI.
    """
    from airflow_provider_coordination.spark.storage import open_files

    files, path = open_files(uri, access)
    files.delete(path)


def _fernet(key: str) -> Fernet:
    from cryptography.fernet import Fernet

    return Fernet(key)


@dataclass(kw_only=True)
class ApplicationSettings:
    """The settings of any application that Airflow submits: whose it is, and how it reaches the store.

    :param source: the name under which the application has its items in the store.
    :param owner: the application's owner, as made by `new_owner`.
    :param expires_at: an application that starts later than this instant refuses to run (UTC).
    :param store: the settings of the store that holds the partitions.
    :param prefix: separates installations that share the store.
    :param ownership_timeout: how long a lease lasts without renewal.
    :param safety_margin: how far the clocks of workers may differ.
    :param retry_policy: what happens to partitions that fail.
    :param is_followed: whether the job keeps a record in the store, by which Airflow follows and stops it, and which
        only one driver may create; the job then deletes its settings once it has read them.
    """

    source: str
    owner: str
    expires_at: datetime
    store: StoreSettings
    prefix: str | None = None
    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    is_followed: bool = False

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self.check_application()

    def check_application(self) -> None:
        """Check the values of every application.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("source", "owner"):
            if not getattr(self, name):
                raise ConfigurationError(f"ingest settings: field {name!r} must not be empty")
        check_lease_times(self.ownership_timeout, self.safety_margin)
        self.store.check()

    def write(self, path: Path) -> None:
        """Write the settings to a new file that only its owner can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(write_settings(self), file)

    @classmethod
    def read(cls, reference: SettingsReference, owner: str, now: datetime) -> Self:
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
        return checked_settings(cls, f"ingest settings {reference.uri}", values, owner, now)


A = TypeVar("A", bound=ApplicationSettings)


def checked_settings(kind: type[A], what: str, values: object, owner: str, now: datetime) -> A:
    """Return settings from a JSON object.

    :param what: what contains them, for errors.
    :param owner: the job that the settings must belong to.
    :param now: the present instant; settings that expired before it are refused.
    :raises ConfigurationError: if they are invalid, expired, or another job's.
    """
    settings = read_settings(kind, "ingest settings", values)
    settings.check()
    if settings.owner != owner:
        raise ConfigurationError(
            f"{what}: they belong to job {settings.owner!r}, and this is a driver of job {owner!r}; start the "
            "application with the arguments of its own job"
        )
    if settings.expires_at <= now:
        raise ConfigurationError(
            f"{what}: expired at {settings.expires_at:%Y-%m-%dT%H:%M:%SZ}; they are valid for one job only: run the "
            "task again instead of starting the application with old settings"
        )
    return settings


@dataclass(kw_only=True)
class IngestSettings(IngestionOptions, ApplicationSettings):
    """The settings of one ingestion job: what it ingests, with all connections resolved, and whose job it is.

    Parameters that are not listed are those of `IngestionOptions` and `ApplicationSettings`.

    :param reads: what the job reads.
    :param writes: the sinks, in the order of their commits; at least one.
    :param source: the source's name.
    :param landing_path: the folder where raw batches wait for delivery: a path or URI that every worker reaches. If a
        dataset takes landed files unchanged, it must be on that dataset's filesystem.
    :param traceparent: the parent span of the job's spans, in the form of W3C Trace Context; None for none.
    :param workers: the expected number of jobs that share the source.
    :param run: the Airflow run, as `run_name` names it.
    :param replaces: the owner of the job whose partitions this one takes over; None if it replaces no job.
    """

    reads: ReadsSettings
    writes: tuple[SinkSettings, ...]
    source: str = field()
    landing_path: str = field()
    traceparent: str | None = None
    workers: int = 1
    run: str = ""
    replaces: str | None = None

    def check(self, is_known: Callable[[Any], bool] = lambda value: True) -> None:
        """Check every value.

        :param is_known: see `Described.check`; all values of a job are known.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self.check_application()
        for name in ("writes", "landing_path"):
            if not getattr(self, name):
                raise ConfigurationError(f"ingest settings: field {name!r} must not be empty")
        if self.workers <= 0:
            raise ConfigurationError(f"ingest settings: field 'workers' must be positive; got {self.workers!r}")
        self.reads.check()
        if self.transform is not None:
            check_function("ingest settings: field 'transform'", self.transform)
        check_computed(self.computed)
        if self.schema is not None and not self.schema.strip():
            raise ConfigurationError("ingest settings: field 'schema' must not be empty; leave it out")
        if self.time_formats is not None and self.schema is None and self.payload.avro is None:
            raise ConfigurationError(
                f"ingest settings: field 'time_formats' is {self.time_formats!r}, and there is no 'schema': give a "
                "schema that has these columns, or leave 'time_formats' out"
            )
        for name in SETTINGS:
            getattr(self, name).check()
        self.payload.check_schema(self.schema)
        if self.rejection.event_time is not None and self.schema is None and self.payload.avro is None:
            raise ConfigurationError(
                f"RejectionSettings: field 'event_time' is {self.rejection.event_time!r}, and there is no 'schema' "
                "to parse it from the payload: give a schema that has this column"
            )
        check_sinks(self.writes, self.bad_records, self.acknowledgments, self.landing_path)
        check_freshness(self.rounds.freshness, self.writes)

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
        is_raw = self.schema is None and not self.payload.is_decoded
        return not self.is_transformed and is_raw and first.where is None and not others
