"""The servers that other tests rely on behave as those tests assume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from demo.local_kinesis import LocalKinesis, LocalKinesisError


def test_a_stream_is_active_with_its_shards_when_handed_out(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str]
) -> None:
    name = kinesis_stream(3)

    summary = kinesis.client().describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
    assert summary["StreamStatus"] == "ACTIVE"
    assert summary["OpenShardCount"] == 3


def test_a_postgres_database_is_empty_and_of_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        row = connection.execute(
            "select current_database(), (select count(*) from pg_tables where schemaname = 'public')"
        ).fetchone()

    assert row is not None
    assert row[0].startswith("test_")
    assert row[1] == 0


def test_a_missing_server_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(LocalKinesisError, match="make servers"):
        LocalKinesis(servers=tmp_path).start()
