"""The command `trace` on a dataset that jobs have written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.audit.test_dataset_audit import AuditedStream
from tests.cli.conftest import CommandResult, Shell

TASK = "host:ingest clicks:scheduled__2026-01-01T10:00:00+00:00:ingest:3:2:abcd"


@pytest.fixture
def stream(tmp_path_factory: pytest.TempPathFactory) -> AuditedStream:
    return AuditedStream(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def trace(shell: Shell, store_url: str, stream: AuditedStream) -> Callable[..., CommandResult]:
    def command(*arguments: str) -> CommandResult:
        opened: CoordinationStore = open_store(StoreSettings.from_url(store_url))
        opened.initialize()
        opened.create(list(all_partitions(stream.store, "clicks|PARTITION")))
        return shell("trace", "clicks", *arguments, "--sink", f"parquet: {{path: {stream.folder}}}")

    return command


def test_trace_of_a_delivered_batch_shows_its_origin(
    trace: Callable[..., CommandResult], stream: AuditedStream
) -> None:
    described = stream.ledger()[1]
    batch = described["batch"]
    shown = trace(batch["batch_id"])
    assert shown.exit_code == 0
    for text in (described["partition_key"], described["owner"], batch["start"], batch["end"], batch["last_arrival"]):
        assert text in shown.out
    assert f"delivered, 20 rows in {stream.folder}" in shown.out


def test_trace_links_the_log_of_the_task(
    trace: Callable[..., CommandResult], stream: AuditedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/")
    owner = stream.ledger()[0]["owner"]
    for file in (stream.folder / "_ledger").iterdir():
        file.write_text(file.read_text().replace(owner, TASK))
    batch_id = stream.ledger()[1]["batch"]["batch_id"]
    [record] = trace(batch_id, "--json").records
    assert record["task"]["map_index"] == 3 and record["sinks"][0]["state"] == "delivered"
    run = "scheduled__2026-01-01T10%3A00%3A00%2B00%3A00"
    assert record["log"] == (
        f"https://airflow.example.com/dags/ingest%20clicks/runs/{run}/tasks/ingest/mapped/3?try_number=2"
    )


def test_trace_names_the_sink_whose_file_is_gone(trace: Callable[..., CommandResult], stream: AuditedStream) -> None:
    stream.files()[1].unlink()
    shown = trace(stream.ledger()[1]["batch"]["batch_id"])
    assert shown.exit_code == 0 and "is gone" in shown.out


def test_trace_checks_that_the_position_is_in_the_batch(
    trace: Callable[..., CommandResult], stream: AuditedStream
) -> None:
    first, second = (each["batch"] for each in stream.ledger()[:2])
    assert trace(second["batch_id"], "--position", second["end"]).exit_code == 0
    for outside in (first["end"], first["start"]):
        refused = trace(second["batch_id"], "--position", outside)
        assert (
            refused.exit_code == 2
            and f"position {outside!r} is not in batch" in refused.err
            and second["end"] in refused.err
        )


def test_trace_of_a_landed_batch_waits_for_sinks(trace: Callable[..., CommandResult], stream: AuditedStream) -> None:
    delivered = stream.ledger()[2]
    stream.change_progress(
        landed=[{**delivered["batch"], "fencing_token": 1, "bytes": 1, "file": "x", "file_bytes": 1}],
        checkpoint=delivered["batch"]["start"],
    )
    shown = trace(delivered["batch"]["batch_id"])
    assert "not every sink has acknowledged it yet" in shown.out


def test_trace_of_an_unknown_batch_says_what_to_give(trace: Callable[..., CommandResult]) -> None:
    refused = trace("shardId-000000000000-0")
    assert refused.exit_code == 2 and "'_batch_id'" in refused.err
