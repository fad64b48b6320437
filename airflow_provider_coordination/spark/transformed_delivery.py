"""Delivery through Spark: parse payloads, transform records, route them to sinks; bad records go to the dead letters.

The transform runs once for all batches of a delivery, whatever their number and the number of sinks. A batch that is
refused for its bad records is removed, and the other batches continue. If the transform raises, the batches are halved
until the failing record is found; the rest continues without that record.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import BadRecords, is_caused_by_record
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    SinkUnavailableError,
    by_halves,
    each_separately,
)
from airflow_provider_coordination.spark.landed_files import ensure_landed
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.parquet_files import read_tables, write_table
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.rows import (
    ROUTE,
    DeadLetterRows,
    Transformed,
    TransformedRows,
    TransformInput,
)
from airflow_provider_coordination.spark.shared_files import assign_shared_files, max_shared_bytes
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed, routed_sinks
from airflow_provider_coordination.spark.spark_errors import (
    ExecutorError,
    error_text,
    running_on_executors,
    waiting_for_executors,
)
from airflow_provider_coordination.spark.spark_versions import arrow_schema
from airflow_provider_coordination.spark.storage import (
    PROBES,
    calls_at_once,
    delete_folder,
    join,
    new_probe,
    remove_if_empty,
    renames,
)
from airflow_provider_coordination.spark.transformation import MARKED, Transformation
from airflow_provider_coordination.spark.validation import BadRecordPolicy, ValidatedBatch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)
Result = Prepared | Exception
REHEARSALS = 2
"""How often a delivery is rehearsed: the JVM compiles what runs repeatedly."""


class TransformedDelivery(Delivery):
    """Delivers batches through Spark.

    :param transformation: makes the rows for all sinks except the dead-letter sink from the landed records.
    :param sinks: the sinks, in the order of their commits; the dead-letter sink is found by its name, `DEAD_LETTER`.
    :param source: the source's name, for the dead letters.
    :param bad_records: the job's budget, count and samples of bad records.
    :param keeps_rejected: whether late and early records go to the dead-letter sink.
    :param is_final: whether a batch that sinks have taken can no longer be rejected. Such batches may share files.
    :param clock: the clock for the times in dead letters.
    :param access: the credentials for the landed files and for the files of the sinks.
    """

    def __init__(
        self,
        transformation: Transformation,
        sinks: Sequence[Sink],
        *,
        source: str,
        bad_records: BadRecords | None = None,
        keeps_rejected: bool = False,
        is_final: bool = True,
        clock: Clock | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self.transformation = transformation
        self._access = access
        self._routed = routed_sinks(sinks)
        self._scratch_sink = self._routed[0].name  # its folder holds the files that are not yet any sink's own
        self._sinks = {sink.name: sink for sink in sinks}
        self._dead = self._sinks.get(DEAD_LETTER)
        self._is_final = is_final
        self._policy = BadRecordPolicy(
            layout=transformation.layout,
            source=source,
            bad_records=bad_records or BadRecords(),
            has_dead_letters=self._dead is not None,
            keeps_rejected=keeps_rejected,
            clock=clock or SystemClock(),
            access=access,
        )

    @property
    @override
    def sinks(self) -> Sequence[str]:
        return tuple(self._sinks)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Result]:
        """See `Delivery.prepare`: each sink prepares its rows."""
        wanted: dict[str, set[str]] = {attempt.batch_id: set() for attempt in attempts}
        for name in sinks:
            for attempt in owed(self._sinks[name], attempts):
                wanted[attempt.batch_id].add(name)
        prepared: dict[str, Result] = {}
        batches: dict[str, ValidatedBatch] = {}
        prepared |= {attempt.batch_id: Prepared() for attempt in attempts if not wanted[attempt.batch_id]}

        def begin(attempt: Attempt) -> ValidatedBatch:
            with translating_outages(self._scratch_sink):
                self._ensure_landed(attempt)
            return ValidatedBatch(self._policy, attempt, wanted[attempt.batch_id])

        owing = [attempt for attempt in attempts if wanted[attempt.batch_id]]
        at_once = calls_at_once(owing[0].file, self._access) if owing else 1
        for attempt, batch in each_separately(owing, begin, at_once):
            if isinstance(batch, Exception):
                prepared[attempt.batch_id] = batch
            else:
                batches[attempt.batch_id] = batch
        with translating_outages(self._scratch_sink):
            groups = self.transformation.group_compatible([batch.transform_input for batch in batches.values()])
        unavailable: SinkUnavailableError | None = None
        for group in groups:
            alike = [batches[transform_input.batch_id] for transform_input in group]
            if unavailable is not None:
                prepared |= {batch.batch_id: unavailable for batch in alike}
                continue
            for done, result in by_halves(alike, self._prepare, "preparation"):
                if isinstance(result, SinkUnavailableError):
                    unavailable = result
                prepared |= {done[0].batch_id: _failed(done[0], result)} if isinstance(result, Exception) else result
        return prepared

    def _ensure_landed(self, attempt: Attempt) -> None:
        """Make sure that a batch's landed file exists.

        A file that this job's workers have just written to a bucket is not checked: Spark reads it next and reports
        what is wrong.
        """
        if attempt.has_previous_owners or attempt.batch.redeliver or renames(attempt.file, self._access):
            ensure_landed(attempt, self._routed, self._access)

    @override
    def rehearse(self, columns: StructType | None, root: str) -> None:
        """Transform a landed file without records, so that Spark has compiled what deliveries run.

        The first delivery takes many times as long as later ones, and a job reads nothing for the rest of its round.
        The files are among the probes: if the job dies, a later one removes them.
        """
        if columns is None:
            return
        folder = new_probe(root, "rehearsal")
        file = join(folder, "landed.parquet")
        try:
            size = write_table(arrow_schema(columns).empty_table(), file, self._access)
            inputs = [TransformInput(batch_id="", file=file, file_bytes=size)]
            for number in range(REHEARSALS):
                self.transformation.left_out(inputs)
                self.transformation.write(inputs, join(folder, str(number)))
        except Exception as error:  # deliveries report what is wrong, if anything is
            log.info("no delivery could be rehearsed without records: %s", error_text(error))
        finally:
            with suppress(OSError):
                delete_folder(folder, self._access)
                remove_if_empty(join(root, PROBES), self._access)

    @override
    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self._sinks[sink].commit(attempts)

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        for sink in self._sinks.values():
            sink.discard(attempts)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        for sink in self._sinks.values():
            sink.sweep(tokens)

    def _prepare(self, batches: Sequence[ValidatedBatch]) -> dict[str, Result]:
        """Let the sinks prepare batches; return what will become visible, or why a batch is refused.

        :raises Exception: if one or more of the batches cannot be read, transformed or written.
        """
        work = self._routed[0].scratch([batch.attempt for batch in batches])
        try:
            with translating_outages(self._scratch_sink), waiting_for_executors(), running_on_executors():
                return self._prepare_in(work, batches)
        except Exception:  # the next preparation uses other names
            with suppress(OSError, DeliveryError):  # the next owner sweeps what is left
                self.discard([batch.attempt for batch in batches if batch.attempt.shared_file is not None])
            raise
        finally:
            delete_folder(work, self._access)

    def _prepare_in(self, work: str, batches: Sequence[ValidatedBatch]) -> dict[str, Result]:
        if unchecked := [batch for batch in batches if not batch.knows_left_out]:
            left_out = self.transformation.left_out([batch.transform_input for batch in unchecked])
            for batch in unchecked:
                batch.note_left_out(left_out)
        going, refused = _validated(batches)
        if not going:
            return refused
        self._share_files(going)
        transformed = self._transform(work, going)
        marks = marked_rows(transformed, self._access)
        for batch in going:
            batch.note_marked(marks)
        going, marked_too_much = _validated(going)
        counts, unrouted = count_routed(transformed, len(self._routed), self._access)
        self._prepare_dead_letters(going)
        for n, sink in enumerate(self._routed):
            wanting = [batch for batch in going if sink.name in batch.wanted]
            rows = TransformedRows(
                transformed,
                sink,
                select=partial(self.transformation.select_rows, transformed, n, sink),
                counts={batch.batch_id: counts[n].get(batch.batch_id, 0) for batch in wanting},
                work=join(work, f"sink-{n}"),
                access=self._access,
            )
            _prepare_for(sink, wanting, rows)
        prepared: dict[str, Result] = {**refused, **marked_too_much}
        for batch in going:
            taken = {sink.name: counts[n].get(batch.batch_id, 0) for n, sink in enumerate(self._routed)}
            taken[DEAD_LETTER] = batch.for_dead_letters.num_rows
            prepared[batch.batch_id] = Prepared(
                records={name: taken[name] for name in batch.wanted},
                unrouted=unrouted.get(batch.batch_id, 0),
                left_out=batch.left_out,
                columns=transformed.columns,
                lineage=transformed.lineage,
                shared_file=batch.attempt.shared_file,
            )
        return prepared

    def _share_files(self, batches: Sequence[ValidatedBatch]) -> None:
        """Assign shared files to batches, if their sinks allow that."""
        by_id = {batch.batch_id: batch for batch in batches}

        def room(attempt: Attempt) -> int:
            wanted = by_id[attempt.batch_id].wanted
            return max_shared_bytes(attempt, [self._sinks[name] for name in wanted]) if self._is_final else 0

        alone = [replace(batch.attempt, shared_file=None) for batch in batches]
        for attempt in assign_shared_files(alone, room):
            by_id[attempt.batch_id].attempt = attempt

    def _transform(self, work: str, batches: Sequence[ValidatedBatch]) -> Transformed:
        """Write the transform's result for batches; for a single batch, without the records on which it raises."""
        folder = join(work, "all")
        try:
            with running_on_executors():
                return self.transformation.write([batch.transform_input for batch in batches], folder)
        except Exception as error:
            if len(batches) > 1 or not is_caused_by_record(error):
                raise
            log.warning(
                "batch %s: the transform raised; searching for the records on which it raises: %s",
                batches[0].batch_id, error_text(error),
            )  # fmt: skip
        return self.transformation.write([batches[0].without_raising(self.transformation, work)], folder)

    def _prepare_dead_letters(self, batches: Sequence[ValidatedBatch]) -> None:
        if self._dead is None:
            return
        by_id = {batch.batch_id: batch for batch in batches if DEAD_LETTER in batch.wanted}
        counts = {batch_id: batch.for_dead_letters.num_rows for batch_id, batch in by_id.items()}
        letters = DeadLetterRows(
            self._policy.layout.dead_letter, counts, lambda batch_id: by_id[batch_id].dead_letters(), self._access
        )
        _prepare_for(self._dead, list(by_id.values()), letters)


