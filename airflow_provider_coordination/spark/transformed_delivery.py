"""Delivery through Spark: payloads are parsed, records transformed and routed to sinks, bad ones to the dead letters.

The transform runs once for all batches of a delivery, however many batches and sinks there are. A batch that is refused
for its bad records is taken out, and the others go on. Where the transform raises, the batches are halved until the
record is found on which it does; the rest goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.bad_records import BadRecords, is_of_a_record
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    DeliveryError,
    Prepared,
    SinkAwayError,
    by_halves,
    each_by_itself,
)
from airflow_provider_coordination.spark.error_texts import error_text
from airflow_provider_coordination.spark.executor_errors import running_on_executors
from airflow_provider_coordination.spark.executor_startup import awaiting_executors
from airflow_provider_coordination.spark.landed_files import ensure_landed
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.outages import calling
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.rows import Letters, MadeRows
from airflow_provider_coordination.spark.settings import DEAD_LETTER
from airflow_provider_coordination.spark.shared_files import room_for, sharing
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed
from airflow_provider_coordination.spark.storage import calls_at_once, delete_folder, join, read_tables, renames
from airflow_provider_coordination.spark.transformation import MARKED, ROUTE, Transformation, Transformed
from airflow_provider_coordination.spark.validation import Judge, JudgedBatch

log = logging.getLogger(__name__)

Result = Prepared | Exception


class DeliverTransformed:
    """Delivers batches through Spark.

    :param transformation: makes of the landed records what the sinks beside that of the dead letters take.
    :param sinks: the sinks, in the order in which they are published; that of the dead letters is named so.
    :param source: the source's name, for the dead letters.
    :param found: what the job finds wrong with records.
    :param keeps_rejected: whether records that are late or early go to the dead letters.
    :param is_final: whether nobody can reject a batch that sinks have taken. Such batches may share files.
    :param clock: where the time comes from.
    :param access: how files are reached, landed ones and those of the sinks.
    """

    def __init__(
        self,
        transformation: Transformation,
        sinks: Sequence[Sink],
        *,
        source: str,
        found: BadRecords | None = None,
        keeps_rejected: bool = False,
        is_final: bool = True,
        clock: Clock | None = None,
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self.transformation = transformation
        self._access = access
        self._routed = routed(sinks)
        self._place = self._routed[0].name  # where files lie that are made before any sink has its own
        self._sinks = {sink.name: sink for sink in sinks}
        self._dead = self._sinks.get(DEAD_LETTER)
        self._is_final = is_final
        self._judge = Judge(
            layout=transformation.layout,
            source=source,
            found=found or BadRecords(),
            has_dead_letters=self._dead is not None,
            keeps_rejected=keeps_rejected,
            clock=clock or SystemClock(),
            access=access,
        )

    @property
    def sinks(self) -> Sequence[str]:
        """See `Delivery.sinks`."""
        return tuple(self._sinks)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Result]:
        """See `Delivery.prepare`: each sink prepares what it takes."""
        wanted: dict[str, set[str]] = {attempt.batch_id: set() for attempt in attempts}
        for name in sinks:
            for attempt in owed(self._sinks[name], attempts):
                wanted[attempt.batch_id].add(name)
        prepared: dict[str, Result] = {}
        batches: dict[str, JudgedBatch] = {}
        prepared |= {attempt.batch_id: Prepared() for attempt in attempts if not wanted[attempt.batch_id]}

        def judged(attempt: Attempt) -> JudgedBatch:
            with calling(self._place):
                self._ensure_landed(attempt)
            return JudgedBatch(self._judge, attempt, wanted[attempt.batch_id])

        owing = [attempt for attempt in attempts if wanted[attempt.batch_id]]
        at_once = calls_at_once(owing[0].file, self._access) if owing else 1
        for attempt, batch in each_by_itself(owing, judged, at_once):
            if isinstance(batch, Exception):
                prepared[attempt.batch_id] = batch
            else:
                batches[attempt.batch_id] = batch
        with calling(self._place):
            groups = self.transformation.together([batch.part for batch in batches.values()])
        away: SinkAwayError | None = None
        for group in groups:
            alike = [batches[part.batch_id] for part in group]
            if away is not None:
                prepared |= {batch.batch_id: away for batch in alike}
                continue
            for done, result in by_halves(alike, self._prepare, "preparation"):
                if isinstance(result, SinkAwayError):
                    away = result
                prepared |= {done[0].batch_id: _failed(done[0], result)} if isinstance(result, Exception) else result
        return prepared

    def _ensure_landed(self, attempt: Attempt) -> None:
        """Make sure that a batch's file is there, unless its workers have just put it into a bucket: Spark reads it
        next, and says what is wrong."""
        if attempt.has_former_owners or attempt.batch.redeliver or renames(attempt.file, self._access):
            ensure_landed(attempt, self._routed, self._access)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.commit`."""
        self._sinks[sink].commit(attempts)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        for sink in self._sinks.values():
            sink.discard(attempts)

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """See `Delivery.sweep`."""
        for sink in self._sinks.values():
            sink.sweep(tokens)

    def _prepare(self, batches: Sequence[JudgedBatch]) -> dict[str, Result]:
        """Let the sinks prepare batches; return what will become visible, or why a batch is refused.

        :raises Exception: if all of them, or some, cannot be read, transformed or written.
        """
        work = self._routed[0].scratch([batch.attempt for batch in batches])
        try:
            with calling(self._place), awaiting_executors(), running_on_executors():
                return self._prepare_in(work, batches)
        except Exception:  # what is prepared anew gets other names
            with suppress(OSError, DeliveryError):  # the next owner sweeps what is left
                self.discard([batch.attempt for batch in batches if batch.attempt.shared_file is not None])
            raise
        finally:
            delete_folder(work, self._access)

    def _prepare_in(self, work: str, batches: Sequence[JudgedBatch]) -> dict[str, Result]:
        if unsieved := [batch for batch in batches if not batch.is_sieved]:
            left_out = self.transformation.left_out([batch.part for batch in unsieved])
            for batch in unsieved:
                batch.sieve(left_out)
        going, refused = _judged(batches)
        if not going:
            return refused
        self._share_files(going)
        transformed = self._transform(work, going)
        marks = marked(transformed, self._access)
        for batch in going:
            batch.mark(marks)
        going, marked_too_much = _judged(going)
        counts, unrouted = routes(transformed, len(self._routed), self._access)
        self._prepare_dead_letters(going)
        for n, sink in enumerate(self._routed):
            wanting = [batch for batch in going if sink.name in batch.wanted]
            rows = MadeRows(
                self.transformation,
                transformed,
                sink,
                number=n,
                counts={batch.batch_id: counts[n].get(batch.batch_id, 0) for batch in wanting},
                work=join(work, f"sink-{n}"),
                access=self._access,
            )
            _prepare_for(sink, wanting, rows)
        prepared: dict[str, Result] = {**refused, **marked_too_much}
        for batch in going:
            taken = {sink.name: counts[n].get(batch.batch_id, 0) for n, sink in enumerate(self._routed)}
            taken[DEAD_LETTER] = batch.put_aside.num_rows
            prepared[batch.batch_id] = Prepared(
                records={name: taken[name] for name in batch.wanted},
                unrouted=unrouted.get(batch.batch_id, 0),
                left_out=batch.left_out,
                columns=transformed.columns,
                shared_file=batch.attempt.shared_file,
            )
        return prepared

    def _share_files(self, batches: Sequence[JudgedBatch]) -> None:
        """Name the files that batches share, where their sinks let them."""
        by_id = {batch.batch_id: batch for batch in batches}

        def room(attempt: Attempt) -> int:
            wanted = by_id[attempt.batch_id].wanted
            return room_for(attempt, [self._sinks[name] for name in wanted]) if self._is_final else 0

        alone = [replace(batch.attempt, shared_file=None) for batch in batches]
        for attempt in sharing(alone, room):
            by_id[attempt.batch_id].attempt = attempt

    def _transform(self, work: str, batches: Sequence[JudgedBatch]) -> Transformed:
        """Write what the transform makes of batches; of one alone, of those records on which it does not raise."""
        folder = join(work, "all")
        try:
            with running_on_executors():
                return self.transformation.write([batch.part for batch in batches], folder)
        except Exception as error:
            if len(batches) > 1 or not is_of_a_record(error):
                raise
            log.warning(
                "batch %s: the transform raised; looking for the records on which it does: %s",
                batches[0].batch_id, error_text(error),
            )  # fmt: skip
        return self.transformation.write([batches[0].without_raising(self.transformation, work)], folder)

    def _prepare_dead_letters(self, batches: Sequence[JudgedBatch]) -> None:
        if self._dead is None:
            return
        by_id = {batch.batch_id: batch for batch in batches if DEAD_LETTER in batch.wanted}
        counts = {batch_id: batch.put_aside.num_rows for batch_id, batch in by_id.items()}
        letters = Letters(
            self._judge.layout.dead_letter, counts, lambda batch_id: by_id[batch_id].letters(), self._access
        )
        _prepare_for(self._dead, list(by_id.values()), letters)


