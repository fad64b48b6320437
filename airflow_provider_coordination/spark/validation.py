"""One batch that is being delivered: which of its records are bad, whether it is refused for them, what is put aside.

Bad records turn up on the way: payloads that do not fit the schema first, then records that the transform raises on or
marks. Each time the batch is judged anew, by itself: no other batch of the delivery is held by it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.bad_records import (
    BAD_SCHEMA,
    MAX_FAILING,
    BadRecords,
    Stage,
    bad_records,
    dead_letters,
    fails_everywhere,
    find_failing,
    samples,
)
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.storage import delete_file, join, read_table, write_table
from airflow_provider_coordination.spark.transformation import MARKED, Part, Transformation

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What a job does with bad records, whatever the batch.

    :param layout: of the landed records.
    :param source: the source's name, for the dead letters.
    :param found: what the job finds wrong with records.
    :param has_dead_letters: whether there is a sink for bad records.
    :param keeps_rejected: whether records that are late or early go there.
    :param clock: where the time comes from.
    :param access: how landed files are reached.
    """

    layout: RecordLayout
    source: str
    found: BadRecords
    has_dead_letters: bool
    keeps_rejected: bool
    clock: Clock
    access: Access


class JudgedBatch:
    """One batch on its way into some sinks.

    :param judge: what is done with bad records.
    :param attempt: its delivery.
    :param wanted: the names of the sinks that need the batch.
    """

    def __init__(self, judge: Judge, attempt: Attempt, wanted: Collection[str]) -> None:
        self.attempt = attempt
        self.wanted = wanted
        self._judge = judge
        self._batch = attempt.batch
        self.is_sieved = False
        """Whether it is known what the transform does not get."""
        self._passed: int | None = None  # with how many bad records it was not refused
        self._unfit = self._rejected = self._raising = self._marked = BAD_SCHEMA.empty_table()

    @property
    def batch_id(self) -> str:
        """Its id."""
        return self._batch.batch_id

    def __str__(self) -> str:
        """Return what it is, for people."""
        batch = self._batch
        return f"batch {batch.batch_id} ({batch.records} records after {batch.start} up to {batch.end})"

    # What the transform does not get

    @property
    def part(self) -> Part:
        """Its records, of which is known by now what the transform does not get."""
        whole = Part(
            batch_id=self.batch_id,
            file=self.attempt.file,
            file_bytes=self._batch.file_bytes,
            bounds=self._batch.bounds,
            shared_file=self.attempt.shared_file,
        )
        if not self.is_sieved:
            return whole
        has_rejected, has_unfit = self._rejected.num_rows > 0, self._unfit.num_rows > 0
        return replace(whole, bounds=whole.bounds if has_rejected else None, has_unfit=has_unfit)

    def sieve(self, left_out: pa.Table | None) -> None:
        """Note which records are not to be transformed; see `Transformation.left_out`.

        :param left_out: those of all batches.
        """
        self.is_sieved = True
        if left_out is None:
            return
        theirs = self._of(left_out)
        stages = theirs.column("stage")
        found = bad_records(theirs, self._judge.layout.position, theirs.column("error"), stages)
        self._unfit = found.filter(pc.equal(stages, str(Stage.SCHEMA)))
        self._rejected = found.filter(pc.equal(stages, str(Stage.TIME)))
        if self._rejected.num_rows:
            log.info(
                "batch %s: %d of %d records are late or early, and left out",
                self.batch_id, self._rejected.num_rows, self._batch.records,
            )  # fmt: skip

    def mark(self, marked: pa.Table) -> None:
        """Note which records the transform marked.

        :param marked: rows of all batches that it marked, with their positions.
        """
        theirs = self._of(marked)
        self._marked = bad_records(theirs, MARKED, theirs.column(ERROR), Stage.TRANSFORM)

    def _of(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.equal(rows.column(BATCH_ID), self.batch_id))

    # Verdict

    @property
    def bad(self) -> pa.Table:
        """The bad records that are known by now."""
        return pa.concat_tables([self._unfit, self._raising, self._marked])

    @property
    def put_aside(self) -> pa.Table:
        """The records that the dead-letter sink is to take."""
        return pa.concat_tables([self.bad, self._rejected]) if self._judge.keeps_rejected else self.bad

    @property
    def left_out(self) -> dict[str, int]:
        """How many records no sink but that of the dead letters gets, by stage."""
        return dict(Counter([*self.bad.column("stage").to_pylist(), *self._rejected.column("stage").to_pylist()]))

    def judge(self, *, more: bool = False) -> None:
        """Note the bad records that are known by now.

        :param more: whether there are more than these.
        :raises DeliveryError: if they are too many or have nowhere to go, which refuses the batch.
        """
        bad, found = self.bad, self._judge.found
        if bad.num_rows == self._passed:
            return
        if not bad.num_rows:
            found.note(self.batch_id, 0)
            self._passed = 0
            return
        letters = self._letters(bad)
        found.note(self.batch_id, bad.num_rows, samples(self._judge.layout, letters, found.saved))
        if not self._judge.has_dead_letters:
            raise DeliveryError(
                f"batch {self.batch_id}: {'at least ' if more else ''}{self._described(letters)}; give "
                "'dead_letter_path' to put bad records aside, or mend the schema, the transform or the producer"
            )
        self._passed = bad.num_rows

    def letters(self) -> pa.Table:
        """Return what the dead-letter sink takes."""
        letters = self._letters(self.put_aside)
        if letters.num_rows:
            log.warning("batch %s: %s; to the dead letters", self.batch_id, self._described(letters))
        return letters

    def _letters(self, put_aside: pa.Table) -> pa.Table:
        judge = self._judge
        if not put_aside.num_rows:
            return judge.layout.dead_letter.empty_table()
        landed = read_table(self.attempt.file, access=judge.access)
        return dead_letters(judge.layout, put_aside, landed, judge.source, self.batch_id, judge.clock.now())

    def _described(self, letters: pa.Table) -> str:
        [first] = letters.slice(0, 1).to_pylist()
        at = self._judge.layout.place_of(first)
        rejected = int(pc.sum(pc.equal(letters.column("stage"), str(Stage.TIME))).as_py())
        late = f", {rejected} are late or early" if rejected else ""
        bad = f"{letters.num_rows - rejected} of {self._batch.records} records are bad{late}"
        return f"{bad}, the first at {at}: {first['error']}"

    # Records on which the transform raises

    def without_raising(self, transformation: Transformation, work: str) -> Part:
        """Return the records on which the transform does not raise, once it did; note the others.

        :param work: a folder for what is needed on the way.
        :raises DeliveryError: if they are too many, or have nowhere to go.
        """
        landed = read_table(self.attempt.file, access=self._judge.access)
        failing = self._failing(transformation, landed, work)
        self._raising = self._raised(landed, failing)
        rest = join(work, "rest.parquet")
        going = landed.filter(pa.array([n not in failing for n in range(landed.num_rows)]))
        return replace(self.part, file=rest, file_bytes=write_table(going, rest, self._judge.access))

    def _failing(self, transformation: Transformation, landed: pa.Table, work: str) -> dict[int, str]:
        """Return the rows on which the transform raises, with what it raises."""

        def fails(low: int, high: int) -> str | None:
            file = join(work, f"probe-{low}-{high}.parquet")
            size = write_table(landed.slice(low, high - low), file, self._judge.access)
            try:
                return transformation.fails(replace(self.part, file=file, file_bytes=size))
            finally:
                delete_file(file, self._judge.access)

        left = self._judge.found.left(self.batch_id)
        most = MAX_FAILING if left is None else min(MAX_FAILING, left - self._unfit.num_rows)
        if not self._judge.has_dead_letters:
            most = 0
        if (error := fails(0, 0)) is not None:
            raise DeliveryError(
                f"batch {self.batch_id}: the transform or its write failed, even without a record: {error}"
            )
        rows = landed.num_rows
        if rows > MAX_FAILING and (error := fails_everywhere(rows, fails)) is not None:
            raise self._wrong(f"every record that was tried, out of {rows}", error)
        failing = dict(islice(find_failing(rows, fails), most + 1))
        if len(failing) > most:
            self._raising = self._raised(landed, failing)
            self.judge(more=True)
            raise self._wrong(f"more than {most} of {rows} records", next(iter(failing.values())))
        return failing

    def _wrong(self, where: str, error: str) -> DeliveryError:
        return DeliveryError(
            f"batch {self.batch_id}: the transform raises on {where}, which is taken for its own fault; mend "
            f"it, or let it mark bad records in a column {ERROR!r}. The first error: {error}"
        )

    def _raised(self, landed: pa.Table, failing: Mapping[int, str]) -> pa.Table:
        position: Sequence[str] = self._judge.layout.position
        rows = landed.select(position).take(pa.array(failing, pa.int64()))
        return bad_records(rows, position, pa.array(failing.values(), pa.string()), Stage.TRANSFORM)