def _validated(batches: Sequence[ValidatedBatch]) -> tuple[list[ValidatedBatch], dict[str, Result]]:
    """Validate batches; return the accepted ones, and for each refused one the reason."""
    going: list[ValidatedBatch] = []
    refused: dict[str, Result] = {}
    for batch in batches:
        try:
            batch.validate()
            going.append(batch)
        except DeliveryError as error:
            refused[batch.batch_id] = error
    return going, refused


def _prepare_for(sink: Sink, batches: Sequence[ValidatedBatch], rows: Rows) -> None:
    """Let one sink prepare the rows of batches.

    :raises DeliveryError: if the sink cannot take them.
    :raises SinkUnavailableError: if the sink is unavailable.
    :raises ExecutorError: if Spark cannot run tasks.
    """
    if not batches:
        return
    try:
        with translating_outages(sink.name):
            sink.prepare([batch.attempt for batch in batches], rows)
    except (SinkUnavailableError, ExecutorError):
        raise
    except Exception as error:
        raise DeliveryError(
            f"batch {', '.join(batch.batch_id for batch in batches)}: sink {sink.name!r} at {sink.location!r} refuses "
            f"the rows: {error_text(error)}; fix the sink; until then, no sink receives them"
        ) from error


def _failed(batch: ValidatedBatch, error: Exception) -> DeliveryError:
    """Return why a batch cannot be delivered."""
    if isinstance(error, DeliveryError):
        return error
    failed = DeliveryError(f"{batch}: the transform or its write failed: {error_text(error)}")
    failed.__cause__ = error
    return failed


