"""What a preview gathers is limited in records, bytes and time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_coordination.sources.kinesis.service import RECORD_TYPES
from airflow_provider_coordination.sources.peek import Peek, PeekLimits, add_rows
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA
from tests.support.clock import ManualClock

ROWS = pa.table({"id": ["a", "b", "c"], "size": [1, 2, 3]})


def test_records_end_at_their_number() -> None:
    peek = Peek(PeekLimits(records=2))
    add_rows(peek, ROWS, origin="o")
    assert peek.records == [{"origin": "o", "id": "a", "size": 1}, {"origin": "o", "id": "b", "size": 2}]
    assert peek.columns == {"origin": "string", "id": "string", "size": "int64"}
    assert (peek.is_full, peek.wanted) == (True, 0)


@pytest.mark.parametrize(("max_bytes", "count"), [(1, 1), (9, 1), (10, 2), (100, 3)])
def test_records_end_at_their_bytes(max_bytes: int, count: int) -> None:
    peek = Peek(PeekLimits(max_bytes=max_bytes))
    add_rows(peek, ROWS)
    assert len(peek.records) == count


def test_nested_values_count_with_what_they_hold() -> None:
    peek = Peek(PeekLimits(max_bytes=10))
    peek.add({"x": [{"a": "12345"}, "67890"]}, {"x": "list"})
    assert peek.is_full


def test_records_end_with_the_time() -> None:
    clock = ManualClock()
    peek = Peek(PeekLimits(seconds=5), clock.monotonic)
    assert not peek.is_full
    clock.advance(5)
    assert peek.is_full and peek.is_late


def test_previewed_stream_has_the_landed_columns() -> None:
    landed = {field.name: str(field.type) for field in RECORD_SCHEMA}
    assert landed == {**RECORD_TYPES, "_batch_id": "string"}
