"""Positions by hand: partitions of a source are read anew from where a person says, whoever works on them.

What is begun is fenced twice. Each write grows the partition's version, so the owner's next write is refused; and a
partition's progress enters a new epoch, which its batches are named after, so that a batch that was begun before can
neither be counted nor be mistaken for one that is read afterwards. What waits for its acknowledgment is cancelled.
Druid kills the tasks that read, and what others publish at that moment may still undo the reset; here it cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    CoordinationError,
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.sources.kinds import Access, SourceKind, kind_of
from airflow_provider_coordination.sources.reset_targets import EARLIEST, ResetAction, ResetPlan, ResetStep, Target

log = logging.getLogger(__name__)

REFUSALS = (PartitionNotFoundError, PartitionStatusError, PartitionUpdateError, ProgressError)
"""What concerns one partition alone."""


NAMED_AT_MOST = 20
"""So many names are repeated in an error."""


class Resets:
    """Sets the positions of one source's partitions.

    :param sets: the acknowledgment sets of the source; those of dropped batches are cancelled.
    :param by: the person, or the task; logged and kept in the history. None if unknown.
    :param reason: why; logged and kept in the history.
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

    def of_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None = None) -> ResetPlan:
        """Plan to reset just these partitions; what came from them stays as it is, unless it is named too.

        :param partitions: as they were seen.
        :param access: returns what asks the source, to compare the position with what it has, and the clock with its
            own; None for no comparison.
        :raises ConfigurationError: if they have no such position, or a position is given for several partitions.
        :raises ProgressError: if one of them has no such position, or its stored progress does not say what it is.
        """
        check_target(target, partitions)
        return _merged(
            target,
            [
                _plan_whole(own, target) if kind is None else kind.plan_some(own, target, access)
                for kind, own in _by_kind(partitions)
            ],
        )

    def of_group(self, group: str, target: Target, access: Access) -> ResetPlan:
        """Plan to read a part of the source anew that belongs together, such as a stream.

        :param group: what its kind of source calls it.
        :param access: returns what asks the source.
        :raises ConfigurationError: if the source has no such part, or a position is given that is of one partition.
        :raises ProgressError: if a stored progress does not say what it is.
        :raises SourceError: if the source does not answer.
        """
        groups = self._groups()
        own = {key: partitions for key, partitions in groups.items() if key[1] == group}
        if not own:
            known = sorted({name for _, name in groups if name is not None})
            raise ConfigurationError(
                f"source {self._coordinator.source!r} has nothing that is called {group!r}; "
                + (
                    f"it has {', '.join(map(repr, known))}"
                    if known
                    else "it has no parts at all: give keys, or all of it"
                )
            )
        return self._of_groups(own, target, access, repr(group))

    def of_groups(self, groups: Sequence[str], target: Target, access: Access) -> ResetPlan:
        """Plan to read several parts of the source anew; see `of_group`."""
        return _merged(target, [self.of_group(group, target, access) for group in groups])

    def of_source(self, target: Target, access: Access) -> ResetPlan:
        """Plan to read everything anew: what belongs together as such, other partitions each by itself.

        :raises ConfigurationError: as `of_group`, and if the source has no partition.
        :raises ProgressError: as `of_group`, and if a partition has no such position.
        """
        groups = self._groups()
        if not groups:
            raise ConfigurationError(f"source {self._coordinator.source!r} has no partitions; check the name")
        return self._of_groups(groups, target, access, "a source")

    def named(self, names: Sequence[str], group: str | None = None) -> list[Partition]:
        """Return the partitions that a person means.

        :param names: keys, or what their kind of source calls them, such as the ids of shards.
        :param group: to which part of the source they belong; None for any.
        :raises ConfigurationError: if there is none of a name.
        """
        called: dict[str, Partition] | None = None
        found = []
        for name in names:
            partition = self._coordinator.view.get(name)
            if partition is None:
                if called is None:
                    called = self._short_names(group)
                partition = called.get(name)
            if partition is None:
                known = ", ".join(sorted(called or ())[:NAMED_AT_MOST]) or "keys alone"
                raise ConfigurationError(
                    f"source {self._coordinator.source!r} has no partition {name!r}"
                    + (f" of {group!r}" if group else "")
                    + f"; check the name; known are: {known}"
                )
            found.append(partition)
        return found

    def _short_names(self, group: str | None) -> dict[str, Partition]:
        """Return partitions by what people call them; the latest one, where several have had a name."""
        found = {}
        for partition in sorted(self._all_partitions(), key=lambda each: each.partition_key):
            with suppress(ProgressError):  # it is called by its key alone
                kind = kind_of_stored(partition)
                if kind is not None and group in (None, kind.group_of(partition)):
                    found[kind.short_name(partition) or partition.partition_key] = partition
        return found

    def _groups(self) -> dict[tuple[str | None, str | None], list[Partition]]:
        """Return the partitions of the source by their kind and what they belong to."""
        groups: dict[tuple[str | None, str | None], list[Partition]] = {}
        for kind, own in _by_kind(list(self._all_partitions())):
            for partition in own:
                name = None if kind is None else kind.name
                group = None if kind is None else kind.group_of(partition)
                groups.setdefault((name, group), []).append(partition)
        return groups

    def _of_groups(
        self,
        groups: Mapping[tuple[str | None, str | None], list[Partition]],
        target: Target,
        access: Access,
        what: str,
    ) -> ResetPlan:
        if target.position is not None:
            for partitions in groups.values():
                check_target(target, partitions[:1])
            raise ConfigurationError(
                f"position {target.name!r} belongs to one partition, not to {what}: name the partition, or give an "
                "instant, 'earliest' or 'latest'"
            )
        plans = []
        for (_, group), partitions in sorted(groups.items(), key=lambda each: tuple(map(str, each[0]))):
            kind = kind_of_stored(partitions[0])
            if kind is None:
                plans.append(_plan_whole(partitions, target))
            else:
                plans.append(kind.plan_group(group, partitions, target, access))
        return _merged(target, plans)

    # Doing

    def carry_out(
        self, plan: ResetPlan, *, as_seen: bool = True, versions: Mapping[str, int] | None = None
    ) -> Iterator[tuple[ResetStep, Partition | CoordinationError]]:
        """Do what is planned, step by step; yield each partition as written, as it was before it was removed, or why
        nothing was done to it.

        Where something could not be reset, nothing of its group is removed: it would not come back in the same epoch.

        :param as_seen: do it only to partitions whose owner and status are as they were seen; else as they are now.
        :param versions: the versions that the person saw, by partition key: what was written to since is left alone.
        """
        failed = set()
        for step in plan.steps:
            try:
                if step.action is ResetAction.REMOVE and step.group in failed:
                    raise PartitionStatusError(
                        f"partition {step.partition.partition_key!r} stays: not all that it comes after could be "
                        f"reset; reset {step.group!r}, or the source, again"
                    )
                version = None if versions is None else versions.get(step.partition.partition_key)
                yield step, self._do(step, as_seen=as_seen, version=version)
            except REFUSALS as error:
                failed.add(step.group)
                yield step, error

    def _do(self, step: ResetStep, *, as_seen: bool, version: int | None) -> Partition:
        key = step.partition.partition_key
        seen = step.partition if as_seen else None
        if step.action is ResetAction.CREATE:
            partition = step.partition.with_progress(step.progress(step.partition))
            if not self._coordinator.store.create([partition]):
                raise PartitionUpdateError(f"partition {key!r} was created meanwhile; look at it again")
            log.info(
                "partition created by hand: source=%s partition=%s by=%s reason=%r",
                self._coordinator.source, key, self._by, self._reason,
            )  # fmt: skip
            return partition
        before = step.partition
        if step.action is ResetAction.REMOVE:
            # What somebody has removed meanwhile is removed.
            seen = seen or self._coordinator.store.get(before.source_identifier, key) or before
            written = before = self._administration.delete(key, seen=seen, version=version)
        else:

            def progress(partition: Partition) -> Mapping[str, Any]:
                nonlocal before
                before = partition
                return step.progress(partition)

            written = self._administration.reset(key, progress, seen=seen, version=version)
        self._cancel_sets(before)
        return written

    def _all_partitions(self) -> Iterator[Partition]:
        return all_partitions(self._coordinator.store, self._coordinator.view.source_identifier)

    def _cancel_sets(self, before: Partition) -> None:
        # Whatever becomes of such a set, it changes the partition no more; this ends the wait of others for it.
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
                log.warning("acknowledgment set %s is left to expire: %s", set_id, error)


