"""What the operators ask of each kind of sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import is_s3
from airflow_provider_coordination.spark.settings import SinkSettings
from airflow_provider_coordination.spark.sinks import SINKS

EXAMPLE = "ParquetDataset('/data/lake/clicks')"


@runtime_checkable
class Writes(Protocol):
    """A sink as a DAG describes it.

    Airflow renders the attributes that `template_fields` names, in place: it must not be frozen. Its text, by `repr`,
    is in the serialized DAG and in the rendered templates: it has to be the same each time the file is parsed.
    """

    @property
    def template_fields(self) -> Sequence[str]:
        """The names of its templated fields; a class attribute does."""
        ...

    @property
    def landing_path(self) -> str | None:
        """Where raw batches may wait for delivery to it, once templates are rendered; None if it has no such place."""
        ...

    def connect(self) -> SinkSettings:
        """Resolve the connections, in a task.

        :returns: the sink, as the Spark job makes it; `sinks_of` adds the implementation of its kind.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...


def reached_by(aws_conn_id: str | None, settings: SinkSettings) -> SinkSettings:
    """Return the settings of a sink with how its files are reached.

    :param aws_conn_id: the name of an AWS connection; None for the AWS SDK's default chain.
    """
    if aws_conn_id is None:
        return settings
    from airflow_provider_coordination.hooks.aws import aws_settings

    return replace(settings, aws=aws_settings(aws_conn_id, service="s3"))


def check_reached_by(aws_conn_id: str | None, sink: str, field: str, path: str) -> None:
    """Check that a connection is given only for a path on S3.

    :param sink: what errors call the sink, such as `DeltaTable 'main'`.
    :param field: the one that holds the path.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if aws_conn_id is not None and not is_s3(path):
        raise ConfigurationError(
            f"field 'aws_conn_id' of {sink} is {aws_conn_id!r}, and its {field} {path!r} is not on S3; leave it out, "
            "or give a path such as 's3://lake/clicks'"
        )


def sinks_of(writes: Writes | Sequence[Writes]) -> tuple[SinkSettings, ...]:
    """Return the sinks that `writes` describes, their connections resolved.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    return tuple(_with_implementation(each.connect()) for each in all_of(writes))


def landing_path_of(writes: Writes | Sequence[Writes]) -> str:
    """Return where raw batches wait for delivery where the task gives no place: beside the first sink that has one.

    :raises ConfigurationError: if none has.
    """
    for each in all_of(writes):
        if (path := each.landing_path) is not None:
            return path
    raise ConfigurationError(
        "field 'landing_path' is missing, and no sink of field 'writes' is a folder where raw batches can wait for "
        "delivery: give a path or URI that every worker reaches"
    )


def all_of(writes: Any) -> Sequence[Writes]:
    """Return each sink that a task describes: one, or those of a list.

    :raises ConfigurationError: if there is none, or something else.
    """
    if isinstance(writes, Writes):
        return (writes,)
    if isinstance(writes, str) or not isinstance(writes, Sequence):
        raise _unusable("field 'writes'", writes)
    if not writes:
        raise ConfigurationError(f"field 'writes' must not be empty: give at least one sink, such as {EXAMPLE}")
    for number, each in enumerate(writes, 1):
        if not isinstance(each, Writes):
            raise _unusable(f"field 'writes', number {number},", each)
    return writes


def _unusable(what: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{what} must be a sink of 'operators.writes', such as {EXAMPLE}; got {value!r}")


def _with_implementation(sink: SinkSettings) -> SinkSettings:
    """Add where the kind is implemented: entry points are seen here, and perhaps not where the job runs."""
    return replace(sink, implementation=sink.implementation or SINKS.implementation(sink.kind))
