"""Repairs: each gap that an audit found becomes a range that is read again, and nothing else is.

A plan says what would happen, and in which sinks a range would be there twice. Only a user applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_coordination.audit.comparison import joined
from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, SinkAudit, State
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.items import REPAIR, repaired_name
from airflow_provider_coordination.sources.reset import kind_of_stored
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, Target
from airflow_provider_coordination.sources.source_kind import RangeRepair

GapRange = tuple[str, str | None, str | None]
"""A partition, the position after which a range begins, and the position of its end."""


@dataclass(frozen=True, kw_only=True)
class PlannedRepair:
    """What becomes of one gap.

    :param gap: the gap; its sink is the first one that lacks the range.
    :param lacking: the names of the sinks that lack the range.
    :param having: the names of the sinks that have it, and would get it twice.
    :param repair: what is done; None if nothing can be done.
    :param problem: why nothing can be done; empty if something can.
    """

    gap: AuditFinding
    lacking: Sequence[str]
    having: Sequence[str]
    repair: RangeRepair | None = None
    problem: str = ""

    @property
    def range(self) -> GapRange:
        """The partition and the positions of the range."""
        return _range_of(self.gap)


def plan_repairs(
    report: AuditReport, partitions: Mapping[str, Partition], target: Target, keys: Collection[str] = ()
) -> list[PlannedRepair]:
    """Plan to read the gaps of a report again.

    :param report: an audit of every sink of the source.
    :param partitions: the partitions of the source, by key, as they were read after the audit.
    :param target: when the repair was requested.
    :param keys: only these partitions; all by default.
    """
    ranges: dict[GapRange, list[AuditFinding]] = {}
    for sink in report.sinks:
        for partition in sink.partitions:
            if not keys or partition.partition_key in keys:
                for gap in joined(_gaps(partition.findings)):
                    ranges.setdefault(_range_of(gap), []).append(gap)
    under_way = {
        key.rpartition(REPAIR)[0]: key
        for key, each in partitions.items()
        if REPAIR in key and each.status is not PartitionStatus.COMPLETED
    }
    planned: list[PlannedRepair] = []
    reset: set[str] = set()
    for (key, _, _), gaps in ranges.items():
        lacking = [gap.sink for gap in gaps]
        each = PlannedRepair(
            gap=gaps[0],
            lacking=lacking,
            having=[sink.name for sink in report.sinks if sink.name not in lacking and _has_twice(sink)],
        )
        if (repair := under_way.get(repaired_name(key))) is not None:
            problem = f"partition {repair} reads a range of it again; wait until that is completed"
            planned.append(replace(each, problem=problem))
            continue
        planned.append(_planned(each, partitions.get(key), target, is_reset=key in reset))
        if (made := planned[-1].repair) is not None and made.step.action is ResetAction.RESET:
            reset.add(key)
    return planned


def findings_left(report: AuditReport, planned: Sequence[PlannedRepair]) -> list[AuditFinding]:
    """Return the findings that are not explained and that a plan does not repair; a gap among them says why.

    :param report: the audit.
    :param planned: what is planned for all its gaps.
    """
    by_range = {each.range: each for each in planned}
    left: list[AuditFinding] = []
    for sink in report.sinks:
        for findings in (sink.findings, *(each.findings for each in sink.partitions)):
            left += [each for each in findings if each.state is not State.GAP and not each.is_explained]
            for gap in joined(_gaps(findings)):
                plan = by_range.get(_range_of(gap))
                if plan is None or plan.repair is None:
                    problem = "" if plan is None else f"it cannot be repaired now: {plan.problem}"
                    left.append(replace(gap, remedy=problem or gap.remedy))
    return left


def _range_of(gap: AuditFinding) -> GapRange:
    return gap.partition_key, gap.after, gap.until


def _gaps(findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    return [each for each in findings if each.state is State.GAP and not each.is_explained]


def _has_twice(sink: SinkAudit) -> bool:
    """Return whether a range that is delivered again is in a sink twice."""
    return not sink.replaces_rows and bool(sink.partitions)


def _planned(each: PlannedRepair, partition: Partition | None, target: Target, *, is_reset: bool) -> PlannedRepair:
    gap = each.gap
    if partition is None:
        return replace(each, problem="the store has no such partition")
    if gap.until is None:
        return replace(each, problem="the end of the range is not known")
    if is_reset:
        return replace(each, problem="another range of the partition is repaired first; repair again afterwards")
    try:
        repair = kind_of_stored(partition).plan_repair(partition, gap.after, gap.until, target)
    except CoordinationError as error:
        return replace(each, problem=str(error))
    return replace(each, repair=repair)


def plan_of(planned: Sequence[PlannedRepair], target: Target) -> ResetPlan:
    """Return the reset that carries out what is planned."""
    return ResetPlan(target=target, steps=tuple(each.repair.step for each in planned if each.repair), left={})
