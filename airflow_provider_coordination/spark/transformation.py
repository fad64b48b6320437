"""What Spark computes of a batch's records: payloads parsed, records transformed, and which sinks take a row.

Everything goes from a file to a file. What becomes of the files, and of records that are bad, is the delivery's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.event_time import EventTimeBounds
from airflow_provider_coordination.spark.bad_records import POSITION, Stage, error_text, is_of_a_record
from airflow_provider_coordination.spark.delivery import DeliveryError, Transform
from airflow_provider_coordination.spark.event_time import EventTime
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.payload import ERROR, JsonPayload
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.storage import files_below

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

ROUTE = "_coordination_to_{}"
"""The columns that say, in what is made for all sinks, which of them take a row."""
MARKED = tuple(f"_coordination_{name}" for name in POSITION)
"""The columns that say, there, which record a marked row is."""


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """What became of a batch's records, for all sinks.

    :param files: the files that hold it, at least one.
    :param types: its columns: their types by their names.
    :param schema: the same as whoever made it reads it back by.
    """

    files: Sequence[str]
    types: Mapping[str, str]
    schema: Any = None

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

    def is_for(self, sink: int) -> bool:
        """Return whether it says which rows a sink takes; it does not where the only sink takes all."""
        return ROUTE.format(sink) in self.types


@dataclass(frozen=True, kw_only=True)
class Sieve:
    """Which records are not transformed; nothing is looked at that is known not to be there.

    :param unfit: whether some payloads do not fit the schema.
    :param bounds: outside which records are late or early; None if none is.
    """

    unfit: bool = False
    bounds: EventTimeBounds | None = None


class Transformation(Protocol):
    """Makes of a batch's landed records what sinks take."""

    layout: RecordLayout
    """The layout of the landed records."""

    def left_out(self, file: str, bounds: EventTimeBounds | None) -> pa.Table | None:
        """Return the positions of the records in a landed file that are not to be transformed, with `error` and
        `stage`: `SCHEMA` where the payload does not fit, `TIME` where the record is late or early.

        :param bounds: outside which it is; None if no record is.
        :returns: None where nothing has to be looked at for that.
        """
        ...

    def write(self, file: str, folder: str, batch_id: str, sieve: Sieve) -> Transformed:
        """Write what becomes of the records of a file, marked with the sinks that take them.

        :param folder: where to; whatever it holds is replaced.
        :param sieve: which of the records to leave out.
        """
        ...

    def fails(self, file: str, batch_id: str, sieve: Sieve) -> str | None:
        """Return what the transform raises on some record of a file; None if it does not.

        :raises Exception: what is no record's fault.
        """
        ...

    def take(self, made: Transformed, number: int, sink: Sink, folder: str) -> Sequence[str]:
        """Write the rows that a sink takes to a folder, arranged for it; return the files.

        :param number: the sink's, among those that rows are routed to.
        """
        ...


class SparkTransformation:
    """A transformation by Spark.

    :param spark: the session.
    :param routed: the sinks that rows are routed to, in order.
    :param layout: of the landed records.
    :param transform: from a batch's records to what is written; `_batch_id` is added if it does not keep it.
    :param payload: parses the payload before that.
    """

    def __init__(
        self,
        spark: SparkSession,
        routed: Sequence[Sink],
        *,
        layout: RecordLayout,
        transform: Transform | None = None,
        payload: JsonPayload | None = None,
    ) -> None:
        self.layout = layout
        self._spark = spark
        self._routed = routed
        self._transform = transform
        self._payload = payload

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
                result = self._plan(self._spark.createDataFrame([], self.layout.ddl), "", Sieve())
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

    def left_out(self, file: str, bounds: EventTimeBounds | None) -> pa.Table | None:
        """See `Transformation.left_out`."""
        from pyspark.sql import functions

        payload, time = self._payload, None if bounds is None else EventTime(bounds)
        if payload is None and time is None:
            return None
        nothing, no = functions.lit(None), functions.lit(False)
        is_unfit, unfit = (no, nothing) if payload is None else (~payload.fits(), payload.reason())
        is_outside, outside = (no, nothing) if time is None else (time.is_outside(), time.reason())
        found = self._read(file).where(is_unfit | is_outside)
        error = functions.when(is_unfit, unfit).otherwise(outside).cast("string")
        stage = functions.when(is_unfit, str(Stage.SCHEMA)).otherwise(str(Stage.TIME))
        return found.select(*self.layout.position, error.alias("error"), stage.alias("stage")).toArrow()

    def write(self, file: str, folder: str, batch_id: str, sieve: Sieve) -> Transformed:
        """See `Transformation.write`."""
        plan = self._routing(file, batch_id, sieve)
        types = {field.name: field.dataType.simpleString() for field in plan.schema}
        # Where one sink takes all, these are its files; otherwise the first one's arrangement is as good as any.
        files = _write(self._routed[0].arrange(plan), folder)
        return Transformed(files=files, types=types, schema=plan.schema)

    def fails(self, file: str, batch_id: str, sieve: Sieve) -> str | None:
        """See `Transformation.fails`."""
        try:
            self._routing(file, batch_id, sieve).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not is_of_a_record(error):
                raise
            return error_text(error)
        return None

    def take(self, made: Transformed, number: int, sink: Sink, folder: str) -> Sequence[str]:
        """See `Transformation.take`."""
        rows = self._spark.read.schema(made.schema).parquet(*made.files)
        return _write(sink.arrange(rows.where(ROUTE.format(number)).drop(*made.ours)), folder)

    def _read(self, file: str) -> DataFrame:
        if self.layout.ddl is not None:
            return self._spark.read.schema(self.layout.ddl).parquet(file)
        records = self._spark.read.parquet(file)
        if self._payload is not None:
            self._payload.check(records)
        return records

    def _plan(self, records: DataFrame, batch_id: str, sieve: Sieve) -> DataFrame:
        """Return what becomes of some records of a batch, before it is routed."""
        from pyspark.sql import functions

        if sieve.bounds is not None:
            records = records.where(~EventTime(sieve.bounds).is_outside())
        if self._payload is not None:
            records = self._payload.parsed(self._payload.fitting(records) if sieve.unfit else records)
        result: Any = records if self._transform is None else self._transform(records)
        if not hasattr(result, "write"):
            raise TypeError(f"the transform must return a DataFrame; it returned {type(result).__name__}")
        if "_batch_id" not in result.columns:
            result = result.withColumn("_batch_id", functions.lit(batch_id))
        return result  # type: ignore[no-any-return]

    def _routing(self, file: str, batch_id: str, sieve: Sieve) -> DataFrame:
        """Return what is written of the records of a file, with what says which sinks take it."""
        from pyspark.sql import functions

        result = self._plan(self._read(file), batch_id, sieve)
        marks = ERROR in result.columns
        if len(self._routed) == 1 and self._routed[0].where is None and not marks:
            return result
        if marks:
            result = _with_positions(result, self.layout.position)
        unmarked = functions.col(ERROR).isNull() if marks else functions.lit(True)
        routes = {ROUTE.format(n): unmarked & _holds(sink.where or "true") for n, sink in enumerate(self._routed)}
        return result.withColumns(routes)


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


def _write(frame: DataFrame, folder: str) -> list[str]:
    """Write a DataFrame to a folder, each partition as one file, whatever the session is set to; return the files."""
    frame.write.mode("overwrite").option("maxRecordsPerFile", 0).parquet(folder)
    return [file for file in files_below(folder) if file.endswith(".parquet")]
