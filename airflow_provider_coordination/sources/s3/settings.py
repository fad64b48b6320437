"""The settings of a source of objects: what is scanned and selected, how it is packed, and whether it is deleted.

A supplier and a reader have the same settings; they are passed to a Spark application as a JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.s3.format_settings import FormatSettings
from airflow_provider_coordination.sources.s3.globs import check_globs
from airflow_provider_coordination.sources.s3.locations import check_path, is_s3

KIND = "s3"
MAX_INTERVAL_SECONDS = 365 * 24 * 3600.0
MAX_CONDITION_RETRIES = 1000
MIN_FORGET_AFTER_SECONDS = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class ProcessingCondition:
    """An object that must exist before the objects of its folder are read.

    This is Data Prepper's processing condition, without its check of the object's content.

    :param object_name: an object in the same folder, such as `_SUCCESS`.
    :param retry_seconds: how long a partition is closed before the condition is checked again.
    :param max_retries: how often it is checked again at most; then the partition is read as it is.
    """

    object_name: str
    retry_seconds: float = 300.0
    max_retries: int = 10

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.object_name or "/" in self.object_name:
            raise _invalid(
                "condition.object_name", self.object_name, "must be the name of an object, without its folder"
            )
        if not self.retry_seconds > 0:
            raise _invalid("condition.retry_seconds", self.retry_seconds, "must be positive")
        if not 0 <= self.max_retries <= MAX_CONDITION_RETRIES:
            raise _invalid("condition.max_retries", self.max_retries, f"must be from 0 to {MAX_CONDITION_RETRIES}")


@dataclass(frozen=True, kw_only=True)
class S3Settings:
    """The settings of a source of objects.

    :param paths: locations of objects: `s3://bucket/prefix`, or a folder or file on a filesystem that pyarrow supports,
        as `/data/in` or `hdfs://name:8020/data/in`.
    :param format: the format of the objects.
    :param include: globs; only objects that match one of them are selected. Empty for all. See `glob_regex`.
    :param exclude: globs; objects that match one of them are not selected.
    :param exclude_suffixes: objects whose name ends with one of them are not selected.
    :param hidden: also select what Spark treats as hidden: names and folders that begin with `_` or `.`.
    :param start_time: select only objects that were modified at this instant (aware) or later.
    :param end_time: select only objects that were modified before this instant (aware).
    :param range_seconds: select only objects that were modified less than this many seconds before a scan started.
    :param interval_seconds: the minimum time between the starts of two scans; None scans at every run.
    :param count: the total number of scans; None for no limit.
    :param folder_depth: objects in different folders at this depth below the path are never in one partition; None
        packs across folders.
    :param delete_on_success: delete objects once they are delivered.
    :param forget_after_seconds: how long a found object is remembered. Older objects are never selected again, by
        their modification time. None remembers every object forever.
    :param condition: an object that must exist before the objects of a folder are read; None reads them at once.
    :param max_objects: the maximum number of objects in one partition.
    :param max_bytes: the maximum number of bytes in one partition, as stored; a larger object is alone.
    :param aws: the settings for S3.
    """

    paths: tuple[str, ...]
    format: FormatSettings = field(default_factory=FormatSettings)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_suffixes: tuple[str, ...] = ()
    hidden: bool = False
    start_time: datetime | None = None
    end_time: datetime | None = None
    range_seconds: float | None = None
    interval_seconds: float | None = None
    count: int | None = None
    folder_depth: int | None = None
    delete_on_success: bool = False
    forget_after_seconds: float | None = None
    condition: ProcessingCondition | None = None
    max_objects: int = 1000
    max_bytes: int = 128 * 1024 * 1024
    aws: AwsSettings = field(default_factory=AwsSettings)

    @property
    def range(self) -> timedelta | None:
        """`range_seconds` as a duration."""
        return None if self.range_seconds is None else timedelta(seconds=self.range_seconds)

    @property
    def forget_after(self) -> timedelta | None:
        """`forget_after_seconds` as a duration."""
        return None if self.forget_after_seconds is None else timedelta(seconds=self.forget_after_seconds)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.paths:
            raise _invalid("paths", list(self.paths), "must name at least one path")
        if len(set(self.paths)) < len(self.paths):
            raise _invalid("paths", list(self.paths), "must name each path once")
        for path in self.paths:
            check_path(path)
        check_globs("include", self.include)
        check_globs("exclude", self.exclude)
        if "" in self.exclude_suffixes:
            raise _invalid(
                "exclude_suffixes",
                list(self.exclude_suffixes),
                "must not contain an empty text, which matches every name",
            )
        self._check_window()
        self._check_schedule()
        self._check_forgetting()
        for name in ("max_objects", "max_bytes", "folder_depth"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _invalid(name, value, "must be at least 1")
        if self.condition is not None:
            self.condition.check()
        self.format.check()

    def _check_window(self) -> None:
        for name in ("start_time", "end_time"):
            value = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise _invalid(name, str(value), "must have a time zone, such as 2026-01-31T00:00:00Z")
        if self.start_time and self.end_time and self.start_time >= self.end_time:
            raise _invalid(
                "start_time", self.start_time.isoformat(), f"must be before end_time, {self.end_time.isoformat()}"
            )
        if self.range_seconds is None:
            return
        if not 0 < self.range_seconds <= 100 * MAX_INTERVAL_SECONDS:
            raise _invalid("range_seconds", self.range_seconds, "must be positive, and at most a hundred years")
        if self.start_time or self.end_time:
            raise _invalid(
                "range_seconds",
                self.range_seconds,
                "must not be given together with start_time or end_time; give one of them",
            )

    def _check_forgetting(self) -> None:
        seconds = self.forget_after_seconds
        if seconds is None:
            return
        if not MIN_FORGET_AFTER_SECONDS <= seconds <= 100 * MAX_INTERVAL_SECONDS:
            raise _invalid("forget_after_seconds", seconds, "must be at least a day, and at most a hundred years")
        if self.start_time or self.end_time:
            raise _invalid("forget_after_seconds", seconds, "must not be given together with start_time or end_time")
        for path in self.paths:
            if not is_s3(path):  # the modification time of a file can be any time
                raise _invalid("forget_after_seconds", seconds, f"must be left out: {path!r} is not in S3")

    def _check_schedule(self) -> None:
        if self.interval_seconds is not None and not 0 < self.interval_seconds <= MAX_INTERVAL_SECONDS:
            raise _invalid("interval_seconds", self.interval_seconds, "must be positive, and at most a year")
        if self.count is not None and self.count < 1:
            raise _invalid(
                "count", self.count, "must be at least 1, which scans once; leave it out to scan without a limit"
            )

    def to_mapping(self) -> dict[str, Any]:
        """Return the settings as a JSON object, including secrets."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> S3Settings:
        """Parse and check the settings in a JSON object.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        settings = read_settings(cls, "S3 settings", mapping)
        settings.check()
        return settings


def _invalid(name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"S3 settings: field {name!r} {remedy}; got {value!r}")
