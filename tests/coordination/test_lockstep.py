"""Processes in lockstep share one write, and an error affects only its own process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_provider_coordination.coordination.errors import PartitionUpdateError, StoreUnavailableError
from airflow_provider_coordination.coordination.leases import LeaseChange
from airflow_provider_coordination.coordination.lockstep import Steps, run_alone, run_in_lockstep
from airflow_provider_coordination.coordination.partition import Partition
from tests.support.partitions import a_partition


class RecordingWriter:
    """Writes what processes want written; notes what went together."""

    def __init__(self, **refused: Exception) -> None:
        self.refused = refused
        self.together: list[list[str]] = []

    def __call__(self, changes: Sequence[LeaseChange]) -> list[Partition | Exception]:
        keys = [change.partition_key for change in changes]
        self.together.append(keys)
        return [self.refused.pop(key, None) or a_partition(key) for key in keys]


def writes(key: str, times: int) -> Steps[list[str]]:
    """Writes a partition several times and retries refused writes; returns the values that it was sent."""
    written: list[str] = []
    while len(written) < times:
        try:
            partition = yield LeaseChange(partition_key=key, change=lambda p: p)
            written.append(partition.partition_key)
        except PartitionUpdateError:
            continue
    return written


def test_writes_of_the_same_step_go_together() -> None:
    write = RecordingWriter()
    results = run_in_lockstep([writes("x", 2), writes("y", 1), writes("z", 0), writes("w", 2)], write)
    assert results == [["x", "x"], ["y"], [], ["w", "w"]]
    assert write.together == [["x", "y", "w"], ["x", "w"]]


def test_refusal_is_raised_in_its_own_process() -> None:
    write = RecordingWriter(y=PartitionUpdateError("changed"))
    assert run_in_lockstep([writes("x", 1), writes("y", 1)], write) == [["x"], ["y"]]
    assert write.together == [["x", "y"], ["y"]]


def test_error_of_one_process_stops_no_other() -> None:
    error = ValueError("x is bad")
    results = run_in_lockstep([writes("w", 2), writes("x", 2), writes("y", 2)], RecordingWriter(x=error))
    assert results == [["w", "w"], error, ["y", "y"]]


def test_unavailable_store_begins_no_further_process() -> None:
    begun: list[str] = []

    def asks(key: str) -> Steps[None]:
        begun.append(key)
        if key == "y":
            raise StoreUnavailableError("connection reset")
        yield LeaseChange(partition_key=key, change=lambda p: p)

    results = run_in_lockstep([asks("x"), asks("y"), asks("z")], RecordingWriter())
    assert begun == ["x", "y"]
    assert results[0] is None and results[1] is results[2]


def test_single_process_returns_or_raises() -> None:
    assert run_alone(writes("x", 1), RecordingWriter()) == ["x"]
    with pytest.raises(ValueError, match="x is bad"):
        run_alone(writes("x", 1), RecordingWriter(x=ValueError("x is bad")))
