"""The leases of one stream in a lease table of the Kinesis Client Library."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.kcl_table import (
    SHARD_END,
    KclLease,
    LeaseTable,
    UnreadableItem,
    stream_of_key,
)
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription


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
