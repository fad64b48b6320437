"""Kinds of sources: what the rest of the package asks of each, and how a kind is found by its name.

The package's own kinds are the folders here that have a module `kind`. Others register theirs by an entry point of the
group `airflow_provider_coordination.sources`; where a Spark cluster sees no entry points, the job's settings carry
`module:attribute`. A kind that brings only a reader of items needs no registration: its partitions are those of
`sources/item_kind.py`.

A kind is light: what it needs of the network, of pyarrow or of Spark, its methods import when they are called. What is
of Spark alone, or of the pages, it names as `module:attribute`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.batches import BatchLedger
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError, SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.permissions import Permission
from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.sources.landed import LandedBatches, LandedProgress, ProgressFormatError
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target
from airflow_provider_coordination.sources.stored_values import objects_in, text_of, whole_of

Settings = Mapping[str, Any]
"""What a kind's own settings are, a JSON object; may hold secrets."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a partition's progress says at a glance.

    :param kind: the kind of source; None if it does not say.
    :param position: up to where everything is delivered, as the source writes it; None if that is the beginning, or
        unknown.
    :param lag: for how many seconds nothing has been delivered that arrived since; None if that is unknown, the source
        has no such thing, or everything is delivered.
    :param items_done: how many of its items are done; None if it has none.
    :param items: how many items it has; None if it has none.
    :param landed_batches: how many batches are written and not delivered.
    :param landed_records: how many records these hold.
    :param throughput: bytes of user data a second; None if unknown.
    :param is_readable: whether all this was understood.
    """

    kind: str | None = None
    position: str | None = None
    lag: float | None = None
    items_done: int | None = None
    items: int | None = None
    landed_batches: int = 0
    landed_records: int = 0
    throughput: float | None = None
    is_readable: bool = True


@dataclass(frozen=True)
class DatasetName:
    """The name of a dataset, as OpenLineage has it.

    :param namespace: where it is: a scheme and who serves it.
    :param name: its name there.
    """

    namespace: str
    name: str


class SourceKind:
    """What the package asks of a kind of source; a kind overrides what is different.

    As it stands it fits partitions whose progress is a `LandedProgress`, and which are reset to their beginning alone.

    :param name: by which its partitions, settings and claims say that they are of it.
    """

    progress_class: type[LandedProgress] = LandedProgress
    """The class of its partitions' progress."""
    has_positions = False
    """Whether its partitions can be read from elsewhere than their beginning."""
    reading: str = ""
    """`module:attribute` of what reads it in a Spark job; see `spark/job_source.py`."""
    reads: str | None = None
    """`module:attribute` of the class by which a DAG and a spec say what is read; None if there is none."""
    pages: str | None = None
    """`module:attribute` of what it adds to the pages: a `KindPages`; see `ui/kinds.py`."""
    import_commands: str | None = None
    """`module:attribute` of what adds its commands to the group `import`, a typer application."""

    def __init__(self, name: str) -> None:
        self.name = name

    # What its partitions remember

    def progress(self, mapping: Mapping[str, Any]) -> LandedProgress:
        """Return the progress that a partition stores.

        :raises ProgressFormatError: if it is not one of this kind.
        """
        return self.progress_class.from_mapping(mapping)

    @property
    def batches(self) -> BatchLedger:
        """How its partitions keep their batches."""
        return LandedBatches(self.progress_class)

    # What is made anew of partitions whose store is lost, by what tables say

    def remade(
        self, partition_key: str, progress: Any, others: Mapping[str, LandedProgress]
    ) -> Mapping[str, LandedProgress]:
        """Return a partition as it goes on after what is delivered, with those that came of it and are not known.

        :param progress: as far as tables say.
        :param others: the progress of all that tables know, by key.
        """
        return {partition_key: progress}

    def remade_state(self, known: Mapping[str, Any], starts: Collection[str]) -> Mapping[str, Any]:
        """Return what the source's supplier is to remember; nothing if it finds that out by itself.

        :param known: the progress of all partitions that tables know, by key.
        :param starts: the positions at which their batches begin.
        """
        return {}

    def claimed_by(self, progress: Any) -> Sequence[str]:
        """Return the names that a partition's supplier claims for it."""
        return ()

    # What people see; nothing here raises, whatever is stored

    def inspected(self, partition: Partition, now: datetime) -> Inspection:
        """Return what a partition's progress says at a glance.

        :param now: the present instant (aware).
        """
        progress = partition.progress
        checkpoint = text_of(progress.get("checkpoint"))
        landed = objects_in(progress, "landed")
        return Inspection(
            kind=self.name,
            position=checkpoint or None,
            landed_batches=len(landed),
            landed_records=sum(whole_of(batch.get("records")) or 0 for batch in landed),
            is_readable=checkpoint is not None and isinstance(progress.get("landed", []), list),
        )

    def lost(self, progress: Mapping[str, Any]) -> list[str]:
        """Return the ranges of a partition that were gone before they were read, each in a sentence."""
        return []

    def unreadable_items(self, progress: Mapping[str, Any]) -> list[tuple[int | None, str]]:
        """Return the items of a partition that could not be read: the place of each, from 0, and why."""
        return []

    def facts(self, progress: Mapping[str, Any]) -> Iterator[tuple[str, str | datetime | None]]:
        """Yield what else a person wants to know of a partition: what it is called, and what it is."""
        epoch = progress.get("epoch")
        if isinstance(epoch, int):
            yield "epoch", str(epoch)

    def stream_of(self, partition_key: str) -> str | None:
        """Return the endless stream that a partition is a part of, for what is reported of its checkpoints; None if
        its partitions come to an end."""
        return None

    # Positions by hand

    def group_of(self, partition: Partition) -> str | None:
        """Return the part of a source that can be reset as a whole, such as a stream, to which a partition belongs."""
        return None

    def short_name(self, partition: Partition) -> str | None:
        """Return what people call a partition instead of its key, such as a shard's id; None for nothing."""
        return None

    def check_target(self, target: Target) -> None:
        """Check that its partitions can be read from there.

        :raises ConfigurationError: if what is given as a position of its own is none.
        """

    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        """Return the progress with which a partition is read from a target on.

        :param epoch: the least epoch.
        :raises ProgressError: if the stored progress does not say what it is of, or has no such position.
        """
        raise ProgressError(
            f"partition {partition.partition_key!r}: kind {self.name!r} cannot be reset to {target.name!r}; give the "
            "progress to start from"
        )

    def check_progress(self, partition: Partition, given: Mapping[str, Any]) -> None:
        """Check that a partition can start from a progress that a person gives.

        :raises ProgressError: if it is not one of this partition.
        """
        key = repr(partition.partition_key)
        try:
            kind = self.progress(given).kind
        except ProgressFormatError as error:
            raise ProgressError(
                f"partition {key}: the given progress is not one of kind {self.name!r}: {error.__cause__ or error}"
            ) from None
        if kind != self.name:
            raise ProgressError(
                f"partition {key} is of kind {self.name!r}, and the given progress of {kind!r}; give this one's own"
            )

    def service(self, settings: Settings) -> Any:
        """Return what asks the source, such as a client, for positions by hand.

        :param settings: how to reach it, as far as that is known.
        :raises ConfigurationError: if they are wrong.
        """
        return settings

    def sample(self, service: Any, settings: Settings) -> Sequence[bytes]:
        """Return a few payloads of what a job with these settings would read; none where it cannot be seen beforehand.

        :param service: what asks the source, as `service` makes it.
        :raises ConfigurationError: if there is nothing to read under the name and at the place that they give.
        :raises SourceError: if the source does not answer.
        """
        return ()

    def plan_some(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """Plan to reset just these partitions.

        :param partitions: as they were seen.
        :param access: returns what asks the source, made when it is needed; None if it is not to be asked.
        :raises ConfigurationError: if they have no such position.
        :raises ProgressError: if a stored progress does not say what it is of, or has no such position.
        """

        def progress(partition: Partition) -> Mapping[str, Any]:
            return self.restarted(partition, target)

        for partition in partitions:
            progress(partition)
        steps = [
            ResetStep(action=ResetAction.RESET, partition=each, progress=progress, group=self.group_of(each))
            for each in partitions
        ]
        return ResetPlan(target=target, steps=tuple(steps), left={})

    def plan_group(
        self, group: str | None, partitions: Sequence[Partition], target: Target, access: Access
    ) -> ResetPlan:
        """Plan to read a whole group anew; None is for the partitions that are in none. See `plan_some`."""
        return self.plan_some(partitions, target, access)

    # What a supervisor asks the source

    def open_partitions(self, service: Any, settings: Settings) -> int | None:
        """Ask the source how many partitions it can go on in; None if the kind cannot say.

        :param service: as `service` makes it.
        :param settings: of what is read.
        :raises ConfigurationError: if the source does not exist, or refuses to answer.
        :raises SourceError: if it does not answer.
        """
        return None

    def unread_lag(self, service: Any, partition: Partition) -> timedelta | None:
        """Return how long something of a partition waits that nobody reads now; None if that is not known.

        :param service: as `service` makes it.
        """
        return None

    # What an installation needs

    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the permissions of AWS that reading needs, and with which settings; None if the kind names none.

        :param what: what is read, as a person names it on a command line.
        :param access: returns how a service of AWS is reached, by the name that boto3 has for it.
        :raises ConfigurationError: if `what` names nothing of this kind.
        """
        return None

    # What a job reads

    def check(self, settings: Settings) -> None:
        """Check the settings of a job, wherever that is: nothing of the source or of Spark is asked.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """

    def ends(self, settings: Settings) -> bool:
        """Return whether the partitions that a job with these settings reads come to an end some day."""
        return False

    def capacity(self, settings: Settings, *, ask: bool) -> Capacity:
        """Return what the source gives to a job with these settings.

        :param settings: those of a job; as far as they are given, where the source is not asked.
        :param ask: ask the source for its extent.
        :raises SourceError: if it does not answer.
        :raises ConfigurationError: if it does not let us ask.
        """
        return Capacity()

    def location(self, settings: Settings) -> dict[str, Any]:
        """Return what decides which data a job with these settings reads: DAGs that differ in it cannot share a source.

        No secret, and nothing that may differ between two runs of a DAG.
        """
        return {}

    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        """Return the datasets that a job with these settings reads, as OpenLineage names them."""
        return ()


@dataclass(frozen=True, kw_only=True)
class ReadsSettings:
    """What a job reads.

    :param kind: the kind of source.
    :param settings: the kind's own settings, a JSON object; may hold secrets, and is never shown.
    :param implementation: `module:attribute` of a kind that is not this package's, as a Spark cluster sees no entry
        points; None for one of the package's own, and for one that brings only a reader of items.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None

    def found(self) -> SourceKind:
        """Return the kind.

        :raises ConfigurationError: if nobody registered it, or it cannot be imported.
        """
        if self.implementation is None and READER in self.settings:
            return item_kind(self.kind)
        return kind_named(self.kind, self.implementation)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.kind:
            raise ConfigurationError("field 'kind' of what is read must not be empty; name the kind of source")
        self.found().check(self.settings)


READER = "reader"
"""The setting of a kind that brings only a reader of items: `module:class`; `reader_settings` are the reader's own."""

Access = Callable[[SourceKind], Any]
"""Returns what asks a source of a kind, as `SourceKind.service` makes it."""

KINDS: Registry[SourceKind] = Registry(
    what="kind of source",
    own="airflow_provider_coordination.sources.{name}.kind:KIND",
    group="airflow_provider_coordination.sources",
    seam=SourceKind,
)
"""The kinds that are known by their name."""

_found: dict[str, SourceKind | None] = {}
_finding = threading.Lock()


def kind_named(name: str, implementation: str | None = None) -> SourceKind:
    """Return a kind of source, and remember it for the partitions that say they are of it.

    :param implementation: `module:attribute`, where settings carry it.
    :raises ConfigurationError: if nobody registered it, it cannot be imported, or it calls itself otherwise.
    """
    with _finding:
        if implementation is not None or (found := _found.get(name)) is None:
            found = KINDS.load(name, implementation)
            if found.name != name:
                raise ConfigurationError(f"kind of source {name!r} calls itself {found.name!r}; register it as that")
            _found[name] = found
    return found


def kind_of(progress: Mapping[str, Any]) -> SourceKind | None:
    """Return the kind of source of a partition by its progress; None if it says none: no job reads it.

    :raises SourceError: if nobody registered the kind, or it cannot be imported.
    """
    if "kind" not in progress:
        return None
    name = progress["kind"]
    if not isinstance(name, str):
        raise ProgressFormatError(f"stored progress: field 'kind' must be text; got {name!r}: restore it")
    with _finding:
        if name not in _found:
            _found[name] = _registered(name)
        found = _found[name]
    if found is not None:
        return found
    if "items" in progress:
        return item_kind(name)
    raise SourceError(
        f"stored progress: kind of source {name!r} is not known here; install the distribution that registers it by an "
        f"entry point of the group {KINDS.group!r}"
    )


def item_kind(name: str) -> SourceKind:
    """Return a kind that brings nothing but a reader of items."""
    from airflow_provider_coordination.sources.item_kind import ItemKind

    return ItemKind(name)


def imported(reference: str, what: str) -> Any:
    """Return what `module:attribute` names.

    :param what: what it is, for the error.
    :raises ConfigurationError: if it cannot be imported.
    """
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigurationError(
            f"{what} {reference!r} cannot be imported: {type(error).__name__}: {error}; ship its module with 'py_files'"
        ) from error


def _registered(name: str) -> SourceKind | None:
    if name not in KINDS.names():
        return None
    try:
        return KINDS.load(name)
    except ConfigurationError as error:
        raise SourceError(str(error)) from error
