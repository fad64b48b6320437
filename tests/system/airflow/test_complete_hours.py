"""Hours of a stream become events under a whole Airflow, each once and in order, and start a run for each hour."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.airflow_names import AIRFLOW
from tests.support.kinesis_server.http import KinesisServer
from tests.support.standalone import Standalone
from tests.system.airflow.test_backfills import ArrivalClock

HOUR = timedelta(hours=1)
HAS_PARTITIONS = AIRFLOW >= (3, 2)
REPORT = "ingestion.interval_complete"


@pytest.mark.timeout(900)  # a Spark job beside others
def test_hours_are_events_once_in_order_and_start_runs(
    airflow: Standalone, other_aws: Callable[..., None], kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    last = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    clock = ArrivalClock()
    account = kinesis_server.account(clock)
    stream, client = f"stream-{uuid.uuid4().hex[:8]}", account.client()
    other_aws(kinesis=account.settings())
    sent = {last - 3 * HOUR: 20, last - 2 * HOUR: 0, last - HOUR: 30, last: 10}
    clock.set_to = min(sent)
    client.create_stream(StreamName=stream, ShardCount=2)
    for hour, count in sent.items():
        clock.set_to = hour
        for number in range(count):
            client.put_record(
                StreamName=stream, PartitionKey=uuid.uuid4().hex, Data=json.dumps({"id": number}).encode()
            )
    clock.set_to = None
    if HAS_PARTITIONS:
        airflow.unpause("hour_report")

    run = airflow.trigger("complete_hours", {"stream": stream, "output_path": str(tmp_path / "out")})
    assert airflow.wait_for_run("complete_hours", run, 800) == "success"
    airflow.clear("complete_hours", run, REPORT)
    assert airflow.wait_for_run("complete_hours", run) == "success"
    reports = [task for task in airflow.task_instances("complete_hours", run) if task["task_id"] == REPORT]
    assert len(reports) >= 3 and {task["try_number"] for task in reports} == {2}

    events = airflow.asset_events("complete_hours")
    reported = [(each["extra"]["interval_start"][:13], each["extra"]["records"]) for each in events]
    complete = [(f"{hour:%Y-%m-%dT%H}", count) for hour, count in sent.items() if hour < last]
    assert reported[: len(complete)] == complete
    assert len(set(reported)) == len(reported), "another hour may have ended since, but none is there twice"
    if HAS_PARTITIONS:
        keys = {f"{hour}:00:00" for hour, _ in reported}
        airflow.until(
            "each hour has a run",
            lambda: {run["partition_key"] for run in airflow.runs("hour_report") if run["state"] == "success"} == keys,
        )
        assert len(airflow.runs("hour_report")) == len(keys)
