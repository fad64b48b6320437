"""The producer: sends the events during ingestion, aggregated as the Kinesis Producer Library does.

An aggregate holds a hundred events. All events of one aggregate must belong to the shard of the aggregate's own
partition key, even after a shard is split in the middle. So each aggregate is filled from one slice of the hash key
space, and no such split cuts a slice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from demo.events import Event, hash_key
from tests.support.aggregation import aggregate

EVENTS_IN_AGGREGATE = 100
SLICES = 8
"""The number of slices of the hash key space: two for each shard of a stream of four."""
FIRST_PART = 0.25
"""The share of the events that is sent at once; the rest is sent slowly."""
FLOW_SECONDS = 45.0
"""The remaining events are sent at a rate that would take this long. The rate falls with the rest, so it never ends."""
SECONDS_BETWEEN_PUTS = 0.5
MAX_RECORDS_IN_PUT = 20
PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""The pause before each attempt to put the same records."""

_SLICE_BITS = 128 - (SLICES - 1).bit_length()


class ProducerError(Exception):
    """Records could not be sent; the message says why."""


class Aggregate(NamedTuple):
    """One Kinesis record: the number of its events, its partition key and its data."""

    events: int
    key: str
    data: bytes


class Producer:
    """Sends events on a separate thread: a first part at once, then slowly after `flow`, and the rest after `release`.

    :param client: a Kinesis client without retries, since a repeated request may send a record twice.
    :param stream: the name of the stream.
    :param events: the events to send.
    """

    def __init__(self, client: Any, stream: str, events: Sequence[Event]) -> None:
        self._client = client
        self._stream = stream
        self._events = events
        self._flowing = threading.Event()
        self._released = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.first_part_sent = threading.Event()
        self.events_sent = 0
        self.records_sent = 0
        self.error: Exception | None = None

    def start(self) -> None:
        """Start to send."""
        self._thread.start()

    def flow(self) -> None:
        """Continue slowly after the first part."""
        self._flowing.set()

    def release(self) -> None:
        """Send the rest as fast as the stream accepts it."""
        self._released.set()
        self._flowing.set()

    def stop(self) -> None:
        """Stop sending, and wait for the end of the thread. Harmless if it has ended, or never started."""
        self._stopped.set()
        self.release()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_done(self) -> bool:
        """Whether every event is sent."""
        return self.events_sent == len(self._events)

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # reported by the demo, which reads it
            self.error = error

    def _send_all(self) -> None:
        batch: list[Aggregate] = []
        for record in aggregates(self._events):
            batch.append(record)
            if len(batch) >= self._records_in_put():
                self._send(batch)
                batch = []
            if self._stopped.is_set():
                return
        if batch:
            self._send(batch)

    def _records_in_put(self) -> int:
        if self._is_paced():
            wanted = self._events_per_second() * SECONDS_BETWEEN_PUTS / EVENTS_IN_AGGREGATE
            return max(1, min(MAX_RECORDS_IN_PUT, round(wanted)))
        return MAX_RECORDS_IN_PUT

    def _send(self, batch: Sequence[Aggregate]) -> None:
        started = time.monotonic()
        self._put(batch)
        events = sum(record.events for record in batch)
        self.events_sent += events
        self.records_sent += len(batch)
        if self.events_sent >= FIRST_PART * len(self._events):
            self.first_part_sent.set()
            self._flowing.wait()
        if self._is_paced():
            self._released.wait(max(0.0, started + events / self._events_per_second() - time.monotonic()))

    def _is_paced(self) -> bool:
        return self.first_part_sent.is_set() and not self._released.is_set()

    def _events_per_second(self) -> float:
        return max(1, len(self._events) - self.events_sent) / FLOW_SECONDS

    def _put(self, batch: Sequence[Aggregate]) -> None:
        """Send records, and send refused records again."""
        left = [{"Data": record.data, "PartitionKey": record.key} for record in batch]
        reasons: set[str] = set()
        for pause in PAUSES_SECONDS:
            time.sleep(pause)
            answer = self._client.put_records(StreamName=self._stream, Records=left)
            codes = [each.get("ErrorCode") for each in answer["Records"]]
            left = [record for record, code in zip(left, codes, strict=True) if code]
            if not left:
                return
            reasons.update(code for code in codes if code)
        raise ProducerError(
            f"stream {self._stream!r} refused {len(left)} records {len(PAUSES_SECONDS)} times: "
            f"{', '.join(sorted(reasons))}"
        )


def aggregates(events: Sequence[Event]) -> Iterator[Aggregate]:
    """Yield the Kinesis records for these events; the events of a slice keep their order."""
    slices: dict[int, list[Event]] = {}
    for event in events:
        filled = slices.setdefault(hash_key(event.key) >> _SLICE_BITS, [])
        filled.append(event)
        if len(filled) == EVENTS_IN_AGGREGATE:
            yield _aggregate(filled)
            filled.clear()
    for rest in slices.values():
        if rest:
            yield _aggregate(rest)


def _aggregate(events: Sequence[Event]) -> Aggregate:
    return Aggregate(len(events), events[0].key, aggregate(events))
