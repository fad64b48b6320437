"""Which files of a Delta table a merge reads and writes again, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_coordination.spark.sinks.delta import log, merges
from tests.support.merged_tables import BY_CHANGES, CHANGES, Row, a_sink, deliver
from tests.support.sinks import DeltaUnderTest, SinkTarget, an_attempt, under_next_lease

DELETED_ROWS = (3, 4, 7, 11, 18, 29)
DELETION_VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 6,
}
"""The example of the Delta protocol: it deletes `DELETED_ROWS`."""


@pytest.fixture
def target(tmp_path: Path) -> SinkTarget:
    return SinkTarget(DeltaUnderTest(), tmp_path / "lake")


def merge(target: SinkTarget, batch_id: str, *rows: Row, schema: pa.Schema = CHANGES, **more: Any) -> None:
    deliver(a_sink(target, **{**BY_CHANGES, **more}), {batch_id: rows}, an_attempt(batch_id), schema=schema)


def changes_with(name: str, kind: pa.DataType) -> pa.Schema:
    return CHANGES.insert(len(CHANGES) - 1, pa.field(name, kind))


def rows_by_others(keys: Sequence[str], **more: Any) -> pa.Table:
    rows = [{"Key": key, "n": n, "version": 1, "op": None, "_batch_id": "z-1", **more} for n, key in enumerate(keys)]
    columns = pa.schema([*CHANGES, *(pa.field(name, pa.scalar(value).type) for name, value in more.items())])
    return pa.Table.from_pylist(rows, columns)


def files_in(target: SinkTarget) -> set[str]:
    return set(DeltaTable(target.folder).file_uris())


def read(target: SinkTarget) -> dict[str, int]:
    """Return the values of `n` by key, as the library reads tables of every kind."""
    query = QueryBuilder().register("t", DeltaTable(target.folder)).execute('SELECT "Key", n FROM t')
    rows = pa.table(query.read_all()).to_pylist()
    assert len({row["Key"] for row in rows}) == len(rows), rows
    return {row["Key"]: row["n"] for row in rows}


def write_apart(target: SinkTarget, *keys: Sequence[str], **more: Any) -> None:
    """Let another writer make the table, with one file for each group of keys."""
    for group in keys:
        write_deltalake(target.folder, rows_by_others(group, **more), mode="append")


def test_files_without_the_keys_stay_as_they_are(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    write_apart(target, ["a", "c"], ["f", "h"], ["p", "r"])
    [last] = files_in(target) - set(DeltaTable(target.folder, version=1).file_uris())
    before, read_files = files_in(target), []
    pieces = merges.pieces_of
    monkeypatch.setattr(merges, "pieces_of", lambda uri, *more: (read_files.append(uri), pieces(uri, *more))[1])
    merge(target, "a-1", ("a", 10, 2), ("b", 11, 2), ("g", 12, 2))
    assert read(target) == {"a": 10, "b": 11, "c": 1, "f": 0, "g": 12, "h": 1, "p": 0, "r": 1}
    assert len(before & files_in(target)) == 2, "that with 'f' and 'h' is read, and has none of the keys"
    assert last not in read_files, "its statistics exclude the keys"


def test_deliveries_without_deletes_are_not_copied(target: SinkTarget) -> None:
    merge(target, "a-1", ("x", 1, 1), ("y", 2, 1))
    [prepared] = files_in(target)
    merge(target, "b-1", ("z", 3, 1))
    assert prepared in files_in(target)
    merge(target, "c-1", ("y", None, 2, "REMOVE"), ("w", 4, 1))
    assert prepared not in files_in(target)
    assert target.visible == {"a-1": [1], "b-1": [3], "c-1": [4]}


def test_small_files_are_combined_and_large_ones_rewritten_alone(
    target: SinkTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for large_bytes, expected in ((merges.LARGE_BYTES, 1), (1, 4)):
        monkeypatch.setattr(merges, "LARGE_BYTES", large_bytes)
        made = SinkTarget(DeltaUnderTest(), target.folder / str(large_bytes))
        write_apart(made, ["a", "b"], ["f", "g"], ["p", "q"])
        merge(made, "a-1", ("a", 10, 2), ("f", 11, 2), ("p", None, 2, "REMOVE"))
        assert read(made) == {"a": 10, "b": 1, "f": 11, "g": 1, "q": 1}
        assert len(files_in(made)) == expected


def test_removed_files_without_rows_are_not_replaced(target: SinkTarget) -> None:
    write_apart(target, ["a"], ["b"])
    merge(target, "a-1", ("a", None, 2, "REMOVE"))
    assert (read(target), len(files_in(target))) == ({"b": 0}, 1)


@pytest.mark.parametrize("day", [date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "a b/ü%&=", 7, None], ids=str)
def test_partitions_of_other_writers_are_merged(target: SinkTarget, day: Any) -> None:
    kind = pa.string() if day is None else pa.scalar(day).type
    rows = rows_by_others(["x", "y", "z"]).append_column("day", pa.array([day] * 3, kind))
    write_deltalake(target.folder, rows, partition_by=["day"])
    schema = changes_with("day", rows.schema.field("day").type)
    merge(target, "a-1", ("x", 10, 2, None, day), ("w", 11, 2, None, day), ("y", None, 2, "REMOVE", day), schema=schema)
    assert read(target) == {"x": 10, "w": 11, "z": 2}
    assert {row["day"] for row in DeltaTable(target.folder).to_pyarrow_table().to_pylist()} == {day}


def test_partition_columns_can_be_keys(target: SinkTarget) -> None:
    for day in (date(2026, 1, 1), date(2026, 1, 2)):
        rows = rows_by_others(["x", "y"], day=day)
        write_deltalake(target.folder, rows, partition_by=["day"], mode="append")
    before = files_in(target)
    schema = changes_with("day", pa.date32())
    merge(target, "a-1", ("x", 10, 2, None, day), schema=schema, merge_on=["day", "Key"])
    assert sorted(row["n"] for row in DeltaTable(target.folder).to_pyarrow_table().to_pylist()) == [0, 1, 1, 10]
    assert len(before & files_in(target)) == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_changes_reach_the_change_feed_of_a_table(target: SinkTarget, is_late: bool) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(target.folder, rows_by_others(["x", "y", "z"]), configuration=feed)
    merge(target, "a-1", ("x", 10, 0 if is_late else 2), ("y", None, 2, "REMOVE"), ("w", 11, 2))
    assert read(target) == {"x": 0 if is_late else 10, "z": 2, "w": 11}
    since = DeltaTable(target.folder).load_cdf(starting_version=1).read_all()
    changes = {(row["Key"], row["_change_type"], row["n"]) for row in pa.table(since).to_pylist()}
    replaced = {("x", "update_preimage", 0), ("x", "update_postimage", 10)}
    assert changes == {("y", "delete", 1), ("w", "insert", 11)} | (set() if is_late else replaced)


def delete_rows_by_vector(target: SinkTarget) -> None:
    """Give the only file of a table a deletion vector, by the table's log."""
    [commit] = (target.folder / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            named = ["deletionVectors"]
            action["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": named, "writerFeatures": named,
            }  # fmt: skip
        if "add" in action:
            action["add"]["deletionVector"] = DELETION_VECTOR
    commit.write_text("\n".join(map(json.dumps, actions)))


def test_rows_deleted_by_a_vector_stay_deleted(target: SinkTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    write_apart(target, [f"{n:02}" for n in range(30)])
    delete_rows_by_vector(target)
    merge(target, "a-1", ("00", 100, 2), ("03", 103, 0), ("05", None, 2, "REMOVE"))
    expected = {f"{n:02}": n for n in range(30) if n not in DELETED_ROWS} | {"00": 100, "03": 103}
    del expected["05"]
    assert read(target) == expected
    monkeypatch.setattr(log, "merge", None)  # no file has a vector any more: the library's MERGE is not needed
    merge(target, "b-1", ("01", 101, 2))
    assert read(target) == {**expected, "01": 101}


def test_rejected_batch_is_removed_from_files_without_its_keys(target: SinkTarget) -> None:
    first = an_attempt("a-1")
    deliver(a_sink(target, **BY_CHANGES), {"a-1": [("x", 1, 9), ("y", 2, 9)]}, first, schema=CHANGES)
    again = under_next_lease(first, rejected=True)
    deliver(a_sink(target, **BY_CHANGES), {"a-1": [("z", 3, 1)]}, again, schema=CHANGES)
    assert target.visible == {"a-1": [3]}


def test_instants_of_the_old_type_are_kept(target: SinkTarget) -> None:
    at = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    write_apart(target, ["x", "y"], at=at)
    [file] = DeltaTable(target.folder).file_uris()
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)  # as Spark does
    merge(target, "a-1", ("x", 10, 2, None, at), schema=changes_with("at", pa.timestamp("us", "UTC")))
    assert {row["at"] for row in DeltaTable(target.folder).to_pyarrow_table().to_pylist()} == {at}
