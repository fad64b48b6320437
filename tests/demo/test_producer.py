"""The demo's producer: the records that it sends, and its reaction to refusals of the stream."""

from __future__ import annotations

import time
from typing import Any

import pytest

from airflow_provider_coordination.sources.kinesis.aggregation import expand
from demo import producer
from demo.events import Event, event_id, flights, hash_key
from demo.producer import Producer, aggregates


class FakeStream:
    """Keeps the records; refuses the last record of each request a number of times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.kept: list[dict[str, Any]] = []

    def put_records(self, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        answer: list[dict[str, Any]] = [{"SequenceNumber": "1"} for _ in Records]
        if self.refusals:
            self.refusals -= 1
            answer[-1] = {"ErrorCode": "ProvisionedThroughputExceededException"}
        self.kept += [record for record, said in zip(Records, answer, strict=True) if "ErrorCode" not in said]
        return {"Records": answer}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return flights(5_000)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "PAUSES_SECONDS", (0.0,) * 3)


def sent(events: list[Event], stream: FakeStream) -> Producer:
    sending = Producer(stream, "flights", events)
    sending.start()
    sending.release()
    while not sending.is_done and sending.error is None:
        time.sleep(0.001)
    sending.stop()
    return sending


def test_event_id_is_the_number_of_its_row(events: list[Event]) -> None:
    assert [event_id(event.data) for event in events] == list(range(5_000))


def test_events_of_an_aggregate_share_a_range_of_hash_keys(
    events: list[Event],
) -> None:
    sent_aggregates = list(aggregates(events))
    assert len(sent_aggregates) > 1
    for aggregate in sent_aggregates:
        keys = {aggregate.key, *(key for _, key, _ in expand(aggregate.data, aggregate.key))}
        assert len({hash_key(key) >> 125 for key in keys}) == 1


def test_every_event_is_sent_once_despite_refusals(events: list[Event]) -> None:
    stream = FakeStream(refusals=2)

    sending = sent(events, stream)

    arrived = [event for record in stream.kept for event in expand(record["Data"], record["PartitionKey"])]
    assert sorted((key, data) for _, key, data in arrived) == sorted(events)
    assert sending.is_done and sending.error is None
    assert sending.records_sent == len(stream.kept)


def test_stream_that_keeps_refusing_is_an_error_with_its_reason(events: list[Event]) -> None:
    sending = sent(events, FakeStream(refusals=100))

    assert not sending.is_done
    assert "ProvisionedThroughputExceededException" in str(sending.error)
