"""The settings of one ingestion job: the Airflow operator writes them, and the Spark application reads them.

They contain secrets. So they are never part of a command line, are bound to one job, and expire. See
`settings_reference` for where they are stored.
"""

from __future__ import annotations

import itertools
import json
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.acknowledgment import MAX_REFERENCES
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.lease_settings import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    LeaseSettings,
    check_lease_times,
)
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.access import Access, is_s3
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.settings_reference import SettingsReference
from airflow_provider_coordination.stores import StoreSettings

PARQUET = "parquet"
"""The kind of the dead-letter sink."""
MAIN = "main"
"""The default name of a sink."""
DEAD_LETTER = "dead_letter"
"""The name of the dead-letter sink, which takes bad records."""
FOLDERS = re.compile(r"(?![\w+.-]+:)|(s3[an]?|file|hdfs|viewfs|gs|gcs|abfss?)://")
"""Matches the start of a sink's location if the location is a folder."""


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """One sink, and which records go there.

    :param name: the sink's name; letters, digits, `_` and `-`.
    :param kind: the kind of sink, such as `parquet`.
    :param location: the sink's location, without secrets: the path or URI of a dataset's folder, which every worker
        reaches, or another identifier such as `postgres://host:5432/database.schema.table`.
    :param where: a SQL predicate over the transformed columns; None for every record.
    :param files: the folder of the sink's files, if it has files and `location` is not their folder.
    :param aws: the AWS settings for files on S3; None for the AWS default credential chain.
    :param settings: the kind's own settings, a JSON object; it may contain secrets, and is never shown.
    :param implementation: `module:attribute` of a kind from another package; None for a kind of this package.
    """

    name: str
    kind: str
    location: str
    where: str | None = None
    files: str | None = None
    aws: AwsSettings | None = None
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None

    def __str__(self) -> str:
        """Return the sink as the user names it."""
        if self.name == DEAD_LETTER:
            return "field 'dead_letter_path' of BadRecordSettings"
        return f"sink {self.name!r} of field 'writes'"

    def check(self) -> None:
        """Check the fields that every kind of sink has.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            raise ConfigurationError(
                f"field 'writes': the name {self.name!r} is invalid; use up to 64 letters, digits, '_' and '-'"
            )
        if self.name == DEAD_LETTER:
            raise ConfigurationError(
                f"field 'writes': the name {self.name!r} is reserved for the dead-letter sink; use another name"
            )
        if not self.location:
            raise ConfigurationError(f"{self}: its location must not be empty")
        if self.where is not None and not self.where.strip():
            raise ConfigurationError(f"{self}: 'where' must not be empty; leave it out")


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """The settings of one ingestion job.

    :param source: the source's name.
    :param owner: the job's owner, as made by `new_owner`.
    :param expires_at: a job that starts later than this instant refuses to run (UTC).
    :param store: the settings of the store that holds the partitions.
    :param reads: the settings of what the job reads.
    :param prefix: separates installations that share the store.
    :param writes: the sinks, in the order of their commits; at least one.
    :param landing_path: the folder where raw batches wait for delivery: a path or URI that every worker reaches. If a
        dataset takes landed files unchanged, it must be on that dataset's filesystem.
    :param transform: `module:function`, from DataFrame to DataFrame; None publishes the raw records.
    :param per_batch: whether the transform gets one batch at a time although it keeps `_batch_id`.
    :param schema: the payload's columns, as DDL: it is parsed as JSON before the transform; None does not parse it.
    :param time_formats: the formats of TIMESTAMP columns of `schema`, by name; None for those that Spark accepts.
    :param bad_records: what happens to records that cannot be parsed or transformed.
    :param rejection: which records are late or early, and left out.
    :param acknowledgments: who acknowledges that a batch is delivered.
    :param leases: how many leases the job may have, and how it acquires them.
    :param rounds: how the job makes its rounds, and when it ends.
    :param ownership_timeout: how long a lease lasts without renewal.
    :param safety_margin: how far the clocks of workers may differ.
    :param retry_policy: what happens to partitions that fail.
    :param traceparent: the parent span of the job's spans, in the form of W3C Trace Context; None for none.
    :param workers: the expected number of jobs that share the source.
    :param run: the Airflow run, as `run_name` names it.
    :param is_followed: whether the job keeps a record in the store, by which Airflow follows and stops it, and which
        only one driver may create; the job then deletes its settings once it has read them.
    """

    source: str
    owner: str
    writes: tuple[SinkSettings, ...]
    landing_path: str
    expires_at: datetime
    store: StoreSettings
    reads: ReadsSettings
    prefix: str | None = None
    transform: str | None = None
    per_batch: bool = False
    schema: str | None = None
    time_formats: Mapping[str, str] | None = None
    bad_records: BadRecordSettings = field(default_factory=BadRecordSettings)
    rejection: RejectionSettings = field(default_factory=RejectionSettings)
    acknowledgments: AcknowledgmentSettings = field(default_factory=AcknowledgmentSettings)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    traceparent: str | None = None
    workers: int = 1
    run: str = ""
    is_followed: bool = False

    def check(self) -> None:
        """Check every value.

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
        return _with_dead_letters(self.writes, self.bad_records)

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


