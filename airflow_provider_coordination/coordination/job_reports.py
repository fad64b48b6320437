"""The reports of running jobs, as stored in the job's item.

The size of a report is bounded: a job that reads a thousand partitions reports the lag of each in a few kilobytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from airflow_provider_coordination.coordination.freshness import FRESHNESS_WINDOW, Ages
from airflow_provider_coordination.coordination.json_values import Stored, json_of
from airflow_provider_coordination.coordination.partition import format_instant, read_instant
from airflow_provider_coordination.coordination.texts import compress, decompress, storable

MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, kw_only=True)
class ErrorEvent(Stored):
    """An error in a job or a supervisor.

    :param at: when it happened (aware).
    :param error_class: the class name of the error, or of its cause.
    :param message: the error's message, without secrets; it is cut to `MAX_MESSAGE_CHARACTERS`.
    :param partition: the shard or other partition that it concerns; None if it concerns no single partition.
    :param owner: the job in which it happened; None if it happened in the supervisor.
    :param is_stream_error: whether the source was unavailable or returned an error.
    """

    at: datetime
    error_class: str
    message: str
    partition: str | None = None
    owner: str | None = None
    is_stream_error: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", self.message[:MAX_MESSAGE_CHARACTERS])


REPORT_INTERVAL = timedelta(seconds=10)
"""How often a job writes its report."""
WINDOWS: Mapping[str, timedelta] = {f"{minutes}m": timedelta(minutes=minutes) for minutes in (1, 5, 15)}
"""The periods of the moving averages, by the names of the averages."""
MAX_PARSE_ERRORS = 20
"""The maximum number of bad records in a report; the latest ones."""
MAX_ERRORS = 10
"""The maximum number of errors in a report; the latest ones."""
MAX_ERROR_CHARACTERS = 200
MAX_SINKS = 20
"""The maximum number of sinks in a report; unavailable sinks come first."""
MAX_REPORT_CHARACTERS = 20_000
"""About the size of the lags of 2,000 shards."""
MAX_LAST_REPORT_CHARACTERS = 4_000
"""A stored progress is limited to 64 KB, and the outcome of a job needs nearly all of it."""


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
    :param freshness_p50: the age in seconds within which half of the records became visible in it, during
        `FRESHNESS_WINDOW` before the last report; set by `sinks_of`. None if there are none with a time of arrival.
    :param freshness_p95: the same for 95 percent of the records.
    """

    name: str
    kind: str
    is_exactly_once: bool = True
    at: datetime | None = None
    unavailable_since: datetime | None = None
    error: str = ""
    waiting_batches: int = 0
    freshness_p50: float | None = None
    freshness_p95: float | None = None

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
        return json_of(self)

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


@dataclass(frozen=True, kw_only=True)
class RecordCounts:
    """Counts of the records of delivered batches, by their result.

    :param processed: records that were written to the sinks, or that no sink wanted.
    :param processed_bytes: payload bytes of all records, including bad and rejected ones.
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
        """Return the difference."""
        return RecordCounts(**{name: getattr(self, name) - getattr(other, name) for name in COUNTED})

    def per_second(self, seconds: float) -> dict[str, float]:
        """Return the counts per second over this period, by name; zeros if the period is empty."""
        return {name: round(getattr(self, name) / seconds, 3) if seconds > 0 else 0.0 for name in COUNTED}

    def to_mapping(self) -> dict[str, int]:
        """Return the counts as a JSON object."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: object) -> RecordCounts:
        """Return the counts from a JSON object; missing counts are 0."""
        known = mapping if isinstance(mapping, Mapping) else {}
        return cls(**{name: value for name in COUNTED if isinstance(value := known.get(name), int)})


