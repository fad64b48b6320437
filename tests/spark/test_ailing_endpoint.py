"""A slot with one malformed response: it lands the other shards, and reports the error in the row."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.kinesis import reader
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from tests.support.ailing_kinesis import (
    FIRST,
    AilingKinesis,
    ailing_kinesis,
    hangs,
    is_cut_off,
    is_no_json,
    is_refused_without_a_code,
    record,
    trickles,
)
from tests.support.depth import at_depth
from tests.support.endless_kinesis import EndlessKinesis
from tests.support.known_records import Run, runs_of, sequence_number
from tests.support.read_plans import read_plans

SHARDS = 4
REFUSED_SECONDS = at_depth(short=4.0, deep=60.0)
ROUND_SECONDS = at_depth(short=1.0, deep=5.0)
ILL = {
    "trickles": trickles,
    "hangs": hangs,
    "is cut off": is_cut_off,
    "is no JSON": is_no_json,
    "is 429 without a code": is_refused_without_a_code,
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AilingKinesis]:
    monkeypatch.setattr(reader, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(reader, "LATE_RESPONSE_SECONDS", 0.5)
    with ailing_kinesis() as server:
        yield server
    reader.shared_reading_client.cache_clear()


def land(server: AilingKinesis, root: Path, shards: int = SHARDS, **options: Any) -> list[LandedShardRow]:
    given = {"seconds": 2.0, "max_bytes": 2**30, "slot_memory_bytes": 2**29, **options}
    return landing._land_slot(ShardLandingOptions(kinesis=server.settings, root=str(root), **given), read_plans(shards))


@pytest.mark.parametrize("ill", ILL.values(), ids=ILL)
def test_shard_without_a_usable_response_blocks_no_other(server: AilingKinesis, tmp_path: Path, ill: Any) -> None:
    server.ill = ill

    failed, *others = land(server, tmp_path)

    assert [row.records for row in others] == [2] * (SHARDS - 1)
    assert failed.error is not None and failed.is_temporary and not failed.file
    assert "stream 's' shard 'shardId-000000000000'" in failed.error
    assert len(list(tmp_path.rglob("*.parquet"))) == SHARDS - 1


@pytest.mark.parametrize("ill", ILL.values(), ids=ILL)
def test_records_read_before_a_bad_response_are_landed(server: AilingKinesis, tmp_path: Path, ill: Any) -> None:
    server.ill, server.ill_after = ill, 1

    rows = land(server, tmp_path)

    assert [(row.records, row.end, row.error) for row in rows] == [(2, str(FIRST + 2), None)] * SHARDS


@pytest.mark.parametrize("page", [[record(2), record(1)], [record(1), record(1)]], ids=["back", "twice"])
def test_records_out_of_order_are_reported_and_not_written(
    server: AilingKinesis, tmp_path: Path, page: list[dict[str, object]]
) -> None:
    server.page = page

    (row,) = land(server, tmp_path, shards=1)

    assert row.error is not None and row.is_temporary
    assert "out of order" in row.error and str(FIRST + 1) in row.error
    assert not list(tmp_path.rglob("*.parquet"))


def test_repeated_records_are_not_landed_again(server: AilingKinesis, tmp_path: Path) -> None:
    def answers_again(handler: Any, body: bytes) -> None:
        handler.answer(body.replace(b'"Records": []', b'"Records": [' + json.dumps(record(1)).encode() + b"]"))

    server.ill, server.ill_after = answers_again, 1

    (row,) = land(server, tmp_path, shards=1)

    assert pq.read_table(row.file).num_rows == 2


def test_ten_mebibyte_record_is_landed_with_minimum_memory(server: AilingKinesis, tmp_path: Path) -> None:
    server.page = [record(1, bytes(10 * 2**20))]

    rows = land(server, tmp_path, slot_memory_bytes=2**25, seconds=30)

    assert [row.bytes for row in rows] == [10 * 2**20] * SHARDS
    assert {row.memory_bytes for row in rows} == {2**25}
    assert pq.read_table(rows[0].file).column("data")[0].as_py() == bytes(10 * 2**20)


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.parametrize("status", [400, 429], ids=["by Kinesis", "by what stands before it"])
def test_long_refused_shard_blocks_no_other_and_catches_up(tmp_path: Path, status: int) -> None:
    found: list[list[Run]] = [[] for _ in range(SHARDS)]
    with EndlessKinesis(SHARDS) as server:

        def land_round() -> list[LandedShardRow]:
            after = [sequence_number(runs[-1].last) if runs else "TRIM_HORIZON" for runs in found]
            plans = [
                replace(plan, start=BatchStart(position=start))
                for plan, start in zip(read_plans(SHARDS), after, strict=True)
            ]
            options = ShardLandingOptions(
                kinesis=server.settings,
                root=str(tmp_path),
                seconds=ROUND_SECONDS,
                max_bytes=2**30,
                slot_memory_bytes=2**29,
            )
            rows = landing._land_slot(options, plans)
            for runs, row in zip(found, rows, strict=True):
                if row.file:
                    runs += runs_of(pq.read_table(row.file), "s", server.began_at)
                    Path(row.file).unlink()
            return rows

        land_round()
        server.refuse(0, REFUSED_SECONDS, status)
        refused_until, rounds = time.monotonic() + REFUSED_SECONDS, 0
        before = found[0][-1].last
        while time.monotonic() < refused_until - ROUND_SECONDS:
            refused, *others = land_round()
            assert not refused.file and refused.is_temporary == (refused.error is not None)
            assert all(row.records and row.error is None for row in others)
            rounds += 1
        assert rounds > 1, "a round waits for the shard that is refused"
        assert found[0][-1].last == before
        time.sleep(max(0.0, refused_until - time.monotonic()))
        last = max(runs[-1].last for runs in found)
        heads = server.end(last)
        refusals = server.refusals()
        while any(row.end != sequence_number(last) or row.error for row in land_round()):
            pass
    assert refusals[0] > rounds and not any(refusals[1:])
    for shard, runs in enumerate(found):
        assert [run.first for run in runs] == [0, *(run.last + 1 for run in runs[:-1])]
        assert {run.shard for run in runs} == {shard} and runs[-1].last == heads[shard]