def marked_rows(transformed: Transformed, access: Access) -> pa.Table:
    """Return the rows that the transform marked as bad: the error, the batch and the position of each record."""
    columns = [BATCH_ID, ERROR, *MARKED]
    if not transformed.marks:
        return pa.table({name: pa.array([], pa.string()) for name in columns})
    rows = read_tables(transformed.output.files, columns, access)
    return rows.filter(pc.is_valid(rows.column(ERROR)))


def count_routed(transformed: Transformed, sinks: int, access: Access) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Return the number of rows of each batch that each sink takes, and the number that no sink takes.

    Marked rows are left out.

    :raises DeliveryError: if a row names a batch that is not in this delivery.
    """
    columns = [ROUTE.format(n) for n in range(sinks)] if transformed.is_routed else []
    wanted = [BATCH_ID, *columns, *([ERROR] if transformed.marks else [])]
    table = read_tables(transformed.output.files, wanted, access)
    batch_ids = table.column(BATCH_ID)
    if foreign := _counted(batch_ids).keys() - set(transformed.batch_ids):
        raise DeliveryError(
            f"the transform changed {BATCH_ID!r}, which names a row's batch, to {next(iter(foreign))!r}; keep the "
            "column unchanged, or drop it"
        )
    if not columns:
        return [_counted(batch_ids)], {}
    taken = pc.is_valid(table.column(ERROR)) if transformed.marks else pa.array([False] * table.num_rows, pa.bool_())
    for column in columns:
        taken = pc.or_(taken, table.column(column))
    counts = [_counted(batch_ids.filter(table.column(column))) for column in columns]
    return counts, _counted(batch_ids.filter(pc.invert(taken)))


def _counted(batch_ids: pa.ChunkedArray) -> dict[str, int]:
    return {each["values"]: each["counts"] for each in pc.value_counts(batch_ids).to_pylist()}
