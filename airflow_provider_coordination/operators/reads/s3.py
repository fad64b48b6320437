"""S3 objects, or files of another filesystem, as a source of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.reads.reads import Connected
from airflow_provider_coordination.operators.template_values import (
    bool_value,
    instant_value,
    int_value,
    names_value,
    seconds_value,
    text_value,
)
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.s3.format_settings import FormatSettings
from airflow_provider_coordination.sources.s3.locations import is_s3
from airflow_provider_coordination.sources.s3.settings import KIND, ProcessingCondition, S3Settings

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier

T = TypeVar("T")


@dataclass
class S3Objects:
    """Objects in S3, or files on any filesystem that pyarrow reaches, for the `reads` of operators.

    Each object is delivered once, by its name and version: an object that is uploaded again with other content is
    delivered again.

    :param paths: the locations: `s3://bucket/prefix`, or a folder or file such as `/data/in` or `hdfs://name:8020/in`;
        one, or a list. A prefix is the beginning of names; end it with `/` for a folder. (templated)
    :param source: the source's name if the operator sets none; by default the name of the only path. (templated)
    :param format: the format of the objects: `"csv"`, `"json"` (one JSON object a line), `"parquet"` or `"text"`.
        (templated)
    :param format_options: options of the format; see `FormatSettings`. (templated)
    :param include: globs of which at least one must match; all objects by default. `*.csv` matches the file name in any
        folder, `2026/**/*.csv` matches the whole name below the path. (templated)
    :param exclude: globs of which none may match. (templated)
    :param exclude_suffixes: suffixes of names to leave out. (templated)
    :param hidden: include names and folders that begin with `_` or `.`. (templated)
    :param start_time: read only objects modified at this instant or later; an aware datetime or its ISO 8601 text.
        (templated)
    :param end_time: read only objects modified before this instant. (templated)
    :param range: read only objects modified within this duration before a scan begins; a timedelta or seconds.
        (templated)
    :param interval: the minimum time between the beginnings of two scans, however often the task runs; a timedelta or
        seconds. (templated)
    :param count: the maximum number of scans; 1 scans once. (templated)
    :param folder_depth: group objects by the folder at this depth below the path: a partition holds objects of one such
        folder only. (templated)
    :param delete_on_success: delete objects once every sink has acknowledged them. (templated)
    :param forget_after: how long an S3 object is remembered after it was found; objects that were modified longer ago
        are never read. At least a day, a timedelta or seconds; None remembers every object forever. (templated)
    :param wait_for: an object, such as `_SUCCESS`, that must be in the same folder before objects are read.
        (templated)
    :param wait_delay: how long to wait before the next check for that object; a timedelta or seconds. (templated)
    :param wait_retries: the maximum number of further checks; after them the objects are read as they are. (templated)
    :param max_objects: the maximum number of objects in a partition. (templated)
    :param max_bytes: the maximum number of bytes in a partition, as stored. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the connection. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "paths",
        "source",
        "format",
        "format_options",
        "include",
        "exclude",
        "exclude_suffixes",
        "hidden",
        "start_time",
        "end_time",
        "range",
        "interval",
        "count",
        "folder_depth",
        "delete_on_success",
        "forget_after",
        "wait_for",
        "wait_delay",
        "wait_retries",
        "max_objects",
        "max_bytes",
        "aws_conn_id",
        "region_name",
    )
    is_endless: ClassVar[bool] = False

    paths: str | Sequence[str]
    _: KW_ONLY
    source: str | None = None
    format: str = FormatSettings.name
    format_options: Mapping[str, Any] | None = None
    include: str | Sequence[str] = ()
    exclude: str | Sequence[str] = ()
    exclude_suffixes: str | Sequence[str] = ()
    hidden: bool | str = False
    start_time: datetime | str | None = None
    end_time: datetime | str | None = None
    range: timedelta | float | str | None = None
    interval: timedelta | float | str | None = None
    count: int | str | None = None
    folder_depth: int | str | None = None
    delete_on_success: bool | str = False
    forget_after: timedelta | float | str | None = None
    wait_for: str | None = None
    wait_delay: timedelta | float | str = ProcessingCondition.retry_seconds
    wait_retries: int | str = ProcessingCondition.max_retries
    max_objects: int | str = S3Settings.max_objects
    max_bytes: int | str = S3Settings.max_bytes
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None

    @property
    def kind(self) -> str:
        """See `Reads.kind`."""
        return KIND

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        paths = _names("paths", self.paths)
        if name := text_value(self.source):
            return name
        if len(paths) != 1:
            raise ConfigurationError(
                f"S3Objects: field 'source' is missing: the paths {', '.join(map(repr, paths))} need a common source "
                "name; give 'source'"
            )
        return paths[0].partition("://")[2].strip("/") or paths[0]

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`."""
        fields = {"include": self.include, "exclude": self.exclude, "exclude_suffixes": self.exclude_suffixes}
        given = {field: sorted(_names(field, value)) for field, value in fields.items()}
        return {"paths": sorted(_names("paths", self.paths)), **{f: names for f, names in given.items() if names}}

    def within(self, start: datetime, end: datetime) -> S3Objects:
        """See `Bounded.within`: the objects that were modified in the interval."""
        for name in ("start_time", "end_time", "range", "interval", "count"):
            if text_value(getattr(self, name)) is not None:
                raise ConfigurationError(
                    f"S3Objects: field {name!r} and the operator's 'interval' are both given; remove one of them"
                )
        return replace(self, start_time=start, end_time=end, forget_after=None)

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> S3Objects:
        """See `Deduplicated.beside`: the two sources share their claims, so one of them delivers each object."""
        coordinator.share_claims(other.source)
        return self.within(start, end)

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self.settings()

    def settings(self) -> S3Settings:
        """Return the checked settings of the source, without its connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        now = datetime.now(UTC)
        settings = S3Settings(
            paths=_names("paths", self.paths),
            format=read_settings(
                FormatSettings,
                "S3Objects: 'format_options'",
                {"name": self.format, **_listed(self.format_options or {})},
            ),
            include=_names("include", self.include),
            exclude=_names("exclude", self.exclude),
            exclude_suffixes=_names("exclude_suffixes", self.exclude_suffixes),
            hidden=bool_value("hidden", self.hidden),
            start_time=instant_value("start_time", self.start_time, now=now),
            end_time=instant_value("end_time", self.end_time, now=now),
            range_seconds=seconds_value("range", self.range),
            interval_seconds=seconds_value("interval", self.interval),
            count=int_value("count", self.count),
            folder_depth=int_value("folder_depth", self.folder_depth),
            delete_on_success=bool_value("delete_on_success", self.delete_on_success),
            forget_after_seconds=seconds_value("forget_after", self.forget_after),
            condition=self._condition(),
            max_objects=_or_default(int_value("max_objects", self.max_objects), S3Settings.max_objects),
            max_bytes=_or_default(int_value("max_bytes", self.max_bytes), S3Settings.max_bytes),
        )
        settings.check()
        return settings

    def connect(self, default_region: str | None = None) -> Connected:
        """See `Reads.connect`."""
        settings = replace(self.settings(), aws=self._aws())

        def supplier(coordinator: SourceCoordinator) -> Supplier:
            from airflow_provider_coordination.sources.s3.scan import S3Scan

            return S3Scan(settings, coordinator)

        return Connected(reads=ReadsSettings(kind=KIND, settings=settings.to_mapping()), supplier=supplier)

    def _aws(self) -> AwsSettings:
        if not any(map(is_s3, _names("paths", self.paths))):
            return AwsSettings()
        from airflow_provider_coordination.hooks.aws import aws_settings

        return aws_settings(text_value(self.aws_conn_id), text_value(self.region_name), service="s3")

    def _condition(self) -> ProcessingCondition | None:
        name = text_value(self.wait_for)
        if name is None:
            return None
        return ProcessingCondition(
            object_name=name,
            retry_seconds=_or_default(seconds_value("wait_delay", self.wait_delay), ProcessingCondition.retry_seconds),
            max_retries=_or_default(int_value("wait_retries", self.wait_retries), ProcessingCondition.max_retries),
        )


def _names(field: str, value: Any) -> tuple[str, ...]:
    """Return the texts of a field that holds one text or a list."""
    if isinstance(value, str):
        return (value,) if text_value(value) else ()
    return names_value(field, value, instead="text") if value else ()


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form that JSON has."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value
