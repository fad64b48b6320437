"""Asset events report on a job, and users see its checkpoints in Airflow."""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias

from airflow_provider_coordination.operators.job_results import (
    RANGES_LISTED,
    delivered_range,
    no_stream,
    report_to_outlets,
)
from airflow_provider_coordination.sources.kinesis.kind import KIND

STREAM_OF = KIND.stream_of
CLICKS = Asset("s3://lake/clicks")
SHARD = "clicks:1767268800:shardId-000000000000"


class ByAsset(UserDict[Any, Any]):
    """What a task has for each asset, by its name: an asset of Airflow 3.1 cannot be hashed.

    :param make: makes what is missing.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self._make = make

    def __getitem__(self, asset: Asset | AssetAlias) -> Any:
        return self.data.setdefault(asset.name, self._make())


def outlet_events() -> ByAsset:
    """The outlet events of a task, as Airflow hands them out."""
    return ByAsset(lambda: SimpleNamespace(extra={"mine": 1}))


def asset_states() -> ByAsset:
    """The state stores of a task's assets."""

    def state() -> SimpleNamespace:
        values: dict[str, Any] = {}
        return SimpleNamespace(values=values, set=values.__setitem__)

    return ByAsset(state)


def no_state() -> Any:
    raise KeyError("no state")


def result(partitions: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "owner": "host:dag:run:task",
        "partitions_delivered": partitions,
        "batches_delivered": partitions,
        "records_delivered": 10 * partitions,
        "bytes_delivered": 100,
        "ranges": {
            f"clicks:1767268800:shardId-{n:012}": {
                "from": "49" * 28,
                "to": "50" * 28,
                "records": 10,
                "last_arrival": f"2026-01-01T00:00:{n:02}.000000Z",
            }
            for n in range(partitions)
        },
        **changes,
    }  # fmt: skip


def test_event_reports_the_delivery_and_keeps_other_fields() -> None:
    context: Any = {"outlet_events": outlet_events(), "asset_state_store": asset_states()}
    report_to_outlets(context, [CLICKS, AssetAlias("alias")], "clicks", result(2), STREAM_OF)
    assert list(context["outlet_events"]) == [CLICKS.name]
    extra = context["outlet_events"][CLICKS].extra
    assert extra.pop("ranges")[SHARD] == {
        "from": "49" * 28, "to": "50" * 28, "records": 10, "last_arrival": "2026-01-01T00:00:00.000000Z",
    }  # fmt: skip
    assert extra == {
        "mine": 1,
        "source": "clicks",
        "owner": "host:dag:run:task",
        "partitions": 2,
        "batches": 2,
        "records": 20,
        "bytes": 100,
        "last_arrival": "2026-01-01T00:00:01.000000Z",
        "streams": {"clicks": "2026-01-01T00:00:01.000000Z"},
    }


def test_event_stays_small_after_a_large_delivery() -> None:
    report = delivered_range("clicks", result(50), STREAM_OF)
    assert (report["partitions"], report["records"], len(report["ranges"])) == (50, 500, RANGES_LISTED)
    assert len(json.dumps(report)) < 8_000


def test_source_without_a_stream_reports_only_positions() -> None:
    ranges = {"part-1": {"from": "", "to": "3", "records": 7, "last_arrival": None}}
    report = delivered_range("files", result(ranges=ranges), no_stream)
    assert (report["streams"], report["last_arrival"], report["ranges"]) == ({}, None, ranges)


def test_job_without_a_result_delivered_nothing() -> None:
    report = delivered_range("clicks", {"owner": "me"}, STREAM_OF)
    assert (report["partitions"], report["records"], report["ranges"], report["last_arrival"]) == (0, 0, {}, None)


def test_checkpoints_of_shards_are_mirrored_to_asset_state() -> None:
    context: Any = {"outlet_events": outlet_events(), "asset_state_store": asset_states()}
    ranges = {**result()["ranges"], "part-1": {"from": "", "to": "3", "records": 7, "last_arrival": None}}
    report_to_outlets(context, [CLICKS], "clicks", result(ranges=ranges), STREAM_OF)
    assert context["asset_state_store"][CLICKS].values == {
        SHARD: {
            "source": "clicks",
            "checkpoint": "50" * 28,
            "last_arrival": "2026-01-01T00:00:00.000000Z",
            "owner": "host:dag:run:task",
        }
    }


def test_failing_state_store_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    context: Any = {"outlet_events": outlet_events(), "asset_state_store": ByAsset(no_state)}
    report_to_outlets(context, [CLICKS], "clicks", result(), STREAM_OF)
    assert "checkpoints are not mirrored to Airflow: source=clicks: KeyError" in caplog.text


def test_task_without_outlets_makes_no_call_to_airflow() -> None:
    context: Any = {}
    report_to_outlets(context, [], "clicks", result(), STREAM_OF)
