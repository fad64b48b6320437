"""One batch in delivery: its bad records, whether they refuse the batch, and which records go to the dead-letter sink.

Bad records are found in two steps: first payloads that do not fit the schema, then records on which the transform
raises or which it marks. After each step the batch is validated again, alone: it does not delay other batches.
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
    POSITION,
    BadRecords,
    bad_records,
    dead_letters,
    fails_everywhere,
    find_failing,
    samples,
)
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Stage
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.parquet_files import read_table, write_table
from airflow_provider_coordination.spark.payload import ERROR
from airflow_provider_coordination.spark.rows import TransformInput
from airflow_provider_coordination.spark.storage import delete_file, join
from airflow_provider_coordination.spark.transformation import MARKED, Transformation

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BadRecordPolicy:
    """What a job does with bad records; the same for every batch.

    :param layout: the columns of the landed records.
    :param source: the source's name, for the dead letters.
    :param bad_records: the job's budget, count and samples of bad records.
    :param has_dead_letters: whether the job has a dead-letter sink.
    :param keeps_rejected: whether late and early records go to the dead-letter sink.
    :param clock: the clock for the times in dead letters.
    :param access: the credentials for the landed files.
    """

    layout: RecordLayout
    source: str
    bad_records: BadRecords
    has_dead_letters: bool
    keeps_rejected: bool
    clock: Clock
    access: Access


class ValidatedBatch:
    """One batch that is delivered to sinks.

    :param policy: what the job does with bad records.
    :param attempt: the delivery of the batch.
    :param wanted: the names of the sinks that need the batch.
    """

    def __init__(self, policy: BadRecordPolicy, attempt: Attempt, wanted: Collection[str]) -> None:
        self.attempt = attempt
        self.wanted = wanted
        self._policy = policy
        self._batch = attempt.batch
        self.knows_left_out = False
        """Whether it is known which records the transform does not get."""
        self._accepted: int | None = None  # the number of bad records at the last successful validation
        self._unfit = self._rejected = self._raising = self._marked = BAD_SCHEMA.empty_table()

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self._batch.batch_id

    def __str__(self) -> str:
        """Return a description for messages."""
        batch = self._batch
        start = f"after {batch.start}" if batch.start else "from the start"
        return f"batch {batch.batch_id} ({batch.records} records {start} up to {batch.end})"

    # Records that the transform does not get

    @property
    def transform_input(self) -> TransformInput:
        """The batch as input of the transform, with what is known so far about records to leave out."""
        complete = TransformInput(
            batch_id=self.batch_id,
            file=self.attempt.file,
            file_bytes=self._batch.file_bytes,
            bounds=self._batch.bounds,
            shared_file=self.attempt.shared_file,
        )
        if not self.knows_left_out:
            return complete
        has_rejected, has_unfit = self._rejected.num_rows > 0, self._unfit.num_rows > 0
        return replace(
            complete,
            bounds=complete.bounds if has_rejected else None,
            has_unfit=has_unfit,
            unfit=frozenset(zip(*(self._unfit.column(name).to_pylist() for name in POSITION), strict=True)),
        )

    def note_left_out(self, left_out: pa.Table | None) -> None:
        """Note which records the transform does not get; see `Transformation.left_out`.

        :param left_out: the records of all batches that are left out.
        """
        self.knows_left_out = True
        if left_out is None:
            return
        own = self._own_rows(left_out)
        stages = own.column("stage")
        left_out_records = bad_records(own, self._policy.layout.position, own.column("error"), stages)
        self._unfit = left_out_records.filter(pc.equal(stages, str(Stage.SCHEMA)))
        self._rejected = left_out_records.filter(pc.equal(stages, str(Stage.TIME)))
        if self._rejected.num_rows:
            log.info(
                "batch %s: %d of %d records are late or early and are left out",
                self.batch_id, self._rejected.num_rows, self._batch.records,
            )  # fmt: skip

    def note_marked(self, marked: pa.Table) -> None:
        """Note which records the transform marked as bad.

        :param marked: the marked rows of all batches, with their positions.
        """
        own = self._own_rows(marked)
        self._marked = bad_records(own, MARKED, own.column(ERROR), Stage.TRANSFORM)

    def _own_rows(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.equal(rows.column(BATCH_ID), self.batch_id))

    # Validation

    @property
    def bad(self) -> pa.Table:
        """The bad records that are known so far."""
        return pa.concat_tables([self._unfit, self._raising, self._marked])

    @property
    def for_dead_letters(self) -> pa.Table:
        """The records that go to the dead-letter sink."""
        return pa.concat_tables([self.bad, self._rejected]) if self._policy.keeps_rejected else self.bad

    @property
    def left_out(self) -> dict[str, int]:
        """The number of records that only the dead-letter sink may get, by stage."""
        return dict(Counter([*self.bad.column("stage").to_pylist(), *self._rejected.column("stage").to_pylist()]))

    def validate(self, *, more: bool = False) -> None:
        """Count the bad records that are known so far, and refuse the batch if it has too many.

        :param more: whether the batch has further bad records that were not searched for.
        :raises DeliveryError: if there are too many bad records, or no dead-letter sink takes them.
        """
        bad, counted = self.bad, self._policy.bad_records
        if bad.num_rows == self._accepted:
            return
        if not bad.num_rows:
            counted.note(self.batch_id, 0)
            self._accepted = 0
            return
        letters = self._dead_letters(bad)
        found = samples(self._policy.layout, letters, counted.saved, has_payloads=counted.has_payloads)
        counted.note(self.batch_id, bad.num_rows, found)
        if not self._policy.has_dead_letters:
            raise DeliveryError(
                f"batch {self.batch_id}: {'at least ' if more else ''}{self._describe(letters)}; set "
                "'dead_letter_path' to keep bad records there, or fix the schema, the transform or the producer"
            )
        self._accepted = bad.num_rows

    def dead_letters(self) -> pa.Table:
        """Return the rows for the dead-letter sink."""
        letters = self._dead_letters(self.for_dead_letters)
        if letters.num_rows:
            log.warning("batch %s: %s; they go to the dead-letter sink", self.batch_id, self._describe(letters))
        return letters

    def _dead_letters(self, bad: pa.Table) -> pa.Table:
        policy = self._policy
        if not bad.num_rows:
            return policy.layout.dead_letter.empty_table()
        landed = read_table(self.attempt.file, access=policy.access)
        return dead_letters(policy.layout, bad, landed, policy.source, self.batch_id, policy.clock.now())

    def _describe(self, letters: pa.Table) -> str:
        [first] = letters.slice(0, 1).to_pylist()
        at = self._policy.layout.location_of(first)
        rejected = int(pc.sum(pc.equal(letters.column("stage"), str(Stage.TIME))).as_py())
        late = f", {rejected} are late or early" if rejected else ""
        bad = f"{letters.num_rows - rejected} of {self._batch.records} records are bad{late}"
        return f"{bad}, the first at {at}: {first['error']}"

    # Records on which the transform raises

    def without_raising(self, transformation: Transformation, work: str) -> TransformInput:
        """Return the records on which the transform does not raise, after it raised on the batch; note the others.

        :param work: a folder for temporary files.
        :raises DeliveryError: if the transform raises on too many records, or no dead-letter sink takes them.
        """
        landed = read_table(self.attempt.file, access=self._policy.access)
        failing = self._failing(transformation, landed, work)
        self._raising = self._raising_records(landed, failing)
        rest = join(work, "rest.parquet")
        passing = landed.filter(pa.array([n not in failing for n in range(landed.num_rows)]))
        return replace(self.transform_input, file=rest, file_bytes=write_table(passing, rest, self._policy.access))

    def _failing(self, transformation: Transformation, landed: pa.Table, work: str) -> dict[int, str]:
        """Return the numbers of the rows on which the transform raises, each with the error."""

        def fails(low: int, high: int) -> str | None:
            file = join(work, f"probe-{low}-{high}.parquet")
            size = write_table(landed.slice(low, high - low), file, self._policy.access)
            try:
                return transformation.error_of(replace(self.transform_input, file=file, file_bytes=size))
            finally:
                delete_file(file, self._policy.access)

        left = self._policy.bad_records.left(self.batch_id)
        max_failing = MAX_FAILING if left is None else min(MAX_FAILING, left - self._unfit.num_rows)
        if not self._policy.has_dead_letters:
            max_failing = 0
        if (error := fails(0, 0)) is not None:
            raise DeliveryError(
                f"batch {self.batch_id}: the transform fails even on an empty DataFrame: {error}; fix the transform, "
                "or the service that it uses"
            )
        rows = landed.num_rows
        if rows > MAX_FAILING and (error := fails_everywhere(rows, fails)) is not None:
            raise self._transform_error(f"every record that was tried, out of {rows}", error)
        failing = dict(islice(find_failing(rows, fails), max_failing + 1))
        if len(failing) > max_failing:
            self._raising = self._raising_records(landed, failing)
            self.validate(more=True)
            raise self._transform_error(f"more than {max_failing} of {rows} records", next(iter(failing.values())))
        return failing

    def _transform_error(self, where: str, error: str) -> DeliveryError:
        return DeliveryError(
            f"batch {self.batch_id}: the transform raises on {where}, so the transform itself seems wrong; fix "
            f"it, or let it mark bad records in a column {ERROR!r}. The first error: {error}"
        )

    def _raising_records(self, landed: pa.Table, failing: Mapping[int, str]) -> pa.Table:
        position: Sequence[str] = self._policy.layout.position
        rows = landed.select(position).take(pa.array(failing, pa.int64()))
        return bad_records(rows, position, pa.array(failing.values(), pa.string()), Stage.TRANSFORM)
