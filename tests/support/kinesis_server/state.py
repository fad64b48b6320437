"""The state of the server: the streams of one account in one region, and its configured behaviour."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.kinesis_server.clock import RealClock, ServerClock, milliseconds
from tests.support.kinesis_server.errors import invalid, not_found
from tests.support.kinesis_server.faults import Faults
from tests.support.kinesis_server.limits import Limits, Window
from tests.support.kinesis_server.stream import Change, SerialNumbers, Stream

Request = Mapping[str, Any]
Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Where the real service leaves room, what this one does.

    :param transition_seconds: how long a stream or consumer is CREATING, UPDATING or DELETING.
    :param empty_page_every: every so manieth read of a shard returns nothing, though there is more; 0 is never.
    :param end_with_data: whether a closed shard's last records come on its last page; if not, an empty page follows.
    :param iterator_lifetime_seconds: after which a shard iterator is refused.
    :param subscription_seconds: after which a subscription ends.
    :param heartbeat_seconds: how often a subscription reports that there is nothing.
    """

    transition_seconds: float = 0.0
    empty_page_every: int = 0
    end_with_data: bool = True
    iterator_lifetime_seconds: float = 300.0
    subscription_seconds: float = 300.0
    heartbeat_seconds: float = 5.0


class State:
    """The account.

    :param clock: the time of everything.
    :param region: as in ARNs.
    :param account: of twelve digits.

    `neighbours` returns another account by its number, if there is one; see `engine.connect`.
    """

    def __init__(
        self, clock: ServerClock | None = None, *, region: str = "us-east-1", account: str = "000000000000"
    ) -> None:
        self.clock: ServerClock = clock or RealClock()
        self.region = region
        self.account = account
        self.limits = Limits()
        self.behaviour = Behaviour()
        self.faults = Faults()
        self.calls: Counter[str] = Counter()
        self.changed = threading.Condition(threading.RLock())
        self.streams: dict[str, Stream] = {}
        self.policies: dict[str, str] = {}
        self.neighbours: Callable[[str], State | None] = lambda account: None
        self.births = SerialNumbers()
        self.list_shards_calls: dict[str, Window] = {}
        self.describe_calls = Window()
        self.list_streams_calls = Window()
        self.tag_calls = Window()
        self._created_by_name: dict[str, int] = {}
        self._uids = 0

    @property
    def now_ms(self) -> int:
        """The present, in whole milliseconds since 1970."""
        return milliseconds(self.clock.now())

    def new_stream(self, name: str) -> Stream:
        """Put up a stream that has no shards yet."""
        now = self.now_ms
        # Two of the same name are seconds apart, as in AWS, also while the clock stands still.
        created = max(now, self._created_by_name.get(name, -1000) + 1000)
        self._created_by_name[name] = created
        self._uids += 1
        arn = f"arn:aws:kinesis:{self.region}:{self.account}:stream/{name}"
        stream = Stream(
            uid=f"{self.account}/{self._uids}", name=name, arn=arn, created_ms=created, began_ms=now, births=self.births
        )
        self.streams[name] = stream
        return stream

    def become(self, stream: Stream, status: str, change: Change) -> None:
        """Let a stream change, at once or after the time that this takes."""
        stream.status = status
        stream.change = change
        stream.settle(self.now_ms)

    def due_ms(self) -> int:
        """Return when something that begins now is done."""
        return self.now_ms + round(self.behaviour.transition_seconds * 1000)

    def stream(self, name: str) -> Stream:
        """Return a stream as it is now.

        :raises ApiError: if there is none.
        """
        stream = self.streams.get(name)
        if stream is not None:
            stream.settle(self.now_ms)
            if self.streams.get(name) is stream:
                return stream
        raise not_found(f"Stream {name} under account {self.account}")

    def stream_of(self, request: Request) -> Stream:
        """Return the stream that a request names, or whose ARN it gives.

        :raises ApiError: if there is none.
        """
        name, arn = request.get("StreamName"), request.get("StreamARN")
        if name is None and arn is None:
            raise invalid("Either StreamName or StreamARN must be provided.")
        named = self.stream(name if name is not None else name_in(str(arn)))
        if arn is not None and named.arn != arn:
            raise not_found(f"Stream {arn} under account {self.account}")
        asked_for = request.get("StreamCreationTimestamp")
        if asked_for is not None and milliseconds(asked_for) // 1000 != named.created_ms // 1000:
            raise not_found(f"Stream {named.name} created at {asked_for} under account {self.account}")
        return named

    def stream_by_uid(self, uid: str) -> Stream:
        """Return the very stream that a token was made for, not another of its name."""
        for stream in list(self.streams.values()):
            if stream.uid == uid:
                return self.stream(stream.name)
        raise not_found(f"The stream of this token under account {self.account}")


def account_in(arn: str) -> str:
    """Return the account in an ARN; empty if it is none."""
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else ""


def name_in(arn: str) -> str:
    """Return the stream's name in its ARN or in the ARN of one of its consumers."""
    return arn.partition("stream/")[2].partition("/")[0]
