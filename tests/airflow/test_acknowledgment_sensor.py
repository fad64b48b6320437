"""The sensor waits until acknowledgment sets have ended, and fails if one did not end well."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, run_name
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.triggers.partitions import AcknowledgmentTrigger
from tests.support.clock import ManualClock
from tests.support.delivered import RUN, delivered, state
from tests.support.watched import first_payload

DEADLINE_PASSED = "2026-01-01T00:00:00.000000Z"


def sensor(**arguments: Any) -> AcknowledgmentSensor:
    return AcknowledgmentSensor(task_id="wait", source="clicks", **arguments)


def poke(context: Any, **arguments: Any) -> Any:
    return sensor(**arguments).poke(context)


@pytest.fixture
def sets(coordination: SourceCoordinator) -> AcknowledgmentSets:
    return AcknowledgmentSets(coordination)


def test_sensor_succeeds_once_all_sets_are_acknowledged(sets: AcknowledgmentSets, context: Any) -> None:
    ours = delivered(sets.coordinator, "a", "b")
    delivered(sets.coordinator, "c", run=run_name("dag", "another"))
    sets.acknowledge(ours[0], positive=True)
    assert not poke(context).is_done
    sets.acknowledge(ours[1], positive=True)
    answer = poke(context)
    assert answer.is_done
    assert answer.xcom_value == {
        "source": "clicks",
        "states": {"ACKNOWLEDGED": 2},
        "acknowledgment_sets": ours,
    }
    assert json.loads(json.dumps(answer.xcom_value)) == answer.xcom_value


def test_another_run_may_be_selected(sets: AcknowledgmentSets, context: Any) -> None:
    [theirs] = delivered(sets.coordinator, "a", run=run_name("other", "run 7"))
    assert not poke(context, run_id="run 7", run_dag_id="other").is_done
    sets.acknowledge(theirs, positive=True)
    assert poke(context, run_id="run 7", run_dag_id="other").xcom_value["acknowledgment_sets"] == [theirs]


def test_run_without_sets_succeeds(sets: AcknowledgmentSets, context: Any) -> None:
    assert poke(context).xcom_value == {"source": "clicks", "states": {}, "acknowledgment_sets": []}


@pytest.mark.parametrize("given", [lambda ids: ids[0], lambda ids: ids[:1], lambda ids: str(ids[:1])])
def test_sets_may_be_named(sets: AcknowledgmentSets, context: Any, given: Any) -> None:
    ids = delivered(sets.coordinator, "a", "b")
    sets.acknowledge(ids[0], positive=True)
    assert poke(context, acknowledgment_sets=given(ids)).is_done


def test_failure_names_the_unacknowledged_sets_and_reasons(sets: AcknowledgmentSets, context: Any) -> None:
    ids = delivered(sets.coordinator, "a", "b", "c")
    sets.acknowledge(ids[0], positive=True)
    sets.acknowledge(ids[1], positive=False, reason="too few rows")
    assert not poke(context).is_done  # one is pending
    sets.cancel(ids[2], "by hand")
    with pytest.raises(AirflowFailException) as error:
        poke(context)
    assert str(error.value) == (
        f"source 'clicks': 2 of 3 acknowledgment sets were not acknowledged: {ids[1]} REJECTED: downstream: too few "
        f"rows; {ids[2]} CANCELLED: by hand. The next job delivers their batches again"
    )


def test_redelivered_batch_is_judged_by_its_last_set(sets: AcknowledgmentSets, context: Any) -> None:
    [first] = delivered(sets.coordinator, "a")
    sets.acknowledge(first, positive=False, reason="too few rows")
    [second] = delivered(sets.coordinator, "a")
    assert not poke(context).is_done
    sets.acknowledge(second, positive=True)
    assert poke(context).xcom_value["states"] == {"ACKNOWLEDGED": 1}
    with pytest.raises(AirflowFailException, match="1 of 2"):
        poke(context, acknowledgment_sets=[first, second])


def test_poke_expires_overdue_sets(sets: AcknowledgmentSets, context: Any) -> None:
    in_january = SourceCoordinator(sets.coordinator.store, "clicks", "a job", clock=ManualClock())
    in_january.initialize()
    [name] = delivered(in_january, "a")
    with pytest.raises(AirflowFailException, match=f"{name} EXPIRED: not acknowledged by"):
        poke(context)
    assert state(sets.coordinator, name) is AcknowledgmentState.EXPIRED


def test_unknown_set_fails_without_a_retry(sets: AcknowledgmentSets, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="source 'clicks' has no acknowledgment set 'x'"):
        poke(context, acknowledgment_sets=["x"])


def test_run_and_sets_together_are_refused(sets: AcknowledgmentSets, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="'acknowledgment_sets'"):
        poke(context, acknowledgment_sets=["x"], run_id="run")


# Deferring


def deferred(task: AcknowledgmentSensor, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    return defers.value


def test_sensor_polls_once_before_it_defers(sets: AcknowledgmentSets, context: Any) -> None:
    [name] = delivered(sets.coordinator, "a")
    sets.acknowledge(name, positive=True)
    assert sensor(deferrable=True).execute(context)["states"] == {"ACKNOWLEDGED": 1}


def test_sensor_defers_until_its_sets_end_and_polls_again(sets: AcknowledgmentSets, context: Any) -> None:
    [name] = delivered(sets.coordinator, "a")
    waiting = deferred(sensor(deferrable=True, timeout=600), context)
    assert isinstance(waiting.trigger, AcknowledgmentTrigger)
    assert (waiting.trigger.acknowledgment_sets, waiting.trigger.run_name) == (None, RUN)
    assert timedelta(seconds=500) < waiting.timeout <= timedelta(seconds=600)

    payload = first_payload(waiting.trigger, while_waiting=lambda: sets.acknowledge(name, positive=True))

    assert getattr(sensor(), waiting.method_name)(context, event=payload)["states"] == {"ACKNOWLEDGED": 1}


def test_early_event_defers_again_for_the_remaining_time(sets: AcknowledgmentSets, context: Any) -> None:
    delivered(sets.coordinator, "a")
    first = deferred(sensor(deferrable=True, timeout=600), context)
    with pytest.raises(TaskDeferred) as again:
        sensor(timeout=600).poll_again(context, event={"status": "ended", "deadline": first.trigger.deadline})
    assert again.value.trigger.serialize() == first.trigger.serialize()
    assert again.value.timeout < first.timeout


def test_event_after_the_deadline_times_out(sets: AcknowledgmentSets, context: Any) -> None:
    delivered(sets.coordinator, "a")
    with pytest.raises(AirflowSensorTimeout, match="the condition was not met within 600 seconds"):
        sensor(timeout=600).poll_again(context, event={"status": "ended", "deadline": DEADLINE_PASSED})


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"status": "error", "message": "connection 'x' is gone", "deadline": DEADLINE_PASSED}, "^connection 'x' is"),
        (None, "the trigger sent an event that cannot be read: None"),
        ({"status": "ended"}, "the trigger sent an event that cannot be read"),
    ],
)
def test_invalid_event_fails_without_a_retry(context: Any, event: Any, message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor().poll_again(context, event=event)


@pytest.mark.parametrize("resumed", [False, True])
def test_soft_fail_skips_after_a_bad_end(sets: AcknowledgmentSets, context: Any, resumed: bool) -> None:
    [name] = delivered(sets.coordinator, "a")
    task = sensor(deferrable=True, soft_fail=True)
    waiting = deferred(task, context)
    sets.acknowledge(name, positive=False, reason="too few rows")
    event = {"status": "ended", "deadline": waiting.trigger.deadline}
    with pytest.raises(AirflowSkipException):
        task.resume_execution("poll_again", {"event": event}, context) if resumed else task.execute(context)


def test_soft_fail_skips_with_a_zero_timeout(sets: AcknowledgmentSets, context: Any) -> None:
    delivered(sets.coordinator, "a")
    with pytest.raises(AirflowSkipException):
        sensor(deferrable=True, timeout=0, soft_fail=True).execute(context)
    with pytest.raises(AirflowSensorTimeout):
        sensor(deferrable=True, timeout=0).execute(context)
