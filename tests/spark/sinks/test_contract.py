"""The contract of every sink, whatever happens between two calls. `Sink` defines it; this suite checks each kind."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks import Sink, owed
from airflow_provider_coordination.spark.storage import file_size, join, write_text
from tests.support.sinks import SINKS, BatchRows, OnServer, SinkTarget, an_attempt, under_next_lease

BATCHES = ("a-1", "b-1", "c-1")
VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4, 5, 6]}
OTHERS = {batch_id: [-value for value in values] for batch_id, values in VALUES.items()}
"""The rows of a former owner for the same batches."""
NOTHING: dict[str, list[int]] = {batch_id: [] for batch_id in BATCHES}


ON_SERVERS = [pytest.mark.integration, pytest.mark.share(0.3)]
EACH = [pytest.param(name, marks=ON_SERVERS if isinstance(kind, OnServer) else ()) for name, kind in SINKS.items()]


@pytest.fixture(params=EACH)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    kind = SINKS[request.param]
    if isinstance(kind, OnServer):
        kind = kind.make(request.getfixturevalue(kind.fixture))
    return SinkTarget(kind, tmp_path / "sink")


@pytest.fixture(params=[1, 3], ids=["one batch", "many batches"])
def attempts(request: pytest.FixtureRequest) -> list[Attempt]:
    return [an_attempt(batch_id) for batch_id in BATCHES[: request.param]]


def of(attempts: list[Attempt], values: dict[str, list[int]] = VALUES) -> dict[str, list[int]]:
    return {attempt.batch_id: sorted(values[attempt.batch_id]) for attempt in attempts if values[attempt.batch_id]}


# What is delivered


def test_commit_shows_whole_batches_and_leaves_no_files(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(VALUES, attempts)
    assert target.visible == of(attempts)
    assert target.leftovers == []


def test_check_of_a_writable_sink_leaves_nothing_visible(target: SinkTarget) -> None:
    target.sink().check()
    assert target.visible == {} and target.leftovers == []


def test_prepared_batch_is_not_visible(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.sink().prepare(attempts, target.rows(VALUES))
    assert target.visible == {}


def test_every_job_knows_committed_batches_by_id(target: SinkTarget, attempts: list[Attempt]) -> None:
    sink, asked = target.sink(), [an_attempt(batch_id, 2) for batch_id in BATCHES]
    assert sink.committed(asked) == set()
    target.deliver(VALUES, attempts, sink)
    assert sink.committed(asked) == target.sink().committed(asked) == {attempt.batch_id for attempt in attempts}


def test_prepared_batch_is_not_committed(target: SinkTarget, attempts: list[Attempt]) -> None:
    sink = target.sink()
    sink.prepare(attempts, target.rows(VALUES))
    assert sink.committed(attempts) == target.sink().committed(attempts) == set()


def test_batches_of_several_deliveries_coexist(target: SinkTarget) -> None:
    for batch_id in BATCHES:
        target.deliver(VALUES, [an_attempt(batch_id)])
    assert target.visible == VALUES


def test_partly_committed_delivery_adds_the_remaining_batches(target: SinkTarget) -> None:
    target.deliver(VALUES, [an_attempt("b-1")])
    attempts = [an_attempt(batch_id, 2) for batch_id in BATCHES]
    left = owed(target.sink(), attempts)
    assert [attempt.batch_id for attempt in left] == ["a-1", "c-1"]
    target.deliver(VALUES, left)
    assert target.visible == VALUES


def test_recreated_partition_is_delivered(target: SinkTarget) -> None:
    landed_at = datetime.now(UTC)
    target.deliver(VALUES, [an_attempt("a-1", 7, ordinal=9, landed_at=landed_at)])
    later = an_attempt("b-1", 8, ordinal=1, landed_at=landed_at + timedelta(hours=1))
    back = replace(later, folder="clicks/a-1", partition_key="a-1")
    assert target.sink().committed([back]) == set()
    target.deliver(VALUES, [back])
    assert target.visible == {"a-1": [1, 2], "b-1": [3]} and target.sink().committed([back]) == {"b-1"}


def test_delivery_without_batches_changes_nothing(target: SinkTarget) -> None:
    target.deliver(VALUES, [an_attempt("a-1")])
    target.deliver({}, [])
    assert target.visible == {"a-1": [1, 2]}


# Empty results, and batches that are delivered again because they were rejected


def test_batches_without_rows_make_nothing_visible(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(NOTHING, attempts)
    assert target.visible == {} and target.leftovers == []


def test_batch_without_rows_is_delivered_beside_others(target: SinkTarget) -> None:
    attempts = [an_attempt(batch_id) for batch_id in BATCHES]
    target.deliver({**VALUES, "b-1": []}, attempts)
    assert target.visible == {"a-1": [1, 2], "c-1": [4, 5, 6]}


def test_rejected_batches_are_replaced(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(OTHERS, attempts)
    target.deliver(VALUES, [under_next_lease(attempt, rejected=True) for attempt in attempts])
    assert target.visible == of(attempts)


def test_rejected_batches_may_be_replaced_by_no_rows(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(OTHERS, attempts)
    target.deliver(NOTHING, [under_next_lease(attempt, rejected=True) for attempt in attempts])
    assert target.visible == {}


def test_rejected_batches_without_rows_may_gain_rows(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(NOTHING, attempts)
    target.deliver(VALUES, [under_next_lease(attempt, rejected=True) for attempt in attempts])
    assert target.visible == of(attempts)


def test_single_rejected_batch_is_replaced_alone(target: SinkTarget) -> None:
    attempts = [an_attempt(batch_id) for batch_id in BATCHES]
    target.deliver(VALUES, attempts)
    rejected = under_next_lease(attempts[1], rejected=True)
    target.deliver(OTHERS, [under_next_lease(attempts[0]), rejected, under_next_lease(attempts[2])])
    assert target.visible == {**VALUES, "b-1": [-3]}


# Repetition, crashes and former owners, at each step of a delivery

STEPS: dict[str, Callable[[Sink, list[Attempt], dict[str, list[int]]], None]] = {
    "prepare": lambda sink, attempts, values: sink.prepare(attempts, BatchRows(values, sink.access)),
    "commit": lambda sink, attempts, values: sink.commit(attempts),
    "discard": lambda sink, attempts, values: sink.discard(attempts),
}


@pytest.mark.parametrize("repeated", STEPS)
def test_repeated_step_changes_nothing(target: SinkTarget, attempts: list[Attempt], repeated: str) -> None:
    sink = target.sink()
    for step, make in STEPS.items():
        make(sink, attempts, OTHERS if step == repeated == "prepare" else VALUES)
        if step == repeated:
            make(sink, attempts, VALUES)
    assert target.visible == of(attempts)
    assert target.leftovers == []


@pytest.mark.parametrize("last", STEPS)
def test_next_owner_delivers_once_after_death_at_any_step(
    target: SinkTarget, attempts: list[Attempt], last: str
) -> None:
    died = target.sink()
    for step, make in STEPS.items():
        make(died, attempts, OTHERS)
        if step == last:
            break
    next_owner, again = target.sink(), [under_next_lease(attempt) for attempt in attempts]
    for attempt in again:
        next_owner.sweep({attempt.folder: attempt.fencing_token})
    left = owed(next_owner, again)
    target.deliver(VALUES, left, next_owner)
    assert target.visible == of(attempts, OTHERS if last != "prepare" else VALUES), "what was in stays"
    assert target.leftovers == []


@pytest.mark.parametrize("rejected", [False, True])
@pytest.mark.parametrize("frozen_before", STEPS)
def test_previous_owner_neither_adds_nor_replaces_rows(
    target: SinkTarget, attempts: list[Attempt], frozen_before: str, rejected: bool
) -> None:
    if rejected:
        target.deliver({**OTHERS, "b-1": []}, attempts)
        attempts = [under_next_lease(attempt, rejected=True) for attempt in attempts]
    zombie, left, refused = target.sink(), dict(STEPS), []
    for step in STEPS:
        if step == frozen_before:
            break
        left.pop(step)(zombie, attempts, OTHERS)
    next_owner, again = target.sink(), [under_next_lease(attempt, rejected=rejected) for attempt in attempts]
    for attempt in again:
        next_owner.sweep({attempt.folder: attempt.fencing_token})
    target.deliver(VALUES, owed(next_owner, again), next_owner)
    seen = target.visible
    if frozen_before == "prepare":  # it asks the store before it commits, and learns there that the lease is lost
        left.pop("commit")
    for step, make in left.items():
        try:
            make(zombie, attempts, OTHERS)
        except CoordinationError:
            refused.append(step)
    assert target.visible == seen
    assert seen == of(attempts, OTHERS if frozen_before == "discard" and not rejected else VALUES)
    assert refused == (["commit"] if frozen_before == "commit" and rejected else []), "what is in, it passes over"


def test_partition_of_another_owner_does_not_block_the_rest(target: SinkTarget) -> None:
    sink, attempts = target.sink(), [an_attempt(batch_id) for batch_id in BATCHES]
    sink.prepare(attempts, target.rows(VALUES))
    target.sink().sweep({attempts[1].folder: 2})
    with pytest.raises(CoordinationError):
        sink.commit([attempts[1]])
    sink.commit([attempts[0], attempts[2]])
    assert target.visible == {"a-1": [1, 2], "c-1": [4, 5, 6]}


def test_delivery_proceeds_without_its_refused_batch(target: SinkTarget) -> None:
    sink, attempts = target.sink(), [an_attempt(batch_id) for batch_id in BATCHES]
    sink.prepare(attempts, target.rows(VALUES))
    target.sink().sweep({attempts[1].folder: 2})
    with pytest.raises(CoordinationError):
        sink.commit(attempts)
    for attempt in (attempts[0], attempts[2]):
        sink.commit([attempt])
    assert target.visible == {"a-1": [1, 2], "c-1": [4, 5, 6]}


# Leftovers


def test_sweep_removes_only_files_of_previous_owners(target: SinkTarget, attempts: list[Attempt]) -> None:
    former, later = target.sink(), target.sink()
    former.prepare(attempts, target.rows(OTHERS))
    again = [under_next_lease(attempt) for attempt in attempts]
    later.prepare(again, target.rows(VALUES))
    for attempt in again:
        later.sweep({attempt.folder: attempt.fencing_token})
    later.commit(again)
    later.discard(again)
    assert target.visible == of(attempts)
    assert target.leftovers == []


def test_sweep_of_one_partition_leaves_others_alone(target: SinkTarget) -> None:
    sink, one, other = target.sink(), an_attempt("a-1"), an_attempt("b-1")
    sink.prepare([one, other], target.rows(VALUES))
    target.sink().sweep({one.folder: 99})
    sink.commit([other])
    assert target.visible == {"b-1": [3]}


def test_sweep_leaves_visible_rows(target: SinkTarget, attempts: list[Attempt]) -> None:
    target.deliver(VALUES, attempts)
    for attempt in attempts:
        target.sink().sweep({attempt.folder: 99})
    assert target.visible == of(attempts)


def test_sweep_of_an_empty_sink_succeeds(target: SinkTarget) -> None:
    target.sink().sweep({"clicks/never": 5})
    assert target.visible == {}


def test_sweep_removes_scratch_files_of_the_delivery(target: SinkTarget, attempts: list[Attempt]) -> None:
    sink = target.sink()
    file = join(sink.scratch(attempts), "all", "part-0.parquet")
    write_text(file, "half", sink.access)
    for attempt in attempts:
        sink.sweep({attempt.folder: 2})
    assert target.visible == {} and target.leftovers == []
    assert file_size(file, sink.access) is None


def test_discarded_batch_cannot_be_committed(target: SinkTarget, attempts: list[Attempt]) -> None:
    sink = target.sink()
    sink.prepare(attempts, target.rows(VALUES))
    sink.discard(attempts)
    with pytest.raises(CoordinationError):
        sink.commit(attempts)
    assert target.visible == {} and target.leftovers == []


class InterruptedRows(BatchRows):
    """Rows that cannot all be written."""

    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        super().write(batch_ids, folder)
        raise OSError("the disk is full")


def test_interrupted_preparation_cannot_be_committed(target: SinkTarget, attempts: list[Attempt]) -> None:
    sink = target.sink()
    sink.prepare(attempts[:1], target.rows(OTHERS))
    with pytest.raises(OSError, match="the disk is full"):
        sink.prepare(attempts, InterruptedRows(VALUES, sink.access))
    with pytest.raises(CoordinationError):
        sink.commit(attempts)
    assert target.visible == {}
    target.deliver(VALUES, attempts, sink)
    assert target.visible == of(attempts) and target.leftovers == []


def test_unprepared_batch_cannot_be_committed(target: SinkTarget, attempts: list[Attempt]) -> None:
    with pytest.raises(CoordinationError):
        target.sink().commit(attempts)
    assert target.visible == {}


def test_first_commit_of_a_batch_stays(target: SinkTarget, attempts: list[Attempt]) -> None:
    one, other = target.sink(), target.sink()
    again = [under_next_lease(attempt) for attempt in attempts]
    one.prepare(attempts, target.rows(VALUES))
    other.prepare(again, target.rows(OTHERS))
    one.commit(attempts)
    other.commit(again)
    assert target.visible == of(attempts)
