"""The search for bad records finds exactly the rows that fail."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.spark.bad_records import (
    BadRecords,
    bad_records,
    dead_letters,
    fails_everywhere,
    find_failing,
    is_caused_by_record,
    samples,
)
from airflow_provider_coordination.spark.delivery import DeliveryError, Stage
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, RecordLayout
from airflow_provider_coordination.spark.spark_errors import error_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FailingRows:
    """Rows of which some fail, and how often they were tried."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.failed = self.passed = 0

    def __call__(self, low: int, high: int) -> str | None:
        found = [row for row in self.bad if low <= row < high]
        self.failed += bool(found)
        self.passed += not found
        return f"row {found[0]}" if found else None


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_search_finds_exactly_the_failing_rows(rows: tuple[int, set[int]]) -> None:
    size, bad = rows
    assert list(find_failing(size, FailingRows(*bad))) == [(row, f"row {row}") for row in sorted(bad)]


@pytest.mark.parametrize("row", [0, 1, 333_333, 700_001, 999_999])
def test_single_row_in_a_million_takes_few_probes(row: int) -> None:
    rows = FailingRows(row)
    assert list(find_failing(1_000_000, rows)) == [(row, f"row {row}")]
    assert rows.failed <= 8 and rows.passed <= 50


def test_unreproducible_failure_blames_no_row() -> None:
    assert list(find_failing(1000, lambda low, high: None)) == []
    assert list(find_failing(1000, lambda low, high: "together" if high - low > 1 else None)) == []


def test_always_failing_transform_is_recognized_by_few_rows() -> None:
    rows = FailingRows(*range(1000))
    assert fails_everywhere(1000, rows) and rows.failed == 5
    assert fails_everywhere(1000, FailingRows(*range(1, 1000))) is None
    assert fails_everywhere(1, FailingRows(0))


# What is a record's fault


class SparkLikeError(Exception):
    def __init__(self, state: str | None, text: str = "") -> None:
        super().__init__(text)
        self.state = state

    def getSqlState(self) -> str | None:  # noqa: N802 - as Spark names it
        return self.state


def raised(error: str) -> str:
    return (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        f'  File "udf.py", line 2, in parse\n    return int(data)\n           ^^^^^^^^^\n{error}\n'
    )


@pytest.mark.parametrize(
    ("error", "is_of_one"),
    [
        (SparkLikeError("38000", raised("ValueError: invalid literal")), True),
        (SparkLikeError("38000", raised("my_project.BadClick: no url\nat all")), True),
        (SparkLikeError("38000", raised("KeyError")), True),
        (SparkLikeError("22018", "[CAST_INVALID_INPUT] The value 'x'"), True),
        (SparkLikeError("39000", "[FAILED_EXECUTE_UDF]"), True),
        (SparkLikeError("P0001", "[USER_RAISED_EXCEPTION] no"), True),
        (SparkLikeError("38000", raised("ConnectionError: lookup is away")), False),
        (SparkLikeError("38000", raised("requests.exceptions.ConnectionError: lookup is away")), False),
        (SparkLikeError("38000", raised("TimeoutError")), False),
        (SparkLikeError("38000", raised("FileNotFoundError: [Errno 2] No such file: 'x'")), False),
        (SparkLikeError("38000", raised("ModuleNotFoundError: No module named 'clicks'")), False),
        (SparkLikeError("38000", raised("MemoryError")), False),
        (SparkLikeError("42703", "[UNRESOLVED_COLUMN]"), False),
        (SparkLikeError("KD001", "[FAILED_READ_FILE]"), False),
        (SparkLikeError(None, "Job aborted due to stage failure: ExecutorLostFailure"), False),
        (OSError("no space left on device"), False),
        (ValueError("of the driver"), False),
    ],
)
def test_only_data_and_user_function_errors_blame_records(error: Exception, is_of_one: bool) -> None:
    assert is_caused_by_record(error) is is_of_one


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SparkLikeError("38000", raised("ValueError: invalid literal")), "ValueError: invalid literal"),
        (SparkLikeError("22018", "[CAST] The value 'x'\n== SQL ==\n^^^"), "SparkLikeError: [CAST] The value 'x'"),
        (TypeError("the transform must return a DataFrame"), "TypeError: the transform must return a DataFrame"),
    ],
)
def test_error_is_one_line_without_tracebacks(error: Exception, text: str) -> None:
    assert error_text(error) == text


