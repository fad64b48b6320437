"""What jobs report of their sinks: which take batches, and which take nothing, since when and why."""

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
    """How one sink of a job stands.

    :param name: its name.
    :param kind: its kind, such as `parquet`.
    :param is_exactly_once: whether it takes each batch once; at least once if not.
    :param at: when it last took a batch, or last took nothing (aware); None if it was given none yet.
    :param away_since: since when it takes nothing (aware); None if it takes what it is given.
    :param error: why it takes nothing, without secrets; empty if it takes what it is given.
    :param held: how many batches of the job wait for it.
    """

    name: str
    kind: str
    is_exactly_once: bool = True
    at: datetime | None = None
    away_since: datetime | None = None
    error: str = ""
    held: int = 0

    def refusing(self, at: datetime, error: str, held: int) -> SinkReport:
        """Return it where it has just taken nothing.

        :param at: now (aware).
        :param error: why, without secrets.
        :param held: how many batches wait for it.
        """
        error = storable(error, MAX_ERROR_CHARACTERS)
        return replace(self, at=at, away_since=self.away_since or at, error=error, held=held)

    def taking(self, at: datetime) -> SinkReport:
        """Return it where it has just taken a batch."""
        return replace(self, at=at, away_since=None, error="", held=0)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "name": self.name,
            "kind": self.kind,
            "is_exactly_once": self.is_exactly_once,
            "at": self.at and format_instant(self.at),
            "away_since": self.away_since and format_instant(self.away_since),
            "error": self.error,
            "held": self.held,
        }

    @classmethod
    def from_mapping(cls, said: Mapping[str, Any]) -> SinkReport | None:
        """Return it from a JSON object; None if that is none."""
        name, kind, error, held = (said.get(each) for each in ("name", "kind", "error", "held"))
        if not isinstance(name, str) or not isinstance(kind, str):
            return None
        return cls(
            name=name,
            kind=kind,
            is_exactly_once=said.get("is_exactly_once") is not False,
            at=read_instant(said.get("at")),
            away_since=read_instant(said.get("away_since")),
            error=error if isinstance(error, str) else "",
            held=held if isinstance(held, int) else 0,
        )


def sinks_of(reports: Sequence[JobReport]) -> list[SinkReport]:
    """Return how the sinks of a source stand, those of the job that reported last, by what all jobs report of them.

    What is known last decides. A sink is away since the first job found that out after which none had a batch taken.
    """
    if not reports:
        return []
    return [_of_all(sink, reports) for sink in max(reports, key=lambda report: report.at).sinks]


def _of_all(sink: SinkReport, reports: Sequence[JobReport]) -> SinkReport:
    dated = [(each.at, each) for report in reports for each in report.sinks if each.name == sink.name and each.at]
    if not dated:
        return sink
    known = [each for _, each in sorted(dated, key=lambda each: each[0], reverse=True)]
    refused = list(takewhile(lambda each: each.away_since is not None, known))
    since = min((each.away_since for each in refused if each.away_since), default=None)
    return replace(known[0], away_since=since, held=sum(each.held for each in refused))