def check_function(field: str, value: object) -> None:
    """Check that a value names a function as `module:function`.

    :param field: how error messages name the field.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        raise ConfigurationError(
            f"{field} is the function {name!r} itself, which cannot be passed to Spark; give its name as text, such as "
            f"'my_project.transforms:{name if name.isidentifier() else 'clean'}', and ship its module with 'py_files'"
        )
    module, _, function = value.partition(":") if isinstance(value, str) else ("", "", "")
    names = [*module.split("."), function]
    if not all(map(str.isidentifier, names)) or (len(names) > 2 and names[-2] == "py"):
        raise ConfigurationError(
            f"{field} must be of the form 'module:function', such as 'my_project.transforms:clean', with dots between "
            f"packages and without '.py'; got {value!r}"
        )


def is_template(value: object) -> bool:
    """Return whether a value of a DAG is a template, so that it is known only when a task runs."""
    return isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#"))


def check_folders(landing_path: object, dead_letter_path: object) -> None:
    """Check that the folders of a job are absolute, and that the landed files are in one of their own.

    :param landing_path: where raw batches wait; None or empty if it is not given. A template is checked once rendered.
    :param dead_letter_path: the folder for bad records, in the same way.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    landing, dead_letters = (
        path if isinstance(path, str) and path and not is_template(path) else None
        for path in (landing_path, dead_letter_path)
    )
    of_dead_letters = "field 'dead_letter_path' of BadRecordSettings"
    if landing is not None:
        check_absolute("field 'landing_path'", landing)
    if dead_letters is not None:
        check_absolute(of_dead_letters, dead_letters)
        if landing is not None:
            _check_outside_landing(of_dead_letters, dead_letters, landing)


def check_absolute(field: str, path: str) -> None:
    """Check that a path is the same for every process.

    :param field: how error messages name the field.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if path.strip() and not re.match(r"/|[A-Za-z][\w+.-]*:/", path):
        raise ConfigurationError(
            f"{field} is {path!r}, which depends on the working directory of each process; give an absolute path such "
            "as '/data/lake/clicks', or a URI such as 's3://lake/clicks'"
        )


def check_names(names: Sequence[str]) -> None:
    """Check that every sink has a name of its own.

    :raises ConfigurationError: naming both sinks and the remedy.
    """
    for number, name in enumerate(names, 1):
        if (earlier := names.index(name) + 1) < number:
            raise ConfigurationError(
                f"field 'writes': number {earlier} and number {number} both have the name {name!r}; give each sink a "
                "'name' of its own"
            )


def check_described_sinks(writes: Sequence[Any], landing_path: str | None) -> None:
    """Check the names and folders of sinks as a DAG or a spec describes them, before their connections are resolved.

    :param writes: the sinks: objects with `name` and `landing_path`; with `path` if readers look into a folder.
    :param landing_path: where raw batches wait; None for the folder of the first sink. Templates are checked once
        rendered.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    names = [getattr(sink, "name", None) or MAIN for sink in writes]
    if all(isinstance(name, str) and not is_template(name) for name in names):
        check_names(names)
    folders = {
        f"sink {name!r} of field 'writes'": path
        for sink, name in zip(writes, names, strict=True)
        if isinstance(path := getattr(sink, "path", None), str) and path and not is_template(path)
    }
    _check_apart(folders)
    landing = landing_path or next((found for sink in writes if (found := sink.landing_path) is not None), None)
    if landing is None or is_template(landing):
        return
    for what, path in folders.items():
        _check_outside_landing(what, path, landing)
        _check_unseen(what, path, landing)