def _judged(batches: Sequence[JudgedBatch]) -> tuple[list[JudgedBatch], dict[str, Result]]:
    """Judge batches; return those that go on, and why each of the others is refused."""
    going: list[JudgedBatch] = []
    refused: dict[str, Result] = {}
    for batch in batches:
        try:
            batch.judge()
            going.append(batch)
        except DeliveryError as error:
            refused[batch.batch_id] = error
    return going, refused


def _prepare_for(sink: Sink, batches: Sequence[JudgedBatch], rows: Rows) -> None:
    """Give one sink the rows of batches.

    :raises DeliveryError: if it cannot take them.
    :raises SinkAwayError: if it takes nothing at present.
    """
    if not batches:
        return
    try:
        with calling(sink.name):
            sink.prepare([batch.attempt for batch in batches], rows)
    except SinkAwayError:
        raise
    except Exception as error:
        raise DeliveryError(
            f"batch {', '.join(batch.batch_id for batch in batches)}: sink {sink.name!r} at {sink.location!r} cannot "
            f"take it: {error_text(error)}; mend the sink, until then no sink gets the batch"
        ) from error


def _failed(batch: JudgedBatch, error: Exception) -> DeliveryError:
    """Return why a batch cannot be delivered."""
    if isinstance(error, DeliveryError):
        return error
    failed = DeliveryError(f"{batch}: the transform or its write failed: {error_text(error)}")
    failed.__cause__ = error
    return failed


