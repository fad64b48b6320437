"""The comparison of a partition in the store with the batches that a sink recorded; pure functions.

The batches of a partition are numbered without a gap, and each begins where the one before it ends. A reset begins a
new epoch, which has numbers of its own. So a missing number is a missing batch, whatever clocks say. Numbers that
follow each other with positions that do not are a position that somebody changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise

from airflow_provider_coordination.audit.report import AuditFinding, PartitionAudit, State, shown
from airflow_provider_coordination.sources.landed import BATCHES_PER_EPOCH
from airflow_provider_coordination.spark.ledger import BatchFault, LedgerEntry, SinkContents

IsBefore = Callable[[str, str], bool | None]
"""Returns whether a position of a partition is before another one; None if nothing shows it."""
RECENT_EPOCHS = 3
"""With how many earlier epochs an epoch is compared: a partition that is read again every hour has thousands."""
FIRST_EPOCH_INSTANT = 1_000_000_000
"""The epochs of resets are instants in seconds since 1970; a partition that is read again counts from 0."""


@dataclass(frozen=True, kw_only=True)
class ReadRange:
    """What the store knows of a partition.

    :param partition_key: the partition.
    :param checkpoint: the position up to which everything is delivered.
    :param epoch: its epoch.
    :param ordinal: the number of its last recorded batch, before the sinks were read.
    :param pending: how many of its batches were not delivered then.
    :param latest_ordinal: the number of its last recorded batch, after the sinks were read.
    :param lost: the ranges that the source had lost before they were read, each as a sentence.
    :param is_repairing: whether a range of it is being repaired.
    :param changed: whether it was reset while the sinks were read.
    """

    partition_key: str
    checkpoint: str
    epoch: int
    ordinal: int
    pending: int
    latest_ordinal: int
    lost: Sequence[str] = ()
    is_repairing: bool = False
    changed: bool = False

    @property
    def first_ordinal(self) -> int:
        """The number of the first batch of its epoch."""
        return self.epoch * BATCHES_PER_EPOCH + 1

    @property
    def delivered_ordinal(self) -> int:
        """The number of the last batch of its epoch that every sink must have; `first_ordinal - 1` if there is none."""
        return max(self.ordinal - self.pending, self.first_ordinal - 1)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compares the partitions of one source in one sink.

    :param source: the name of the source, for remedies.
    :param sink: the name of the sink.
    :param contents: what the sink has.
    :param is_before: the order of positions.
    :param is_initial: see `SourceKind.is_initial`.
    :param removed: the partitions that may have been removed from the store because they were finished.
    """

    source: str
    sink: str
    contents: SinkContents
    is_before: IsBefore
    is_initial: Callable[[str], bool]
    removed: Collection[str] = ()

    def of(
        self, key: str, read: ReadRange | None, entries: Sequence[LedgerEntry], repairs: Sequence[LedgerEntry] = ()
    ) -> PartitionAudit:
        """Compare one partition.

        :param key: the partition.
        :param read: what the store knows of it; None if it has no such partition.
        :param entries: its batches in the sink.
        :param repairs: the batches of the partitions by which ranges of it were repaired.
        """
        ordered = sorted(entries, key=lambda entry: (entry.ordinal, entry.fencing_token))
        epochs = [list(group) for _, group in groupby(ordered, key=lambda entry: epoch_of(entry.ordinal))]
        found: list[AuditFinding] = [] if read is None else list(self._lost(read))
        if not self.contents.is_partial:
            for group in epochs:
                found += self._within(group, read)
            for number, later in enumerate(epochs[1:], 1):
                recent = epochs[max(0, number - RECENT_EPOCHS) : number]
                found += self._between([each for group in recent for each in group], later)
            found += self._end(key, read, ordered)
        held = [entry for entry in ordered if not self._is_missing(entry)]
        whole: list[LedgerEntry] = []
        contents: list[AuditFinding] = []
        for entry in ordered:
            wrong = self._content(entry)
            if wrong is None:
                whole.append(entry)
            elif read is None or read.changed or entry.ordinal <= read.delivered_ordinal:
                contents.append(wrong)  # later batches are still under way
        found += joined(contents)
        whole += [entry for entry in repairs if self._content(entry) is None]
        fillers = whole if len(epochs) > 1 or repairs else []
        return PartitionAudit(
            sink=self.sink,
            partition_key=key,
            batches=len(held),
            records=sum(entry.records for entry in held),
            rows=None if any(e.rows is None for e in held) else sum(entry.rows or 0 for entry in held),
            left_out=_summed(held),
            since=self._known_since(ordered),
            until=ordered[-1].end if ordered else None,
            findings=[_with_loss(each, read) for each in found if not self._is_covered(each, fillers)],
        )

    def _known_since(self, ordered: Sequence[LedgerEntry]) -> str | None:
        first = ordered[0] if ordered else None
        if first is None or self.contents.is_partial:
            return None
        return None if first.ordinal == epoch_of(first.ordinal) * BATCHES_PER_EPOCH + 1 else first.start

    # The chain

    def _lost(self, read: ReadRange) -> Iterator[AuditFinding]:
        """Yield the ranges that no sink can have."""
        for text in read.lost:
            reason = f"the source had lost a range before it was read: {text}"
            yield AuditFinding(
                state=State.GAP, sink=self.sink, partition_key=read.partition_key, reason=reason, is_explained=True
            )

    def _within(self, group: Sequence[LedgerEntry], read: ReadRange | None) -> Iterator[AuditFinding]:
        """Yield what is wrong with the order of batches of one epoch."""
        for one, next_one in pairwise(group):
            skipped = next_one.ordinal - one.ordinal - 1
            if skipped < 0:
                yield self._finding(
                    State.OVERLAP, next_one, next_one.start, _earlier(one.end, next_one.end, self.is_before),
                    f"batches {one.batch_id} and {next_one.batch_id} are both number {_number(one)}: after the first "
                    "one was delivered, the store was restored from an older backup, or the progress was set by hand",
                    f"remove the rows of batch {next_one.batch_id} if the table does not merge",
                )  # fmt: skip
            elif skipped and one.end != next_one.start:  # otherwise they had no record, and no sink gets those
                yield self._finding(
                    State.GAP, one, one.end, next_one.start,
                    f"{_batches(skipped)} after number {_number(one)} {'is' if skipped == 1 else 'are'} not in the "
                    "record of the sink: commits were undone, or parts of the record were removed",
                    self._repair(one.partition_key), skipped,
                )  # fmt: skip
            elif one.end != next_one.start and not _is_lost(read, one.end):
                yield self._moved(one, one.end, next_one.start)

    def _moved(self, at: LedgerEntry, end: str, start: str) -> AuditFinding:
        """Return the finding for reading that went on at another position than the end of the batch before."""
        is_back = self.is_before(start, end)
        if is_back is None:
            return self._finding(
                State.UNEXPLAINED, at, end, start,
                f"after {shown(end)} was delivered, reading continued at {shown(start)}: the checkpoint was moved by "
                "hand",
                "find out who moved it; if records are missing, " + self._reset(at.partition_key, end),
            )  # fmt: skip
        if is_back:
            return self._finding(
                State.OVERLAP, at, start, end,
                f"reading went back from {shown(end)} to {shown(start)}: the checkpoint was moved by hand, or the "
                "store was restored from an older backup",
                "remove the rows that are there twice, if the table does not merge",
            )  # fmt: skip
        return self._finding(
            State.GAP, at, end, start,
            f"reading continued from {shown(end)} to {shown(start)}: the checkpoint was moved by hand",
            self._repair(at.partition_key),
        )  # fmt: skip

    def _between(self, earlier: Sequence[LedgerEntry], later: Sequence[LedgerEntry]) -> Iterator[AuditFinding]:
        """Yield what a reset left out, or what it let the sink get twice.

        :param earlier: the batches of earlier epochs.
        :param later: those of one epoch.
        """
        last, first, end = earlier[-1], later[0], later[-1].end
        what = epoch_name(epoch_of(first.ordinal))
        if last.end == first.start:
            return
        if self.is_before(last.end, first.start):
            reason = f"{what} skipped this range"
            yield replace(self._finding(State.GAP, first, last.end, first.start, reason), is_explained=True)
        elif self.is_before(first.start, last.end) is None:
            reason = f"{what} went on at {shown(first.start)}"
            yield replace(self._finding(State.OVERLAP, first, first.start, last.end, reason), is_explained=True)
        twice = [
            entry
            for entry in earlier
            if self._content(entry) is None
            and self.is_before(first.start, entry.end)
            and self.is_before(entry.start, end)
        ]
        if twice:
            after = twice[0].start if self.is_before(first.start, twice[0].start) else first.start
            until = _earlier(end, twice[-1].end, self.is_before)
            reason = f"{what} read this range again"
            yield replace(self._finding(State.OVERLAP, first, after, until, reason), is_explained=True)

    # The end

    def _end(self, key: str, read: ReadRange | None, ordered: Sequence[LedgerEntry]) -> Iterator[AuditFinding]:
        """Yield how the last batch contradicts the store."""
        last = ordered[-1] if ordered else None
        if read is None:
            if last is not None and not last.is_last and key not in self.removed:
                yield self._finding(
                    State.UNEXPLAINED, last, last.end, None,
                    "the store has no such partition: it was deleted, or the store was restored from an older backup",
                    "if the store lost more than this partition, restore it by `recover`",
                )  # fmt: skip
            return
        if read.changed:
            return
        if last is not None and last.ordinal > read.latest_ordinal and last.ordinal >= read.first_ordinal:
            yield self._ahead(read, last)
        elif last is None or last.ordinal < read.first_ordinal:
            yield from self._new_epoch(key, read, last)
        elif last.ordinal < read.delivered_ordinal and last.end == read.checkpoint:
            return  # the rest had no record
        elif last.ordinal < read.delivered_ordinal:
            yield self._behind(key, read, last.end, read.delivered_ordinal - last.ordinal)
        else:
            at = next((entry for entry in reversed(ordered) if entry.ordinal == read.delivered_ordinal), None)
            if at is not None and at.end != read.checkpoint and not _is_lost(read, at.end):
                yield self._checkpoint_moved(read, at)

    def _ahead(self, read: ReadRange, last: LedgerEntry) -> AuditFinding:
        reason = (
            f"the sink has batches up to number {_number(last)} of epoch {epoch_of(last.ordinal)}, and the store knows "
            f"those up to number {max(read.latest_ordinal - read.first_ordinal + 1, 0)} of epoch {read.epoch}: it was "
            "restored from an older backup, and reads this range again"
        )
        remedy = f"before a job reads it again: {self._reset(read.partition_key, last.end)}"
        return self._finding(State.UNEXPLAINED, last, read.checkpoint, last.end, reason, remedy)

    def _new_epoch(self, key: str, read: ReadRange, last: LedgerEntry | None) -> Iterator[AuditFinding]:
        """Yield the findings of a partition of whose present epoch the sink has no batch."""
        delivered = read.delivered_ordinal - read.first_ordinal + 1
        if read.is_repairing:
            return  # the gap stays until it is filled
        if delivered and self.is_initial(read.checkpoint):
            return  # its batches had no record, and no sink gets those
        if delivered:
            yield self._behind(key, read, None if last is None else last.end, delivered)
        elif last is not None and last.end != read.checkpoint and not self.is_before(last.end, read.checkpoint):
            what = f"{epoch_name(read.epoch)} lets jobs read this range again"
            finding = self._finding(State.OVERLAP, last, read.checkpoint, last.end, what)
            yield replace(finding, is_explained=True)

    def _behind(self, key: str, read: ReadRange, after: str | None, batches: int) -> AuditFinding:
        return AuditFinding(
            state=State.GAP,
            sink=self.sink,
            partition_key=key,
            after=after,
            until=read.checkpoint,
            batches=batches,
            reason=f"{_batches(batches)} that the store counts as delivered {'is' if batches == 1 else 'are'} not in "
            "the record of the sink: it was restored to an older version, or parts of it were removed",
            remedy=self._repair(key),
        )

    def _checkpoint_moved(self, read: ReadRange, at: LedgerEntry) -> AuditFinding:
        finding = self._moved(at, at.end, read.checkpoint)
        if finding.state is State.OVERLAP:
            return replace(
                finding,
                reason=f"the checkpoint is {shown(read.checkpoint)}, but everything up to {shown(at.end)} is "
                "delivered: it was moved by hand, and jobs read this range again",
                remedy=f"before a job reads it again: {self._reset(at.partition_key, at.end)}",
            )
        return finding

    # Files and rows

    def _is_missing(self, entry: LedgerEntry) -> bool:
        fault = self.contents.faults.get(entry.batch_id)
        return fault is not None and fault.is_missing

    def _content(self, entry: LedgerEntry) -> AuditFinding | None:
        """Return what is wrong with the files or rows of a batch; None if nothing is."""
        fault: BatchFault | None = self.contents.faults.get(entry.batch_id)
        counted = self.contents.counted
        texts = [] if fault is None else [fault.text]
        state = State.UNEXPLAINED
        if counted is not None and entry.rows is not None and not self.contents.replaces_rows:
            rows = counted.get(entry.batch_id, 0)
            if rows != entry.rows:
                texts.append(f"it has {rows} rows instead of the {entry.rows} that were delivered")
                state = State.OVERLAP if rows > entry.rows else State.GAP
        if fault is not None and fault.is_missing:
            state = State.GAP
        if not texts:
            return None
        remedy = {
            State.OVERLAP: f"remove the rows of batch {entry.batch_id} that are there twice",
            State.GAP: self._repair(entry.partition_key),
            State.UNEXPLAINED: "audit with --rows, which counts the rows of each batch",
        }[state]
        reason = f"batch {entry.batch_id}: {'; '.join(texts)}"
        return self._finding(state, entry, entry.start, entry.end, reason, remedy, 1)

    # Gaps that something else fills

    def _is_covered(self, finding: AuditFinding, held: Sequence[LedgerEntry]) -> bool:
        """Return whether batches of a later epoch, or of a repair, hold the range of a gap."""
        if finding.state is not State.GAP or finding.after is None or finding.until is None:
            return False
        position = finding.after
        while position != finding.until:
            reached = [e.end for e in held if self._holds(e, position) and self.is_before(position, e.end)]
            if not reached:
                return False
            position = reached[0]
            for end in reached[1:]:
                position = end if self.is_before(position, end) else position
            if self.is_before(finding.until, position):
                return True
        return True

    def _holds(self, entry: LedgerEntry, position: str) -> bool:
        return entry.start == position or self.is_before(entry.start, position) is True

    # Texts

    def _finding(
        self,
        state: State,
        entry: LedgerEntry,
        after: str | None,
        until: str | None,
        reason: str,
        remedy: str = "",
        batches: int | None = None,
    ) -> AuditFinding:
        return AuditFinding(
            state=state,
            sink=self.sink,
            partition_key=entry.partition_key,
            after=after,
            until=until,
            batches=batches,
            reason=reason,
            remedy=remedy,
        )

    def _repair(self, key: str) -> str:
        return (
            f"restore the sink from a backup, or read the range again: airflow-coordination repair {self.source} {key}"
        )

    def _reset(self, key: str, position: str) -> str:
        return f"airflow-coordination reset {self.source} {key} --to {position or 'earliest'}"