def check_target(target: Target, partitions: Sequence[Partition]) -> None:
    """Check that partitions can be read from a target, as far as that is known without their progress.

    :raises ConfigurationError: if what is given as a position is none of their source, or is given for several.
    """
    if target.position is None:
        return
    for kind, _ in _by_kind(partitions):
        if kind is not None:
            kind.check_target(target)
    if len(partitions) > 1:
        raise ConfigurationError(
            f"position {target.name!r} belongs to one partition; got it for {len(partitions)} partitions: name one, or "
            "give an instant, 'earliest' or 'latest'"
        )


def restarted(partition: Partition, target: Target) -> Mapping[str, Any]:
    """Return the progress with which a partition is read from a target on.

    :raises ProgressError: if the stored progress does not say what it is, or the partition has no such position.
    """
    kind = kind_of_stored(partition)
    return _restarted_whole(partition, target) if kind is None else kind.restarted(partition, target)


def check_progress(partition: Partition, given: Mapping[str, Any]) -> None:
    """Check that a partition can start from a progress that a person gives.

    :raises ProgressError: if the two are not of one kind, or it is not one of this partition.
    """
    try:
        kind = kind_of(given if partition.unreadable_progress is not None else partition.progress) or kind_of(given)
    except SourceError as error:
        raise ProgressError(f"partition {partition.partition_key!r}: {error}") from None
    if kind is not None:
        kind.check_progress(partition, given)


