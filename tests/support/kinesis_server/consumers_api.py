"""The operations on consumers of enhanced fan-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.kinesis_server.consumers import Consumer, Subscription
from tests.support.kinesis_server.errors import in_use, invalid, limit_exceeded, not_found
from tests.support.kinesis_server.limits import Window
from tests.support.kinesis_server.records_api import position
from tests.support.kinesis_server.state import Body, Request, State, name_in
from tests.support.kinesis_server.stream import Stream
from tests.support.kinesis_server.tokens import fields_of, token

TAKE_OVER_MS = 5_000
PAGE_CONSUMERS = 100


def register(state: State, request: Request) -> Body:
    stream, name = state.stream_of(request), request["ConsumerName"]
    _settle(state, stream)
    if name in stream.consumers:
        raise in_use(f"Consumer {name} of stream {stream.name} under account {state.account} already exists.")
    most = state.limits.consumers_per_stream
    if most is not None and len(stream.consumers) >= most:
        raise limit_exceeded(f"Stream {stream.name} has {most} consumers, which is the limit.")
    now = state.now_ms
    arn = f"{stream.arn}/consumer/{name}:{now // 1000}"
    consumer = stream.consumers[name] = Consumer(name=name, arn=arn, created_ms=now, ready_ms=state.due_ms())
    # The answer says CREATING in any case, as the answer of AWS does.
    return {"Consumer": {**consumer.described(now), "ConsumerStatus": "CREATING"}}


def describe(state: State, request: Request) -> Body:
    stream, consumer = _found(state, request)
    return {"ConsumerDescription": {**consumer.described(state.now_ms), "StreamARN": stream.arn}}


def deregister(state: State, request: Request) -> Body:
    stream, consumer = _found(state, request)
    consumer.deleting, consumer.ready_ms = True, state.due_ms()
    consumer.subscriptions.clear()
    _settle(state, stream)
    return {}


def list_consumers(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    _settle(state, stream)
    after = ""
    if "NextToken" in request:
        fields = fields_of(request["NextToken"], 2)
        if fields is None or fields[0] != stream.uid:
            raise invalid("NextToken is invalid.")
        after = fields[1]
    names = sorted(name for name in stream.consumers if name > after)
    page = names[: request.get("MaxResults", PAGE_CONSUMERS)]
    body: Body = {"Consumers": [stream.consumers[name].described(state.now_ms) for name in page]}
    if len(page) < len(names):
        body["NextToken"] = token(stream.uid, page[-1])
    return body


def subscribe(state: State, request: Request) -> Subscription:
    """Return a new subscription; it takes an older one of the same consumer and shard over.

    :raises ApiError: if the older one began less than 5 seconds ago.
    """
    stream, consumer = _found(state, request)
    shard, start = stream.shard(request["ShardId"]), request["StartingPosition"]
    calls = consumer.calls.setdefault(shard.shard_id, Window())
    if not calls.take(state.now_ms, state.limits.subscribe_per_second):
        raise limit_exceeded(f"Rate exceeded for SubscribeToShard on shard {shard.shard_id}.")
    if consumer.status(state.now_ms) != "ACTIVE":
        raise in_use(f"Consumer {consumer.arn} is {consumer.status(state.now_ms)}.")
    older = consumer.subscriptions.get(shard.shard_id)
    if older is not None and state.now_ms - older.began_ms < TAKE_OVER_MS:
        raise in_use(
            "Another active subscription exists for this consumer:"
            f" {state.account}:{stream.name}:{consumer.name} and shard {shard.shard_id}"
        )
    lowest = position(state, stream, shard, start["Type"], start.get("SequenceNumber"), start.get("Timestamp"))
    subscription = Subscription(state, stream, shard, consumer, lowest)
    consumer.subscriptions[shard.shard_id] = subscription
    return subscription


def _found(state: State, request: Request) -> tuple[Stream, Consumer]:
    arn, stream_arn, name = (request.get(key) for key in ("ConsumerARN", "StreamARN", "ConsumerName"))
    if arn is None and (stream_arn is None or name is None):
        raise invalid("Either ConsumerARN, or StreamARN and ConsumerName, must be provided.")
    stream = state.stream(name_in(str(arn or stream_arn)))
    _settle(state, stream)
    for consumer in stream.consumers.values():
        if consumer.arn == arn or (arn is None and consumer.name == name):
            return stream, consumer
    raise not_found(f"Consumer {arn or name}, account {state.account}")


def _settle(state: State, stream: Stream) -> None:
    for name, consumer in list(stream.consumers.items()):
        if consumer.deleting and state.now_ms >= consumer.ready_ms:
            del stream.consumers[name]


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    "RegisterStreamConsumer": register,
    "DescribeStreamConsumer": describe,
    "DeregisterStreamConsumer": deregister,
    "ListStreamConsumers": list_consumers,
}
