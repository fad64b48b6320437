"""The protocol of a sink that a DAG describes."""

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

    Airflow renders the attributes that `template_fields` names in place, so it must not be frozen. Its `repr` is part
    of the serialized DAG and of the rendered templates, so it must be the same each time the file is parsed.
    """

    @property
    def template_fields(self) -> Sequence[str]:
        """The names of its templated fields; a class attribute is enough."""
        ...

    @property
    def landing_path(self) -> str | None:
        """Where raw batches may wait for delivery, once templates are rendered; None if the sink has no such folder."""
        ...

    def connect(self) -> SinkSettings:
        """Resolve the connections, in a task.

        :returns: the settings of the sink; `sinks_of` adds the implementation of its kind.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...


def with_aws_connection(aws_conn_id: str | None, settings: SinkSettings) -> SinkSettings:
    """Return the settings of a sink, with the AWS settings for its files.

    :param aws_conn_id: the AWS connection; None for the AWS default credential chain.
    """
    if aws_conn_id is None:
        return settings
    from airflow_provider_coordination.hooks.aws import aws_settings

    return replace(settings, aws=aws_settings(aws_conn_id, service="s3"))


def check_aws_connection(aws_conn_id: str | None, sink: str, field: str, path: str) -> None:
    """Check that an AWS connection is given only for a path on S3.

    :param sink: how error messages name the sink, such as `DeltaTable 'main'`.
    :param field: the field that holds the path.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if aws_conn_id is not None and not is_s3(path):
        raise ConfigurationError(
            f"field 'aws_conn_id' of {sink} is {aws_conn_id!r}, but its {field} {path!r} is not on S3; leave it out, "
            "or give a path such as 's3://lake/clicks'"
        )


def sinks_of(writes: Writes | Sequence[Writes]) -> tuple[SinkSettings, ...]:
    """Return the sinks that `writes` describes, their connections resolved.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    return tuple(_with_implementation(each.connect()) for each in all_of(writes))


def landing_path_of(writes: Writes | Sequence[Writes]) -> str:
    """Return the default location of raw batches that wait for delivery: beside the first sink that has a folder.

    :raises ConfigurationError: if no sink has one.
    """
    for each in all_of(writes):
        if (path := each.landing_path) is not None:
            return path
    raise ConfigurationError(
        "field 'landing_path' is missing, and no sink in field 'writes' is a folder where raw batches can wait for "
        "delivery; give a path or URI that every worker reaches"
    )


def all_of(writes: Any) -> Sequence[Writes]:
    """Return the sinks that a task describes: a single one, or those of a list.

    :raises ConfigurationError: if there is none, or a value is not a sink.
    """
    if isinstance(writes, Writes):
        return (writes,)
    if isinstance(writes, str) or not isinstance(writes, Sequence):
        raise _unusable("field 'writes'", writes)
    if not writes:
        raise ConfigurationError(f"field 'writes' must not be empty; give at least one sink, such as {EXAMPLE}")
    for number, each in enumerate(writes, 1):
        if not isinstance(each, Writes):
            raise _unusable(f"field 'writes', number {number},", each)
    return writes


def _unusable(what: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{what} must be a sink of 'operators.writes', such as {EXAMPLE}; got {value!r}")


def _with_implementation(sink: SinkSettings) -> SinkSettings:
    """Add the implementation of the sink's kind: its entry point may not be installed where the job runs."""
    return replace(sink, implementation=sink.implementation or SINKS.implementation(sink.kind))