def kind_of_stored(partition: Partition) -> SourceKind | None:
    """Return the kind of source of a partition; None if it says none.

    :raises ProgressError: if that cannot be read.
    """
    if partition.unreadable_progress is not None:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its stored progress is not a JSON object and does not say where "
            "it began; give the progress to start from"
        )
    try:
        return kind_of(partition.progress)
    except SourceError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: {error}; or give the progress to start from"
        ) from None


def _by_kind(partitions: Sequence[Partition]) -> list[tuple[SourceKind | None, list[Partition]]]:
    kinds: dict[str, tuple[SourceKind | None, list[Partition]]] = {}
    for partition in partitions:
        kind = kind_of_stored(partition)
        kinds.setdefault("" if kind is None else kind.name, (kind, []))[1].append(partition)
    return list(kinds.values())


def _restarted_whole(partition: Partition, target: Target) -> Mapping[str, Any]:
    if not target.is_earliest:
        raise ProgressError(
            f"partition {partition.partition_key!r} is read as a whole and has no position {target.name!r}; reset it "
            f"to {EARLIEST!r}, or give the progress to start from"
        )
    return {}


def _plan_whole(partitions: Sequence[Partition], target: Target) -> ResetPlan:
    def progress(partition: Partition) -> Mapping[str, Any]:
        return _restarted_whole(partition, target)

    for partition in partitions:
        progress(partition)
    steps = tuple(ResetStep(action=ResetAction.RESET, partition=each, progress=progress) for each in partitions)
    return ResetPlan(target=target, steps=steps, left={})


def _merged(target: Target, plans: Sequence[ResetPlan]) -> ResetPlan:
    """Return several plans in one."""
    return ResetPlan(
        target=plans[0].target if len(plans) == 1 else target,
        steps=tuple(step for plan in plans for step in plan.steps),
        left={key: why for plan in plans for key, why in plan.left.items()},
        warnings=tuple(warning for plan in plans for warning in plan.warnings),
    )
