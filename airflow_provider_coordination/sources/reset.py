"""Resets by a user: partitions are read again from a position, or a source forgets everything, to read other data.

Work in progress is fenced twice. Each write increases the partition's version, so the owner's next write is rejected.
The partition's progress enters a new epoch, and its batches are named after the epoch. So a batch of an earlier epoch
can neither be counted nor be mistaken for a later one. Acknowledgment sets that wait are cancelled. Resets are possible
while a job owns the partitions. Druid kills the tasks that read, and what they publish at that moment may still undo
the reset. Here it cannot.

Progress belongs to a source by its name. Its partitions, its claims and the state of its supplier are about what it has
read. With other data, partitions would fail or be read from the wrong place, and the supplier would skip what it takes
for known. So such a change is refused until a user makes the source forget them. That is refused while anything is in
work: no batch that was read and is not acknowledged is dropped with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    CoordinationError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.partition_actions import apply_to_each
from airflow_provider_coordination.coordination.source_claim import claimed
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.sources.kept_messages import KeptMessages
from airflow_provider_coordination.sources.kinds import SourceBatches, kind_named, kind_of, landed_progress
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    Reread,
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
)
from airflow_provider_coordination.sources.source_kind import Access, SourceKind

log = logging.getLogger(__name__)

MAX_NAMES_IN_ERROR = 20
"""The greatest number of names that an error lists."""


class Resets:
    """Resets the partitions of one source.

    :param sets: the acknowledgment sets of the source; those of dropped batches are cancelled.
    :param by: the user or the task; logged and kept in the history. None if unknown.
    :param reason: the reason; logged and kept in the history.
    """

    def __init__(self, sets: AcknowledgmentSets, *, by: str | None = None, reason: str = "") -> None:
        self._sets = sets
        self._coordinator = sets.coordinator
        self._administration = Administration(
            sets.coordinator.store,
            sets.coordinator.view.source_identifier,
            sets.coordinator.clock,
            by=by,
            reason=reason,
        )
        self._by = by
        self._reason = reason
        self._batches = SourceBatches()

    # Planning

    def plan_partitions(
        self, partitions: Sequence[Partition], target: Target, access: Access | None = None
    ) -> ResetPlan:
        """Plan to reset exactly these partitions. Partitions that came from them stay as they are, unless named too.

        :param partitions: as they were read.
        :param access: returns the client of the source, to compare the position and the clock with the source's; None
            for no comparison.
        :raises ConfigurationError: if they have no such position, or a position is given for several partitions.
        :raises ProgressError: if one of them has no such position, or its stored progress cannot be read.
        """
        check_target(target, partitions)
        return _merged(
            target,
            [kind.plan_partitions(own, target, access) for kind, own in _by_kind(partitions)],
        )

    def plan_group(self, group: str, target: Target, access: Access) -> ResetPlan:
        """Plan to read a group of the source again, such as a stream.

        :param group: its name, in the terms of its kind of source.
        :param access: returns the client of the source.
        :raises ConfigurationError: if the source has no such group, or the target is a position of one partition.
        :raises ProgressError: if a stored progress cannot be read.
        :raises SourceError: if the source is unavailable.
        """
        groups = self._groups()
        own = {
            key: partitions
            for key, partitions in groups.items()
            if key[1] is not None and key[1] == kind_of_stored(partitions[0]).named_group(group)[0]
        }
        if not own:
            known = sorted({name for _, name in groups if name is not None})
            raise ConfigurationError(
                f"source {self._coordinator.source!r} has no part {group!r}; "
                + (
                    f"it has {', '.join(map(repr, known))}"
                    if known
                    else "it has no parts: give partition keys, or reset the whole source"
                )
            )
        return self._of_groups(own, target, access, repr(group))

    def plan_groups(self, groups: Sequence[str], target: Target, access: Access) -> ResetPlan:
        """Plan to read several groups of the source again; see `plan_group`."""
        return _merged(target, [self.plan_group(group, target, access) for group in groups])

    def plan_source(self, target: Target, access: Access) -> ResetPlan:
        """Plan to read the whole source again: each group as a whole, and each partition without a group on its own.

        :raises ConfigurationError: as `plan_group`, and if the source has no partition.
        :raises ProgressError: as `plan_group`, and if a partition has no such position.
        """
        groups = self._groups()
        if not groups:
            raise ConfigurationError(f"source {self._coordinator.source!r} has no partitions; check the name")
        return self._of_groups(groups, target, access, "a source")

    def find_partitions(self, names: Sequence[str], group: str | None = None) -> list[Partition]:
        """Return the partitions with these names.

        :param names: keys, or short names of their kind of source, such as shard ids.
        :param group: the group that they belong to; None for any.
        :raises ConfigurationError: if no partition has one of the names.
        """
        by_name: dict[str, Partition] | None = None
        selected = []
        for name in names:
            partition = self._coordinator.view.get(name)
            if partition is None:
                if by_name is None:
                    by_name = self._short_names(group)
                partition = by_name.get(name)
            if partition is None:
                known = ", ".join(sorted(by_name or ())[:MAX_NAMES_IN_ERROR]) or "partition keys only"
                raise ConfigurationError(
                    f"source {self._coordinator.source!r} has no partition {name!r}"
                    + (f" of {group!r}" if group else "")
                    + f"; check the name; known names: {known}"
                )
            selected.append(partition)
        return selected

    def _short_names(self, group: str | None) -> dict[str, Partition]:
        """Return partitions by their short names; the latest one if several have had the same name."""
        by_name = {}
        for partition in sorted(self._all_partitions(), key=lambda each: each.partition_key):
            with suppress(ProgressError):  # it has no short name
                kind = kind_of_stored(partition)
                if kind is not WHOLE and group in (None, kind.group_of(partition)):
                    by_name[kind.short_name(partition) or partition.partition_key] = partition
        return by_name

    def _groups(self) -> dict[tuple[str, str | None], list[Partition]]:
        """Return the partitions of the source by kind and group."""
        groups: dict[tuple[str, str | None], list[Partition]] = {}
        for kind, own in _by_kind(list(self._all_partitions())):
            for partition in own:
                groups.setdefault((kind.name, kind.group_of(partition)), []).append(partition)
        return groups

    def _of_groups(
        self,
        groups: Mapping[tuple[str, str | None], list[Partition]],
        target: Target,
        access: Access,
        what: str,
    ) -> ResetPlan:
        if target.position is not None:
            for partitions in groups.values():
                check_target(target, partitions[:1])
            raise ConfigurationError(
                f"position {target.name!r} belongs to one partition, not to {what}; name the partition, or give an "
                "instant, 'earliest' or 'latest'"
            )
        plans = []
        for (_, group), partitions in sorted(groups.items(), key=lambda each: tuple(map(str, each[0]))):
            plans.append(kind_of_stored(partitions[0]).plan_group(group, partitions, target, access))
        return _merged(target, plans)

    def rereads(self, plan: ResetPlan) -> list[Reread]:
        """Return what a plan reads again of each partition.

        :raises ProgressError: if a stored progress cannot be read.
        """
        return [
            Reread(partition_key=step.partition.partition_key, until="its end")  # its lease was cleaned up
            if step.action is ResetAction.CREATE
            else kind_of_stored(step.partition).reread(step.partition, plan.target)
            for step in plan.steps
        ]

    # Applying

    def apply(
        self, plan: ResetPlan, *, only_if_unchanged: bool = True, versions: Mapping[str, int] | None = None
    ) -> Iterator[tuple[ResetStep, Partition | CoordinationError]]:
        """Apply a plan step by step, and yield the result of each step; see `apply_to_each`.

        The result is the partition as written, the removed partition as it was, or the error that stopped the step.
        If a partition cannot be reset, nothing of its group is removed: it would not come back in the same epoch.

        :param only_if_unchanged: change only partitions whose owner and status are still as they were read; otherwise
            change them as they are now.
        :param versions: the versions that the user saw, by partition key; a partition with another version is skipped.
        """
        failed = set()

        def carry_out(step: ResetStep) -> Partition:
            if step.action is ResetAction.REMOVE and step.group in failed:
                raise PartitionStatusError(
                    f"partition {step.partition.partition_key!r} is not removed: not all of its ancestors could be "
                    f"reset; reset {step.group!r}, or the source, again"
                )
            version = None if versions is None else versions.get(step.partition.partition_key)
            return self._do(step, only_if_unchanged=only_if_unchanged, version=version)

        for step, result in apply_to_each(plan.steps, carry_out):
            if isinstance(result, CoordinationError):
                failed.add(step.group)
            yield step, result

    def _do(self, step: ResetStep, *, only_if_unchanged: bool, version: int | None) -> Partition:
        key = step.partition.partition_key
        seen = step.partition if only_if_unchanged else None
        if step.action is ResetAction.CREATE:
            partition = step.partition.with_progress(step.progress(step.partition))
            if not self._coordinator.store.create([partition]):
                raise PartitionUpdateError(
                    f"partition {key!r} was created by another process; check it and reset again"
                )
            log.info(
                "partition created by hand: source=%s partition=%s by=%s reason=%r",
                self._coordinator.source, key, self._by, self._reason,
            )  # fmt: skip
            return partition
        before = step.partition
        if step.action is ResetAction.REMOVE:
            # A partition that another process has removed counts as removed.
            seen = seen or self._coordinator.store.get(before.source_identifier, key) or before
            written = before = self._administration.delete(key, expected=seen, version=version)
        else:

            def progress(partition: Partition) -> Mapping[str, Any]:
                nonlocal before
                before = partition
                return step.progress(partition)

            written = self._administration.reset(key, progress, expected=seen, version=version)
        self._cancel_sets(before)
        return written

    def _all_partitions(self) -> Iterator[Partition]:
        return all_partitions(self._coordinator.store, self._coordinator.view.source_identifier)

    def _cancel_sets(self, before: Partition) -> None:
        # Such a set can no longer change the partition; cancelling it ends the wait of others for it.
        if before.unreadable_progress is not None:
            return
        try:
            waiting = self._batches.pending(before.progress)
        except SourceError:
            return
        for set_id in waiting:
            self._coordinator.initialize()
            try:
                self._sets.cancel(set_id, "its partition was reset by hand", by=self._by)
            except AcknowledgmentSetNotFoundError:
                continue  # ended and purged
            except (ProgressError, PartitionUpdateError) as error:
                log.warning("acknowledgment set %s could not be cancelled and will expire: %s", set_id, error)


def check_target(target: Target, partitions: Sequence[Partition]) -> None:
    """Check that partitions can be read from a target, as far as that is known without their progress.

    :raises ConfigurationError: if the position is not one of their source, or is given for several partitions.
    """
    if target.position is None:
        return
    for kind, _ in _by_kind(partitions):
        kind.check_target(target)
    if len(partitions) > 1:
        raise ConfigurationError(
            f"position {target.name!r} belongs to one partition; got it for {len(partitions)} partitions; name one, or "
            "give an instant, 'earliest' or 'latest'"
        )


def restarted(partition: Partition, target: Target) -> Mapping[str, Any]:
    """Return the progress with which a partition is read from a target on.

    :raises ProgressError: if the stored progress cannot be read, or the partition has no such position.
    """
    return kind_of_stored(partition).restarted(partition, target)


def check_progress(partition: Partition, values: Mapping[str, Any]) -> None:
    """Check that a partition can start from a progress that a user gives.

    :raises ProgressError: if it is of another kind, or not a progress of this partition.
    """
    try:
        kind = kind_of(values if partition.unreadable_progress is not None else partition.progress) or kind_of(values)
    except SourceError as error:
        raise ProgressError(f"partition {partition.partition_key!r}: {error}") from None
    if kind is not None:
        kind.check_progress(partition, values)


class _WholeKind(SourceKind):
    """The kind of partitions that no job reads: their progress names none, and each of them is read as a whole."""

    @override
    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        if not target.is_earliest:
            raise ProgressError(
                f"partition {partition.partition_key!r} is read as a whole and has no position {target.name!r}; reset "
                f"it to {EARLIEST!r}, or give the progress to start from"
            )
        return {}


WHOLE = _WholeKind("")


def kind_of_stored(partition: Partition) -> SourceKind:
    """Return the kind of source of a partition; `WHOLE` if its progress names none.

    :raises ProgressError: if the progress cannot be read, or its kind is not registered.
    """
    if partition.unreadable_progress is not None:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its stored progress is not a JSON object, so its start is "
            "unknown; give the progress to start from"
        )
    try:
        return kind_of(partition.progress) or WHOLE
    except SourceError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: {error}; or give the progress to start from"
        ) from None


def _by_kind(partitions: Sequence[Partition]) -> list[tuple[SourceKind, list[Partition]]]:
    kinds: dict[str, tuple[SourceKind, list[Partition]]] = {}
    for partition in partitions:
        kind = kind_of_stored(partition)
        kinds.setdefault(kind.name, (kind, []))[1].append(partition)
    return list(kinds.values())


def _merged(target: Target, plans: Sequence[ResetPlan]) -> ResetPlan:
    """Merge several plans into one."""
    return ResetPlan(
        target=plans[0].target if len(plans) == 1 else target,
        steps=tuple(step for plan in plans for step in plan.steps),
        left={key: why for plan in plans for key, why in plan.left.items()},
        warnings=tuple(warning for plan in plans for warning in plan.warnings),
    )


ABOUT_PREVIOUS_DATA = "Its partitions and the state of its supplier are about what it has read"
MAX_KEYS_IN_ERROR = 5


def left_of(kind_before: str, before: Mapping[str, Any], kind: str, now: Mapping[str, Any]) -> list[str]:
    """Return what a change leaves that partitions of the source may be about, such as `table 'orders'`.

    :param kind_before: the kind of source before.
    :param before: the location before; see `SourceKind.left`.
    :param kind: the kind of source now.
    :param now: the location now.
    :raises ConfigurationError: if the kind cannot be imported.
    """
    if kind != kind_before:
        return [f"kind {kind_before!r}"]
    return list(kind_named(kind).left(before, now))


def how_to_forget(source: str) -> str:
    """Return the remedy that keeps the name of a source without a supervisor."""
    return (
        "keep the name and forget what was read: run 'airflow-coordination suspend "
        f"{source} --reason REASON', 'airflow-coordination reset {source} --forget' and 'airflow-coordination resume "
        f"{source}'"
    )


def forgettable(coordinator: SourceCoordinator, *, is_idle: bool = False) -> list[Partition]:
    """Check that a source is not in work, and return its partitions.

    :param is_idle: whether it is known that no job can begin, so that the source need not be suspended.
    :raises SupervisionError: if the source is not suspended, a lease is held, or a batch is not acknowledged.
    """
    view = coordinator.view
    if not is_idle and view.suspensions.get() is None:
        raise SupervisionError(
            f"source {view.source!r} cannot forget what it has read while jobs may work on it; suspend it, and wait "
            f"until its jobs have ended: airflow-coordination suspend {view.source} --reason REASON"
        )
    partitions = list(view.partitions())
    state = view.supplier_item()
    leased = [
        each.partition_key for each in partitions if each.status is PartitionStatus.ASSIGNED and not each.is_awaiting
    ]
    if state is not None and state.owner is not None:
        leased.append("the supplier")
    undelivered = [each.partition_key for each in partitions if _is_undelivered(each)]
    if leased:
        raise SupervisionError(
            f"source {view.source!r} cannot forget what is leased: {_some(leased)}; wait until its jobs have ended, or "
            f"end the leases of jobs that are gone: airflow-coordination release {view.source} --expired"
        )
    if undelivered:
        raise SupervisionError(
            f"source {view.source!r} cannot forget {len(undelivered)} partitions with batches that are not "
            f"acknowledged: {_some(undelivered)}; resume it until they are delivered, or give them up: "
            f"airflow-coordination delete {view.source} KEY"
        )
    return partitions


def forget(
    coordinator: SourceCoordinator, *, by: str | None = None, reason: str = "", is_idle: bool = False
) -> list[tuple[Partition, CoordinationError | None]]:
    """Remove the partitions of a source, its claims and the state of its supplier: it is as if it was never read.

    The state, and the claim of the DAG that read it, are removed last, and only if everything before is: until then, a
    change of what the source reads is refused.

    :param coordinator: of the source, initialized.
    :param by: the user or the task; logged and kept in the history. None if unknown.
    :param reason: the reason; logged and kept in the history.
    :param is_idle: see `forgettable`.
    :returns: each partition as it was, with the reason if it could not be removed.
    :raises SupervisionError: see `forgettable`; nothing was removed.
    :raises PartitionUpdateError: if the supplier ran in between; forget again.
    """
    view = coordinator.view
    partitions = forgettable(coordinator, is_idle=is_idle)
    state, claim = view.supplier_item(), claimed(view)
    administration = Administration(view.store, view.source_identifier, view.clock, by=by, reason=reason)
    done: list[tuple[Partition, CoordinationError | None]] = []
    for partition in partitions:
        try:
            administration.delete(partition.partition_key, expected=partition, keeps_claims=True)
        except PartitionUpdateError as error:
            done.append((partition, error))
        else:
            done.append((partition, None))
    if any(error for _, error in done):
        return done
    if view.supplier_item() != state:
        raise PartitionUpdateError(f"the supplier of source {view.source!r} ran in between; forget again")
    released = coordinator.claims.release_all()
    KeptMessages(view).forget()
    IntervalLedger(view).forget()
    for item in (state, claim):
        if item is not None:
            view.store.delete(item)
    log.info(
        "source forgotten: source=%s partitions=%d claims=%d by=%s reason=%r",
        view.source, len(done), released, by, reason,
    )  # fmt: skip
    return done


def _is_undelivered(partition: Partition) -> bool:
    """Return whether a partition holds batches that are not acknowledged, or may hold some."""
    if partition.unreadable_progress is not None:
        return True
    try:
        landed = landed_progress(partition.progress)
        return bool(SourceBatches().pending(partition.progress)) or (landed is not None and bool(landed.landed))
    except SourceError:
        return True


def _some(keys: list[str]) -> str:
    return first_of(list(map(repr, keys)), MAX_KEYS_IN_ERROR)