# What becomes of bad records


def landed(*payloads: bytes) -> pa.Table:
    rows = [
        {
            "stream": "clicks",
            "shard_id": "shard-1",
            "sequence_number": str(10**50 + n // 2),
            "sub_sequence_number": n % 2,
            "partition_key": "k",
            "approximate_arrival_timestamp": NOW,
            "data": payload,
            "_batch_id": "b",
        }
        for n, payload in enumerate(payloads)
    ]
    return pa.Table.from_pylist(rows, RECORD_SCHEMA)


def bad(of: pa.Table, *rows: int) -> pa.Table:
    layout = layout_of(of)
    errors = pa.array([f"error {row}" for row in rows], pa.string())
    return bad_records(of.take(list(rows)), layout.position, errors, Stage.SCHEMA)


def layout_of(records: pa.Table) -> RecordLayout:
    return ITEM_RECORDS if "_origin" in records.column_names else SHARD_RECORDS


def letters_of(bad: pa.Table, landed: pa.Table) -> pa.Table:
    layout = layout_of(landed)
    letters = dead_letters(layout, bad, landed, "source", "b", NOW)
    assert letters.schema == layout.dead_letter
    return letters


def test_dead_letters_hold_record_and_error_in_batch_order() -> None:
    table = landed(b"0", b"1", b"2", b"3")
    first, last = letters_of(bad(table, 3, 0), table).to_pylist()
    assert first == {
        "error": "error 0", "source": "source", "stream": "clicks", "shard_id": "shard-1",
        "sequence_number": str(10**50), "sub_sequence_number": 0, "partition_key": "k",
        "approximate_arrival_timestamp": NOW, "data": b"0", "stage": "schema", "_batch_id": "b", "failed_at": NOW,
        "sink": None, "row": None,
    }  # fmt: skip
    assert (last["error"], last["data"]) == ("error 3", b"3")


def test_unknown_row_still_becomes_a_dead_letter() -> None:
    table, other = landed(b"0"), landed(b"0", b"1", b"2")
    [letter] = letters_of(bad(other, 2), table).to_pylist()
    assert (letter["error"], letter["sequence_number"], letter["data"]) == ("error 2", str(10**50 + 1), None)


def test_samples_are_the_truncated_last_records() -> None:
    table = landed(b"0", b"1" * 1000, b"\xff")
    found = samples(SHARD_RECORDS, letters_of(bad(table, 0, 1, 2), table), 2)
    assert [(s["sub_sequence_number"], s["data"]) for s in found] == [(1, "1" * 200), (0, "\\xff")]
    assert {s["at"] for s in found} == {"2026-01-01T00:00:00.000000Z"}
    assert samples(SHARD_RECORDS, letters_of(bad(table, 0), table), 0) == []
    [hidden] = samples(SHARD_RECORDS, letters_of(bad(table, 0), table), 1, has_payloads=False)
    assert hidden["error"] == "error 0" and "data" not in hidden


def items(**columns: Any) -> pa.Table:
    rows = len(next(iter(columns.values())))
    origins = {"_origin": ["s3://b/k"] * rows, "_row": pa.array(range(rows), pa.int64()), "_batch_id": ["b"] * rows}
    return pa.table({**columns, **origins})


def test_item_dead_letters_hold_the_record_as_json() -> None:
    table = items(id=[1, 2], tags=[["a"], None], at=[NOW, None], raw=[b"\xff", b"r"], price=[Decimal("1.5"), None])
    [letter] = letters_of(bad(table, 0), table).to_pylist()
    assert letter == {
        "error": "error 0", "source": "source", "_origin": "s3://b/k", "_row": 0, "data": None,
        "record": '{"id": 1, "tags": ["a"], "at": "2026-01-01 00:00:00+00:00", "raw": "\\\\xff", "price": "1.5"}',
        "stage": "schema", "_batch_id": "b", "failed_at": NOW,
        "sink": None, "row": None,
    }  # fmt: skip
    assert ITEM_RECORDS.location_of(letter) == "s3://b/k, row 0"


@pytest.mark.parametrize("payload", [b"no JSON", "no JSON"])
def test_item_dead_letters_hold_payload_bytes(payload: bytes | str) -> None:
    table = items(data=[payload])
    [letter] = letters_of(bad(table, 0), table).to_pylist()
    assert (letter["data"], letter["record"]) == (b"no JSON", None)
    table = items(data=[payload], id=[7])
    [letter] = letters_of(bad(table, 0), table).to_pylist()
    assert (letter["data"], letter["record"]) == (b"no JSON", '{"id": 7}')


def test_data_column_of_another_type_is_no_payload() -> None:
    table = items(data=[7])
    [letter] = letters_of(bad(table, 0), table).to_pylist()
    assert (letter["data"], letter["record"]) == (None, '{"data": 7}')


def test_unknown_item_row_still_becomes_a_dead_letter() -> None:
    table, other = items(id=[1]), items(id=[1, 2])
    [letter] = letters_of(bad(other, 1), table).to_pylist()
    assert (letter["_row"], letter["data"], letter["error"]) == (1, None, "error 1")


def test_item_samples_have_origin_row_and_record() -> None:
    table = items(id=["x" * 1000])
    [sample] = samples(ITEM_RECORDS, letters_of(bad(table, 0), table), 5)
    assert (sample["origin"], sample["row"]) == ("s3://b/k", 0)
    assert sample["data"] == '{"id": "' + "x" * 192


def some(count: int, name: str = "") -> list[dict[str, Any]]:
    return [{"n": f"{name}{n}"} for n in range(count)]


def test_retried_batch_counts_once() -> None:
    found = BadRecords(limit=3, saved=9)
    for _ in range(5):
        found.note("a", 2, some(2))
    assert (found.total, found.samples) == (2, some(2))
    found.note("a", 0)
    assert (found.total, found.samples) == (0, [])


def test_batch_over_the_remaining_limit_is_refused_alone() -> None:
    found = BadRecords(limit=3)
    found.note("a", 2)
    assert found.left("b") == 1 and found.left("a") == 3
    with pytest.raises(DeliveryError, match="batch b: 2 bad records make 4 in this run, more than 'max_parse_exceptio"):
        found.note("b", 2)
    found.note("c", 0)
    assert found.total == 4


def test_unlimited_bad_records_are_accepted() -> None:
    found = BadRecords()
    found.note("a", 10**9)
    assert found.left("b") is None


def test_latest_samples_are_kept() -> None:
    found = BadRecords(saved=3)
    for name in "abc":
        found.note(name, 2, some(2, name))
    assert [s["n"] for s in found.samples] == ["b1", "c0", "c1"]
    found.note("b", 2, some(2, "b"))
    assert [s["n"] for s in found.samples] == ["c1", "b0", "b1"]


@pytest.mark.parametrize(("setting", "kept"), [(None, (5, False)), (0, (0, True)), (7, (7, True))])
def test_samples_have_payloads_only_on_request(setting: int | None, kept: tuple[int, bool]) -> None:
    found = BadRecords.of(BadRecordSettings(max_saved_parse_exceptions=setting))
    assert (found.saved, found.has_payloads) == kept


def test_bad_records_without_samples_keep_none() -> None:
    found = BadRecords()
    found.note("a", 1, some(0))
    assert found.samples == []
