"""What Spark computes of batches' records: payloads parsed, records transformed, and which sinks take a row.

All batches of a delivery are computed at once, from files to files; the column `_batch_id` says what is whose. What
becomes of the files, and of records that are bad, is the delivery's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.event_time import EventTimeBounds
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import POSITION, Stage, is_of_a_record
from airflow_provider_coordination.spark.delivery import DeliveryError, Transform
from airflow_provider_coordination.spark.error_texts import error_text
from airflow_provider_coordination.spark.event_time import EventTime
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.parquet_frames import read_frame, spark_schema, write_frame
from airflow_provider_coordination.spark.payload import ERROR, JsonPayload
from airflow_provider_coordination.spark.sinks import SharesFiles, Sink
from airflow_provider_coordination.spark.storage import schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

ROUTE = "_coordination_to_{}"
"""The columns that say, in what is made for all sinks, which of them take a row."""
MARKED = tuple(f"_coordination_{name}" for name in POSITION)
"""The columns that say, there, which record a marked row is."""
GROUP = "_coordination_group"
"""The column by which rows of batches that a sink takes apart go to a file for each batch, or each shared file."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Records of one batch, to be transformed.

    Nothing is looked at that is known not to be there.

    :param batch_id: the batch; every record says it in its column `_batch_id`.
    :param file: the file that holds them.
    :param file_bytes: its size.
    :param bounds: outside which records are late or early, and not transformed; None if none is.
    :param has_unfit: whether some payloads do not fit the schema, and are not transformed.
    :param shared_file: see `Attempt.shared_file`.
    """

    batch_id: str
    file: str
    file_bytes: int
    bounds: EventTimeBounds | None = None
    has_unfit: bool = False
    shared_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Made:
    """Files that hold rows of some batches.

    :param files: all of them, at least one, with their sizes in bytes.
    :param apart: those of each group that has rows, where no file holds those of several; None otherwise. A group is
        the batches that share a file in a sink, or one alone; see `groups_of`.
    """

    files: Mapping[str, int]
    apart: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """What became of some batches' records, for all sinks.

    :param batch_ids: the batches.
    :param made: where it is.
    :param types: its columns: their types by their names.
    :param schema: the same as whoever made it reads it back by.
    :param shared_files: by batch id the file that it shares, if any.
    """

    batch_ids: Sequence[str]
    made: Made
    types: Mapping[str, str]
    schema: Any = None
    shared_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def marks(self) -> bool:
        """Whether the transform may have marked rows as bad."""
        return ERROR in self.types

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns that sinks take, by their names."""
        return {name: kind for name, kind in self.types.items() if name not in self.ours}

    @property
    def ours(self) -> list[str]:
        """The columns that sinks do not take."""
        return [name for name in self.types if name == ERROR or name.startswith("_coordination_")]

    @property
    def is_routed(self) -> bool:
        """Whether it says which rows a sink takes; it does not where the only sink takes all."""
        return ROUTE.format(0) in self.types


def shared_files_of(parts: Sequence[Part]) -> dict[str, str]:
    """Return by batch id the file that a batch shares, if any."""
    return {part.batch_id: part.shared_file for part in parts if part.shared_file is not None}


