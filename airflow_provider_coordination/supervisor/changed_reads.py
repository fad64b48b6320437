"""What a new spec of a source reads, compared with what the source has read under the same name.

A spec that leaves what partitions are about is refused, because jobs could not read them. Other changes are warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition
from airflow_provider_coordination.coordination.source_claim import (
    SourceClaim,
    as_stored,
    claimed,
    location_differences,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.forgetting import ABOUT_PREVIOUS_DATA, how_to_forget, left_of
from airflow_provider_coordination.sources.reset import kind_of_stored
from airflow_provider_coordination.supervisor.spec import IngestionSpec


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a source is read from.

    :param kind: the kind of source.
    :param location: see `Located.reads_from`.
    :param parts: the names of its parts, such as streams; empty if it has none, or if they are unknown.
    """

    kind: str
    location: Mapping[str, Any]
    parts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: IngestionSpec) -> Location:
        """Return where a spec reads from."""
        location = as_stored(getattr(spec.ingestion.reads, "reads_from", {}))
        return cls(kind=spec.ingestion.reads.kind, location=location, parts=frozenset(parts_of(spec)))


def parts_of(spec: IngestionSpec) -> Sequence[str]:
    """Return the names of the parts of the source that are reset as a whole, such as streams."""
    parts: Sequence[str] = getattr(spec.ingestion.reads, "parts", ())
    return parts


def check_reads(
    view: SourceView, last: Mapping[str, Any] | None, spec: IngestionSpec, *, is_terminated: bool = False
) -> list[str]:
    """Check that a spec still reads what the partitions of its source are about; return warnings.

    :param view: an initialized view of the source.
    :param last: the last spec of the source, as it was written; None if there is none.
    :param is_terminated: whether its supervisor is terminated.
    :raises ConfigurationError: if partitions, or the state of the supplier, are about something else.
    """
    before, now = _location_before(view, last), Location.of(spec)
    if left := _left(view, before, now):
        raise ConfigurationError(
            f"spec: field 'reads' no longer names {', '.join(left)}, which source {view.source!r} has read. "
            f"{ABOUT_PREVIOUS_DATA}; keep what it reads, or give the spec another 'source', or "
            + (how_to_forget(view.source) if last is None else _how_to_forget(view, is_terminated=is_terminated))
        )
    if before is None or now.parts or before.location == now.location or view.is_empty():
        return []
    return [
        f"field 'reads' changes: {', '.join(location_differences(now.location, before.location))}; partitions that "
        "exist are still delivered, and what the source remembers, such as finished scans, stays; to begin from the "
        "start, give another 'source'"
    ]


def _how_to_forget(view: SourceView, *, is_terminated: bool) -> str:
    """Return the remedy that keeps the name of a source with a supervisor."""
    is_stopped = is_terminated or view.suspensions.get() is not None
    suspend = "" if is_stopped else f"run 'airflow-coordination supervisor suspend {view.source} --reason REASON', and "
    return (
        f"keep the name and forget what was read: {suspend}once its jobs have ended, run 'airflow-coordination "
        f"supervisor reset {view.source} --forget', and submit the spec again"
        + ("" if is_terminated else ", then resume")
    )


def _location_before(view: SourceView, last: Mapping[str, Any] | None) -> Location | None:
    """Return where the source was read from, by its last spec or by the DAG that read it; None if unknown."""
    with suppress(ConfigurationError):  # written by another version of the package
        if last is not None:
            return Location.of(IngestionSpec.read(last))
        if (item := claimed(view)) is not None:
            claim = SourceClaim.of(item)
            return Location(kind=claim.kind, location=claim.location)
    return None


def _left(view: SourceView, before: Location | None, now: Location) -> list[str]:
    """Return what the source has read, and a spec does not read any more."""
    if before is not None:
        if left := left_of(before.kind, before.location, now.kind, now.location):
            return [] if view.is_empty() else left
        if before.parts and now.parts >= before.parts:
            return []
    if not now.parts:
        return []
    held = {_part_of(partition) for partition in view.partitions(*UNFINISHED)}
    unknown = before.parts if before is not None and None in held else frozenset()
    return sorted(repr(part) for part in (held | unknown) - now.parts if part is not None)


def _part_of(partition: Partition) -> str | None:
    """Return the part of the source that a partition belongs to, such as a stream; None if that is unknown."""
    try:
        kind = kind_of_stored(partition)
    except ProgressError:
        return None
    return None if kind is None else kind.group_of(partition)
