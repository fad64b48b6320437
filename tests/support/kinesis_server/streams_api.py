"""The operations on streams: create, delete, describe, reshard, keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.kinesis_server.clock import instant
from tests.support.kinesis_server.errors import in_use, invalid, limit_exceeded
from tests.support.kinesis_server.state import Body, Request, State
from tests.support.kinesis_server.stream import HOUR_MS, Change, Stream
from tests.support.kinesis_server.tokens import fields_of, token

DESCRIBED_SHARDS = 100
DEFAULT_ON_DEMAND_SHARDS = 4


def create_stream(state: State, request: Request) -> Body:
    name = request["StreamName"]
    if name in state.streams:
        state.streams[name].settle(state.now_ms)
    if name in state.streams:
        raise in_use(f"Stream {name} under account {state.account} already exists.")
    mode = request.get("StreamModeDetails", {}).get("StreamMode", "PROVISIONED")
    count = request.get("ShardCount", DEFAULT_ON_DEMAND_SHARDS if mode == "ON_DEMAND" else None)
    if count is None or count < 1:
        raise invalid("ShardCount must be a positive number for a provisioned stream.")
    stream = state.new_stream(name)
    stream.mode = mode
    stream.tags = dict(request.get("Tags", {}))
    stream.max_record_bytes = request.get("MaxRecordSizeInKiB", 1024) * 1024

    def created(at_ms: int) -> None:
        stream.begin(count, at_ms)
        stream.status = "ACTIVE"

    state.become(stream, "CREATING", Change(state.due_ms(), created))
    return {}


def delete_stream(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    if stream.consumers and not request.get("EnforceConsumerDeletion"):
        raise in_use(f"Stream {stream.name} has registered consumers.")

    def deleted(_: int) -> None:
        state.streams.pop(stream.name, None)

    if stream.status == "DELETING":
        return {}
    state.become(stream, "DELETING", Change(state.due_ms(), deleted))
    return {}


def list_streams(state: State, request: Request) -> Body:
    if not state.list_streams_calls.take(state.now_ms, state.limits.list_streams_per_second):
        raise limit_exceeded(f"Rate exceeded for ListStreams under account {state.account}.")
    for stream in list(state.streams.values()):
        stream.settle(state.now_ms)
    after = request.get("ExclusiveStartStreamName", "")
    if "NextToken" in request:
        fields = fields_of(request["NextToken"], 1)
        if fields is None:
            raise invalid("NextToken is invalid.")
        [after] = fields
    streams = [state.streams[name] for name in sorted(state.streams) if name > after]
    page = streams[: request.get("Limit", 100)]
    body: Body = {
        "StreamNames": [stream.name for stream in page],
        "HasMoreStreams": len(page) < len(streams),
        "StreamSummaries": [_summary(stream) for stream in page],
    }
    return body | ({"NextToken": token(page[-1].name)} if len(page) < len(streams) else {})


def _summary(stream: Stream) -> Body:
    shown = ("StreamName", "StreamARN", "StreamStatus", "StreamModeDetails", "StreamCreationTimestamp")
    return {name: value for name, value in _description(stream).items() if name in shown}


def describe_stream_summary(state: State, request: Request) -> Body:
    if not state.describe_calls.take(state.now_ms, state.limits.describe_stream_summary_per_second):
        raise limit_exceeded(f"Rate exceeded for DescribeStreamSummary under account {state.account}.")
    stream = state.stream_of(request)
    return {
        "StreamDescriptionSummary": {
            **_description(stream),
            "OpenShardCount": len(stream.open_shards),
            "ConsumerCount": len(stream.consumers),
            "MaxRecordSizeInKiB": stream.max_record_bytes // 1024,
        }
    }


def describe_stream(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    listed = [shard for shard in stream.shards.values() if shard.shard_id > request.get("ExclusiveStartShardId", "")]
    page = listed[: request.get("Limit", DESCRIBED_SHARDS)]
    return {
        "StreamDescription": {
            **_description(stream),
            "Shards": [shard.described() for shard in page],
            "HasMoreShards": len(page) < len(listed),
        }
    }


def _description(stream: Stream) -> Body:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "RetentionPeriodHours": stream.retention_ms // HOUR_MS,
        "StreamCreationTimestamp": instant(stream.created_ms),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }


def split_shard(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    stream.require_active("SplitShard")
    at = int(request["NewStartingHashKey"])
    shard = stream.require_splittable(request["ShardToSplit"], at)
    _reshard(state, stream, lambda at_ms: stream.split(shard, at, at_ms))
    return {}


def merge_shards(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    stream.require_active("MergeShards")
    first, second = stream.require_mergeable(request["ShardToMerge"], request["AdjacentShardToMerge"])
    _reshard(state, stream, lambda at_ms: stream.merge(first, second, at_ms))
    return {}


def update_shard_count(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    stream.require_active("UpdateShardCount")
    now, target = len(stream.open_shards), request["TargetShardCount"]
    if not now / 2 <= target <= now * 2:
        raise invalid(
            "UpdateShardCount cannot scale up over double, or down below half, your current open shard count."
            f" Current open shard count: {now}. Target shard count: {target}"
        )
    _reshard(state, stream, lambda at_ms: stream.scale(target, at_ms))
    return {"StreamName": stream.name, "CurrentShardCount": now, "TargetShardCount": target, "StreamARN": stream.arn}


def _reshard(state: State, stream: Stream, apply: Callable[[int], object]) -> None:
    def done(at_ms: int) -> None:
        apply(at_ms)
        stream.status = "ACTIVE"

    state.become(stream, "UPDATING", Change(state.due_ms(), done))


def increase_retention(state: State, request: Request) -> Body:
    stream, hours = state.stream_of(request), request["RetentionPeriodHours"]
    if not stream.retention_ms < hours * HOUR_MS <= 8760 * HOUR_MS:
        raise invalid(f"RetentionPeriodHours {hours} is not more than the present one and at most 8760.")
    stream.retention_ms = hours * HOUR_MS
    return {}


def decrease_retention(state: State, request: Request) -> Body:
    stream, hours = state.stream_of(request), request["RetentionPeriodHours"]
    if not 24 * HOUR_MS <= hours * HOUR_MS < stream.retention_ms:
        raise invalid(f"RetentionPeriodHours {hours} is not less than the present one and at least 24.")
    stream.retention_ms = hours * HOUR_MS
    stream.trim(state.now_ms)
    return {}


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    "CreateStream": create_stream,
    "DeleteStream": delete_stream,
    "ListStreams": list_streams,
    "DescribeStreamSummary": describe_stream_summary,
    "DescribeStream": describe_stream,
    "SplitShard": split_shard,
    "MergeShards": merge_shards,
    "UpdateShardCount": update_shard_count,
    "IncreaseStreamRetentionPeriod": increase_retention,
    "DecreaseStreamRetentionPeriod": decrease_retention,
}
