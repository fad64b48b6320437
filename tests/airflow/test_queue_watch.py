"""Triggers notice messages of a queue without receiving them, and kept messages are tended while they wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor
from airflow_provider_coordination.sources.kept_messages import Announced, KeptMessages
from airflow_provider_coordination.sources.queues import Queue, QueueAddress
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger
from airflow_provider_coordination.triggers.polling import QueueWatch
from airflow_provider_coordination.triggers.watchers import Watchers
from tests.support.clock import ManualClock
from tests.support.sqs_model import SqsModel
from tests.support.watched import first_payload, in_loop, payload_of

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/events"
ADDRESS = QueueAddress(url=URL, aws_conn_id="aws_default")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sqs(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> SqsModel:
    """The queue that every address leads to."""
    model = SqsModel(clock)
    monkeypatch.setattr(QueueAddress, "open", lambda self, connections: Queue(self.url, model))
    return model


def keep(source: SourceCoordinator, sqs: SqsModel, clock: ManualClock) -> None:
    """Receive a message about a partition, and keep it."""
    source.create_partitions({"a": {}})
    sqs.send("about a")
    [message] = Queue(URL, sqs).receive(wait_seconds=0, hidden_seconds=3600)
    announced = [Announced(name="a", family=source.view.source_identifier, partition="a")]
    KeptMessages(source.view).keep(ADDRESS, {message: announced}, clock.now())


def sensor(**arguments: Any) -> PartitionsAvailableSensor:
    return PartitionsAvailableSensor(task_id="wait", source="clicks", queue_url=URL, **arguments)


def test_sensor_succeeds_once_the_queue_has_messages(
    coordination: SourceCoordinator, sqs: SqsModel, context: Any
) -> None:
    assert not sensor().poke(context).is_done
    sqs.send("hello")
    answer = sensor().poke(context)
    assert answer.is_done and answer.xcom_value["UNASSIGNED"] == 0
    coordination.view.suspensions.suspend("ann")
    assert not sensor().poke(context).is_done
    assert "receive" not in sqs.calls


def test_sensor_defers_until_a_message_arrives(
    coordination: SourceCoordinator, sqs: SqsModel, clock: ManualClock, context: Any
) -> None:
    def arrives() -> None:
        sqs.send("hello")
        clock.advance(20)

    task = sensor(deferrable=True, aws_conn_id="of_queue", region_name="eu-west-2")
    with pytest.raises(TaskDeferred) as waiting:
        task.execute(context)
    trigger = waiting.value.trigger
    assert (trigger.queue, trigger.aws_conn_id, trigger.region_name) == (URL, "of_queue", "eu-west-2")

    payload = first_payload(trigger, clock=clock, while_waiting=arrives)

    assert payload["status"] == "messages"
    assert task.resume_execution(waiting.value.method_name, {"event": payload}, context)["UNASSIGNED"] == 0


def test_wrong_queue_fails_the_sensor_without_a_retry(coordination: SourceCoordinator, context: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'queue_url' must be the URL of a queue, .*; got 'events'"):
        PartitionsAvailableSensor(task_id="wait", source="clicks", queue_url="events")
    rendered = PartitionsAvailableSensor(task_id="wait", source="clicks", queue_url="{{ var.value.queue }}")
    rendered.queue_url = "https://sqs.eu-west-1.amazonaws.com/1/events.fifo"
    with pytest.raises(AirflowFailException, match="field 'queue_url' must be a standard queue"):
        rendered.poke(context)


def test_doorbell_rings_when_a_message_arrives(
    coordination: SourceCoordinator, sqs: SqsModel, clock: ManualClock
) -> None:
    def arrives() -> None:
        sqs.send("hello")
        clock.advance(20)

    trigger = PartitionsAvailableTrigger(source="clicks", queue=URL)
    assert first_payload(trigger, clock=clock, while_waiting=arrives) == {"status": "messages", "source": "clicks"}
    assert "receive" not in sqs.calls
    assert [message.receipts for message in sqs.messages.values()] == [0]


def test_doorbells_of_one_queue_share_the_question(
    coordination: SourceCoordinator, sqs: SqsModel, clock: ManualClock
) -> None:
    sqs.send("hello")

    async def ring(watchers: Watchers) -> list[Any]:
        return await asyncio.gather(
            *(payload_of(PartitionsAvailableTrigger(source="clicks", queue=URL)) for _ in range(50))
        )

    assert {each["status"] for each in in_loop(ring, clock=clock)} == {"messages"}
    assert sqs.calls == ["describe"]


def test_suspended_source_hears_no_message(coordination: SourceCoordinator, sqs: SqsModel) -> None:
    sqs.send("hello")
    watch = QueueWatch(coordination, None)
    assert watch.waiting([ADDRESS]) == {ADDRESS}
    coordination.view.suspensions.suspend(by="me", reason="")
    assert watch.waiting([ADDRESS]) == frozenset()


def test_refused_queue_wakes_nobody(
    coordination: SourceCoordinator, sqs: SqsModel, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.send("hello")
    sqs.refused = "AccessDenied"
    assert QueueWatch(coordination, None).waiting([ADDRESS]) == frozenset()
    assert "allow sqs:GetQueueAttributes on it" in caplog.text


def test_kept_messages_are_hidden_then_deleted_while_polled(
    coordination: SourceCoordinator, sqs: SqsModel, clock: ManualClock
) -> None:
    source = SourceCoordinator(coordination.store, "clicks", "watcher", clock=clock)
    source.initialize()
    keep(source, sqs, clock)
    watch = QueueWatch(source, None)
    for _ in range(200):
        clock.advance(61)
        watch.tend()
    assert watch.keeps
    assert [message.receipts for message in sqs.messages.values()] == [1]
    assert not sqs.visible
    source.leases.acquire(1)
    source.leases.complete("a", {})
    clock.advance(61)
    watch.tend()
    assert not sqs.messages and not watch.keeps
    before = len(sqs.calls)
    clock.advance(timedelta(hours=1).total_seconds())
    watch.tend()
    assert len(sqs.calls) == before


def test_unreachable_queue_of_kept_messages_stops_no_poll(
    coordination: SourceCoordinator, sqs: SqsModel, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    keep(coordination, sqs, clock)

    def unusable(address: QueueAddress) -> Queue:
        raise ConfigurationError("connection 'aws_default' is gone")

    watch = QueueWatch(coordination, None, unusable)
    watch.tend()
    watch.tend()
    assert "are received again: connection 'aws_default' is gone" in caplog.text
