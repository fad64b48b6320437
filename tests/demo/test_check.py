"""The demo's check finds each kind of damage to the dataset."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.check import compare
from demo.events import Event, flights

SENT = flights(10)


def write(dataset: Path, events: list[Event]) -> None:
    columns = {
        "partition_key": [event.key for event in events],
        "data": [event.data for event in events],
        "_batch_id": ["batch"] * len(events),
    }
    pq.write_table(pa.table(columns), dataset / "batch.parquet")


def test_complete_dataset_has_no_fault(tmp_path: Path) -> None:
    write(tmp_path, SENT)
    found = compare(list(tmp_path.glob("*.parquet")), SENT)
    assert (found.events, found.distinct, found.files) == (10, 10, 1)
    assert found.batches == ("batch",)
    assert found.bytes == sum(len(event.data) for event in SENT)
    assert found.duplicates == found.lost == found.mismatched == found.unknown == 0


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        (SENT[1:], "lost"),
        ([*SENT, SENT[0]], "duplicates"),
        ([*SENT[1:], Event("another key", SENT[0].data)], "mismatched"),
        ([*SENT[1:], Event(SENT[0].key, SENT[0].data.replace(b"}", b" }"))], "mismatched"),
        ([*SENT, Event("key", b'{"event_id":10}')], "unknown"),
        ([*SENT, Event("key", b"not JSON")], "unknown"),
    ],
)
def test_damage_is_counted_by_its_kind(tmp_path: Path, events: list[Event], fault: str) -> None:
    write(tmp_path, events)
    found = compare(list(tmp_path.glob("*.parquet")), SENT)
    faults = {name: getattr(found, name) for name in ("lost", "duplicates", "mismatched", "unknown")}
    assert faults == {"lost": 0, "duplicates": 0, "mismatched": 0, "unknown": 0} | {fault: 1}


def test_missing_dataset_has_lost_everything() -> None:
    assert compare([], SENT).lost == 10
