"""The Spark part of a delivery: parse payloads, transform records, and compute which sinks take each row.

All batches of a delivery are computed at once, from files to files; the column `_batch_id` names each row's batch. The
delivery decides about the files and about bad records.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import POSITION, is_caused_by_record
from airflow_provider_coordination.spark.column_lineage import ColumnLineage, traced
from airflow_provider_coordination.spark.decoded_payload import DecodedPayload
from airflow_provider_coordination.spark.decoding.decoder import Place
from airflow_provider_coordination.spark.delivery import (
    DeliveryError,
    MissingColumnError,
    Stage,
    Transform,
    TransformError,
    transform_name,
    transformed_by,
)
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.parquet_files import schema_of
from airflow_provider_coordination.spark.parquet_frames import (
    Decoding,
    columns_without_type,
    read_frame,
    spark_schema,
    write_frame,
)
from airflow_provider_coordination.spark.payload import ERROR, EventTime, JsonPayload
from airflow_provider_coordination.spark.rows import (
    ROUTE,
    RowFiles,
    Transformed,
    TransformInput,
    groups_of,
    shared_files_of,
)
from airflow_provider_coordination.spark.sinks import Sink, check_required_columns
from airflow_provider_coordination.spark.spark_errors import error_text
from airflow_provider_coordination.spark.spark_versions import (
    activate,
    arrow_schema,
    arrow_table,
    condition_of,
    frame_schema,
)

log = logging.getLogger(__name__)

MARKED = tuple(f"_coordination_{name}" for name in POSITION)
"""In the rows for all sinks: the columns that identify the record of a marked row."""
GROUP = "_coordination_group"
"""The column that names a row's group, for sinks that separate batches: one file for each batch or shared file."""
OF_MISSING_COLUMNS = ("ATTRIBUTE_NOT_SUPPORTED", "FIELD_NOT_FOUND", "UNRESOLVED_COLUMN", "UNRESOLVED_USING_COLUMN")
"""The beginnings of Spark's names for errors about a column that does not exist."""


