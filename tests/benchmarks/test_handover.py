"""How long nobody read a shard is computed from the reads that the server notes."""

from __future__ import annotations

from benchmarks.handover import pauses


def test_pause_begins_with_the_last_read_before_the_change() -> None:
    reads = {"x": [0.0, 9.0, 10.0, 12.5, 13.0], "y": [0.0, 9.5, 10.5, 11.0], "z": [9.0, 99.0]}
    assert pauses(reads, 10.2, {"x", "y"}) == [2.5, 1.0]


def test_pause_before_the_change_counts_for_nothing() -> None:
    assert pauses({"x": [0.0, 9.0, 9.5, 10.0]}, 9.2, {"x"}) == [0.5]
