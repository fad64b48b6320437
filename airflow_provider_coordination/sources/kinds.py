"""How a kind of source is found by its name or by a progress; what it is, `source_kind` says.

The package's own kinds are the folders here that have a module `kind`. Others are registered by an entry point of the
group `airflow_provider_coordination.sources`. A Spark cluster may not see entry points, so a job's settings carry
`module:attribute`. A kind that brings only a reader of items needs no registration: its partitions are those of
`sources/item_kind.py`.

Code that knows no kind settles batches with `SourceBatches`, and shows partitions with the functions from
`inspect_partition` on. One page shows hundreds of partitions, and users must also see a progress that no job can read.
So these read single fields only, and leave out what they cannot understand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import (
    BatchLedger,
    Lookup,
    Progress,
    Settlement,
    WholePartition,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.registry import Registry, import_attribute
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import FrameReader, ItemReader
from airflow_provider_coordination.sources.landed import (
    LandedProgress,
    LandedRange,
    ProgressFormatError,
    instant_of,
    integer_of,
    objects_in,
    pending_sets,
    text_of,
)
from airflow_provider_coordination.sources.source_kind import READER, Inspection, SourceKind


@dataclass(frozen=True, kw_only=True)
class ReadsSettings:
    """What a job reads.

    :param kind: the kind of source.
    :param settings: the kind's own settings, a JSON object; it may hold secrets, and is never shown.
    :param implementation: `module:attribute` of a kind from another package, since a Spark cluster may not see entry
        points; None for the package's own kinds, and for a kind that brings only a reader of items.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None

    def source_kind(self) -> SourceKind:
        """Return the kind of source.

        :raises ConfigurationError: if it is not registered, or cannot be imported.
        """
        if self.implementation is None and READER in self.settings:
            return ItemKind(self.kind)
        return get_kind(self.kind, self.implementation)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.kind:
            raise ConfigurationError("what is read: field 'kind' must not be empty; name the kind of source")
        self.source_kind().check(self.settings)


KINDS: Registry[SourceKind] = Registry(
    what="kind of source",
    own="airflow_provider_coordination.sources.{name}.kind:KIND",
    group="airflow_provider_coordination.sources",
    interface=SourceKind,
)
"""The registered kinds, by name."""

_found: dict[str, SourceKind | None] = {}
_finding = threading.Lock()


def get_kind(name: str, implementation: str | None = None) -> SourceKind:
    """Return a kind of source, and remember it for the partitions that name it.

    :param implementation: `module:attribute`, if the settings carry it.
    :raises ConfigurationError: if it is not registered, cannot be imported, or has another name.
    """
    with _finding:
        if implementation is not None or (kind := _found.get(name)) is None:
            kind = KINDS.load(name, implementation)
            if kind.name != name:
                raise ConfigurationError(
                    f"kind of source {name!r} has the name {kind.name!r}; register it under that name"
                )
            _found[name] = kind
    return kind


def kind_named(name: str) -> SourceKind:
    """Return a kind of source by its name; one that is not registered brings only a reader of items.

    :raises ConfigurationError: if it is registered, and cannot be imported.
    """
    return get_kind(name) if name in KINDS.names() else ItemKind(name)


def kind_of(progress: Mapping[str, Any]) -> SourceKind | None:
    """Return the kind of source that a partition's progress names; None if it names none, so that no job reads it.

    :raises SourceError: if the kind is not registered, or cannot be imported.
    """
    if "kind" not in progress:
        return None
    name = progress["kind"]
    if not isinstance(name, str):
        raise ProgressFormatError(f"stored progress: field 'kind' must be text; got {name!r}; restore the progress")
    with _finding:
        if name not in _found:
            _found[name] = _registered(name)
        found = _found[name]
    if found is not None:
        return found
    if "items" in progress:
        return ItemKind(name)
    raise SourceError(
        f"stored progress: kind of source {name!r} is not registered; install the distribution that registers it by an "
        f"entry point of the group {KINDS.group!r}"
    )


def reader_of(reads: ReadsSettings) -> ItemReader | FrameReader:
    """Make the reader of items.

    :raises ConfigurationError: if it cannot be imported, or its settings are wrong.
    """
    kind = reads.source_kind()
    if not isinstance(kind, ItemKind):
        raise ConfigurationError(
            f"kind of source {reads.kind!r} is not divided into items, so it has no reader of items"
        )
    name, settings = kind.reader_named(reads.settings)
    factory = import_attribute(name, f"reader {name!r}")
    if not (isinstance(factory, type) and issubclass(factory, ItemReader | FrameReader)):
        raise ConfigurationError(f"reader {name!r} must be a class that inherits 'ItemReader' or 'FrameReader'")
    return factory.from_mapping(settings)


def _registered(name: str) -> SourceKind | None:
    if name not in KINDS.names():
        return None
    try:
        return KINDS.load(name)
    except ConfigurationError as error:
        raise SourceError(str(error)) from error