def routed(sinks: Sequence[Sink]) -> list[Sink]:
    """Return the sinks that rows are routed to, in order: all but that of the dead letters."""
    return [sink for sink in sinks if sink.name != DEAD_LETTER]


def marked(transformed: Transformed, access: Access) -> pa.Table:
    """Return the rows that the transform marked: what is wrong with each, and which record of which batch it is."""
    columns = [BATCH_ID, ERROR, *MARKED]
    if not transformed.marks:
        return pa.table({name: pa.array([], pa.string()) for name in columns})
    rows = read_tables(transformed.made.files, columns, access)
    return rows.filter(pc.is_valid(rows.column(ERROR)))


def routes(transformed: Transformed, sinks: int, access: Access) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Return how many rows of each batch each sink takes, and how many none takes, marked rows left out.

    :raises DeliveryError: if a row says that it is of another batch.
    """
    columns = [ROUTE.format(n) for n in range(sinks)] if transformed.is_routed else []
    wanted = [BATCH_ID, *columns, *([ERROR] if transformed.marks else [])]
    table = read_tables(transformed.made.files, wanted, access)
    batch_ids = table.column(BATCH_ID)
    if foreign := _counted(batch_ids).keys() - set(transformed.batch_ids):
        raise DeliveryError(
            f"the transform changed {BATCH_ID!r}, which says what batch a row is of, to {next(iter(foreign))!r}; keep "
            "it as it is, or drop it"
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
