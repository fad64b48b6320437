"""Kinds of sources: the interface that each one implements for the package, and how a kind is found by its name.

The package's own kinds are the folders here that have a module `kind`. Others are registered by an entry point of the
group `airflow_provider_coordination.sources`. A Spark cluster may not see entry points, so a job's settings carry
`module:attribute`. A kind that brings only a reader of items needs no registration: its partitions are those of
`sources/item_kind.py`.

A kind is cheap to import. Its methods import what they need of the network, pyarrow or Spark when they are called. It
names what belongs to Spark or to the UI as `module:attribute`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.batches import BatchLedger
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError, SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.permissions import Permission
from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.landed import LandedBatches, LandedProgress, ProgressFormatError
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target
from airflow_provider_coordination.sources.stored_values import integer_of, objects_in, text_of

MAX_NAMES = 10
"""The maximum number of names that an error lists."""
Settings = Mapping[str, Any]
"""A kind's own settings, a JSON object; it may hold secrets."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A summary of a partition's progress.

    :param kind: the kind of source; None if the progress does not name one.
    :param position: the position up to which everything is delivered, as the source writes it; None if that is the
        start, or unknown.
    :param lag: the seconds since which no new record has been delivered; None if that is unknown, the source has no
        such value, or everything is delivered.
    :param items_done: the number of items that are done; None if the partition has no items.
    :param items: the number of items; None if it has none.
    :param landed_batches: the number of batches that are written and not delivered.
    :param landed_records: the number of records in these batches.
    :param throughput: bytes of user data a second; None if unknown.
    :param is_readable: whether the whole progress could be read.
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
    """The name of a dataset in OpenLineage's form.

    :param namespace: its location: a scheme and the host that serves it.
    :param name: its name in the namespace.
    """

    namespace: str
    name: str


