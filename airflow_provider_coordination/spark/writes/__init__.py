"""Sinks as a DAG or a spec describes them, and as jobs read them; they need neither Airflow nor Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, Texts
from airflow_provider_coordination.settings import Described, FieldError, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.spark.access import is_s3
from airflow_provider_coordination.spark.job_settings import check_function
from airflow_provider_coordination.spark.sink_settings import MAIN, OF_FUNCTION, PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks import SINKS

EXAMPLE = "ParquetDataset('/data/lake/clicks')"
TARGET_FILE_BYTES = 128 * 2**20
TOMBSTONE_RETENTION = timedelta(days=7)
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
LEVELS = {"zstd": 22, "gzip": 9}
"""The highest level of each codec that has levels."""
TYPES = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp")
"""The types that a column may have, as the Delta protocol names them; decimals are allowed as well."""


@dataclass(kw_only=True)
class Writes(Described):
    """A sink that a user writes in a DAG or a spec, and that a job reads.

    Airflow renders the attributes that `template_fields` names in place, so a sink must not be frozen. Its `repr` is
    part of the serialized DAG and of the rendered templates, so it must be the same each time the file is parsed.

    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param aws_conn_id: the AWS connection for files on S3; by default the AWS default credential chain. (templated)
    """

    kind: ClassVar[str]
    folder_field: ClassVar[str] = "path"
    """The field that holds the folder of the sink's files; empty if the sink has no folder."""

    name: str = MAIN
    where: str | None = None
    aws_conn_id: str | None = None

    @property
    @override
    def title(self) -> str:
        return f"{type(self).__name__} {text_value(self.name) or MAIN!r}"

    @property
    def folder(self) -> str | None:
        """The folder of the sink's files; None if it has none."""
        return text_value(getattr(self, self.folder_field)) if self.folder_field else None

    @property
    def landing_path(self) -> str | None:
        """Where raw batches may wait for delivery, once templates are rendered; None if the sink has no such folder."""
        return None if self.folder is None else f"{self.folder.rstrip('/')}/_landing"

    @property
    def sink_location(self) -> str:
        """The sink's location; see `SinkSettings.location`."""
        return str(self.folder)

    def connect(self, connections: ConnectionResolver) -> SinkSettings:
        """Resolve the connections, in a task.

        :param connections: resolves what the sink names.
        :returns: the settings of the sink; `sinks_of` adds the implementation of its kind.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        sink = self.resolved()
        aws = None if sink.aws_conn_id is None else connections.aws(sink.aws_conn_id, None, "s3")
        sink.use(connections, aws)
        return SinkSettings(
            name=sink.name,
            kind=sink.kind,
            location=sink.sink_location,
            where=sink.where,
            files=None if sink.folder == sink.sink_location else sink.folder,
            aws=aws,
            settings=sink.to_mapping(),
        )

    def use(self, connections: ConnectionResolver, aws: AwsSettings | None) -> None:
        """Set the fields that connections determine; the others are resolved.

        :param connections: resolves what the sink names.
        :param aws: how to reach its files.
        """

    @override
    def check_together(self) -> None:
        if self.where is not None and not self.where.strip():
            raise self.invalid("where", "must not be empty; leave it out")
        if self.folder_field:
            self._check_folder()

    def _check_folder(self) -> None:
        if not (self.folder or "").strip():
            raise self.invalid(
                self.folder_field, "must not be empty; give the path or URI of a folder that every worker reaches"
            )
        if self.aws_conn_id is not None and not is_s3(str(self.folder)):
            raise self.invalid(
                "aws_conn_id",
                f"must be left out: {self.folder_field!r} is {self.folder!r}, which is not on S3",
            )


@dataclass(kw_only=True)
class MergingSink(Writes):
    """A sink whose rows may replace or delete existing rows.

    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins among the rows of one key, in a delivery and in the table. Of
        equal ones, the one delivered last wins. Without it, a key must be unique in a batch, and the later delivery
        wins. (templated)
    :param op: the column that says what a row does: `DELETE`, `REMOVE` or `D` deletes the row of its key. The names of
        other changes, and null, replace it. It needs `order_by`. (templated)
    :param tombstone_retention: how long the table remembers the key and the order of a deleted row, so that no older
        change restores it. (templated)
    """

    merge_on: Annotated[Texts, Limits(is_unique=True)] = ()
    order_by: str | None = None
    op: str | None = None
    tombstone_retention: Annotated[timedelta, Limits(minimum=timedelta(0))] = TOMBSTONE_RETENTION

    @override
    def check_together(self) -> None:
        super().check_together()
        if not all(name.strip() for name in self.merge_on):
            raise self.invalid("merge_on", "must name columns that identify a row")
        for name, needed, what in (
            ("order_by", self.merge_on, "'merge_on', the columns that identify a row"),
            ("op", self.order_by, "'order_by', the column that decides whether a change is older than a delete"),
        ):
            if getattr(self, name) is not None and not needed:
                raise self.invalid(name, f"needs {what}; set that, or leave {name!r} out")
        if self.order_by is not None and self.order_by in self.merge_on:
            raise self.invalid("order_by", "must not be a column of 'merge_on': rows with one key would have one order")
        if self.op is not None and self.op in (*self.merge_on, self.order_by):
            raise self.invalid("op", "must be a separate column, neither a key of 'merge_on' nor 'order_by'")


def sinks_of(writes: Writes | Sequence[Writes], connections: ConnectionResolver) -> tuple[SinkSettings, ...]:
    """Return the sinks that `writes` describes, their connections resolved.

    :param connections: resolves what they name.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    return tuple(_with_implementation(each.connect(connections)) for each in all_of(writes))


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
    return ConfigurationError(f"{what} must be a sink of 'spark.writes', such as {EXAMPLE}; got {value!r}")


