"""ListShards, with its filters and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.kinesis_server.clock import milliseconds
from tests.support.kinesis_server.errors import ApiError, in_use, invalid, limit_exceeded
from tests.support.kinesis_server.limits import Window
from tests.support.kinesis_server.shard import Shard
from tests.support.kinesis_server.state import Body, Request, State
from tests.support.kinesis_server.stream import Stream
from tests.support.kinesis_server.tokens import fields_of, token

PAGE_SHARDS = 1000
TOKEN_LIFETIME_MS = 300_000


def list_shards(state: State, request: Request) -> Body:
    if "NextToken" in request:
        stream, after, wanted = _continued(state, request)
    else:
        stream = state.stream_of(request)
        after, wanted = request.get("ExclusiveStartShardId", ""), _filter_of(request)
    window = state.list_shards_calls.setdefault(stream.name, Window())
    if not window.take(state.now_ms, state.limits.list_shards_per_second):
        raise limit_exceeded(f"Rate exceeded for ListShards of stream {stream.name} under account {state.account}.")
    if stream.status == "CREATING":
        raise in_use(f"Stream {stream.name} is CREATING: ListShards needs an ACTIVE stream.")
    listed = [shard for shard in _selected(state, stream, wanted) if shard.shard_id > after]
    page = listed[: request.get("MaxResults", PAGE_SHARDS)]
    body: Body = {"Shards": [shard.described() for shard in page]}
    if len(page) < len(listed):
        body["NextToken"] = token(stream.uid, page[-1].shard_id, *wanted, state.now_ms)
    return body


Wanted = tuple[str, str]
"""The type of a filter, and what it compares with."""


def _filter_of(request: Request) -> Wanted:
    chosen = request.get("ShardFilter", {"Type": "FROM_TRIM_HORIZON"})
    kind = chosen["Type"]
    if kind in ("AT_TIMESTAMP", "FROM_TIMESTAMP"):
        if "Timestamp" not in chosen:
            raise invalid(f"Timestamp must be specified for a ShardFilter of type {kind}.")
        return kind, str(milliseconds(chosen["Timestamp"]))
    if kind == "AFTER_SHARD_ID":
        if "ShardId" not in chosen:
            raise invalid(f"ShardId must be specified for a ShardFilter of type {kind}.")
        return kind, chosen["ShardId"]
    if kind not in ("AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST"):
        raise invalid(f"ShardFilter of type {kind} does not exist.")
    return kind, ""


def _selected(state: State, stream: Stream, wanted: Wanted) -> list[Shard]:
    kind, compared = wanted
    shards = list(stream.shards.values())
    horizon = stream.horizon(state.now_ms)
    if kind == "FROM_TRIM_HORIZON":
        return shards
    if kind == "AT_LATEST":
        return [shard for shard in shards if shard.is_open]
    if kind == "AFTER_SHARD_ID":
        return [shard for shard in shards if shard.shard_id > compared]
    if kind == "FROM_TIMESTAMP":
        return [shard for shard in shards if _closed(shard) >= max(int(compared), horizon)]
    at = horizon if kind == "AT_TRIM_HORIZON" else int(compared)
    return [shard for shard in shards if shard.opened_ms <= at <= _closed(shard)]


def _closed(shard: Shard) -> float:
    return float("inf") if shard.closed_ms is None else shard.closed_ms


def _continued(state: State, request: Request) -> tuple[Stream, str, Wanted]:
    for other in ("StreamName", "StreamCreationTimestamp", "ExclusiveStartShardId", "ShardFilter"):
        if other in request:
            raise invalid(f"NextToken and {other} cannot be provided together.")
    fields = fields_of(request["NextToken"], 5)
    if fields is None:
        raise invalid("NextToken is invalid.")
    uid, after, kind, compared, made_at = fields
    if state.now_ms - int(made_at) > TOKEN_LIFETIME_MS:
        raise ApiError("ExpiredNextTokenException", "NextToken has expired.")
    return state.stream_by_uid(uid), after, (kind, compared)


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {"ListShards": list_shards}