class Transformation:
    """Makes the rows that sinks take from the landed records of batches.

    :param spark: the session.
    :param routed: the sinks that rows are routed to, in order.
    :param layout: the columns of the landed records.
    :param transform: makes the rows to write from records. It gets the records of many batches at once if it keeps
        `_batch_id`; otherwise it gets one batch at a time, and the column is added.
    :param options: whether the transform always gets one batch at a time; see `IngestionOptions`.
    :param payload: parses the payload before the transform.
    :param access: the credentials for the files.
    """

    def __init__(
        self,
        spark: SparkSession,
        routed: Sequence[Sink],
        *,
        layout: RecordLayout,
        transform: Transform | None = None,
        options: IngestionOptions | None = None,
        payload: JsonPayload | DecodedPayload | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self.layout = layout
        self._access = access
        self._spark = spark
        self._routed = routed
        self._transform = transform
        self._options = options or IngestionOptions()
        self._payload = payload
        self._keeps_batch_id: dict[str, bool] = {}  # by the columns of the records that the transform gets
        self._has_warned = False
        self._last_read: tuple[tuple[Mapping[str, int], frozenset[Place]], DataFrame] | None = None
        self._last_lineage: tuple[StructType, ColumnLineage] | None = None

    def check(self, columns: StructType | None = None) -> None:
        """Check the transform, and what the sinks name, as far as that is possible without records.

        If the columns are not known, only the syntax of the predicates is checked.

        :param columns: the columns of landed records; None if they are not known.
        :raises TransformError: naming the transform and the error, if it fails on any records.
        :raises ConfigurationError: naming the sink, its field, its value and the error.
        """
        planned = None if columns is None else self._plan_of_nothing(columns)
        if planned is not None:
            check_required_columns(self._routed, _written(planned))
        result = self._spark.range(0).toDF("_") if planned is None else planned
        conclusive: type[AnalysisException] = ParseException if planned is None else AnalysisException
        for sink in self._routed:
            try:
                if sink.where is not None:
                    result.withColumn(ROUTE, _holds(sink.where))
            except conclusive as error:
                raise ConfigurationError(
                    f"field 'writes', sink {sink.name!r}: 'where' {sink.where!r} cannot be used: {error_text(error)}; "
                    "give a SQL predicate over the columns that are written"
                ) from None
            except AnalysisException:
                continue

    def _plan_of_nothing(self, columns: StructType) -> DataFrame | None:
        """Return the transformed rows of no records; None if the transform needs records.

        :param columns: the columns of landed records.
        :raises TransformError: if the transform fails on any records.
        :raises ConfigurationError: if the schema does not fit the records.
        """
        context, group = self._spark.sparkContext, f"checking the transform {secrets.token_hex(4)}"
        context.setJobGroup(group, "check the transform without records")
        records = self._spark.createDataFrame([], columns)
        try:
            self._check_payload(records)
            if isinstance(self._payload, DecodedPayload):
                decoded = self._payload.decoder.schema(arrow_schema(columns))
                records = self._spark.createDataFrame([], frame_schema(decoded))
        except DeliveryError as error:
            raise ConfigurationError(f"field 'schema': {error}") from None
        try:
            return self._plan(self._with_payload(records, []), [])
        except TransformError:
            raise
        except Exception as error:
            # A transform that runs a job looks at the records, and may choose its columns by them.
            if not context.statusTracker().getJobIdsForGroup(group):
                if isinstance(error, MissingColumnError):
                    raise
                if isinstance(error, AnalysisException | ImportError | NameError):
                    raise TransformError(
                        f"transform {transform_name(self._transform)!r} fails on any records: {error_text(error)}; "
                        "correct it"
                    ) from error
            log.warning("the transform is not checked: it fails on an empty DataFrame: %s", error_text(error))
            return None

    def group_compatible(self, inputs: Sequence[TransformInput]) -> Sequence[Sequence[TransformInput]]:
        """Return the batches in groups that can each be transformed at once.

        Files with the same columns are one group if the transform keeps `_batch_id`.
        """
        alike: dict[str, list[TransformInput]] = {}
        for each in inputs:
            alike.setdefault(self._columns(each.file), []).append(each)
        return [
            group
            for columns, members in alike.items()
            for group in ([members] if self._takes_many(columns, members) else [[each] for each in members])
        ]

    def _columns(self, file: str) -> str:
        """Return a text that identifies the columns of a landed file."""
        if self.layout.ddl is not None:
            return ""
        try:
            return str(schema_of(file, self._access).to_string(show_field_metadata=False, show_schema_metadata=False))
        except Exception as error:  # its delivery, alone in a group, reports what is wrong
            if is_outage(error):
                raise
            log.debug("the columns of %s are not known: %s", file, error)
            return file

    def _takes_many(self, columns: str, inputs: Sequence[TransformInput]) -> bool:
        """Return whether the transform gets the records of these batches at once.

        :param columns: the columns of their records, as `_columns` returns them.
        """
        if len(inputs) == 1 or (self._transform is None and not self._options.per_batch):
            return True
        if not self._options.per_batch and columns not in self._keeps_batch_id:
            try:
                result = self._transformed(self._with_payload(self._read(inputs), inputs))
                self._keeps_batch_id[columns] = BATCH_ID in result.columns
            except Exception as error:  # their delivery reports what is wrong
                log.debug("whether the transform keeps %s is not known: %s", BATCH_ID, error)
                return True
        if not self._options.per_batch and self._keeps_batch_id[columns]:
            return True
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%d batches are transformed one after the other, in one Spark job each, because %s",
                len(inputs),
                "'per_batch' is set: leave it out if the transform handles each record independently"
                if self._options.per_batch
                else f"the transform drops {BATCH_ID!r}: keep the column, and it gets all batches of a round at once",
            )
        return False

    def left_out(self, inputs: Sequence[TransformInput]) -> pa.Table | None:
        """Return the records that the transform does not get: position, `_batch_id`, `error` and `stage`.

        The stage is `SCHEMA` if the payload does not fit, and `TIME` if the record is late or early.

        :returns: None if no record can be left out, so that nothing was read.
        """
        activate(self._spark)
        bounded = list(self._by_bounds(inputs))
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
        found = self._read([replace(each, unfit=frozenset()) for each in inputs]).where(is_left_out)
        keys = [BATCH_ID, *self.layout.position, "stage"]
        rows = arrow_table(found.select(*keys[:-1], error.alias("error"), stage.alias("stage")))
        if isinstance(self._payload, DecodedPayload):  # a record may have several such rows
            first = rows.group_by(keys, use_threads=False).aggregate([("error", "first")])
            rows = first.rename_columns([*keys, "error"])
        return rows

    def write(self, inputs: Sequence[TransformInput], folder: str) -> Transformed:
        """Write the transformed rows of some batches, with columns that say which sinks take each row.

        :param inputs: one of the groups that `group_compatible` returns.
        :param folder: the folder for the files.
        """
        records = self._with_payload(self._read(inputs), inputs)
        plan = self._routing(records, inputs)
        check_required_columns(self._routed, _written(plan))
        batch_ids = [each.batch_id for each in inputs]
        types = {field.name: field.dataType.simpleString() for field in plan.schema}
        # If one sink takes every row, these are its files.
        shared = shared_files_of(inputs)
        output = (
            self._write(plan, folder)
            if ROUTE.format(0) in types
            else self._arranged(plan, self._routed[0], groups_of(self._routed[0], batch_ids, shared), folder)
        )
        return Transformed(
            batch_ids=batch_ids,
            output=output,
            types=types,
            schema=plan.schema,
            shared_files=shared,
            lineage=self._lineage(records, plan),
        )

    def error_of(self, transform_input: TransformInput) -> str | None:
        """Return the error that the transform raises on the records; None if it raises none.

        :raises Exception: an error that no record caused.
        """
        try:
            records = self._with_payload(self._read([transform_input]), [transform_input])
            self._routing(records, [transform_input]).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not is_caused_by_record(error):
                raise
            return error_text(error)
        return None

    def select_rows(
        self, transformed: Transformed, number: int, sink: Sink, batch_ids: Collection[str], folder: str
    ) -> RowFiles:
        """Write the rows of some batches that a sink takes to a folder, in the form that the sink needs.

        :param number: the sink's number among the sinks that rows are routed to.
        """
        rows = read_frame(self._spark, transformed.output.files, transformed.schema, self._access)
        if transformed.is_routed:
            rows = rows.where(ROUTE.format(number))
        if set(batch_ids) != set(transformed.batch_ids):
            rows = rows.where(functions.col(BATCH_ID).isin(*batch_ids))
        groups = groups_of(sink, batch_ids, transformed.shared_files)
        return self._arranged(rows.drop(*transformed.ours), sink, groups, folder)

    def _read(self, inputs: Sequence[TransformInput]) -> DataFrame:
        """Return the landed records of some batches; repeated calls for the same files return the same DataFrame."""
        files = {each.file: each.file_bytes for each in inputs}
        unfit = frozenset((each.batch_id, *place) for each in inputs for place in each.unfit)
        if self._last_read is None or self._last_read[0] != (files, unfit):
            self._last_read = (files, unfit), self._new_frame(files, self._schema(inputs[0].file), unfit)
        _, records = self._last_read
        return records

    def _new_frame(self, files: Mapping[str, int], schema: StructType, unfit: frozenset[Place]) -> DataFrame:
        if not isinstance(self._payload, DecodedPayload):
            records = read_frame(self._spark, files, schema, self._access)
            self._check_payload(records)
            return records
        self._check_payload(self._spark.createDataFrame([], schema))
        return read_frame(self._spark, files, schema, self._access, Decoding(self._payload.decoder, unfit))

    def _check_payload(self, records: DataFrame) -> None:
        if self._payload is not None and self.layout.ddl is None:
            self._payload.check(records)

    def _schema(self, file: str) -> StructType:
        """Return the columns of landed records; all files that are read together have the same columns."""
        return self.layout.columns or spark_schema(schema_of(file, self._access))

    def _with_payload(self, records: DataFrame, inputs: Sequence[TransformInput]) -> DataFrame:
        """Return the records of some batches as the transform gets them."""
        for time, is_theirs in self._by_bounds(inputs):
            records = records.where(~(is_theirs & time.is_outside()))
        if self._payload is None:
            return records
        if isinstance(self._payload, DecodedPayload):  # those that do not fit are not read
            return self._payload.parsed(records)
        has_unfit = any(each.has_unfit for each in inputs)
        return self._payload.parsed(self._payload.fitting(records) if has_unfit else records)

    def _by_bounds(self, inputs: Sequence[TransformInput]) -> Iterator[tuple[EventTime, Column]]:
        """Yield the event-time bounds of batches, each with a column: whether a record's batch has these bounds."""
        bounded: dict[EventTimeBounds, list[str]] = {}
        for each in inputs:
            if each.bounds is not None:
                bounded.setdefault(each.bounds, []).append(each.batch_id)
        for bounds, batch_ids in bounded.items():
            everywhere = len(batch_ids) == len(inputs)
            value = self._payload.event_time(bounds) if isinstance(self._payload, DecodedPayload) else None
            yield (
                EventTime(bounds, value),
                functions.lit(True) if everywhere else functions.col(BATCH_ID).isin(*batch_ids),
            )

    def _transformed(self, records: DataFrame) -> DataFrame:
        result = self._with_computed(records)
        if self._transform is not None:
            with _naming_missing_columns(f"transform {transform_name(self._transform)!r}", result):
                result = transformed_by(self._transform, result)
        if unknown := next(columns_without_type(result), None):
            path, kind = unknown
            raise DeliveryError(
                f"the transform returns column {path!r} of type {kind}, for which files have no type; cast it in the "
                "transform, for example to STRING"
            )
        return result

    def _with_computed(self, records: DataFrame) -> DataFrame:
        """Return records with the columns that expressions compute, all from the records as they are."""
        if self._options.computed is None:
            return records
        try:
            with _naming_missing_columns("an expression in field 'computed'", records):
                columns = {name: functions.expr(each) for name, each in self._options.computed.items()}
                return records.withColumns(columns)
        except AnalysisException as error:
            raise TransformError(f"field 'computed' cannot be used: {error_text(error)}; correct it") from error

    def _plan(self, records: DataFrame, inputs: Sequence[TransformInput]) -> DataFrame:
        """Return the transformed rows of some batches, without the columns for routing.

        :param records: the records as the transform gets them.
        """
        result = self._transformed(records)
        if BATCH_ID in result.columns:
            return result
        if len(inputs) > 1:
            raise DeliveryError(
                f"the transform keeps {BATCH_ID!r} for some batches and drops it for others; keep it always, or never"
            )
        return result.withColumn(BATCH_ID, functions.lit(inputs[0].batch_id if inputs else ""))

    def _lineage(self, records: DataFrame, plan: DataFrame) -> ColumnLineage:
        """Return what the written columns are made of; it is found once for the same columns."""
        columns = plan.schema
        if self._last_lineage is None or self._last_lineage[0] != columns:
            ours = {BATCH_ID, *columns.names} - ({*_written(plan)} - {BATCH_ID})
            self._last_lineage = columns, traced(records, plan, without=ours)
        return self._last_lineage[1]

    def _routing(self, records: DataFrame, inputs: Sequence[TransformInput]) -> DataFrame:
        """Return the transformed rows of some batches, with columns that say which sinks take each row.

        :param records: the records as the transform gets them.
        """
        result = self._plan(records, inputs)
        marks = ERROR in result.columns
        if len(self._routed) == 1 and self._routed[0].where is None and not marks:
            return result
        if marks:
            result = _with_positions(result, self.layout.position)
        unmarked = functions.col(ERROR).isNull() if marks else functions.lit(True)
        routes = {ROUTE.format(n): unmarked & _holds(sink.where or "true") for n, sink in enumerate(self._routed)}
        with _naming_missing_columns("a predicate 'where' in field 'writes'", result):
            return result.withColumns(routes)

    def _arranged(self, rows: DataFrame, sink: Sink, groups: Mapping[str, Sequence[str]], folder: str) -> RowFiles:
        """Write the rows of some batches to a folder, in the form that a sink needs.

        :param groups: the batches, as `groups_of` returns them.
        """
        if len(groups) > 1 and sink.separates_batches:
            # Each group goes to one task, and so to one file.
            return self._write(rows.withColumn(GROUP, _group(groups)).repartition(GROUP), folder, GROUP)
        output = self._write(sink.repartition(rows), folder)
        return (
            RowFiles(files=output.files, by_group={each: list(output.files) for each in groups})
            if sink.separates_batches
            else output
        )

    def _write(self, rows: DataFrame, folder: str, by: str | None = None) -> RowFiles:
        """Write rows to a folder, each Spark partition as one file, whatever the session's settings; return the files.

        :param by: the column whose values separate rows into files; None if rows are not separated.
        """
        written = write_frame(rows, folder, self._access, by)
        files = {each.file: each.bytes for each in written}
        if by is None:
            return RowFiles(files=files)
        by_group: dict[str, list[str]] = {}
        for each in written:
            by_group.setdefault(each.of, []).append(each.file)
        return RowFiles(files=files, by_group=by_group)


