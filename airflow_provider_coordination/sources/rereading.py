"""How often the data of a source is read: once, or again after an interval."""

from __future__ import annotations

from airflow_provider_coordination.coordination.errors import ConfigurationError


def check_rereading(what: str, interval_seconds: float | None, count: int | None) -> None:
    """Check how often something is read.

    :param what: the owner of the settings, for the error.
    :param interval_seconds: how long after its delivery it is read again; None for never.
    :param count: how often it is read in total; None for no limit.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if interval_seconds is not None and interval_seconds <= 0:
        raise ConfigurationError(f"{what}: field 'interval' must be positive; got {interval_seconds!r} seconds")
    if count is not None and count < 1:
        raise ConfigurationError(f"{what}: field 'count' must be at least 1; got {count!r}")
    if count is not None and count > 1 and interval_seconds is None:
        raise ConfigurationError(f"{what}: field 'count' needs 'interval', the time until the next read; got {count!r}")
