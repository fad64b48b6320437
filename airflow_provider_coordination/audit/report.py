"""The result of an audit: what was found in each partition of each sink, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """How a range compares; a partition or a source has the last of the states of its findings."""

    COMPLETE = "complete"
    """Everything that was read is there once."""
    OVERLAP = "overlap"
    """A range is there twice, or will be."""
    GAP = "gap"
    """A range is not there."""
    UNEXPLAINED = "unexplained"
    """The records of store and sink contradict each other, or something is there that no job delivered."""


ORDER = list(State)


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """One range that is not complete.

    :param state: what it is.
    :param sink: the name of the sink.
    :param partition_key: the partition; empty for the sink as a whole.
    :param after: the position after which the range begins; None if it is not known.
    :param until: the position of its end; None if it is not known.
    :param batches: the number of its batches; None if it is not known.
    :param reason: what was found, and what causes it; a sentence.
    :param remedy: what to do; empty if there is nothing to do.
    :param is_explained: whether the store shows why it is so: a reset, or data that the source had lost.
    """

    state: State
    sink: str
    reason: str
    partition_key: str = ""
    after: str | None = None
    until: str | None = None
    batches: int | None = None
    remedy: str = ""
    is_explained: bool = False

    def __str__(self) -> str:
        """Return the finding as text: what and where, why, and what to do."""
        where = f"{self.partition_key} " if self.partition_key else ""
        has_range = self.after is not None or self.until is not None
        ends = f"({shown(self.after)}, {shown(self.until)}] " if has_range else ""
        state = f"{self.state}, explained" if self.is_explained else str(self.state)
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.sink}: {where}{ends}{state}: {self.reason}{remedy}"


def shown(position: str | None) -> str:
    """Return a position for a sentence."""
    return "?" if position is None else position or "the start"


@dataclass(frozen=True, kw_only=True)
class PartitionAudit:
    """A partition in one sink.

    :param sink: the name of the sink.
    :param partition_key: the partition.
    :param batches: the number of batches that are there.
    :param records: the number of records that were read for them.
    :param rows: the number of their rows when they were delivered; None if that is not known of all.
    :param left_out: the number of records that only the dead letters got, by stage.
    :param since: the position from which the sink's record is known; None if that is the first position.
    :param until: the position of the end of the last batch; None if there is none.
    :param findings: what is not complete.
    """

    sink: str
    partition_key: str
    batches: int = 0
    records: int = 0
    rows: int | None = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None
    findings: Sequence[AuditFinding] = ()

    @property
    def state(self) -> State:
        """The state of the partition; what is explained counts as complete."""
        return state_of(self.findings)


@dataclass(frozen=True, kw_only=True)
class SinkAudit:
    """One sink.

    :param name: its name.
    :param location: its location, for display.
    :param partitions: its partitions, by key.
    :param findings: what concerns the sink as a whole.
    :param notes: what could not be compared, and why; sentences.
    :param replaces_rows: whether rows replace others, so that a range may be delivered again.
    """

    name: str
    location: str
    partitions: Sequence[PartitionAudit] = ()
    findings: Sequence[AuditFinding] = ()
    notes: Sequence[str] = ()
    replaces_rows: bool = False


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The audit of one source.

    :param source: its name.
    :param reads_rows: whether rows were read.
    :param sinks: its sinks.
    """

    source: str
    reads_rows: bool
    sinks: Sequence[SinkAudit]

    @property
    def findings(self) -> list[AuditFinding]:
        """Everything that was found, sink by sink."""
        return [
            finding
            for sink in self.sinks
            for finding in (*sink.findings, *(f for each in sink.partitions for f in each.findings))
        ]

    @property
    def unknown_sinks(self) -> list[str]:
        """The sinks of which nothing shows what they have: they get each range that is read again."""
        return [sink.name for sink in self.sinks if not sink.partitions]

    @property
    def state(self) -> State:
        """The state of the source; what is explained counts as complete."""
        return state_of(self.findings)


def state_of(findings: Sequence[AuditFinding]) -> State:
    """Return the gravest state of findings that are not explained."""
    return max((each.state for each in findings if not each.is_explained), key=ORDER.index, default=State.COMPLETE)
