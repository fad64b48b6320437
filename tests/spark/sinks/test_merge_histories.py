"""Changes of keys, in any order, again and at the same time, end as in a dict that compares their versions."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.spark.delivery import Attempt
from tests.support.depth import examples
from tests.support.merged_tables import BY_CHANGES, CHANGES, ORDERED_KINDS, MergedRows, Row, a_sink, deliver, kind_of
from tests.support.seed import seeded
from tests.support.sinks import SinkTarget, SinkUnderTest, an_attempt
from tests.support.waiting import PATIENCE_SECONDS

DELETES = ("REMOVE", "DELETE", "d")
PARTITIONS = ("a", "b", "c")
_numbers = count(1)


@pytest.fixture(params=ORDERED_KINDS)
def kind(request: pytest.FixtureRequest) -> SinkUnderTest:
    return kind_of(request)


@dataclass(frozen=True)
class Change:
    """What happens to a key."""

    key: str
    version: int | None
    op: str | None


@dataclass(frozen=True)
class Part:
    """A batch in a delivery.

    :param again: which of the earlier batches of the partition is delivered again; None for a new batch.
    :param is_rejected: whether it is delivered again because it was rejected.
    """

    partition: str
    changes: Sequence[Change]
    again: int | None = None
    is_rejected: bool = False


@dataclass
class Model:
    """The table as a dict, and the greatest version of each key's deletes.

    A delete is remembered even if it loses, and if a later version returns: the batch of the later version may be
    rejected, and replaced by one that is older than the delete.
    """

    rows: dict[str, tuple[int, int | None, str]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)

    def reject(self, batch_id: str) -> None:
        """Forget the rows of a batch; what it deleted does not come back."""
        self.rows = {key: row for key, row in self.rows.items() if row[2] != batch_id}

    def merge(self, batch_id: str, rows: Sequence[Row]) -> None:
        for key, value, version, op in rows:
            is_late = is_before(version, self.deleted.get(key)) or (
                key in self.rows and is_before(version, self.rows[key][1])
            )
            if op in DELETES and version is not None:
                self.deleted[key] = max(version, self.deleted.get(key, version))
            if not is_late:
                self.rows.pop(key, None)
                if op not in DELETES:
                    self.rows[key] = value, version, batch_id


def is_before(version: int | None, other: int | None) -> bool:
    return other is not None and (version is None or version < other)


@dataclass
class Batch:
    """A batch of the history.

    :param deliveries: the number of sets that delivered it.
    """

    number: int
    deliveries: int = 1
    is_rejected: bool = False


class History:
    """Deliveries to a table, and to a dict.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self._target = target
        self._model = Model()
        self._batches: dict[str, list[Batch]] = {partition: [] for partition in PARTITIONS}
        self._tokens = Counter(PARTITIONS)

    def deliver(self, parts: Sequence[Part]) -> None:
        """Let a new job deliver batches, and compare what readers see."""
        self._tokens.update({part.partition for part in parts if part.again is not None})
        attempts: dict[str, Attempt] = {}
        of: dict[str, Sequence[Row]] = {}
        owed: list[str] = []
        for part in parts:
            batch, is_new = self._batch(part)
            attempt = an_attempt_of(part.partition, batch, self._tokens[part.partition])
            if attempt.batch_id in attempts:
                continue
            attempts[attempt.batch_id] = attempt
            of[attempt.batch_id] = rows_of(part.changes)
            if is_new or batch.is_rejected:
                owed.append(attempt.batch_id)
        deliver(a_sink(self._target, **BY_CHANGES), of, *attempts.values(), schema=CHANGES)
        for batch_id in owed:
            self._model.reject(batch_id)
        for batch_id in owed:
            self._model.merge(batch_id, of[batch_id])
        assert visible(self._target) == self._model.rows

    def _batch(self, part: Part) -> tuple[Batch, bool]:
        """Return the batch of a part, and whether it is new."""
        known = self._batches[part.partition]
        if part.again is None or not known:
            known.append(Batch(len(known) + 1))
            return known[-1], True
        batch = known[part.again % len(known)]
        batch.is_rejected |= part.is_rejected
        batch.deliveries += batch.is_rejected  # another set each time: one that is in is not owed again
        return batch, False


def an_attempt_of(partition: str, batch: Batch, token: int) -> Attempt:
    attempt = an_attempt(
        f"{partition}-{batch.number}",
        token,
        set_number=batch.deliveries,
        redeliver=batch.is_rejected,
        ordinal=batch.number,
    )
    return replace(attempt, folder=f"clicks/{partition}", partition_key=partition)


def rows_of(changes: Sequence[Change]) -> list[Row]:
    return [(change.key, next(_numbers), change.version, change.op) for change in changes]


def visible(target: SinkTarget) -> dict[str, tuple[int, int | None, str]]:
    """Return what readers see of each key.

    :raises AssertionError: if there is a key twice.
    """
    rows = [row for batch in target.kind.batches(target.folder).values() for row in batch]
    found = {row["Key"]: (row["n"], row["version"], row["_batch_id"]) for row in rows}
    assert len(found) == len(rows)
    return found


changes = st.builds(
    Change,
    key=st.sampled_from("xyz"),
    version=st.none() | st.integers(0, 5),
    op=st.sampled_from((None, "INSERT", "modify", *DELETES)),
)
parts = st.builds(
    Part,
    partition=st.sampled_from(PARTITIONS),
    changes=st.lists(changes, max_size=4),
    again=st.none() | st.integers(0, 9),
    is_rejected=st.booleans(),
)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=st.lists(st.lists(parts, min_size=1, max_size=3), min_size=2, max_size=8))
def test_history_of_keys_ends_as_in_a_dict(kind: SinkUnderTest, history: list[list[Part]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = History(SinkTarget(kind, Path(folder) / f"keys_{next(_numbers)}"))
        for delivery in history:
            table.deliver(delivery)


def test_simultaneous_merges_end_as_one_after_the_other(kind: SinkUnderTest, tmp_path: Path) -> None:
    target, random, rounds = SinkTarget(kind, tmp_path / "keys"), seeded("simultaneous merges"), 6
    versions = random.sample(range(1000), 8 * rounds)  # unique, so that the result is the same in any sequence
    of: dict[str, Sequence[Row]] = {}
    for partition in "ab":
        for number in range(1, rounds + 1):
            of[f"{partition}-{number}"] = rows_of(
                [Change(key, versions.pop(), random.choice((None, "REMOVE"))) for key in "wxyz"]
            )
    together = threading.Barrier(2)

    def work(partition: str) -> None:
        for number in range(1, rounds + 1):
            attempt = an_attempt_of(partition, Batch(number), 1)
            sink = a_sink(target, **BY_CHANGES)
            sink.prepare([attempt], MergedRows(of, CHANGES))
            together.wait(PATIENCE_SECONDS)
            sink.commit([attempt])
            sink.discard([attempt])

    workers = [threading.Thread(target=work, args=(partition,)) for partition in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    model = Model()
    for batch_id, rows in of.items():
        model.merge(batch_id, rows)
    assert visible(target) == model.rows