class SourceKind:
    """A kind of source; a subclass overrides what differs.

    The defaults fit partitions whose progress is a `LandedProgress` and which can only be reset to their start.

    :param name: the name by which partitions, settings and claims refer to this kind.
    """

    progress_class: type[LandedProgress] = LandedProgress
    """The class of its partitions' progress."""
    has_positions = False
    """Whether its partitions can be read from a position other than their start."""
    reading: str = ""
    """`module:attribute` of the class that reads it in a Spark job; see `spark/job_source.py`."""
    reads: str | None = None
    """`module:attribute` of the class with which a DAG or a spec describes what is read; None if there is none."""
    pages: str | None = None
    """`module:attribute` of its additions to the UI: a `KindPages`; see `ui/kinds.py`."""
    loss_remedy = "Reset the partitions to a position that exists"
    """What a user does about a partition that lost data stops; a sentence without its period."""
    import_commands: str | None = None
    """`module:attribute` of the function that adds its commands to the typer application `import`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def supplier(self, described: Any, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
        """Return the supplier that finds a source's partitions.

        :param described: what is read, with its connections resolved; an object of `reads`.
        :param coordinator: of the source, initialized.
        :param connections: resolves what the supplier opens itself.
        :raises ConfigurationError: if the kind has none.
        """
        raise ConfigurationError(f"a source of kind {self.name!r} has no supplier; give its partitions")

    # Stored progress

    def progress(self, mapping: Mapping[str, Any]) -> LandedProgress:
        """Return the progress that a partition stores.

        :raises ProgressFormatError: if it is not a progress of this kind.
        """
        return self.progress_class.from_mapping(mapping)

    @property
    def batches(self) -> BatchLedger:
        """The ledger of its partitions' batches."""
        return LandedBatches(self.progress_class)

    # Rebuilding partitions from tables after their store is lost

    def rebuilt(
        self, partition_key: str, progress: Any, others: Mapping[str, LandedProgress]
    ) -> Mapping[str, LandedProgress]:
        """Return the progress after what is delivered, by key: of this partition and of partitions it created.

        Partitions that it created are included only if the tables do not know them.

        :param progress: as far as the tables record it.
        :param others: the progress of all partitions that the tables know, by key.
        """
        return {partition_key: progress}

    def rebuilt_state(self, known: Mapping[str, Any], starts: Collection[str]) -> Mapping[str, Any]:
        """Return the state for the source's supplier; empty if the supplier needs none.

        :param known: the progress of all partitions that tables know, by key.
        :param starts: the positions at which their batches begin.
        """
        return {}

    def claims_of(self, progress: Any) -> Sequence[str]:
        """Return the names that a partition's supplier claims for it."""
        return ()

    # What users see; none of these raises, whatever is stored

    def inspect(self, partition: Partition, now: datetime) -> Inspection:
        """Return a summary of a partition's progress.

        :param now: the present instant (aware).
        """
        progress = partition.progress
        checkpoint = text_of(progress.get("checkpoint"))
        landed = objects_in(progress, "landed")
        return Inspection(
            kind=self.name,
            position=checkpoint or None,
            landed_batches=len(landed),
            landed_records=sum(integer_of(batch.get("records")) or 0 for batch in landed),
            is_readable=checkpoint is not None and isinstance(progress.get("landed", []), list),
        )

    def lost(self, progress: Mapping[str, Any]) -> list[str]:
        """Return the ranges of a partition that were lost before they were read, each as a sentence."""
        return []

    def open_loss(self, progress: Mapping[str, Any]) -> str | None:
        """Return the lost range where reading stopped, as a sentence; None if reading continues or nothing is lost."""
        return None

    def unreadable_items(self, progress: Mapping[str, Any]) -> list[tuple[int | None, str]]:
        """Return the items of a partition that could not be read: the index of each, from 0, and the reason."""
        return []

    def facts(self, progress: Mapping[str, Any]) -> Iterator[tuple[str, str | datetime | None]]:
        """Yield further facts about a partition for users: a label and its value."""
        epoch = progress.get("epoch")
        if isinstance(epoch, int):
            yield "epoch", str(epoch)

    def stream_of(self, partition_key: str) -> str | None:
        """Return the endless stream that a partition belongs to, for reports about its checkpoints.

        None if the kind's partitions end.
        """
        return None

    # Resetting positions

    def group_of(self, partition: Partition) -> str | None:
        """Return the partition's group: a part of the source that can be reset as a whole, such as a stream."""
        return None

    def short_name(self, partition: Partition) -> str | None:
        """Return a shorter name that users know a partition by, such as a shard's id; None if there is none."""
        return None

    def check_target(self, target: Target) -> None:
        """Check that its partitions can be read from a target.

        :raises ConfigurationError: if the target's position is not a position of this kind.
        """

    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        """Return the progress with which a partition is read from a target on.

        :param epoch: the lowest epoch that the progress may get.
        :raises ProgressError: if the stored progress cannot be read, or the partition has no such position.
        """
        raise ProgressError(
            f"partition {partition.partition_key!r}: kind {self.name!r} cannot be reset to {target.name!r}; give the "
            "progress to start from"
        )

    def check_progress(self, partition: Partition, progress: Mapping[str, Any]) -> None:
        """Check that a partition can start from a progress that a user gives.

        :raises ProgressError: if it is not a progress of this partition.
        """
        key = repr(partition.partition_key)
        try:
            kind = self.progress(progress).kind
        except ProgressFormatError as error:
            raise ProgressError(
                f"partition {key}: the given progress is not a progress of kind {self.name!r}: "
                f"{error.__cause__ or error}"
            ) from None
        if kind != self.name:
            raise ProgressError(
                f"partition {key} is of kind {self.name!r}, but the given progress is of kind {kind!r}; give a "
                f"progress of kind {self.name!r}"
            )

    def service(self, settings: Settings) -> Any:
        """Return the client with which the source is queried.

        :param settings: how to reach the source, as far as that is known.
        :raises ConfigurationError: if they are wrong.
        """
        return settings

    def sample(self, service: Any, settings: Settings) -> Sequence[bytes]:
        """Return a few payloads that a job with these settings would read; empty if the kind has none.

        :param service: as `service` returns it.
        :raises ConfigurationError: if the settings name a source that does not exist.
        :raises SourceError: if the source is unavailable.
        """
        return ()

    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """Plan to reset exactly these partitions.

        :param partitions: as they were read.
        :param access: returns the client of the source, made when it is needed; None to plan without the source.
        :raises ConfigurationError: if they have no such position.
        :raises ProgressError: if a stored progress cannot be read, or a partition has no such position.
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
        """Plan to read a whole group again. The group None holds the partitions without one. See `plan_partitions`."""
        return self.plan_partitions(partitions, target, access)

    # What a supervisor queries

    def open_partitions(self, service: Any, settings: Settings) -> int | None:
        """Query the number of partitions that can still receive data; None if the kind does not know.

        :param service: as `service` returns it.
        :param settings: of the source.
        :raises ConfigurationError: if the source does not exist, or denies access.
        :raises SourceError: if the source is unavailable.
        """
        return None

    def unread_lag(self, service: Any, partition: Partition) -> timedelta | None:
        """Return how long the oldest unread record of a partition without a reader has waited; None if unknown.

        :param service: as `service` returns it.
        """
        return None

    # What an installation needs

    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the AWS permissions that reading needs, and the settings to check them with; None if there are none.

        :param what: the source, as a user names it on the command line.
        :param access: returns the settings for an AWS service, by boto3's name of it.
        :raises ConfigurationError: if `what` does not name a source of this kind.
        """
        return None

    # What a job reads

    def check(self, settings: Settings) -> None:
        """Check the settings of a job, without any call to the source or to Spark.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """

    def ends(self, settings: Settings) -> bool:
        """Return whether the partitions that a job with these settings reads ever end."""
        return False

    def capacity(self, settings: Settings, *, ask: bool) -> Capacity:
        """Return how much a job with these settings can read from the source.

        :param settings: those of a job; they may be incomplete if the source is not queried.
        :param ask: query the source for its size.
        :raises SourceError: if the source is unavailable.
        :raises ConfigurationError: if it denies access.
        """
        return Capacity()

    def location(self, settings: Settings) -> dict[str, Any]:
        """Return the settings that identify the data. DAGs that differ in them cannot share a source.

        They contain no secret, and nothing that may differ between two runs of a DAG.
        """
        return {}

    def left(self, before: Settings, now: Settings) -> Sequence[str]:
        """Return what a change of the location leaves, such as `bucket 'in'`; empty if it may be changed.

        The partitions of a source and the state of its supplier are about what it read before, so a change that leaves
        it is refused. Other changes, such as another prefix in the same bucket, are a warning.

        :param before: the location before; see `location` and `Located.reads_from`.
        :param now: the location now.
        """
        return ()

    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        """Return the datasets that a job with these settings reads, under their OpenLineage names."""
        return ()


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
            return item_kind(self.kind)
        return get_kind(self.kind, self.implementation)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.kind:
            raise ConfigurationError("what is read: field 'kind' must not be empty; name the kind of source")
        self.source_kind().check(self.settings)


