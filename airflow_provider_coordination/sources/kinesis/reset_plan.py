"""Which shards of a stream are read again, and which wait, when a user resets the whole stream. Pure decisions, no I/O.

The rule: reading starts again at the oldest shards. The leases of their descendants are removed. Each one is created
again, in the same epoch, when its parents are finished, so that parents are read before children as always. A shard
whose lease was cleaned up is leased again if the stream still has it.

The Kinesis Client Library and Samza need a new lease table for this. Druid does not, but keeps no order between parents
and children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.sources.kinesis.shard_leases import Leases
from airflow_provider_coordination.sources.kinesis.shards import Shard


@dataclass(frozen=True, kw_only=True)
class StreamReset:
    """What happens to the shards of a stream that is reset.

    :param epoch: greater than the epoch of every lease of the stream.
    :param begin: the shards with a lease that are read again first; ancestors first.
    :param create: the shards to read first whose leases were cleaned up.
    :param remove: the shards whose leases are removed until their parents are finished; ancestors first, so that a
        shard sync in between does not create any of them.
    :param left: the shards that stay as they are, and the reasons.
    """

    epoch: int
    begin: tuple[str, ...] = ()
    create: tuple[Shard, ...] = ()
    remove: tuple[str, ...] = ()
    left: Mapping[str, str]


def plan_stream_reset(
    leases: Leases,
    listed: Sequence[Shard],
    *,
    since: datetime | None = None,
    unfinished_only: bool = False,
) -> StreamReset:
    """Decide what happens to each shard of a stream.

    :param leases: the shards that have a partition.
    :param listed: what ListShards returned, every shard still listed.
    :param since: the instant (aware) from which on the stream is read; None for its earliest record.
    :param unfinished_only: keep finished shards as they are: the stream is read from now on, so they are not needed.
    """
    shards = {shard.shard_id: shard for shard in listed}
    parents = _parents(leases, shards)
    left = _left(leases, shards, parents, since=since, unfinished_only=unfinished_only)
    wanted = [name for name in leases if name not in left]
    passed = _ancestors(left, parents)
    cleaned_up = [
        name
        for name in _ancestors(leases, parents)
        if name in shards and name not in leases and name not in passed and not unfinished_only
    ]
    begun = {*wanted, *cleaned_up}
    first = {name for name in begun if not begun & _ancestors([name], parents)}
    order = sorted(begun, key=lambda name: (_start_of(shards.get(name)), name))
    return StreamReset(
        epoch=1 + max((lease.progress.epoch for lease in leases.values() if lease.progress), default=0),
        begin=tuple(name for name in order if name in first and name in leases),
        create=tuple(shards[name] for name in order if name in first and name not in leases),
        remove=tuple(name for name in order if name not in first and name in leases),
        left=left,
    )


def _left(
    leases: Leases,
    shards: Mapping[str, Shard],
    parents: Mapping[str, set[str]],
    *,
    since: datetime | None,
    unfinished_only: bool,
) -> dict[str, str]:
    left = {}
    for name, lease in leases.items():
        until = lease.progress.delivered_until if lease.progress is not None else None
        if name not in shards:
            left[name] = (
                "finished, and the stream no longer has the shard"
                if lease.is_finished
                else "the stream no longer has the shard: its unread records are gone"
            )
        elif lease.is_finished and unfinished_only:
            left[name] = "finished: it receives no more records"
        elif lease.is_finished and since is not None and until is not None and until < since:
            left[name] = "finished: all of it arrived before that instant"
    for name in _ancestors([name for name in left if leases[name].is_finished], parents):
        if name in leases and leases[name].is_finished and name not in left:
            left[name] = "finished, and so is a shard that came from it, before that instant"
    return left


def _parents(leases: Leases, shards: Mapping[str, Shard]) -> dict[str, set[str]]:
    parents: dict[str, set[str]] = {name: set(shard.parent_shard_ids) for name, shard in shards.items()}
    for name, lease in leases.items():
        parents.setdefault(name, set()).update(lease.progress.parent_shard_ids if lease.progress else ())
    return parents


def _ancestors(names: Iterable[str], parents: Mapping[str, set[str]]) -> set[str]:
    ancestors: set[str] = set()
    waiting = list(names)
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in ancestors:
                ancestors.add(parent)
                waiting.append(parent)
    return ancestors


def _start_of(shard: Shard | None) -> int:
    return int(shard.starting_sequence_number) if shard else 0
