"""Reports of a job's sinks: which sinks are available, and which are unavailable, since when and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.partition import format_instant, read_instant
from airflow_provider_coordination.coordination.storable_text import storable

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.job_reports import JobReport

MAX_ERROR_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class SinkReport:
    """The status of one sink of a job.

    :param name: its name.
    :param kind: its kind, such as `parquet`.
    :param is_exactly_once: whether it stores each batch exactly once; otherwise at least once.
    :param at: when it last stored or refused a batch (aware); None if it has not been given a batch yet.
    :param unavailable_since: since when it has been unavailable (aware); None if it is available.
    :param error: why it is unavailable, without secrets; empty if it is available.
    :param waiting_batches: how many batches of the job wait for it.
    """

    name: str
    kind: str
    is_exactly_once: bool = True
    at: datetime | None = None
    unavailable_since: datetime | None = None
    error: str = ""
    waiting_batches: int = 0

    def unavailable(self, at: datetime, error: str, waiting_batches: int) -> SinkReport:
        """Return the report after the sink has just been unavailable.

        :param at: the current time (aware).
        :param error: why, without secrets.
        :param waiting_batches: how many batches wait for it.
        """
        error = storable(error, MAX_ERROR_CHARACTERS)
        return replace(
            self, at=at, unavailable_since=self.unavailable_since or at, error=error, waiting_batches=waiting_batches
        )

    def available(self, at: datetime) -> SinkReport:
        """Return the report after the sink has just stored a batch."""
        return replace(self, at=at, unavailable_since=None, error="", waiting_batches=0)

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "name": self.name,
            "kind": self.kind,
            "is_exactly_once": self.is_exactly_once,
            "at": self.at and format_instant(self.at),
            "unavailable_since": self.unavailable_since and format_instant(self.unavailable_since),
            "error": self.error,
            "waiting_batches": self.waiting_batches,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SinkReport | None:
        """Return the report from a JSON object; None if that is not a report."""
        name, kind, error, waiting_batches = (
            mapping.get(each) for each in ("name", "kind", "error", "waiting_batches")
        )
        if not isinstance(name, str) or not isinstance(kind, str):
            return None
        return cls(
            name=name,
            kind=kind,
            is_exactly_once=mapping.get("is_exactly_once") is not False,
            at=read_instant(mapping.get("at")),
            unavailable_since=read_instant(mapping.get("unavailable_since")),
            error=error if isinstance(error, str) else "",
            waiting_batches=waiting_batches if isinstance(waiting_batches, int) else 0,
        )


def sinks_of(reports: Sequence[JobReport]) -> list[SinkReport]:
    """Return the status of a source's sinks: the sinks of the job that reported last, as reported by all jobs.

    The latest report of a sink decides. A sink is unavailable since the first report of that, after which no job could
    store a batch.
    """
    if not reports:
        return []
    return [_of_all(sink, reports) for sink in max(reports, key=lambda report: report.at).sinks]


def _of_all(sink: SinkReport, reports: Sequence[JobReport]) -> SinkReport:
    dated = [(each.at, each) for report in reports for each in report.sinks if each.name == sink.name and each.at]
    if not dated:
        return sink
    known = [each for _, each in sorted(dated, key=lambda each: each[0], reverse=True)]
    refused = list(takewhile(lambda each: each.unavailable_since is not None, known))
    since = min((each.unavailable_since for each in refused if each.unavailable_since), default=None)
    return replace(known[0], unavailable_since=since, waiting_batches=sum(each.waiting_batches for each in refused))