def _with_implementation(sink: SinkSettings) -> SinkSettings:
    """Add the implementation of the sink's kind: its entry point may not be installed where the job runs."""
    return replace(sink, implementation=sink.implementation or SINKS.implementation(sink.kind))


@dataclass
class ParquetDataset(Writes):
    """A folder of Parquet files, for the `writes` of operators.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param target_file_bytes: the maximum number of landed bytes in a file that batches of a delivery share. With 1,
        each batch has its own file. So it has if other parties acknowledge batches. A batch is always complete in one
        file. (templated)
    :param partition_by: the columns of Hive folders, such as `day=2026-01-31`, from the outermost; each batch then has
        its own files. (templated)
    :param compression: the codec: `zstd`, `snappy`, `gzip`, `lz4` or `none`. Only files of `zstd` are shared.
        (templated)
    :param compression_level: the level of the codec: 1 to 22 for `zstd`, 1 to 9 for `gzip`; by default the codec's own.
        (templated)
    :param aws_conn_id: the AWS connection for S3, also for landed data and dead letters in the bucket; by default the
        AWS default credential chain. (templated)
    """

    kind: ClassVar[str] = PARQUET

    path: str
    _: KW_ONLY
    target_file_bytes: Annotated[int, Limits(minimum=1)] = TARGET_FILE_BYTES
    partition_by: Annotated[Texts, Limits(is_unique=True)] = ()
    compression: Annotated[str, Limits(one_of=CODECS)] = CODECS[0]
    compression_level: Annotated[int | None, Limits(minimum=1)] = None

    @override
    def check_together(self) -> None:
        super().check_together()
        for name in self.partition_by:
            if not name.strip() or name.startswith(("_", ".")):
                raise self.invalid(
                    "partition_by", "must name columns; readers skip folders whose names begin with '_' or '.'"
                )
        most = LEVELS.get(self.compression, 0)
        if self.compression_level is not None and self.compression_level > most:
            said = f"must be at most {most} for {self.compression!r}" if most else "needs the codec 'zstd' or 'gzip'"
            raise self.invalid("compression_level", said)


@dataclass
class DeltaTable(MergingSink):
    """A Delta table, for the `writes` of operators. It is created if it does not exist.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param partition_by: the partition columns of a new table. Other ones than those of an existing table are an error
        at the job's start. (templated)
    :param columns: the types of a new table's columns by name, as the Delta protocol writes them, such as `{"amount":
        "decimal(12,2)"}`; by default those of the records. (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins among the rows of one key, in a delivery and in the table. Of
        equal ones, the one delivered last wins. Without it, a key must be unique in a batch, and the later delivery
        wins. (templated)
    :param op: the column that says what a row does: `DELETE`, `REMOVE` or `D` deletes the row of its key. The names of
        other changes, and null, replace it. It needs `order_by`. (templated)
    :param tombstone_retention: how long the table remembers the key and the order of a deleted row, so that no older
        change restores it. (templated)
    :param aws_conn_id: the AWS connection for S3, also for landed data and dead letters in the bucket; by default the
        AWS default credential chain. (templated)
    """

    kind: ClassVar[str] = "delta"

    path: str
    _: KW_ONLY
    partition_by: Texts = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @override
    def check_together(self) -> None:
        super().check_together()
        if not all(name.strip() for name in self.partition_by):
            raise self.invalid("partition_by", "must name columns; leave an empty name out")
        for name, kind in self.columns.items():
            if kind not in TYPES and not re.fullmatch(r"decimal\(\d{1,2}, ?\d{1,2}\)", kind):
                raise FieldError(
                    self.title,
                    f"columns.{name}",
                    f"must be one of {', '.join(TYPES)}, or a decimal such as decimal(12,2); got {kind!r}",
                )


@dataclass
class ForeachBatch(Writes):
    """A function that receives the rows of each delivery and the ids of its batches, for the `writes` of operators.

    It receives each batch **at least once**.

    :param function: `module:function`, called with a DataFrame and a list of batch ids; ship its module with
        `py_files`. (templated)
    :param staging_path: where rows wait for the call: a path or URI that the driver and every executor reach.
        (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the function receives: a SQL predicate over the written columns; all by default.
        (templated)
    :param aws_conn_id: the AWS connection for a staging path on S3; by default the AWS default credential chain.
        (templated)
    """

    kind: ClassVar[str] = "foreach_batch"
    folder_field: ClassVar[str] = "staging_path"

    function: str
    _: KW_ONLY
    staging_path: str

    def __post_init__(self) -> None:
        """Refuse a function in place of its name: Airflow would call it when it renders the field."""
        if callable(self.function):
            check_function("ForeachBatch: field 'function'", self.function)

    @property
    @override
    def sink_location(self) -> str:
        # The function, and that it is called at least once.
        return f"{OF_FUNCTION}{self.function}"

    @override
    def check_together(self) -> None:
        super().check_together()
        check_function(f"{self.title}: field 'function'", self.function)
