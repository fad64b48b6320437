"""The sensor waits for completion, or for delivery up to an instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.sensors.partitions import PartitionCheck, PartitionsCompletedSensor, instant_of

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def poke(context: Any, **arguments: Any) -> Any:
    return PartitionsCompletedSensor(task_id="wait", source="clicks", **arguments).poke(context)


def complete(coordination: SourceCoordinator) -> None:
    for partition in coordination.leases.acquire(100):
        coordination.leases.complete(partition.partition_key, partition.progress)


def test_source_without_partitions_is_waited_for(
    coordination: SourceCoordinator, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not poke(context).is_done
    assert not poke(context, delivered_until=NOON).is_done
    assert "source clicks: no partitions yet; waiting for the task that creates them" in capsys.readouterr().out


def test_sensor_succeeds_when_every_partition_is_completed(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}, "b": {}})
    assert not poke(context).is_done
    complete(coordination)
    answer = poke(context)
    assert answer.is_done
    assert answer.xcom_value == {"UNASSIGNED": 0, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": 2}


def test_closed_partition_is_waited_for(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    coordination.leases.close("a", timedelta(days=9))
    assert not poke(context).is_done


def test_parked_partition_ends_the_wait_with_its_last_error(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}, "b": {}})
    once = SourceCoordinator(
        coordination.store, "clicks", "once", retry_policy=RetryPolicy(max_attempts=1, max_closed_count=0)
    )
    once.initialize()
    once.leases.acquire(1)
    once.leases.fail("a", "the sink is broken")
    with pytest.raises(
        AirflowFailException,
        match=r"'clicks': 1 partitions are parked: a \(failures: 1, last error: the sink is broken\)",
    ):
        poke(context)


@pytest.mark.parametrize(
    ("delivered", "met"),
    [
        (None, False),
        (NOON - timedelta(microseconds=1), False),
        (NOON, True),
        (NOON + timedelta(hours=1), True),
    ],
)
def test_open_partition_is_waited_for_until_the_instant(
    coordination: SourceCoordinator, context: Any, delivered: datetime | None, met: bool
) -> None:
    progress = {"delivered_until": format_instant(delivered) if delivered else None}
    coordination.create_partitions({"a": progress, "b": {"delivered_until": format_instant(NOON)}})
    assert poke(context, delivered_until=NOON).is_done is met


def test_completed_partition_needs_no_instant(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    complete(coordination)
    assert poke(context, delivered_until=NOON).is_done


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        NOON.replace(tzinfo=None),
        "2026-01-31T12:00:00Z",
        "2026-01-31 12:00:00+00:00",
        "2026-01-31T13:00:00+01:00",
        "2026-01-31T12:00:00",
    ],
)
def test_instant_is_accepted_in_several_formats(value: Any) -> None:
    assert instant_of(value) == NOON


@pytest.mark.parametrize("value", ["soon", "2026-01-01/2026-02-01", 7])
def test_invalid_instant_is_reported(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="field 'delivered_until' must be an instant, such as"):
        instant_of(value)


def test_wrong_instant_fails_without_a_retry(coordination: SourceCoordinator, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="delivered_until"):
        poke(context, delivered_until="soon")


def test_bad_connection_fails_without_a_retry(connect: Any, context: Any) -> None:
    connect("coordination_default", "coordination", extra={"url": "oracle://x/y"})
    with pytest.raises(AirflowFailException, match="database 'oracle' is not supported"):
        poke(context)


def test_each_poke_logs_in_one_line_what_is_pending(
    coordination: SourceCoordinator, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordination.create_partitions({f"p{n}": {} for n in range(7)})
    poke(context)
    counts = "UNASSIGNED 7, ASSIGNED 0, CLOSED 0, COMPLETED 0"
    assert f"source clicks: {counts}; waiting for 7: p0, p1, p2, p3, p4 and 2 more" in capsys.readouterr().out


def test_incomplete_check_is_not_trusted() -> None:
    counts = dict.fromkeys(PartitionStatus, 1)
    assert not PartitionCheck(counts, [], is_complete=False, parked=[]).is_met
    assert "checking again" in str(PartitionCheck(counts, [], is_complete=False, parked=[]))
