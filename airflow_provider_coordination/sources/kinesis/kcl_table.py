"""The lease table of the Kinesis Client Library, as versions 1, 2 and 3 write it: read, never written.

An item that cannot be parsed is reported and does not stop the others. Items of the other kinds that version 3 may keep
in the same table are left out. The attributes are those of the library's lease serializers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.sources.kinesis.positions import is_number
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RejectedError

TRIM_HORIZON = "TRIM_HORIZON"
LATEST = "LATEST"
AT_TIMESTAMP = "AT_TIMESTAMP"
SHARD_END = "SHARD_END"
SENTINELS = (TRIM_HORIZON, LATEST, AT_TIMESTAMP, SHARD_END)

SETTLE_SECONDS = 15.0
"""The time between two readings of the table: by default, a worker renews each lease every 3 to 4 seconds."""

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's low-level API returns it: each value under the name of its type."""


class KclRunningError(SourceError):
    """The application of the Kinesis Client Library is still running."""


class KclStream(NamedTuple):
    """The stream of a lease in the table of a multi-stream application."""

    account: str
    name: str
    creation_epoch: int


@dataclass(frozen=True, kw_only=True)
class KclLease:
    """A lease of the Kinesis Client Library.

    :param lease_key: the item's key.
    :param shard_id: the shard.
    :param stream: its stream; None in the table of a single-stream application, which does not store it.
    :param checkpoint: a sequence number in decimal digits, or one of `SENTINELS`.
    :param sub_sequence_number: the last processed user record in the Kinesis record at the checkpoint.
    :param owner: the worker that holds it, if any.
    :param parent_shard_ids: as far as the lease stores them; version 1 may not.
    :param child_shard_ids: stored at the shard's end, by versions 2 and 3.
    :param hash_key_range: the first and the last hash key; None if version 1 wrote the lease.
    :param pending_checkpoint: a checkpoint that was prepared and never completed.
    """

    lease_key: str
    shard_id: str
    checkpoint: str
    stream: KclStream | None = None
    sub_sequence_number: int = 0
    owner: str | None = None
    parent_shard_ids: tuple[str, ...] = ()
    child_shard_ids: tuple[str, ...] = ()
    hash_key_range: tuple[int, int] | None = None
    pending_checkpoint: str | None = None

    @property
    def is_at_sequence_number(self) -> bool:
        """Whether the checkpoint is a record: the shard was read, and not to its end."""
        return self.checkpoint not in SENTINELS


class UnreadableItem(NamedTuple):
    """A lease that cannot be parsed: the item's key and the problem."""

    lease_key: str
    problem: str


@dataclass(frozen=True)
class LeaseTable:
    """The content of a lease table.

    :param leases: in the order of their keys.
    :param unreadable: items that should be leases and cannot be parsed.
    :param other_items: the number of items of each other kind.
    """

    leases: tuple[KclLease, ...]
    unreadable: tuple[UnreadableItem, ...] = ()
    other_items: Mapping[str, int] = field(default_factory=dict)


def lease_table(items: Iterable[Item]) -> LeaseTable:
    """Parse the items of a lease table."""
    leases: list[KclLease] = []
    unreadable: list[UnreadableItem] = []
    others: Counter[str] = Counter()
    for item in items:
        try:
            kind = _text(item, "entityType") or "LEASE"
            if kind == "LEASE":
                leases.append(parse_lease(item))
            else:
                others[kind] += 1
        except ValueError as error:
            unreadable.append(UnreadableItem(_key(item), str(error)))
    return LeaseTable(tuple(sorted(leases, key=lambda lease: lease.lease_key)), tuple(sorted(unreadable)), dict(others))


def parse_lease(item: Item) -> KclLease:
    """Parse a lease.

    :raises ValueError: naming the attribute that is not in the library's format.
    """
    lease_key = _required(item, "leaseKey")
    stream, shard_id = _stream_and_shard(lease_key, _text(item, "streamName"), _text(item, "shardId"))
    return KclLease(
        lease_key=lease_key,
        shard_id=shard_id,
        stream=stream,
        checkpoint=_position(_required(item, "checkpoint")),
        sub_sequence_number=_number(item, "checkpointSubSequenceNumber"),
        owner=_text(item, "leaseOwner"),
        parent_shard_ids=_names(item, "parentShardId"),
        child_shard_ids=_names(item, "childShardIds"),
        hash_key_range=_hash_key_range(item),
        pending_checkpoint=_text(item, "pendingCheckpoint"),
    )


