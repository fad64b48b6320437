"""Delivery through Spark: payloads are parsed, records transformed and routed to sinks, bad ones to the dead letters.

The transform runs once for a batch, however many sinks there are. A record on which it raises is looked for by halving
the batch, and the rest goes on without it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.spark.bad_records import (
    BAD_SCHEMA,
    MAX_FAILING,
    BadRecords,
    Stage,
    bad_records,
    dead_letters,
    error_text,
    fails_everywhere,
    find_failing,
    is_of_a_record,
    samples,
)
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    DeliveryError,
    Prepared,
)
from airflow_provider_coordination.spark.landed_files import ensure_landed
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.rows import MadeRows, TableRows
from airflow_provider_coordination.spark.settings import DEAD_LETTER
from airflow_provider_coordination.spark.sinks import Rows, Sink, owed
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_folder,
    join,
    read_table,
    row_count,
    write_table,
)
from airflow_provider_coordination.spark.transformation import MARKED, ROUTE, Sieve, Transformation, Transformed

log = logging.getLogger(__name__)


class DeliverTransformed:
    """Delivers batches through Spark.

    :param transformation: makes of the landed records what the sinks beside that of the dead letters take.
    :param sinks: the sinks, in the order in which they are published; that of the dead letters is named so.
    :param source: the source's name, for the dead letters.
    :param found: what the job finds wrong with records.
    :param keeps_rejected: whether records that are late or early go to the dead letters.
    :param clock: where the time comes from.
    """

    def __init__(
        self,
        transformation: Transformation,
        sinks: Sequence[Sink],
        *,
        source: str,
        found: BadRecords | None = None,
        keeps_rejected: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.transformation = transformation
        self.layout = transformation.layout
        self.source = source
        self.found = found or BadRecords()
        self.keeps_rejected = keeps_rejected
        self.clock = clock or SystemClock()
        self.dead = next((sink for sink in sinks if sink.name == DEAD_LETTER), None)
        self.routed = routed(sinks)
        self._sinks = {sink.name: sink for sink in sinks}

    @property
    def sinks(self) -> Sequence[str]:
        """See `Delivery.sinks`."""
        return tuple(self._sinks)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared]:
        """See `Delivery.prepare`: each sink prepares what it takes."""
        wanted: dict[str, set[str]] = {attempt.batch_id: set() for attempt in attempts}
        for name in sinks:
            for attempt in owed(self._sinks[name], attempts):
                wanted[attempt.batch_id].add(name)
        return {attempt.batch_id: self._prepare(attempt, wanted[attempt.batch_id]) for attempt in attempts}

    def _prepare(self, attempt: Attempt, wanted: Collection[str]) -> Prepared:
        if not wanted:
            return Prepared()
        ensure_landed(attempt, self.routed)
        work = self.routed[0].scratch([attempt])
        try:
            return _Batch(self, attempt, work, wanted).prepare()
        except DeliveryError:
            raise
        except Exception as error:
            batch = attempt.batch
            raise DeliveryError(
                f"batch {batch.batch_id} ({batch.records} records after {batch.start} up to {batch.end}): "
                f"the transform or its write failed: {error_text(error)}"
            ) from error
        finally:
            delete_folder(work)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.commit`."""
        self._sinks[sink].commit(attempts)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        for sink in self._sinks.values():
            sink.discard(attempts)

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Delivery.sweep`."""
        for sink in self._sinks.values():
            sink.sweep(folder, fencing_token)


class _Batch:
    """One batch on its way into some sinks.

    :param delivery: whose batch.
    :param work: a folder for what is needed on the way.
    :param wanted: the names of the sinks that need the batch.
    """

    def __init__(self, delivery: DeliverTransformed, attempt: Attempt, work: str, wanted: Collection[str]) -> None:
        self._delivery = delivery
        self._attempt = attempt
        self._batch = attempt.batch
        self._work = work
        self._wanted = wanted
        # No cached properties: in Python 3.11 those of all batches share a lock, and one would wait for the other.
        self._unfit = self._rejected = BAD_SCHEMA.empty_table()
        self._records: pa.Table | None = None

    def prepare(self) -> Prepared:
        """Let the sinks prepare the batch; see `DeliverTransformed.prepare`."""
        self._look_for_left_out()
        if self._rejected.num_rows:
            log.info(
                "batch %s: %d of %d records are late or early, and left out",
                self._batch.batch_id, self._rejected.num_rows, self._batch.records,
            )  # fmt: skip
        self._judge(self._unfit)
        made, raising = self._transformed()
        bad = pa.concat_tables([self._unfit, raising, marked(made)])
        self._judge(bad)
        put_aside = pa.concat_tables([bad, self._rejected]) if self._delivery.keeps_rejected else bad
        self._prepare_dead_letters(put_aside)
        counts, unrouted = routes(made, len(self._delivery.routed))
        records = {DEAD_LETTER: put_aside.num_rows}
        for n, sink in enumerate(self._delivery.routed):
            records[sink.name] = counts[n]
            rows = MadeRows(
                transformation=self._delivery.transformation, made=made, sink=sink, number=n, rows=counts[n]
            )
            self._prepare_for(sink, rows)
        return Prepared(
            records={name: records[name] for name in self._wanted},
            unrouted=unrouted,
            left_out=dict(Counter([*bad.column("stage").to_pylist(), *self._rejected.column("stage").to_pylist()])),
            columns=made.columns,
        )

    @property
    def _landed(self) -> pa.Table:
        if self._records is None:
            self._records = read_table(self._attempt.file)
        return self._records

    # What the transform does not get

    def _look_for_left_out(self) -> None:
        """Find the records whose payload does not fit the schema, and those that are late or early."""
        found = self._delivery.transformation.left_out(self._attempt.file, self._batch.bounds)
        if found is not None:
            stages = found.column("stage")
            left_out = bad_records(found, self._delivery.layout.position, found.column("error"), stages)
            self._unfit = left_out.filter(pc.equal(stages, str(Stage.SCHEMA)))
            self._rejected = left_out.filter(pc.equal(stages, str(Stage.TIME)))

    @property
    def _sieve(self) -> Sieve:
        return Sieve(unfit=self._unfit.num_rows > 0, bounds=self._batch.bounds if self._rejected.num_rows else None)

    # Bad records

    def _transformed(self) -> tuple[Transformed, pa.Table]:
        """Write what the transform makes of all records on which it does not raise; return the others with it."""
        try:
            return self._write(self._attempt.file), BAD_SCHEMA.empty_table()
        except Exception as error:
            if not is_of_a_record(error):
                raise
            log.warning(
                "batch %s: the transform raised; looking for the records on which it does: %s",
                self._batch.batch_id, error_text(error),
            )  # fmt: skip
        failing = self._failing()
        rest = join(self._work, "rest.parquet")
        write_table(self._landed.filter(pa.array([n not in failing for n in range(self._landed.num_rows)])), rest)
        return self._write(rest), self._raising(failing)

    def _failing(self) -> dict[int, str]:
        """Return the rows on which the transform raises, with what it raises.

        :raises DeliveryError: if they are too many, or have nowhere to go.
        """
        left = self._delivery.found.left(self._batch.batch_id)
        most = MAX_FAILING if left is None else min(MAX_FAILING, left - self._unfit.num_rows)
        if self._delivery.dead is None:
            most = 0
        fails = self._probe
        if (error := fails(0, 0)) is not None:
            raise DeliveryError(
                f"batch {self._batch.batch_id}: the transform or its write failed, even without a record: {error}"
            )
        rows = self._landed.num_rows
        if rows > MAX_FAILING and (error := fails_everywhere(rows, fails)) is not None:
            raise self._wrong(f"every record that was tried, out of {rows}", error)
        failing = dict(islice(find_failing(rows, fails), most + 1))
        if len(failing) > most:
            self._judge(pa.concat_tables([self._unfit, self._raising(failing)]), more=True)
            raise self._wrong(f"more than {most} of {rows} records", next(iter(failing.values())))
        return failing

    def _wrong(self, where: str, error: str) -> DeliveryError:
        return DeliveryError(
            f"batch {self._batch.batch_id}: the transform raises on {where}, which is taken for its own fault; mend "
            f"it, or let it mark bad records in a column {ERROR!r}. The first error: {error}"
        )

    def _probe(self, low: int, high: int) -> str | None:
        """Return what the transform raises on a range of rows; None if it does not."""
        file = join(self._work, f"probe-{low}-{high}.parquet")
        write_table(self._landed.slice(low, high - low), file)
        try:
            return self._delivery.transformation.fails(file, self._batch.batch_id, self._sieve)
        finally:
            delete_file(file)

    def _raising(self, failing: Mapping[int, str]) -> pa.Table:
        position = self._delivery.layout.position
        rows = self._landed.select(position).take(pa.array(failing, pa.int64()))
        return bad_records(rows, position, pa.array(failing.values(), pa.string()), Stage.TRANSFORM)

    def _judge(self, bad: pa.Table, *, more: bool = False) -> None:
        """Note the batch's bad records, and refuse it where they are too many or have nowhere to go.

        :param more: whether there are more than these.
        """
        delivery, name = self._delivery, self._batch.batch_id
        if not bad.num_rows:
            delivery.found.note(name, 0)
            return
        letters = self._letters(bad)
        delivery.found.note(name, bad.num_rows, samples(delivery.layout, letters, delivery.found.saved))
        if delivery.dead is None:
            raise DeliveryError(
                f"batch {name}: {'at least ' if more else ''}{self._described(letters)}; give 'dead_letter_path' to "
                "put bad records aside, or mend the schema, the transform or the producer"
            )

    def _prepare_dead_letters(self, put_aside: pa.Table) -> None:
        if (dead := self._delivery.dead) is None:
            return
        letters = self._letters(put_aside)
        if letters.num_rows:
            log.warning("batch %s: %s; to the dead letters", self._batch.batch_id, self._described(letters))
        self._prepare_for(dead, TableRows(table=letters))

    def _letters(self, put_aside: pa.Table) -> pa.Table:
        delivery = self._delivery
        if not put_aside.num_rows:
            return delivery.layout.dead_letter.empty_table()
        now = delivery.clock.now()
        return dead_letters(delivery.layout, put_aside, self._landed, delivery.source, self._batch.batch_id, now)

    def _described(self, letters: pa.Table) -> str:
        [first] = letters.slice(0, 1).to_pylist()
        at = self._delivery.layout.place_of(first)
        rejected = int(pc.sum(pc.equal(letters.column("stage"), str(Stage.TIME))).as_py())
        late = f", {rejected} are late or early" if rejected else ""
        bad = f"{letters.num_rows - rejected} of {self._batch.records} records are bad{late}"
        return f"{bad}, the first at {at}: {first['error']}"

    # Routing

    def _write(self, file: str) -> Transformed:
        folder = join(self._work, "all")
        return self._delivery.transformation.write(file, folder, self._batch.batch_id, self._sieve)

    def _prepare_for(self, sink: Sink, rows: Rows) -> None:
        """Give one sink its rows, unless it has them."""
        if sink.name not in self._wanted:
            return
        try:
            sink.prepare([self._attempt], rows)
        except Exception as error:
            raise DeliveryError(
                f"batch {self._batch.batch_id}: sink {sink.name!r} at {sink.location!r} cannot take it: "
                f"{error_text(error)}; mend the sink, until then no sink gets the batch"
            ) from error


def routed(sinks: Sequence[Sink]) -> list[Sink]:
    """Return the sinks that rows are routed to, in order: all but that of the dead letters."""
    return [sink for sink in sinks if sink.name != DEAD_LETTER]


def marked(made: Transformed) -> pa.Table:
    """Return what is known of the records that the transform marked."""
    if not made.marks:
        return BAD_SCHEMA.empty_table()
    rows = pa.concat_tables(read_table(file, [ERROR, *MARKED]) for file in made.files)
    bad = rows.filter(pc.is_valid(rows.column(ERROR)))
    return bad_records(bad, MARKED, bad.column(ERROR), Stage.TRANSFORM)


def routes(made: Transformed, sinks: int) -> tuple[list[int], int]:
    """Return how many rows each sink takes, and how many none takes, marked rows left out."""
    if not made.is_for(0):
        return [sum(map(row_count, made.files))], 0
    columns = [ROUTE.format(n) for n in range(sinks)]
    wanted = [*columns, *([ERROR] if made.marks else [])]
    table = pa.concat_tables(read_table(file, wanted) for file in made.files)
    taken = pc.is_valid(table.column(ERROR)) if made.marks else pa.array([False] * table.num_rows, pa.bool_())
    for column in columns:
        taken = pc.or_(taken, table.column(column))
    return [_count(table.column(column)) for column in columns], table.num_rows - _count(taken)


def _count(flags: pa.ChunkedArray) -> int:
    return int(pc.sum(flags).as_py() or 0)
