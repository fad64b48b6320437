"""The partition keys of shards."""

from __future__ import annotations

from typing import NamedTuple


class ShardKey(NamedTuple):
    """The parts of a shard's partition key."""

    stream: str
    creation_epoch: int
    shard_id: str


def partition_key(stream: str, creation_epoch: int, shard_id: str) -> str:
    """Return the key of a shard's partition: `<stream>:<creation epoch>:<shard id>`.

    The epoch distinguishes a stream that was deleted and created again, as in the Kinesis Client Library.

    :param stream: the stream's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    :param shard_id: the shard's name.
    """
    return f"{stream}:{creation_epoch}:{shard_id}"


def parse_partition_key(text: str) -> ShardKey:
    """Parse a key that `partition_key` made.

    :raises ValueError: if the text is not such a key.
    """
    stream, _, rest = text.partition(":")
    epoch, _, shard_id = rest.partition(":")
    if not (stream and shard_id and ":" not in shard_id and epoch.isascii() and epoch.isdigit() and int(epoch) > 0):
        raise ValueError(f"partition key '{text}' is not <stream>:<creation epoch in seconds>:<shard id>")
    return ShardKey(stream, int(epoch), shard_id)


def sibling_key(key: str, shard_id: str) -> str:
    """Return the key of another shard of the same stream.

    :param key: a shard's partition key.
    :raises ValueError: if it is not such a key.
    """
    parsed = parse_partition_key(key)
    return partition_key(parsed.stream, parsed.creation_epoch, shard_id)
