"""Enhanced fan-out: registered consumers and their subscriptions to shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tests.support.kinesis_server.clock import instant
from tests.support.kinesis_server.errors import ApiError, in_use, not_found
from tests.support.kinesis_server.limits import MIB, Window
from tests.support.kinesis_server.records_api import PAGE_RECORDS, read_page

if TYPE_CHECKING:
    from tests.support.kinesis_server.shard import Shard
    from tests.support.kinesis_server.state import Body, State
    from tests.support.kinesis_server.stream import Stream

EVENT_BYTES = 2 * MIB


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer registered with a stream.

    :param ready_ms: when it is ACTIVE, or gone if it is DELETING.
    """

    name: str
    arn: str
    created_ms: int
    ready_ms: int
    deleting: bool = False
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    calls: dict[str, Window] = field(default_factory=dict)

    def status(self, now_ms: int) -> str:
        if self.deleting:
            return "DELETING"
        return "ACTIVE" if now_ms >= self.ready_ms else "CREATING"

    def described(self, now_ms: int) -> Body:
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": instant(self.created_ms),
        }


class NoEvent(Enum):
    """Why there is no event now."""

    YET = "there may be one later"
    MORE = "the subscription is over"


class Subscription:
    """One call of SubscribeToShard: gives events as they come, until it is over.

    :param state: the server's.
    :param start: the lowest sequence number wanted.
    """

    def __init__(self, state: State, stream: Stream, shard: Shard, consumer: Consumer, start: int) -> None:
        self.began_ms = state.now_ms
        self._state = state
        self._stream = stream
        self._shard = shard
        self._consumer = consumer
        self._position = start
        self._ends_ms = self.began_ms + round(state.behaviour.subscription_seconds * 1000)
        self._reported_ms: int | None = None
        self._over = False

    def next_event(self) -> Body | NoEvent:
        """Return the next event, or why there is none.

        :raises ApiError: if another subscription took over, or the shard is gone. It is over then.
        """
        with self._state.changed:
            if self._over:
                return NoEvent.MORE
            try:
                event = self._next()
            except ApiError:
                self.end()
                raise
            if event is NoEvent.MORE:
                self.end()
            return event

    def end(self) -> None:
        """End it, as a connection that is closed."""
        with self._state.changed:
            self._over = True
            if self._consumer.subscriptions.get(self._shard.shard_id) is self:
                del self._consumer.subscriptions[self._shard.shard_id]

    def _next(self) -> Body | NoEvent:
        now = self._state.now_ms
        if self._consumer.subscriptions.get(self._shard.shard_id) is not self:
            raise in_use("Another active subscription exists for this consumer and shard.")
        if self._state.stream_by_uid(self._stream.uid).consumers.get(self._consumer.name) is not self._consumer:
            raise not_found(f"Consumer {self._consumer.arn}")
        self._stream.shard(self._shard.shard_id)
        if now >= self._ends_ms:
            return NoEvent.MORE
        page = read_page(self._state, self._shard, self._position, PAGE_RECORDS, EVENT_BYTES)
        heartbeat_ms = round(self._state.behaviour.heartbeat_seconds * 1000)
        silent = self._reported_ms is not None and now - self._reported_ms < heartbeat_ms
        if not page.records and not page.ended and silent:
            return NoEvent.YET
        self._reported_ms, self._position = now, page.next_position
        event: Body = {"Records": page.records, "MillisBehindLatest": page.millis_behind_latest}
        if page.ended:
            self._over = True
            event["ChildShards"] = [child.described_as_child() for child in self._shard.children]
        else:
            event["ContinuationSequenceNumber"] = str(max(self._position - 1, self._shard.first_number))
        return {"SubscribeToShardEvent": event}
