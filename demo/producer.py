"""The producer: sends the events while ingestion runs, aggregated as the Kinesis Producer Library does.

Events travel in aggregates of a hundred. All events of one aggregate must belong to the shard that its own
partition key leads to, also after a split in the middle of a shard; so aggregates are filled by slices of the hash
key space that no such split cuts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from airflow_provider_coordination.sources.kinesis.aggregation import aggregate
from demo.events import Event, hash_key

EVENTS_IN_AGGREGATE = 100
SLICES = 8
"""Of the hash key space: two for each shard of a stream of four."""
FIRST_PART = 0.25
"""How much is sent at once; the rest flows."""
FLOW_SECONDS = 45.0
"""What is left flows at the rate that would take this long: it gets less and less, and never ends by itself."""
SECONDS_BETWEEN_PUTS = 0.5
MOST_RECORDS_IN_PUT = 20
PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Before each attempt to put the same records."""

_SLICE_BITS = 128 - (SLICES - 1).bit_length()


class ProducerError(Exception):
    """Records could not be sent; the message says why."""


class Aggregate(NamedTuple):
    """One Kinesis record: how many events it carries, its partition key and its data."""

    events: int
    key: str
    data: bytes


class Producer:
    """Sends events on a thread of its own: a first part at once; once told, a flow; once told, all the rest.

    :param client: a Kinesis client that does not retry by itself, as a repeated request may send a record twice.
    :param stream: the stream's name.
    :param events: what to send.
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
        """Begin to send."""
        self._thread.start()

    def flow(self) -> None:
        """Go on after the first part, bit by bit."""
        self._flowing.set()

    def release(self) -> None:
        """Send the rest as fast as the stream takes it."""
        self._released.set()
        self._flowing.set()

    def stop(self) -> None:
        """Send no more, and wait for the thread's end. Harmless if it has ended, or never began."""
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
        except Exception as error:  # told by whoever looks at the producer
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
            return max(1, min(MOST_RECORDS_IN_PUT, round(wanted)))
        return MOST_RECORDS_IN_PUT

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
        """Send records, and again those of them that the stream refused."""
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
    """Yield the Kinesis records that carry these events, those of one slice in their order."""
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
