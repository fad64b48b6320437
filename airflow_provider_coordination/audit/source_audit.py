"""The audit of a source: reads the store, then the sinks, then the store again, and compares.

Jobs may go on during that time. What the store had as delivered before the sinks were read must be there, and
what it knows afterwards may be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.audit.comparison import Comparison, ReadRange
from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, SinkAudit, State
from airflow_provider_coordination.coordination.errors import CoordinationError, SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.items import REPAIR, repaired_name
from airflow_provider_coordination.sources.kinds import known_kind, landed_progress, lost
from airflow_provider_coordination.sources.landed import LandedProgress, instant_of
from airflow_provider_coordination.sources.source_kind import SourceKind
from airflow_provider_coordination.spark.ledger import LedgerEntry, SinkContents
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks import make_sinks

CLOCKS_APART = timedelta(minutes=2)
"""By how much clocks may differ before a note names the job."""


def audit_source(view: SourceView, sinks: Iterable[SinkSettings], *, reads_rows: bool = False) -> AuditReport:
    """Audit a source.

    :param view: the source, initialized.
    :param sinks: the sinks that it is delivered to.
    :param reads_rows: whether to read rows, and not only metadata.
    :raises StoreUnavailableError: if the store is unavailable.
    :raises ConfigurationError: if the settings of a sink are wrong.
    :raises SourceError: if partitions are gone, and the state of their supplier cannot be read.
    """
    before = {each.partition_key: each for each in view.partitions()}
    contents = {each.name: (each, contents_of(view, each, reads_rows=reads_rows)) for each in sinks}
    after = {each.partition_key: each for each in view.partitions()}
    reads, unreadable = _reads(before, after)
    kind = next(filter(None, map(known_kind, after.values())), SourceKind(""))
    state = view.supplier_state()
    audits = []
    for name, (settings, found) in contents.items():
        if isinstance(found, AuditFinding):
            audits.append(SinkAudit(name=name, location=settings.location, findings=[found]))
            continue
        wrong = [
            AuditFinding(
                state=State.UNEXPLAINED, sink=name, partition_key=key, reason=f"its progress cannot be read: {error}",
                remedy="restore the partition's progress",
            )
            for key, error in unreadable.items()
        ]  # fmt: skip
        audits.append(_audited(view, name, found, reads, kind, state, wrong))
    return AuditReport(source=view.source, reads_rows=reads_rows, sinks=audits)


def dead_letter_sink(path: str) -> SinkSettings:
    """Return the settings of the dead letters of a source.

    :param path: their folder.
    """
    return SinkSettings(name=DEAD_LETTER, kind=PARQUET, location=path)


def contents_of(view: SourceView, settings: SinkSettings, *, reads_rows: bool) -> SinkContents | AuditFinding:
    """Return what a sink has, or why that cannot be known.

    :param view: the source, initialized.
    :param settings: of the sink.
    :param reads_rows: whether to read rows, and not only metadata.
    """
    [sink] = make_sinks([settings])
    try:
        found = sink.contents(view.source_identifier.__eq__, reads_rows=reads_rows)
    except (CoordinationError, OSError) as error:
        return AuditFinding(
            state=State.UNEXPLAINED, sink=settings.name, reason=f"the sink cannot be read: {error}",
            remedy="restore the sink, or give its right location, and audit again",
        )  # fmt: skip
    if found is None:
        return AuditFinding(
            state=State.UNEXPLAINED, sink=settings.name, is_explained=True,
            reason=f"sinks of kind {settings.kind!r} keep no record of their batches, so nothing can be compared",
        )  # fmt: skip
    return found


def _reads(
    before: Mapping[str, Partition], after: Mapping[str, Partition]
) -> tuple[dict[str, ReadRange], dict[str, str]]:
    """Return what the store knows of each partition, and why others cannot be read."""
    reads: dict[str, ReadRange] = {}
    unreadable: dict[str, str] = {}
    for key, partition in before.items():
        later = after.get(key, partition)
        try:
            progress, latest = _progress(partition), _progress(later)
        except SourceError as error:
            unreadable[key] = str(error)
            continue
        if progress is None or latest is None:
            continue  # no job reads it
        reads[key] = ReadRange(
            partition_key=key,
            checkpoint=progress.checkpoint,
            epoch=progress.epoch,
            ordinal=progress.ordinal,
            pending=len(progress.landed),
            latest_ordinal=latest.ordinal,
            lost=lost(partition),
            is_repairing=latest.is_repairing,
            changed=progress.epoch != latest.epoch,
        )
    return reads, unreadable


def _progress(partition: Partition) -> LandedProgress | None:
    if partition.unreadable_progress is not None:
        raise SourceError("it is not a JSON object")
    return landed_progress(partition.progress)


def _audited(
    view: SourceView,
    name: str,
    contents: SinkContents,
    reads: Mapping[str, ReadRange],
    kind: SourceKind,
    state: Mapping[str, Any],
    wrong: Sequence[AuditFinding],
) -> SinkAudit:
    own: dict[str, list[LedgerEntry]] = {}
    repairs: dict[str, list[LedgerEntry]] = {}
    for entry in contents.entries:
        own.setdefault(entry.partition_key, []).append(entry)
        repaired, mark, _ = entry.partition_key.rpartition(REPAIR)
        if mark:
            repairs.setdefault(repaired, []).append(entry)
    ends = [max(entries, key=lambda entry: entry.ordinal) for key, entries in own.items() if key not in reads]
    removed = _removed([end for end in ends if not end.is_last], kind, state)
    comparison = Comparison(
        source=view.source, sink=name, contents=contents, removed=removed,
        is_before=kind.is_before, is_initial=kind.is_initial,
    )  # fmt: skip
    keys = sorted({*own, *reads})
    partitions = [
        comparison.of(key, reads.get(key), own.get(key, []), repairs.get(repaired_name(key), [])) for key in keys
    ]
    others = [AuditFinding(state=State.UNEXPLAINED, sink=name, reason=text) for text in contents.others]
    return SinkAudit(
        name=name,
        location=contents.location,
        partitions=partitions,
        replaces_rows=contents.replaces_rows,
        findings=[*wrong, *others],
        notes=_notes(contents, view.clock.now(), len(removed)),
    )


def _removed(ends: Sequence[LedgerEntry], kind: SourceKind, state: Mapping[str, Any]) -> set[str]:
    """Return the partitions of these last batches that the supplier may have removed since then."""
    until = kind.removed_until([end.partition_key for end in ends], state) if ends else {}
    landed = ((end.partition_key, instant_of(end.landed_at)) for end in ends)
    return {key for key, at in landed if at is not None and key in until and at < until[key]}


def _notes(contents: SinkContents, now: datetime, removed: int) -> list[str]:
    notes = list(contents.notes)
    if contents.since is not None:
        notes.append(
            f"the record of {contents.location} reaches back to {contents.since:%Y-%m-%dT%H:%M:%SZ}: what it had "
            "before has expired, and is not compared"
        )
    if contents.unknown:
        notes.append(
            f"of {len(contents.unknown)} batches of {contents.location} only the ids are known, such as "
            f"{contents.unknown[0]}: their ranges are not compared"
        )
    if contents.replaces_rows:
        notes.append(f"rows of {contents.location} replace others, so the rows of a batch are not counted")
    late = max((entry.landed_at for entry in contents.entries), default="")
    landed_at = instant_of(late)
    if landed_at is not None and landed_at > now + CLOCKS_APART:
        [batch_id, *_] = (entry.batch_id for entry in contents.entries if entry.landed_at == late)
        notes.append(
            f"batch {batch_id} was recorded at {late}, which is {(landed_at - now).total_seconds():.0f} s ahead of "
            "this clock: synchronize the clocks of the jobs' machines. The audit compares numbers, not times"
        )
    if removed:
        text = "1 finished partition is" if removed == 1 else f"{removed} finished partitions are"
        notes.append(
            f"{text} no longer in the store, as its supplier removes them: whether their last batches are there is "
            "not known, as these may have had no record"
        )
    return notes
