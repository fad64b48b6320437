"""What a job reports of itself while it runs, as it is kept in the job's item.

A report is of bounded size: a job that reads a thousand partitions reports the lag of each, in a few kilobytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.compression import packed, unpacked
from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.partition import format_instant, read_instant
from airflow_provider_coordination.coordination.sink_reports import SinkReport

REPORT_INTERVAL = timedelta(seconds=10)
"""How often a job writes its report."""
WINDOWS: Mapping[str, timedelta] = {f"{minutes}m": timedelta(minutes=minutes) for minutes in (1, 5, 15)}
"""Over what times records are averaged, by the names of the averages."""
MAX_PARSE_ERRORS = 20
"""How many bad records, the latest ones, a report has."""
MAX_ERRORS = 10
"""How many errors, the latest ones, a report has."""
MAX_SINKS = 20
"""How many sinks a report has: those first that take nothing."""
MAX_REPORT_CHARACTERS = 20_000
"""About what the lags of 2,000 shards need."""
MAX_LAST_REPORT_CHARACTERS = 4_000
"""A stored progress has 64 KB, and the outcome of a job needs nearly all of it."""


@dataclass(frozen=True, kw_only=True)
class RecordCounts:
    """What became of records, of the batches that were delivered.

    :param processed: records that the sinks were given, or that no sink wanted.
    :param processed_bytes: payload bytes of all of them, bad ones and rejected ones included.
    :param processed_with_error: records on which the transform raised, or which it marked as bad.
    :param unparseable: records whose payload does not fit the schema.
    :param thrown_away: records that were rejected because they are late or early.
    """

    processed: int = 0
    processed_bytes: int = 0
    processed_with_error: int = 0
    unparseable: int = 0
    thrown_away: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        """Return the sum."""
        return RecordCounts(**{name: getattr(self, name) + getattr(other, name) for name in COUNTED})

    def __sub__(self, other: RecordCounts) -> RecordCounts:
        """Return what was counted since."""
        return RecordCounts(**{name: getattr(self, name) - getattr(other, name) for name in COUNTED})

    def a_second(self, seconds: float) -> dict[str, float]:
        """Return how much it is a second, by name, where it took this time; zeros where it took none."""
        return {name: round(getattr(self, name) / seconds, 3) if seconds > 0 else 0.0 for name in COUNTED}

    def to_mapping(self) -> dict[str, int]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: object) -> RecordCounts:
        """Return it from a JSON object; what that does not say is 0."""
        known = mapping if isinstance(mapping, Mapping) else {}
        return cls(**{name: value for name in COUNTED if isinstance(value := known.get(name), int)})


COUNTED = tuple(each.name for each in fields(RecordCounts))


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What a job reports of itself.

    :param at: when (aware).
    :param totals: what it counted since its start.
    :param rates: moving averages a second, by the names of `WINDOWS` and those of `RecordCounts`; over the time that it
        runs, where that is shorter.
    :param lag_ms: how long ago, in milliseconds, the oldest record arrived that it has not read, by partition; 0 where
        there is none. Partitions of which that is not known are left out.
    :param parse_errors: the latest bad records, the latest last: JSON objects with `at`, `stage`, `error`, and what
        says which record it is. As many as `max_saved_parse_exceptions` lets a job keep, `MAX_PARSE_ERRORS` at most.
    :param errors: the latest failures of partitions, the latest last; `MAX_ERRORS` at most.
    :param error_count: how many there were since its start.
    :param sinks: how its sinks stand; `MAX_SINKS` at most.
    """

    at: datetime
    totals: RecordCounts = field(default_factory=RecordCounts)
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lag_ms: Mapping[str, int] = field(default_factory=dict)
    parse_errors: Sequence[Mapping[str, Any]] = ()
    errors: Sequence[ErrorEvent] = ()
    error_count: int = 0
    sinks: Sequence[SinkReport] = ()

    def errors_after(self, count: int) -> Sequence[ErrorEvent]:
        """Return the errors after the first ones, as far as the report has them.

        :param count: how many are known already.
        """
        return self.errors[max(0, len(self.errors) - max(0, self.error_count - count)) :]

    def to_text(self, limit: int = MAX_REPORT_CHARACTERS) -> str:
        """Return it as a text.

        Where it does not fit, the oldest bad records are left out, then the partitions that lag least, then the oldest
        errors.

        :param limit: most characters.
        """
        bad = list(self.parse_errors)[-MAX_PARSE_ERRORS:]
        errors = list(self.errors)[-MAX_ERRORS:]
        lags = sorted(self.lag_ms.items(), key=lambda each: (-each[1], each[0]))
        while len(text := self._packed(bad, lags, errors)) > limit and (bad or lags or errors):
            if bad:
                bad = bad[len(bad) // 2 + 1 :]
            elif lags:
                lags = lags[: len(lags) * 9 // 10]
            else:
                errors = errors[len(errors) // 2 + 1 :]
        return text

    def to_last_text(self) -> str:
        """Return it as a job leaves it at its end, where it reads nothing any more."""
        return replace(self, lag_ms={}).to_text(MAX_LAST_REPORT_CHARACTERS)

    def _packed(
        self, bad: Sequence[Mapping[str, Any]], lags: Sequence[tuple[str, int]], errors: Sequence[ErrorEvent]
    ) -> str:
        by_key = sorted(lags)  # neighbours share most of their keys, which makes the text short
        return packed(
            {
                "at": format_instant(self.at),
                "totals": self.totals.to_mapping(),
                "rates": {name: dict(rate) for name, rate in self.rates.items()},
                "partitions": [key for key, _ in by_key],
                "lag_ms": [lag for _, lag in by_key],
                "parse_errors": [dict(record) for record in bad],
                "errors": [error.to_mapping() for error in errors],
                "error_count": self.error_count,
                "sinks": [sink.to_mapping() for sink in _worst_first(self.sinks)[:MAX_SINKS]],
            }
        )

    @classmethod
    def from_text(cls, text: object) -> JobReport | None:
        """Return the report that `to_text` made; None if it is none."""
        try:
            said = unpacked(text) if isinstance(text, str) else None
        except ValueError:
            said = None
        at = read_instant(said.get("at")) if isinstance(said, Mapping) else None
        if at is None or not isinstance(said, Mapping):
            return None
        rates = said.get("rates")
        lags = zip(_list(said, "partitions"), _list(said, "lag_ms"), strict=False)
        errors = (ErrorEvent.from_mapping(each) for each in _list(said, "errors") if isinstance(each, Mapping))
        error_count = said.get("error_count")
        sinks = (SinkReport.from_mapping(each) for each in _list(said, "sinks") if isinstance(each, Mapping))
        return cls(
            at=at,
            totals=RecordCounts.from_mapping(said.get("totals")),
            rates=rates if isinstance(rates, Mapping) else {},
            lag_ms={key: lag for key, lag in lags if isinstance(key, str) and isinstance(lag, int)},
            parse_errors=tuple(error for error in _list(said, "parse_errors") if isinstance(error, Mapping)),
            errors=tuple(error for error in errors if error is not None),
            error_count=error_count if isinstance(error_count, int) else 0,
            sinks=tuple(sink for sink in sinks if sink is not None),
        )


class MovingAverages:
    """Averages over the last minutes, of what was counted up to some instants.

    :param started: when counting began, on a monotonic clock, in seconds.
    """

    def __init__(self, started: float) -> None:
        self._known: deque[tuple[float, RecordCounts]] = deque([(started, RecordCounts())])

    def rates(self, now: float, totals: RecordCounts) -> dict[str, dict[str, float]]:
        """Return the averages, and remember what is counted by now.

        :param now: on the same clock, not before an earlier call's.
        :param totals: what is counted since the start.
        """
        self._known.append((now, totals))
        longest = max(WINDOWS.values()).total_seconds()
        while len(self._known) > 1 and self._known[1][0] <= now - longest:
            self._known.popleft()
        return {name: self._over(window.total_seconds(), now, totals) for name, window in WINDOWS.items()}

    def _over(self, seconds: float, now: float, totals: RecordCounts) -> dict[str, float]:
        """Return the average since the last known instant that is a window away; since the start, if that is nearer."""
        known = [each for each in self._known if each[0] <= now - seconds]
        at, counted = known[-1] if known else self._known[0]
        return (totals - counted).a_second(now - at)


def _worst_first(sinks: Sequence[SinkReport]) -> list[SinkReport]:
    return sorted(sinks, key=lambda sink: sink.away_since is None)


def _list(said: Mapping[str, Any], name: str) -> list[Any]:
    value = said.get(name)
    return value if isinstance(value, list) else []
