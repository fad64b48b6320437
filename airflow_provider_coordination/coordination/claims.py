"""Claims: which names of a source already belong to a partition, so that none is ever in two.

A supplier that packs many small things into partitions claims the name of each one: an object with its version, a file,
an export. A claim is a separate item, which is written in the transaction that creates the partition. The store
refuses the transaction if the name is already claimed, by an earlier page or by a source that shares the claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import (
    MAX_KEY_BYTES,
    Partition,
    PartitionStatus,
    format_instant,
    new_partition,
    parse_instant,
    parse_source_identifier,
    source_identifier,
    with_keys,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions

FAMILY = "CLAIM"
SHARED_FAMILY, SHARED_KEY, FORGOTTEN_KEY = "SHARED_CLAIMS", "OF", "FORGOTTEN"
AROUND_CREATION = timedelta(minutes=5)
"""The search range around a partition's creation time. The version is that time in microseconds plus its writes."""
BESIDE_CLAIMS = 2
"""The other items in a transaction with a partition's claims: the partition and the global state."""


class Claims:
    """The claims of one source, or the claims of another source that it shares.

    :param store: the store of the claims.
    :param source_identifier: their family, `[prefix|]source|CLAIM`.
    :param clock: the source of time.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._own_identifier = source_identifier
        self._used_identifier: str | None = None
        self._clock = clock

    def share(self, source_identifier: str) -> None:
        """Share the claims of another source from now on, in every process: a name belongs to only one of the two.

        :param source_identifier: the family of the other source's claims; the source need not exist yet.
        :raises ConfigurationError: if this source has its own claims or shares others, or if the other source shares
            claims itself.
        """
        source, other = (parse_source_identifier(name).source for name in (self._own_identifier, source_identifier))
        if source_identifier == self._own_identifier:
            raise ConfigurationError(f"source {source!r} cannot share its own claims: give another source")
        if (theirs := self._shared_by(source_identifier)) is not None:
            raise ConfigurationError(
                f"source {other!r} does not have its own claims, but shares those of "
                f"{parse_source_identifier(theirs).source!r}: give that source"
            )
        known = self._shared_by(self._own_identifier)
        if known is None:
            if self._store.query(self._own_identifier, PartitionStatus.COMPLETED, limit=1):
                raise ConfigurationError(
                    f"source {source!r} already has its own claims, so it cannot share those of {other!r}: give it "
                    "another name, or delete its partitions"
                )
            item = new_partition(_sharing(self._own_identifier), SHARED_KEY, self._clock.now())
            self._store.create([item.with_progress({"claims": source_identifier})])
            known = self._shared_by(self._own_identifier)
        if known != source_identifier:
            raise ConfigurationError(
                f"source {source!r} already shares the claims of {parse_source_identifier(known or '').source!r}, not "
                f"those of {other!r}: give it another name, or give the source whose claims it shares"
            )
        self._used_identifier = source_identifier

    @property
    def _source_identifier(self) -> str:
        """The family of the claims in use."""
        if self._used_identifier is None:
            self._used_identifier = self._shared_by(self._own_identifier) or self._own_identifier
        return self._used_identifier

    def _shared_by(self, source_identifier: str) -> str | None:
        item = self._store.get(_sharing(source_identifier), SHARED_KEY)
        return None if item is None else str(item.progress.get("claims"))

    def _content(self, partition_key: str) -> dict[str, str]:
        """Return the content of a claim of a partition of this source."""
        shared = self._source_identifier != self._own_identifier
        by = {"source": parse_source_identifier(self._own_identifier).source} if shared else {}
        return {"partition": partition_key, **by}

    @property
    def room(self) -> int:
        """The maximum number of names that one partition may claim, because one transaction writes them all."""
        return self._store.transaction_items - BESIDE_CLAIMS

    def unclaimed(self, names: Sequence[str]) -> list[str]:
        """Return the names that belong to no partition, in order and without duplicates.

        The result is valid until the supplier's next page is created, unless another source shares the claims. In that
        case the store may refuse the page, and the supplier runs again.
        """
        keys = {name: claim_key(name) for name in names}
        claimed = self._store.existing_keys(self._source_identifier, list(keys.values()))
        return [name for name, key in keys.items() if key not in claimed]

    def partition_of(self, name: str) -> str | None:
        """Return the key of the partition that a name belongs to; None if it belongs to none."""
        claim = self._store.get(self._source_identifier, claim_key(name))
        return None if claim is None else str(claim.progress.get("partition"))

    def partitions_of(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the partitions that names belong to: the family of each one and its key, by name."""
        keys = {name: claim_key(name) for name in names}
        claims = self._store.get_many(self._source_identifier, list(keys.values()))
        return {name: self._partition(claims[key].progress) for name, key in keys.items() if key in claims}

    def _partition(self, claim: Mapping[str, Any]) -> tuple[str, str]:
        prefix, source, _ = parse_source_identifier(self._source_identifier)
        return source_identifier(str(claim.get("source", source)), prefix=prefix), str(claim.get("partition"))

    def release(self, names: Iterable[str]) -> int:
        """Release names, which are new when they are found again; return the number of names that were claimed.

        Release only names of things that no longer exist; others would be read a second time.
        """
        claims = (self._store.get(self._source_identifier, claim_key(name)) for name in names)
        return sum(self._release(claim) for claim in claims if claim is not None)

    def forgotten_before(self) -> datetime | None:
        """Return the instant (aware) before which nothing counts as new; None if no names were forgotten by age.

        Call it after `unclaimed`, whose result may contain a name that was forgotten a moment ago.
        """
        item = self._store.get(_sharing(self._source_identifier), FORGOTTEN_KEY)
        return None if item is None else parse_instant(str(item.progress.get("before")))

    def forget(self, before: datetime, *, claimed_before: datetime, limit: int) -> int:
        """Forget names by the age of their claims, the oldest first; return the number of forgotten names.

        First, `before` is recorded for every source that uses these claims: nothing older counts as new. A later
        recorded instant is kept.

        :param before: an instant (aware) that is later than everything that was claimed before `claimed_before`.
        :param claimed_before: forget names that were claimed before this instant (aware).
        :param limit: the maximum number of names to forget.
        """
        self._note_forgotten(before)
        claims = all_partitions(self._store, self._source_identifier, PartitionStatus.COMPLETED)
        old = takewhile(lambda claim: claim.priority < claimed_before, claims)
        return sum(self._release(claim) for claim in islice(old, limit))

    def _note_forgotten(self, before: datetime) -> None:
        family = _sharing(self._source_identifier)
        noted = {"before": format_instant(before)}
        while (known := self.forgotten_before()) is None or known < before:
            item = self._store.get(family, FORGOTTEN_KEY)
            if item is None:
                first = new_partition(family, FORGOTTEN_KEY, self._clock.now())
                self._store.create([first.with_progress(noted)])
                continue
            with suppress(PartitionUpdateError):  # another source that uses these claims records an instant as well
                self._store.transact(update=[item.with_progress(noted)])

    def release_of(self, partition: Partition) -> int:
        """Release the names of a deleted partition; return their number.

        They are searched among the claims made at the partition's creation, whose time follows from its version.
        """
        created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=partition.version)
        claimed = all_partitions(
            self._store, self._source_identifier, PartitionStatus.COMPLETED, since=created - AROUND_CREATION
        )
        near = takewhile(lambda claim: claim.priority <= created + AROUND_CREATION, claimed)
        content = self._content(partition.partition_key)
        return sum(self._release(claim) for claim in near if claim.progress == content)

    def release_all(self) -> int:
        """Release all names of this source; return their number. Names that it forgot by age count as new again."""
        claims = all_partitions(self._store, self._source_identifier, PartitionStatus.COMPLETED)
        own = self._content("").get("source")
        released = sum(self._release(claim) for claim in claims if claim.progress.get("source") == own)
        if self._source_identifier == self._own_identifier:
            note = self._store.get(_sharing(self._own_identifier), FORGOTTEN_KEY)
            if note is not None:
                self._release(note)
        return released

    def _release(self, claim: Partition) -> bool:
        try:
            self._store.delete(claim)
        except PartitionUpdateError:  # another process released it, and it may be claimed again
            return False
        return True

    def of(self, partition_key: str, names: Sequence[str]) -> list[Partition]:
        """Return new claims for a partition.

        :raises ConfigurationError: if there are more than fit into a transaction.
        """
        keys = list(dict.fromkeys(map(claim_key, names)))
        if len(keys) > self.room:
            raise ConfigurationError(
                f"partition {partition_key!r} claims {len(keys)} names; a transaction of store {self._store.kind!r} "
                f"has room for {self.room}. Put fewer names into one partition, see Claims.room"
            )
        now = self._clock.now()
        first = new_partition(self._source_identifier, "", now)
        claim = first.with_progress(self._content(partition_key)).completed(now)
        return with_keys(claim, keys)


def claim_key(name: str) -> str:
    """Return the key of a name's claim: the name, or its start and a digest if the name is no valid key.

    :raises ConfigurationError: if the name is empty or not valid Unicode.
    """
    if 0 < len(name) <= MAX_KEY_BYTES and name.isascii() and "\0" not in name and not _is_shortened(name):
        return name  # the usual case
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"claimed name {name[:80]!r} is not valid Unicode; give another name") from None
    if not name:
        raise ConfigurationError("claimed name '' is empty; give a name that is not empty")
    if len(encoded) <= MAX_KEY_BYTES and "\0" not in name and not _is_shortened(name):
        return name
    start = encoded[: MAX_KEY_BYTES - 100].decode(errors="ignore").replace("\0", "")
    return f"{start}{_MARK}{hashlib.sha256(encoded).hexdigest()}"


def _sharing(source_identifier: str) -> str:
    """Return the family of the item that records which source's claims are shared."""
    return f"{source_identifier.removesuffix(FAMILY)}{SHARED_FAMILY}"


_MARK = "...sha256:"


def _is_shortened(name: str) -> bool:
    """Return whether a name looks like the shortened key of a longer name."""
    return name.endswith(_MARK, 0, -64)