COUNTED = tuple(each.name for each in fields(RecordCounts))


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """A report of a running job.

    :param at: when it was made (aware).
    :param totals: the counts since the start of the job.
    :param rates: moving averages per second, by the names of `WINDOWS` and of `RecordCounts`; over the job's running
        time if that is shorter.
    :param lag_ms: by partition, how many milliseconds ago its oldest unread record arrived; 0 if there is none.
        Partitions with an unknown lag are left out.
    :param parse_errors: the latest bad records, the latest last: JSON objects with `at`, `stage`, `error`, and the
        identity of the record. The maximum is the job's `max_saved_parse_exceptions`, but not above `MAX_PARSE_ERRORS`.
    :param errors: the latest failures of partitions, the latest last; at most `MAX_ERRORS`.
    :param error_count: the number of failures since the start of the job.
    :param sinks: the status of its sinks; at most `MAX_SINKS`.
    :param slots: how many tasks it runs at the same time; None if unknown.
    :param ages: of the records that became visible during `FRESHNESS_WINDOW`, by the name of the sink.
    :param freshness_problem: why its sinks cannot be as fresh as its target, with the remedy; empty if they can, or if
        it has no target.
    """

    at: datetime
    totals: RecordCounts = field(default_factory=RecordCounts)
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lag_ms: Mapping[str, int] = field(default_factory=dict)
    parse_errors: Sequence[Mapping[str, Any]] = ()
    errors: Sequence[ErrorEvent] = ()
    error_count: int = 0
    sinks: Sequence[SinkReport] = ()
    slots: int | None = None
    ages: Mapping[str, Ages] = field(default_factory=dict)
    freshness_problem: str = ""

    def errors_after(self, count: int) -> Sequence[ErrorEvent]:
        """Return the errors after the first `count` ones, as far as the report contains them.

        :param count: the number of errors that the caller already has.
        """
        return self.errors[max(0, len(self.errors) - max(0, self.error_count - count)) :]

    def to_text(self, limit: int = MAX_REPORT_CHARACTERS) -> str:
        """Return the report as a text.

        If it is too long, first the oldest bad records are left out, then the partitions with the smallest lags, then
        the ages, then the oldest errors.

        :param limit: the maximum number of characters.
        """
        bad = list(self.parse_errors)[-MAX_PARSE_ERRORS:]
        errors, ages = list(self.errors)[-MAX_ERRORS:], self.ages
        lags = sorted(self.lag_ms.items(), key=lambda each: (-each[1], each[0]))
        while len(text := self._compressed(bad, lags, errors, ages)) > limit and (bad or lags or errors or ages):
            if bad:
                bad = bad[len(bad) // 2 + 1 :]
            elif lags:
                lags = lags[: len(lags) * 9 // 10]
            elif ages:
                ages = {}
            else:
                errors = errors[len(errors) // 2 + 1 :]
        return text

    def to_last_text(self) -> str:
        """Return the last report of a job, which no longer reads anything, as a text."""
        return replace(self, lag_ms={}, freshness_problem="").to_text(MAX_LAST_REPORT_CHARACTERS)

    def _compressed(
        self,
        bad: Sequence[Mapping[str, Any]],
        lags: Sequence[tuple[str, int]],
        errors: Sequence[ErrorEvent],
        ages: Mapping[str, Ages],
    ) -> str:
        sinks = _worst_first(self.sinks)[:MAX_SINKS]
        by_key = sorted(lags)  # neighbouring keys are similar, so the compressed text is shorter
        return compress(
            {
                "at": format_instant(self.at),
                "totals": self.totals.to_mapping(),
                "rates": {name: dict(rate) for name, rate in self.rates.items()},
                "partitions": [key for key, _ in by_key],
                "lag_ms": [lag for _, lag in by_key],
                "parse_errors": [dict(record) for record in bad],
                "errors": [error.to_mapping() for error in errors],
                "error_count": self.error_count,
                "slots": self.slots,
                "sinks": [sink.to_mapping() for sink in sinks],
                "ages": {sink.name: ages[sink.name].to_list() for sink in sinks if sink.name in ages},
                "freshness_problem": self.freshness_problem,
            }
        )

    @classmethod
    def from_text(cls, text: object) -> JobReport | None:
        """Return the report from a text of `to_text`; None if the text is not a report."""
        try:
            stored = decompress(text) if isinstance(text, str) else None
        except ValueError:
            stored = None
        at = read_instant(stored.get("at")) if isinstance(stored, Mapping) else None
        if at is None or not isinstance(stored, Mapping):
            return None
        rates, slots = stored.get("rates"), stored.get("slots")
        lags = zip(_list(stored, "partitions"), _list(stored, "lag_ms"), strict=False)
        errors = (ErrorEvent.from_mapping(each) for each in _list(stored, "errors") if isinstance(each, Mapping))
        error_count, ages, problem = (stored.get(each) for each in ("error_count", "ages", "freshness_problem"))
        sinks = (SinkReport.from_mapping(each) for each in _list(stored, "sinks") if isinstance(each, Mapping))
        return cls(
            at=at,
            totals=RecordCounts.from_mapping(stored.get("totals")),
            rates=rates if isinstance(rates, Mapping) else {},
            lag_ms={key: lag for key, lag in lags if isinstance(key, str) and isinstance(lag, int)},
            parse_errors=tuple(error for error in _list(stored, "parse_errors") if isinstance(error, Mapping)),
            errors=tuple(error for error in errors if error is not None),
            error_count=error_count if isinstance(error_count, int) else 0,
            sinks=tuple(sink for sink in sinks if sink is not None),
            slots=slots if isinstance(slots, int) else None,
            ages={name: Ages.from_list(each) for name, each in ages.items()} if isinstance(ages, Mapping) else {},
            freshness_problem=problem if isinstance(problem, str) else "",
        )


class MovingAverages:
    """Computes moving averages of counts over the last minutes.

    :param started: when counting began, in seconds of a monotonic clock.
    """

    def __init__(self, started: float) -> None:
        self._known: deque[tuple[float, RecordCounts]] = deque([(started, RecordCounts())])

    def rates(self, now: float, totals: RecordCounts) -> dict[str, dict[str, float]]:
        """Return the averages, and remember the current counts.

        :param now: the time on the same clock, not before an earlier call's.
        :param totals: the counts since the start.
        """
        self._known.append((now, totals))
        longest = max(WINDOWS.values()).total_seconds()
        while len(self._known) > 1 and self._known[1][0] <= now - longest:
            self._known.popleft()
        return {name: self._over(window.total_seconds(), now, totals) for name, window in WINDOWS.items()}

    def _over(self, seconds: float, now: float, totals: RecordCounts) -> dict[str, float]:
        """Return the average since the last remembered time a window ago, or since the start if that is later."""
        known = [each for each in self._known if each[0] <= now - seconds]
        at, counted = known[-1] if known else self._known[0]
        return (totals - counted).per_second(now - at)


def _worst_first(sinks: Sequence[SinkReport]) -> list[SinkReport]:
    return sorted(sinks, key=lambda sink: sink.unavailable_since is None)


def _list(stored: Mapping[str, Any], name: str) -> list[Any]:
    value = stored.get(name)
    return value if isinstance(value, list) else []


def sinks_of(reports: Sequence[JobReport]) -> list[SinkReport]:
    """Return the status of a source's sinks: the sinks of the job that reported last, as reported by all jobs.

    The latest report of a sink decides. A sink is unavailable since the first report of that, after which no job could
    store a batch. Its freshness counts the jobs which reported within `FRESHNESS_WINDOW` before the latest report.
    """
    if not reports:
        return []
    latest, recent = max(reports, key=lambda report: report.at), _recent(reports)
    return [_with_freshness(_of_all(sink, reports), recent) for sink in latest.sinks]


def _recent(reports: Sequence[JobReport]) -> list[JobReport]:
    latest = max((report.at for report in reports), default=None)
    return [report for report in reports if latest is not None and latest - report.at < FRESHNESS_WINDOW]


def freshness_problem_of(reports: Sequence[JobReport]) -> str:
    """Return why a job of a source cannot reach its target of freshness; empty if all can.

    Reports count that are not older than `FRESHNESS_WINDOW` before the latest one.
    """
    found = [(report.at, report.freshness_problem) for report in _recent(reports) if report.freshness_problem]
    return max(found)[1] if found else ""


def _with_freshness(sink: SinkReport, reports: Sequence[JobReport]) -> SinkReport:
    ages = Ages.sum(report.ages[sink.name] for report in reports if sink.name in report.ages)
    return replace(sink, freshness_p50=ages.quantile(0.5), freshness_p95=ages.quantile(0.95))


def _of_all(sink: SinkReport, reports: Sequence[JobReport]) -> SinkReport:
    dated = [(each.at, each) for report in reports for each in report.sinks if each.name == sink.name and each.at]
    if not dated:
        return sink
    known = [each for _, each in sorted(dated, key=lambda each: each[0], reverse=True)]
    refused = list(takewhile(lambda each: each.unavailable_since is not None, known))
    since = min((each.unavailable_since for each in refused if each.unavailable_since), default=None)
    return replace(known[0], unavailable_since=since, waiting_batches=sum(each.waiting_batches for each in refused))
