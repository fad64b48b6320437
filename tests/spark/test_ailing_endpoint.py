"""A slot over several shards, one of whose answers is ill: the others are landed, and what is wrong is in its row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.kinesis import reader
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landing import Landed, LandingOptions
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
from tests.support.read_plans import read_plans

SHARDS = 4
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
    monkeypatch.setattr(reader, "LATE_ANSWER_SECONDS", 0.5)
    with ailing_kinesis() as server:
        yield server
    reader.shared_reading_client.cache_clear()


def land(server: AilingKinesis, root: Path, shards: int = SHARDS, **options: Any) -> list[Landed]:
    given = {"seconds": 2.0, "max_bytes": 2**30, "slot_memory_bytes": 2**29, **options}
    return landing._land_slot(LandingOptions(kinesis=server.settings, root=str(root), **given), read_plans(shards))


@pytest.mark.parametrize("ill", ILL.values(), ids=ILL)
def test_a_shard_without_a_usable_answer_holds_nobody_back(server: AilingKinesis, tmp_path: Path, ill: Any) -> None:
    server.ill = ill

    failed, *others = land(server, tmp_path)

    assert [row.records for row in others] == [2] * (SHARDS - 1)
    assert failed.error is not None and failed.passing and not failed.file
    assert "stream 's' shard 'shardId-000000000000'" in failed.error
    assert len(list(tmp_path.rglob("*.parquet"))) == SHARDS - 1


@pytest.mark.parametrize("ill", ILL.values(), ids=ILL)
def test_what_was_read_before_an_ill_answer_is_landed(server: AilingKinesis, tmp_path: Path, ill: Any) -> None:
    server.ill, server.ill_after = ill, 1

    rows = land(server, tmp_path)

    assert [(row.records, row.end, row.error) for row in rows] == [(2, str(FIRST + 2), None)] * SHARDS


@pytest.mark.parametrize("page", [[record(2), record(1)], [record(1), record(1)]], ids=["back", "twice"])
def test_records_out_of_order_are_reported_and_not_written(
    server: AilingKinesis, tmp_path: Path, page: list[dict[str, object]]
) -> None:
    server.page = page

    (row,) = land(server, tmp_path, shards=1)

    assert row.error is not None and row.passing
    assert "out of order" in row.error and str(FIRST + 1) in row.error
    assert not list(tmp_path.rglob("*.parquet"))


def test_what_was_read_before_is_not_taken_again(server: AilingKinesis, tmp_path: Path) -> None:
    def answers_again(handler: Any, body: bytes) -> None:
        handler.answer(body.replace(b'"Records": []', b'"Records": [' + json.dumps(record(1)).encode() + b"]"))

    server.ill, server.ill_after = answers_again, 1

    (row,) = land(server, tmp_path, shards=1)

    assert pq.read_table(row.file).num_rows == 2


def test_a_record_of_ten_mebibytes_is_landed_with_the_least_memory(server: AilingKinesis, tmp_path: Path) -> None:
    server.page = [record(1, bytes(10 * 2**20))]

    rows = land(server, tmp_path, slot_memory_bytes=2**25, seconds=30)

    assert [row.bytes for row in rows] == [10 * 2**20] * SHARDS
    assert {row.memory_bytes for row in rows} == {2**25}
    assert pq.read_table(rows[0].file).column("data")[0].as_py() == bytes(10 * 2**20)
