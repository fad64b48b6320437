"""Claims: which names of a source belong to a partition already, so that none is ever in two.

A supplier that packs many small things into partitions claims the name of each: an object with its version, a file, an
export. A claim is an item of its own, written in the transaction that creates the partition, under the supplier's lease
on the global state: whoever lost that lease meanwhile writes nothing, so what was read as unclaimed under it still is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import (
    MAX_KEY_BYTES,
    Partition,
    PartitionStatus,
    new_partition,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions

FAMILY = "CLAIM"
AROUND_CREATION = timedelta(minutes=5)
"""A partition's version is the microsecond of its creation and one more with each write."""
BESIDE_CLAIMS = 2
"""What a transaction holds beside a partition's claims: the partition, and the global state."""


class Claims:
    """The claims of one source.

    :param store: where they are.
    :param source_identifier: their family, `[prefix|]source|CLAIM`.
    :param clock: where the time comes from.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._clock = clock

    @property
    def room(self) -> int:
        """How many names one partition may claim: they are written in one transaction."""
        return self._store.transaction_items - BESIDE_CLAIMS

    def unclaimed(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that belong to no partition, in their order, each once.

        What a supplier is told holds until its next page is created, while it holds the global state.
        """
        keys = {claim_key(name): name for name in reversed(names)}
        claimed = self._store.known(self._source_identifier, list(keys))
        return [name for name in dict.fromkeys(names) if claim_key(name) not in claimed]

    def partition_of(self, name: str) -> str | None:
        """Return the key of the partition that a name belongs to; None if it belongs to none."""
        claim = self._store.get(self._source_identifier, claim_key(name))
        return None if claim is None else str(claim.progress.get("partition"))

    def release(self, names: Iterable[str]) -> int:
        """Forget names: when they are seen again they are new. Return how many were claimed.

        Release only what is not there any more: what is would be read a second time.
        """
        claims = (self._store.get(self._source_identifier, claim_key(name)) for name in names)
        return sum(self._release(claim) for claim in claims if claim is not None)

    def release_of(self, partition: Partition) -> int:
        """Forget the names of a partition that was deleted; return how many there were.

        They are looked for among those that were claimed when the partition was created, as its version tells.
        """
        created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=partition.version)
        claimed = all_partitions(
            self._store, self._source_identifier, PartitionStatus.COMPLETED, since=created - AROUND_CREATION
        )
        near = takewhile(lambda claim: claim.priority <= created + AROUND_CREATION, claimed)
        key = partition.partition_key
        return sum(self._release(claim) for claim in near if claim.progress.get("partition") == key)

    def _release(self, claim: Partition) -> bool:
        try:
            self._store.delete(claim)
        except PartitionUpdateError:  # released by somebody else, and perhaps claimed anew
            return False
        return True

    def of(self, partition_key: str, names: Sequence[str]) -> list[Partition]:
        """Return the claims of a partition as they are created.

        :raises ConfigurationError: if they are more than a transaction takes.
        """
        keys = list(dict.fromkeys(map(claim_key, names)))
        if len(keys) > self.room:
            raise ConfigurationError(
                f"partition {partition_key!r} claims {len(keys)} names, and a transaction of store "
                f"{self._store.kind!r} has room for {self.room}: pack fewer into one, as Claims.room says"
            )
        now = self._clock.now()
        first = new_partition(self._source_identifier, "", now)
        claim = first.with_progress({"partition": partition_key}).completed(now)
        return [replace(claim, partition_key=key) for key in keys]


def claim_key(name: str) -> str:
    """Return the key of a name's claim: the name, or its beginning and a digest where no store could hold it.

    :raises ConfigurationError: if the name is empty or not valid Unicode.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"a name that is claimed must be valid Unicode; got {name[:80]!r}") from None
    if not name:
        raise ConfigurationError("a name that is claimed must not be empty")
    if len(encoded) <= MAX_KEY_BYTES and "\0" not in name and not _is_shortened(name):
        return name
    beginning = encoded[: MAX_KEY_BYTES - 100].decode(errors="ignore").replace("\0", "")
    return f"{beginning}{_MARK}{hashlib.sha256(encoded).hexdigest()}"


_MARK = "...sha256:"


def _is_shortened(name: str) -> bool:
    """Tell whether a name looks like the key of another, longer one."""
    return name[:-64].endswith(_MARK)
