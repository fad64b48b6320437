"""How many jobs the lag asks for: the window semantics of Druid's lag-based autoscaler, each answer with its reason.

Every point of the window asks for more jobs, for fewer, or for neither. More has priority. Between the two thresholds
nothing changes, and after a change nothing does for `min_trigger_scale_action_frequency`: that is the hysteresis.

A window that is not filled asks for nothing: after a while without looks, or after a change, few points say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from airflow_provider_coordination.supervisor.lag import LagPoint
from airflow_provider_coordination.supervisor.settings import AVERAGE, SUM, AutoScaleSettings

FILLED = Fraction(2, 3)
"""The part of its points from which a window counts as filled: a restart, or slow looks, may cost some."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What was decided about the number of jobs.

    :param count: how many there are to be.
    :param reason: why, in a sentence; empty if nothing asked for another number.
    """

    count: int
    reason: str = ""


def configured_count(settings: AutoScaleSettings, task_count: int) -> int:
    """Return how many jobs there are to be before scaling has changed it.

    :param task_count: what the spec says without scaling.
    """
    start = task_count if settings.task_count_start is None else settings.task_count_start
    return min(max(start, settings.task_count_min), settings.task_count_max)


def first_judged_at(settings: AutoScaleSettings, started_at: datetime) -> datetime:
    """Return when the first decision is due: the window is full then (aware)."""
    return started_at + settings.scale_action_start_delay + settings.lag_collection_range


def window_of(settings: AutoScaleSettings, points: Sequence[LagPoint], now: datetime) -> list[LagPoint]:
    """Return the points that are judged: as many as the range holds intervals, and one."""
    size = _size(settings)
    # Points come a little later than their interval, by how long a look takes.
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
) -> Scaling:
    """Decide how many jobs there are to be.

    :param count: how many there are to be up to now.
    :param window: the points of the lag that are judged.
    :param partitions: how many partitions jobs can read: more jobs than that are of no use.
    :param now: the present instant (aware).
    :param ending: how many jobs still deliver what they have read; nothing is changed during that time.
    :param changed_at: when the number was changed last (aware); None if it never was.
    """
    asked, why = _asked(settings, window)
    if not asked:
        return Scaling(count=count)
    size = _size(settings)
    if len(window) < FILLED * size:
        return Scaling(count=count, reason=f"{why}; not changed: window not filled: {len(window)} of {size} points")
    if ending:
        return Scaling(count=count, reason=f"{why}; not changed: {ending} jobs still deliver what they have read")
    frequency = settings.min_trigger_scale_action_frequency
    if changed_at is not None and now - changed_at < frequency:
        left = _shown(changed_at + frequency - now)
        return Scaling(count=count, reason=f"{why}; not changed: it was changed recently, wait {left} more")
    if asked > 0:
        most = min(settings.task_count_max, partitions)
        if count >= most:
            return Scaling(count=count, reason=f"{why}; not changed: {_bound(settings.task_count_max, most, 'most')}")
        return Scaling(count=min(count + settings.scale_out_step, most), reason=why)
    least = min(settings.task_count_min, partitions)
    if count <= least:
        return Scaling(count=count, reason=f"{why}; not changed: {_bound(settings.task_count_min, least, 'fewest')}")
    return Scaling(count=max(count - settings.scale_in_step, least), reason=why)


def _asked(settings: AutoScaleSettings, window: Sequence[LagPoint]) -> tuple[int, str]:
    """Return whether the window asks for more jobs (1), fewer (-1) or neither (0), and why."""
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
        found = point.sum_ms if point.count else None
    elif aggregate == AVERAGE:
        found = point.average_ms
    else:
        found = point.oldest_ms
    return None if found is None else timedelta(milliseconds=found)


def _bound(configured: int, bound: int, which: str) -> str:
    if bound < configured:
        return f"there are only {bound} partitions to read"
    return f"{bound} jobs are the {which} that 'auto_scale' allows"


def _shown(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
