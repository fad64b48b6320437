"""Shard sync is measured on a small scale; results that do not depend on time are asserted."""

from __future__ import annotations

import json

import pytest

from airflow_provider_coordination.sources.kinesis.shards import hash_range_fault
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from benchmarks import shard_sync
from benchmarks.shard_sync import GENERATIONS, Size, history, sync_all

TINY = Size(shards=(50, 100), repetitions=1, synced=20)


def test_each_generation_covers_every_hash_key() -> None:
    shards = history(500)
    born = {shard.starting_sequence_number for shard in shards}

    assert len(born) == GENERATIONS
    for start in born:
        assert not hash_range_fault([shard for shard in shards if shard.starting_sequence_number == start])
    assert 450 <= len(shards) <= 550


def test_sync_makes_one_listing_and_one_bulk_write() -> None:
    figures = sync_all(InMemoryStore(), TINY)

    assert [(each.created, each.listings, each.bulk_writes) for each in figures.values()] == [
        (20, 1, 1),
        (0, 1, 0),
        (20, 1, 1),
    ]


def test_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shard_sync, "QUICK", TINY)

    shard_sync.main(["--quick", "--stores", "in_memory,sqlite"])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(figures["decide_seconds"]) == {"50", "100"}
    assert {store: syncs["first"]["bulk_writes"] for store, syncs in figures["sync"].items()} == {
        "in_memory": 1,
        "sqlite": 1,
    }
