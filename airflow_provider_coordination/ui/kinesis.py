"""The shards of a source as a family tree. It is built from the store alone, without a request to the source.

Shards of Kinesis have hash keys. Those of DynamoDB Streams have their lineage only, and may wait for a history.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Response

from airflow_provider_coordination.coordination.browsing import state_of
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.dynamodb.kind import history_of
from airflow_provider_coordination.sources.kinds import inspect_partition, known_kind
from airflow_provider_coordination.sources.kinesis.leases import (
    Leases,
    ShardLease,
    StreamKey,
    hash_range_of,
    holes_between,
    leases_by_stream,
)
from airflow_provider_coordination.sources.kinesis.progress import ShardRange, parse_partition_key
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import KindPages, Owner, known_owner
from airflow_provider_coordination.ui.store_queries import SOURCE, Queries, query_response

MAX_PARTITIONS = 20_000
SAMPLED_PER_STATUS = 500
"""How many partitions of a status are read before it is taken to have no shards."""
UNLEASED = "unleased"

Streams = dict[StreamKey, dict[str, ShardLease]]
Histories = dict[StreamKey, Counter[str]]


@dataclass(frozen=True, kw_only=True)
class ShardNode:
    """A shard. One without a partition is `unleased`: only its parents or children name it."""

    shard_id: str
    partition_key: str | None
    state: str
    owner: Owner | None = None
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    starting_hash_key: str | None = None
    ending_hash_key: str | None = None
    lag: float | None = None
    version: int | None = None
    is_ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Hole:
    """A range of hash keys that no shard lease covers, both ends included."""

    starting_hash_key: str
    ending_hash_key: str


@dataclass(frozen=True, kw_only=True)
class StreamTree:
    """The shards of one stream, which was created in this epoch. Parents come before children.

    `history` is the number of partitions in each state that its shards wait for, until all are completed: the items of
    a table that is followed. It is empty for other streams.
    """

    stream: str
    epoch: int
    shards: list[ShardNode]
    holes: list[Hole]
    history: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class ShardTrees:
    """The shards of a source. `complete` is whether every partition was read."""

    as_of: datetime
    streams: list[StreamTree]
    complete: bool


class ShardPages(KindPages):
    """The pages of sources whose partitions are shards; a `KindPages`."""

    @property
    @override
    def names(self) -> Sequence[str]:
        return ("shards",)

    @override
    def router(self) -> APIRouter:
        routes = APIRouter()
        routes.get(SOURCE + "/shards", dependencies=[may_read_connection()], response_model=ShardTrees)(shards)
        return routes

    @override
    def details(self, partition: Partition, now: datetime) -> Mapping[str, Any]:
        node = node_of(partition, now)
        return {} if node is None else {"shard": node}


PAGES = ShardPages()


async def shards(queries: Queries, connection_id: str, source: str) -> Response:
    """Return the shards of a source, stream by stream, with the ranges of hash keys that no lease covers."""
    return await query_response(
        queries,
        connection_id,
        ("shards", source),
        lambda: queries.stores.query_source(connection_id, source, shard_trees),
    )


def shard_trees(view: SourceView) -> ShardTrees:
    """Return the shards of a source, stream by stream."""
    now = view.clock.now()
    streams, histories, is_complete = _streams(view, now)
    suspects = {key: holes for key, leases in streams.items() if (holes := set(holes_between(leases)))}
    if suspects:  # a lease that moves during a read may be missed, but not twice
        again, _, _ = _streams(view, now, streams)
        suspects = {key: holes & set(holes_between(again.get(key, {}))) for key, holes in suspects.items()}
    return ShardTrees(
        as_of=now,
        streams=[
            StreamTree(
                stream=key.stream,
                epoch=key.creation_epoch,
                shards=_nodes(streams.get(key, {}), now),
                history=dict(histories.get(key, {})),
                holes=[
                    Hole(starting_hash_key=str(hole.first), ending_hash_key=str(hole.last))
                    for hole in sorted(suspects.get(key, ()))
                    if is_complete
                ],
            )
            for key in sorted({*streams, *histories})
        ],
        complete=is_complete,
    )


def node_of(partition: Partition, now: datetime) -> ShardNode | None:
    """Return the shard of a partition, with the relatives that its progress names; None if it is for no shard."""
    if not is_shard(partition):
        return None
    [leases] = leases_by_stream([partition]).values()
    [lease] = leases.values()
    children = () if lease.progress is None else lease.progress.children
    return _leased(lease, [child.shard_id for child in children], now)


def is_shard(partition: Partition) -> bool:
    """Return whether a partition is for a shard, by its progress, or by its key if the progress is unreadable."""
    if partition.unreadable_progress is None:
        kind = known_kind(partition)
        return kind is not None and kind.stream_of(partition.partition_key) is not None
    try:
        return parse_partition_key(partition.partition_key).shard_id.startswith("shardId-")
    except ValueError:
        return False


def _streams(view: SourceView, now: datetime, known: Streams | None = None) -> tuple[Streams, Histories, bool]:
    """Return the leases of shards and the states of histories, stream by stream, and whether every partition was read.

    :param view: the source.
    :param now: the current time (aware).
    :param known: the result of an earlier read. The progress of partitions that have not changed is not parsed again.
    """
    before = {} if known is None else {p.partition_key: p for p in _partitions_of(known)}
    changed: list[Partition] = []
    streams: Streams = {}
    histories: Histories = defaultdict(Counter)
    is_complete = True
    for number, partition in enumerate(_candidates(view)):
        if number >= MAX_PARTITIONS:
            is_complete = False
            break
        if partition.partition_key in before and before[partition.partition_key].version == partition.version:
            key = parse_partition_key(partition.partition_key)
            stream = StreamKey(key.stream, key.creation_epoch)
            streams.setdefault(stream, {})[key.shard_id] = (known or {})[stream][key.shard_id]
        elif is_shard(partition):
            changed.append(partition)
        elif (history := history_of(partition)) is not None:
            histories[StreamKey(*history)][state_of(partition, now).value] += 1
    for stream, leases in leases_by_stream(changed).items():
        streams.setdefault(stream, {}).update(leases)
    return streams, histories, is_complete


def _candidates(view: SourceView) -> Iterator[Partition]:
    """Yield the partitions that may be shards. A status whose first partitions are of no stream is cut short."""
    for status in PartitionStatus:
        has_shards = False
        for number, partition in enumerate(view.partitions(status)):
            has_shards = has_shards or is_shard(partition) or history_of(partition) is not None
            if number >= SAMPLED_PER_STATUS and not has_shards:
                break
            yield partition


def _partitions_of(streams: Streams) -> Iterator[Partition]:
    return (lease.partition for leases in streams.values() for lease in leases.values())


def _nodes(leases: Leases, now: datetime) -> list[ShardNode]:
    """Return the shards of one stream, parents before children, including those that only their relatives name."""
    children: dict[str, list[str]] = defaultdict(list)
    named: dict[str, ShardRange] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for name, lease in leases.items():
        if lease.progress is None:
            continue
        parents[name] = lease.progress.parent_shard_ids
        for child in lease.progress.children:
            named[child.shard_id] = child
    parents = {name: child.parent_shard_ids for name, child in named.items()} | parents
    for name, those in parents.items():
        for parent in those:
            children[parent].append(name)
    known = {*leases, *parents, *children}
    return [
        _leased(leases[name], sorted(children[name]), now)
        if name in leases
        else _unleased(name, named.get(name), parents.get(name, ()), sorted(children[name]))
        for name in _in_order(known, parents)
    ]


def _leased(lease: ShardLease, children: list[str], now: datetime) -> ShardNode:
    partition, progress = lease.partition, lease.progress
    hash_range = hash_range_of(lease)
    return ShardNode(
        shard_id=lease.key.shard_id,
        partition_key=partition.partition_key,
        state=state_of(partition, now).value,
        owner=known_owner(partition.owner),
        parents=[] if progress is None else list(progress.parent_shard_ids),
        children=children,
        starting_hash_key=None if hash_range is None else str(hash_range.first),
        ending_hash_key=None if hash_range is None else str(hash_range.last),
        lag=inspect_partition(partition, now).lag,
        version=partition.version,
        is_ended=progress is not None and progress.is_ended,
    )


def _unleased(name: str, shard: ShardRange | None, parents: Iterable[str], children: list[str]) -> ShardNode:
    hash_keys = None if shard is None else shard.hash_keys
    return ShardNode(
        shard_id=name,
        partition_key=None,
        state=UNLEASED,
        parents=list(parents),
        children=children,
        starting_hash_key=None if hash_keys is None else str(hash_keys.first),
        ending_hash_key=None if hash_keys is None else str(hash_keys.last),
        is_ended=bool(children),
    )


def _in_order(names: Iterable[str], parents: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the shards by generation, then by name. Shards in a cycle, which Kinesis never has, come last."""
    known = set(names)
    waits_for = {name: set(parents.get(name, ())) & known for name in known}
    children: dict[str, list[str]] = defaultdict(list)
    for name, those in waits_for.items():
        for parent in those:
            children[parent].append(name)
    ordered: list[str] = []
    generation = sorted(name for name, those in waits_for.items() if not those)
    while generation:
        ordered += generation
        following = set()
        for parent in generation:
            for child in children[parent]:
                waits_for[child].discard(parent)
                if not waits_for[child]:
                    following.add(child)
        generation = sorted(following)
    return ordered + sorted(name for name, those in waits_for.items() if those)