def _check_unseen(what: str, path: str, landing_path: str) -> None:
    if is_seen_by_readers(path, landing_path):
        raise ConfigurationError(
            f"field 'landing_path' is {landing_path!r}, where readers of {what} would find the landed files; give a "
            f"folder beside {path!r}, or a folder below it whose name begins with '_'"
        )


def _check_outside_landing(what: str, path: str, landing_path: str) -> None:
    landing = normalized_location(landing_path)
    if f"{normalized_location(path)}/".startswith(f"{landing.rstrip('/')}/"):
        raise ConfigurationError(
            f"{what} is in {path!r}, inside 'landing_path' {landing_path!r}, which is for raw batches alone; give a "
            "folder beside it"
        )


def check_sinks(
    writes: Sequence[SinkSettings],
    bad_records: BadRecordSettings,
    acknowledgments: AcknowledgmentSettings,
    landing_path: str,
) -> None:
    """Check that every sink has a name and a location of its own, and that each sink can be acknowledged.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    for sink in writes:
        sink.check()
    check_names([sink.name for sink in writes])
    check_folders(landing_path, bad_records.dead_letter_path)
    every = _with_dead_letters(writes, bad_records)
    for sink in writes:
        if sink.implementation is None and FOLDERS.match(sink.location):
            check_absolute(f"the location of {sink}", sink.location)
            _check_outside_landing(str(sink), sink.location, landing_path)
        if sink.files is not None:
            check_absolute(f"the folder for files of {sink}", sink.files)
    _check_apart({str(sink): sink.location for sink in every})
    for sink in every:
        _check_unseen(str(sink), sink.location, landing_path)
    if len(every) + len(acknowledgments.handles) > MAX_REFERENCES:
        raise ConfigurationError(
            f"field 'writes': {len(every)} sinks and {len(acknowledgments.handles)} handles are too many; a batch has "
            f"at most {MAX_REFERENCES} references"
        )
    for handle in acknowledgments.handles:
        if handle in (DEAD_LETTER, *(sink.name for sink in writes)):
            raise ConfigurationError(
                f"AcknowledgmentSettings: field 'by': {handle!r} is the name of a sink, which the job releases itself; "
                "use another name"
            )


def _with_dead_letters(writes: Sequence[SinkSettings], bad_records: BadRecordSettings) -> tuple[SinkSettings, ...]:
    path = bad_records.dead_letter_path
    if path is None:
        return tuple(writes)
    dead = SinkSettings(name=DEAD_LETTER, kind=PARQUET, location=path, aws=access_of(writes).of(path))
    return (dead, *writes)


def access_of(sinks: Sequence[SinkSettings]) -> Access:
    """Return the credentials for the files of sinks on S3."""
    locations = ((sink.files or sink.location, sink.aws) for sink in sinks)
    return Access(tuple((location, aws) for location, aws in locations if aws is not None or is_s3(location)))


def _check_apart(locations: Mapping[str, str]) -> None:
    """Check that readers of one sink do not find another sink's records.

    :param locations: the locations of the sinks, by the name of each sink for error messages.
    """
    for (sink, location), (other, above) in itertools.permutations(locations.items(), 2):
        if normalized_location(location) == normalized_location(above):
            raise ConfigurationError(
                f"{sink} and {other} have the same location, {location!r}, where readers would find the records of "
                "both; give each sink a location of its own"
            )
        if is_seen_by_readers(above, location):
            raise ConfigurationError(
                f"{sink} is in {location!r}, where readers of {other} would find its records; give it a folder beside "
                f"{above!r}, or a folder below it whose name begins with '_'"
            )


def is_seen_by_readers(dataset: str, path: str) -> bool:
    """Return whether readers of a dataset find the files of a path.

    They do if it is the dataset's folder, or a folder below it that readers do not skip.
    """
    above, below = normalized_location(dataset), normalized_location(path)
    return below == above or (below.startswith(f"{above}/") and not below[len(above) + 1 :].startswith("_"))


def normalized_location(location: str) -> str:
    """Return a location in a normal form, which is the same for all spellings."""
    scheme, _, path = location.rpartition("://")
    if scheme in ("", "file"):
        return posixpath.normpath(path)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    return f"{scheme}://{posixpath.normpath(path)}"