@contextmanager
def _naming_missing_columns(what: str, records: DataFrame) -> Iterator[None]:
    """Raise an error about a column that records do not have as one that names these records' columns.

    :param what: what names the column, for the error.
    :raises MissingColumnError: in place of Spark's error.
    """
    try:
        yield
    except (PySparkException, AttributeError) as error:
        if not condition_of(error).startswith(OF_MISSING_COLUMNS):
            raise
        raise MissingColumnError(
            f"{what} names a column that the records do not have: {error_text(error)}; their columns are "
            f"{', '.join(records.columns)}; correct it"
        ) from error


def _written(rows: DataFrame) -> list[str]:
    """Return the columns of transformed rows that sinks take."""
    return [name for name in rows.columns if name != ERROR and not name.startswith("_coordination_")]


def _with_positions(result: DataFrame, position: Sequence[str]) -> DataFrame:
    """Return a transform's rows with the positions of marked rows in columns of our own.

    :param position: the columns that hold the positions.
    :raises DeliveryError: if the transform did not keep these columns.
    """
    missing = [name for name in position if name not in result.columns]
    if missing:
        raise DeliveryError(
            f"the transform marks records in {ERROR!r} and drops {' and '.join(map(repr, missing))}, which identify a "
            "row's record; keep these columns"
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
    """Return whether a predicate holds; null counts as false."""
    return functions.coalesce(functions.expr(where), functions.lit(False))


def _group(groups: Mapping[str, Sequence[str]]) -> Column:
    """Return the name of a row's group."""
    group = functions.col(BATCH_ID)
    for name, batch_ids in groups.items():
        if list(batch_ids) != [name]:
            group = functions.when(functions.col(BATCH_ID).isin(*batch_ids), name).otherwise(group)
    return group
