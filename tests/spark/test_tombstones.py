"""Which deleted keys a table remembers, in which files, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.spark import tombstones as module
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.tombstones import FOLDER, MissingTombstonesError, Tombstones
from tests.support.clock import ManualClock
from tests.support.depth import examples

WEEK = timedelta(days=7)
HALF_A_WEEK_SECONDS = WEEK.total_seconds() / 2
MERGING = Merging(on=("k",), order_by="at", op="op")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tombstones(tmp_path: Path, clock: ManualClock) -> Tombstones:
    return Tombstones(str(tmp_path), MERGING, WEEK, clock=clock)


def changes(*rows: tuple[Any, ...], order: pa.DataType | None = None) -> pa.Table:
    """Return rows of key, order and operation; by default they delete."""
    full = [(*row, "REMOVE") if len(row) == 2 else row for row in rows]
    schema = pa.schema({"k": pa.string(), "at": order or pa.int64(), "op": pa.string()})
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in full], schema)


def added(tombstones: Tombstones, number: int, *rows: tuple[Any, ...], **more: Any) -> int:
    made = tombstones.add(number, changes(*rows, **more))
    assert made is not None
    return made.number


def left(tombstones: Tombstones, number: int, *rows: tuple[Any, ...], **more: Any) -> list[tuple[Any, ...]]:
    kept = tombstones.without_late(number, changes(*rows, **more))
    return [(row["k"], row["at"]) for row in kept.to_pylist()]


def files_in(folder: Path) -> set[int]:
    return {int(file.stem) for file in (folder / FOLDER).glob("*.parquet")}


def test_rows_before_a_delete_of_their_key_are_late(tombstones: Tombstones) -> None:
    number = added(tombstones, 0, ("x", 5), ("y", 3), ("z", 9, "MODIFY"))
    rows = [("x", 4), ("y", 3), ("z", 1), ("w", 0)]
    assert left(tombstones, number, *rows, ("v", None)) == [("y", 3), ("z", 1), ("w", 0), ("v", None)]
    assert left(tombstones, number, ("x", None)) == []


def test_greatest_order_of_a_key_is_remembered(tombstones: Tombstones) -> None:
    number = added(tombstones, 0, ("x", 2), ("x", 7), ("x", 5))
    number = added(tombstones, number, ("x", 3))
    assert left(tombstones, number, ("x", 6)) == []
    assert left(tombstones, number, ("x", 7)) == [("x", 7)]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.string(), "Z", "a"),
        (pa.decimal128(38, 0), Decimal(9 * 10**36), Decimal(10**37)),
        (pa.float64(), 0.5, 1.5),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_orders_of_each_type_are_compared(tombstones: Tombstones, kind: pa.DataType, low: Any, high: Any) -> None:
    number = added(tombstones, 0, ("x", high), ("y", low), order=kind)
    assert left(tombstones, number, ("x", low), ("y", high), order=kind) == [("y", high)]


def test_delete_without_an_order_needs_no_tombstone(tombstones: Tombstones, tmp_path: Path) -> None:
    assert tombstones.add(0, changes(("x", None), ("y", 1, None))) is None
    assert files_in(tmp_path) == set()


def test_tombstones_end_after_their_retention(tombstones: Tombstones, clock: ManualClock, tmp_path: Path) -> None:
    number = added(tombstones, 0, ("x", 5))
    clock.advance(HALF_A_WEEK_SECONDS)
    number = added(tombstones, number, ("y", 5))
    clock.advance(HALF_A_WEEK_SECONDS + 1)
    assert left(tombstones, number, ("x", 1), ("y", 1)) == [("x", 1)]
    clock.advance(2 * HALF_A_WEEK_SECONDS)
    made = tombstones.add(number, changes(("z", 1)))
    assert made is not None and number in made.superseded
    tombstones.remove_superseded(made)
    assert module.read_table(str(tmp_path / FOLDER / f"{made.number}.parquet")).num_rows == 1


def test_no_retention_gives_tombstones_up(tombstones: Tombstones, tmp_path: Path) -> None:
    number = added(tombstones, 0, ("x", 5))
    none = Tombstones(str(tmp_path), MERGING, timedelta(0))
    assert left(none, number, ("x", 1)) == [("x", 1)]
    assert (made := none.add(number, changes(("x", 6)))) is not None and made.number == 0
    assert none.add(0, changes(("x", 6))) is None


def test_missing_file_is_named_with_the_remedy(tombstones: Tombstones, tmp_path: Path) -> None:
    number = added(tombstones, 0, ("x", 5))
    (tmp_path / FOLDER / f"{number}.parquet").unlink()
    for use in (tombstones.without_late, tombstones.add):
        with pytest.raises(
            MissingTombstonesError, match=rf"^file .*/{number}.parquet is missing, .* set 'tombstone_re"
        ):
            use(number, changes(("x", 5)))


def test_tombstones_of_other_key_columns_are_left_alone(
    tombstones: Tombstones, tmp_path: Path, clock: ManualClock
) -> None:
    number = added(tombstones, 0, ("x", 5))
    other = Tombstones(str(tmp_path), Merging(on=("k", "op"), order_by="at", op="op"), WEEK, clock=clock)
    assert left(other, number, ("x", 1)) == [("x", 1)]
    number = added(other, number, ("x", 6))
    assert left(tombstones, number, ("x", 4)) == []
    assert left(tombstones, number, ("x", 5)) == [("x", 5)]


def test_unneeded_files_are_those_that_no_number_names(tombstones: Tombstones, tmp_path: Path) -> None:
    first = added(tombstones, 0, ("x", 5))
    lost, second = added(tombstones, first, ("y", 5)), added(tombstones, first, ("z", 5))
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert tombstones.unneeded([second], soon - WEEK) == []
    found = {int(Path(uri).stem) for uri in tombstones.unneeded([second], soon)}
    assert found == {first, lost} and len({first, lost, second}) == 3
    assert {int(Path(uri).stem) for uri in tombstones.unneeded([first, second], soon)} == {lost}


def test_commit_writes_its_own_deletes_beside_large_files(
    tombstones: Tombstones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    number, sizes = 0, []
    for first in range(0, 400, 2):
        made = tombstones.add(number, changes(*((f"k{n}", 5) for n in (first, first + 1))))
        assert made is not None
        tombstones.remove_superseded(made)
        number = made.number
        sizes.append(module.read_table(str(tmp_path / FOLDER / f"{number}.parquet")).num_rows)
        assert len(files_in(tmp_path)) <= 5
    assert sum(sizes) < 400 * 10
    assert left(tombstones, number, *((f"k{n}", 1) for n in range(400))) == []


@settings(max_examples=examples(20))
@given(
    deliveries=st.lists(
        st.lists(st.tuples(st.sampled_from("uvwxyz"), st.none() | st.integers(0, 9)), min_size=1), min_size=1
    ),
    asked=st.integers(0, 9),
)
def test_files_together_hold_the_greatest_order(
    tmp_path_factory: pytest.TempPathFactory, deliveries: Sequence[Sequence[tuple[str, int | None]]], asked: int
) -> None:
    tombstones = Tombstones(str(tmp_path_factory.mktemp("table")), MERGING, WEEK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 1)
        number, greatest = 0, {}
        for rows in deliveries:
            if (made := tombstones.add(number, changes(*rows))) is not None:
                tombstones.remove_superseded(made)
                number = made.number
            for key, order in rows:
                greatest[key] = max(order if order is not None else -1, greatest.get(key, -1))
    expected = [(key, asked) for key in "uvwxyz" if greatest.get(key, -1) <= asked]
    assert left(tombstones, number, *((key, asked) for key in "uvwxyz")) == expected