AND = ", and the same of "


def joined(findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    """Return findings of a partition, in order, with neighbouring gaps as one."""
    result: list[AuditFinding] = []
    more = 0
    for finding in findings:
        last = result[-1] if result else None
        if last is None or not (last.state is State.GAP is finding.state and last.until == finding.after):
            result.append(finding)
            more = 0
            continue
        more += 1
        reason = last.reason if more == 1 else last.reason.rpartition(AND)[0]
        result[-1] = replace(
            last,
            until=finding.until,
            batches=(last.batches or 0) + (finding.batches or 0),
            reason=f"{reason}{AND}{_batches(more)} after it",
        )
    return result


def epoch_of(ordinal: int) -> int:
    """Return the epoch of a batch by its number."""
    return max(ordinal - 1, 0) // BATCHES_PER_EPOCH


def epoch_name(epoch: int) -> str:
    """Return what began an epoch, for a sentence."""
    if epoch < FIRST_EPOCH_INSTANT:
        return f"the start of epoch {epoch}"
    return f"the reset at {datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _number(entry: LedgerEntry) -> int:
    return entry.ordinal - epoch_of(entry.ordinal) * BATCHES_PER_EPOCH


def _with_loss(finding: AuditFinding, read: ReadRange | None) -> AuditFinding:
    """Return a finding as explained if it is a gap that was to be read again, and the source no longer had it."""
    if finding.state is not State.GAP or finding.after is None or not _is_lost(read, finding.after):
        return finding
    reason = f"{finding.reason}; the source no longer had the range when it was to be read again"
    return replace(finding, reason=reason, remedy="", is_explained=True)


def _is_lost(read: ReadRange | None, after: str) -> bool:
    """Return whether the source had lost what follows a position, so that reading went on elsewhere."""
    return read is not None and any(text.startswith(f"({after}, ") for text in read.lost)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"


def _earlier(one: str, other: str, is_before: IsBefore) -> str:
    return other if is_before(other, one) else one


def _summed(entries: Sequence[LedgerEntry]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for entry in entries:
        for stage, count in entry.left_out.items():
            total[stage] = total.get(stage, 0) + count
    return total
