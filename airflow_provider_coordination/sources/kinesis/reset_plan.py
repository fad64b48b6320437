"""Which shards of a stream are read anew, and which wait, when a person sets the position of the whole stream.

Pure decisions, no I/O. The rule: what is to be read anew begins at its oldest shards. The leases of the shards that
came from them are removed; each comes back, in the same epoch, when the shards that it came from are finished, so that
parents are read before children as always. A shard whose lease was cleaned up, and that the stream still has, is leased
again.

Neither the Kinesis Client Library nor Samza can do this but by a new lease table; Druid can, and keeps no order between
parents and children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.sources.kinesis.shard_leases import Leases
from airflow_provider_coordination.sources.kinesis.shards import Shard


@dataclass(frozen=True, kw_only=True)
class StreamReset:
    """What becomes of the shards of a stream whose position is set.

    :param epoch: above that of every lease of the stream.
    :param begin: the shards that are read anew first, and have a lease; ancestors first.
    :param create: those that have none any more.
    :param remove: the shards whose leases are removed until those before them are finished; ancestors first, so that a
        shard sync in between takes none of them for due.
    :param left: the shards that stay as they are, and why.
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
    """Decide what becomes of each shard of a stream.

    :param leases: the shards that have a partition.
    :param listed: what ListShards returned, every shard still listed.
    :param since: the instant (aware) from which on the stream is read; None for its earliest record.
    :param unfinished_only: leave all that is finished, since nothing of it is wanted: the stream is read from now on.
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
                else "the stream no longer has the shard: what was not read of it cannot be read any more"
            )
        elif lease.is_finished and unfinished_only:
            left[name] = "finished: it takes no more records"
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
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def _start_of(shard: Shard | None) -> int:
    return int(shard.starting_sequence_number) if shard else 0
