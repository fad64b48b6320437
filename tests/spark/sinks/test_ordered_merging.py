"""Rows that keep an order in the table, and rows that delete, in every kind of sink that has both."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.spark.delivery import DeliveryError
from tests.support.landed_tables import TABLES, LandedTable
from tests.support.landed_tables import deliver as deliver_landed
from tests.support.merged_tables import BY_CHANGES, CHANGES, ORDERED, ORDERED_KINDS, Row, a_sink, deliver, kind_of
from tests.support.refusing_sinks import a_refusing_target
from tests.support.sinks import SINKS, OnServer, SinkTarget, an_attempt, under_next_lease

A, B, C = an_attempt("a-1"), an_attempt("b-1"), an_attempt("c-1")


@pytest.fixture(params=ORDERED_KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    return SinkTarget(kind_of(request), tmp_path / "sink")


def merge(target: SinkTarget, batch_id: str, *rows: Row, schema: pa.Schema = CHANGES, **more: Any) -> None:
    """Let a new job deliver one batch."""
    deliver(a_sink(target, **{**BY_CHANGES, **more}), {batch_id: rows}, an_attempt(batch_id), schema=schema)


def test_older_change_loses_against_the_row(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 5), ("y", 2, 5))
    merge(target, "b-1", ("x", 10, 4), ("y", 20, 6))
    assert target.visible == {"a-1": [1], "b-1": [20]}


def test_deliveries_are_ordered_without_operations(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 5, "REMOVE"), op=None)
    merge(target, "b-1", ("x", 2, 4), ("y", 3, 1), op=None)
    assert target.visible == {"a-1": [1], "b-1": [3]}


def test_delete_removes_its_row_and_later_ones_stay(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 5), ("y", 2, 5), ("z", 3, 5))
    merge(target, "b-1", ("x", None, 6, "REMOVE"), ("y", None, 4, "DELETE"))
    assert target.visible == {"a-1": [2, 3]}


def test_late_change_does_not_restore_a_deleted_key(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1))
    merge(target, "b-1", ("x", None, 6, "d"), ("absent", None, 6, "d"))
    merge(target, "c-1", ("x", 3, 5), ("absent", 4, 5), ("y", 5, 1))
    assert target.visible == {"c-1": [5]}
    merge(target, "d-1", ("x", 6, 7, "INSERT"))
    assert target.visible == {"c-1": [5], "d-1": [6]}


def test_later_delivery_wins_between_equal_orders(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 5), ("y", None, 5, "REMOVE"))
    merge(target, "b-1", ("x", 2, 5), ("y", 3, 5))
    assert target.visible == {"b-1": [2, 3]}
    merge(target, "c-1", ("x", None, 5, "REMOVE"))
    assert target.visible == {"b-1": [3]}


def test_null_order_is_the_smallest(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, None), ("y", 2, 0))
    merge(target, "b-1", ("x", 10, None), ("y", 20, None), ("z", None, None, "REMOVE"))
    assert target.visible == {"a-1": [2], "b-1": [10]}


def test_last_change_of_a_delivery_wins(target: SinkTarget) -> None:
    of = {"a-1": [("x", 1, 5), ("y", None, 9, "REMOVE")], "b-1": [("x", None, 5, "REMOVE"), ("y", 2, 8), ("z", 3, 1)]}
    deliver(a_sink(target, **BY_CHANGES), of, A, B, schema=CHANGES)
    assert target.visible == {"b-1": [3]}


def test_batch_of_late_changes_counts_as_delivered(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 5), ("y", None, 5, "REMOVE"))
    for batch_id, key in (("b-1", "x"), ("c-1", "y")):
        merge(target, batch_id, (key, 2, 4))
    assert target.visible == {"a-1": [1]}
    assert a_sink(target, **BY_CHANGES).committed([B, C]) == {"b-1", "c-1"}


def test_rejected_batch_is_replaced_whatever_its_order(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 9), ("y", 2, 9), ("z", None, 9, "REMOVE"))
    again = {"a-1": [("x", 10, 5), ("z", 3, 9)]}
    deliver(a_sink(target, **BY_CHANGES), again, under_next_lease(A, rejected=True), schema=CHANGES)
    assert target.visible == {"a-1": [3, 10]}


def test_delete_outlives_the_rejected_batch_after_it(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 9))
    merge(target, "b-1", ("x", None, 5, "REMOVE"))
    again = {"a-1": [("x", 10, 4), ("y", 2, 1)]}
    deliver(a_sink(target, **BY_CHANGES), again, under_next_lease(A, rejected=True), schema=CHANGES)
    assert target.visible == {"a-1": [2]}


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.string(), "Z", "a"),
        (pa.string(), "10", "9"),
        (pa.decimal128(38, 0), Decimal(9 * 10**36), Decimal(10**37)),
        (pa.float64(), -0.5, 1e-9),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ],
    ids=["text", "digits", "decimal", "double", "instant"],
)
def test_orders_of_each_type_hold_in_the_table(target: SinkTarget, kind: pa.DataType, low: Any, high: Any) -> None:
    schema = CHANGES.set(2, pa.field("version", kind))
    merge(target, "a-1", ("x", 1, high), ("y", 2, low), ("z", None, high, "REMOVE"), schema=schema)
    merge(target, "b-1", ("x", 3, low), ("y", 4, high), ("z", 5, low), schema=schema)
    assert target.visible == {"a-1": [1], "b-1": [4]}


def test_rows_without_the_new_order_column_are_replaced(target: SinkTarget) -> None:
    deliver(a_sink(target), {"a-1": [("x", 1), ("y", 2)]}, A, schema=CHANGES.remove(3).remove(2))
    merge(target, "b-1", ("x", 10, 0), ("y", None, 0, "REMOVE"))
    assert target.visible == {"b-1": [10]}


def test_deleting_row_needs_no_required_values(request: pytest.FixtureRequest, target: SinkTarget) -> None:
    kind = request.node.callspec.params["target"]
    found = SINKS[kind]
    url = request.getfixturevalue(found.fixture) if isinstance(found, OnServer) else ""
    required = a_refusing_target(kind, target.folder, url)
    merge(required, "a-1", ("x", 1, 1), ("y", 2, 1))
    merge(required, "b-1", ("x", None, 2, "REMOVE"))
    assert required.visible == {"a-1": [2]}
    with pytest.raises(DeliveryError, match=r"null|requires column .n."):
        merge(required, "c-1", ("x", None, 3, "MODIFY"))


def test_no_retention_keeps_no_deleted_keys(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", None, 5, "REMOVE"))
    merge(target, "b-1", ("y", None, 5, "REMOVE"), tombstone_retention="PT0S")
    merge(target, "c-1", ("x", 1, 4), ("y", 2, 4))
    assert target.visible == {"c-1": [1, 2]}


def test_landed_files_delete_and_keep_their_order(tmp_path: Path) -> None:
    for kind in sorted(set(ORDERED) & set(TABLES)):
        target = SinkTarget(TABLES[kind], tmp_path / kind)
        landing = LandedTable(target, tmp_path / f"{kind}_landing")
        batches = [
            landing.land({"a-1": [1, 2, 3]}, version=[5, 5, 5], op=["INSERT"] * 3),
            landing.land({"b-1": [1, 2, 4]}, version=[6, 4, 6], op=["REMOVE"] * 3),
            landing.land({"c-1": [1, 3, 4]}, version=[5, 6, 7], op=["MODIFY", None, None]),
        ]
        for attempts in batches:
            deliver_landed(landing.delivery(a_sink(target, merge_on=["n"], **BY_CHANGES)), attempts)
        assert target.visible == {"a-1": [2], "c-1": [3, 4]}


# Bad input


def test_unknown_operation_names_the_known_ones(target: SinkTarget) -> None:
    with pytest.raises(
        DeliveryError, match=r"^batch b-1: column 'op', the 'op' of .*, is 'PURGE', .* one of d, delete,"
    ):
        merge(target, "b-1", ("x", 1, 1, "PURGE"))
    assert target.visible == {}


def test_deleting_row_needs_a_key(target: SinkTarget) -> None:
    with pytest.raises(DeliveryError, match=r"^batch b-1: column 'Key', on which .* is merged, is null"):
        merge(target, "b-1", (None, None, 1, "REMOVE"))


@pytest.mark.parametrize("name", ["op", "version"])
def test_missing_column_of_an_order_or_operation_is_named(target: SinkTarget, name: str) -> None:
    rows = [row[:-1] for row in [("x", 1, 1, None)]]
    with pytest.raises(DeliveryError, match=rf"is merged on 'Key'.* do not have the column '{name}'"):
        merge(target, "b-1", *rows, schema=CHANGES.remove(CHANGES.get_field_index(name)))


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (pa.list_(pa.int64()), [1], r"^column 'version', the 'order_by' of .*, is list<.*>, which has no order"),
        (pa.float64(), float("nan"), r"^batch b-1: column 'version', the 'order_by' of .*, is NaN, which has no order"),
    ],
    ids=["list", "NaN"],
)
def test_value_without_an_order_is_named(target: SinkTarget, kind: pa.DataType, value: Any, error: str) -> None:
    with pytest.raises(DeliveryError, match=error):
        merge(target, "b-1", ("x", 1, value), schema=CHANGES.set(2, pa.field("version", kind)))