def groups_of(sink: Sink, batch_ids: Collection[str], shared_files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return batches by the group whose file takes their rows, in a sink that takes them apart.

    :param shared_files: by batch id the file that it shares, if any.
    """
    groups: dict[str, list[str]] = {}
    for batch_id in batch_ids:
        shared = shared_files.get(batch_id) if isinstance(sink, SharesFiles) else None
        groups.setdefault(batch_id if shared is None else shared.rpartition("/")[-1], []).append(batch_id)
    return groups


class Transformation(Protocol):
    """Makes of batches' landed records what sinks take."""

    layout: RecordLayout
    """The layout of the landed records."""

    def together(self, parts: Sequence[Part]) -> Sequence[Sequence[Part]]:
        """Return batches in groups, each of which can be transformed at once."""
        ...

    def left_out(self, parts: Sequence[Part]) -> pa.Table | None:
        """Return the positions of the records that are not to be transformed, with `_batch_id`, `error` and `stage`:
        `SCHEMA` where the payload does not fit, `TIME` where the record is late or early.

        :returns: None where nothing has to be looked at for that.
        """
        ...

    def write(self, parts: Sequence[Part], folder: str) -> Transformed:
        """Write what becomes of the records of some batches, marked with the sinks that take them.

        :param parts: of one of the groups that `together` returns.
        :param folder: where to.
        """
        ...

    def fails(self, part: Part) -> str | None:
        """Return what the transform raises on some record; None if it does not.

        :raises Exception: what is no record's fault.
        """
        ...

    def take(self, transformed: Transformed, number: int, sink: Sink, batch_ids: Collection[str], folder: str) -> Made:
        """Write the rows that a sink takes of some batches to a folder, as it wants them.

        :param number: the sink's, among those that rows are routed to.
        """
        ...


class SparkTransformation:
    """A transformation by Spark.

    :param spark: the session.
    :param routed: the sinks that rows are routed to, in order.
    :param layout: of the landed records.
    :param transform: from records to what is written. It gets those of many batches at once, if it keeps `_batch_id`;
        otherwise those of one batch, and the column is added.
    :param per_batch: whether it gets those of one batch in any case.
    :param payload: parses the payload before that.
    :param access: how files are reached.
    """

    def __init__(
        self,
        spark: SparkSession,
        routed: Sequence[Sink],
        *,
        layout: RecordLayout,
        transform: Transform | None = None,
        per_batch: bool = False,
        payload: JsonPayload | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self.layout = layout
        self._access = access
        self._spark = spark
        self._routed = routed
        self._transform = transform
        self._per_batch = per_batch
        self._payload = payload
        self._keeps_batch_id: dict[str, bool] = {}  # by the columns of the records that the transform gets
        self._has_warned = False
        self._last_read: tuple[Mapping[str, int], DataFrame] | None = None

    def check(self) -> None:
        """Check the predicates, as far as that is possible without records: where each file has columns of its own,
        that is their syntax.

        :raises ConfigurationError: naming the sink, its predicate and what is wrong.
        """
        from pyspark.errors import AnalysisException, ParseException

        if all(sink.where is None for sink in self._routed):
            return
        result = self._spark.range(0).toDF("_")
        telling: type[AnalysisException] = ParseException
        try:
            if self.layout.ddl is not None:
                result = self._plan(self._spark.createDataFrame([], self.layout.ddl), [])
                telling = AnalysisException
        except Exception as error:  # some transforms need records; what is wrong with others, their batches say
            log.warning("columns of predicates are not checked: the transform does not work without records: %s", error)
        for sink in self._routed:
            try:
                if sink.where is not None:
                    result.withColumn(ROUTE, _holds(sink.where))
            except telling as error:
                raise ConfigurationError(
                    f"field 'writes', sink {sink.name!r}: 'where' {sink.where!r} cannot be used: {error_text(error)}; "
                    "give a SQL predicate over the columns that are written"
                ) from None
            except AnalysisException:
                continue

    def together(self, parts: Sequence[Part]) -> Sequence[Sequence[Part]]:
        """See `Transformation.together`: files with the same columns, if the transform keeps `_batch_id`."""
        alike: dict[str, list[Part]] = {}
        for part in parts:
            alike.setdefault(self._columns(part.file), []).append(part)
        return [
            group
            for columns, found in alike.items()
            for group in ([found] if self._takes_many(columns, found) else [[part] for part in found])
        ]

    def _columns(self, file: str) -> str:
        """Return the columns of a landed file, the same text for the same columns."""
        if self.layout.ddl is not None:
            return ""
        try:
            return str(schema_of(file, self._access).to_string(show_field_metadata=False, show_schema_metadata=False))
        except Exception as error:  # who reads it for delivery, alone, says what is wrong
            if is_outage(error):
                raise
            log.debug("the columns of %s are not known: %s", file, error)
            return file

    def _takes_many(self, columns: str, parts: Sequence[Part]) -> bool:
        """Return whether the transform gets the records of these batches at once.

        :param columns: those of their records.
        """
        if len(parts) == 1 or (self._transform is None and not self._per_batch):
            return True
        if not self._per_batch and columns not in self._keeps_batch_id:
            try:
                result = self._transformed(self._with_payload(self._read(parts), parts))
                self._keeps_batch_id[columns] = BATCH_ID in result.columns
            except Exception as error:  # their delivery says what is wrong with them
                log.debug("whether the transform keeps %s is not known: %s", BATCH_ID, error)
                return True
        if not self._per_batch and self._keeps_batch_id[columns]:
            return True
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%d batches are transformed one after the other, in a Spark job each, since %s",
                len(parts),
                "'per_batch' says so: leave it out if the transform treats each record for itself"
                if self._per_batch
                else f"the transform drops {BATCH_ID!r}: keep the column, and it gets all batches of a round at once",
            )
        return False

    def left_out(self, parts: Sequence[Part]) -> pa.Table | None:
        """See `Transformation.left_out`."""
        from pyspark.sql import functions

        bounded = list(_by_bounds(parts))
        if self._payload is None and not bounded:
            return None
        is_unfit = functions.lit(False)
        error, stage = functions.lit(None).cast("string"), functions.lit(None).cast("string")
        for time, is_theirs in bounded:
            is_outside = is_theirs & time.is_outside()
            error = functions.when(is_outside, time.reason()).otherwise(error)
            stage = functions.when(is_outside, str(Stage.TIME)).otherwise(stage)
        if self._payload is not None:
            is_unfit = ~self._payload.fits()
            error = functions.when(is_unfit, self._payload.reason()).otherwise(error)
            stage = functions.when(is_unfit, str(Stage.SCHEMA)).otherwise(stage)
        is_left_out = is_unfit
        for time, is_theirs in bounded:
            is_left_out = is_left_out | (is_theirs & time.is_outside())
        found = self._read(parts).where(is_left_out)
        return found.select(BATCH_ID, *self.layout.position, error.alias("error"), stage.alias("stage")).toArrow()

    def write(self, parts: Sequence[Part], folder: str) -> Transformed:
        """See `Transformation.write`."""
        plan = self._routing(parts)
        batch_ids = [part.batch_id for part in parts]
        types = {field.name: field.dataType.simpleString() for field in plan.schema}
        # Where one sink takes all, these are its files.
        shared = shared_files_of(parts)
        made = (
            self._write(plan, folder)
            if ROUTE.format(0) in types
            else self._arranged(plan, self._routed[0], groups_of(self._routed[0], batch_ids, shared), folder)
        )
        return Transformed(batch_ids=batch_ids, made=made, types=types, schema=plan.schema, shared_files=shared)

    def fails(self, part: Part) -> str | None:
        """See `Transformation.fails`."""
        try:
            self._routing([part]).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not is_of_a_record(error):
                raise
            return error_text(error)
        return None

    def take(self, transformed: Transformed, number: int, sink: Sink, batch_ids: Collection[str], folder: str) -> Made:
        """See `Transformation.take`."""
        from pyspark.sql import functions

        rows = read_frame(self._spark, transformed.made.files, transformed.schema, self._access)
        if transformed.is_routed:
            rows = rows.where(ROUTE.format(number))
        if set(batch_ids) != set(transformed.batch_ids):
            rows = rows.where(functions.col(BATCH_ID).isin(*batch_ids))
        groups = groups_of(sink, batch_ids, transformed.shared_files)
        return self._arranged(rows.drop(*transformed.ours), sink, groups, folder)

    def _read(self, parts: Sequence[Part]) -> DataFrame:
        """Return the landed records of some batches; a file is looked at once, however often it is asked."""
        files = {part.file: part.file_bytes for part in parts}
        if self._last_read is None or self._last_read[0] != files:
            self._last_read = files, read_frame(self._spark, files, self._schema(parts[0].file), self._access)
        _, records = self._last_read
        if self._payload is not None and self.layout.ddl is None:
            self._payload.check(records)
        return records

    def _schema(self, file: str) -> StructType:
        """Return the columns of landed records, which are those of all files that are read together."""
        from pyspark.sql.types import StructType

        if self.layout.ddl is not None:
            schema = StructType.fromDDL(self.layout.ddl)
            assert isinstance(schema, StructType)
            return schema
        return spark_schema(schema_of(file, self._access))

    def _with_payload(self, records: DataFrame, parts: Sequence[Part]) -> DataFrame:
        """Return records of some batches as the transform gets them."""
        for time, is_theirs in _by_bounds(parts):
            records = records.where(~(is_theirs & time.is_outside()))
        if self._payload is None:
            return records
        has_unfit = any(part.has_unfit for part in parts)
        return self._payload.parsed(self._payload.fitting(records) if has_unfit else records)

    def _transformed(self, records: DataFrame) -> DataFrame:
        result: Any = records if self._transform is None else self._transform(records)
        if not hasattr(result, "write"):
            raise TypeError(f"the transform must return a DataFrame; it returned {type(result).__name__}")
        return result  # type: ignore[no-any-return]

    def _plan(self, records: DataFrame, parts: Sequence[Part]) -> DataFrame:
        """Return what becomes of records of some batches, before it is routed."""
        from pyspark.sql import functions

        result = self._transformed(self._with_payload(records, parts))
        if BATCH_ID in result.columns:
            return result
        if len(parts) > 1:
            raise DeliveryError(
                f"the transform keeps {BATCH_ID!r} of some batches and drops it of others; keep it always, or never"
            )
        return result.withColumn(BATCH_ID, functions.lit(parts[0].batch_id if parts else ""))

    def _routing(self, parts: Sequence[Part]) -> DataFrame:
        """Return what is written of the records of some batches, with what says which sinks take it."""
        from pyspark.sql import functions

        result = self._plan(self._read(parts), parts)
        marks = ERROR in result.columns
        if len(self._routed) == 1 and self._routed[0].where is None and not marks:
            return result
        if marks:
            result = _with_positions(result, self.layout.position)
        unmarked = functions.col(ERROR).isNull() if marks else functions.lit(True)
        routes = {ROUTE.format(n): unmarked & _holds(sink.where or "true") for n, sink in enumerate(self._routed)}
        return result.withColumns(routes)

    def _arranged(self, rows: DataFrame, sink: Sink, groups: Mapping[str, Sequence[str]], folder: str) -> Made:
        """Write the rows of some batches to a folder as a sink wants them.

        :param groups: the batches, as `groups_of` returns them.
        """
        if len(groups) > 1 and sink.is_apart:
            # Each group in one task, and so in one file.
            return self._write(rows.withColumn(GROUP, _group(groups)).repartition(GROUP), folder, GROUP)
        made = self._write(sink.arrange(rows), folder)
        return Made(files=made.files, apart={each: list(made.files) for each in groups}) if sink.is_apart else made

    def _write(self, rows: DataFrame, folder: str, by: str | None = None) -> Made:
        """Write rows to a folder, each partition as one file, whatever the session is set to; return the files.

        :param by: the column that says which rows are kept apart, if any are.
        """
        written = write_frame(rows, folder, self._access, by)
        files = {each.file: each.bytes for each in written}
        if by is None:
            return Made(files=files)
        apart: dict[str, list[str]] = {}
        for each in written:
            apart.setdefault(each.of, []).append(each.file)
        return Made(files=files, apart=apart)


def _with_positions(result: DataFrame, position: Sequence[str]) -> DataFrame:
    """Return what a transform made with the marked rows' positions under names of ours.

    :param position: the columns that hold them.
    :raises DeliveryError: if it did not keep them.
    """
    from pyspark.sql import functions

    missing = [name for name in position if name not in result.columns]
    if missing:
        raise DeliveryError(
            f"the transform marks records by {ERROR!r} and drops {' and '.join(map(repr, missing))}, which say what "
            "record a row is; keep them"
        )
    is_marked = functions.col(ERROR).isNotNull()
    types = ("string", "bigint")
    return result.withColumns(
        {
            ERROR: functions.col(ERROR).cast("string"),
            **{
                ours: functions.when(is_marked, functions.col(name).cast(kind))
                for ours, name, kind in zip(MARKED, position, types, strict=True)
            },
        }
    )


def _holds(where: str) -> Column:
    """Return whether a predicate holds; where it is null it does not."""
    from pyspark.sql import functions

    return functions.coalesce(functions.expr(where), functions.lit(False))


def _by_bounds(parts: Sequence[Part]) -> Iterator[tuple[EventTime, Column]]:
    """Yield the bounds of some batches' records, each with whether a record is of a batch that has them."""
    from pyspark.sql import functions

    bounded: dict[EventTimeBounds, list[str]] = {}
    for part in parts:
        if part.bounds is not None:
            bounded.setdefault(part.bounds, []).append(part.batch_id)
    for bounds, batch_ids in bounded.items():
        everywhere = len(batch_ids) == len(parts)
        yield EventTime(bounds), functions.lit(True) if everywhere else functions.col(BATCH_ID).isin(*batch_ids)


def _group(groups: Mapping[str, Sequence[str]]) -> Column:
    """Return the group that a row is of."""
    from pyspark.sql import functions

    group = functions.col(BATCH_ID)
    for name, batch_ids in groups.items():
        if list(batch_ids) != [name]:
            group = functions.when(functions.col(BATCH_ID).isin(*batch_ids), name).otherwise(group)
    return group