def stream_of_key(lease_key: str) -> tuple[KclStream | None, str]:
    """Return the stream and the shard that a lease key names: `[account:stream:creation epoch:]shard`.

    :raises ValueError: if it is not such a key.
    """
    if ":" not in lease_key:
        return None, lease_key
    account, _, rest = lease_key.partition(":")
    name, _, rest = rest.partition(":")
    epoch, _, shard_id = rest.partition(":")
    if not (is_number(account) and name and is_number(epoch) and int(epoch) > 0 and shard_id):
        raise ValueError(f"leaseKey {lease_key!r} is not <account>:<stream>:<creation epoch>:<shard>")
    return KclStream(account, name, int(epoch)), shard_id


def read_items(call: DynamoDbCalls) -> list[Item]:
    """Return every item of a table, from consistent reads.

    :param call: makes calls to the lease table.
    :raises ConfigurationError: if the table does not exist, or access is denied.
    :raises StoreUnavailableError: if DynamoDB is unavailable.
    """
    pages = call.pages("scan", expect=("ResourceNotFoundException",), ConsistentRead=True)
    try:
        return [item for page in pages for item in page["Items"]]
    except RejectedError:
        raise ConfigurationError(
            f"the lease table {call.name} does not exist; it has the name of the Kinesis Client Library application; "
            "check the name, the region, the account and the endpoint"
        ) from None


def read_stable_items(
    call: DynamoDbCalls,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Item]:
    """Return every item of a table that no application writes to: it is read twice, and nothing may change.

    :param call: makes calls to the lease table.
    :param settle_seconds: the wait between the readings; longer than the application's renewal interval.
    :param sleep: waits that many seconds.
    :raises KclRunningError: if an item changed.
    :raises ConfigurationError: as `read_items`.
    """
    before = read_items(call)
    sleep(settle_seconds)
    after = read_items(call)
    check_unchanged(before, after)
    return after


def check_unchanged(before: Iterable[Item], after: Iterable[Item]) -> None:
    """Check that two readings of a table are equal.

    Every write of the library changes the lease's counter; the other items of version 3 have heartbeats too.

    :raises KclRunningError: naming the items that changed.
    """
    first, second = ({_key(item): _comparable(item) for item in items} for items in (before, after))
    moved = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    if moved:
        raise KclRunningError(
            f"the application still writes to its lease table: {first_of(moved, 5)} changed between two readings; "
            "stop all its workers and import again"
        )


def _stream_and_shard(lease_key: str, stream_name: str | None, shard: str | None) -> tuple[KclStream | None, str]:
    stream, shard_id = stream_of_key(lease_key)
    if shard is not None and shard != shard_id:
        raise ValueError(f"shardId {shard!r} is not the shard of leaseKey {lease_key!r}")
    if stream_name is not None and f"{stream_name}:{shard_id}" != lease_key:
        raise ValueError(f"streamName {stream_name!r} is not the stream of leaseKey {lease_key!r}")
    return stream, shard_id


def _position(text: str) -> str:
    if text in SENTINELS:
        return text
    if not is_number(text):
        raise ValueError(f"checkpoint {text!r} is neither a sequence number nor one of {', '.join(SENTINELS)}")
    return str(int(text))


def _hash_key_range(item: Item) -> tuple[int, int] | None:
    start, end = _text(item, "startingHashKey"), _text(item, "endingHashKey")
    if start is None and end is None:
        return None
    if not (start and end and is_number(start) and is_number(end)):
        raise ValueError(f"startingHashKey {start!r} and endingHashKey {end!r} are not two numbers")
    return int(start), int(end)


def _key(item: Item) -> str:
    return str(item.get("leaseKey", {}).get("S", "?"))


