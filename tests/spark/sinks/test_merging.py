"""Rows that replace those with the same key, in Delta and Iceberg tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_coordination.spark.delivery import DeliveryError
from tests.support.landed_tables import TABLES, LandedTable
from tests.support.landed_tables import deliver as deliver_landed
from tests.support.merged_tables import MergedRows, a_sink, deliver
from tests.support.sinks import SinkTarget, an_attempt, under_next_lease

A, B = an_attempt("a-1"), an_attempt("b-1")


@pytest.fixture(params=sorted(TABLES))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    return SinkTarget(TABLES[request.param], tmp_path / "sink")


def test_row_replaces_its_key_and_others_are_added(target: SinkTarget) -> None:
    sink = a_sink(target)
    deliver(sink, {"a-1": [("x", 1), ("y", 2)]}, A)
    deliver(sink, {"b-1": [("y", 20), ("z", 30)]}, B)
    assert target.visible == {"a-1": [1], "b-1": [20, 30]}


def test_delivery_is_one_commit_naming_its_batches(target: SinkTarget) -> None:
    sink = a_sink(target)
    deliver(sink, {"a-1": [("x", 1)], "b-1": [("y", 2)]}, A, B)
    next_job = a_sink(target)
    assert next_job.committed([A, B]) == {"a-1", "b-1"}
    deliver(next_job, {"a-1": [("x", -1)], "b-1": [("y", -2)]}, under_next_lease(A), under_next_lease(B))
    assert target.visible == {"a-1": [1], "b-1": [2]}
    assert target.leftovers == []


def test_fully_replaced_batch_is_not_redelivered(target: SinkTarget) -> None:
    sink = a_sink(target)
    deliver(sink, {"a-1": [("x", 1)]}, A)
    deliver(sink, {"b-1": [("x", 2)]}, B)
    deliver(a_sink(target), {"a-1": [("x", 1)]}, under_next_lease(A))
    assert target.visible == {"b-1": [2]}


def expire_all_but_the_last(folder: Path) -> None:
    table = DeltaTable(folder)
    table.create_checkpoint()
    for version in range(table.version()):
        (folder / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.parametrize("landed", [None, "before", "after"])
def test_batch_older_than_the_commits_is_not_merged_again(tmp_path: Path, landed: str | None) -> None:
    target = SinkTarget(TABLES["delta"], tmp_path / "sink")
    now = datetime.now(UTC)
    times = {"before": now - timedelta(days=40), "after": now + timedelta(days=40)}
    of = an_attempt("a-1", landed_at=None if landed is None else times[landed])
    deliver(a_sink(target), {"a-1": [("x", 1)]}, of)
    deliver(a_sink(target), {"b-1": [("x", 2)]}, B)
    expire_all_but_the_last(Path(target.folder))
    again = under_next_lease(of)
    if landed == "after":
        assert a_sink(target).committed([again]) == set()
        return
    with pytest.raises(DeliveryError, match=r"^batch a-1: table .* has commits since .* and may have got the batch be"):
        deliver(a_sink(target), {"a-1": [("x", 1)]}, again)
    assert target.visible == {"b-1": [2]}


def test_later_batch_of_a_delivery_wins_a_key(target: SinkTarget) -> None:
    deliver(a_sink(target), {"a-1": [("x", 1), ("y", 2)], "b-1": [("x", 10)]}, A, B)
    assert target.visible == {"a-1": [2], "b-1": [10]}


def test_order_column_decides_within_a_delivery(target: SinkTarget) -> None:
    of = {"a-1": [("x", 1, 9), ("x", 2, 8), ("y", 3, None), ("y", 4, 1)], "b-1": [("x", 10, 7)]}
    deliver(a_sink(target, order_by="version"), of, A, B)
    assert target.visible == {"a-1": [1, 4]}


def test_duplicate_key_in_a_batch_is_named(target: SinkTarget) -> None:
    sink = a_sink(target)
    with pytest.raises(DeliveryError, match=r"^batch b-1: 2 rows have 'Key' = 'x', .* set 'order_by' to the column"):
        deliver(sink, {"a-1": [("x", 1)], "b-1": [("x", 2), ("y", 1), ("x", 3)]}, A, B)
    assert target.visible == {}
    deliver(sink, {"a-1": [("x", 1)]}, A)
    assert target.visible == {"a-1": [1]}


def test_null_key_names_its_column_and_batch(target: SinkTarget) -> None:
    with pytest.raises(DeliveryError, match=r"^batch b-1: column 'Key', on which .* is merged, is null"):
        deliver(a_sink(target), {"a-1": [("x", 1)], "b-1": [(None, 2)]}, A, B)


@pytest.mark.parametrize("more", [{"merge_on": ["Key", "id"]}, {"order_by": "id"}])
def test_missing_column_is_named(target: SinkTarget, more: dict[str, Any]) -> None:
    with pytest.raises(DeliveryError, match=r"is merged on 'Key'.* do not have the column 'id'"):
        deliver(a_sink(target, **more), {"a-1": [("x", 1)]}, A)


def test_rejected_batch_is_replaced_row_by_row(target: SinkTarget) -> None:
    sink = a_sink(target)
    deliver(sink, {"a-1": [("x", 1), ("y", 2)], "b-1": [("z", 3)]}, A, B)
    deliver(a_sink(target), {"a-1": [("y", 20), ("z", 30)]}, under_next_lease(A, rejected=True))
    assert target.visible == {"a-1": [20, 30]}


def test_rejected_batch_without_rows_removes_its_rows(target: SinkTarget) -> None:
    deliver(a_sink(target), {"a-1": [("x", 1)], "b-1": [("z", 3)]}, A, B)
    deliver(a_sink(target), {"a-1": []}, under_next_lease(A, rejected=True))
    assert target.visible == {"b-1": [3]}
    assert a_sink(target).committed([A]) == {"a-1"}


def test_keys_may_span_columns_and_match_foreign_rows(target: SinkTarget) -> None:
    sink = a_sink(target, merge_on=["Key", "version"])
    deliver(sink, {"a-1": [("x", 1, 1), ("x", 2, 2), ("y", 3, 1)]}, A)
    deliver(sink, {"b-1": [("x", 20, 2), ("y", 30, 2)]}, B)
    assert target.visible == {"a-1": [1, 3], "b-1": [20, 30]}


def test_key_moving_between_partitions_stays_unique(target: SinkTarget) -> None:
    sink = a_sink(target, partition_by=["version"])
    deliver(sink, {"a-1": [("x", 1, 1), ("y", 2, 1)]}, A)
    deliver(sink, {"b-1": [("x", 10, 2)]}, B)
    assert target.visible == {"a-1": [2], "b-1": [10]}


def test_delivery_merges_without_its_refused_batch(target: SinkTarget) -> None:
    sink = a_sink(target)
    sink.prepare([A, B], MergedRows({"a-1": [("x", 1)], "b-1": [("x", 2)]}))
    target.sink().sweep({B.folder: 2})
    with pytest.raises(DeliveryError):
        sink.commit([A, B])
    sink.commit([A])
    assert target.visible == {"a-1": [1]}


def test_landed_files_are_merged(target: SinkTarget, tmp_path: Path) -> None:
    landing = LandedTable(target, tmp_path / "landing")
    [first, second] = landing.land({"a-1": [1, 2], "b-1": [2, 3]})
    delivery = landing.delivery(a_sink(target, merge_on=["n"]))
    deliver_landed(delivery, [first])
    deliver_landed(delivery, [second])
    assert target.visible == {"a-1": [1], "b-1": [2, 3]}
