"""Scaling the number of jobs by lag, with the window semantics of Druid's lag-based autoscaler.

Every point of the window counts for more jobs, for fewer jobs, or for neither. More has priority. Hysteresis: between
the two thresholds nothing changes, nor within `min_trigger_scale_action_frequency` after a change.

An incomplete window changes nothing: after a pause or a change, a few points are not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from airflow_provider_coordination.supervisor.lag import LagPoint
from airflow_provider_coordination.supervisor.settings import AVERAGE, SUM, AutoScaleSettings

MIN_FILL = Fraction(2, 3)
"""The fraction of points at which a window is complete: a restart or slow polls may miss some."""


@dataclass(frozen=True, kw_only=True)
class ScalingDecision:
    """A decision about the number of jobs.

    :param count: the new number of jobs.
    :param reason: the reason, in a sentence; empty if the lag requires no change.
    """

    count: int
    reason: str = ""


def configured_count(settings: AutoScaleSettings, task_count: int) -> int:
    """Return the number of jobs before scaling changes it.

    :param task_count: the spec's `task_count`.
    """
    start = task_count if settings.task_count_start is None else settings.task_count_start
    return min(max(start, settings.task_count_min), settings.task_count_max)


def first_decision_at(settings: AutoScaleSettings, started_at: datetime) -> datetime:
    """Return when the first decision is due and the window is full (aware)."""
    return started_at + settings.scale_action_start_delay + settings.lag_collection_range


def window_of(settings: AutoScaleSettings, points: Sequence[LagPoint], now: datetime) -> list[LagPoint]:
    """Return the points of the window: one more than the range has intervals."""
    size = _size(settings)
    # Points are later than their interval by the duration of a poll.
    since = now - settings.lag_collection_range - settings.lag_collection_interval
    return [point for point in points if since < point.at <= now][-size:]


def _size(settings: AutoScaleSettings) -> int:
    return settings.lag_collection_range // settings.lag_collection_interval + 1


def scale(
    settings: AutoScaleSettings,
    count: int,
    window: Sequence[LagPoint],
    *,
    partitions: int,
    now: datetime,
    ending: int = 0,
    changed_at: datetime | None = None,
) -> ScalingDecision:
    """Decide the number of jobs.

    The result is within `task_count_min` and `task_count_max`, unless fewer partitions than that can be read. Then the
    number is not changed.

    :param count: the number of jobs that can work now: at most `partitions`.
    :param window: the points of the window.
    :param partitions: the number of readable partitions, which limits the number of jobs.
    :param now: the present instant (aware).
    :param ending: the number of jobs that still deliver what they have read; nothing changes during that time.
    :param changed_at: the last change of the number (aware); None if there was none.
    """
    change, why = _requested_change(settings, window)
    if not change:
        return ScalingDecision(count=count)
    size = _size(settings)
    if len(window) < MIN_FILL * size:
        return ScalingDecision(
            count=count, reason=f"{why}; not changed: the window is incomplete: {len(window)} of {size} points"
        )
    if ending:
        return ScalingDecision(
            count=count, reason=f"{why}; not changed: {ending} jobs still deliver what they have read"
        )
    frequency = settings.min_trigger_scale_action_frequency
    if changed_at is not None and now - changed_at < frequency:
        left = _shown(changed_at + frequency - now)
        return ScalingDecision(count=count, reason=f"{why}; not changed: the last change was recent, wait {left} more")
    if change > 0:
        max_count = min(settings.task_count_max, partitions)
        if count >= max_count:
            return ScalingDecision(
                count=count, reason=f"{why}; not changed: {_bound(settings.task_count_max, max_count, 'maximum')}"
            )
        return ScalingDecision(count=min(count + settings.scale_out_step, max_count), reason=why)
    min_count = min(settings.task_count_min, partitions)
    if count <= min_count:
        return ScalingDecision(
            count=count, reason=f"{why}; not changed: {_bound(settings.task_count_min, min_count, 'minimum')}"
        )
    return ScalingDecision(count=max(count - settings.scale_in_step, min_count), reason=why)


def _requested_change(settings: AutoScaleSettings, window: Sequence[LagPoint]) -> tuple[int, str]:
    """Return whether the window requires more jobs (1), fewer (-1) or neither (0), and why."""
    if not window:
        return 0, ""
    lags = [_lag(point, settings.lag_aggregate) for point in window]
    beyond = sum(lag is not None and lag >= settings.scale_out_threshold for lag in lags)
    within = sum(lag is not None and lag <= settings.scale_in_threshold for lag in lags)
    if beyond / len(lags) >= settings.trigger_scale_out_fraction:
        return 1, f"{beyond} of {len(lags)} points have a lag of at least {_shown(settings.scale_out_threshold)}"
    if within / len(lags) >= settings.trigger_scale_in_fraction:
        return -1, f"{within} of {len(lags)} points have a lag of at most {_shown(settings.scale_in_threshold)}"
    return 0, ""


def _lag(point: LagPoint, aggregate: str) -> timedelta | None:
    if aggregate == SUM:
        milliseconds = point.sum_ms if point.count else None
    elif aggregate == AVERAGE:
        milliseconds = point.average_ms
    else:
        milliseconds = point.oldest_ms
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _bound(configured: int, bound: int, which: str) -> str:
    if bound < configured:
        return f"only {bound} partitions can be read"
    return f"{bound} jobs are the {which} that 'auto_scale' allows"


def _shown(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