class SourceBatches(BatchLedger):
    """A `BatchLedger` for every kind of source; it finds the kind by the partition's progress."""

    def __init__(self) -> None:
        self._whole = WholePartition()

    @override
    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        return self._of(progress).set_of(progress, batch_id)

    @override
    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        return self._of(progress).in_delivery(progress, batch_id, set_id)

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        return self._of(partition.progress).delivered(partition, batch_id, lookup)

    @override
    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        return self._of(partition.progress).undelivered(partition, batch_id)

    def pending(self, progress: Progress) -> list[str]:
        """Return the acknowledgment sets that a partition's batches wait for.

        :raises SourceError: if the progress is not in the format of its kind.
        """
        landed = landed_progress(progress)
        if landed is not None:
            return pending_sets(landed.landed)
        waiting = self._whole.set_of(progress, "")
        return [] if waiting is None else [waiting]

    def _of(self, progress: Progress) -> BatchLedger:
        kind = kind_of(progress)
        return self._whole if kind is None else kind.batches


def landed_progress(progress: Progress) -> LandedProgress | None:
    """Return a partition's progress as an object of its kind; None if it names no kind.

    :raises SourceError: if the progress is not in the format of its kind.
    """
    kind = kind_of(progress)
    return None if kind is None else kind.progress(progress)


def progress_of(partition: Partition) -> LandedProgress:
    """Return the progress of a partition that a job works on.

    :raises SourceError: if it names no kind, or is not in the format of its kind.
    """
    progress = partition.progress_as(landed_progress)
    if progress is None:
        raise SourceError(
            f"partition {partition.partition_key!r}: its stored progress names no kind of source, so no job can read "
            "it; create partitions with a supplier, or restore the stored progress"
        )
    return progress


@dataclass(frozen=True, kw_only=True)
class LandedFacts(LandedRange):
    """A batch that is written and not delivered, as far as a partition's progress can be read.

    :param acknowledgment_set: the acknowledgment set that it waits for; None if its delivery has not started.
    :param state: `landed`, `waiting` for its acknowledgment, `acknowledged` and waiting for those before it, or
        `rejected` and to be delivered again.
    """

    acknowledgment_set: str | None
    state: str


def inspect_partition(partition: Partition, now: datetime) -> Inspection:
    """Return a summary of a partition's progress.

    :param now: the present instant (aware).
    """
    if partition.unreadable_progress is not None:
        return Inspection(is_readable=False)
    kind = known_kind(partition)
    if kind is not None:
        return kind.inspect(partition, now)
    stored = partition.progress.get("kind")
    return Inspection(kind=text_of(stored), is_readable="kind" not in partition.progress)


def known_kind(partition: Partition) -> SourceKind | None:
    """Return the kind of source of a partition; None if its progress names none, or one that is not registered."""
    try:
        return kind_of(partition.progress)
    except SourceError:
        return None


def landed_facts(partition: Partition) -> list[LandedFacts]:
    """Return the batches of a partition that are written and not delivered, in order."""
    return [
        LandedFacts(
            batch_id=text_of(batch.get("batch_id")) or "",
            start=text_of(batch.get("start")) or "",
            end=text_of(batch.get("end")) or "",
            file=text_of(batch.get("file")) or "",
            file_bytes=integer_of(batch.get("file_bytes")) or 0,
            records=integer_of(batch.get("records")) or 0,
            bytes=integer_of(batch.get("bytes")) or 0,
            is_last=batch.get("is_last") is True,
            read_until=instant_of(batch.get("read_until")),
            last_arrival=instant_of(batch.get("last_arrival")),
            acknowledgment_set=text_of(batch.get("acknowledgment_set")),
            state=_state_of(batch),
        )
        for batch in objects_in(partition.progress, "landed")
    ]


def lost(partition: Partition) -> list[str]:
    """Return the ranges of a partition that were lost before they were read, each as a sentence."""
    kind = known_kind(partition)
    return [] if kind is None else kind.lost(partition.progress)


def open_loss(partition: Partition) -> tuple[str, str] | None:
    """Return the lost range for which a partition is parked, and what to do; None if it is not parked for that."""
    kind = known_kind(partition) if partition.is_parked else None
    loss = None if kind is None else kind.open_loss(partition.progress)
    return None if kind is None or loss is None else (loss, kind.loss_remedy)


def unreadable_items(partition: Partition) -> list[tuple[int | None, str]]:
    """Return the items of a partition that could not be read: the index of each, from 0, and the reason."""
    kind = known_kind(partition)
    return [] if kind is None else kind.unreadable_items(partition.progress)


def facts(partition: Partition) -> Iterator[tuple[str, str | datetime | None]]:
    """Yield the facts that only partitions of this kind have: a label and its value."""
    kind = known_kind(partition)
    yield from () if kind is None else kind.facts(partition.progress)


def sets_waited_for(partition: Partition) -> list[str]:
    """Return the acknowledgment sets that a partition's batches wait for."""
    named = [batch.acknowledgment_set for batch in landed_facts(partition)]
    waiting = partition.progress.get("acknowledgment_set")  # of a partition that is one batch, as a whole
    return [set_id for set_id in (*named, waiting) if isinstance(set_id, str) and set_id]


def _state_of(batch: Mapping[str, Any]) -> str:
    if batch.get("acknowledged") is True:
        return "acknowledged"
    if batch.get("acknowledgment_set"):
        return "waiting"
    return "rejected" if batch.get("redeliver") is True else "landed"
