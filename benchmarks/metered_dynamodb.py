"""The cost of DynamoDB requests, and a way to let several workers compete in a repeatable order.

The tests' DynamoDB server reports the capacity that each request consumed. Its reports agree with AWS's published rules
for the table and its index. A put that is new to an index costs the index one write. A put that changes the index's key
costs two, because the old entry is removed and the new one added. A put that changes nothing in it costs none. Each
started KB of an entry counts. A query that finds nothing costs half a unit.

A write refused by its condition is reported without its cost. AWS charges the stored item's write to the table, and
nothing to an index. `cost_of` counts it as one unit, so items must not exceed 1 KB.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LEAST_READ_UNITS = 0.5
REFUSED_WRITE_UNITS = 1.0
READS = frozenset({"GetItem", "Query"})
WRITES = frozenset({"DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"})
OF_THE_TABLE = frozenset({"DescribeContinuousBackups", "DescribeTable", "DescribeTimeToLive", "ListTagsOfResource"})
"""Requests that cost nothing."""
REFUSED = "ConditionalCheckFailedException"


@dataclass
class Tally:
    """The cost of some requests.

    :param requests: the number of requests.
    :param refused: the number of writes that their condition refused.
    :param read_units: the read capacity they consumed, of table and index.
    :param write_units: the write capacity they consumed, of table and index.
    """

    requests: float = 0
    refused: float = 0
    read_units: float = 0.0
    write_units: float = 0.0

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.requests += other.requests
        self.refused += other.refused
        self.read_units += other.read_units
        self.write_units += other.write_units

    def divided_by(self, number: int) -> Tally:
        """Return the tally with every field divided by a number."""
        return Tally(
            requests=self.requests / number,
            refused=self.refused / number,
            read_units=self.read_units / number,
            write_units=self.write_units / number,
        )

    @property
    def units(self) -> float:
        """Capacity units of both kinds."""
        return self.read_units + self.write_units


class Meter:
    """Counts the requests of one client. Only one thread at a time may count.

    :param client: a boto3 DynamoDB client.
    :param before_request: called in the requesting thread before each request is sent.
    """

    def __init__(self, client: Any, before_request: Callable[[], None]) -> None:
        self._tally = Tally()
        self._lock = threading.Lock()
        self._before_request = before_request
        client.meta.events.register("before-parameter-build.dynamodb", self._request_capacity)
        client.meta.events.register("before-send.dynamodb", self._before_send)
        client.meta.events.register("after-call.dynamodb", self._after_call)

    @contextmanager
    def counting(self) -> Iterator[Tally]:
        """Yield a tally of the requests made within the context."""
        with self._lock:
            outer, self._tally = self._tally, Tally()
        inner = self._tally
        try:
            yield inner
        finally:
            with self._lock:
                outer.add(inner)
                self._tally = outer

    def _request_capacity(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if "ReturnConsumedCapacity" in model.input_shape.members:
            params["ReturnConsumedCapacity"] = "INDEXES"

    def _before_send(self, **_: Any) -> None:
        self._before_request()

    def _after_call(self, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
        cost = cost_of(model.name, parsed)
        with self._lock:
            self._tally.add(cost)


def cost_of(operation: str, answer: Mapping[str, Any]) -> Tally:
    """Return the cost of one request from its response.

    :raises ValueError: for an unexpected operation or error.
    """
    if code := answer.get("Error", {}).get("Code"):
        if code != REFUSED:
            raise ValueError(f"{operation} failed: {answer['Error']}")
        return Tally(requests=1, refused=1, write_units=REFUSED_WRITE_UNITS)
    if operation in OF_THE_TABLE:
        return Tally(requests=1)
    if operation == "BatchGetItem":  # the local server does not say what it costs
        items = [item for found in answer["Responses"].values() for item in found]
        return Tally(requests=1, read_units=sum(map(_consistent_read_units, items)))
    if operation not in READS | WRITES:
        raise ValueError(f"{operation} is not expected here")
    consumed = answer["ConsumedCapacity"]
    units = sum(table["CapacityUnits"] for table in (consumed if isinstance(consumed, list) else [consumed]))
    return Tally(requests=1, read_units=units) if operation in READS else Tally(requests=1, write_units=units)


@dataclass
class Turnstile:
    """Lets one of several threads continue at a time, from request to request, in an order that a seed determines.

    Each thread calls `wait` before each request and `leave` when it ends. No thread passes until all are waiting. So
    only one thread at a time is between two of its requests, and the result depends only on the seed.

    :param workers: the names of the threads.
    :param seed: determines the order.
    """

    workers: set[str]
    seed: int
    _waiting: set[str] = field(default_factory=set, init=False)
    _next: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._randomness = random.Random(self.seed)
        self._changed = threading.Condition()

    def wait(self, worker: str) -> None:
        """Wait for this worker's turn."""
        with self._changed:
            self._waiting.add(worker)
            self._choose()
            self._changed.wait_for(lambda: self._next == worker)
            self._next = None
            self._waiting.discard(worker)

    def leave(self, worker: str) -> None:
        """Let the other workers continue without this one."""
        with self._changed:
            self.workers.discard(worker)
            self._choose()

    def _choose(self) -> None:
        if self._next is None and self.workers and self._waiting == self.workers:
            self._next = self._randomness.choice(sorted(self._waiting))
            self._changed.notify_all()


def item_bytes(item: Mapping[str, Mapping[str, str]]) -> int:
    """Return an item's size as DynamoDB counts it: names, texts in UTF-8, and two digits of a number to a byte."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _consistent_read_units(item: Mapping[str, Mapping[str, str]]) -> int:
    return math.ceil(item_bytes(item) / 4096)


def _value_bytes(value: Mapping[str, str]) -> int:
    ((kind, text),) = value.items()
    return len(text.encode()) if kind == "S" else (len(text) + 1) // 2 + 1
