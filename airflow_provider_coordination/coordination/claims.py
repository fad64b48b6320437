"""Claims: which names of a source belong to a partition already, so that none is ever in two.

A supplier that packs many small things into partitions claims the name of each: an object with its version, a file, an
export. A claim is an item of its own, written in the transaction that creates the partition, which is refused if the
name is claimed: by an earlier page, or by a source that shares the claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

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
    under_keys,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions

FAMILY = "CLAIM"
SHARED_FAMILY, SHARED_KEY, FORGOTTEN_KEY = "SHARED_CLAIMS", "OF", "FORGOTTEN"
AROUND_CREATION = timedelta(minutes=5)
"""A partition's version is the microsecond of its creation and one more with each write."""
BESIDE_CLAIMS = 2
"""What a transaction holds beside a partition's claims: the partition, and the global state."""


class Claims:
    """The claims of one source, or those of another one that it shares.

    :param store: where they are.
    :param source_identifier: their family, `[prefix|]source|CLAIM`.
    :param clock: where the time comes from.
    """

    def __init__(self, store: CoordinationStore, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._own_identifier = source_identifier
        self._used_identifier: str | None = None
        self._clock = clock

    def share(self, source_identifier: str) -> None:
        """Use the claims of another source from now on, in every process: what one of the two has, the other leaves.

        :param source_identifier: their family; the other source need not exist yet.
        :raises ConfigurationError: if the source has claims of its own, or shares others; or the other one does.
        """
        source, other = (parse_source_identifier(name).source for name in (self._own_identifier, source_identifier))
        if source_identifier == self._own_identifier:
            raise ConfigurationError(f"source {source!r} cannot share its own claims: name another source")
        if (theirs := self._shared_by(source_identifier)) is not None:
            raise ConfigurationError(
                f"source {other!r} has no claims of its own, it shares those of "
                f"{parse_source_identifier(theirs).source!r}: name that source"
            )
        known = self._shared_by(self._own_identifier)
        if known is None:
            if self._store.query(self._own_identifier, PartitionStatus.COMPLETED, limit=1):
                raise ConfigurationError(
                    f"source {source!r} has claims of its own by now, so it cannot share those of {other!r}: give it "
                    "another name, or delete its partitions"
                )
            item = new_partition(_sharing(self._own_identifier), SHARED_KEY, self._clock.now())
            self._store.create([item.with_progress({"claims": source_identifier})])
            known = self._shared_by(self._own_identifier)
        if known != source_identifier:
            raise ConfigurationError(
                f"source {source!r} shares the claims of {parse_source_identifier(known or '').source!r} already, and "
                f"not those of {other!r}: give it another name, or name the source that it shares them with"
            )
        self._used_identifier = source_identifier

    @property
    def _source_identifier(self) -> str:
        """The family of the claims that are used."""
        if self._used_identifier is None:
            self._used_identifier = self._shared_by(self._own_identifier) or self._own_identifier
        return self._used_identifier

    def _shared_by(self, source_identifier: str) -> str | None:
        item = self._store.get(_sharing(source_identifier), SHARED_KEY)
        return None if item is None else str(item.progress.get("claims"))

    def _content(self, partition_key: str) -> dict[str, str]:
        """Return what a claim of a partition of this source says."""
        shared = self._source_identifier != self._own_identifier
        by = {"source": parse_source_identifier(self._own_identifier).source} if shared else {}
        return {"partition": partition_key, **by}

    @property
    def room(self) -> int:
        """How many names one partition may claim: they are written in one transaction."""
        return self._store.transaction_items - BESIDE_CLAIMS

    def unclaimed(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that belong to no partition, in their order, each once.

        What a supplier is told holds until its next page is created, unless another source shares the claims: then the
        page may be refused, and the supplier is run again.
        """
        keys = {name: claim_key(name) for name in names}
        claimed = self._store.known(self._source_identifier, list(keys.values()))
        return [name for name, key in keys.items() if key not in claimed]

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

    def forgotten_before(self) -> datetime | None:
        """Return the instant (aware) before which nothing is new any more; None if no name was forgotten by its age.

        Ask after `unclaimed`: what that returns may be a name that was forgotten a moment ago.
        """
        item = self._store.get(_sharing(self._source_identifier), FORGOTTEN_KEY)
        return None if item is None else parse_instant(str(item.progress.get("before")))

    def forget(self, before: datetime, *, claimed_before: datetime, limit: int) -> int:
        """Forget names by the age of their claims, the oldest first; return how many were forgotten.

        It is written first that nothing that is older than `before` is new, for every source that uses these claims.
        Where an earlier instant was to be written, the later one stays.

        :param before: an instant (aware) that everything is older than that was claimed before `claimed_before`.
        :param claimed_before: forget what was claimed before this instant (aware).
        :param limit: how many names to forget at most.
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
            with suppress(PartitionUpdateError):  # another source that uses them notes an instant as well
                self._store.transact(update=[item.with_progress(noted)])

    def release_of(self, partition: Partition) -> int:
        """Forget the names of a partition that was deleted; return how many there were.

        They are looked for among those that were claimed when the partition was created, as its version tells.
        """
        created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=partition.version)
        claimed = all_partitions(
            self._store, self._source_identifier, PartitionStatus.COMPLETED, since=created - AROUND_CREATION
        )
        near = takewhile(lambda claim: claim.priority <= created + AROUND_CREATION, claimed)
        content = self._content(partition.partition_key)
        return sum(self._release(claim) for claim in near if claim.progress == content)

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
        claim = first.with_progress(self._content(partition_key)).completed(now)
        return under_keys(claim, keys)


def claim_key(name: str) -> str:
    """Return the key of a name's claim: the name, or its beginning and a digest where no store could hold it.

    :raises ConfigurationError: if the name is empty or not valid Unicode.
    """
    if 0 < len(name) <= MAX_KEY_BYTES and name.isascii() and "\0" not in name and not _is_shortened(name):
        return name  # nearly all
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


def _sharing(source_identifier: str) -> str:
    """Return the family of the item that says whose claims a source shares."""
    return f"{source_identifier.removesuffix(FAMILY)}{SHARED_FAMILY}"


_MARK = "...sha256:"


def _is_shortened(name: str) -> bool:
    """Tell whether a name looks like the key of another, longer one."""
    return name.endswith(_MARK, 0, -64)
