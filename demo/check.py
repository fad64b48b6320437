"""The check: what is in the dataset, against what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from demo.events import Event, event_id


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the dataset compares with what was sent.

    :param events: how many events the dataset holds.
    :param distinct: how many different ones of those that were sent.
    :param duplicates: how many are there once more than they were sent.
    :param lost: how many were sent and are not there.
    :param mismatched: how many differ from what was sent, in their data or in their partition key.
    :param unknown: how many were never sent.
    :param files: how many files the dataset has.
    :param batches: the batches whose events it holds.
    :param bytes: the payload of the events, in bytes.
    :param seconds: from the first file that was landed to the last.
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
    """Read a whole dataset and compare it, event by event.

    :param files: its data files.
    :param sent: every event that was sent; the id of each is its place.
    """
    seen: Counter[int] = Counter()
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
            seen[number] += 1
            mismatched += sent[number] != (key, data)
    times = [file.stat().st_mtime for file in files]
    return Comparison(
        events=seen.total() + unknown,
        distinct=len(seen),
        duplicates=seen.total() - len(seen),
        lost=len(sent) - len(seen),
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
