"""The check: a comparison of the dataset with the sent events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from demo.events import Event, event_id


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of the dataset with the sent events.

    :param events: the number of events in the dataset.
    :param distinct: the number of distinct sent events in the dataset.
    :param duplicates: the number of additional copies of events.
    :param lost: the number of sent events that are missing.
    :param mismatched: the number of events whose data or partition key differs from the sent one.
    :param unknown: the number of events that were never sent.
    :param files: the number of files in the dataset.
    :param batches: the batches whose events the dataset holds.
    :param bytes: the payload of the events, in bytes.
    :param seconds: the time from the first file to the last.
    """

    events: int
    distinct: int
    duplicates: int
    lost: int
    mismatched: int
    unknown: int
    files: int
    batches: tuple[str, ...]
    bytes: int
    seconds: float


def compare(files: Sequence[Path], sent: Sequence[Event]) -> Comparison:
    """Read a whole dataset, and compare it event by event.

    :param files: the data files of the dataset.
    :param sent: all sent events; the id of an event is its index.
    """
    counts: Counter[int] = Counter()
    batches: set[str] = set()
    mismatched = unknown = size = 0
    for file in files:
        table = pq.read_table(file, columns=["partition_key", "data", "_batch_id"], partitioning=None)
        batches.update(table["_batch_id"].unique().to_pylist())
        for key, data in zip(table["partition_key"].to_pylist(), table["data"].to_pylist(), strict=True):
            size += len(data)
            number = _number(data, len(sent))
            if number is None:
                unknown += 1
                continue
            counts[number] += 1
            mismatched += sent[number] != (key, data)
    times = [file.stat().st_mtime for file in files]
    return Comparison(
        events=counts.total() + unknown,
        distinct=len(counts),
        duplicates=counts.total() - len(counts),
        lost=len(sent) - len(counts),
        mismatched=mismatched,
        unknown=unknown,
        files=len(files),
        batches=tuple(sorted(batches)),
        bytes=size,
        seconds=max(times) - min(times) if times else 0.0,
    )


def _number(data: bytes, sent: int) -> int | None:
    try:
        number = event_id(data)
    except ValueError:
        return None
    return number if 0 <= number < sent else None
