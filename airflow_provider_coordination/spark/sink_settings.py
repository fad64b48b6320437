"""The settings of a job's sinks, and where their records may be."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.acknowledgment import MAX_REFERENCES
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import is_template
from airflow_provider_coordination.spark.access import Access, is_s3
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
)

PARQUET = "parquet"
"""The kind of the dead-letter sink."""
MAIN = "main"
"""The default name of a sink."""
DEAD_LETTER = "dead_letter"
"""The name of the dead-letter sink, which takes bad records."""
OF_FUNCTION = "at-least-once://"
"""The start of a sink's location that names a function, not where the function writes."""
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
                f"field 'writes': number {earlier} and number {number} both have the name {name!r}; give each sink its "
                "own 'name'"
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
            "folder next to it"
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
    every = with_dead_letters(writes, bad_records)
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


def with_dead_letters(writes: Sequence[SinkSettings], bad_records: BadRecordSettings) -> tuple[SinkSettings, ...]:
    """Return the sinks in the order of their commits: bad records first, if they are written."""
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
                "both; give each sink its own location"
            )
        if is_seen_by_readers(above, location):
            raise ConfigurationError(
                f"{sink} is in {location!r}, where readers of {other} would find its records; give it a folder next to "
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
    location = re.sub(r"^file:/+", "/", location, flags=re.I)
    scheme, _, path = location.rpartition("://")
    if not scheme:
        return posixpath.normpath(re.sub("^/+", "/", path))
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower())
    return f"{scheme}://{posixpath.normpath(path)}"