READER = "reader"
"""The setting of a kind that brings only a reader of items: `module:class`; `reader_settings` are the reader's own."""

Access = Callable[[SourceKind], Any]
"""Returns the client for a source of a kind, as `SourceKind.service` makes it."""

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
    return get_kind(name) if name in KINDS.names() else item_kind(name)


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
        return item_kind(name)
    raise SourceError(
        f"stored progress: kind of source {name!r} is not registered; install the distribution that registers it by an "
        f"entry point of the group {KINDS.group!r}"
    )


def item_kind(name: str) -> SourceKind:
    """Return a kind that brings only a reader of items."""
    from airflow_provider_coordination.sources.item_kind import ItemKind

    return ItemKind(name)


def import_attribute(reference: str, what: str) -> Any:
    """Import and return what `module:attribute` names.

    :param what: its description, for the error.
    :raises ConfigurationError: if the module cannot be imported, or has no such attribute.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a module may raise anything while it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        remedy = "ship its module with 'py_files'" if is_absent else "correct that module, or install what it needs"
        raise ConfigurationError(
            f"{what} {reference!r} cannot be imported: {type(error).__name__}: {error}; {remedy}"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigurationError(
            f"{what} {reference!r}: module {name!r} has no {attribute!r}; {_names_in(module, attribute)}"
        ) from None


def _names_in(module: ModuleType, attribute: str) -> str:
    """Return the remedy for a name that a module lacks: the similar ones, or else those that it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    names = get_close_matches(attribute, defined) or sorted(defined)[:MAX_NAMES]
    if not names:
        where = getattr(module, "__file__", None) or module.__name__
        return f"it defines no function, so check that {where!r} is the module meant"
    return f"name one that it has: {', '.join(map(repr, names))}"


def _registered(name: str) -> SourceKind | None:
    if name not in KINDS.names():
        return None
    try:
        return KINDS.load(name)
    except ConfigurationError as error:
        raise SourceError(str(error)) from error