def _comparable(item: Item) -> dict[str, Any]:
    # A set has no order, so two responses may list it differently.
    return {name: {k: sorted(v) if k == "SS" else v for k, v in value.items()} for name, value in item.items()}


def _required(item: Item, name: str) -> str:
    text = _text(item, name)
    if not text:
        raise ValueError(f"{name} is missing")
    return text


def _text(item: Item, name: str) -> str | None:
    value = _value(item, name, "S")
    return None if value is None else str(value)


def _number(item: Item, name: str) -> int:
    text = _value(item, name, "N")
    if text is None:
        return 0
    if not is_number(str(text)):
        raise ValueError(f"{name} {text!r} is not a whole number of at least 0")
    return int(text)


def _names(item: Item, name: str) -> tuple[str, ...]:
    return tuple(sorted(_value(item, name, "SS") or ()))


def _value(item: Item, name: str, kind: str) -> Any:
    value = item.get(name)
    if value is None or "NULL" in value:
        return None
    if kind not in value:
        raise ValueError(f"{name} is of type {', '.join(value)} and not {kind}")
    return value[kind]


@dataclass(frozen=True)
class StreamLeases:
    """The leases of a table that belong to one stream, as far as that is known.

    :param by_shard: the valid leases, by shard.
    :param unreadable: the leases that cannot be parsed.
    :param doubtful: leases of a single-stream application in a table that also has leases of a multi-stream one.
    :param earlier: leases of a deleted stream of the same name.
    :param other_streams: the number of leases of other streams.
    """

    by_shard: Mapping[str, KclLease]
    unreadable: tuple[UnreadableItem, ...]
    doubtful: tuple[KclLease, ...]
    earlier: tuple[KclLease, ...]
    other_streams: int

    @property
    def leased(self) -> Set[str]:
        """The shards that have a lease, readable or not."""
        doubtful = {lease.shard_id for lease in self.doubtful} | {shard_of(item) for item in self.unreadable}
        return self.by_shard.keys() | doubtful

    def is_finished(self, shard_id: str) -> bool:
        """Return whether a shard is finished: it has no lease any more, or a lease at its end."""
        if shard_id in self.by_shard:
            return self.by_shard[shard_id].checkpoint == SHARD_END
        return shard_id not in self.leased

    @classmethod
    def of(cls, table: LeaseTable, stream: StreamDescription, account: str | None) -> StreamLeases:
        """Return the leases of a stream.

        :param table: the lease table.
        :param stream: the stream as it is now.
        :param account: the account of the stream; None if the table has leases of one account only.
        :raises ConfigurationError: if no account is given and the table has leases of several.
        """
        of_many_streams = any(lease.stream for lease in table.leases)
        by_shard: dict[str, KclLease] = {}
        doubtful: list[KclLease] = []
        earlier: list[KclLease] = []
        accounts: set[str] = set()
        others = 0
        for lease in table.leases:
            if lease.stream is None:
                if of_many_streams:
                    doubtful.append(lease)
                else:
                    by_shard[lease.shard_id] = lease
            elif lease.stream.name != stream.name or account not in (None, lease.stream.account):
                others += 1
            else:
                accounts.add(lease.stream.account)
                if lease.stream.creation_epoch == stream.creation_epoch:
                    by_shard[lease.shard_id] = lease
                else:
                    earlier.append(lease)
        if len(accounts) > 1:
            raise ConfigurationError(
                f"the lease table holds leases of streams named {stream.name!r} in the accounts "
                f"{', '.join(sorted(accounts))}; give the account of the stream to import"
            )
        unreadable = [item for item in table.unreadable if _may_be_of(item, stream.name)]
        others += len(table.unreadable) - len(unreadable)
        return cls(by_shard, tuple(unreadable), tuple(doubtful), tuple(earlier), others)


def shard_of(item: UnreadableItem) -> str:
    """Return the shard that the key of an unreadable lease names."""
    return item.lease_key.rpartition(":")[2]


def _may_be_of(item: UnreadableItem, stream: str) -> bool:
    try:
        named, _ = stream_of_key(item.lease_key)
    except ValueError:
        return True
    return named is None or named.name == stream
